/* stats.c - Hessians and input ranges. Samples are added one by one in their order, so a batch's
 * size changes nothing. */
#include "pipeline/stats.h"

#include <string.h>

struct osh_stats {
    const osh_plan *plan; // view
    bool *wanted;         // own [values]
    osh_tensor **hessian; // own [values]
    osh_act_observer *ranges; // own [linears]
    int first, n;         // subgraphs
};

static bool mine(const osh_stats *s, const osh_linear *l)
{
    return l->subgraph >= s->first && l->subgraph < s->first + s->n;
}

osh_status osh_stats_new(osh_ctx *cx, osh_stats **out, const osh_plan *p, int first_subgraph, int n_subgraphs,
                         const bool *values)
{
    osh_status rc = OSH_OK;
    osh_stats *s = NULL; // own
    OSH_NEW(cx, s, 1);
    s->plan = p, s->first = first_subgraph, s->n = n_subgraphs;
    OSH_NEW(cx, s->wanted, p->graph->n_values);
    OSH_NEW(cx, s->hessian, p->graph->n_values);
    OSH_NEW(cx, s->ranges, p->n_linears);
    for (int i = 0; i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        if (!mine(s, l) || !l->wants || (values && !values[l->input])) continue;
        s->wanted[l->input] = true;
        if (l->wants & OSH_STAT_RANGE) OSH_TRY(osh_act_observer_init(cx, &s->ranges[i], &l->scheme->inputs));
        if ((l->wants & OSH_STAT_HESSIAN) && !s->hessian[l->input]) {
            OSH_TRY(osh_tensor_new(cx, &s->hessian[l->input], OSH_F32, 2, (int64_t[]){l->I, l->I}));
            memset(s->hessian[l->input]->data, 0, osh_tensor_bytes(s->hessian[l->input]));
        }
    }
    *out = s, s = NULL;
done:
    osh_stats_free(cx, s);
    return rc;
}

void osh_stats_free(osh_ctx *cx, osh_stats *s)
{
    if (!s) return;
    for (int v = 0; s->hessian && v < s->plan->graph->n_values; v++) osh_tensor_free(cx, s->hessian[v]);
    osh_free(cx, s->hessian);
    osh_free(cx, s->wanted);
    osh_free(cx, s->ranges);
    osh_free(cx, s);
}

const bool *osh_stats_wanted(const osh_stats *s) { return s->wanted; }
osh_tensor *osh_stats_hessian(const osh_stats *s, int value) { return value < 0 ? NULL : s->hessian[value]; }

void osh_stats_drop(osh_ctx *cx, osh_stats *s, int value)
{
    if (value < 0) return;
    osh_tensor_free(cx, s->hessian[value]);
    s->hessian[value] = NULL;
}

static void feed_ranges(osh_stats *s, int linear, const osh_tensor *x, const osh_batch *b)
{
    int64_t width = x->shape[1];
    size_t row = (size_t)width * osh_dtype_bytes(x->dtype);
    for (int64_t k = 0; k < b->seqs.n; k++) {
        int64_t first = b->seqs.offsets[k], n = b->seqs.offsets[k + 1] - first;
        osh_act_observer_feed(&s->ranges[linear], (const char *)x->data + (size_t)first * row, x->dtype, n * width);
    }
}

osh_status osh_stats_feed(osh_ctx *cx, void *user, int value, const osh_tensor *x, const osh_batch *b)
{
    osh_status rc = OSH_OK;
    osh_stats *s = user;
    if (!s->wanted[value]) goto done;
    if (s->hessian[value]) {
        osh_op_args a = {.in = {x}, .out = {s->hessian[value]}, .seqs = &b->seqs};
        OSH_TRY(osh_op_run(cx, osh_op_find("hessian_accum"), &a));
    }
    for (int i = 0; i < s->plan->n_linears; i++) {
        const osh_linear *l = &s->plan->linears[i];
        if (mine(s, l) && l->input == value && (l->wants & OSH_STAT_RANGE)) feed_ranges(s, i, x, b);
    }
done:
    return rc;
}

osh_status osh_stats_input_params(osh_ctx *cx, osh_tensor **scale, osh_tensor **zero, const osh_stats *s, int linear)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = &s->plan->linears[linear];
    const osh_act_observer *o = &s->ranges[linear];
    *scale = NULL, *zero = NULL;
    if (!(l->wants & OSH_STAT_RANGE)) goto done;
    if (!o->seen) OSH_FAIL(cx, OSH_E_NUMERIC, "%s saw no token: its input scale is unknown", l->name);
    OSH_TRY(osh_tensor_new(cx, scale, l->dtype, 1, (int64_t[]){1}));
    if (!l->scheme->inputs.symmetric) OSH_TRY(osh_tensor_new(cx, zero, OSH_I8, 1, (int64_t[]){1}));
    osh_q_scale_zp((*scale)->data, *zero ? (*zero)->data : NULL, &o->min, &o->max, 1,
                   &l->scheme->inputs, l->dtype, s->plan->arithmetic);
done:
    return rc;
}

int64_t osh_stats_bytes(const osh_plan *p, int subgraph)
{
    int64_t bytes = 0;
    for (int i = 0; i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        bool first = l->subgraph == subgraph && (l->wants & OSH_STAT_HESSIAN);
        for (int k = 0; first && k < i; k++)
            first = p->linears[k].input != l->input || !(p->linears[k].wants & OSH_STAT_HESSIAN);
        if (first) bytes += l->I * l->I * 4;
    }
    return bytes;
}

int64_t osh_stats_hessian_bytes(int64_t I)
{
    return (int64_t)(osh_mem_gross((size_t)(I * I) * sizeof(float)) + osh_mem_gross(sizeof(osh_tensor)));
}
