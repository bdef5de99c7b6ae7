/* stats.c - collects Hessians, other sums, and ranges of inputs. Sums are collected by group of
 * samples (ops/stat.h). The CPU adds samples one by one, in their order, so the result does not
 * depend on the batch size. A GPU adds a whole batch at a time. Its result does not depend on the
 * batch size, either, because its batches depend only on the samples of a group. */
#include "run/stats.h"

#include <math.h>
#include <string.h>

#include "ops/device_ops.h"
#include "budget/bytes.h"
#include "budget/cost.h"
#include "graph/counted.h"
#include "budget/layout.h"
#include "schedule/looks.h"
#include "match/lookup.h"
#include "plan/division.h"
#include "plan/exchange.h"
#include "quant/observer.h"
#include "run/narrow.h"

typedef struct sums {     // statistics of one value; the pointers are own
    osh_stat *of[OSH_N_SUMS];
    /* With a GPU: the range of each sample (osh_stat_sample_ranges), in the GPU's memory. */
    osh_tensor *minmax;
} sums;

enum { MIX_SEED = 42 };
/* Says which observers get the values that are added.
 * LOOK_ALL: all observers.
 * LOOK_FIRST: only two-pass observers, in their first pass.
 * LOOK_KEPT: only two-pass observers, in their second pass, which reads stored values. */
typedef enum { LOOK_ALL, LOOK_FIRST, LOOK_KEPT } look;

struct osh_stats {
    const osh_budget *plan; // view
    bool *wanted; // own [graph values]: true if a Linear needs statistics of the value
    sums *of;             // own [v1 - v0]: statistics of each value
    osh_ranges *ranges;   // own
    int first, n;         // the statistics are for the subgraphs [first, first + n)
    /* True if inputs and observed values are the same in the original model (member `same` of
     * osh_pass). */
    bool same;
    /* True for values that two-pass observers read.
     * kept: the value is stored between the two passes.
     * again: the value is computed a second time, or read a second time from the activation
     * store. */
    bool *kept, *again;   // own [graph values]
    int v0, v1;           // the interval [v0, v1) contains all values of the subgraphs
    /* Store for values that are kept between the two passes of two-pass observers; NULL: none. */
    osh_acts *looks;      // own
    look look;            // the observers that now get each added value
    /* view: the ranks that collect the statistics; NULL: there is only this process */
    osh_ranks *ranks;
    int *owner;           // own [v1 - v0]: rank that gets the sums of the value; NULL: rank 0
};

/* Returns the statistics of a value (view), or NULL if the value is outside of [v0, v1). */
static sums *stats_sums(const osh_stats *s, int value)
{
    return value >= s->v0 && value < s->v1 ? &s->of[value - s->v0] : NULL;
}

static bool stats_has_linear(const osh_stats *s, const osh_linear *l)
{
    return l->subgraph >= s->first && l->subgraph < s->first + s->n;
}

/* Sets the address of the next block that the arena allocates: the address that is planned for a
 * statistic of the value. */
static void stats_aim(const osh_stats *s, osh_layout_kind kind, int value)
{
    int visit = s->plan->in->pipeline == OSH_PIPELINE_BASIC ? 0 : s->first;
    osh_places_aim(s->plan, visit, OSH_WAY_FIRST, kind, value);
}

static osh_status stats_new_sum(osh_ctx *cx, osh_stats *s, osh_sum sum, int value, int64_t I)
{
    osh_status rc = OSH_OK;
    const osh_sum_type *t = &osh_sums[sum];
    osh_stat **of = &stats_sums(s, value)->of[sum];
    osh_where where = {t->on_gpu ? s->plan->in->device : NULL, OSH_LIFE_LONG};
    if (*of) goto done;
    if (where.d) stats_aim(s, t->layout, value);
    OSH_TRY(osh_stat_new(cx, of, t->type, s->plan->in->groups, I, where));
    if (where.d && osh_stat_is_grouped(t->type, &s->plan->in->groups)) stats_aim(s, t->part, value);
    OSH_TRY(osh_stat_new_part(cx, *of, where));
done:
    return rc;
}

