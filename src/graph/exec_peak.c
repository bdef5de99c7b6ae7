/* exec_peak.c - predicts the host bytes of osh_exec_run. Like exec.c, this file walks over the
 * nodes with exec_walk.c, but the callbacks of this file only count bytes. device_peaks.c predicts
 * the bytes on a device. */
#include "graph/exec.h"
#include "graph/exec_walk.h"
#include "graph/picked.h"
#include "graph/routed.h"

#include <string.h>

#include "ops/gated.h"

/* If nodes run sample by sample, a value has one block for each sample. The sum of these blocks is
 * larger than one block for all samples, by at most this number of bytes for each sample. */
enum { PAGE = 4096 };

typedef struct tally {
    const osh_graph *g;
    int64_t n_tokens;
    int n_threads;
    size_t live, peak;
    const osh_exec_brought *in;  // view
    const osh_exec_batch *batch; // view
    bool *here;       // view [values]: true for values that exist at the current node
    /* [values] True for values of one sample that exist at the current node. Between uses, all
     * entries are false. */
    bool *lane;       // view
    int n_here;
    size_t views;     // bytes of the views (tensor structs) that one thread makes
} tally;

static size_t scratch_bytes(const tally *t, const osh_node *n, bool routed)
{
    int64_t in_width[OSH_OP_MAX_IN] = {0}, out_width = t->g->values[n->out[0]].width;
    for (int k = 0; k < n->op->n_in; k++) in_width[k] = t->g->values[n->in[k]].width;
    size_t scratch = 0, rows = 0;
    if (osh_is_picked(t->g, n, 0)) {
        const osh_weight *w = &t->g->weights[n->w[0]];
        rows = osh_picked_bytes(w, t->n_tokens * osh_picked_each(t->g, n), false);
    }
    if (routed) rows += osh_routed_bytes(t->g, (int)(n - t->g->nodes), t->n_tokens);
    int64_t past = t->batch && n->op->next ? t->batch->past : 0;
    if (n->op->scratch)
        scratch = n->op->scratch(n->attr, in_width, out_width, t->n_tokens + past, t->n_threads);
    /* Ops allocate their scratch in at most 2 n_threads + 4 blocks. Each block may take up to a
     * page more than the op asks for. */
    return rows + (scratch ? scratch + (size_t)(2 * t->n_threads + 4) * osh_mem_gross(4096) : 0);
}

static size_t tally_value_bytes(const tally *t, int v)
{
    if (t->in && t->in->lent && t->in->lent[v]) return 0;
    return (size_t)t->n_tokens * osh_value_bytes(t->g, v);
}

/* Raises the peak to the bytes of the existing values plus `more` bytes, if this sum is larger. */
static void tally_touch(tally *t, size_t more)
{
    size_t now = t->live + more;
    if (now > t->peak) t->peak = now;
}

static void tally_appear(tally *t, int v)
{
    t->here[v] = true, t->n_here++;
    t->live += osh_tensor_gross(tally_value_bytes(t, v));
}

static void count_gone(osh_ctx *cx, osh_walk *w, int v)
{
    tally *t = w->user;
    (void)cx;
    if (!t->here[v]) return;
    t->here[v] = false, t->n_here--;
    t->live -= osh_tensor_gross(tally_value_bytes(t, v));
}

static int count_brought(const osh_walk *w, int from)
{
    const tally *t = w->user;
    return osh_next_set(t->here, from, w->s.of.v1);
}

static osh_status count_told(osh_ctx *cx, osh_walk *w, int v)
{
    tally *t = w->user;
    (void)cx;
    tally_touch(t, t->in->hook ? t->in->hook[v] : 0);
    return OSH_OK;
}

static osh_status count_made(osh_ctx *cx, osh_walk *w, int v)
{
    /* If an earlier execution of the nodes has kept the value, that value is removed first. */
    count_gone(cx, w, v);
    tally_appear(w->user, v);
    return OSH_OK;
}

/* counts the scratch of one sample on each thread */
static void count_lane_scratch(tally *t, size_t scratch)
{
    size_t threads = (size_t)t->batch->n_threads;
    tally_touch(t, (size_t)t->n_here * threads * osh_mem_gross(PAGE) + threads * scratch);
}

/* Counts the bytes of a node. If nodes run sample by sample, a value has one block for each sample.
 * It is counted as one block here, and count_lane_scratch adds a page for each sample. */
