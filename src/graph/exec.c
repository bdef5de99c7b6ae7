/* exec.c - runs a range of nodes on one ragged batch. exec_walk.c defines the order of the
 * nodes. */
#include "graph/exec_job.h"
#include "graph/batch.h"
#include "graph/picked.h"
#include "graph/routed.h"

#include <string.h>

#include "ops/device_ops.h"
#include "ops/gated.h"
#include "ops/kernel.h"

/* All bytes of job.found have this value before the nodes run. An I64 of these bytes is larger than
 * any index, and means that the output has no non-finite element. */
enum { NOTHING_FOUND = 0x7f };

/* True if the value is masked: each node that reads the value may skip rows of it. A non-finite
 * element in a skipped row does no harm. In any other row, it makes the output of the reader
 * non-finite, so the check of this output finds it. */
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

/* Fails with a message that names the sample, the token and the channel of a non-finite element.
 * `at`: index of the element in output k of the node. */
static osh_status not_finite(osh_ctx *cx, const osh_exec_job *j, int node, int k, int64_t at)
{
    const osh_node *n = &j->g->nodes[node];
    int64_t width = j->g->values[n->out[k]].width, token = at / width, s = 0;
    while (s + 1 < j->b->seqs.n && j->b->offsets[s + 1] <= token) s++;
    return osh_fail(cx, OSH_E_NUMERIC,
                    "%s (%s): the output is not finite in sample %lld, token %lld, channel %lld",
                    j->g->modules[n->module].name, n->op->name, (long long)(j->b->first_sample + s),
                    (long long)(token - j->b->offsets[s]), (long long)(at % width));
}

/* True if the value v need not be checked, because a non-finite element of v is found later. This
 * needs a node that reads v, runs, and makes a non-finite output from a non-finite v. The output of
 * this node is either checked, or found later in the same way. */
static bool shows_later(const osh_walk *w, int v)
{
    const osh_graph *g = w->s.g;
    int end = w->s.first + w->s.n;
    for (int i = g->values[v].first_use; i >= w->s.first && i < end && i <= g->values[v].last_use;
         i++) {
        const osh_node *n = &g->nodes[i];
        /* a node of an expert may skip the row with the non-finite element */
        if (!osh_walk_runs(w, i) || osh_walk_is_routed(w, i)) continue;
        for (int k = 0; k < n->op->n_in; k++)
            if (n->in[k] == v && osh_op_spreads(n->op, n->attr, k) && !is_masked(g, n->out[0]))
                return true;
    }
    return false;
}

int64_t *osh_exec_finding(const osh_exec_job *j, int node, int k)
{
    return j->found ? (int64_t *)j->found->data + (node - j->first) * OSH_OP_MAX_OUT + k : NULL;
}

osh_status osh_exec_check_finite(osh_ctx *cx, const osh_walk *walk, int node, int k,
                                 const osh_op_args *a)
{
    const osh_exec_job *j = walk->user;
    const osh_tensor *x = a->out[k];
    int64_t at = -1, *here = osh_exec_finding(j, node, k);
    // true if a hook may replace inputs of Linears: the new input can hide a non-finite element
    bool changed = j->hooks && j->hooks->linear_input;
    if (here && !j->again && !changed && shows_later(walk, j->g->nodes[node].out[k])) return OSH_OK;
    if (here)
        return a->rows ? osh_device_ops_of(x->device)->finite_rows(cx, here, x, a->rows)
                       : osh_device_ops_of(x->device)->finite(cx, here, x, 0);
    osh_status rc = osh_first_nonfinite(cx, &at, x);
    if (rc || at < 0) return rc;
    int64_t width = x->shape[1];
    if (osh_walk_is_routed(walk, node)) at = j->routed.rows[at / width] * width + at % width;
    return not_finite(cx, j, node, k, at);
}