/* Allocates the ranges of all samples of a value in GPU memory. At first, each range is empty. */
static osh_status stats_new_minmax(osh_ctx *cx, osh_stats *s, int value)
{
    osh_tensor **t = &stats_sums(s, value)->minmax;
    if (*t) return OSH_OK;
    stats_aim(s, OSH_LAYOUT_RANGE, value);
    return osh_stat_state(cx, t, &osh_stat_sample_ranges, s->plan->in->data.n,
                          (osh_where){s->plan->in->device, OSH_LIFE_LONG});
}

osh_status osh_stats_new(osh_ctx *cx, osh_stats **out, const osh_budget *p, int first_subgraph,
                         int n_subgraphs, const bool *values)
{
    osh_status rc = OSH_OK;
    osh_stats *s = NULL; // own
    OSH_NEW(cx, s, 1);
    s->plan = p, s->first = first_subgraph, s->n = n_subgraphs;
    OSH_NEW(cx, s->wanted, p->in->graph->n_values);
    s->same = p->schedule->passes[first_subgraph].same;
    osh_range r =
        osh_range_at(p->schedule, p->in->pipeline == OSH_PIPELINE_BASIC ? 0 : first_subgraph);
    s->v0 = r.v0, s->v1 = r.v1;
    OSH_NEW(cx, s->of, r.v1 - r.v0);
    OSH_TRY(osh_ranges_new(cx, &s->ranges, p, &r));
    for (int i = r.l0; i < r.l1; i++) {
        const osh_linear *l = &p->match->linears[i];
        if (!osh_wants(p->schedule, l) || (values && !values[l->input])) continue;
        s->wanted[l->input] = true;
        OSH_TRY(osh_ranges_want(cx, s->ranges, i));
        for (int k = 0; k < OSH_RANGED; k++)
            if (l->ranged[k] >= 0 && osh_ranges_on_gpu(s->ranges, l->ranged[k]))
                OSH_TRY(stats_new_minmax(cx, s, l->ranged[k]));
        for (osh_sum k = 0; k < OSH_N_SUMS; k++)
            if (osh_sum_wanted(k, l)) OSH_TRY(stats_new_sum(cx, s, k, l->input, l->I));
    }
    OSH_NEW(cx, s->kept, p->in->graph->n_values);
    OSH_NEW(cx, s->again, p->in->graph->n_values);
    osh_looks_of(s->kept, s->again, p->schedule, &r, s->wanted);
    *out = s, s = NULL;
done:
    osh_stats_free(cx, s);
    return rc;
}

osh_status osh_stats_keep(osh_ctx *cx, osh_stats *s, const osh_acts *beside, const char *dir)
{
    osh_status rc = OSH_OK;
    const osh_memory *m = &s->plan->memory;
    bool any = false;
    for (int v = s->v0; v < s->v1; v++) any |= s->kept[v];
    if (!any) goto done;
    osh_tier tier = s->plan->schedule->looks == OSH_LOOK_DISK ? OSH_TIER_DISK : OSH_TIER_HOST;
    OSH_TRY(osh_acts_new_beside(cx, &s->looks, beside, tier, m->looks_f16, dir));
    /* The second pass of two-pass observers reads sample by sample, so single samples are
     * prefetched. */
    OSH_TRY(osh_acts_read_ahead(cx, s->looks, m->n_loaders, m->n_loaders));
done:
    return rc;
}

void osh_stats_first_look(osh_stats *s, bool first) { s->look = first ? LOOK_FIRST : LOOK_ALL; }

void osh_stats_free(osh_ctx *cx, osh_stats *s)
{
    if (!s) return;
    for (int v = s->v0; s->of && v < s->v1; v++) {
        for (osh_sum k = 0; k < OSH_N_SUMS; k++) osh_stat_free(cx, stats_sums(s, v)->of[k]);
        osh_tensor_free(cx, stats_sums(s, v)->minmax);
    }
    osh_free(cx, s->of);
    osh_free(cx, s->wanted);
    osh_free(cx, s->kept);
    osh_free(cx, s->again);
    osh_acts_free(cx, s->looks, false);
    osh_ranges_free(cx, s->ranges);
    osh_free(cx, s->owner);
    osh_free(cx, s);
}

/* ---- statistics that several ranks collect ---- */

