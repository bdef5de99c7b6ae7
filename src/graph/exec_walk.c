/* exec_walk.c - walks over the nodes of one call of osh_exec_run, in order. A value is freed after
 * the last node of the call that reads it. */
#include "graph/exec_walk.h"

#include <string.h>

#include "graph/picked.h"
#include "graph/routed.h"
#include "ops/gated.h"

bool osh_exec_by_sample(int64_t n_samples, int n_threads)
{
    /* Samples run in parallel only if few threads are idle while the last samples run. */
    return n_samples > 1 && (n_samples % n_threads == 0 || n_samples >= 4 * (int64_t)n_threads);
}

/* True if the node always runs on the whole batch: it reads rows of a table or rows of an expert,
 * and reads them for all samples together. */
static bool runs_on_whole_batch(const osh_exec_cut *c, int node)
{
    return (c->routed && c->routed[node - c->first]) || osh_is_picked(c->g, &c->g->nodes[node], 0);
}

int osh_exec_together(const osh_exec_cut *c, int node)
{
    for (int i = node; i < c->end; i++) {
        const osh_node *n = &c->g->nodes[i];
        if (c->run && !c->run[i - c->first]) continue;
        if (runs_on_whole_batch(c, i)) return i > node ? i : i + 1;
        bool ends = osh_node_routes(n);
        for (int k = 0; k < n->op->n_out; k++) ends |= c->seen && c->seen[n->out[k]];
        if (ends) return i + 1;
    }
    return c->end;
}

static bool is_read(const osh_exec_span *s, int value, int from)
{
    const osh_graph *g = s->g;
    for (int i = from; i < s->first + s->n && i <= g->values[value].last_use; i++)
        for (int k = 0; (!s->run || s->run[i - s->first]) && k < g->nodes[i].op->n_in; k++)
            if (g->nodes[i].in[k] == value) return true;
    return false;
}

/* True if a value must exist for the whole batch, although nodes before `end` make it sample by
 * sample. This is so if the value is kept, or if nodes from `end` on read it. It is also so if the
 * value has a counterpart in the original or in the quantized model. */
static bool is_outer(const osh_exec_span *s, int value, int end)
{
    const osh_value *x = &s->g->values[value];
    if (!s->keep || s->keep[value] || x->original >= 0 || x->quantized >= 0) return true;
    return is_read(s, value, end);
}

osh_exec_values osh_exec_values_of(const osh_exec_span *s)
{
    return s->of.v1 ? s->of : (osh_exec_values){0, s->g->n_values};
}

int osh_next_set(const bool *set, int from, int n)
{
    const bool *at = from < n ? memchr(set + from, true, (size_t)(n - from)) : NULL;
    return at ? (int)(at - set) : n;
}

bool osh_walk_is_routed(const osh_walk *w, int node)
{
    return w->s.routed && node >= w->s.first && node < w->s.first + w->s.n &&
           w->s.routed[node - w->s.first];
}

bool osh_walk_keeps(const osh_walk *w, int v)
{
    return !w->s.keep || w->s.keep[v];
}

/* True if the node, or the hook for its output, needs the lists of routed rows on a device. Sets
 * *from to the node that selects the expert (a moe_combine or routed_rows node). */
static bool needs_lists(const osh_walk *w, int node, int *from)
{
    const osh_node *n = &w->s.g->nodes[node];
    if (!w->on_device) return false;
    *from = osh_walk_is_routed(w, node) ? osh_routed_to(w->s.g, node)
                                        : osh_routed_from(w->s.g, n->out[0]);
    return *from >= 0;
}

/* True if the node reads only those rows of v that are routed to the expert of v. */
static bool reads_few_rows(const osh_walk *w, int node, int v)
{
    const osh_node *n = &w->s.g->nodes[node];
    if (osh_node_is(n, OSH_OP_COMBINES)) return n->in[1] == v && n->in[0] != v;
    return osh_walk_rows_of(w, node) >= 0;
}