static osh_status begin_findings(osh_ctx *cx, osh_exec_job *j)
{
    osh_status rc = OSH_OK;
    osh_device *d = j->b->device;
    if (!d || !j->check || !j->n) goto done;
    if (!j->found)
        OSH_TRY(osh_tensor_new_on(cx, &j->found, (osh_where){d, OSH_LIFE_SHORT}, OSH_I64, 2,
                                  (int64_t[]){j->n, OSH_OP_MAX_OUT}));
    OSH_TRY(d->type->fill(cx, d, j->found->data, NOTHING_FOUND, osh_tensor_bytes(j->found)));
done:
    return rc;
}

static osh_status read_findings(osh_ctx *cx, const osh_exec_job *j)
{
    osh_status rc = OSH_OK;
    int64_t *at = NULL, nothing; // at: own, copy of j->found on the host
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

/* Lists the rows that are routed to the node's expert. Gathers these rows of the node's inputs.
 * Sets a->in and a->seqs to the gathered rows. */
static osh_status route(osh_ctx *cx, const osh_walk *walk, int node, osh_op_args *a)
{
    osh_status rc = OSH_OK;
    osh_exec_job *j = walk->user;
    const osh_node *n = &j->g->nodes[node];
    int combine = osh_routed_to(j->g, node), value = j->g->nodes[combine].in[2];
    const osh_tensor *weights = j->b->values[value];
    if (!weights) OSH_FAIL(cx, OSH_E_INTERNAL, "value %s is not live", j->g->values[value].name);
    if (j->routed.combine != combine || !j->routed.rows)
        OSH_TRY(osh_routed_begin(cx, &j->routed, j->g, combine, weights, &j->b->seqs));
    for (int k = 0; k < n->op->n_in; k++) {
        /* the output of a routed node already has only the rows of the expert */
        if (osh_walk_is_routed(walk, j->g->values[n->in[k]].producer)) continue;
        OSH_TRY(osh_routed_gather(cx, &j->routed, k, n->in[k], a->in[k]));
        a->in[k] = j->routed.x[k];
    }
    a->seqs = &j->routed.seqs;
done:
    return rc;
}

osh_status osh_exec_make_value(osh_ctx *cx, const osh_exec_job *j, int v, int64_t rows)
{
    osh_tensor **x = &j->b->values[v];
    osh_tensor_free(cx, *x), *x = NULL;
    return osh_tensor_new_on(cx, x, (osh_where){j->b->device, OSH_LIFE_SHORT},
                             j->g->values[v].dtype, 2, (int64_t[]){rows, j->g->values[v].width});
}

osh_status osh_exec_tell_rows(osh_ctx *cx, const osh_exec_job *j, int v, const osh_tensor *x,
                              const osh_op_rows *rows, const int32_t *tokens)
{
    const osh_exec_hooks *h = j->hooks;
    if (!h || !h->value || j->again) return OSH_OK;
    j->b->rows = rows, j->b->tokens = tokens;
    osh_status rc = h->value(cx, h->user, v, x, j->b);
    j->b->rows = NULL, j->b->tokens = NULL;
    return rc;
}

/* Replaces the output v of a routed node by a tensor with the rows of the whole batch. The old
 * tensor has only the rows of the node's expert. The new tensor has these rows at their positions
 * in the batch. Does nothing if only routed nodes read v and v is not kept. */
static osh_status routed_spread(osh_ctx *cx, const osh_walk *walk, int v)
{
    osh_status rc = OSH_OK;
    osh_exec_job *j = walk->user;
    osh_tensor *whole = NULL; // own
    int64_t shape[2] = {j->b->n_tokens, j->g->values[v].width};
    if (osh_walk_is_routed(walk, j->g->values[v].first_use) && !(walk->s.keep && walk->s.keep[v]))
        goto done;
    OSH_TRY(osh_tensor_new(cx, &whole, j->g->values[v].dtype, 2, shape));
    /* All readers of a masked value skip the rows that are not routed to the expert. So these rows
     * need no zeros if v is masked. */
    if (!is_masked(j->g, v)) OSH_TRY(osh_tensor_zero(cx, whole));
    osh_routed_scatter(&j->routed, whole, j->b->values[v]);
    osh_tensor_free(cx, j->b->values[v]);
    j->b->values[v] = whole, whole = NULL; // give
done:
    osh_tensor_free(cx, whole);
    return rc;
}

/* The first weight of the node is a table. Reads the rows of this table that the node needs for
 * the tokens of the batch. Sets *a to these rows and their ids. */
static osh_status node_pick(osh_ctx *cx, const osh_exec_job *j, const osh_node *n, osh_op_args *a,
                            osh_picked *rows)
{
    osh_status rc = OSH_OK;
    const osh_weight *w = &j->g->weights[n->w[0]];
    osh_picked_ids ids = {j->b->ids, j->b->n_tokens, j->b->device};
    int32_t *own = NULL; // own: row ids, if the op computes them from the token ids
    if (n->op->row_ids) {
        osh_tensor table = osh_tensor_view(w->by_rows, 2, w->shape, NULL);
        ids.n *= osh_picked_each(j->g, n);
        OSH_NEW(cx, own, ids.n);
        a->in[1] = &table;
        OSH_TRY(n->op->row_ids(cx, a, own));
        ids.ids = own;
        for (int k = 1; k < n->op->n_weights; k++) a->in[n->op->n_in + k] = NULL;
    }
    OSH_TRY(osh_picked_read(cx, rows, w, j->w->rows, &ids));
    a->in[0] = rows->ids, a->in[1] = rows->w;
done:
    osh_free(cx, own);
    return rc;
}

/* Sets the inputs and the weights of the node in *a. For a lookup op (embedding), also reads the
 * table rows that the batch needs into *rows, which the caller must free. */
static osh_status node_gather(osh_ctx *cx, const osh_exec_job *j, int node, osh_op_args *a,
                              osh_picked *rows)
{
    const osh_node *n = &j->g->nodes[node];
    bool picks = false;
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
            picks = true;
            continue;
        }
        a->in[n->op->n_in + k] = j->w->w[n->w[k]];
        if (!a->in[n->op->n_in + k])
            return osh_fail(cx, OSH_E_INTERNAL, "%s: weight %s is not loaded",
                            j->g->modules[n->module].name, j->g->weights[n->w[k]].name);
    }
    return picks ? node_pick(cx, j, n, a, rows) : OSH_OK;
}