int osh_stats_owner(const osh_stats *s, int value)
{
    return s->owner && value >= s->v0 && value < s->v1 ? s->owner[value - s->v0] : 0;
}

/* For each value v: adds the work of solving the Linears that read v to cost[v - s->v0]. */
static void stats_count_cost(const osh_stats *s, double *cost)
{
    osh_span own = osh_linears_of(s->plan->schedule, s->first, s->n);
    for (int i = own.first; i < own.end; i++) {
        int v = s->plan->match->linears[i].input;
        if (osh_wants(s->plan->schedule, &s->plan->match->linears[i]) && s->wanted[v])
            cost[v - s->v0] += osh_cost_of_linear(s->plan, i);
    }
}

osh_status osh_stats_divide(osh_ctx *cx, osh_stats *s, osh_ranks *ranks)
{
    osh_status rc = OSH_OK;
    double *cost = NULL; // own [v1 - v0]: work of solving the Linears that read the value
    if (!ranks) goto done;
    s->ranks = ranks;
    OSH_NEW(cx, s->owner, s->v1 - s->v0);
    OSH_NEW(cx, cost, s->v1 - s->v0);
    stats_count_cost(s, cost);
    OSH_TRY(osh_divide_costs(cx, s->owner, cost, s->v1 - s->v0, osh_ranks_n(ranks)));
    for (int v = s->v0; v < s->v1; v++)
        for (osh_sum k = 0; k < OSH_N_SUMS; k++)
            if (stats_sums(s, v)->of[k]) stats_sums(s, v)->of[k]->open = true;
done:
    osh_free(cx, cost);
    return rc;
}

osh_status osh_stats_exchange(osh_ctx *cx, osh_stats *s, int64_t round)
{
    osh_status rc = OSH_OK;
    for (int v = s->v0; s->ranks && v < s->v1; v++)
        for (osh_sum k = 0; k < OSH_N_SUMS; k++)
            if (stats_sums(s, v)->of[k])
                OSH_TRY(osh_exchange_groups(cx, s->ranks, stats_sums(s, v)->of[k],
                                            osh_stats_owner(s, v), round));
done:
    return rc;
}

const bool *osh_stats_wanted(const osh_stats *s) { return s->wanted; }

osh_tensor *osh_stats_sum(const osh_stats *s, int value, osh_sum sum)
{
    const sums *of = stats_sums(s, value);
    return of && of->of[sum] ? of->of[sum]->all : NULL;
}

bool osh_stats_is_empty(const osh_stats *s, int value)
{
    const sums *of = stats_sums(s, value);
    for (osh_sum k = 0; of && k < OSH_N_SUMS; k++)
        if (of->of[k] && of->of[k]->next) return false;
    return true;
}

static void stats_drop_sums(osh_ctx *cx, const osh_stats *s, int value)
{
    sums *of = stats_sums(s, value);
    for (osh_sum k = 0; k < OSH_N_SUMS; k++) osh_stat_free(cx, of->of[k]), of->of[k] = NULL;
}

void osh_stats_drop(osh_ctx *cx, osh_stats *s, int value)
{
    if (!stats_sums(s, value)) return;
    stats_drop_sums(cx, s, value);
    for (int i = osh_first_reader(s->plan->match, value); i >= 0;
         i = osh_next_reader(s->plan->match, i))
        osh_ranges_drop(cx, s->ranges, i);
}

osh_status osh_stats_importance(osh_ctx *cx, float **out, const osh_stats *s, int value)
{
    osh_status rc = OSH_OK;
    const osh_tensor *t = osh_stats_sum(s, value, OSH_SUM_SQUARES);
    double all = 0, *copy = NULL; // copy: own
    *out = NULL;
    if (!t) goto done;
    if (t->device) {
        OSH_NEW(cx, copy, t->shape[0]);
        OSH_TRY(osh_tensor_get(cx, copy, t, 0, osh_tensor_bytes(t)));
    }
    const double *sum = copy ? copy : t->data;
    for (int64_t i = 0; i < t->shape[0]; i++) all += sum[i];
    if (!(all > 0)) goto done; // *out stays NULL, because no tokens ran or all elements were 0
    OSH_NEW(cx, *out, t->shape[0]);
    for (int64_t i = 0; i < t->shape[0]; i++)
        (*out)[i] = (float)(sum[i] * (double)t->shape[0] / all);
done:
    osh_free(cx, copy);
    return rc;
}

