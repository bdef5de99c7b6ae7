/* cached.c - see cached.h. A range, or one for each head, follows the samples as a static activation's does. */
#include "run/cached.h"

#include <string.h>

#include "plan/cache.h"

typedef struct cached_range {
    int linear;
    osh_act_observer *heads; // own [linear's heads]
} cached_range;

struct osh_cached {
    const osh_plan *plan;  // view
    int *at;               // own [values]: 1 + index into ranges; 0: not observed
    cached_range *ranges;  // own [OSH_CACHED * linears]
};

osh_status osh_cached_new(osh_ctx *cx, osh_cached **out, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_cached *c = NULL; // own
    OSH_NEW(cx, c, 1);
    c->plan = p;
    OSH_NEW(cx, c->at, p->graph->n_values);
    OSH_NEW(cx, c->ranges, OSH_CACHED * p->n_linears);
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
    osh_free(cx, c);
}

void osh_cached_drop(osh_ctx *cx, osh_cached *c, int linear)
{
    for (int k = 0; k < OSH_CACHED; k++) {
        cached_range *r = &c->ranges[OSH_CACHED * linear + k];
        for (int64_t h = 0; r->heads && h < c->plan->linears[linear].heads[k]; h++)
            osh_act_observer_deinit(cx, &r->heads[h]);
        osh_free(cx, r->heads), r->heads = NULL;
    }
}

/* The first of a Linear's caches that has the range of this one: of values that a slice passes on, one source. */
static int same_as(const osh_linear *l, int k)
{
    int first = 0;
    while (l->cache[first] != l->cache[k]) first++;
    return first;
}

osh_status osh_cached_want(osh_ctx *cx, osh_cached *c, int linear)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = &c->plan->linears[linear];
    for (int k = 0; k < OSH_CACHED && l->cache[k] >= 0; k++) {
        cached_range *r = &c->ranges[OSH_CACHED * linear + k];
        r->linear = linear;
        if (same_as(l, k) != k) continue;
        OSH_NEW(cx, r->heads, l->heads[k]);
        c->at[l->cache[k]] = 1 + OSH_CACHED * linear + k;
    }
done:
    return rc;
}

osh_status osh_cached_feed(osh_ctx *cx, osh_cached *c, int value, const osh_tensor *x, const osh_seqs *seqs,
                           bool again)
{
    osh_status rc = OSH_OK;
    if (!c->at[value]) goto done;
    int which = c->at[value] - 1;
    const cached_range *r = &c->ranges[which];
    const osh_q_args *a = &c->plan->cache;
    int64_t heads = c->plan->linears[r->linear].heads[which % OSH_CACHED];
    if (!r->heads) goto done; // its scales are made
    for (int64_t k = 0; k < seqs->n; k++) {
        osh_tensor part = *x;
        part.data = (char *)x->data + (size_t)(seqs->offsets[k] * x->shape[1]) * osh_dtype_bytes(x->dtype);
        if (!(part.shape[0] = seqs->offsets[k + 1] - seqs->offsets[k])) continue;
        if (again) OSH_TRY(osh_act_observe_again(cx, r->heads, heads, &part, a));
        else OSH_TRY(osh_act_observe(cx, r->heads, heads, &part, a));
    }
done:
    return rc;
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
        const osh_act_observer *o = c->ranges[OSH_CACHED * linear + same_as(l, leaf[k].of)].heads;
        bool zeros = k + 1 < n && leaf[k + 1].zero;
        int8_t *zero = zeros ? (int8_t *)at + leaf[k].bytes : NULL;
        if (!o[0].seen) OSH_FAIL(cx, OSH_E_NUMERIC, "%s saw no token: the scales of its cache are unknown", l->name);
        for (int64_t h = 0; h < l->heads[leaf[k].of]; h++) {
            float lo, hi, scale; // room for one of any dtype: behind zero points it may lie anywhere
            osh_act_observed(&lo, &hi, &o[h], &p->cache, p->graph->dtype);
            osh_q_scale_zp(&scale, zero ? zero + h : NULL, &lo, &hi, 1, &p->cache, l->dtype, p->arithmetic);
            memcpy(at + (size_t)h * osh_dtype_bytes(l->dtype), &scale, osh_dtype_bytes(l->dtype));
        }
        at += leaf[k].bytes + (zeros ? leaf[k + 1].bytes : 0);
    }
    *out = all, all = NULL;
done:
    osh_free(cx, all);
    return rc;
}