static osh_status run_node(osh_ctx *cx, osh_walk *walk, int node)
{
    osh_status rc = OSH_OK;
    osh_exec_job *j = walk->user;
    const osh_node *n = &j->g->nodes[node];
    const osh_exec_hooks *h = j->hooks;
    bool finite = false; // true if the kernel itself has checked that out[0] is finite
    osh_op_args a = {.attr = n->attr, .seqs = &j->b->seqs, .finite = &finite};
    if (j->b->pasts) a.past = &j->b->pasts[node];
    osh_picked rows = {0}; // own

    OSH_TRY(osh_check_interrupt(cx));
    OSH_TRY(node_gather(cx, j, node, &a, &rows));
    bool routed = osh_walk_is_routed(walk, node) && !j->b->device;
    int expert = osh_walk_rows_of(walk, node);
    osh_op_rows wanted = expert >= 0 ? osh_exec_expert_rows(j, expert) : (osh_op_rows){0};
    if (expert >= 0) a.rows = &wanted;
    if (routed) OSH_TRY(route(cx, walk, node, &a));
    if (h && h->linear_input && osh_node_is(n, OSH_OP_LINEAR))
        OSH_TRY(h->linear_input(cx, h->user, node, &a.in[0], j->b));
    for (int k = 0; k < n->op->n_out; k++) {
        int v = n->out[k];
        osh_out at = osh_walk_out(walk, node, k);
        osh_tensor **from = at == OSH_OUT_OF_BATCH ? &j->b->into[v] : &j->b->values[n->in[0]];
        /* The output is stored in a new tensor, or in the tensor *from. */
        if (at == OSH_OUT_NEW)
            OSH_TRY(osh_exec_make_value(cx, j, v, routed ? j->routed.n : j->b->n_tokens));
        else osh_tensor_free(cx, j->b->values[v]), j->b->values[v] = *from, *from = NULL;
        a.out[k] = j->b->values[v];
    }
    /* The kernel writes only the rows of the expert. If the output is kept, it may be copied as a
     * whole. So its other rows are set to zero, as in the output of a routed_rows node. */
    if (expert >= 0 && !osh_walk_is_routed(walk, node) && osh_walk_keeps(walk, n->out[0]))
        OSH_TRY(osh_tensor_zero(cx, a.out[0]));
    if (!routed || j->routed.n) OSH_TRY(osh_op_run(cx, n->op, &a));
    osh_picked_deinit(cx, &rows);
    for (int k = 0; k < n->op->n_out && j->check; k++)
        if (!(finite && !k) && !is_masked(j->g, n->out[k]))
            OSH_TRY(osh_exec_check_finite(cx, walk, node, k, &a));
    for (int k = 0; routed && k < n->op->n_out; k++) OSH_TRY(routed_spread(cx, walk, n->out[k]));
done:
    osh_picked_deinit(cx, &rows);
    if (rc && rc != OSH_E_INTERRUPTED && rc != OSH_E_NUMERIC)
        osh_note(cx, "running %s", j->g->modules[n->module].name);
    return rc;
}

