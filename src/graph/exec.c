/* exec.c - runs a range of nodes on one ragged batch; a value is freed behind the last node of the
 * run that reads it. */
#include "graph/exec.h"
#include "graph/picked.h"
#include "graph/routed.h"

#include <string.h>

#include "ops/cuda/cuda.h"

osh_status osh_batch_new(osh_ctx *cx, osh_batch **out, const osh_graph *g, const int32_t *ids,
                         const int64_t *offsets, int64_t n_samples)
{
    return osh_batch_new_on(cx, out, NULL, g, ids, offsets, n_samples);
}

osh_status osh_batch_new_on(osh_ctx *cx, osh_batch **out, osh_device *d, const osh_graph *g, const int32_t *ids,
                            const int64_t *offsets, int64_t n_samples)
{
    osh_status rc = OSH_OK;
    osh_batch *b = NULL; // own
    int64_t n_tokens = offsets[n_samples] - offsets[0];
    OSH_NEW(cx, b, 1);
    OSH_NEW(cx, b->values, g->n_values);
    OSH_NEW(cx, b->offsets, n_samples + 1);
    b->n_values = g->n_values;
    b->n_tokens = n_tokens;
    for (int64_t i = 0; i <= n_samples; i++) b->offsets[i] = offsets[i] - offsets[0];
    b->seqs = (osh_seqs){n_samples, b->offsets};
    b->device = d;
    b->ids = ids + offsets[0];
    OSH_TRY(osh_tensor_new_on(cx, &b->values[g->input_ids], d, OSH_LIFE_SHORT, OSH_I32, 1, &n_tokens));
    OSH_TRY(osh_tensor_put(cx, b->values[g->input_ids], 0, ids + offsets[0], (size_t)n_tokens * sizeof *ids));
    *out = b, b = NULL; // give
done:
    osh_batch_free(cx, b);
    return rc;
}

void osh_batch_free(osh_ctx *cx, osh_batch *b)
{
    if (!b) return;
    for (int i = 0; i < b->n_values; i++) osh_tensor_free(cx, b->values[i]);
    osh_free(cx, b->values);
    osh_free(cx, b->offsets);
    osh_free(cx, b);
}

/* ---- one run ---- */

typedef struct job {
    const osh_graph *g;
    const osh_weights *w;
    osh_batch *b;
    const bool *keep;
    const osh_exec_hooks *hooks;
    bool check;
    int *last; // own: [n_values] the last node of this run that reads it; -1: none
    int first, n;      // its nodes
    osh_expert_rows routed; // own: rows of the expert at work
    osh_tensor *found; // own: on a device, I64 [n, OSH_OP_MAX_OUT] the first non-finite element of each output
} job;

enum { NOTHING_FOUND = 0x7f }; // in each byte of an entry: behind every index

static void drop(osh_ctx *cx, job *j, int v, int done_node)
{
    if (v < 0 || j->last[v] > done_node || (j->keep ? j->keep[v] : true)) return;
    osh_tensor_free(cx, j->b->values[v]);
    j->b->values[v] = NULL;
}

/* Rows of the value may be passed over by all that read it: what they use of it shows in what they make. */
static bool is_masked(const osh_graph *g, int v)
{
    bool any = false;
    for (int i = g->values[v].first_use; i >= 0 && i <= g->values[v].last_use; i++)
        for (int k = 0; k < g->nodes[i].op->n_in; k++) {
            if (g->nodes[i].in[k] != v) continue;
            if (!(g->nodes[i].op->masked >> k & 1)) return false;
            any = true;
        }
    return any;
}

/* at: the first non-finite element of an output of the node. */
static osh_status not_finite(osh_ctx *cx, const job *j, int node, int k, int64_t at)
{
    const osh_node *n = &j->g->nodes[node];
    int64_t width = j->g->values[n->out[k]].width, token = at / width, s = 0;
    while (s + 1 < j->b->seqs.n && j->b->offsets[s + 1] <= token) s++;
    return osh_fail(cx, OSH_E_NUMERIC,
                    "%s (%s): the output is not finite in sample %lld, token %lld, channel %lld",
                    j->g->modules[n->module].name, n->op->name, (long long)(j->b->first_sample + s),
                    (long long)(token - j->b->offsets[s]), (long long)(at % width));
}

