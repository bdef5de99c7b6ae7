/* simulate.c - counts the bytes of every step of a run before the run starts. It goes through the
 * list of steps (schedule/visit.h), but computes nothing. On the CPU:
 *
 *   device = loaded weights + Hessians + batch (values, scratch) or solver
 *            + values of the batches that are kept
 *   host   = base + device + stored values (tiers device and host) + packing buffers
 *            + prefetched weights
 *
 * On a GPU, the device bytes are the bytes of the GPU's arena, with the addresses that the run will
 * use. They are no part of the host bytes:
 *
 *   device = bytes from the front of the arena to the end of the last of these blocks: workspace of
 *            products, weights, statistics, stored values of tier device, prefetched weights
 *            + bytes from the back of the arena to the end of the batch, or of a solve's memory
 *   host   = base + weights in transfer or to be solved + results of a solve
 *            + largest number of bytes that stored values have had so far (tier host: freed blocks
 *              wait for new values)
 *            + packing buffers + prefetched weights */
#include <stdlib.h>
#include <string.h>

#include "graph/device_peaks.h"
#include "budget/bytes.h"
#include "budget/memory_rest.h"
#include "budget/sim.h"
#include "budget/simulate.h"
#include "match/cache.h"
#include "ops/device_ops.h"
#include "rewrite/folds.h"
#include "schedule/visit_walk.h"
#include "schedule/looks.h"
#include "store/activations.h"
#include "tensor/scalar.h"

static int compare_lengths(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Finds the largest sizes of batches. Sets s->by_sample to those of the batches that run sample by
 * sample, and s->whole to those of the other batches. The sizes are the number of tokens, the
 * number of tokens that run at the same time, and the length of the longest sample. */
static osh_status sim_find_batches(osh_ctx *cx, osh_sim *s)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = s->p;
    const int64_t *at = p->schedule->batch_at, *offsets = p->in->data.offsets;
    int64_t *lengths = NULL; // own
    OSH_NEW(cx, lengths, p->in->data.n);
    for (int64_t b = 0; b < p->schedule->n_batches; b++) {
        int64_t n = at[b + 1] - at[b], at_once = 0;
        bool by_sample = osh_exec_by_sample(n, s->n_threads);
        osh_exec_batch *most = by_sample ? &s->by_sample : &s->whole;
        max_into(&most->n_tokens, osh_batch_tokens(p->schedule, b));
        if (!by_sample) continue;
        for (int64_t k = 0; k < n; k++) lengths[k] = offsets[at[b] + k + 1] - offsets[at[b] + k];
        qsort(lengths, (size_t)n, sizeof *lengths, compare_lengths);
        for (int k = 0; k < n && k < s->n_threads; k++) at_once += lengths[k];
        max_into(&most->at_once, at_once);
        max_into(&most->longest, lengths[0]);
    }
    s->by_sample.n_threads = s->whole.n_threads = s->n_threads;
    s->whole.past = p->schedule->past;
done:
    osh_free(cx, lengths);
    return rc;
}

/* Allocates the arrays of bools. All arrays get the length of the longest array. */
static osh_status sim_new_flags(osh_ctx *cx, osh_sim *s)
{
    osh_status rc = OSH_OK;
    bool **all[] = {&s->weights.loaded, &s->weights.kept, &s->weights.want, &s->values.stored,
                    &s->values.held, &s->values.lent, &s->looks.of, &s->stats.counts, &s->solved};
    enum { N = sizeof all / sizeof *all };
    int64_t n = osh_max64(s->p->in->graph->n_values, s->p->in->graph->n_weights);
    n = osh_max64(n, s->p->match->n_linears);
    OSH_NEW(cx, s->flags, (N + OSH_N_SUMS) * n);
    for (int k = 0; k < N; k++) *all[k] = s->flags + k * n;
    for (osh_sum k = 0; k < OSH_N_SUMS; k++) s->stats.open[k] = s->flags + (N + k) * n;
done:
    return rc;
}

static int64_t sim_counted_tokens(const osh_budget *p)
{
    const osh_schedule *s = p->schedule;
    int64_t most = 0;
    if (!p->in->data.counted) return s->batch_tokens;
    for (int64_t k = 0; k < s->n_batches; k++)
        max_into(&most, osh_dataset_n_counted(&p->in->data, s->batch_at[k], s->batch_at[k + 1]));
    return most;
}