static osh_status stats_feed_minmax(osh_ctx *cx, osh_stats *s, int value, const osh_tensor *x,
                                    const osh_batch *b)
{
    osh_status rc = OSH_OK;
    const osh_tensor *t = stats_sums(s, value)->minmax;
    float *low = (float *)t->data + b->first_sample, *high = low + t->shape[1];
    for (int64_t k = 0; k < b->seqs.n; k++) {
        int64_t first = b->seqs.offsets[k], n = b->seqs.offsets[k + 1] - first;
        if (n > 0)
            OSH_TRY(osh_device_ops_of(t->device)->minmax(cx, low + k, high + k, x, first, n));
    }
done:
    return rc;
}

/* Returns how observers look at the samples of batch b. */
static osh_looking stats_looking(const osh_stats *s, int value, const osh_batch *b)
{
    bool all = s->look == LOOK_ALL;
    return (osh_looking){.once = all, .again = s->look == LOOK_KEPT || (all && s->again[value]),
                         .first_sample = b->first_sample};
}

/* Finds the first Linear in the subgraphs of s that reads the value and needs a shift. Returns the
 * member `share` of this Linear, or 1 if there is none. */
static double stats_share(const osh_stats *s, int value)
{
    int i = osh_first_reader(s->plan->match, value);
    while (i >= 0 &&
           !(stats_has_linear(s, &s->plan->match->linears[i]) && s->plan->match->linears[i].shift))
        i = osh_next_reader(s->plan->match, i);
    return i >= 0 ? s->plan->match->linears[i].share : 1;
}

typedef struct fed { // a value that is added to the statistics; the pointers are views
    /* x: the value. original: its counterpart in the original model; NULL: there is none. */
    const osh_tensor *x, *original;
    const osh_batch *b;
} fed;

/* If the recipe mixes inputs of the quantized and of the original model, sets *out (own) to the
 * mix, from which the sums are computed. Otherwise sets *out to NULL, and the sums are computed
 * from x->x. */
static osh_status stats_mix(osh_ctx *cx, osh_tensor **out, const osh_stats *s, int value,
                            const fed *x)
{
    osh_status rc = OSH_OK;
    const osh_batch *b = x->b;
    osh_mix_attr at = {.share = stats_share(s, value), .first_sample = b->first_sample};
    *out = NULL;
    if (!x->original || !osh_stats_sum(s, value, OSH_SUM_SHIFT) || at.share >= 1) goto done;
    at.key = osh_mix_key(MIX_SEED, (uint64_t)value, 0);
    OSH_TRY(osh_tensor_new_on(cx, out, (osh_where){x->x->device, OSH_LIFE_SHORT}, x->x->dtype,
                              x->x->ndim, x->x->shape));
    osh_op_args a = {.in = {x->x, x->original}, .out = {*out}, .attr = &at, .seqs = &b->seqs};
    OSH_TRY(osh_op_run(cx, &osh_op_mix, &a));
done:
    return rc;
}

/* Adds x to the sums of a value. original: counterpart of x in the original model, or NULL if there
 * is none. */
static osh_status stats_feed_sums(osh_ctx *cx, osh_stats *s, int value, const osh_tensor *x,
                                  const osh_tensor *original, const osh_batch *b)
{
    osh_status rc = OSH_OK;
    const sums *of = stats_sums(s, value);
    osh_tensor *mixed = NULL; // own
    OSH_TRY(stats_mix(cx, &mixed, s, value, &(fed){x, original, b}));
    for (osh_sum k = 0; k < OSH_N_SUMS; k++) {
        const osh_sum_type *t = &osh_sums[k];
        if (!of->of[k]) continue;
        osh_op_args a = {.in = {t->mixed && mixed ? mixed : x}, .seqs = &b->seqs};
        if (t->original) a.in[1] = original;
        OSH_TRY(osh_stat_feed(cx, of->of[k], &a, b->first_sample));
    }
done:
    osh_tensor_free(cx, mixed);
    return rc;
}

