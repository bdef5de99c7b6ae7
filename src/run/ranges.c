/* ranges.c - collects the range of each sample, and updates observers with these ranges in the
 * order of the samples. Then computes static scales from the observers. */
#include "run/ranges.h"

#include <string.h>

#include "match/cache.h"
#include "plan/exchange.h"
#include "quant/observer.h"
#include "run/narrow.h"

struct osh_ranges {
    const osh_budget *plan; // view
    int v0, v1, n; // the interval [v0, v1) contains all values with ranges; n: number of ranges
    int *first; // own [v1 - v0]: 1 + index in `all` of the first range of the value; 0: it has none
    osh_ranged *all;      // own [n]
};

osh_status osh_ranges_new(osh_ctx *cx, osh_ranges **out, const osh_budget *p, const osh_range *of)
{
    osh_status rc = OSH_OK;
    osh_ranges *r = NULL; // own
    int n = 0;
    for (int i = of->l0; i < of->l1; i++)
        for (int k = 0; k < OSH_RANGED; k++) n += p->match->linears[i].ranged[k] >= 0;
    OSH_NEW(cx, r, 1);
    r->plan = p, r->v0 = of->v0, r->v1 = of->v1;
    OSH_NEW(cx, r->first, r->v1 - r->v0);
    OSH_NEW(cx, r->all, n);
    *out = r, r = NULL; // passes ownership
done:
    osh_ranges_free(cx, r);
    return rc;
}

static void range_drop(osh_ctx *cx, const osh_ranges *r, osh_ranged *x)
{
    for (int64_t h = 0; x->heads && h < r->plan->match->linears[x->linear].heads[x->k]; h++)
        osh_act_observer_deinit(cx, &x->heads[h]);
    osh_free(cx, x->heads), x->heads = NULL;
    osh_tensor_free(cx, x->rows), x->rows = NULL;
}

void osh_ranges_free(osh_ctx *cx, osh_ranges *r)
{
    if (!r) return;
    for (int i = 0; i < r->n; i++) range_drop(cx, r, &r->all[i]);
    osh_free(cx, r->all);
    osh_free(cx, r->first);
    osh_free(cx, r);
}

static const osh_q_args *range_args(const osh_ranges *r, const osh_ranged *x)
{
    return osh_ranged_args(r->plan->match, &r->plan->match->linears[x->linear], x->k);
}

/* range_first returns the first range of a value, or NULL if the value has none. range_next returns
 * the next range of the value, or NULL if there is none. */
static osh_ranged *range_first(const osh_ranges *r, int value)
{
    int i = value >= r->v0 && value < r->v1 ? r->first[value - r->v0] : 0;
    return i ? &r->all[i - 1] : NULL;
}

static osh_ranged *range_next(const osh_ranges *r, const osh_ranged *x)
{
    return x->next ? &r->all[x->next - 1] : NULL;
}

/* True if the observers of x read rows in host memory. False if they get the ranges that a GPU has
 * computed. */
static bool range_reads_rows(const osh_ranges *r, const osh_ranged *x)
{
    const osh_matching *m = r->plan->match;
    return !r->plan->in->device || osh_range_is_copied(m, &m->linears[x->linear], x->k);
}

/* Returns the range of the k-th observed value of a Linear, or NULL if it is not observed. Linears
 * share a range only if they have the same input, because the range is freed when the Linears that
 * read this input are solved. */
static osh_ranged *range_find(const osh_ranges *r, int linear, int k)
{
    const osh_linear *l = &r->plan->match->linears[linear];
    osh_ranged *x = range_first(r, l->ranged[k]);
    while (x && (r->plan->match->linears[x->linear].input != l->input ||
                 range_args(r, x) != osh_ranged_args(r->plan->match, l, k)))
        x = range_next(r, x);
    return x;
}

