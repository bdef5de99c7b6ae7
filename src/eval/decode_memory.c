/* decode_memory.c - predicts the host memory of a generation.
 *
 *   host = base + states of ops + weights that stay in memory
 *          + max over subgraphs and head (values and scratch + weights that do not stay)
 *
 * Subgraphs are tried in order: the weights of a subgraph stay in memory if the peak still fits.
 * All other weights are read each time their subgraph runs, and are freed before the next
 * subgraph. */
#include "eval/decode_memory.h"

#include "base/available.h"
#include "budget/budget.h"
#include "math/isa.h"

enum { SMALL_BYTES = 2 << 20 }; // bytes for small lists, which are not counted one by one

typedef struct need { // bytes that a subgraph, or the head, needs
    int64_t weights, work; // weights: bytes of weights; work: bytes of values and scratch
} need;

typedef struct sums {
    const osh_decode_sizes *s;
    const osh_decode_want *want;
    /* Bytes that each subgraph needs; the last element is for the head. */
    need *of;     // own [subgraphs + 1]
    int64_t base; // bytes that do not belong to a subgraph or to the head
} sums;

/* Counts the bytes that each subgraph needs for n tokens after `past` earlier tokens. */
static osh_status piece_count(osh_ctx *cx, sums *t, int64_t n, int64_t past)
{
    osh_status rc = OSH_OK;
    const osh_forward *f = t->s->f;
    const osh_visit *visits = f->plain->schedule.visits;
    OSH_TRY(osh_forward_count_piece(cx, f, n, past));
    for (int i = 0; i < f->parts->n; i++) {
        t->of[i].weights = visits[i].weight_bytes;
        max_into(&t->of[i].work, visits[i].peak.host - visits[i].weight_bytes);
    }
done:
    return rc;
}

static void head_count(need *to, const sums *t, int n_threads)
{
    const osh_graph *g = t->s->f->graph;
    const osh_node *n = &g->nodes[g->head];
    int64_t V = g->weights[n->w[0]].shape[0], in_width = g->values[g->hidden].width;
    size_t scratch =
        n->op->scratch ? n->op->scratch(n->attr, &in_width, V, 1, n_threads) : 0;
    to->weights = osh_forward_head_bytes(t->s->f);
    to->work = (int64_t)osh_value_gross(g, g->hidden, t->s->n_first) +
               (int64_t)osh_source_scratch(t->s->f->source) +
               2 * (int64_t)osh_mem_gross(scratch) +
               (int64_t)osh_tensor_gross((size_t)V * sizeof(float)) +
               (int64_t)osh_tensor_gross((size_t)in_width * sizeof(float));
}

/* Returns the peak of the whole generation. stays[i] is true if the weights of subgraph i stay in
 * memory. */
static int64_t sums_peak(const sums *t, const bool *stays)
{
    int64_t kept = 0, most = 0;
    for (int i = 0; i <= t->s->f->parts->n; i++) {
        int64_t here = t->of[i].work + (stays[i] ? 0 : t->of[i].weights);
        if (stays[i]) kept += t->of[i].weights;
        if (here > most) most = here;
    }
    int64_t peak = t->base + kept + most;
    return peak > t->want->load ? peak : t->want->load;
}

static osh_status sums_fill(osh_ctx *cx, sums *t, int64_t uncounted)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = t->s->f->graph;
    int n = t->s->f->parts->n;
    OSH_NEW(cx, t->of, n + 1);
    t->base = uncounted + (int64_t)osh_mem_used(cx, OSH_MEM_HOST) + SMALL_BYTES + t->s->states;
    t->base += 2 * (int64_t)osh_weights_lists(g);
    OSH_TRY(piece_count(cx, t, t->s->n_first, 0));
    if (t->s->pieces) OSH_TRY(piece_count(cx, t, 1, t->want->room - 1));
    head_count(&t->of[n], t, osh_threads(cx));
done:
    return rc;
}

osh_status osh_decode_fit(osh_ctx *cx, bool *stays, const osh_decode_sizes *s,
                          const osh_decode_want *want)
{
    osh_status rc = OSH_OK;
    sums t = {.s = s, .want = want}; // own: the lists to which `t` points
    int64_t uncounted = osh_isa_uncounted(cx), limit = want->host_memory,
            left = osh_mem_available();
    OSH_TRY(sums_fill(cx, &t, uncounted));
    int64_t least = sums_peak(&t, stays);
    if (want->least) {
        *want->least = least + OSH_ISA_NOISE_BYTES;
        goto done;
    }
    if (limit > 0 && least > limit)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--host-memory %.0fMiB is too small: want at least --host-memory %.0fMiB; fewer "
                 "new tokens need less",
                 (double)(limit >> 20), mib_for(least + OSH_ISA_NOISE_BYTES));
    /* Without a budget, uses seven eighths of the available memory. */
    int64_t most = limit > 0 ? limit : left < 0 ? INT64_MAX : left / 8 * 7 + uncounted;
    for (int i = 0; i <= s->f->parts->n; i++) {
        stays[i] = true;
        if (sums_peak(&t, stays) > most) stays[i] = false;
    }
    if (limit > 0) osh_mem_limit(cx, OSH_MEM_HOST, (size_t)(limit - uncounted));
done:
    osh_free(cx, t.of);
    return rc;
}