static bool is_routed(const job *j, int node)
{
    return j->hooks && j->hooks->routed && !j->b->device && node >= j->first && node < j->first + j->n &&
           j->hooks->routed[node - j->first];
}

/* On a device the finding is only noted: asking for it would wait. */
static osh_status check_finite(osh_ctx *cx, const job *j, int node, int k, const osh_tensor *x)
{
    int64_t at = -1;
    if (j->found) {
        int64_t *here = (int64_t *)j->found->data + (node - j->first) * OSH_OP_MAX_OUT + k;
        return osh_cuda_finite(cx, here, x, 0);
    }
    osh_status rc = osh_first_nonfinite(cx, &at, x);
    if (rc || at < 0) return rc;
    int64_t width = x->shape[1];
    if (is_routed(j, node)) at = j->routed.rows[at / width] * width + at % width;
    return not_finite(cx, j, node, k, at);
}

static osh_status begin_findings(osh_ctx *cx, job *j)
{
    osh_status rc = OSH_OK;
    osh_device *d = j->b->device;
    if (!d || !j->check || !j->n) goto done;
    OSH_TRY(osh_tensor_new_on(cx, &j->found, d, OSH_LIFE_SHORT, OSH_I64, 2, (int64_t[]){j->n, OSH_OP_MAX_OUT}));
    OSH_TRY(d->type->fill(cx, d, j->found->data, NOTHING_FOUND, osh_tensor_bytes(j->found)));
done:
    return rc;
}

static osh_status read_findings(osh_ctx *cx, const job *j)
{
    osh_status rc = OSH_OK;
    int64_t *at = NULL, nothing; // own: as found
    if (!j->found) goto done;
    memset(&nothing, NOTHING_FOUND, sizeof nothing);
    OSH_NEW(cx, at, j->n * OSH_OP_MAX_OUT);
    OSH_TRY(osh_tensor_get(cx, at, j->found, 0, osh_tensor_bytes(j->found)));
    for (int i = 0; i < j->n * OSH_OP_MAX_OUT; i++)
        if (at[i] != nothing)
            OSH_TRY(not_finite(cx, j, j->first + i / OSH_OP_MAX_OUT, i % OSH_OP_MAX_OUT, at[i]));
done:
    osh_free(cx, at);
    return rc;
}

/* The rows of the node's expert, and of what it reads. */
static osh_status route(osh_ctx *cx, job *j, int node, osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_node *n = &j->g->nodes[node];
    int combine = osh_routed_to(j->g, node), value = j->g->nodes[combine].in[2];
    const osh_tensor *weights = j->b->values[value];
    if (!weights) OSH_FAIL(cx, OSH_E_INTERNAL, "value %s is not live", j->g->values[value].name);
    if (j->routed.combine != combine || !j->routed.rows)
        OSH_TRY(osh_routed_begin(cx, &j->routed, j->g, combine, weights, &j->b->seqs));
    for (int k = 0; k < n->op->n_in; k++) {
        if (is_routed(j, j->g->values[n->in[k]].producer)) continue; // has no other rows
        OSH_TRY(osh_routed_gather(cx, &j->routed, k, n->in[k], a->in[k]));
        a->in[k] = j->routed.x[k];
    }
    a->seqs = &j->routed.seqs;
done:
    return rc;
}

/* What a routed node made goes to its rows where others read it, or it stays. */
static osh_status spread(osh_ctx *cx, job *j, int v)
{
    osh_status rc = OSH_OK;
    osh_tensor *whole = NULL; // own
    int64_t shape[2] = {j->b->n_tokens, j->g->values[v].width};
    if (is_routed(j, j->g->values[v].first_use) && !(j->keep && j->keep[v])) goto done;
    OSH_TRY(osh_tensor_new(cx, &whole, j->g->dtype, 2, shape));
    if (!is_masked(j->g, v)) OSH_TRY(osh_tensor_zero(cx, whole)); // else nobody looks at them
    osh_routed_scatter(&j->routed, whole, j->b->values[v]);
    osh_tensor_free(cx, j->b->values[v]);
    j->b->values[v] = whole, whole = NULL; // give
done:
    osh_tensor_free(cx, whole);
    return rc;
}

