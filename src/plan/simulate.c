/* simulate.c - counts the bytes of every step of a run before it is made: the walk of visit.c with nothing done.
 *
 *   device = loaded weights + open Hessians + batch (values, scratch) or solver + values of the batches that are kept
 *   host   = base + device + resting values (tiers device and host) + packing buffers + prefetched weights
 *
 * On a card the device's bytes are those of its arena, placed as the run will place them, and no part of the host's:
 *
 *   device = to the end of (the workspace of products, weights, statistics, resting values of tier device,
 *            prefetched weights) from the front
 *            + to the end of (the batch, or what a solve takes) from the back
 *   host   = base + weights on their way or to be solved + a solve's results + the most that has rested so far (tier
 *            host: blocks of values that are gone wait for the next ones) + packing buffers + prefetched weights */
#include <stdlib.h>
#include <string.h>

#include "graph/picked.h"
#include "plan/blocks.h"
#include "plan/bytes.h"
#include "plan/cache.h"
#include "plan/folds.h"
#include "plan/layout.h"
#include "plan/looks.h"
#include "plan/lookup.h"
#include "plan/memory.h"
#include "plan/traversals.h"
#include "quant/observer.h"
#include "store/activations.h"
#include "store/loaders.h"
#include "store/slots.h"

typedef struct sim {
    const osh_plan *p;
    osh_tier tier;
    osh_visit *to;  // view: where the peaks of the present visit go
    const osh_range *r; // view: the present visit's
    osh_layout *card; // own: the device is one: its bytes are not the host's; NULL: it is the host's memory
    int n_threads;
    int64_t batch_tokens; // of the largest batch
    osh_exec_batch by_sample, whole; // of batches that run sample by sample, and of others; n_tokens 0: there is none
    int64_t lists;  // device: what statistics and a solve keep for each Linear and value
    int64_t frame;  // host: a sample of the widest value, compressed; on its way from the card
    bool *loaded, *open, *stored, *held; // own: weights, Hessians by value, values in the tier, values that are kept
    bool *squares;  // own: sums of squares by value
    bool *counts;   // own: histograms by value
    size_t *hook;   // own: [values] bytes that statistics take while they are fed
    bool *ever;     // own: weights that some visit loads
    bool *kept;     // own: weights with a copy in host memory, with a card: until written or solved
    bool *solved;   // own [linears]
    int64_t copies; // live bytes of those copies
    int64_t weights, stats, values, kept_values; // live bytes; values: in the tier
    int64_t n_kept; // batches
    bool *looks;    // own: [values] kept for a second look
    int64_t looked, to_look; // bytes of these, in memory or on the disk: now, and what the next pass adds
    int64_t most_values; // so far
    int64_t ahead;  // host: values that are read ahead from the disk; with a card the most so far, whose blocks stay
    bool *lent;     // own: [values] of a step
    bool began;     // the visit has loaded
    int index;      // of the visit
    bool *want;     // own [weights]
} sim;

static void raise_to(int64_t *peak, int64_t now)
{
    if (now > *peak) *peak = now;
}

static int longer_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Of all batches that run so, the most of each. */
static osh_status find_batches(osh_ctx *cx, sim *s)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = s->p;
    const int64_t *at = p->batch_at, *offsets = p->data.offsets;
    int64_t *lengths = NULL; // own
    OSH_NEW(cx, lengths, p->data.n);
    for (int64_t b = 0; b < p->n_batches; b++) {
        int64_t n = at[b + 1] - at[b], at_once = 0;
        bool by_sample = osh_exec_by_sample(n, s->n_threads);
        osh_exec_batch *most = by_sample ? &s->by_sample : &s->whole;
        raise_to(&most->n_tokens, offsets[at[b + 1]] - offsets[at[b]]);
        if (!by_sample) continue;
        for (int64_t k = 0; k < n; k++) lengths[k] = offsets[at[b] + k + 1] - offsets[at[b] + k];
        qsort(lengths, (size_t)n, sizeof *lengths, longer_first);
        for (int k = 0; k < n && k < s->n_threads; k++) at_once += lengths[k];
        raise_to(&most->at_once, at_once);
        raise_to(&most->longest, lengths[0]);
    }
    s->by_sample.n_threads = s->whole.n_threads = s->n_threads;
done:
    osh_free(cx, lengths);
    return rc;
}

static osh_status sim_init(osh_ctx *cx, sim *s, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->graph;
    *s = (sim){.p = p, .n_threads = osh_threads(cx), .batch_tokens = p->batch_tokens};
    if (p->on_device) OSH_TRY(osh_layout_new(cx, &s->card, p));
    else OSH_TRY(find_batches(cx, s));
    OSH_NEW(cx, s->loaded, g->n_weights);
    OSH_NEW(cx, s->ever, g->n_weights);
    OSH_NEW(cx, s->want, g->n_weights);
    OSH_NEW(cx, s->open, g->n_values);
    OSH_NEW(cx, s->squares, g->n_values);
    OSH_NEW(cx, s->counts, g->n_values);
    OSH_NEW(cx, s->stored, g->n_values);
    OSH_NEW(cx, s->held, g->n_values);
    OSH_NEW(cx, s->lent, g->n_values);
    OSH_NEW(cx, s->hook, g->n_values);
    OSH_NEW(cx, s->looks, g->n_values);
    OSH_NEW(cx, s->kept, g->n_weights);
    OSH_NEW(cx, s->solved, p->n_linears);
    size_t nl = (size_t)p->n_linears, nv = (size_t)g->n_values;
    s->lists = (int64_t)(osh_mem_gross(nl * sizeof(osh_linear_job)) + osh_mem_gross(nl * sizeof(int)) +
                         osh_mem_gross(nl * sizeof(osh_act_observer)) + osh_mem_gross(nv * sizeof(bool)) +
                         osh_mem_gross(nv * sizeof(void *)) + 8 * osh_mem_gross(256));
    if (osh_plan_by_sample(p, s->n_threads)) s->lists += (int64_t)osh_lanes_bytes(g, s->n_threads);
    if (osh_scratch_is_packed(p->opt))
        s->frame = osh_acts_frame_bytes(g, &p->data);
    if (s->card) { // a batch's lists; what reads the samples' ranges; a sample between card and disk
        s->lists += (int64_t)(osh_mem_gross((size_t)s->batch_tokens * sizeof(int64_t)) +
                              osh_mem_gross(nv * sizeof(void *)) + nv * osh_mem_gross(sizeof(osh_tensor)) +
                              2 * osh_mem_gross((size_t)p->data.n * 2 * sizeof(float)) +
                              osh_mem_gross((size_t)g->n_nodes * OSH_OP_MAX_OUT * sizeof(int64_t)) +
                              (size_t)p->data.n * sizeof(void *) + osh_mem_gross(nv * sizeof(int)));
        s->frame += osh_acts_stage_bytes(g, &p->data);
    }
done:
    return rc;
}

