/* exec_peak.c - what a run of nodes takes: the walk of exec.c with nothing done. */
#include "graph/exec.h"
#include "graph/picked.h"
#include "graph/routed.h"

#include <string.h>

enum { PAGE = 4096 }; // by which the blocks of samples may be larger than one of all

typedef struct tally {
    const osh_graph *g;
    int64_t n_tokens;
    int n_threads;
    size_t live, peak;
    const bool *lent; // [values] or NULL
    const osh_exec_batch *batch; // view; NULL: on a device
    osh_arena *arena; // own: on a device, where the blocks are placed as they will be
    size_t *at;       // own: [values] there
    int n_values;     // in count_in_lanes: that are live
} tally;

static size_t scratch_bytes(const tally *t, const osh_node *n)
{
    int64_t in_width[OSH_OP_MAX_IN] = {0}, out_width = t->g->values[n->out[0]].width;
    for (int k = 0; k < n->op->n_in; k++) in_width[k] = t->g->values[n->in[k]].width;
    size_t scratch = 0, rows = 0;
    if (osh_is_picked(t->g, n, 0)) {
        const osh_weight *w = &t->g->weights[n->w[0]];
        rows = t->arena ? osh_picked_arena_bytes(w, t->n_tokens) : osh_picked_bytes(w, t->n_tokens);
    }
    if (t->arena) {
        if (n->op->scratch_cuda)
            scratch = n->op->scratch_cuda(n->attr, in_width, out_width, t->n_tokens, t->g->dtype);
        return rows + scratch;
    }
    rows += osh_routed_bytes(t->g, (int)(n - t->g->nodes), t->n_tokens);
    if (n->op->scratch) scratch = n->op->scratch(n->attr, in_width, out_width, t->n_tokens, t->n_threads);
    return rows + (scratch ? scratch + (size_t)(2 * t->n_threads + 4) * osh_mem_gross(4096) : 0); // in so many blocks
}

static size_t value_bytes(const tally *t, int v)
{
    const osh_value *x = &t->g->values[v];
    return (size_t)t->n_tokens * (size_t)x->width * (x->is_ids ? sizeof(int32_t) : osh_dtype_bytes(t->g->dtype));
}

/* more bytes for a moment. */
static void touch(tally *t, size_t more)
{
    size_t at, now = t->live + more;
    if (t->arena) {
        bool taken = more && osh_arena_take(t->arena, &at, more, OSH_LIFE_SHORT);
        now = osh_arena_extent(t->arena);
        if (taken) osh_arena_give(t->arena, at);
    }
    if (now > t->peak) t->peak = now;
}

static bool is_lent(const tally *t, int v) { return t->lent && t->lent[v]; }

static void appear(tally *t, int v)
{
    size_t n = is_lent(t, v) ? 0 : value_bytes(t, v);
    if (t->arena) osh_arena_take(t->arena, &t->at[v], n, OSH_LIFE_SHORT);
    else t->live += osh_mem_gross(n) + osh_mem_gross(sizeof(osh_tensor));
}

static void disappear(tally *t, int v)
{
    if (t->arena) osh_arena_give(t->arena, t->at[v]);
    else t->live -= osh_mem_gross(is_lent(t, v) ? 0 : value_bytes(t, v)) + osh_mem_gross(sizeof(osh_tensor));
}

typedef struct range { // of nodes, as osh_exec_run has them
    osh_exec_span s; // its values are named
    int end;
    const size_t *hook;
    int lane_first, lane_last, lane_end; // nodes that run by sample, the last of them, and their end; none: all 0
} range;

/* An original waits for the node that makes what it is beside. */
static bool waits(const range *r, int v, int node)
{
    int beside = r->s.g->values[v].quantized, i = beside < 0 ? -1 : r->s.g->values[beside].producer;
    return i > node && i < r->end && r->s.run[i - r->s.first];
}

/* Values that were brought, in the order of osh_exec_run; those that no node of the run reads go at once. */
static void count_brought(tally *t, const range *r, const bool *in)
{
    for (int v = osh_next_set(in, r->s.of.v0, r->s.of.v1); v < r->s.of.v1; v = osh_next_set(in, v + 1, r->s.of.v1)) {
        touch(t, r->hook ? r->hook[v] : 0);
        if (!r->s.keep[v] && !osh_exec_reads(&r->s, v, r->s.first, r->end)) disappear(t, v);
    }
}