/* rows: of a lookup, for deinit. */
static osh_status gather(osh_ctx *cx, const job *j, int node, osh_op_args *a, osh_picked *rows)
{
    const osh_node *n = &j->g->nodes[node];
    for (int k = 0; k < n->op->n_in; k++) {
        a->in[k] = j->b->values[n->in[k]];
        if (!a->in[k])
            return osh_fail(cx, OSH_E_INTERNAL, "%s (%s): value %s is not live",
                            j->g->modules[n->module].name, n->op->name,
                            j->g->values[n->in[k]].name);
    }
    for (int k = 0; k < n->op->n_weights; k++) {
        if (n->w[k] < 0) continue;
        if (!j->w->w[n->w[k]] && j->w->rows && osh_is_picked(j->g, n, k)) {
            osh_status rc = osh_picked_read(cx, rows, &j->g->weights[n->w[k]], j->w->rows, j->b->ids, j->b->n_tokens,
                                          j->b->device);
            a->in[0] = rows->ids, a->in[1] = rows->w;
            return rc;
        }
        a->in[n->op->n_in + k] = j->w->w[n->w[k]];
        if (!a->in[n->op->n_in + k])
            return osh_fail(cx, OSH_E_INTERNAL, "%s: weight %s is not loaded",
                            j->g->modules[n->module].name, j->g->weights[n->w[k]].name);
    }
    return OSH_OK;
}

/* Input [0] may become output [0]: this run made it, nothing else reads it from here on. What the caller brought may be
 * lent, and others read it later. */
static bool is_last(const job *j, int node, int v)
{
    if (j->g->values[v].producer < j->first) return false;
    return j->g->nodes[node].op->in_place && !j->b->device && j->last[v] == node && !(j->keep ? j->keep[v] : true);
}

static osh_status run_node(osh_ctx *cx, job *j, int node)
{
    osh_status rc = OSH_OK;
    const osh_node *n = &j->g->nodes[node];
    const osh_exec_hooks *h = j->hooks;
    osh_op_args a = {.attr = n->attr, .seqs = &j->b->seqs};
    osh_picked rows = {0}; // own

    OSH_TRY(osh_check_interrupt(cx));
    OSH_TRY(gather(cx, j, node, &a, &rows));
    bool routed = is_routed(j, node);
    if (routed) OSH_TRY(route(cx, j, node, &a));
    if (h && h->linear_input && strcmp(n->op->name, "linear") == 0)
        OSH_TRY(h->linear_input(cx, h->user, node, &a.in[0], j->b));
    for (int k = 0; k < n->op->n_out; k++) {
        int v = n->out[k];
        int64_t shape[2] = {routed ? j->routed.n : j->b->n_tokens, j->g->values[v].width};
        osh_tensor_free(cx, j->b->values[v]); // of an earlier run that kept it
        j->b->values[v] = NULL;
        if (k == 0 && is_last(j, node, n->in[0])) { // what goes becomes what comes
            j->b->values[v] = j->b->values[n->in[0]], j->b->values[n->in[0]] = NULL;
            a.out[k] = j->b->values[v];
            continue;
        }
        OSH_TRY(osh_tensor_new_on(cx, &j->b->values[v], j->b->device, OSH_LIFE_SHORT, j->g->dtype, 2, shape));
        a.out[k] = j->b->values[v];
    }
    if (!routed || j->routed.n) OSH_TRY(osh_op_run(cx, n->op, &a));
    osh_picked_deinit(cx, &rows);
    for (int k = 0; k < n->op->n_out && j->check; k++)
        if (!is_masked(j->g, n->out[k])) OSH_TRY(check_finite(cx, j, node, k, a.out[k]));
    for (int k = 0; routed && k < n->op->n_out; k++) OSH_TRY(spread(cx, j, n->out[k]));
    for (int k = 0; k < n->op->n_in; k++) drop(cx, j, n->in[k], node);
    for (int k = 0; k < n->op->n_out; k++) {
        if (h && h->value && !routed) OSH_TRY(h->value(cx, h->user, n->out[k], a.out[k], j->b));
        drop(cx, j, n->out[k], node);
        drop(cx, j, j->g->values[n->out[k]].original, node);
    }
done:
    osh_picked_deinit(cx, &rows);
    if (rc && rc != OSH_E_INTERRUPTED && rc != OSH_E_NUMERIC)
        osh_note(cx, "running %s", j->g->modules[n->module].name);
    return rc;
}