/* Adds x to the sums and ranges of a value. original: as for stats_feed_sums. */
static osh_status stats_feed_wanted(osh_ctx *cx, osh_stats *s, int value, const osh_tensor *x,
                                    const osh_tensor *original, const osh_batch *b)
{
    osh_status rc = OSH_OK;
    bool all = s->look == LOOK_ALL;
    if (all) OSH_TRY(stats_feed_sums(cx, s, value, x, original, b));
    if (all && stats_sums(s, value)->minmax) OSH_TRY(stats_feed_minmax(cx, s, value, x, b));
    OSH_TRY(osh_ranges_feed(cx, s->ranges, value, x, &b->seqs, stats_looking(s, value, b)));
done:
    return rc;
}

/* Stores x for the second pass of two-pass observers, as F16 if the plan asks for it. Copies x from
 * a GPU to the host, one sample at a time. */
static osh_status stats_keep_rows(osh_ctx *cx, osh_stats *s, int value, const osh_tensor *x,
                                  const osh_batch *b)
{
    osh_status rc = OSH_OK;
    osh_tensor *narrow = NULL, *copy = NULL; // own
    for (int64_t k = 0; x->device && k < b->seqs.n; k++) {
        int64_t offsets[] = {0, b->seqs.offsets[k + 1] - b->seqs.offsets[k]};
        osh_batch one = {.first_sample = b->first_sample + k, .seqs = {1, offsets}};
        OSH_TRY(osh_ranges_copy_sample(cx, &copy, x, &b->seqs, k));
        OSH_TRY(stats_keep_rows(cx, s, value, copy, &one));
        osh_tensor_free(cx, copy), copy = NULL;
    }
    if (x->device) goto done;
    if (s->plan->memory.looks_f16) OSH_TRY(osh_narrow(cx, &narrow, x));
    OSH_TRY(osh_acts_store(cx, s->looks, value, b->first_sample, b->seqs.n, narrow ? narrow : x));
done:
    osh_tensor_free(cx, narrow);
    osh_tensor_free(cx, copy);
    return rc;
}

static bool stats_has_sums(const osh_stats *s, int value)
{
    for (osh_sum k = 0; k < OSH_N_SUMS; k++)
        if (stats_sums(s, value)->of[k]) return true;
    return false;
}

/* On a device: adds the rows of an expert to the sums of the value, and to observers on the host.
 * rows: the copied rows of the value. In the sums, all rows count as rows of the first sample. This
 * is possible because a batch has samples of only one group. offsets: first of the rows in each
 * sample, for the observers on the host. */
static osh_status stats_feed_rows(osh_ctx *cx, osh_stats *s, int value, const osh_tensor *rows,
                                  const osh_batch *b, const int64_t *offsets)
{
    osh_status rc = OSH_OK;
    osh_batch part = *b;
    int64_t *first = NULL; // own
    OSH_NEW(cx, first, b->seqs.n + 1);
    for (int64_t k = 1; k <= b->seqs.n; k++) first[k] = rows->shape[0];
    part.n_tokens = rows->shape[0], part.seqs.offsets = first;
    if (s->look == LOOK_ALL) OSH_TRY(stats_feed_sums(cx, s, value, rows, NULL, &part));
    if (!osh_ranges_on_host(s->ranges, value)) goto done;
    OSH_TRY(osh_ranges_feed(cx, s->ranges, value, rows, &(osh_seqs){b->seqs.n, offsets},
                            stats_looking(s, value, b)));
done:
    osh_free(cx, first);
    return rc;
}

/* On a device: adds to the statistics of a value the rows of x that are routed to the value's
 * expert. counted: as in osh_counting. */
