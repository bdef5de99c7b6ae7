/* op.c - the table of ops, in the order of ops.def. */
#include "ops/op.h"

#include <string.h>

#define OSH_OP(x) extern const osh_op osh_op_##x;
#include "ops/ops.def"
#undef OSH_OP

static const osh_op *const ops[] = {
#define OSH_OP(x) &osh_op_##x,
#include "ops/ops.def"
#undef OSH_OP
};

size_t osh_op_count(void) { return sizeof ops / sizeof *ops; }
const osh_op *osh_op_at(size_t i) { return i < osh_op_count() ? ops[i] : NULL; }

const osh_op *osh_op_find(const char *name)
{
    for (size_t i = 0; i < osh_op_count(); i++)
        if (!strcmp(ops[i]->name, name)) return ops[i];
    return NULL;
}

osh_status osh_op_run(osh_ctx *cx, const osh_op *op, const osh_op_args *a)
{
    osh_op_fn fn = op->run[OSH_CPU] ? op->run[OSH_CPU] : op->run[OSH_REF];
    if (a->out[0]->device) fn = op->run[OSH_CUDA];
    if (!fn) return osh_fail(cx, OSH_E_INTERNAL, "%s has no kernel for a device", op->name);
    osh_status rc = fn(cx, a);

    if (rc && rc != OSH_E_NUMERIC) osh_note(cx, "computing %s", op->name);
    return rc;
}