static osh_status sim_init(osh_ctx *cx, osh_sim *s, const osh_budget *p, bool record)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    *s = (osh_sim){.p = p, .tier = p->memory.tier, .n_threads = osh_threads(cx),
                   .batch_tokens = p->schedule->batch_tokens,
                   .counted_tokens = sim_counted_tokens(p)};
    s->values.n_kept = osh_memory_kept(p, s->tier);
    if (p->in->on_device) OSH_TRY(osh_layout_new(cx, &s->gpu, p, record));
    else OSH_TRY(sim_find_batches(cx, s));
    OSH_TRY(sim_new_flags(cx, s));
    OSH_NEW(cx, s->stats.hook, g->n_values);
    OSH_TRY(osh_exec_marks_init(cx, &s->marks, g));
    OSH_TRY(osh_steps_new(cx, &s->steps, g));
    if (s->gpu) OSH_TRY(osh_steps_new(cx, &s->ahead, g));
    size_t nv = (size_t)g->n_values;
    s->stats.lists =
        (int64_t)(osh_mem_gross(nv * sizeof(bool)) + osh_mem_gross(nv * sizeof(void *)) +
                  8 * osh_mem_gross(256) + osh_batch_lists(g, s->batch_tokens));
    if (osh_plan_by_sample(p->schedule, s->n_threads))
        s->stats.lists += (int64_t)osh_lanes_bytes(g, s->n_threads);
    if (osh_scratch_is_packed(p->in->opt))
        s->frame = osh_acts_frame_bytes(g, &p->in->data);
    // Counts lists that only a run on a GPU has. (Lists for observers of ranges have an entry for
    // each sample.) Then counts the buffer through which a sample is copied between GPU and disk.
    if (s->gpu) {
        s->stats.lists +=
            (int64_t)(nv * osh_mem_gross(sizeof(osh_tensor)) +
                      nv * osh_mem_gross(sizeof(osh_stat)) +
                      2 * osh_mem_gross((size_t)p->in->data.n * 2 * sizeof(float)) +
                      osh_mem_gross((size_t)g->n_nodes * OSH_OP_MAX_OUT * sizeof(int64_t)) +
                      (size_t)p->in->data.n * sizeof(void *) + osh_mem_gross(nv * sizeof(int)));
        s->frame += osh_acts_stage_bytes(g, &p->in->data);
    }
done:
    return rc;
}

static void sim_deinit(osh_ctx *cx, osh_sim *s)
{
    osh_free(cx, s->flags);
    osh_free(cx, s->stats.hook);
    osh_layout_free(cx, s->gpu);
    osh_exec_marks_deinit(cx, &s->marks);
    osh_steps_free(cx, s->steps);
    osh_steps_free(cx, s->ahead);
}

/* Counts the bytes of the sums for the input of Linear l. Also counts the bytes that are needed to
 * add a batch to these sums. */
static osh_status sim_open_sums(osh_ctx *cx, osh_sim *s, const osh_linear *l)
{
    osh_status rc = OSH_OK;
    size_t *hook = osh_sim_hook(s, l->input);
    for (osh_sum k = 0; k < OSH_N_SUMS; k++) {
        const osh_sum_type *t = &osh_sums[k];
        if (!osh_sum_wanted(k, l) || s->stats.open[k][l->input]) continue;
        s->stats.open[k][l->input] = true;
        int64_t part = osh_sim_part_bytes(s, k, l);
        s->stats.bytes += osh_sim_sum_bytes(s, k, l) + part, s->stats.parts += part;
        if (s->gpu && !t->on_gpu) continue;
        size_t accum = osh_sim_accum_scratch(s, t->type->feed, l->I);
        if (t->mixed && l->shift && l->share < 1) accum += (size_t)osh_sim_batch_bytes(s, l->input);
        accum += osh_sim_gathered_bytes(s, l->input);
        if (accum > *hook) *hook = accum;
        OSH_TRY(osh_layout_take(cx, s->gpu, t->layout, l->input));
        if (part) OSH_TRY(osh_layout_take(cx, s->gpu, t->part, l->input));
    }
done:
    return rc;
}