static osh_status stats_feed_gathered(osh_ctx *cx, osh_stats *s, int value, const osh_tensor *x,
                                      const osh_batch *b, const uint8_t *counted)
{
    osh_status rc = OSH_OK;
    osh_tensor *rows = NULL;    // own
    osh_expert_counted c = {0}; // own
    const osh_tensor *t = stats_sums(s, value)->minmax;
    if (!b->rows) OSH_FAIL(cx, OSH_E_INTERNAL, "the list of an expert's rows is missing");
    if (counted || osh_ranges_on_host(s->ranges, value))
        OSH_TRY(osh_expert_counted_new(cx, &c, b, counted));
    else c.rows = *b->rows, c.tokens = b->tokens;
    if (!c.rows.n) goto done;
    if (t && s->look == LOOK_ALL) {
        float *low = (float *)t->data + b->first_sample;
        osh_sampled_rows of = {c.rows, c.tokens, &b->seqs};
        OSH_TRY(osh_device_ops_of(x->device)->minmax_rows(cx, low, low + t->shape[1], x, &of));
    }
    if (stats_has_sums(s, value) || osh_ranges_on_host(s->ranges, value)) {
        OSH_TRY(osh_tensor_new_on(cx, &rows, (osh_where){x->device, OSH_LIFE_SHORT}, x->dtype, 2,
                                  (int64_t[]){osh_gathered_rows(c.rows.n), x->shape[1]}));
        OSH_TRY(osh_device_ops_of(x->device)->gather(cx, rows, x, &c.rows));
        OSH_TRY(stats_feed_rows(cx, s, value, rows, b, c.offsets));
    }
done:
    osh_tensor_free(cx, rows);
    osh_expert_counted_deinit(cx, &c);
    return rc;
}

/* Adds rows of x to the statistics of a value. If osh_dataset.counted is not NULL, adds only rows
 * of counted tokens. If an expert gets only the tokens that are routed to it, rows of zeros in its
 * values are not added. */
static osh_status stats_feed_counted(osh_ctx *cx, osh_stats *s, int value, const osh_tensor *x,
                                     const osh_tensor *original, const osh_batch *b)
{
    osh_status rc = OSH_OK;
    const osh_dataset *d = &s->plan->in->data;
    bool routed = s->plan->in->by_route && osh_is_by_route(s->plan->in->graph, value);
    osh_counted c = {0}; // own
    osh_counting which = {d->counted ? d->counted + d->offsets[b->first_sample] : NULL, routed};
    if (routed && x->device) return stats_feed_gathered(cx, s, value, x, b, which.counted);
    if (!which.counted && !routed) return stats_feed_wanted(cx, s, value, x, original, b);
    OSH_TRY(osh_counted_new(cx, &c, x, original, b, &which));
    if (c.part.n_tokens)
        OSH_TRY(stats_feed_wanted(cx, s, value, c.x, c.original, &c.part));
done:
    osh_counted_deinit(cx, &c);
    return rc;
}

osh_status osh_stats_feed(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                          const osh_batch *b)
{
    osh_status rc = OSH_OK;
    osh_stats *s = user;
    const osh_value *v = &s->plan->in->graph->values[value];
    // If s->same is true and a value has a counterpart in the original model, the pass computes the
    // counterpart instead of the value. The counterpart is added to the statistics of the value.
    // For routers, the pass may compute the value, too, but the value is not added.
    if (s->same && v->original >= 0) goto done;
    if (s->same && v->quantized >= 0) value = v->quantized;
    if (s->look == LOOK_FIRST && !s->again[value]) goto done;
    if (s->kept[value] && s->look == LOOK_ALL) OSH_TRY(stats_keep_rows(cx, s, value, x, b));
    if (!s->wanted[value] && !osh_ranges_has(s->ranges, value)) goto done;
    // only the sums of the first look use values of the original model
    const osh_tensor *original =
        v->original >= 0 && s->look == LOOK_ALL ? b->values[v->original] : NULL;
    OSH_TRY(stats_feed_counted(cx, s, value, x, original, b));
done:
    if (rc && rc != OSH_E_INTERRUPTED)
        osh_note(cx, "statistics of value %s", s->plan->in->graph->values[value].name);
    return rc;
}

