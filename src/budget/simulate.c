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
#include "graph/picked.h"
#include "budget/bytes.h"
#include "budget/memory_rest.h"
#include "budget/simulate.h"
#include "budget/sim.h"
#include "budget/trials.h"
#include "match/cache.h"
#include "rewrite/folds.h"
#include "schedule/looks.h"
#include "store/activations.h"
#include "store/loaders.h"

static int compare_lengths(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Sets s->by_sample to the largest sizes of the batches that run sample by sample, and s->whole to
 * the largest sizes of all other batches. The sizes are the number of tokens, the number of tokens
 * that run at the same time, and the length of the longest sample. */
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
done:
    osh_free(cx, lengths);
    return rc;
}

static osh_status sim_init(osh_ctx *cx, osh_sim *s, const osh_budget *p)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    *s = (osh_sim){.p = p, .n_threads = osh_threads(cx), .batch_tokens = p->schedule->batch_tokens};
    if (p->in->on_device) OSH_TRY(osh_layout_new(cx, &s->gpu, p));
    else OSH_TRY(sim_find_batches(cx, s));
    OSH_NEW(cx, s->weights.loaded, g->n_weights);
    OSH_NEW(cx, s->weights.ever, g->n_weights);
    OSH_NEW(cx, s->weights.want, g->n_weights);
    for (osh_sum k = 0; k < OSH_N_SUMS; k++) OSH_NEW(cx, s->stats.open[k], g->n_values);
    OSH_NEW(cx, s->stats.counts, p->match->n_linears);
    OSH_NEW(cx, s->values.stored, g->n_values);
    OSH_NEW(cx, s->values.held, g->n_values);
    OSH_NEW(cx, s->values.lent, g->n_values);
    OSH_NEW(cx, s->stats.hook, g->n_values);
    OSH_NEW(cx, s->looks.of, g->n_values);
    OSH_NEW(cx, s->weights.kept, g->n_weights);
    OSH_NEW(cx, s->solved, p->match->n_linears);
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
    osh_free(cx, s->weights.loaded);
    osh_free(cx, s->weights.ever);
    osh_free(cx, s->weights.want);
    for (osh_sum k = 0; k < OSH_N_SUMS; k++) osh_free(cx, s->stats.open[k]);
    osh_free(cx, s->stats.counts);
    osh_free(cx, s->values.stored);
    osh_free(cx, s->values.held);
    osh_free(cx, s->values.lent);
    osh_free(cx, s->stats.hook);
    osh_free(cx, s->looks.of);
    osh_free(cx, s->weights.kept);
    osh_layout_free(cx, s->gpu);
    osh_exec_marks_deinit(cx, &s->marks);
    osh_steps_free(cx, s->steps);
    osh_steps_free(cx, s->ahead);
    osh_free(cx, s->solved);
}

/* Counts the bytes of the sums for the input of Linear l, and the bytes that updating these sums
 * with a batch needs. */
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

static osh_status sim_open(osh_ctx *cx, osh_sim *s, const osh_range *r, const bool *values)
{
    osh_status rc = OSH_OK;
    // a simulation of a large model can take seconds, so the user may interrupt it here
    OSH_TRY(osh_check_interrupt(cx));
    osh_layout_enter(s->gpu, s->index, OSH_WAY_FIRST);
    for (int i = r->l0; i < r->l1; i++) {
        const osh_linear *l = &s->p->match->linears[i];
        if (!osh_wants(s->p->schedule, l) || !values[l->input]) continue;
        if (!s->stats.counts[i])
            s->stats.counts[i] = true, s->stats.bytes += (int64_t)osh_ranged_counts(s->p->match, i);
        for (int k = 0; k < OSH_RANGED; k++) {
            if (l->ranged[k] < 0) continue;
            size_t *hook = osh_sim_hook(s, l->ranged[k]),
                   range =
                       osh_ranged_scratch(s->p->match, l, k, s->batch_tokens) +
                       osh_sim_narrow_bytes(s, osh_ranged_args(s->p->match, l, k), l->ranged[k]);
            if (*hook < range) *hook = range;
            OSH_TRY(osh_layout_take(cx, s->gpu, OSH_LAYOUT_RANGE, l->ranged[k]));
        }
        OSH_TRY(sim_open_sums(cx, s, l));
    }
    osh_looks_of(s->looks.of, NULL, s->p->schedule, r, values);
    s->looks.next = osh_sim_looked_bytes(s);
    osh_sim_note(s, 0, 0, s->values.bytes);
done:
    return rc;
}