osh_status osh_ranges_want(osh_ctx *cx, osh_ranges *r, int linear)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = &r->plan->match->linears[linear];
    for (int k = 0; k < OSH_RANGED; k++) {
        if (l->ranged[k] < 0 || range_find(r, linear, k)) continue;
        int *first = &r->first[l->ranged[k] - r->v0];
        osh_ranged *x = &r->all[r->n++];
        x->linear = linear, x->k = k, x->next = *first, *first = r->n;
        OSH_NEW(cx, x->heads, l->heads[k]);
        if (range_reads_rows(r, x))
            OSH_TRY(osh_stat_state(cx, &x->rows, &osh_stat_sample_ranges,
                                   r->plan->in->data.n * l->heads[k],
                                   (osh_where){NULL, OSH_LIFE_LONG}));
    }
done:
    return rc;
}

bool osh_ranges_has(const osh_ranges *r, int value) { return range_first(r, value) != NULL; }

static bool ranges_any(const osh_ranges *r, int value, bool reads_rows)
{
    const osh_ranged *x = range_first(r, value);
    while (x && range_reads_rows(r, x) != reads_rows) x = range_next(r, x);
    return x != NULL;
}

bool osh_ranges_on_gpu(const osh_ranges *r, int value) { return ranges_any(r, value, false); }

bool osh_ranges_on_host(const osh_ranges *r, int value) { return ranges_any(r, value, true); }

/* Computes the range of one sample for each head. Writes the smallest elements to x->rows[0, sample
 * * heads + head], and the largest to x->rows[1, sample * heads + head]. */
static osh_status range_gather(osh_ctx *cx, const osh_ranges *r, osh_ranged *x,
                               const osh_tensor *rows, int64_t sample)
{
    osh_status rc = OSH_OK;
    int64_t heads = r->plan->match->linears[x->linear].heads[x->k], n = x->rows->shape[1];
    // own [2, heads]: smallest and largest element of each head
    float *range = NULL, *at = (float *)x->rows->data + sample * heads;
    OSH_NEW(cx, range, 2 * heads);
    OSH_TRY(osh_act_observe_range(cx, range, x->heads, heads, rows, range_args(r, x)));
    memcpy(at, range, (size_t)heads * sizeof *at);
    memcpy(at + n, range + heads, (size_t)heads * sizeof *at);
done:
    osh_free(cx, range);
    return rc;
}

static osh_status range_look_again(osh_ctx *cx, const osh_ranges *r, osh_ranged *x,
                                   const osh_tensor *rows, int64_t sample)
{
    osh_status rc = OSH_OK;
    int64_t heads = r->plan->match->linears[x->linear].heads[x->k];
    osh_act_sample at = {r->plan->in->groups, sample};
    osh_tensor *narrow = NULL; // own
    if (r->plan->memory.looks_f16)
        /* The rows are rounded to F16 even if they were not stored as F16. So observers get the
         * same elements with every --calib-cache. */
        OSH_TRY(osh_narrow(cx, &narrow, rows));
    OSH_TRY(osh_act_observe_again(cx, x->heads, heads, narrow ? narrow : rows, range_args(r, x),
                                  &at));
done:
    osh_tensor_free(cx, narrow);
    return rc;
}

osh_status osh_ranges_copy_sample(osh_ctx *cx, osh_tensor **out, const osh_tensor *x,
                                  const osh_seqs *seqs, int64_t k)
{
    osh_status rc = OSH_OK;
    size_t row = (size_t)x->shape[1] * osh_dtype_bytes(x->dtype);
    int64_t first = seqs->offsets[k], n = seqs->offsets[k + 1] - first;
    osh_tensor *sample = NULL; // own
    OSH_TRY(osh_tensor_new(cx, &sample, x->dtype, 2, (int64_t[]){n, x->shape[1]}));
    if (n) OSH_TRY(osh_tensor_get(cx, sample->data, x, (size_t)first * row, (size_t)n * row));
    *out = sample, sample = NULL; // passes ownership
done:
    osh_tensor_free(cx, sample);
    return rc;
}

/* Copies the samples of x from a GPU to the host one at a time, and passes each copy to
 * osh_ranges_feed. */
