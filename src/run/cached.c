/* cached.c - see cached.h. A range, or one for each head, follows the samples as a static activation's does. */
#include "run/cached.h"

#include <string.h>

#include "plan/cache.h"
#include "run/narrow.h"

typedef struct cached_range {
    int linear;
    osh_act_observer *heads; // own [linear's heads]
} cached_range;

struct osh_cached {
    const osh_plan *plan;  // view
    int *at;               // own [values]: 1 + index into ranges; 0: not observed
    int *made;             // own [values]: the same of what Linears make
    cached_range *ranges;  // own [OSH_BESIDE * linears]
};

osh_status osh_cached_new(osh_ctx *cx, osh_cached **out, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_cached *c = NULL; // own
    OSH_NEW(cx, c, 1);
    c->plan = p;
    OSH_NEW(cx, c->at, p->graph->n_values);
    OSH_NEW(cx, c->made, p->graph->n_values);
    OSH_NEW(cx, c->ranges, OSH_BESIDE * p->n_linears);
    *out = c, c = NULL;
done:
    osh_cached_free(cx, c);
    return rc;
}

void osh_cached_free(osh_ctx *cx, osh_cached *c)
{
    if (!c) return;
    for (int i = 0; c->ranges && i < c->plan->n_linears; i++) osh_cached_drop(cx, c, i);
    osh_free(cx, c->ranges);
    osh_free(cx, c->at);
    osh_free(cx, c->made);
    osh_free(cx, c);
}

void osh_cached_drop(osh_ctx *cx, osh_cached *c, int linear)
{
    for (int k = 0; k < OSH_BESIDE; k++) {
        cached_range *r = &c->ranges[OSH_BESIDE * linear + k];
        for (int64_t h = 0; r->heads && h < c->plan->linears[linear].heads[k]; h++)
            osh_act_observer_deinit(cx, &r->heads[h]);
        osh_free(cx, r->heads), r->heads = NULL;
    }
}

/* The first of a Linear's caches that has the range of this one: of values that a slice passes on, one source. */
static int same_as(const osh_linear *l, int k)
{
    int first = 0;
    while (k != OSH_OUTPUT && l->cache[first] != l->cache[k]) first++;
    return k == OSH_OUTPUT ? k : first;
}

osh_status osh_cached_want(osh_ctx *cx, osh_cached *c, int linear)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = &c->plan->linears[linear];
    for (int k = 0; k < OSH_BESIDE; k++) {
        cached_range *r = &c->ranges[OSH_BESIDE * linear + k];
        r->linear = linear;
        if (l->cache[k] < 0 || same_as(l, k) != k) continue;
        OSH_NEW(cx, r->heads, l->heads[k]);
        (k == OSH_OUTPUT ? c->made : c->at)[l->cache[k]] = 1 + OSH_BESIDE * linear + k;
    }
done:
    return rc;
}

/* which: of ranges. */
static osh_status feed_range(osh_ctx *cx, osh_cached *c, int which, const osh_tensor *x, const osh_seqs *seqs,
                             bool again)
{
    osh_status rc = OSH_OK;
    const cached_range *r = &c->ranges[which];
    const osh_linear *l = &c->plan->linears[r->linear];
    const osh_q_args *a = osh_beside_args(c->plan, l, which % OSH_BESIDE);
    int64_t heads = l->heads[which % OSH_BESIDE];
    osh_tensor *narrow = NULL; // own
    if (!r->heads) goto done; // its scales are made
    for (int64_t k = 0; k < seqs->n; k++) {
        osh_tensor part = *x;
        part.data = (char *)x->data + (size_t)(seqs->offsets[k] * x->shape[1]) * osh_dtype_bytes(x->dtype);
        if (!(part.shape[0] = seqs->offsets[k + 1] - seqs->offsets[k])) continue;
        if (again && c->plan->memory.looks_f16) OSH_TRY(osh_narrow(cx, &narrow, &part));
        if (again) OSH_TRY(osh_act_observe_again(cx, r->heads, heads, narrow ? narrow : &part, a));
        else OSH_TRY(osh_act_observe(cx, r->heads, heads, &part, a));
        osh_tensor_free(cx, narrow), narrow = NULL;
    }
done:
    osh_tensor_free(cx, narrow);
    return rc;
}

osh_status osh_cached_feed(osh_ctx *cx, osh_cached *c, int value, const osh_tensor *x, const osh_seqs *seqs,
                           bool again)
{
    return c->at[value] ? feed_range(cx, c, c->at[value] - 1, x, seqs, again) : OSH_OK;
}

osh_status osh_cached_feed_output(osh_ctx *cx, osh_cached *c, int value, const osh_tensor *x, const osh_seqs *seqs)
{
    return c->made[value] ? feed_range(cx, c, c->made[value] - 1, x, seqs, false) : OSH_OK;
}

osh_status osh_cached_params(osh_ctx *cx, void **out, const osh_cached *c, int linear)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = c->plan;
    const osh_linear *l = &p->linears[linear];
    osh_cache_leaf leaf[OSH_CACHE_LEAVES];
    int n = osh_cache_leaves(leaf, p, l);
    size_t bytes = 0;
    char *all = NULL; // own
    *out = NULL;
    if (!n) goto done;
    for (int k = 0; k < n; k++) bytes += leaf[k].bytes;
    if (!(all = osh_alloc(cx, bytes))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the scales of %s", l->name);
    char *at = all;
    for (int k = 0; k < n; k++) { // a scale, and behind all of them their zero points
        if (leaf[k].zero) continue;
        const osh_act_observer *o = c->ranges[OSH_BESIDE * linear + same_as(l, leaf[k].of)].heads;
        const osh_q_args *a = osh_beside_args(p, l, leaf[k].of);
        bool zeros = k + 1 < n && leaf[k + 1].zero;
        int8_t *zero = zeros ? (int8_t *)at + leaf[k].bytes : NULL;
        if (!o[0].seen) OSH_FAIL(cx, OSH_E_NUMERIC, "%s saw no token: its %s is unknown", l->name, leaf[k].name);
        for (int64_t h = 0; h < l->heads[leaf[k].of]; h++) {
            float lo, hi, scale; // room for one of any dtype: behind zero points it may lie anywhere
            osh_act_observed(&lo, &hi, &o[h], a, p->graph->dtype);
            osh_q_scale_zp(&scale, zero ? zero + h : NULL, &lo, &hi, 1, &(osh_q_scaling){a, l->dtype, p->arithmetic});
            memcpy(at + (size_t)h * osh_dtype_bytes(l->dtype), &scale, osh_dtype_bytes(l->dtype));
        }
        at += leaf[k].bytes + (zeros ? leaf[k + 1].bytes : 0);
    }
    *out = all, all = NULL;
done:
    osh_free(cx, all);
    return rc;
}