/* Sets *q to the tensors for the kernel that computes gate, up and glu together. first: index of
 * the first of these nodes. Returns false if a tensor is missing or is not BF16. */
static bool gather_gated(osh_gated *q, const osh_exec_job *j, int first)
{
    const osh_node *n = &j->g->nodes[first], *glu = &n[OSH_GATED_GLU];
    *q = (osh_gated){.x = j->b->values[n->in[0]], .glu = glu->attr};
    bool takes = q->x != NULL;
    for (int k = 0; k < 2; k++) {
        const osh_node *of = glu->in[k] == n->out[0] ? n : &n[1];
        q->w[k] = j->w->w[of->w[0]];
        q->bias[k] = of->w[1] >= 0 ? j->w->w[of->w[1]] : NULL;
        takes &= q->w[k] && q->w[k]->dtype == OSH_BF16 && (of->w[1] < 0 || q->bias[k]);
    }
    return takes;
}

/* Runs gate, up and glu as one kernel. Sets *done to false if the kernel cannot run, or if its
 * output is not finite. The caller must then run the nodes one by one, so that an error names its
 * node. */
static osh_status run_gated(osh_ctx *cx, osh_walk *walk, int first, bool *done)
{
    osh_status rc = OSH_OK;
    osh_exec_job *j = walk->user;
    int glu = first + OSH_GATED_GLU, v = j->g->nodes[glu].out[0];
    bool of_batch = osh_walk_out(walk, glu, 0) == OSH_OUT_OF_BATCH;
    osh_gated q;

    OSH_TRY(osh_check_interrupt(cx));
    *done = false;
    if (!gather_gated(&q, j, first)) goto done;
    if (!of_batch) OSH_TRY(osh_exec_make_value(cx, j, v, j->b->n_tokens));
    q.out = of_batch ? j->b->into[v] : j->b->values[v];
    OSH_TRY(osh_gated_run(cx, done, &q));
    if (*done && of_batch)
        osh_tensor_free(cx, j->b->values[v]), j->b->values[v] = q.out, j->b->into[v] = NULL;
done:
    if (rc && rc != OSH_E_INTERRUPTED)
        osh_note(cx, "running %s", j->g->modules[j->g->nodes[first].module].name);
    return rc;
}

/* ---- nodes that run sample by sample ---- */

typedef struct lanes { // state of a batch whose nodes run sample by sample
    const osh_walk *walk;
    const osh_exec_job *j;
    int first, end;   // nodes [first, end)
} lanes;