static osh_status ranges_feed_copies(osh_ctx *cx, osh_ranges *r, int value, const osh_tensor *x,
                                     const osh_seqs *seqs, osh_looking look)
{
    osh_status rc = OSH_OK;
    osh_tensor *sample = NULL; // own
    for (int64_t k = 0; k < seqs->n; k++, look.first_sample++) {
        int64_t n = seqs->offsets[k + 1] - seqs->offsets[k], offsets[] = {0, n};
        if (!n) continue;
        OSH_TRY(osh_ranges_copy_sample(cx, &sample, x, seqs, k));
        OSH_TRY(osh_ranges_feed(cx, r, value, sample, &(osh_seqs){1, offsets}, look));
        osh_tensor_free(cx, sample), sample = NULL;
    }
done:
    osh_tensor_free(cx, sample);
    return rc;
}

osh_status osh_ranges_feed(osh_ctx *cx, osh_ranges *r, int value, const osh_tensor *x,
                           const osh_seqs *seqs, osh_looking look)
{
    osh_status rc = OSH_OK;
    if (x->device)
        return osh_ranges_on_host(r, value) ? ranges_feed_copies(cx, r, value, x, seqs, look) : rc;
    size_t row = (size_t)x->shape[1] * osh_dtype_bytes(x->dtype);
    for (osh_ranged *to = range_first(r, value); to; to = range_next(r, to)) {
        bool twice = osh_observer_twice(range_args(r, to));
        bool reads = to->heads && range_reads_rows(r, to) && (twice || look.once);
        for (int64_t k = 0; reads && k < seqs->n; k++) {
            osh_tensor sample = *x;
            sample.data = (char *)x->data + (size_t)seqs->offsets[k] * row;
            sample.shape[0] = seqs->offsets[k + 1] - seqs->offsets[k];
            if (!sample.shape[0]) continue;
            OSH_TRY((twice && look.again ? range_look_again : range_gather)(
                cx, r, to, &sample, look.first_sample + k));
        }
    }
done:
    return rc;
}

/* Updates the observers of range x with n samples. rows [2, n * heads]: smallest and largest
 * element of each head in each sample. If a smallest element is larger than the largest, the sample
 * has no tokens. */
static void range_follow(const osh_ranges *r, osh_ranged *x, const float *rows, int64_t n,
                         int64_t heads)
{
    for (int64_t k = 0; k < n * heads; k++)
        if (rows[k] <= rows[n * heads + k])
            osh_act_observer_feed(&x->heads[k % heads], range_args(r, x), rows[k],
                                  rows[n * heads + k], r->plan->in->graph->dtype);
}

void osh_ranges_feed_minmax(osh_ranges *r, int value, const float *minmax, int64_t n)
{
    for (osh_ranged *to = range_first(r, value); to; to = range_next(r, to))
        if (to->heads && !range_reads_rows(r, to)) range_follow(r, to, minmax, n, 1);
}

osh_status osh_ranges_merge(osh_ctx *cx, osh_ranges *r, osh_ranks *ranks)
{
    osh_status rc = OSH_OK;
    for (const osh_ranged *x = r->all; ranks && x < r->all + r->n; x++)
        if (x->rows) OSH_TRY(osh_exchange_exact(cx, ranks, &osh_stat_sample_ranges, x->rows));
done:
    return rc;
}

osh_status osh_ranges_finish(osh_ctx *cx, osh_ranges *r)
{
    osh_status rc = OSH_OK;
    for (osh_ranged *x = r->all; x < r->all + r->n; x++) {
        int64_t heads = r->plan->match->linears[x->linear].heads[x->k];
        if (x->rows) range_follow(r, x, x->rows->data, r->plan->in->data.n, heads);
        osh_tensor_free(cx, x->rows), x->rows = NULL;
        for (int64_t h = 0; x->heads && h < heads; h++)
            OSH_TRY(osh_act_observer_finish(cx, &x->heads[h]));
    }
done:
    return rc;
}