static void sim_deinit(osh_ctx *cx, sim *s)
{
    osh_free(cx, s->loaded);
    osh_free(cx, s->ever);
    osh_free(cx, s->want);
    osh_free(cx, s->open);
    osh_free(cx, s->squares);
    osh_free(cx, s->counts);
    osh_free(cx, s->stored);
    osh_free(cx, s->held);
    osh_free(cx, s->lent);
    osh_free(cx, s->hook);
    osh_free(cx, s->looks);
    osh_free(cx, s->kept);
    osh_layout_free(cx, s->card);
    osh_free(cx, s->solved);
}

/* device, host: what is there beside weights, their copies, statistics and resting values. */
static void note(sim *s, int64_t device, int64_t host, int64_t values)
{
    bool disk = s->tier == OSH_TIER_DISK, looks_disk = s->looked && s->p->memory.looks == OSH_LOOK_DISK;
    int64_t dev = s->weights + s->stats + device + s->kept_values + (s->tier == OSH_TIER_DEVICE ? values : 0);
    host += s->copies + s->lists;
    if (s->looked) host += osh_acts_own_bytes(s->p->graph) + (looks_disk ? s->frame : s->looked);
    if (s->card) dev = osh_layout_extent(s->card) + device;
    else dev += s->lists, host += dev - s->lists;
    raise_to(&s->to->weight_bytes, s->weights);
    raise_to(&s->to->stats_bytes, s->stats);
    raise_to(&s->to->live_bytes, values + s->kept_values);
    raise_to(&s->to->device_peak, dev);
    raise_to(&s->most_values, values);
    if (s->tier == OSH_TIER_HOST) host += s->card ? s->most_values : values;
    raise_to(&s->to->host_peak, host + (disk ? s->frame : 0) + s->ahead);
    raise_to(&s->to->scratch_peak, (disk ? values : 0) + (looks_disk ? s->looked : 0));
}

static int64_t batch_tokens(const sim *s, int64_t b)
{
    return s->p->data.offsets[s->p->batch_at[b + 1]] - s->p->data.offsets[s->p->batch_at[b]];
}

/* With a card, of a batch: in its arena, or in host memory. */
static int64_t batch_rest(const sim *s, int v, int64_t b)
{
    if (v == s->p->graph->input_ids) return 0;
    if (s->tier == OSH_TIER_DEVICE) return osh_layout_bytes(s->card, OSH_LAYOUT_ROWS, v * s->p->n_batches + b);
    return osh_acts_batch_bytes(s->p->graph, v, batch_tokens(s, b));
}

static int64_t list_rest(const sim *s, int v) // with a card, of host memory: the blocks of a value
{
    bool any = s->tier == OSH_TIER_HOST && v != s->p->graph->input_ids;
    return any ? (int64_t)osh_mem_gross((size_t)s->p->data.n * sizeof(void *)) : 0;
}

/* Of the batches that are not kept. */
static int64_t value_rest(const sim *s, int v)
{
    const osh_plan *p = s->p;
    int64_t sum = 0;
    if (v == p->graph->input_ids || s->n_kept == p->n_batches) return 0;
    if (s->card && s->tier == OSH_TIER_DISK)
        return osh_slots_bytes(p->graph, &p->data, v, 0, !osh_scratch_is_packed(p->opt));
    if (!s->card)
        return osh_acts_bytes(p->graph, &p->data, s->tier, v, p->batch_at[s->n_kept]);
    for (int64_t b = 0; b < p->n_batches; b++) sum += batch_rest(s, v, b);
    return sum + list_rest(s, v);
}

static int64_t value_kept(const sim *s, int v)
{
    const osh_plan *p = s->p;
    return v == p->graph->input_ids ? 0 : osh_acts_kept_bytes(p->graph, &p->data, v, p->batch_at, s->n_kept);
}

/* Of the largest batch. */
static int64_t batch_bytes(const sim *s, int v)
{
    size_t row = (size_t)s->p->graph->values[v].width * osh_dtype_bytes(s->p->graph->dtype);
    return (int64_t)(osh_mem_gross((size_t)s->batch_tokens * row) + osh_mem_gross(sizeof(osh_tensor)));
}

static size_t accum_scratch(const sim *s, const char *name, int64_t I)
{
    const osh_op *op = osh_op_find(name);
    int64_t width[OSH_OP_MAX_IN] = {I};
    if (s->card) return op->scratch_cuda ? op->scratch_cuda(NULL, width, 0, s->batch_tokens, s->p->graph->dtype) : 0;
    return op->scratch(NULL, width, 0, s->batch_tokens, s->n_threads);
}