static osh_status stats_look_at_sample(osh_ctx *cx, osh_stats *s, int value, int64_t k)
{
    osh_status rc = OSH_OK;
    const osh_dataset *d = &s->plan->in->data;
    int64_t offsets[] = {0, d->offsets[k + 1] - d->offsets[k]}, ahead = osh_acts_ahead(s->looks);
    osh_batch b = {.first_sample = k, .n_tokens = offsets[1], .seqs = {.n = 1, .offsets = offsets}};
    osh_tensor *x = NULL; // own
    OSH_TRY(osh_check_interrupt(cx));
    OSH_TRY(osh_acts_get(cx, &x, s->looks, &(osh_acts_rows){value, k, 1}, false, NULL));
    for (int64_t next = k ? k + ahead : 1; ahead && next <= k + ahead && next < d->n; next++)
        OSH_TRY(osh_acts_ask(cx, s->looks, value, next, 1));
    OSH_TRY(osh_stats_feed(cx, s, value, x, &b));
done:
    osh_tensor_free(cx, x);
    return rc;
}

/* Runs the second pass of two-pass observers: they read the stored values, sample by sample. Then
 * frees the store. */
static osh_status stats_look_at_kept(osh_ctx *cx, osh_stats *s)
{
    osh_status rc = OSH_OK;
    s->look = LOOK_KEPT;
    OSH_TRY(osh_acts_open(cx, s->looks, s->kept, s->kept, 0));
    for (int v = s->v0; v < s->v1; v++)
        for (int64_t k = 0; s->kept[v] && osh_acts_has(s->looks, v) && k < s->plan->in->data.n; k++)
            OSH_TRY(stats_look_at_sample(cx, s, v, k));
done:
    osh_acts_free(cx, s->looks, false), s->looks = NULL;
    s->look = LOOK_ALL;
    return rc;
}

/* Completes all sums: adds the sum of the last group of samples (ops/stat.h) to the sum of the
 * other groups. */
static osh_status stats_finish_sums(osh_ctx *cx, osh_stats *s)
{
    osh_status rc = OSH_OK;
    for (int v = s->v0; v < s->v1; v++)
        for (osh_sum k = 0; k < OSH_N_SUMS; k++)
            if (stats_sums(s, v)->of[k]) OSH_TRY(osh_stat_finish(cx, stats_sums(s, v)->of[k]));
done:
    return rc;
}

/* Each expert has its own sums. Finds out whether any rank has added rows to these sums
 * (osh_stats_is_empty). Does nothing without GPUs. */
static osh_status stats_count_ranks(osh_ctx *cx, osh_stats *s)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = s->plan->in->graph;
    if (!s->ranks || !s->plan->in->device || !s->plan->in->by_route) goto done;
    for (int v = s->v0; v < s->v1; v++)
        for (osh_sum k = 0; osh_is_by_route(g, v) && k < OSH_N_SUMS; k++)
            if (stats_sums(s, v)->of[k])
                OSH_TRY(osh_exchange_count(cx, s->ranks, &stats_sums(s, v)->of[k]->next));
done:
    return rc;
}

osh_status osh_stats_collect(osh_ctx *cx, osh_stats *s)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = s->plan;
    float *minmax = NULL; // own [2, samples]: smallest and largest element in each sample
    OSH_TRY(stats_finish_sums(cx, s));
    OSH_TRY(stats_count_ranks(cx, s));
    for (int v = s->v0; s->ranks && v < s->v1; v++)
        if (osh_stats_owner(s, v) != osh_ranks_me(s->ranks)) stats_drop_sums(cx, s, v);
    if (s->looks) OSH_TRY(stats_look_at_kept(cx, s));
    OSH_TRY(osh_ranges_merge(cx, s->ranges, s->ranks));
    OSH_TRY(osh_ranges_finish(cx, s->ranges));
    if (!p->in->device) goto done;
    OSH_NEW(cx, minmax, 2 * p->in->data.n);
    for (int v = s->v0; v < s->v1; v++) {
        const osh_tensor *t = stats_sums(s, v)->minmax;
        if (!t) continue;
        OSH_TRY(osh_tensor_get(cx, minmax, t, 0, osh_tensor_bytes(t)));
        osh_tensor all = osh_tensor_view(t->dtype, t->ndim, t->shape, minmax);
        OSH_TRY(osh_exchange_exact(cx, s->ranks, &osh_stat_sample_ranges, &all));
        osh_ranges_feed_minmax(s->ranges, v, minmax, p->in->data.n);
    }
done:
    osh_free(cx, minmax);
    return rc;
}

const osh_ranges *osh_stats_ranges(const osh_stats *s) { return s->ranges; }
