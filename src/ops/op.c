/* op.c - defines the table of ops, in the order of ops.def. */
#include "ops/kernel.h"

#include <string.h>


static const osh_op *const ops[] = {
#define OSH_OP(x) &osh_op_##x,
#include "ops/ops.def"
#undef OSH_OP
};

size_t osh_op_count(void) { return sizeof ops / sizeof *ops; }
const osh_op *osh_op_at(size_t i) { return i < osh_op_count() ? ops[i] : NULL; }

bool osh_op_spreads(const osh_op *op, const void *attr, int k)
{
    return (op->spreads >> k & 1) && !(op->limits && op->limits(attr, k));
}

const osh_op *osh_op_find(const char *name)
{
    for (size_t i = 0; i < osh_op_count(); i++)
        if (!strcmp(ops[i]->name, name)) return ops[i];
    return NULL;
}

size_t osh_op_grad_scratch(const osh_op *op, const void *attr, const int64_t *in_width,
                           int64_t out_width, int64_t n_tokens, int n_threads)
{
    if (op->grad.scratch) return op->grad.scratch(attr, in_width, out_width, n_tokens, n_threads);
    /* The result is an upper bound for all ops. A norm needs the most memory for weights. Each of
     * the in_width[0] elements of its weight needs one copy in f32 and two sums in f64. */
    int64_t values = out_width, weights = 3 * in_width[0];
    for (int k = 0; k < op->n_in; k++) values += in_width[k];
    return (size_t)(values * n_tokens) * sizeof(float) + (size_t)weights * sizeof(double) +
           (size_t)(n_tokens + 2) * sizeof(osh_tile);
}

osh_status osh_grad_absent(osh_ctx *cx, const osh_grad_args *a)
{
    (void)a;
    return osh_fail(cx, OSH_E_UNSUPPORTED, "this binary has no gradient kernels for a GPU");
}

bool osh_op_has_grad(const osh_op *op, bool on_device)
{
    return op->grad.run[OSH_REF] && (!on_device || op->grad.run[OSH_CUDA]);
}

osh_status osh_op_grad(osh_ctx *cx, const osh_op *op, const osh_grad_args *a)
{
    osh_grad_fn fn = op->grad.run[OSH_CPU] ? op->grad.run[OSH_CPU] : op->grad.run[OSH_REF];
    if (!fn) return osh_fail(cx, OSH_E_UNSUPPORTED, "%s has no gradient", op->name);
    if (a->dout[0]->device && !(fn = op->grad.run[a->dout[0]->device->type->column]))
        return osh_fail(cx, OSH_E_UNSUPPORTED, "%s has no gradient on a device", op->name);
    osh_status rc = OSH_OK;
    osh_grad_args b = *a;
    if (a->dout[0]->device || !op->grad.writes) rc = osh_grad_zero(cx, &b);
    if (!rc) rc = fn(cx, &b);

    if (rc) osh_note(cx, "computing the gradient of %s", op->name);
    return rc;
}

osh_status osh_op_run(osh_ctx *cx, const osh_op *op, const osh_op_args *a)
{
    osh_op_fn fn = op->run[OSH_CPU] ? op->run[OSH_CPU] : op->run[OSH_REF];
    if (a->out[0]->device) fn = op->run[a->out[0]->device->type->column];
    if (a->past && !op->each_token) {
        if (!op->next || a->out[0]->device)
            return osh_fail(cx, OSH_E_INTERNAL, "%s does not run a sample in pieces", op->name);
        fn = op->next;
    }
    if (!fn) return osh_fail(cx, OSH_E_INTERNAL, "%s has no kernel for a device", op->name);
    osh_status rc = fn(cx, a);

    if (rc && rc != OSH_E_NUMERIC) osh_note(cx, "computing %s", op->name);
    return rc;
}