static int64_t hessian_bytes(const sim *s, const osh_linear *l)
{
    return s->card ? osh_layout_bytes(s->card, OSH_LAYOUT_HESSIAN, l->input) : osh_stats_hessian_bytes(l->I);
}

/* And, while it is solved, what they weigh. */
static int64_t squares_bytes(const osh_linear *l)
{
    return (int64_t)(osh_mem_gross((size_t)l->I * sizeof(double)) + osh_mem_gross(sizeof(osh_tensor)) +
                     osh_mem_gross((size_t)l->I * sizeof(float)));
}

static size_t range_scratch(const sim *s, const osh_linear *l)
{
    int64_t width = s->p->graph->values[l->ranged].width;
    return osh_act_observe_bytes(&l->scheme->inputs, s->batch_tokens, width, 1, s->p->graph->dtype);
}

/* Histograms of its input, and of a cache beside it. */
static int64_t counts_bytes(const sim *s, const osh_linear *l)
{
    size_t of_input = l->wants & OSH_STAT_RANGE ? osh_act_observer_bytes(&l->scheme->inputs) : 0;
    return (int64_t)(osh_cache_counts(s->p, l) + of_input);
}

static size_t *hook_of(const sim *s, int value)
{
    return &s->hook[osh_observed(s->p->graph, s->r->same, value)];
}

static void enter(const sim *s, int visit, osh_way way)
{
    if (s->card) osh_layout_enter(s->card, visit, way);
}

/* Kept for a second look. */
static int64_t looked_bytes(const sim *s)
{
    osh_tier tier = s->p->memory.looks == OSH_LOOK_DISK ? OSH_TIER_DISK : OSH_TIER_HOST;
    int64_t n = 0;
    for (int v = s->r->v0; v < s->r->v1; v++) {
        if (!s->looks[v]) continue;
        n += osh_acts_bytes(s->p->graph, &s->p->data, tier, v, 0);
        if (s->p->memory.looks_f16) n -= 2 * s->p->data.offsets[s->p->data.n] * s->p->graph->values[v].width;
    }
    return n;
}

/* Of a batch as F16, on its way to the disk, or to a second look. */
static size_t narrow_bytes(const sim *s, const osh_q_args *a, int value)
{
    if (!s->p->memory.looks_f16 || !osh_observer_twice(a)) return 0;
    return osh_mem_gross((size_t)(s->batch_tokens * s->p->graph->values[value].width) * 2) +
           osh_mem_gross(sizeof(osh_tensor));
}

/* Of the threads that read values ahead. */
static int64_t loaders_bytes(const sim *s)
{
    return osh_loaders_own_bytes(s->p->memory.n_loaders, osh_scratch_is_packed(s->p->opt) ? s->frame : 0);
}

/* The second look at what is kept, sample by sample, before anything is solved; then it goes. */
static void sim_look(sim *s)
{
    const osh_plan *p = s->p;
    int64_t tokens = 0, n_loaders = p->memory.looks == OSH_LOOK_DISK ? p->memory.n_loaders : 0;
    for (int64_t k = 0; s->looked && k < p->data.n; k++) raise_to(&tokens, p->data.offsets[k + 1] - p->data.offsets[k]);
    for (int v = s->r->v0; s->looked && v < s->r->v1; v++) {
        size_t row = (size_t)p->graph->values[v].width * osh_dtype_bytes(p->graph->dtype);
        int64_t sample = (int64_t)(osh_mem_gross((size_t)tokens * row) + osh_mem_gross(sizeof(osh_tensor)));
        if (n_loaders) s->ahead = loaders_bytes(s) + osh_loaders_value_bytes(p->graph, v, n_loaders, tokens, false);
        if (s->looks[v]) note(s, sample + (int64_t)*hook_of(s, v), 0, s->values);
        s->looks[v] = false;
    }
    s->ahead = s->card ? s->ahead : 0;
    s->looked = 0;
}

static osh_status sim_open(osh_ctx *cx, void *user, const osh_range *r, const bool *values)
{
    osh_status rc = OSH_OK;
    sim *s = user;
    OSH_TRY(osh_check_interrupt(cx)); // of many layers, under many budgets, this takes seconds
    enter(s, s->index, OSH_WAY_FIRST);
    for (int i = r->l0; i < r->l1; i++) {
        const osh_linear *l = &s->p->linears[i];
        if (!l->wants || !values[l->input]) continue;
        if (s->card && (l->wants & OSH_STAT_RANGE)) OSH_TRY(osh_layout_take(cx, s->card, OSH_LAYOUT_RANGE, l->input));
        if ((l->wants & OSH_STAT_SQUARES) && !s->squares[l->input])
            s->squares[l->input] = true, s->stats += squares_bytes(l);
        if (!s->counts[l->input]) s->counts[l->input] = true, s->stats += counts_bytes(s, l);
        for (int k = 0; k < OSH_BESIDE; k++) {
            if (l->cache[k] < 0) continue;
            size_t cached = osh_cache_scratch(s->p, l, s->batch_tokens) +
                            narrow_bytes(s, osh_beside_args(s->p, l, k), l->cache[k]);
            if (*hook_of(s, l->cache[k]) < cached) *hook_of(s, l->cache[k]) = cached;
        }
        size_t *hook = hook_of(s, l->input), *ranged = hook_of(s, l->ranged);
        size_t range = l->wants & OSH_STAT_RANGE
                           ? range_scratch(s, l) + narrow_bytes(s, &l->scheme->inputs, l->ranged) : 0;
        if (range > *ranged) *ranged = range;
        if (!(l->wants & OSH_STAT_HESSIAN) || s->open[l->input]) continue;
        s->open[l->input] = true;
        s->stats += hessian_bytes(s, l) * (1 + l->shift);
        size_t accum = accum_scratch(s, "hessian_accum", l->I);
        if (accum > *hook) *hook = accum;
        if (s->card) OSH_TRY(osh_layout_take(cx, s->card, OSH_LAYOUT_HESSIAN, l->input));
        if (!l->shift) continue;
        size_t more = accum_scratch(s, "shift_accum", l->I);
        if (more > *hook) *hook = more;
        if (s->card) OSH_TRY(osh_layout_take(cx, s->card, OSH_LAYOUT_SHIFT, l->input));
    }
    osh_looks_of(s->looks, NULL, s->p, r, values);
    s->to_look = looked_bytes(s);
    note(s, 0, 0, s->values);
done:
    return rc;
}