osh_status osh_exec_run(osh_ctx *cx, const osh_graph *g, int first, int n, const bool *run,
                        const osh_weights *w, osh_batch *b, const bool *keep,
                        const osh_exec_hooks *hooks, bool check)
{
    osh_status rc = OSH_OK;
    job j = {g, w, b, keep, hooks, check, .first = first, .n = n};
    OSH_NEW(cx, j.last, g->n_values);
    memset(j.last, 0xff, (size_t)g->n_values * sizeof *j.last); // -1
    for (int i = first; i < first + n; i++)
        for (int k = 0; k < g->nodes[i].op->n_in; k++)
            if (!run || run[i - first]) j.last[g->nodes[i].in[k]] = i;
    for (int i = first; i < first + n; i++) // an original is there when the hook sees what it is beside
        for (int k = 0; k < g->nodes[i].op->n_out; k++) {
            int v = g->values[g->nodes[i].out[k]].original;
            if (v >= 0 && (!run || run[i - first]) && i > j.last[v]) j.last[v] = i;
        }
    for (int i = first; i < first + n; i++) { // and what tells an expert's rows
        int route = is_routed(&j, i) ? g->nodes[osh_routed_to(g, i)].in[2] : -1;
        if (route >= 0 && i > j.last[route]) j.last[route] = i;
    }
    OSH_TRY(begin_findings(cx, &j));

    for (int v = 0; v < g->n_values; v++) { // what the caller brought
        if (!b->values[v]) continue;
        if (hooks && hooks->value) OSH_TRY(hooks->value(cx, hooks->user, v, b->values[v], b));
        drop(cx, &j, v, first - 1);
    }
    for (int i = first; i < first + n; i++)
        if (!run || run[i - first]) OSH_TRY(run_node(cx, &j, i));
    OSH_TRY(read_findings(cx, &j));
done:
    osh_routed_deinit(cx, &j.routed);
    osh_tensor_free(cx, j.found);
    osh_free(cx, j.last);
    return rc;
}

/* ---- what a run needs ---- */

void osh_exec_needed(bool *run, const osh_graph *g, int first, int n, const bool *want)
{
    for (int i = n - 1; i >= 0; i--) {
        const osh_node *node = &g->nodes[first + i];
        run[i] = false;
        for (int k = 0; k < node->op->n_out; k++) {
            int v = node->out[k];
            run[i] |= want[v];
            /* or read by a later node that runs */
            for (int c = i + 1; c < n && !run[i] && first + c <= g->values[v].last_use; c++)
                for (int m = 0; m < g->nodes[first + c].op->n_in && run[c]; m++)
                    run[i] |= g->nodes[first + c].in[m] == v;
        }
    }
}