static osh_status count_node(osh_ctx *cx, osh_walk *w, int node)
{
    tally *t = w->user;
    const osh_node *n = &t->g->nodes[node];
    for (int k = 0; k < n->op->n_out; k++) {
        osh_out at = osh_walk_out(w, node, k);
        if (at == OSH_OUT_OF_BATCH) continue;
        if (at == OSH_OUT_OF_INPUT) count_gone(cx, w, n->in[0]);
        count_made(cx, w, n->out[k]);
    }
    if (!w->lane) {
        tally_touch(t, scratch_bytes(t, n, osh_walk_is_routed(w, node)));
        return OSH_OK;
    }
    tally one = {.g = t->g, .n_tokens = t->batch->longest, .n_threads = 1};
    t->views += (size_t)(n->op->n_in + n->op->n_out) * osh_mem_gross(sizeof(osh_tensor));
    count_lane_scratch(t, scratch_bytes(&one, n, false));
    return OSH_OK;
}

static osh_status count_gated(osh_ctx *cx, osh_walk *w, int first, bool *done)
{
    tally *t = w->user;
    int glu = first + OSH_GATED_GLU;
    const osh_node *n = &t->g->nodes[first];
    int64_t I = t->g->values[n->in[0]].width, F = t->g->values[n[OSH_GATED_GLU].out[0]].width;
    if (osh_walk_out(w, glu, 0) != OSH_OUT_OF_BATCH) count_made(cx, w, n[OSH_GATED_GLU].out[0]);
    *done = true;
    if (!w->lane) {
        tally_touch(t, osh_gated_scratch(I, F, t->n_threads));
        return OSH_OK;
    }
    t->views += 2 * osh_mem_gross(sizeof(osh_tensor));
    count_lane_scratch(t, osh_gated_scratch(I, F, 1));
    return OSH_OK;
}

static osh_status count_lanes(osh_ctx *cx, osh_walk *w, int first, int end)
{
    osh_exec_values of = w->s.of;
    tally *t = w->user;
    tally lanes = {.g = t->g, .n_tokens = t->batch->at_once, .batch = t->batch, .here = t->lane};
    osh_status rc = osh_walk_lane(cx, w, first, end, &lanes);
    tally_touch(t, lanes.peak + (size_t)t->batch->n_threads * lanes.views);
    memset(t->lane + of.v0, 0, (size_t)(of.v1 - of.v0) * sizeof *t->lane);
    return rc;
}

static const osh_walk_acts count_acts = {.brought = count_brought, .told = count_told,
                                         .made = count_made, .node = count_node,
                                         .gated = count_gated, .lanes = count_lanes,
                                         .gone = count_gone};

osh_status osh_exec_marks_init(osh_ctx *cx, osh_exec_marks *m, const osh_graph *g)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, m->here, g->n_values);
    OSH_NEW(cx, m->outer, g->n_values);
    OSH_NEW(cx, m->lane, g->n_values);
done:
    return rc;
}

void osh_exec_marks_deinit(osh_ctx *cx, osh_exec_marks *m)
{
    osh_free(cx, m->here);
    osh_free(cx, m->outer);
    osh_free(cx, m->lane);
}

osh_status osh_exec_peak(osh_ctx *cx, size_t *peak, size_t *left, const osh_exec_span *s,
                         const osh_exec_brought *in, const osh_exec_batch *b)
{
    osh_status rc = OSH_OK;
    osh_exec_marks made = {0}; // own
    tally t = {.g = s->g, .n_tokens = b->n_tokens, .n_threads = b->n_threads, .in = in, .batch = b};
    osh_walk w = {.acts = &count_acts, .user = &t, .s = *s, .by_sample = b->at_once > 0};
    osh_exec_values of = w.s.of = osh_exec_values_of(s);
    if (w.by_sample || s->joins) w.seen = b->seen;
    size_t arrays = osh_mem_gross((size_t)(of.v1 - of.v0) * sizeof(int)) + 4 * osh_mem_gross(0);
    if (!b->marks) OSH_TRY(osh_exec_marks_init(cx, &made, s->g));
    const osh_exec_marks *m = b->marks ? b->marks : &made;
    t.here = m->here, t.lane = m->lane, w.outer = m->outer;
    for (int v = osh_next_set(in->in, of.v0, of.v1); v < of.v1;
         v = osh_next_set(in->in, v + 1, of.v1))
        tally_appear(&t, v);
    OSH_TRY(osh_walk_run(cx, &w));
    *peak = t.peak + arrays;
    if (left) *left = t.live + arrays;
done:
    if (t.here) memset(t.here + of.v0, 0, (size_t)(of.v1 - of.v0) * sizeof *t.here);
    osh_exec_marks_deinit(cx, &made);
    return rc;
}

size_t osh_exec_input_bytes(const osh_exec_span *s)
{
    size_t widest = 0;
    for (int i = 0; i < s->n; i++) {
        const osh_node *n = &s->g->nodes[s->first + i];
        if ((s->run && !s->run[i]) || !n->op->n_weights || n->in[0] < 0) continue;
        if (osh_value_bytes(s->g, n->in[0]) > widest) widest = osh_value_bytes(s->g, n->in[0]);
    }
    return widest;
}
