/* passthrough.c - finds values that need no observer of their own, because they use the range of an
 * earlier value (passthrough.h). */
#include "rewrite/passthrough.h"

#include <string.h>

#include "base/buf.h"

static osh_status passthrough_refuse_name(osh_ctx *cx, const char *name)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    osh_buf_init(&b, 1024);
    for (size_t i = 0; i < osh_op_count(); i++)
        if (osh_op_is(osh_op_at(i), OSH_OP_PASSES))
            OSH_TRY(osh_buf_printf(cx, &b, "%s%s", b.len ? ", " : "", osh_op_at(i)->name));
    OSH_FAIL(cx, OSH_E_USAGE, "--calib-passthrough: %s %s: want %s", name,
             osh_op_find(name) ? "computes new values with another range" : "is not an op",
             b.data);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static osh_status passthrough_check_names(osh_ctx *cx, const osh_strs *names)
{
    osh_status rc = OSH_OK;
    for (size_t i = 0; i < names->n; i++) {
        const char *name = names->items[i] + (strncmp(names->items[i], "no-", 3) ? 0 : 3);
        const osh_op *op = osh_op_find(name);
        if (!op || !osh_op_is(op, OSH_OP_PASSES)) OSH_TRY(passthrough_refuse_name(cx, name));
    }
done:
    return rc;
}

/* True if --calib-passthrough selects the op. If several items of the option name the op, the last
 * one decides. */
static bool op_hands_on(const osh_rewrites *p, const osh_op *op)
{
    const osh_strs *names = &p->in->opt->calib_passthrough;
    bool on = false;
    for (size_t i = 0; osh_op_is(op, OSH_OP_PASSES) && i < names->n; i++) {
        bool off = !strncmp(names->items[i], "no-", 3);
        if (!strcmp(names->items[i] + (off ? 3 : 0), op->name)) on = !off;
    }
    return on;
}

/* True if the subgraph computes or reads the value. */
static bool value_is_there(const osh_rewrites *p, const osh_subgraph *s, int value)
{
    int producer = p->in->graph->values[value].producer;
    if (value == p->in->graph->input_ids) return false;
    if (p->in->pipeline == OSH_PIPELINE_BASIC ||
        (producer >= s->first && producer < s->first + s->n_nodes))
        return true;
    for (int i = 0; i < s->n_live_in; i++)
        if (s->live_in[i] == value) return true;
    return false;
}

static int range_source(const osh_rewrites *p, const osh_subgraph *s, int value)
{
    for (;;) {
        int producer = p->in->graph->values[value].producer;
        const osh_node *n = producer >= 0 ? &p->in->graph->nodes[producer] : NULL;
        if (!n || !op_hands_on(p, n->op) || !value_is_there(p, s, n->in[0])) return value;
        value = n->in[0];
    }
}

/* Replaces the range of the Linear's k-th observed value by the range of an earlier value. Does
 * nothing if the earlier value is not in the subgraph. */
static void range_inherit(osh_rewrites *p, const osh_subgraph *s, osh_linear *l, int linear, int k)
{
    int *value = &l->ranged[k], from = range_source(p, s, *value);
    if (from == *value) return;
    p->inherits[p->n_inherits++] = (osh_inherit){linear, k, *value, from};
    *value = from;
}

osh_status osh_plan_passthrough(osh_ctx *cx, osh_rewrites *p, osh_matching *match,
                                const osh_partition *parts)
{
    osh_status rc = OSH_OK;
    /* A value may use the range of an earlier value, but not if each head has a scale, because the
     * earlier value may have another number of heads, or none. */
    bool heads = match->cache.present && match->cache.strategy == OSH_Q_ATTN_HEAD;
    for (int i = 0; i < match->n_linears; i++)
        if (match->linears[i].wants & OSH_STAT_RANGE)
            match->linears[i].ranged[OSH_INPUT] = match->linears[i].input;
    if (!p->in->opt->calib_passthrough.n) goto done;
    OSH_TRY(passthrough_check_names(cx, &p->in->opt->calib_passthrough));
    OSH_NEW(cx, p->inherits, (size_t)match->n_linears * (1 + OSH_CACHED));
    for (int i = 0; i < match->n_linears; i++) {
        osh_linear *l = &match->linears[i];
        if (l->subgraph < 0) continue;
        const osh_subgraph *s = &parts->parts[l->subgraph];
        if (l->ranged[OSH_INPUT] >= 0) range_inherit(p, s, l, i, OSH_INPUT);
        for (int k = 0; !heads && k < OSH_CACHED && l->ranged[k] >= 0; k++)
            range_inherit(p, s, l, i, k);
    }
done:
    return rc;
}
