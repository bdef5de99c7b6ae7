/* simulate_pass.c - counts the bytes of a pass (a step that runs nodes for all batches). */
#include "budget/sim.h"
#include "graph/device_peaks.h"
#include "graph/picked.h"
#include "store/activations.h"
#include "store/loaders.h"

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
 * that no later step reads. Then allocates the rows of the batch's outputs. `left`: bytes of GPU
 * memory that the batch still uses. */
static osh_status sim_end_batch(osh_ctx *cx, osh_sim *s, const osh_step *st, int64_t b, size_t left)
{
    osh_status rc = OSH_OK;
    int end = s->tier == OSH_TIER_DISK ? 0 : s->r->v1;
    for (int v = osh_next_set(st->consume, s->r->v0, end); v < end;
         v = osh_next_set(st->consume, v + 1, end)) {
        s->values.bytes -= osh_sim_batch_rest(s, v, b);
        osh_layout_give(s->gpu, OSH_LAYOUT_ROWS, v * s->p->schedule->n_batches + b);
    }
    for (int v = osh_next_set(st->out, s->r->v0, end); v < end;
         v = osh_next_set(st->out, v + 1, end)) {
        if (s->tier == OSH_TIER_DEVICE)
            OSH_TRY(osh_layout_take(cx, s->gpu, OSH_LAYOUT_ROWS,
                                    v * s->p->schedule->n_batches + b));
        s->values.bytes += osh_sim_batch_rest(s, v, b);
        osh_sim_note(s, (int64_t)left, 0);
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
    int64_t out, taken, last = -1, after = s->values.bytes;
    bool collects = st->observe || st->fold;
    osh_exec_span span = {p->in->graph, st->first, st->n, st->run, st->out, {s->r->v0, s->r->v1},
                          collects ? NULL : st->routed};
    osh_exec_brought in = {st->in, NULL, collects ? s->stats.hook : NULL};
    osh_layout_enter(s->gpu, s->index, osh_way_of(st));
    sim_step_rows(s, st, &out, &taken);
    after += out - taken;
    for (int v = osh_next_set(st->out, s->r->v0, s->r->v1); v < s->r->v1;
         v = osh_next_set(st->out, v + 1, s->r->v1))
        s->values.bytes += osh_sim_list_rest(s, v);
    if (s->tier == OSH_TIER_DISK) s->values.bytes += out;
    // bytes of the blocks at the end of the GPU's memory, through which values are copied
    size_t ways = sim_way_bytes(s, st);
    int64_t rows = sim_look_up(s, st);
    if (collects) rows += s->stats.copied;
    if (st->observe && !st->first_look) s->looks.now += s->looks.next, s->looks.next = 0;
    OSH_TRY(osh_device_peaks_walk(cx, p->memory.peaks, &span, &in));
    for (int64_t b = 0; b < p->schedule->n_batches; b++) {
        int64_t n = osh_batch_tokens(p->schedule, b);
        if (n != last) OSH_TRY(osh_device_peaks_at(cx, &peak, &left, p->memory.peaks, n));
        last = n;
        osh_sim_note(s, (int64_t)(ways + peak), rows);
        OSH_TRY(sim_end_batch(cx, s, st, b, ways + left));
    }
    s->values.bytes = after;
    osh_sim_note(s, 0, 0);
done:
    return rc;
}

/* Bytes of a step for one batch. `most`: peak during the step. `left`: bytes of the values that
 * remain after the step. */
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
    osh_sim_note(s, exec.most, 0);
    s->values.kept = before + out - taken - new, s->looks.now += grow;
    osh_sim_note(s, exec.most, 0);
    s->values.kept = before + out - taken;
    osh_sim_note(s, 0, 0);
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
    int64_t after = s->values.bytes + out - taken;
    osh_sim_note(s, exec.most, 0);
    s->values.bytes += new;
    osh_sim_note(s, exec.left, 0);
    s->values.bytes = after - new + old, s->looks.now += grow;
    osh_sim_note(s, exec.most, 0);
    s->values.bytes = after + old;
    osh_sim_note(s, exec.left, 0);
    s->values.bytes = after;
    osh_sim_note(s, 0, 0);
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

osh_status osh_sim_pass(osh_ctx *cx, osh_sim *s, const osh_step *st)
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