static int64_t weight_bytes(const sim *s, int w)
{
    if (s->card) return osh_layout_bytes(s->card, OSH_LAYOUT_WEIGHT, w);
    return (int64_t)osh_weight_bytes(s->p->graph, s->p->ck, w);
}

static void sim_load_one(sim *s, int w)
{
    const osh_st_entry *e = osh_weight_entry(s->p->graph, s->p->ck, w);
    s->loaded[w] = s->ever[w] = true;
    s->weights += weight_bytes(s, w);
    if (!s->began) s->to->first_load += (int64_t)osh_weight_bytes(s->p->graph, s->p->ck, w);
    s->to->read_bytes += e->end - e->begin;
}

static void sim_drop_copy(sim *s, int weight)
{
    if (!s->kept[weight]) return;
    s->kept[weight] = false;
    s->copies -= (int64_t)osh_weight_bytes(s->p->graph, s->p->ck, weight);
}

/* As drop_copies of sequential.c: copies stay of what is to be solved. */
static void sim_drop_copies(sim *s)
{
    for (int w = s->r->w0; s->card && w < s->r->w1; w++) {
        bool waits = !s->kept[w];
        for (int i = s->r->l0; i < s->r->l1 && !waits; i++)
            waits = s->p->linears[i].weight == w && s->p->linears[i].wants && !s->solved[i];
        if (!waits) sim_drop_copy(s, w);
    }
}

/* Places of what the next visit loads first; look: the walk of it up to there. */
typedef struct ahead {
    sim *s;
    bool seen;
} ahead;

static void want_one(const sim *s, bool *want, int w)
{
    if (w >= 0 && !s->loaded[w]) want[w] = true;
}

static void want_weights(const sim *s, bool *want, const osh_range *r, const osh_step *st, const bool *values)
{
    const osh_graph *g = s->p->graph;
    memset(want + r->w0, 0, (size_t)(r->w1 - r->w0) * sizeof *want);
    for (int i = st->first; i < st->first + st->n; i++)
        for (int k = 0; st->run[i - st->first] && k < g->nodes[i].op->n_weights; k++)
            if (!osh_is_picked(g, &g->nodes[i], k)) want_one(s, want, g->nodes[i].w[k]);
    for (int i = r->l0; values && i < r->l1; i++) {
        const osh_linear *l = &s->p->linears[i];
        if (l->wants && values[l->input]) want_one(s, want, l->weight);
    }
    osh_fold_wants(want, s->p, r, st);
    for (int w = r->w0; w < r->w1; w++) want[w] &= !s->loaded[w];
}

static osh_status ahead_load(osh_ctx *cx, void *user, const osh_range *r, const osh_step *st, const bool *values)
{
    osh_status rc = OSH_OK;
    ahead *a = user;
    if (a->seen) goto done;
    want_weights(a->s, a->s->want, r, st, values);
    for (int w = r->w0; w < r->w1; w++)
        if (a->s->want[w]) OSH_TRY(osh_layout_take(cx, a->s->card, OSH_LAYOUT_WEIGHT, w));
    a->seen = true;
done:
    return rc;
}
static osh_status no_open(osh_ctx *cx, void *user, const osh_range *r, const bool *values) { return OSH_OK; }
static osh_status no_pass(osh_ctx *cx, void *user, const osh_range *r, const osh_step *st) { return OSH_OK; }
static osh_status no_solve(osh_ctx *cx, void *user, const osh_range *r, const bool *v, bool keep) { return OSH_OK; }
static osh_status no_reload(osh_ctx *cx, void *user, const osh_range *r, int first, int n) { return OSH_OK; }
static osh_status no_release(osh_ctx *cx, void *user, int first, int n) { return OSH_OK; }
static osh_status no_drop(osh_ctx *cx, void *user, const bool *keep) { return OSH_OK; }

static osh_status sim_ahead(osh_ctx *cx, sim *s)
{
    ahead a = {.s = s};
    enter(s, s->index + 1, OSH_WAY_AHEAD);
    osh_visitor v = {.open = no_open, .load = ahead_load, .pass = no_pass, .solve = no_solve, .reload = no_reload,
                     .release = no_release, .drop = no_drop, .user = &a};
    osh_status rc = osh_visit_walk(cx, s->p, s->index + 1, &v);
    if (!rc) note(s, 0, 0, s->values);
    return rc;
}

/* Reading a solved weight back: its packed tensors and its codes. */
static void note_reload(sim *s, const osh_linear *l)
{
    int64_t way = s->card ? (int64_t)osh_weight_bytes(s->p->graph, s->p->ck, l->weight) : 0;
    note(s, 0, way + osh_memory_pack_bytes(s->p, l) + (int64_t)osh_mem_gross((size_t)(l->O * l->I)), s->values);
}