/* Sets *out to a view of the rows of one sample in x. x: a value of the batch b. */
static osh_status view_rows(osh_ctx *cx, osh_tensor **out, const osh_tensor *x, const osh_batch *b,
                            int64_t sample)
{
    osh_status rc = OSH_OK;
    int64_t row = b->offsets[sample], n = b->offsets[sample + 1] - row;
    size_t each = osh_tensor_bytes(x) / (size_t)(b->n_tokens ? b->n_tokens : 1);
    osh_tensor_free(cx, *out), *out = NULL;
    OSH_NEW(cx, *out, 1);
    **out = *x;
    (*out)->own = false, (*out)->shape[0] = n, (*out)->data = (char *)x->data + (size_t)row * each;
done:
    return rc;
}

/* Prepares the batch `lane` for one sample of the whole batch. The inputs of the nodes, and the
 * outputs that later nodes read, become views of the sample's rows. */
static osh_status lane_begin(osh_ctx *cx, const lanes *l, osh_batch *lane, int64_t sample)
{
    osh_status rc = OSH_OK;
    osh_batch *b = l->j->b;
    for (int i = l->first; i < l->end; i++) {
        const osh_node *n = &l->j->g->nodes[i];
        if (!osh_walk_runs(l->walk, i)) continue;
        for (int k = 0; k < n->op->n_in; k++) {
            int v = n->in[k];
            if (!l->walk->outer[v] && b->values[v])
                OSH_TRY(view_rows(cx, &lane->values[v], b->values[v], b, sample));
        }
        for (int k = 0; k < n->op->n_out; k++)
            if (l->walk->outer[n->out[k]])
                OSH_TRY(view_rows(cx, &lane->into[n->out[k]], b->values[n->out[k]], b, sample));
    }
    lane->offsets[1] = lane->n_tokens = b->offsets[sample + 1] - b->offsets[sample];
    lane->seqs = (osh_seqs){1, lane->offsets};
    lane->first_sample = b->first_sample + sample;
done:
    return rc;
}

static void lane_end(osh_ctx *cx, const lanes *l, osh_batch *lane)
{
    for (int i = l->first; i < l->end; i++) {
        const osh_node *n = &l->j->g->nodes[i];
        for (int side = 0; side < 2; side++)
            for (int k = 0; k < (side ? n->op->n_out : n->op->n_in); k++) {
                int v = side ? n->out[k] : n->in[k];
                osh_tensor_free(cx, lane->values[v]), lane->values[v] = NULL;
                osh_tensor_free(cx, lane->into[v]), lane->into[v] = NULL;
            }
    }
}

static osh_status lane_chunk(osh_ctx *cx, void *user, int64_t sample, int worker)
{
    osh_status rc = OSH_OK;
    const lanes *l = user;
    osh_batch *lane = &l->j->lanes->batch[worker];
    osh_exec_job j = {.g = l->j->g, .w = l->j->w, .b = lane, .check = l->j->check,
                      .first = l->first, .n = l->end - l->first};
    bool was = osh_ctx_inline(cx, true);
    OSH_TRY(lane_begin(cx, l, lane, sample));
    OSH_TRY(osh_walk_lane(cx, l->walk, l->first, l->end, &j));
done:
    lane_end(cx, l, lane);
    osh_ctx_inline(cx, was);
    return rc;
}

/* ---- callbacks of the walk ---- */

static int run_brought(const osh_walk *w, int from)
{
    const osh_exec_job *j = w->user;
    while (from < w->s.of.v1 && !j->b->values[from]) from++;
    return from;
}

static osh_status run_told(osh_ctx *cx, osh_walk *w, int v)
{
    const osh_exec_job *j = w->user;
    int from = w->on_device ? osh_routed_from(j->g, v) : -1;
    osh_op_rows rows = from >= 0 ? osh_exec_expert_rows(j, from) : (osh_op_rows){0};
    return osh_exec_tell_rows(cx, j, v, j->b->values[v], from >= 0 ? &rows : NULL, rows.at);
}