/* Computes how a step changes the activation store. *out: bytes of the outputs that the step adds.
 * *taken: bytes that the step frees. */
static void sim_step_rows(osh_sim *s, const osh_step *st, int64_t *out, int64_t *taken)
{
    *out = *taken = 0;
    int end = s->r->v1, gone = s->tier == OSH_TIER_DISK ? 0 : end;
    for (int v = osh_next_set(st->out, s->r->v0, end); v < end;
         v = osh_next_set(st->out, v + 1, end))
        if (!s->values.stored[v]) *out += osh_sim_value_rest(s, v), s->values.stored[v] = true;
    for (int v = osh_next_set(st->consume, s->r->v0, gone); v < gone;
         v = osh_next_set(st->consume, v + 1, gone))
        if (s->values.stored[v]) *taken += osh_sim_value_rest(s, v), s->values.stored[v] = false;
}

/* Simulates the end of batch b, in the order of the run. First frees those stored rows of the batch
 * that no later step reads. Then allocates the rows of the batch's outputs. left: bytes of GPU
 * memory that the batch still uses. *now: bytes of the values in the activation store; the function
 * updates this number. */
static osh_status sim_end_batch(osh_ctx *cx, osh_sim *s, const osh_step *st, int64_t b, size_t left,
                                int64_t *now)
{
    osh_status rc = OSH_OK;
    int end = s->tier == OSH_TIER_DISK ? 0 : s->r->v1;
    for (int v = osh_next_set(st->consume, s->r->v0, end); v < end;
         v = osh_next_set(st->consume, v + 1, end)) {
        *now -= osh_sim_batch_rest(s, v, b);
        osh_layout_give(s->gpu, OSH_LAYOUT_ROWS, v * s->p->schedule->n_batches + b);
    }
    for (int v = osh_next_set(st->out, s->r->v0, end); v < end;
         v = osh_next_set(st->out, v + 1, end)) {
        if (s->tier == OSH_TIER_DEVICE)
            OSH_TRY(osh_layout_take(cx, s->gpu, OSH_LAYOUT_ROWS,
                                    v * s->p->schedule->n_batches + b));
        *now += osh_sim_batch_rest(s, v, b);
        osh_sim_note(s, (int64_t)left, 0, *now);
    }
done:
    return rc;
}

static size_t sim_way_bytes(const osh_sim *s, const osh_step *st)
{
    size_t n = 0;
    for (int v = s->r->v0; s->to->how.values_ahead && v < s->r->v1; v++)
        if (v != s->p->in->graph->input_ids)
            n += (size_t)(st->in[v] + st->out[v]) *
                 (size_t)osh_acts_way_bytes(s->p->in->graph, v, s->batch_tokens);
    return n;
}

/* Counts the bytes of table rows that the lookup ops of a step read from the source. With a GPU,
 * returns the number of host bytes of the rows for one batch. Otherwise returns 0. */
static int64_t sim_look_up(const osh_sim *s, const osh_step *st)
{
    const osh_graph *g = s->p->in->graph;
    int64_t most = 0;
    for (int i = st->first; i < st->first + st->n; i++) {
        if (!st->run[i - st->first] || !osh_is_picked(g, &g->nodes[i], 0)) continue;
        const osh_weight *w = &g->weights[g->nodes[i].w[0]];
        int64_t each = osh_picked_each(g, &g->nodes[i]);
        s->to->read_bytes += s->p->schedule->looked_up * each * w->shape[1] *
                             (int64_t)osh_dtype_bytes(w->by_rows);
        max_into(&most, (int64_t)osh_picked_bytes(w, s->batch_tokens * each, true));
    }
    return s->gpu ? most : 0;
}