int osh_walk_rows_of(const osh_walk *w, int node)
{
    const osh_node *n = &w->s.g->nodes[node];
    int from, v = n->out[0];
    if (!needs_lists(w, node, &from)) return -1;
    if (osh_walk_is_routed(w, node)) return from;
    if (n->op->n_out != 1) return -1;
    const osh_value *out = &w->s.g->values[v];
    int end = w->s.first + w->s.n;
    for (int i = node + 1; i < end && i <= out->last_use; i++)
        for (int k = 0; osh_walk_runs(w, i) && k < w->s.g->nodes[i].op->n_in; k++)
            if (w->s.g->nodes[i].in[k] == v && !reads_few_rows(w, i, v)) return -1;
    return from;
}

static int *last_of(const osh_walk *w, int v) { return &w->last[v - w->s.of.v0]; }

osh_out osh_walk_out(const osh_walk *w, int node, int k)
{
    const osh_node *n = &w->s.g->nodes[node];
    int v = n->in[0];
    if (w->lane && w->s.keep[n->out[k]]) return OSH_OUT_OF_BATCH;
    if (k || w->on_device || !osh_node_is(n, OSH_OP_IN_PLACE)) return OSH_OUT_NEW;
    bool goes =
        w->s.g->values[v].producer >= w->s.first && *last_of(w, v) == node && !osh_walk_keeps(w, v);
    return goes ? OSH_OUT_OF_INPUT : OSH_OUT_NEW;
}

/* Sets w->last: finds for each value the last node of the walk that reads this value. */
static osh_status walk_find_last(osh_ctx *cx, osh_walk *w)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = w->s.g;
    int first = w->s.first, end = first + w->s.n;
    size_t n = (size_t)(w->s.of.v1 - w->s.of.v0);
    OSH_NEW(cx, w->last, n);
    memset(w->last, 0xff, n * sizeof *w->last); // sets all items to -1
    for (int i = first; i < end; i++)
        for (int k = 0; osh_walk_runs(w, i) && k < g->nodes[i].op->n_in; k++)
            *last_of(w, g->nodes[i].in[k]) = i;
    // the hook for a value also reads the counterpart of the value in the original model
    for (int i = first; i < end; i++)
        for (int k = 0; osh_walk_runs(w, i) && k < g->nodes[i].op->n_out; k++) {
            int v = g->values[g->nodes[i].out[k]].original;
            if (v >= 0 && i > *last_of(w, v)) *last_of(w, v) = i;
        }
    for (int i = first; i < end; i++) { // nodes of experts also read the router's output
        int from = -1;
        if (osh_walk_is_routed(w, i)) from = osh_routed_to(g, i);
        else if (osh_walk_runs(w, i) && !needs_lists(w, i, &from)) from = -1;
        int route = from >= 0 ? osh_routed_route(g, from) : -1;
        if (route >= 0 && i > *last_of(w, route)) *last_of(w, route) = i;
    }
done:
    return rc;
}

static bool is_brought(const osh_walk *w, int v) { return w->s.g->values[v].producer < w->s.first; }

static void walk_drop(osh_ctx *cx, osh_walk *w, int v, int done_node)
{
    if (v < 0 || *last_of(w, v) > done_node || osh_walk_keeps(w, v) ||
        (w->on_device && is_brought(w, v)))
        return;
    w->acts->gone(cx, w, v);
}

/* Finishes a node. If `tell` is true, calls the hook for the outputs of the node. Then frees the
 * values that no later node of the walk reads. */
static osh_status finish_node(osh_ctx *cx, osh_walk *w, int node, bool tell)
{
    osh_status rc = OSH_OK;
    const osh_node *n = &w->s.g->nodes[node];
    for (int k = 0; k < n->op->n_in; k++) walk_drop(cx, w, n->in[k], node);
    for (int k = 0; k < n->op->n_out; k++) {
        int v = n->out[k];
        if (tell && w->tells) OSH_TRY(w->acts->told(cx, w, v));
        walk_drop(cx, w, v, node);
        walk_drop(cx, w, w->s.g->values[v].original, node);
    }
done:
    return rc;
}