static osh_status sim_load(osh_ctx *cx, void *user, const osh_range *r, const osh_step *st, const bool *values)
{
    osh_status rc = OSH_OK;
    sim *s = user;
    enter(s, s->index, st->again ? OSH_WAY_AGAIN : OSH_WAY_FIRST);
    want_weights(s, s->want, r, st, values);
    for (int w = r->w0; w < r->w1; w++) {
        if (!s->want[w]) continue;
        sim_load_one(s, w);
        if (!s->card) continue;
        s->kept[w] = true;
        s->copies += (int64_t)osh_weight_bytes(s->p->graph, s->p->ck, w);
        OSH_TRY(osh_layout_take(cx, s->card, OSH_LAYOUT_WEIGHT, w));
    }
    note(s, 0, 0, s->values);
    for (int i = r->l0; i < r->l1; i++)
        if (s->want[s->p->linears[i].weight] && osh_is_done_before(s->p, &s->p->linears[i]))
            note_reload(s, &s->p->linears[i]);
    if (s->card && !s->began && s->to->prefetch_device) OSH_TRY(sim_ahead(cx, s));
    s->began = true;
done:
    return rc;
}

/* What a step's values take where they rest, and what goes with it. */
static void rows_of(sim *s, const osh_step *st, int64_t *out, int64_t *taken)
{
    *out = *taken = 0;
    for (int v = s->r->v0; v < s->r->v1; v++) {
        if (st->out[v] && !s->stored[v]) *out += value_rest(s, v), s->stored[v] = true;
        if (!st->consume[v] || !s->stored[v] || s->tier == OSH_TIER_DISK) continue;
        *taken += value_rest(s, v), s->stored[v] = false;
    }
}

/* Rows of a batch that is done go and come, in the order of run_batch; left: of the arena, what the batch still has.
 * now: bytes of values at rest. */
static osh_status batch_over(osh_ctx *cx, sim *s, const osh_step *st, int64_t b, size_t left, int64_t *now)
{
    osh_status rc = OSH_OK;
    int end = s->tier == OSH_TIER_DISK ? 0 : s->r->v1;
    for (int v = s->r->v0; v < end; v++) {
        if (!st->consume[v]) continue;
        *now -= batch_rest(s, v, b);
        osh_layout_give(s->card, OSH_LAYOUT_ROWS, v * s->p->n_batches + b);
    }
    for (int v = s->r->v0; v < end; v++) {
        if (!st->out[v]) continue;
        if (s->tier == OSH_TIER_DEVICE)
            OSH_TRY(osh_layout_take(cx, s->card, OSH_LAYOUT_ROWS, v * s->p->n_batches + b));
        *now += batch_rest(s, v, b);
        note(s, (int64_t)left, 0, *now);
    }
done:
    return rc;
}

static size_t way_bytes(const sim *s, const osh_step *st)
{
    size_t n = 0;
    for (int v = s->r->v0; s->to->values_ahead && v < s->r->v1; v++)
        if (v != s->p->graph->input_ids)
            n += (size_t)(st->in[v] + st->out[v]) * (size_t)osh_acts_way_bytes(s->p->graph, v, s->batch_tokens);
    return n;
}

/* Reads of the tables whose rows a step looks up; with a card, what that takes in host memory for a batch. */
static int64_t look_up(const sim *s, const osh_step *st)
{
    const osh_graph *g = s->p->graph;
    int64_t most = 0;
    for (int i = st->first; i < st->first + st->n; i++) {
        if (!st->run[i - st->first] || !osh_is_picked(g, &g->nodes[i], 0)) continue;
        const osh_weight *w = &g->weights[g->nodes[i].w[0]];
        s->to->read_bytes += s->p->looked_up * w->shape[1] * (int64_t)osh_dtype_bytes(w->by_rows);
        raise_to(&most, (int64_t)osh_picked_bytes(w, s->batch_tokens));
    }
    return s->card ? most : 0;
}

static osh_status pass_on_card(osh_ctx *cx, sim *s, const osh_step *st)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = s->p;
    const osh_graph *g = p->graph;
    size_t peak = 0, left = 0;
    int64_t out, taken, last = -1, now = s->values;
    enter(s, s->index, st->again ? OSH_WAY_AGAIN : OSH_WAY_FIRST);
    rows_of(s, st, &out, &taken);
    for (int v = s->r->v0; v < s->r->v1; v++) now += st->out[v] ? list_rest(s, v) : 0;
    if (s->tier == OSH_TIER_DISK) now += out;
    size_t ways = way_bytes(s, st); // nearest to the end of the arena
    int64_t rows = look_up(s, st);
    for (int64_t b = 0; b < p->n_batches; b++) {
        int64_t n = batch_tokens(s, b);
        if (n != last)
            OSH_TRY(osh_exec_peak_on_device(cx, &peak, &left, g, st->first, st->n, st->run, st->in, st->out,
                                            st->observe || st->fold ? s->hook : NULL, n));
        last = n;
        note(s, (int64_t)(ways + peak), rows, now);
        OSH_TRY(batch_over(cx, s, st, b, ways + left, &now));
    }
    s->values += out - taken;
    note(s, 0, 0, s->values);
done:
    return rc;
}

/* What a step takes, the ids included; lent: as in osh_exec_peak. */
static int64_t step_bytes(const sim *s, const osh_step *st, const bool *lent, const size_t *hook, int64_t *left)
{
    const osh_exec_batch *kinds[] = {&s->by_sample, &s->whole};
    int64_t most = 0;
    *left = 0;
    for (int k = 0; k < 2; k++) {
        osh_exec_batch b = *kinds[k];
        size_t stays = 0;
        if (!b.n_tokens) continue;
        if (st->observe || st->fold) b.seen = s->p->seen;
        else b.routed = st->routed;
        size_t now = osh_exec_peak(s->p->graph, st->first, st->n, st->run, st->in, lent, st->out, hook, &b, &stays);
        raise_to(&most, (int64_t)(now + osh_mem_gross((size_t)b.n_tokens * sizeof(int32_t))));
        raise_to(left, (int64_t)stays);
    }
    return most;
}

/* Batches that are kept: what comes in is lent, or given away where it is read for the last time, and what is made
 * stays. Bytes grow and shrink evenly with the tokens that are done: the most is at one end. grow: of what is kept for
 * a second look. */