/* Counts the bytes that the observer of the Linear's k-th observed value needs. */
static osh_status sim_open_range(osh_ctx *cx, osh_sim *s, const osh_linear *l, int k)
{
    const osh_matching *m = s->p->match;
    int64_t longest = osh_sim_longest(s), n = s->p->in->data.n;
    bool copied = osh_range_is_copied(m, l, k);
    size_t *hook = osh_sim_hook(s, l->ranged[k]),
           rows = osh_sim_gathered_bytes(s, l->ranged[k]), range;
    if (copied) {
        size_t lists = osh_mem_gross((size_t)s->batch_tokens * sizeof(int32_t)) +
                       osh_mem_gross((size_t)(n + 1) * sizeof(int64_t));
        max_into(&s->stats.copied,
                 (int64_t)(osh_value_gross(s->p->in->graph, l->ranged[k], longest) +
                           osh_ranged_scratch(m, l, k, longest) + (rows ? lists : 0) +
                           osh_sim_narrow_bytes(s, osh_ranged_args(m, l, k), l->ranged[k],
                                                longest)));
        range = rows;
    } else if (osh_sim_is_routed(s, l->ranged[k])) {
        range = osh_minmax_rows_bytes(n) + osh_sim_listed_bytes(s);
    } else {
        range = rows + osh_ranged_scratch(m, l, k, s->batch_tokens) +
                osh_sim_narrow_bytes(s, osh_ranged_args(m, l, k), l->ranged[k], s->batch_tokens);
    }
    if (*hook < range) *hook = range;
    return copied ? OSH_OK : osh_layout_take(cx, s->gpu, OSH_LAYOUT_RANGE, l->ranged[k]);
}

static osh_status sim_open(osh_ctx *cx, osh_sim *s, const osh_range *r, const bool *values)
{
    osh_status rc = OSH_OK;
    s->stats.copied = 0;
    // a simulation of a large model can take seconds, so the user may interrupt it here
    OSH_TRY(osh_check_interrupt(cx));
    osh_layout_enter(s->gpu, s->index, OSH_WAY_FIRST);
    for (int i = r->l0; i < r->l1; i++) {
        const osh_linear *l = &s->p->match->linears[i];
        if (!osh_wants(s->p->schedule, l) || !values[l->input]) continue;
        if (!s->stats.counts[i])
            s->stats.counts[i] = true,
            *osh_sim_histograms(s) += (int64_t)osh_ranged_counts(s->p->match, i);
        for (int k = 0; k < OSH_RANGED; k++)
            if (l->ranged[k] >= 0) OSH_TRY(sim_open_range(cx, s, l, k));
        OSH_TRY(sim_open_sums(cx, s, l));
    }
    s->stats.bytes += osh_sim_measured_bytes(s, r, values);
    osh_looks_of(s->looks.of, NULL, s->p->schedule, r, values);
    s->looks.next = osh_sim_looked_bytes(s);
    osh_sim_note(s, 0, 0);
done:
    return rc;
}

static int64_t sim_weight_bytes(const osh_sim *s, int w)
{
    if (s->gpu) return osh_layout_bytes(s->gpu, OSH_LAYOUT_WEIGHT, w);
    return (int64_t)osh_weight_bytes(s->p->in->graph, s->p->in->ck, w);
}

/* Sets want[w] to true if the step needs weight w and the weight is not in memory. */
static void sim_want_weights(const osh_sim *s, bool *want, const osh_range *r, const osh_step *st)
{
    memset(want + r->w0, 0, (size_t)(r->w1 - r->w0) * sizeof *want);
    osh_step_wants(want, s->p->schedule, r, st);
    for (int w = r->w0; w < r->w1; w++) want[w] &= !s->weights.loaded[w];
}

/* The run loads the first weights of the next visit in advance. Allocates simulated blocks of GPU
 * memory for these weights. */