/* Originals that waited for this node. */
static void count_waited(tally *t, const range *r, int i)
{
    const osh_node *node = &t->g->nodes[i];
    for (int k = 0; k < node->op->n_out; k++) {
        int v = t->g->values[node->out[k]].original, producer = v < 0 ? -1 : t->g->values[v].producer;
        bool made = producer >= r->s.first && r->s.run[producer - r->s.first];
        if (made && !r->s.keep[v] && !osh_exec_reads(&r->s, v, i + 1, r->end)) disappear(t, v);
    }
}

/* Of a sample alone: made by nodes that run by sample, for each other. */
static bool is_inner(const range *r, int v)
{
    int i = r->s.g->values[v].producer;
    return i >= r->lane_first && i < r->lane_last && r->s.run[i - r->s.first] &&
           !osh_exec_is_outer(&r->s, v, r->lane_end);
}

/* Side 0: what the node reads, side 1: what it makes. */
static int n_values(const osh_node *n, int side) { return side ? n->op->n_out : n->op->n_in; }
static int value_of(const osh_node *n, int side, int k) { return side ? n->out[k] : n->in[k]; }

/* It stands before k on its side, too. */
static bool is_again(const osh_node *n, int side, int k)
{
    bool again = false;
    for (int m = 0; m < k; m++) again |= value_of(n, side, m) == value_of(n, side, k);
    return again;
}

/* Behind the node: what is read here for the last time, and what nobody reads. */
static void count_over(tally *t, const range *r, int i)
{
    const osh_node *node = &t->g->nodes[i];
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < n_values(node, side); k++) {
            int v = value_of(node, side, k);
            bool stays = r->s.keep[v] || is_inner(r, v) || is_again(node, side, k); // gone already
            if (side) touch(t, r->hook ? r->hook[v] : 0);
            stays = stays || osh_exec_reads(&r->s, v, i + 1, r->end) || waits(r, v, i);
            if (!stays) disappear(t, v);
        }
    count_waited(t, r, i);
}

static void count_node(tally *t, const range *r, int i)
{
    const osh_node *node = &t->g->nodes[i];
    for (int k = 0; k < node->op->n_out; k++) appear(t, node->out[k]);
    touch(t, scratch_bytes(t, node));
    count_over(t, r, i);
}

/* What the samples at work have of a node's values: those that it makes come, then go those that it reads last. */
static size_t count_in_lanes(tally *lanes, const range *r, int i)
{
    const osh_node *node = &lanes->g->nodes[i];
    for (int k = 0; k < node->op->n_out; k++)
        if (is_inner(r, node->out[k])) appear(lanes, node->out[k]), lanes->n_values++;
    size_t now = lanes->live + (size_t)lanes->n_values * (size_t)lanes->batch->n_threads * osh_mem_gross(PAGE);
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < n_values(node, side); k++) {
            int v = value_of(node, side, k);
            if (!is_inner(r, v) || is_again(node, side, k)) continue;
            if (osh_exec_reads(&r->s, v, i + 1, r->lane_end)) continue;
            disappear(lanes, v), lanes->n_values--;
        }
    return now;
}

/* Outputs for others come first, then what the samples at work have. */
static void count_lanes(tally *t, const range *r)
{
    const osh_graph *g = t->g;
    const osh_exec_batch *b = t->batch;
    tally one = {.g = g, .n_tokens = b->longest, .n_threads = 1}, lanes = {.g = g, .n_tokens = b->at_once, .batch = b};
    size_t views = 0, most = 0;
    for (int i = r->lane_first; i < r->lane_end; i++)
        for (int k = 0; r->s.run[i - r->s.first] && k < g->nodes[i].op->n_out; k++) {
            views += osh_mem_gross(sizeof(osh_tensor));
            if (!is_inner(r, g->nodes[i].out[k])) appear(t, g->nodes[i].out[k]);
        }
    for (int i = r->lane_first; i < r->lane_end; i++) {
        if (!r->s.run[i - r->s.first]) continue;
        views += (size_t)g->nodes[i].op->n_in * osh_mem_gross(sizeof(osh_tensor));
        size_t now = count_in_lanes(&lanes, r, i) + (size_t)b->n_threads * scratch_bytes(&one, &g->nodes[i]);
        if (now > most) most = now;
    }
    touch(t, most + (size_t)b->n_threads * views);
    for (int i = r->lane_first; i < r->lane_end; i++)
        if (r->s.run[i - r->s.first]) count_over(t, r, i);
}