static void pass_kept(sim *s, const osh_step *st, const size_t *hook, int64_t grow)
{
    const osh_graph *g = s->p->graph;
    int64_t out = 0, taken = 0, new = 0, old = 0, before = s->kept_values;
    for (int v = s->r->v0; v < s->r->v1; v++) {
        s->lent[v] = st->in[v] && !st->consume[v] && v != g->input_ids;
        if (st->out[v] && !s->held[v]) out += value_kept(s, v), new += batch_bytes(s, v), s->held[v] = true;
        if (!st->consume[v] || !s->held[v]) continue;
        taken += value_kept(s, v), old += batch_bytes(s, v), s->held[v] = false;
    }
    int64_t left, exec = step_bytes(s, st, s->lent, hook, &left);
    s->kept_values = before - old;
    note(s, exec, 0, s->values);
    s->kept_values = before + out - taken - new, s->looked += grow;
    note(s, exec, 0, s->values);
    s->kept_values = before + out - taken;
    note(s, 0, 0, s->values);
}

static void pass_others(sim *s, const osh_step *st, const size_t *hook, int64_t grow)
{
    int64_t out, taken, n = s->p->data.n - s->p->batch_at[s->n_kept];
    int64_t size = s->p->batch_size, left;
    int64_t exec = step_bytes(s, st, NULL, hook, &left);
    rows_of(s, st, &out, &taken);
    /* Rows come and go batch by batch: the first batch sees nothing of the new ones, the last all but its own. */
    int64_t share = size < n ? size : n, new = (out + n - 1) / n * share, old = (taken + n - 1) / n * share;
    int64_t early = s->values, late = s->values + out - taken - new + old;
    note(s, exec, 0, early);
    note(s, left, 0, early + new);
    s->looked += grow;
    note(s, exec, 0, late);
    note(s, left, 0, late + new);
    s->values += out - taken;
    note(s, 0, 0, s->values);
}

/* What reading a step's values ahead takes in host memory. */
static int64_t ahead_bytes(const sim *s, const osh_step *st)
{
    const osh_memory *m = &s->p->memory;
    int64_t n = loaders_bytes(s);
    if (s->tier != OSH_TIER_DISK || !m->n_loaders) return 0;
    for (int v = s->r->v0; v < s->r->v1; v++)
        if (st->in[v] && v != s->p->graph->input_ids)
            n += osh_loaders_value_bytes(s->p->graph, v, m->n_ahead, s->batch_tokens, s->card);
    return n;
}

static osh_status sim_pass(osh_ctx *cx, void *user, const osh_range *r, const osh_step *st)
{
    sim *s = user;
    (void)r;
    int64_t reads = ahead_bytes(s, st);
    if (s->card) raise_to(&s->ahead, reads);
    else s->ahead = reads;
    if (s->card) return pass_on_card(cx, s, st);
    const size_t *hook = st->observe || st->fold ? s->hook : NULL;
    look_up(s, st);
    int64_t grow = st->observe && !st->first_look ? s->to_look : 0, tokens = s->p->data.offsets[s->p->data.n];
    double share = tokens ? (double)s->p->data.offsets[s->p->batch_at[s->n_kept]] / (double)tokens : 0;
    int64_t of_kept = (int64_t)((double)grow * share);
    if (s->n_kept) pass_kept(s, st, hook, of_kept);
    if (s->n_kept < s->p->n_batches) pass_others(s, st, hook, grow - of_kept);
    s->to_look -= grow, s->ahead = 0;
    return OSH_OK;
}

/* Bytes of the buffers that a Linear is packed into. */
int64_t osh_memory_pack_bytes(const osh_plan *p, const osh_linear *l)
{
    int64_t n = 0;
    for (int k = 0; k < l->n_out; k++) {
        const osh_st_entry *e = &p->out[l->first_out + k];
        n += (int64_t)osh_mem_gross((size_t)(e->end - e->begin));
    }
    return n;
}

/* What comes before a quantizer: all that is pruned waits for it, and the Hessian stays for those behind it. */
static int64_t prune_bytes(const osh_plan *p, osh_linear_job *jobs, int n, const osh_linear *lead, int n_threads,
                           int64_t *kept)
{
    const osh_modifier *m = &p->recipe->modifiers[lead->pruner];
    osh_status (*done)(osh_ctx *cx, osh_linear_job *j) = jobs->done;
    bool copy = m->type->wants(m, lead->scheme) & OSH_STAT_HESSIAN;
    for (int k = 0; k < n; k++) jobs[k].done = NULL;
    int64_t work = (int64_t)m->type->needs(m, jobs, n, n_threads, NULL);
    *kept = (int64_t)osh_mem_gross((size_t)n * sizeof(osh_tensor));
    for (int k = 0; k < n; k++) {
        jobs[k].done = done;
        if (jobs[k].keep_w) *kept += (int64_t)osh_mem_gross(osh_tensor_bytes(jobs[k].w));
    }
    return work + (copy ? osh_stats_hessian_bytes(lead->I) : 0);
}

/* device: of its arena; NULL: everything is host memory. */
int64_t osh_memory_compress_bytes(const osh_plan *p, osh_linear_job *jobs, int n, const osh_linear *lead, int n_threads,
                                  size_t *device)
{
    const osh_modifier *m = &p->recipe->modifiers[lead->modifier];
    if (lead->kept) return (int64_t)osh_job_result_bytes(jobs);
    int64_t work = (int64_t)m->type->needs(m, jobs, n, n_threads, device), kept = 0;
    if (lead->pruner < 0) return work;
    int64_t before = prune_bytes(p, jobs, n, lead, n_threads, &kept);
    return before > work + kept ? before : work + kept;
}

typedef struct group { // of Linears that are solved in one call
    osh_linear_job *jobs; // own [linears of the range]
    osh_tensor *w;        // own [linears of the range]; shapes only
    osh_tensor shift;     // the same
    bool *done;           // own [linears of the range]
} group;