static osh_status sim_ahead(osh_ctx *cx, osh_sim *s)
{
    osh_status rc = OSH_OK;
    osh_steps *next = s->ahead; // view
    osh_layout_enter(s->gpu, s->index + 1, OSH_WAY_AHEAD);
    OSH_TRY(osh_visit_list(cx, next, s->p->schedule, s->index + 1, NULL));
    const osh_range *r = osh_steps_range(next);
    const osh_step *load = osh_steps_first(next, OSH_STEP_LOAD);
    if (load) sim_want_weights(s, s->weights.want, r, load);
    for (int w = r->w0; load && w < r->w1; w++)
        if (s->weights.want[w]) OSH_TRY(osh_layout_take(cx, s->gpu, OSH_LAYOUT_WEIGHT, w));
    osh_sim_note(s, 0, 0);
done:
    return rc;
}

/* Counts the memory for reading a solved weight back from the output: its packed tensors and its
 * codes. */
static void sim_note_reload(osh_sim *s, const osh_linear *l)
{
    int64_t way = s->gpu ? (int64_t)osh_weight_bytes(s->p->in->graph, s->p->in->ck, l->weight) : 0;
    int64_t codes = (int64_t)osh_mem_gross((size_t)(l->O * l->I));
    osh_sim_note(s, 0, way + osh_memory_pack_bytes(s->p, l) + codes);
}

/* Counts the weights of range r that the step loads, and allocates their simulated GPU memory. */
static osh_status sim_load(osh_ctx *cx, osh_sim *s, const osh_range *r, const osh_step *st)
{
    osh_status rc = OSH_OK;
    osh_layout_enter(s->gpu, s->index, osh_way_of(st));
    sim_want_weights(s, s->weights.want, r, st);
    for (int w = r->w0; w < r->w1; w++) {
        if (!s->weights.want[w]) continue;
        const osh_entry *e = osh_weight_entry(s->p->in->graph, s->p->in->ck, w);
        int64_t bytes = (int64_t)osh_weight_bytes(s->p->in->graph, s->p->in->ck, w);
        s->weights.loaded[w] = true;
        if (s->p->memory.ever) s->p->memory.ever[w] = true;
        s->weights.bytes += sim_weight_bytes(s, w);
        if (!s->weights.began) s->to->first_load += bytes;
        s->to->read_bytes += e->end - e->begin;
        if (!s->gpu) continue;
        s->weights.kept[w] = true, s->weights.copies += bytes;
        OSH_TRY(osh_layout_take(cx, s->gpu, OSH_LAYOUT_WEIGHT, w));
    }
    osh_sim_note(s, s->p->memory.reading, 0);
    for (int i = r->l0; i < r->l1; i++)
        if (s->weights.want[s->p->match->linears[i].weight] &&
            osh_is_done_before(s->p->schedule, &s->p->match->linears[i]))
            sim_note_reload(s, &s->p->match->linears[i]);
    if (s->gpu && !s->weights.began && s->to->how.prefetch_device) OSH_TRY(sim_ahead(cx, s));
    s->weights.began = true;
done:
    return rc;
}

static void sim_reload(osh_sim *s, const osh_step *st)
{
    const osh_phases *how = &s->to->how;
    osh_span own = osh_linears_of_nodes(s->p->match, st->first, st->n);
    /* If several ranks share the job, each of them reads all solved weights from the output. */
    if (!how->segments && !how->round_bytes && !osh_is_divided(s->p->in->opt)) return;
    for (int i = own.first; i < own.end; i++)
        if (osh_wants(s->p->schedule, &s->p->match->linears[i]))
            sim_note_reload(s, &s->p->match->linears[i]);
}

/* Adds the bytes of the statistics from which the factors of the range's folds are computed. If
 * sign is -1, subtracts these bytes. */
static void sim_fold_add(osh_sim *s, const osh_range *r, const osh_groups *groups, int sign)
{
    for (int i = 0; i < s->p->rewrites->n_folds; i++) {
        const osh_fold *f = &s->p->rewrites->folds[i];
        if (!osh_fold_inside(s->p->schedule, r, f)) continue;
        s->stats.bytes += sign * osh_sim_fold_bytes(s, f, groups);
        bool searches = osh_fold_searches(s->p->rewrites, f);
        size_t accum = searches ? osh_sim_accum_scratch(s, osh_stat_hessian.feed, f->n) : 0;
        s->stats.hook[f->value] = sign > 0 ? accum + osh_sim_gathered_bytes(s, f->value) : 0;
    }
}