/* On a device, lists the rows of all experts of a router, unless these lists exist already.
 * close_routes frees the lists after the last node that needs them. from: a node that selects an
 * expert of the router. */
static osh_status open_routes(osh_ctx *cx, osh_walk *w, int from)
{
    int route = osh_routed_route(w->s.g, from);
    if (w->route == route) return OSH_OK;
    w->route = route;
    return w->acts->routes(cx, w, route);
}

static osh_status close_routes(osh_ctx *cx, osh_walk *w, int done_node)
{
    if (!w->on_device || w->route < 0 || *last_of(w, w->route) > done_node) return OSH_OK;
    w->route = -1;
    return w->acts->routes(cx, w, -1);
}

static osh_status walk_node(osh_ctx *cx, osh_walk *w, int node)
{
    osh_status rc = OSH_OK;
    bool routed = osh_walk_is_routed(w, node);
    int from;
    if (needs_lists(w, node, &from)) OSH_TRY(open_routes(cx, w, from));
    OSH_TRY(w->acts->node(cx, w, node));
    OSH_TRY(finish_node(cx, w, node, !routed));
    OSH_TRY(close_routes(cx, w, node));
done:
    return rc;
}

static bool is_bf16_product(const osh_graph *g, const osh_node *n)
{
    bool bias = n->op->n_weights > 1 && n->w[1] >= 0;
    return osh_node_is(n, OSH_OP_LINEAR) && !n->original && g->weights[n->w[0]].dtype == OSH_BF16 &&
           (!bias || g->weights[n->w[1]].dtype == OSH_BF16);
}

/* True if the three nodes from `first` on are the Linears `gate` and `up`, in any order, and their
 * glu. Both Linears must read the same value, and only the glu may read their outputs. */
static bool is_gated(const osh_graph *g, int first)
{
    const osh_node *n = &g->nodes[first], *up = &n[1], *glu = &n[OSH_GATED_GLU];
    if (!osh_node_is(glu, OSH_OP_GLU) || glu->original || !is_bf16_product(g, n) ||
        !is_bf16_product(g, up))
        return false;
    if (n->in[0] != up->in[0] || g->values[n->in[0]].dtype != OSH_BF16) return false;
    bool first_is_gate = glu->in[0] == n->out[0] && glu->in[1] == up->out[0];
    bool up_is_gate = glu->in[0] == up->out[0] && glu->in[1] == n->out[0];
    for (int k = 0; k < 2; k++) {
        const osh_value *v = &g->values[n[k].out[0]];
        if (v->first_use != first + OSH_GATED_GLU || v->last_use != v->first_use) return false;
        if (v->original >= 0 || v->quantized >= 0 || v->dtype != OSH_BF16) return false;
    }
    return (first_is_gate || up_is_gate) && g->values[glu->out[0]].dtype == OSH_BF16 &&
           osh_gated_takes(g->dtype, g->values[n->in[0]].width, glu->attr);
}

static bool walk_is_gated(const osh_walk *w, int first)
{
    const osh_graph *g = w->s.g;
    if (!w->s.joins || w->on_device || first + OSH_GATED_NODES > w->s.first + w->s.n) return false;
    if (!is_gated(g, first)) return false;
    for (int i = first; i < first + OSH_GATED_NODES; i++) {
        int v = g->nodes[i].out[0];
        if (!osh_walk_runs(w, i) || osh_walk_is_routed(w, i)) return false;
        if (i < first + OSH_GATED_GLU && (osh_walk_keeps(w, v) || (w->seen && w->seen[v])))
            return false;
    }
    return true;
}

static osh_status walk_gated(osh_ctx *cx, osh_walk *w, int first)
{
    osh_status rc = OSH_OK;
    bool done = false;
    OSH_TRY(w->acts->gated(cx, w, first, &done));
    for (int i = first; i < first + OSH_GATED_NODES; i++) {
        if (!done) OSH_TRY(w->acts->node(cx, w, i));
        OSH_TRY(finish_node(cx, w, i, i == first + OSH_GATED_GLU));
    }
done:
    return rc;
}