static void count_nodes(tally *t, range r)
{
    osh_exec_cut cut = {t->g, r.s.first, r.end, r.s.run, NULL, NULL};
    bool by_sample = t->batch && t->batch->at_once;
    if (by_sample) cut.seen = t->batch->seen, cut.routed = t->batch->routed;
    for (int i = r.s.first, end; i < r.end; i = end) {
        int n = 0, last = i;
        end = by_sample ? osh_exec_together(&cut, i) : i + 1;
        for (int k = i; k < end; k++)
            if (r.s.run[k - r.s.first]) n++, last = k;
        r.lane_first = n > 1 ? i : 0, r.lane_last = n > 1 ? last : 0, r.lane_end = n > 1 ? end : 0;
        if (n > 1) count_lanes(t, &r);
        else if (n) count_node(t, &r, last);
    }
}

static range range_of(const osh_exec_span *s, const osh_exec_brought *in)
{
    range r = {.s = *s, .end = s->first + s->n, .hook = in->hook};
    r.s.of = osh_exec_values_of(s);
    return r;
}

size_t osh_exec_peak(const osh_exec_span *s, const osh_exec_brought *in, const osh_exec_batch *b, size_t *left)
{
    tally t = {.g = s->g, .n_tokens = b->n_tokens, .n_threads = b->n_threads, .lent = in->lent, .batch = b};
    range r = range_of(s, in);
    size_t arrays = osh_mem_gross((size_t)s->g->n_values * sizeof(void *)) +
                    osh_mem_gross((size_t)(r.s.of.v1 - r.s.of.v0) * sizeof(int)) + 4 * osh_mem_gross(0) +
                    osh_mem_gross((size_t)b->n_tokens * sizeof(int64_t)); // offsets: no more samples than tokens
    for (int v = osh_next_set(in->in, r.s.of.v0, r.s.of.v1); v < r.s.of.v1; v = osh_next_set(in->in, v + 1, r.s.of.v1))
        appear(&t, v);
    count_brought(&t, &r, in->in);
    count_nodes(&t, r);
    if (left) *left = t.live + arrays;
    return t.peak + arrays;
}

enum { WITHOUT_END = 62 }; // bits of an arena's size

osh_status osh_exec_peak_on_device(osh_ctx *cx, size_t *peak, size_t *left, const osh_exec_span *s,
                                   const osh_exec_brought *in, int64_t n_tokens)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = s->g;
    tally t = {.g = g, .n_tokens = n_tokens};
    bool *brought = NULL; // own: [values]
    range r = range_of(s, in);
    size_t found = 0;
    r.s.of = (osh_exec_values){0, g->n_values}; // the ids are one
    OSH_NEW(cx, t.at, g->n_values);
    OSH_NEW(cx, brought, g->n_values);
    OSH_TRY(osh_arena_new(cx, &t.arena, (size_t)1 << WITHOUT_END));
    for (int v = 0; v < g->n_values; v++) brought[v] = in->in[v] || v == g->input_ids;
    appear(&t, g->input_ids); // of a new batch
    for (int v = 0; v < g->n_values; v++)
        if (in->in[v] && v != g->input_ids) appear(&t, v);
    if (s->n) osh_arena_take(t.arena, &found, (size_t)s->n * OSH_OP_MAX_OUT * sizeof(int64_t), OSH_LIFE_SHORT);
    count_brought(&t, &r, brought);
    count_nodes(&t, r);
    if (s->n) osh_arena_give(t.arena, found);
    *peak = t.peak, *left = osh_arena_extent(t.arena);
done:
    osh_arena_free(cx, t.arena);
    osh_free(cx, t.at);
    osh_free(cx, brought);
    return rc;
}