static osh_status sim_pass_on_gpu(osh_ctx *cx, osh_sim *s, const osh_step *st)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = s->p;
    size_t peak = 0, left = 0;
    int64_t out, taken, last = -1, now = s->values.bytes;
    bool collects = st->observe || st->fold;
    osh_exec_span span = {p->in->graph, st->first, st->n, st->run, st->out, {s->r->v0, s->r->v1},
                          collects ? NULL : st->routed};
    osh_exec_brought in = {st->in, NULL, collects ? s->stats.hook : NULL};
    osh_layout_enter(s->gpu, s->index, osh_way_of(st));
    sim_step_rows(s, st, &out, &taken);
    for (int v = osh_next_set(st->out, s->r->v0, s->r->v1); v < s->r->v1;
         v = osh_next_set(st->out, v + 1, s->r->v1))
        now += osh_sim_list_rest(s, v);
    if (s->tier == OSH_TIER_DISK) now += out;
    // bytes of the blocks through which values are copied, at the end of the GPU's memory
    size_t ways = sim_way_bytes(s, st);
    int64_t rows = sim_look_up(s, st);
    OSH_TRY(osh_device_peaks_walk(cx, p->memory.peaks, &span, &in));
    for (int64_t b = 0; b < p->schedule->n_batches; b++) {
        int64_t n = osh_batch_tokens(p->schedule, b);
        if (n != last) OSH_TRY(osh_device_peaks_at(cx, &peak, &left, p->memory.peaks, n));
        last = n;
        osh_sim_note(s, (int64_t)(ways + peak), rows, now);
        OSH_TRY(sim_end_batch(cx, s, st, b, ways + left, &now));
    }
    s->values.bytes += out - taken;
    osh_sim_note(s, 0, 0, s->values.bytes);
done:
    return rc;
}

/* Bytes of a step for one batch. most: its peak. left: bytes of the values that remain after it. */
typedef struct step_bytes { int64_t most, left; } step_bytes;

/* Computes the bytes that a step needs for one batch, including the batch's token ids. */
static osh_status sim_count_step(osh_ctx *cx, step_bytes *n, const osh_sim *s, const osh_step *st,
                             const osh_exec_brought *in)
{
    osh_status rc = OSH_OK;
    const osh_exec_batch *kinds[] = {&s->by_sample, &s->whole};
    *n = (step_bytes){0};
    for (int k = 0; k < 2; k++) {
        osh_exec_batch b = *kinds[k];
        size_t now = 0, stays = 0;
        if (!b.n_tokens) continue;
        b.marks = &s->marks;
        bool collects = st->observe || st->fold;
        if (collects) b.seen = s->p->schedule->seen;
        osh_exec_span span = {s->p->in->graph, st->first, st->n, st->run, st->out,
                              {s->r->v0, s->r->v1}, collects ? NULL : st->routed,
                              !s->p->schedule->apart};
        OSH_TRY(osh_exec_peak(cx, &now, &stays, &span, in, &b));
        if (s->p->schedule->rounds)
            now += osh_tensor_gross((size_t)b.n_tokens * osh_exec_input_bytes(&span));
        max_into(&n->most, (int64_t)(now + osh_mem_gross((size_t)b.n_tokens * sizeof(int32_t))));
        max_into(&n->left, (int64_t)stays);
    }
done:
    return rc;
}

/* Simulates a pass of the batches whose values stay in memory. A batch reads inputs without a copy,
 * frees inputs that no later step reads, and keeps its outputs. The bytes change in proportion to
 * the finished tokens, so the peak is at the beginning or at the end of the pass. grow: bytes of
 * the values that the pass keeps for two-pass observers. */
static osh_status sim_pass_kept(osh_ctx *cx, osh_sim *s, const osh_step *st, const size_t *hook,
                                int64_t grow)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = s->p->in->graph;
    int64_t out = 0, taken = 0, new = 0, old = 0, before = s->values.kept;
    for (int v = s->r->v0; v < s->r->v1; v++) {
        s->values.lent[v] = st->in[v] && !st->consume[v] && v != g->input_ids;
        if (st->out[v] && !s->values.held[v]) {
            out += osh_sim_value_kept(s, v), new += osh_sim_batch_bytes(s, v);
            s->values.held[v] = true;
        }
        if (!st->consume[v] || !s->values.held[v]) continue;
        taken += osh_sim_value_kept(s, v), old += osh_sim_batch_bytes(s, v);
        s->values.held[v] = false;
    }
    step_bytes exec;
    OSH_TRY(sim_count_step(cx, &exec, s, st, &(osh_exec_brought){st->in, s->values.lent, hook}));
    s->values.kept = before - old;
    osh_sim_note(s, exec.most, 0, s->values.bytes);
    s->values.kept = before + out - taken - new, s->looks.now += grow;
    osh_sim_note(s, exec.most, 0, s->values.bytes);
    s->values.kept = before + out - taken;
    osh_sim_note(s, 0, 0, s->values.bytes);
done:
    return rc;
}