/* Allocates the simulated blocks of GPU memory for the statistics of a fold. */
static osh_status sim_fold_take(osh_ctx *cx, osh_sim *s, int fold)
{
    osh_status rc = OSH_OK;
    osh_fold_types types = osh_fold_types_of(s->p->rewrites, &s->p->rewrites->folds[fold]);
    const struct { const osh_stat_type *type; osh_layout_kind all, part; } blocks[] = {
        {types.channels, OSH_LAYOUT_FOLD, OSH_LAYOUT_FOLD_PART},
        {types.squares, OSH_LAYOUT_FOLD_HESSIAN, OSH_LAYOUT_FOLD_HESSIAN_PART}};
    for (int k = 0; k < 2 && blocks[k].type; k++) {
        OSH_TRY(osh_layout_take(cx, s->gpu, blocks[k].all, fold));
        if (osh_stat_is_grouped(blocks[k].type, &s->p->in->groups))
            OSH_TRY(osh_layout_take(cx, s->gpu, blocks[k].part, fold));
    }
done:
    return rc;
}

static osh_status sim_fold_open(osh_ctx *cx, osh_sim *s, const osh_range *r)
{
    osh_status rc = OSH_OK;
    osh_layout_enter(s->gpu, s->index, OSH_WAY_FOLD);
    for (int i = 0; i < s->p->rewrites->n_folds; i++)
        if (osh_fold_inside(s->p->schedule, r, &s->p->rewrites->folds[i]))
            OSH_TRY(sim_fold_take(cx, s, i));
    sim_fold_add(s, r, &s->p->in->groups, 1);
    osh_sim_note(s, 0, 0);
done:
    return rc;
}

static osh_status sim_fold(osh_ctx *cx, osh_sim *s, const osh_range *r)
{
    osh_status rc = OSH_OK;
    const osh_groups one = {0};
    int64_t bytes, fetched = 0;
    // before the run computes the factors, it merges the groups of samples
    sim_fold_add(s, r, &s->p->in->groups, -1);
    if (s->gpu) fetched = -s->stats.bytes;
    sim_fold_add(s, r, &one, 1);
    if (s->gpu) fetched += s->stats.bytes; // bytes of the statistics that are copied to the host
    for (int i = 0; i < s->p->rewrites->n_folds; i++) {
        if (!osh_fold_inside(s->p->schedule, r, &s->p->rewrites->folds[i])) continue;
        for (int k = OSH_LAYOUT_FOLD; k <= OSH_LAYOUT_FOLD_HESSIAN_PART; k++)
            osh_layout_give(s->gpu, (osh_layout_kind)k, i);
        OSH_TRY(osh_sim_fold_scratch(cx, &bytes, s, &s->p->rewrites->folds[i]));
        osh_sim_note(s, s->gpu ? 0 : bytes, s->gpu ? fetched + bytes : 0);
    }
    sim_fold_add(s, r, &one, -1);
done:
    return rc;
}

static void sim_release(osh_sim *s, int first, int n)
{
    const osh_graph *g = s->p->in->graph;
    for (int i = first; i < first + n; i++)
        for (int k = 0; k < g->nodes[i].op->n_weights; k++) {
            int w = g->nodes[i].w[k];
            if (w < 0 || !s->weights.loaded[w]) continue;
            s->weights.loaded[w] = false;
            s->weights.bytes -= sim_weight_bytes(s, w);
            osh_sim_drop_copy(s, w);
            osh_layout_give(s->gpu, OSH_LAYOUT_WEIGHT, w);
        }
}

static void sim_forget(osh_sim *s, int v)
{
    if (s->values.stored[v]) s->values.bytes -= osh_sim_value_rest(s, v);
    if (s->values.held[v]) s->values.kept -= osh_sim_value_kept(s, v);
    bool rows = s->values.stored[v] && s->tier == OSH_TIER_DEVICE;
    for (int64_t b = 0; rows && b < s->p->schedule->n_batches; b++)
        osh_layout_give(s->gpu, OSH_LAYOUT_ROWS, v * s->p->schedule->n_batches + b);
    s->values.stored[v] = s->values.held[v] = false;
}