/* Returns the end of the mixture (experts that run together, routed.h) that begins at node `first`,
 * or `first` if no mixture begins there. All nodes of the mixture must run. Only its last output,
 * the sum of the experts, may be kept. */
static int mixture_end(const osh_walk *w, int first)
{
    int whole = first, end = first, gate = osh_expert_first(w->s.g, first);
    int each = OSH_EXPERT_NODES + gate - first;
    if (w->on_device && osh_walk_is_routed(w, gate))
        end = osh_mixture_end(w->s.g, first, w->s.first + w->s.n);
    for (int i = first; i < end && osh_walk_runs(w, i); i++) {
        if ((i - first) % each == each - 1) whole = i + 1;
        if (osh_walk_keeps(w, w->s.g->nodes[i].out[0])) break;
    }
    return whole;
}

static osh_status walk_mixture(osh_ctx *cx, osh_walk *w, int first, int end)
{
    osh_status rc = OSH_OK;
    OSH_TRY(open_routes(cx, w, osh_routed_to(w->s.g, osh_expert_first(w->s.g, first))));
    OSH_TRY(w->acts->mixture(cx, w, first, end));
    for (int i = first; i < end; i++) OSH_TRY(finish_node(cx, w, i, i == end - 1));
    OSH_TRY(close_routes(cx, w, end - 1));
done:
    return rc;
}

/* Returns the end of the experts that begin at node `first`, if all of them can be observed
 * together. For this, the nodes routed_rows, gate, up and glu of each expert must run on the rows
 * of the expert. The nodes down and combine must not run. Otherwise returns `first`. */
static int observed_end(const osh_walk *w, int first)
{
    int gate = osh_expert_first(w->s.g, first), whole = first, end = first, from;
    if (!w->on_device || gate == first || osh_walk_is_routed(w, gate)) return first;
    end = osh_mixture_end(w->s.g, first, w->s.first + w->s.n);
    for (int i = first; i < end; i++) {
        int at = (i - first) % (OSH_EXPERT_NODES + 1);
        bool runs = osh_walk_runs(w, i), wanted = at <= 1 + OSH_EXPERT_GLU;
        if (runs != wanted || (runs && osh_walk_rows_of(w, i) < 0)) break;
        if (at == OSH_EXPERT_NODES) whole = i + 1;
    }
    return whole > first && needs_lists(w, first, &from) ? whole : first;
}

/* Observes the experts of the nodes [first, end) together. Calls the hook only for the input of
 * gate and up, and for the input of down. */
static osh_status experts_observe(osh_ctx *cx, osh_walk *w, int first, int end)
{
    osh_status rc = OSH_OK;
    OSH_TRY(open_routes(cx, w, first));
    OSH_TRY(w->acts->observed(cx, w, first, end));
    for (int i = first; i < end; i++)
        if (osh_walk_runs(w, i)) OSH_TRY(finish_node(cx, w, i, false));
    OSH_TRY(close_routes(cx, w, end - 1));
done:
    return rc;
}

osh_status osh_walk_lane(osh_ctx *cx, const osh_walk *w, int first, int end, void *user)
{
    osh_status rc = OSH_OK;
    osh_walk lane = {
        .acts = w->acts, .user = user, .s = w->s, .outer = w->outer, .last = w->last, .lane = true};
    lane.s.first = first, lane.s.n = end - first, lane.s.keep = w->outer, lane.s.routed = NULL;
    if (w->s.run) lane.s.run = w->s.run + (first - w->s.first);
    for (int i = first; i < end; i++) {
        if (walk_is_gated(&lane, i)) {
            OSH_TRY(walk_gated(cx, &lane, i));
            i += OSH_GATED_NODES - 1;
        } else if (osh_walk_runs(&lane, i)) {
            OSH_TRY(walk_node(cx, &lane, i));
        }
    }
done:
    return rc;
}

/* Walks over the nodes [first, end) sample by sample. last: the last node of the range that must
 * run. Calls the hook only for the outputs of node `last`. */