static osh_status sim_pass_others(osh_ctx *cx, osh_sim *s, const osh_step *st, const size_t *hook,
                                  int64_t grow)
{
    osh_status rc = OSH_OK;
    int64_t n = s->p->in->data.n - s->p->schedule->batch_at[s->values.n_kept];
    int64_t out, taken, size = s->p->schedule->batch_size;
    step_bytes exec;
    OSH_TRY(sim_count_step(cx, &exec, s, st, &(osh_exec_brought){st->in, NULL, hook}));
    sim_step_rows(s, st, &out, &taken);
    /* At its end, each batch adds its new rows to the store and frees its old rows. So no new rows
     * exist during the first batch, and during the last batch the new rows of all other batches
     * exist. */
    int64_t share = size < n ? size : n, new = (out + n - 1) / n *share,
            old = (taken + n - 1) / n *share;
    int64_t early = s->values.bytes, late = s->values.bytes + out - taken - new + old;
    osh_sim_note(s, exec.most, 0, early);
    osh_sim_note(s, exec.left, 0, early + new);
    s->looks.now += grow;
    osh_sim_note(s, exec.most, 0, late);
    osh_sim_note(s, exec.left, 0, late + new);
    s->values.bytes += out - taken;
    osh_sim_note(s, 0, 0, s->values.bytes);
done:
    return rc;
}

/* Returns the number of host bytes for prefetching the inputs of a step from the disk. */
static int64_t sim_ahead_bytes(const osh_sim *s, const osh_step *st)
{
    const osh_memory *m = &s->p->memory;
    int64_t n = osh_sim_loaders_bytes(s);
    if (s->tier != OSH_TIER_DISK || !m->n_loaders) return 0;
    for (int v = s->r->v0; v < s->r->v1; v++)
        if (st->in[v] && v != s->p->in->graph->input_ids)
            n += osh_loaders_value_bytes(s->p->in->graph, v, m->n_ahead, s->batch_tokens, s->gpu);
    return n;
}

static osh_status sim_pass(osh_ctx *cx, osh_sim *s, const osh_step *st)
{
    osh_status rc = OSH_OK;
    int64_t reads = sim_ahead_bytes(s, st);
    if (s->gpu) max_into(&s->values.ahead, reads);
    else s->values.ahead = reads;
    if (s->gpu) return sim_pass_on_gpu(cx, s, st);
    const size_t *hook = st->observe || st->fold ? s->stats.hook : NULL;
    sim_look_up(s, st);
    int64_t grow = st->observe && !st->first_look ? s->looks.next : 0,
            tokens = s->p->in->data.offsets[s->p->in->data.n];
    // index of the first sample whose values do not stay in memory
    int64_t end = tokens ? s->p->schedule->batch_at[s->values.n_kept] : 0;
    double share = tokens ? (double)s->p->in->data.offsets[end] / (double)tokens : 0;
    int64_t of_kept = (int64_t)((double)grow * share);
    if (s->values.n_kept) OSH_TRY(sim_pass_kept(cx, s, st, hook, of_kept));
    if (s->values.n_kept < s->p->schedule->n_batches)
        OSH_TRY(sim_pass_others(cx, s, st, hook, grow - of_kept));
    s->looks.next -= grow, s->values.ahead = 0;
done:
    return rc;
}

static void sim_reload(osh_sim *s, const osh_range *r, int first, int n)
{
    const osh_visit *v = s->to;
    for (int i = r->l0; i < r->l1; i++) {
        const osh_linear *l = &s->p->match->linears[i];
        if (!osh_wants(s->p->schedule, l) || l->node < first || l->node >= first + n) continue;
        /* If several ranks share the job, each of them reads all solved weights from the output. */
        bool in_memory = !v->how.segments && !v->how.round_bytes && !osh_is_divided(s->p->in->opt);
        if (in_memory) continue;
        osh_sim_note_reload(s, l);
    }
}

/* Adds the bytes of the statistics for the factors of the range's folds. If sign is -1, subtracts
 * them instead. */
static void sim_fold_add(osh_sim *s, const osh_range *r, const osh_groups *groups, int sign)
{
    for (int i = 0; i < s->p->rewrites->n_folds; i++) {
        const osh_fold *f = &s->p->rewrites->folds[i];
        if (!osh_fold_inside(s->p->schedule, r, f)) continue;
        s->stats.bytes += sign * osh_sim_fold_bytes(s, f, groups);
        s->stats.hook[f->value] =
            sign > 0 && osh_fold_searches(s->p->rewrites, f)
                ? osh_sim_accum_scratch(s, osh_stat_hessian.feed, f->n)
                : 0;
    }
}