typedef struct tally {
    const osh_graph *g;
    int64_t n_tokens;
    int n_threads;
    size_t live, peak;
    const bool *lent; // [values] or NULL
    osh_arena *arena; // own: on a device, where the blocks are placed as they will be
    size_t *at;       // own: [values] there
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

int osh_next_set(const bool *set, int from, int n)
{
    const bool *at = from < n ? memchr(set + from, true, (size_t)(n - from)) : NULL;
    return at ? (int)(at - set) : n;
}

/* Values that were brought, in the order of osh_exec_run; those that no node of the run reads go at once. */
static void count_brought(tally *t, int first, int n, const bool *run, const bool *in, const bool *keep,
                          const size_t *hook)
{
    const osh_graph *g = t->g;
    for (int v = osh_next_set(in, 0, g->n_values); v < g->n_values; v = osh_next_set(in, v + 1, g->n_values)) {
        bool read = keep[v];
        touch(t, hook ? hook[v] : 0);
        for (int i = first; i < first + n && !read; i++)
            for (int k = 0; k < g->nodes[i].op->n_in; k++) read |= run[i - first] && g->nodes[i].in[k] == v;
        if (!read) disappear(t, v);
    }
}

static bool is_read(const tally *t, int v, int from, int end, const bool *run, int first)
{
    for (int c = from; c < end && c <= t->g->values[v].last_use; c++)
        for (int m = 0; run[c - first] && m < t->g->nodes[c].op->n_in; m++)
            if (t->g->nodes[c].in[m] == v) return true;
    return false;
}

/* An original waits for the node that makes what it is beside. */
static bool waits(const tally *t, int v, int node, int end, const bool *run, int first)
{
    int beside = t->g->values[v].quantized, i = beside < 0 ? -1 : t->g->values[beside].producer;
    return i > node && i < end && run[i - first];
}

/* Originals that waited for this node. */
static void count_waited(tally *t, const osh_node *node, int i, int first, int end, const bool *run, const bool *keep)
{
    for (int k = 0; k < node->op->n_out; k++) {
        int v = t->g->values[node->out[k]].original, producer = v < 0 ? -1 : t->g->values[v].producer;
        bool made = producer >= first && run[producer - first];
        if (made && !keep[v] && !is_read(t, v, i + 1, end, run, first)) disappear(t, v);
    }
}

static void count_nodes(tally *t, int first, int n, const bool *run, const bool *keep, const size_t *hook)
{
    const osh_graph *g = t->g;
    for (int i = first; i < first + n; i++) {
        const osh_node *node = &g->nodes[i];
        if (!run[i - first]) continue;
        for (int k = 0; k < node->op->n_out; k++) appear(t, node->out[k]);
        touch(t, scratch_bytes(t, node));
        for (int side = 0; side < 2; side++) // what is read here for the last time, and what nobody reads
            for (int k = 0; k < (side ? node->op->n_out : node->op->n_in); k++) {
                int v = side ? node->out[k] : node->in[k];
                bool stays = keep[v];
                if (side) touch(t, hook ? hook[v] : 0);
                for (int m = 0; m < k; m++) stays |= (side ? node->out[m] : node->in[m]) == v; // gone already
                stays = stays || is_read(t, v, i + 1, first + n, run, first) || waits(t, v, i, first + n, run, first);
                if (!stays) disappear(t, v);
            }
        count_waited(t, node, i, first, first + n, run, keep);
    }
}

size_t osh_exec_peak(const osh_graph *g, int first, int n, const bool *run, const bool *in, const bool *lent,
                     const bool *keep, const size_t *hook, int64_t n_tokens, int n_threads, size_t *left)
{
    tally t = {.g = g, .n_tokens = n_tokens, .n_threads = n_threads, .lent = lent};
    size_t arrays = osh_mem_gross((size_t)g->n_values * sizeof(void *)) +
                    osh_mem_gross((size_t)g->n_values * sizeof(int)) + 4 * osh_mem_gross(0) +
                    osh_mem_gross((size_t)n_tokens * sizeof(int64_t)); // offsets: no more samples than tokens
    for (int v = osh_next_set(in, 0, g->n_values); v < g->n_values; v = osh_next_set(in, v + 1, g->n_values))
        appear(&t, v);
    count_brought(&t, first, n, run, in, keep, hook);
    count_nodes(&t, first, n, run, keep, hook);
    if (left) *left = t.live + arrays;
    return t.peak + arrays;
}

enum { WITHOUT_END = 62 }; // bits of an arena's size

osh_status osh_exec_peak_on_device(osh_ctx *cx, size_t *peak, size_t *left, const osh_graph *g, int first, int n,
                                   const bool *run, const bool *in, const bool *keep, const size_t *hook,
                                   int64_t n_tokens)
{
    osh_status rc = OSH_OK;
    tally t = {.g = g, .n_tokens = n_tokens};
    bool *brought = NULL; // own: [values]
    size_t found = 0;
    OSH_NEW(cx, t.at, g->n_values);
    OSH_NEW(cx, brought, g->n_values);
    OSH_TRY(osh_arena_new(cx, &t.arena, (size_t)1 << WITHOUT_END));
    for (int v = 0; v < g->n_values; v++) brought[v] = in[v] || v == g->input_ids;
    appear(&t, g->input_ids); // of a new batch
    for (int v = 0; v < g->n_values; v++)
        if (in[v] && v != g->input_ids) appear(&t, v);
    if (n) osh_arena_take(t.arena, &found, (size_t)n * OSH_OP_MAX_OUT * sizeof(int64_t), OSH_LIFE_SHORT);
    count_brought(&t, first, n, run, brought, keep, hook);
    count_nodes(&t, first, n, run, keep, hook);
    if (n) osh_arena_give(t.arena, found);
    *peak = t.peak, *left = osh_arena_extent(t.arena);
done:
    osh_arena_free(cx, t.arena);
    osh_free(cx, t.at);
    osh_free(cx, brought);
    return rc;
}