static void sim_drop(osh_sim *s, const bool *keep)
{
    const bool *there[] = {s->values.stored, s->values.held};
    for (int k = 0; k < 2; k++)
        for (int v = osh_next_set(there[k], s->r->v0, s->r->v1); v < s->r->v1;
             v = osh_next_set(there[k], v + 1, s->r->v1))
            if (!keep[v]) sim_forget(s, v);
}

static void sim_drop_dead(osh_sim *s, const osh_range *r)
{
    for (int v = r->v0; v < r->v1; v++)
        if (!osh_visit_has(r->live_out, r->n_live_out, v)) sim_forget(s, v);
}

static osh_status sim_step(osh_ctx *cx, osh_sim *s, const osh_range *r, const osh_step *st)
{
    switch (st->kind) {
    case OSH_STEP_OPEN: return sim_open(cx, s, r, st->values);
    case OSH_STEP_LOAD: return sim_load(cx, s, r, st);
    case OSH_STEP_PASS: return osh_sim_pass(cx, s, st);
    case OSH_STEP_SOLVE: return osh_sim_solve(cx, s, r, st);
    case OSH_STEP_RELOAD: sim_reload(s, st); break;
    case OSH_STEP_RELEASE: sim_release(s, st->first, st->n); break;
    case OSH_STEP_DROP: sim_drop(s, st->values); break;
    case OSH_STEP_FOLD_OPEN: return sim_fold_open(cx, s, r);
    case OSH_STEP_FOLD: return sim_fold(cx, s, r);
    case OSH_N_STEP_KINDS: break;
    }
    return OSH_OK;
}

/* Simulates visit s->index. */
static osh_status sim_visit(osh_ctx *cx, osh_sim *s)
{
    osh_status rc = OSH_OK;
    osh_steps *steps = s->steps; // view
    OSH_TRY(osh_visit_list(cx, steps, s->p->schedule, s->index, NULL));
    // with prefetch, the list of steps of the next visit exists at the same time
    int64_t list = (int64_t)osh_steps_bytes(steps) * (1 + s->p->in->opt->prefetch);
    s->stats.lists += list;
    for (int k = 0; k < osh_steps_n(steps); k++)
        OSH_TRY(sim_step(cx, s, osh_steps_range(steps), osh_steps_at(steps, k)));
    s->stats.lists -= list;
done:
    return rc;
}

osh_status osh_memory_simulate(osh_ctx *cx, osh_budget *p, osh_places **places)
{
    osh_status rc = OSH_OK;
    osh_memory *m = &p->memory;
    osh_sim s; // own
    OSH_TRY(sim_init(cx, &s, p, places != NULL));
    if (s.gpu && !m->peaks) OSH_TRY(osh_device_peaks_new(cx, &m->peaks, p->in->graph));
    if (m->ever) memset(m->ever, 0, (size_t)p->in->graph->n_weights * sizeof *m->ever);
    for (int i = 0; i < p->schedule->n_visits; i++) {
        osh_range r = osh_range_at(p->schedule, i);
        s.to = &p->schedule->visits[i], s.r = &r, s.weights.began = false, s.index = i;
        *s.to = (osh_visit){.how = s.to->how};
        s.peak = &s.to->peak;
        s.stats.ranges = (int64_t)osh_ranged_lists(p->schedule, &r);
        OSH_TRY(sim_visit(cx, &s));
        sim_drop_dead(&s, &r);
        if (s.to->how.apart) peaks_max_into(&s.to->peak, &s.to->apart);
    }
    if (places && s.gpu) OSH_TRY(osh_layout_places(cx, places, s.gpu));
done:
    sim_deinit(cx, &s);
    return rc;
}

osh_status osh_memory_of_passes(osh_ctx *cx, int64_t *host, osh_budget *p)
{
    osh_status rc = osh_memory_simulate(cx, p, NULL);
    *host = 0;
    for (int i = 0; i < p->schedule->n_visits; i++)
        max_into(host, p->schedule->visits[i].peak.host);
    return rc;
}