static osh_status run_made(osh_ctx *cx, osh_walk *w, int v)
{
    const osh_exec_job *j = w->user;
    return osh_exec_make_value(cx, j, v, j->b->n_tokens);
}

static osh_status run_lanes(osh_ctx *cx, osh_walk *w, int first, int end)
{
    const osh_exec_job *j = w->user;
    lanes l = {w, j, first, end};
    return osh_parallel_for(cx, j->b->seqs.n, lane_chunk, &l);
}

static void run_gone(osh_ctx *cx, osh_walk *w, int v)
{
    const osh_exec_job *j = w->user;
    osh_tensor_free(cx, j->b->values[v]);
    j->b->values[v] = NULL;
}

/* Handles non-finite values after the last node. On a device, the first execution checks only some
 * values. If a checked value is not finite, all nodes run again, and every value is checked to find
 * the first non-finite value. This is possible because, on a device, the values that the caller
 * passed in exist until all nodes have run. */
static osh_status run_over(osh_ctx *cx, osh_walk *w)
{
    osh_status rc = OSH_OK, first = read_findings(cx, w->user);
    osh_exec_job *j = w->user;
    if (first != OSH_E_NUMERIC || j->again) return first;
    osh_walk again = {.acts = w->acts, .user = j, .s = w->s, .on_device = w->on_device};
    for (int v = w->s.of.v0; v < w->s.of.v1; v++)
        if (j->g->values[v].producer >= w->s.first) run_gone(cx, w, v);
    char *text = osh_sprintf(cx, "%s", osh_error_text(cx)); // own
    osh_error_clear(cx);
    j->again = true;
    OSH_TRY(begin_findings(cx, j));
    OSH_TRY(osh_walk_run(cx, &again));
    /* The second execution found no non-finite value, so the first error is returned. */
    OSH_FAIL(cx, OSH_E_NUMERIC, "%s", text ? text : "a value is not finite");
done:
    osh_free(cx, text);
    return rc;
}

static const osh_walk_acts run_acts = {.brought = run_brought,
                                       .told = run_told,
                                       .made = run_made,
                                       .node = run_node,
                                       .gated = run_gated,
                                       .lanes = run_lanes,
                                       .gone = run_gone,
                                       .routes = osh_exec_routes,
                                       .mixture = osh_exec_mixture,
                                       .observed = osh_exec_observed,
                                       .over = run_over};

osh_status osh_exec_run(osh_ctx *cx, const osh_exec_span *s, const osh_weights *w, osh_batch *b,
                        const osh_exec_hooks *hooks, bool check)
{
    osh_status rc = OSH_OK;
    osh_exec_job j = {s->g, w, b, hooks, hooks ? hooks->lanes : NULL, check, s->first, s->n};
    osh_walk walk = {.acts = &run_acts, .user = &j, .s = *s, .on_device = b->device != NULL};
    walk.s.of = osh_exec_values_of(s);
    OSH_TRY(begin_findings(cx, &j));
    walk.by_sample = j.lanes && !hooks->linear_input && !b->device &&
                     osh_exec_by_sample(b->seqs.n, osh_threads(cx));
    if (walk.by_sample) walk.outer = j.lanes->outer;
    if (walk.by_sample || (s->joins && hooks)) walk.seen = hooks->seen;

    int ids = s->g->input_ids; // the caller passes in the token ids of every batch
    if ((ids < walk.s.of.v0 || ids >= walk.s.of.v1) && s->keep && !s->keep[ids])
        osh_tensor_free(cx, b->values[ids]), b->values[ids] = NULL;
    OSH_TRY(osh_walk_run(cx, &walk));
done:
    osh_routed_deinit(cx, &j.routed);
    osh_exec_drop_routes(cx, &j.gpu);
    osh_tensor_free(cx, j.found);
    return rc;
}