void osh_ranges_drop(osh_ctx *cx, osh_ranges *r, int linear)
{
    for (int k = 0; k < OSH_RANGED; k++) {
        osh_ranged *x =
            r->plan->match->linears[linear].ranged[k] >= 0 ? range_find(r, linear, k) : NULL;
        if (x) range_drop(cx, r, x);
    }
}

osh_status osh_ranges_input_params(osh_ctx *cx, osh_tensor **scale, osh_tensor **zero,
                                   const osh_ranges *r, int linear)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = &r->plan->match->linears[linear];
    const osh_q_args *a = &l->scheme->inputs;
    float lo, hi;
    *scale = NULL, *zero = NULL;
    if (l->ranged[OSH_INPUT] < 0) goto done;
    const osh_act_observer *o = range_find(r, linear, OSH_INPUT)->heads;
    if (!o->seen)
        OSH_FAIL(cx, OSH_E_NUMERIC, "%s saw no token: its input scale is unknown", l->name);
    // the runtime computes the scales of groups itself, so only the global scale is stored
    if (a->dynamic == OSH_Q_LOCAL) {
        OSH_TRY(osh_tensor_new(cx, scale, OSH_F32, 1, (int64_t[]){1}));
        *(float *)(*scale)->data =
            osh_q_global_scale(-o->min > o->max ? -o->min : o->max, l->dtype);
        goto done;
    }
    OSH_TRY(osh_tensor_new(cx, scale, l->dtype, 1, (int64_t[]){1}));
    if (!a->symmetric) OSH_TRY(osh_tensor_new(cx, zero, OSH_I8, 1, (int64_t[]){1}));
    osh_act_observed(&lo, &hi, o, a, r->plan->in->graph->dtype);
    osh_q_scale_zp((*scale)->data, *zero ? (*zero)->data : NULL, &lo, &hi, 1,
                   &(osh_q_scaling){a, l->dtype, r->plan->in->arithmetic});
done:
    return rc;
}

osh_status osh_ranges_beside_params(osh_ctx *cx, void **out, const osh_ranges *r, int linear)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = r->plan;
    const osh_linear *l = &p->match->linears[linear];
    osh_cache_leaf leaf[OSH_CACHE_LEAVES];
    int n = osh_cache_leaves(leaf, p->match, l);
    size_t bytes = 0;
    char *all = NULL; // own
    *out = NULL;
    if (!n) goto done;
    for (int k = 0; k < n; k++) bytes += leaf[k].bytes;
    if (!(all = osh_alloc(cx, bytes)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the scales of %s", l->name);
    char *at = all;
    // if a value has zero points, the leaf of the zero points follows the leaf of the scales
    for (int k = 0; k < n; k++) {
        if (leaf[k].zero) continue;
        const osh_act_observer *o = range_find(r, linear, leaf[k].of)->heads;
        const osh_q_args *a = osh_ranged_args(p->match, l, leaf[k].of);
        bool zeros = k + 1 < n && leaf[k + 1].zero;
        int8_t *zero = zeros ? (int8_t *)at + leaf[k].bytes : NULL;
        if (!o[0].seen)
            OSH_FAIL(cx, OSH_E_NUMERIC, "%s saw no token: its %s is unknown", l->name,
                     leaf[k].name);
        for (int64_t h = 0; h < l->heads[leaf[k].of]; h++) {
            // scale: an aligned buffer, which is needed because `at` may be unaligned
            float lo, hi, scale;
            osh_act_observed(&lo, &hi, &o[h], a, p->in->graph->dtype);
            osh_q_scale_zp(&scale, zero ? zero + h : NULL, &lo, &hi, 1,
                           &(osh_q_scaling){a, l->dtype, p->in->arithmetic});
            memcpy(at + (size_t)h * osh_dtype_bytes(l->dtype), &scale, osh_dtype_bytes(l->dtype));
        }
        at += leaf[k].bytes + (zeros ? leaf[k + 1].bytes : 0);
    }
    *out = all, all = NULL;
done:
    osh_free(cx, all);
    return rc;
}