static osh_status group_init(osh_ctx *cx, group *g, const osh_range *r)
{
    osh_status rc = OSH_OK;
    *g = (group){0};
    OSH_NEW(cx, g->jobs, r->l1 - r->l0);
    OSH_NEW(cx, g->w, r->l1 - r->l0);
    OSH_NEW(cx, g->done, r->l1 - r->l0);
done:
    return rc;
}

static void group_deinit(osh_ctx *cx, group *g)
{
    osh_free(cx, g->jobs);
    osh_free(cx, g->w);
    osh_free(cx, g->done);
}

static osh_status sim_take(osh_ctx *cx, osh_linear_job *j) { return OSH_OK; } // results do not stay

static void group_add(group *g, int *n, const osh_linear *l, bool pack)
{
    g->w[*n] = osh_tensor_view(l->dtype, 2, (int64_t[]){l->O, l->I}, NULL);
    g->shift = osh_tensor_view(OSH_F32, 2, (int64_t[]){l->I, l->I}, NULL);
    g->jobs[*n] = (osh_linear_job){.name = l->name, .scheme = l->scheme, .w = &g->w[*n], .pack = pack,
                                   .shift = l->shift ? &g->shift : NULL, .done = sim_take};
    (*n)++;
}

/* The Linears of these values are solved; what a card has of their ranges goes. */
static void sim_close(sim *s, const osh_range *r, const bool *values)
{
    for (int i = r->l0; i < r->l1; i++) {
        const osh_linear *l = &s->p->linears[i];
        if (!l->wants || !values[l->input]) continue;
        if (s->counts[l->input]) s->counts[l->input] = false, s->stats -= counts_bytes(s, l);
        s->solved[i] = true;
        sim_drop_copy(s, l->weight);
        if (s->card) osh_layout_give(s->card, OSH_LAYOUT_RANGE, l->input);
    }
}

typedef struct solving { // bytes of a call
    int64_t work, pack, copy; // all that it takes; to pack a result; of a copy of the Hessian
} solving;

/* A job is packed while the factor is there: its own result, or on a card those of its call (more than all that a solve
 * takes they cannot be). */
static void note_packing(sim *s, const group *g, int n, const osh_linear *lead, const solving *x)
{
    int64_t most = 0, all = 0, order = 4 * (int64_t)osh_mem_gross((size_t)lead->I * 4);
    for (int k = 0; k < n; k++) {
        int64_t one = (int64_t)osh_job_result_bytes(&g->jobs[k]);
        raise_to(&most, one);
        all += one;
    }
    if (s->card) note(s, x->copy, (all < x->work ? all : x->work) + order + x->pack, s->values);
    else note(s, most + order + x->copy, x->pack, s->values);
}

static int first_of_block(const osh_plan *p, const osh_range *r) // where all of it is solved; -1: none
{
    for (int i = r->l0; i < r->l1; i++)
        if (p->linears[i].wants & OSH_STAT_BLOCK) return i;
    return -1;
}

/* As osh_run_solve: Linears with one input and one modifier in one call, packed behind each other. */
static osh_status sim_solve(osh_ctx *cx, void *user, const osh_range *r, const bool *values, bool keep)
{
    osh_status rc = OSH_OK;
    sim *s = user;
    const osh_plan *p = s->p;
    group g; // own
    sim_look(s);
    OSH_TRY(group_init(cx, &g, r));
    sim_drop_copies(s);
    int first = first_of_block(p, r);
    for (int i = r->l0; i < r->l1; i++) {
        const osh_linear *lead = &p->linears[i];
        int n = 0, others = 0;
        int64_t pack = 0;
        if (!lead->wants || !values[lead->input] || g.done[i - r->l0]) continue;
        for (int k = i; k < r->l1; k++) {
            const osh_linear *l = &p->linears[k];
            if (l->input != lead->input || g.done[k - r->l0]) continue;
            bool other = l->modifier != lead->modifier || l->pruner != lead->pruner;
            others += other;
            if (other) continue;
            g.done[k - r->l0] = true;
            group_add(&g, &n, l, s->card && l->format->pack_rows);
            g.jobs[n - 1].keep_w = keep;
            if (l->scheme_index >= 0) raise_to(&pack, osh_memory_pack_bytes(p, l));
        }
        bool hessian = s->open[lead->input];
        int64_t h = hessian ? hessian_bytes(s, lead) * (1 + lead->shift) : 0;
        int64_t there = s->card ? osh_layout_extent(s->card) + (others ? h : 0) : 0, limit = p->memory.solve_limit;
        size_t on_card = limit > there ? (size_t)(limit - there) : 0; // room; what is taken of it
        int64_t work = 0;
        if (!(lead->wants & OSH_STAT_BLOCK))
            work = osh_memory_compress_bytes(p, g.jobs, n, lead, s->n_threads, s->card ? &on_card : NULL);
        else if (i == first) OSH_TRY(osh_block_peak(cx, &work, p, r));
        if (s->card) note(s, (int64_t)on_card + (others ? h : 0), work, s->values);
        else note(s, work + (others ? h : 0), 0, s->values);
        note_packing(s, &g, n, lead, &(solving){work, pack, others ? h : 0});
        if (others) continue;
        if (s->squares[lead->input]) s->squares[lead->input] = false, s->stats -= squares_bytes(lead);
        *hook_of(s, lead->input) = *hook_of(s, lead->ranged) = 0;
        for (int of = osh_first_reader(p, lead->input); of >= 0; of = osh_next_reader(p, of))
            for (int k = 0; k < OSH_BESIDE; k++)
                if (p->linears[of].cache[k] >= 0) *hook_of(s, p->linears[of].cache[k]) = 0;
        if (!hessian) continue;
        s->stats -= h, s->open[lead->input] = false;
        if (s->card) osh_layout_give(s->card, OSH_LAYOUT_HESSIAN, lead->input);
        if (s->card) osh_layout_give(s->card, OSH_LAYOUT_SHIFT, lead->input);
    }
    sim_close(s, r, values);
done:
    group_deinit(cx, &g);
    return rc;
}