/* Allocates the simulated blocks of GPU memory for the statistics of a fold. */
static osh_status sim_fold_take(osh_ctx *cx, osh_sim *s, int fold)
{
    osh_status rc = OSH_OK;
    const osh_groups *groups = &s->p->in->groups;
    osh_fold_types types = osh_fold_types_of(s->p->rewrites, &s->p->rewrites->folds[fold]);
    OSH_TRY(osh_layout_take(cx, s->gpu, OSH_LAYOUT_FOLD, fold));
    if (osh_stat_is_grouped(types.channels, groups))
        OSH_TRY(osh_layout_take(cx, s->gpu, OSH_LAYOUT_FOLD_PART, fold));
    if (!types.squares) goto done;
    OSH_TRY(osh_layout_take(cx, s->gpu, OSH_LAYOUT_FOLD_HESSIAN, fold));
    if (osh_stat_is_grouped(types.squares, groups))
        OSH_TRY(osh_layout_take(cx, s->gpu, OSH_LAYOUT_FOLD_HESSIAN_PART, fold));
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
    osh_sim_note(s, 0, 0, s->values.bytes);
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
        osh_sim_note(s, s->gpu ? 0 : bytes, s->gpu ? fetched + bytes : 0, s->values.bytes);
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
            s->weights.bytes -= osh_sim_weight_bytes(s, w);
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
    for (int v = r->v0; v < r->v1; v++) {
        bool after = false;
        for (int i = 0; i < r->n_live_out; i++) after |= r->live_out[i] == v;
        if (!after) sim_forget(s, v);
    }
}

static osh_status sim_step(osh_ctx *cx, osh_sim *s, const osh_range *r, const osh_step *st)
{
    switch (st->kind) {
    case OSH_STEP_OPEN: return sim_open(cx, s, r, st->values);
    case OSH_STEP_LOAD: return osh_sim_load(cx, s, r, st);
    case OSH_STEP_PASS: return sim_pass(cx, s, st);
    case OSH_STEP_SOLVE: return osh_sim_solve(cx, s, r, st);
    case OSH_STEP_RELOAD: sim_reload(s, r, st->first, st->n); break;
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

/* Simulates all visits with the phases in p->schedule->visits and with this tier of values. Sets
 * the peaks of the visits. Sets ever[w] to true if any visit loads weight w, and *places (own) to
 * the addresses of blocks; `ever` and `places` may be NULL. */
static osh_status simulate_visits(osh_ctx *cx, osh_budget *p, osh_tier tier, bool *ever,
                                  osh_places **places)
{
    osh_status rc = OSH_OK;
    osh_memory *m = &p->memory;
    osh_sim s; // own
    OSH_TRY(sim_init(cx, &s, p));
    if (s.gpu && !m->peaks) OSH_TRY(osh_device_peaks_new(cx, &m->peaks, p->in->graph));
    s.tier = tier, s.values.n_kept = osh_memory_kept(p, tier);
    if (places && s.gpu) osh_layout_record(s.gpu, true);
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
    if (ever) memcpy(ever, s.weights.ever, (size_t)p->in->graph->n_weights * sizeof *ever);
    if (places && s.gpu) OSH_TRY(osh_layout_places(cx, places, s.gpu));
done:
    sim_deinit(cx, &s);
    return rc;
}

osh_status osh_memory_simulate(osh_ctx *cx, osh_budget *p, osh_tier tier, bool *ever)
{
    osh_status rc = OSH_OK;
    bool found = false;
    if (!ever) osh_trials_find(&found, p->memory.trials, p, tier);
    if (found) goto done;
    OSH_TRY(simulate_visits(cx, p, tier, ever, NULL));
    OSH_TRY(osh_trials_add(cx, &p->memory.trials, p, tier));
done:
    return rc;
}

osh_status osh_memory_place(osh_ctx *cx, osh_budget *p)
{
    return simulate_visits(cx, p, p->memory.tier, NULL, &p->memory.places);
}

osh_status osh_memory_of_passes(osh_ctx *cx, int64_t *host, osh_budget *p)
{
    osh_status rc = simulate_visits(cx, p, OSH_TIER_DEVICE, NULL, NULL);
    *host = 0;
    for (int i = 0; i < p->schedule->n_visits; i++)
        max_into(host, p->schedule->visits[i].peak.host);
    return rc;
}