static osh_status walk_lanes(osh_ctx *cx, osh_walk *w, int first, int end, int last)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = w->s.g;
    for (int i = first; i < end; i++)
        for (int k = 0; osh_walk_runs(w, i) && k < g->nodes[i].op->n_out; k++) {
            int v = g->nodes[i].out[k];
            if (i < last && !is_outer(&w->s, v, end)) continue;
            w->outer[v] = true;
            OSH_TRY(w->acts->made(cx, w, v));
        }
    OSH_TRY(w->acts->lanes(cx, w, first, end));
    for (int i = first; i < end; i++)
        if (osh_walk_runs(w, i)) OSH_TRY(finish_node(cx, w, i, i == last));
done:
    for (int i = first; i < end; i++)
        for (int k = 0; k < g->nodes[i].op->n_out; k++) w->outer[g->nodes[i].out[k]] = false;
    return rc;
}

static osh_status walk_nodes(osh_ctx *cx, osh_walk *w)
{
    osh_status rc = OSH_OK;
    osh_exec_cut cut = {w->s.g, w->s.first, w->s.first + w->s.n, w->s.run, w->seen, w->s.routed};
    for (int i = cut.first, end; i < cut.end; i = end) {
        int n = 0, last = i, mixture = mixture_end(w, i), observed = observed_end(w, i);
        end = w->by_sample ? osh_exec_together(&cut, i) : i + 1;
        if (mixture > i) {
            end = mixture;
            OSH_TRY(walk_mixture(cx, w, i, end));
            continue;
        }
        if (observed > i) {
            end = observed;
            OSH_TRY(experts_observe(cx, w, i, end));
            continue;
        }
        if (!w->by_sample && walk_is_gated(w, i)) {
            end = i + OSH_GATED_NODES;
            OSH_TRY(walk_gated(cx, w, i));
            continue;
        }
        for (int k = i; k < end; k++)
            if (osh_walk_runs(w, k)) n++, last = k;
        if (n > 1) OSH_TRY(walk_lanes(cx, w, i, end, last));
        else if (n) OSH_TRY(walk_node(cx, w, last));
    }
done:
    return rc;
}

osh_status osh_walk_run(osh_ctx *cx, osh_walk *w)
{
    osh_status rc = OSH_OK;
    osh_exec_values of = w->s.of;
    w->route = -1;
    OSH_TRY(walk_find_last(cx, w));
    for (int v = w->acts->brought(w, of.v0); v < of.v1; v = w->acts->brought(w, v + 1)) {
        int from = w->on_device ? osh_routed_from(w->s.g, v) : -1;
        if (from >= 0) OSH_TRY(open_routes(cx, w, from));
        OSH_TRY(w->acts->told(cx, w, v));
        walk_drop(cx, w, v, w->s.first - 1);
    }
    w->tells = true;
    OSH_TRY(walk_nodes(cx, w));
    if (w->route >= 0) OSH_TRY(w->acts->routes(cx, w, w->route = -1));
    if (w->acts->over) OSH_TRY(w->acts->over(cx, w));
    for (int v = of.v0; w->on_device && v < of.v1; v++)
        if (is_brought(w, v) && !osh_walk_keeps(w, v)) w->acts->gone(cx, w, v);
done:
    osh_free(cx, w->last), w->last = NULL;
    return rc;
}

/* ---- nodes that must run to make wanted values ---- */

void osh_exec_needed(bool *run, const osh_graph *g, int first, int n, const bool *want)
{
    for (int i = n - 1; i >= 0; i--) {
        const osh_node *node = &g->nodes[first + i];
        run[i] = false;
        for (int k = 0; k < node->op->n_out; k++) {
            int v = node->out[k];
            run[i] |= want[v];
            /* a node must also run if a later node that must run reads its output */
            for (int c = i + 1; c < n && !run[i] && first + c <= g->values[v].last_use; c++)
                for (int m = 0; m < g->nodes[first + c].op->n_in && run[c]; m++)
                    run[i] |= g->nodes[first + c].in[m] == v;
        }
    }
}