static osh_status sim_reload(osh_ctx *cx, void *user, const osh_range *r, int first, int n)
{
    sim *s = user;
    const osh_visit *v = s->to;
    (void)cx;
    for (int i = r->l0; i < r->l1; i++) {
        const osh_linear *l = &s->p->linears[i];
        if (!l->wants || l->node < first || l->node >= first + n) continue;
        if (!v->segments && !v->round_bytes) continue; // memory has it
        note_reload(s, l);
    }
    return OSH_OK;
}

static osh_status sim_fold_open(osh_ctx *cx, void *user, const osh_range *r)
{
    sim *s = user;
    (void)cx;
    for (int i = 0; i < s->p->n_folds; i++) {
        const osh_fold *f = &s->p->folds[i];
        if (!osh_fold_inside(r, f)) continue;
        s->stats += osh_fold_seen_bytes(s->p, f);
        if (osh_fold_searches(s->p, f)) s->hook[f->value] = accum_scratch(s, "hessian_accum", f->n);
    }
    note(s, 0, 0, s->values);
    return OSH_OK;
}

static osh_status sim_fold(osh_ctx *cx, void *user, const osh_range *r)
{
    osh_status rc = OSH_OK;
    sim *s = user;
    int64_t bytes;
    for (int i = 0; i < s->p->n_folds; i++) {
        if (!osh_fold_inside(r, &s->p->folds[i])) continue;
        OSH_TRY(osh_fold_scratch(cx, &bytes, s->p, &s->p->folds[i], s->to->segments));
        note(s, bytes, 0, s->values);
    }
    for (int i = 0; i < s->p->n_folds; i++) {
        const osh_fold *f = &s->p->folds[i];
        if (!osh_fold_inside(r, f)) continue;
        s->stats -= osh_fold_seen_bytes(s->p, f);
        s->hook[f->value] = 0;
    }
done:
    return rc;
}

static osh_status sim_release(osh_ctx *cx, void *user, int first, int n)
{
    sim *s = user;
    const osh_graph *g = s->p->graph;
    (void)cx;
    for (int i = first; i < first + n; i++)
        for (int k = 0; k < g->nodes[i].op->n_weights; k++) {
            int w = g->nodes[i].w[k];
            if (w < 0 || !s->loaded[w]) continue;
            s->loaded[w] = false;
            s->weights -= weight_bytes(s, w);
            sim_drop_copy(s, w);
            if (s->card) osh_layout_give(s->card, OSH_LAYOUT_WEIGHT, w);
        }
    return OSH_OK;
}

static void forget(sim *s, int v)
{
    if (s->stored[v]) s->values -= value_rest(s, v);
    if (s->held[v]) s->kept_values -= value_kept(s, v);
    s->stored[v] = s->held[v] = false;
    for (int64_t b = 0; s->card && b < s->p->n_batches; b++)
        osh_layout_give(s->card, OSH_LAYOUT_ROWS, v * s->p->n_batches + b);
}

static osh_status sim_drop(osh_ctx *cx, void *user, const bool *keep)
{
    sim *s = user;
    (void)cx;
    for (int v = s->r->v0; v < s->r->v1; v++)
        if (!keep[v]) forget(s, v);
    return OSH_OK;
}

static void drop_dead(sim *s, const osh_range *r)
{
    for (int v = r->v0; v < r->v1; v++) {
        bool after = false;
        for (int i = 0; i < r->n_live_out; i++) after |= r->live_out[i] == v;
        if (!after) forget(s, v);
    }
}

/* All visits, as p->memory.visits and the tier say; fills in their figures. */
static osh_status simulate(osh_ctx *cx, osh_plan *p, osh_tier tier, bool *ever, osh_places **places)
{
    osh_status rc = OSH_OK;
    osh_memory *m = &p->memory;
    sim s; // own
    osh_visitor v = {.open = sim_open, .load = sim_load, .pass = sim_pass, .solve = sim_solve, .reload = sim_reload,
                     .release = sim_release, .drop = sim_drop, .user = &s, .fold_open = sim_fold_open,
                     .fold = sim_fold};
    OSH_TRY(sim_init(cx, &s, p));
    s.tier = tier, s.n_kept = osh_memory_kept(p, tier);
    if (places && s.card) osh_layout_record(s.card, true);
    for (int i = 0; i < m->n_visits; i++) {
        osh_visit old = m->visits[i];
        osh_range r = osh_range_at(p, i);
        m->visits[i] = (osh_visit){.segments = old.segments, .round_bytes = old.round_bytes, .n_rounds = old.n_rounds,
                                   .prefetch = old.prefetch, .prefetch_device = old.prefetch_device,
                                   .values_ahead = old.values_ahead};
        s.to = &m->visits[i], s.r = &r, s.began = false, s.index = i;
        OSH_TRY(osh_visit_walk(cx, p, i, &v));
        drop_dead(&s, &r);
    }
    if (ever) memcpy(ever, s.ever, (size_t)p->graph->n_weights * sizeof *ever);
    if (places && s.card) OSH_TRY(osh_layout_places(cx, places, s.card));
done:
    sim_deinit(cx, &s);
    return rc;
}

osh_status osh_memory_simulate(osh_ctx *cx, osh_plan *p, osh_tier tier, bool *ever)
{
    return simulate(cx, p, tier, ever, NULL);
}

osh_status osh_memory_place(osh_ctx *cx, osh_plan *p)
{
    return simulate(cx, p, p->memory.tier, NULL, &p->memory.places);
}
