/* visit.c - makes the list of the steps of a visit (the work on one subgraph). It chooses the
 * nodes, inputs and outputs of each step. */
#include "schedule/visit.h"
#include "graph/routed.h"
#include "schedule/blocks.h"
#include "rewrite/folds.h"
#include "schedule/looks.h"
#include "match/lookup.h"
#include "rewrite/passthrough.h"

#include <string.h>

typedef struct walk {
    const osh_schedule *p;
    const osh_graph *g;
    const osh_visit_state *done;
    osh_steps *to; // view: the list of steps that is made
    osh_range r;
    bool plain;   // true if the second pass over the range runs with the original weights, too
    /* True if the first pass also computes the outputs of the original model, so that the pass with
     * solved weights need not compute them. */
    bool carries;
    bool *run;    // own [r.n_nodes]: true for nodes that run in the current step
    /* True for nodes that run only on the rows of their expert. Used for the pass with solved
     * weights. */
    bool *routed; // own [r.n_nodes]
    /* [graph values] Index of the node of the first Linear that needs statistics of the value; -1:
     * none. */
    int *wanted;
    int *last; // own [r.v1 - r.v0]: index of the last node that runs and reads the value; -1: none
    /* Each of these arrays has an entry for each value of the graph.
     * want: true if the pass computes the value.
     * stats: true if statistics of the value are collected.
     * shift: true if the value is compared with its counterpart in the original model.
     * keep: true if the activation store keeps the value.
     * in, out, consume: as in osh_step. */
    bool *want, *stats, *shift, *in, *out, *consume, *keep;
    /* [graph values] True for values at which two-pass observers take their first look. */
    bool *look;
    bool *target; // [graph values] true for targets of the block (blocks.h)
    /* [graph values] true for values of the original model that are mixed with inputs of the
     * block */
    bool *mixed;
} walk;

static bool value_is_original(const walk *w, int v) { return w->g->values[v].quantized >= 0; }

static int walk_observed(const walk *w, int v) { return osh_observed(w->g, w->r.same, v); }

static osh_status walk_init(osh_ctx *cx, walk *w)
{
    osh_status rc = OSH_OK;
    bool **lists[OSH_STEP_LISTS] = {&w->want, &w->stats,   &w->shift, &w->in,    &w->out,
                             &w->consume, &w->keep, &w->look,  &w->target, &w->mixed};
    OSH_NEW(cx, w->run, w->r.n_nodes);
    OSH_NEW(cx, w->routed, w->r.n_nodes);
    OSH_NEW(cx, w->last, w->r.v1 - w->r.v0);
    for (int i = 0; i < OSH_STEP_LISTS; i++) *lists[i] = osh_steps_list(w->to, i);
    w->wanted = osh_steps_numbers(w->to);
    for (int i = w->r.l1 - 1; i >= w->r.l0; i--) {
        const osh_linear *l = &w->p->match->linears[i];
        if (osh_wants(w->p, l)) w->wanted[l->input] = l->node;
        if (l->shift) w->shift[l->input] = true;
    }
    w->carries = w->r.block && w->r.observe;
    if (w->carries)
        osh_block_targets(w->p, &w->r, w->target), osh_block_mixes(w->p, &w->r, w->mixed);
    for (int i = 0; i < w->r.n_live_out; i++)
        w->carries |= w->r.propagate && !w->r.merged && !w->plain &&
                      value_is_original(w, w->r.live_out[i]) &&
                      w->g->values[w->r.live_out[i]].producer >= w->r.first;
done:
    return rc;
}

static void walk_clear(const walk *w, bool *values)
{
    memset(values + w->r.v0, 0, (size_t)(w->r.v1 - w->r.v0) * sizeof *values);
}

/* Clears the shared lists for the next visit. Only entries of values of the range can be set, so
 * only these are cleared. */
static void walk_deinit(osh_ctx *cx, walk *w)
{
    for (int i = 0; i < OSH_STEP_LISTS; i++) walk_clear(w, osh_steps_list(w->to, i));
    for (int v = w->r.v0; v < w->r.v1; v++) osh_steps_numbers(w->to)[v] = -1;
    osh_free(cx, w->run);
    osh_free(cx, w->routed);
    osh_free(cx, w->last);
}

static bool ints_have(const int *list, int n, int v)
{
    for (int i = 0; i < n; i++)
        if (list[i] == v) return true;
    return false;
}

static bool walk_runs(const walk *w, int node) // node: index in the graph
{
    return node >= w->r.first && node < w->r.first + w->r.n_nodes && w->run[node - w->r.first];
}

/* If a GPU computes value v only for the rows that are routed to its expert, returns the router's
 * output that lists these rows. Otherwise returns -1. */
static int walk_route_of(const walk *w, int v)
{
    int from = w->p->in->by_route && w->p->in->on_device ? osh_routed_from(w->g, v) : -1;
    return from >= 0 ? osh_routed_route(w->g, from) : -1;
}

/* Returns the router's output that node i needs in addition to its inputs, or -1 if it needs
 * none. */
static int walk_route_for(const walk *w, int i)
{
    return walk_runs(w, i) ? walk_route_of(w, w->g->nodes[i].out[0]) : -1;
}

/* Sets w->last of each value to the last node that runs and reads the value. Must be called after
 * walk_choose_nodes, which chooses the nodes that run. */
static void visit_find_last(walk *w)
{
    for (int v = w->r.v0; v < w->r.v1; v++) w->last[v - w->r.v0] = -1;
    for (int i = w->r.first; i < w->r.first + w->r.n_nodes; i++)
        for (int k = 0; walk_runs(w, i) && k < w->g->nodes[i].op->n_in; k++)
            if (w->g->nodes[i].in[k] >= 0) w->last[w->g->nodes[i].in[k] - w->r.v0] = i;
    for (int i = w->r.first; i < w->r.first + w->r.n_nodes; i++) {
        int route = walk_route_for(w, i);
        if (route >= w->r.v0 && w->last[route - w->r.v0] < i) w->last[route - w->r.v0] = i;
    }
}

/* True if a node of the range reads v. The node must run, and must not be before node `first`. */
static bool walk_reads_from(const walk *w, int first, int v)
{
    return w->last[v - w->r.v0] >= first;
}

/* Sets values[v] to true for each value v that must be observed for the statistics in `stats`. */
static void walk_add_observed(const walk *w, bool *values, const bool *stats)
{
    for (int i = 0; i < w->p->rewrites->n_inherits; i++) {
        const osh_inherit *h = &w->p->rewrites->inherits[i];
        bool mine = h->linear >= w->r.l0 && h->linear < w->r.l1;
        int of = walk_observed(w, h->from);
        if (!mine || of < w->r.v0 || of >= w->r.v1) continue;
        if (stats[w->p->match->linears[h->linear].input] || stats[h->from]) values[of] = true;
    }
    for (int v = w->r.v0; v < w->r.v1; v++) {
        if (!stats[v]) continue;
        values[walk_observed(w, v)] = true;
        if (w->shift[v] && stats != w->look) values[w->g->values[v].original] = true;
    }
    for (int i = w->r.l0; w->p->match->outputs && stats != w->look && i < w->r.l1; i++) {
        const osh_linear *l = &w->p->match->linears[i];
        if (!osh_wants_elsewhere(w->p, l) && l->ranged[OSH_OUTPUT] >= 0 && stats[l->input])
            values[l->ranged[OSH_OUTPUT]] = true;
    }
}

/* Sets w->want for the outputs of all routers of the range, because a run counts the tokens of each
 * expert (run/coverage.h) while it collects statistics. */
static void walk_want_routes(walk *w)
{
    for (int i = w->r.first; i < w->r.first + w->r.n_nodes; i++)
        if (osh_node_routes(&w->g->nodes[i]) && !w->g->nodes[i].original)
            w->want[w->g->nodes[i].out[0]] = true;
}

/* If a step with nodes [first, first + n) computes or reads values of an expert, adds the router's
 * output to the inputs of the step, w->in. The router's output lists the rows of these values. */
static void walk_add_routes(walk *w, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        int route = walk_route_for(w, i);
        if (route >= 0) w->in[route] = true;
    }
    for (int v = w->r.v0; v < w->r.v1; v++) {
        int route = w->in[v] ? walk_route_of(w, v) : -1;
        if (route >= 0) w->in[route] = true;
    }
}

/* Returns a step with nodes [first, first + n). Sets w->in, the inputs of the step. They are the
 * values that the nodes and the statistics of the step need, and that are made outside of the
 * step. */
static osh_step walk_make_step(walk *w, int first, int n, const bool *stats)
{
    walk_clear(w, w->in), walk_clear(w, w->out), walk_clear(w, w->consume);
    for (int i = first; i < first + n; i++)
        for (int k = 0; walk_runs(w, i) && k < w->g->nodes[i].op->n_in; k++)
            w->in[w->g->nodes[i].in[k]] = true;
    if (stats) walk_add_observed(w, w->in, stats);
    walk_add_routes(w, first, n);
    for (int v = w->r.v0; v < w->r.v1; v++) {
        int producer = w->g->values[v].producer;
        if (producer >= first && producer < first + n && walk_runs(w, producer)) w->in[v] = false;
    }
    return (osh_step){.first = first, .n = n, .run = w->run + (first - w->r.first), .in = w->in,
                      .out = w->out, .consume = w->consume, .observe = stats != NULL};
}

/* Tells for which model a pass computes the outputs of a subgraph. OF_BOTH: both models have the
 * same outputs, or one pass computes the outputs of both. */
typedef enum { OF_BOTH, OF_ORIGINAL, OF_QUANTIZED } whose;

static void walk_want_live_out(walk *w, whose which)
{
    for (int i = 0; i < w->r.n_live_out; i++) {
        int v = w->r.live_out[i];
        if (which == OF_BOTH || value_is_original(w, v) == (which == OF_ORIGINAL))
            w->want[v] = true;
    }
    for (int v = w->r.v0; v < w->r.v1 && which != OF_QUANTIZED; v++) w->want[v] |= w->target[v];
}

/* For the pass with solved weights: chooses the nodes that run only on the rows that are routed to
 * their expert. The output of such a node may be read only by nodes of the same expert. The last of
 * them, the node `moe_combine` of the expert, must run, too. */
static void walk_choose_routed(walk *w)
{
    if (w->p->all_rows) return; // no entry of w->routed is true
    osh_routed_choose(w->routed, w->g, w->r.first, w->r.n_nodes, w->run);
}

/* Sets s->routed for the nodes that walk_choose_routed chose. These nodes also read the output of
 * the router, which selects their rows. So this output is added to the inputs of the step. */
static void walk_take_routed(walk *w, osh_step *s)
{
    s->routed = w->routed + (s->first - w->r.first);
    for (int i = 0; i < s->n; i++) {
        if (!s->routed[i]) continue;
        int route = w->g->nodes[osh_routed_to(w->g, s->first + i)].in[2];
        if (w->g->values[route].producer < s->first) w->in[route] = true;
    }
}

static void walk_choose_nodes(walk *w)
{
    osh_exec_needed(w->run, w->g, w->r.first, w->r.n_nodes, w->want);
}

static osh_status walk_add(osh_ctx *cx, walk *w, osh_step_kind kind, const osh_step *s,
                           const bool *values)
{
    osh_step t = *s;
    t.kind = kind, t.values = values;
    return osh_steps_add(cx, w->to, &t);
}

/* Adds a step of this kind for nodes [first, first + n), without values. */
static osh_status walk_add_nodes(osh_ctx *cx, walk *w, osh_step_kind kind, int first, int n)
{
    return walk_add(cx, w, kind, &(osh_step){.first = first, .n = n}, NULL);
}

/* True if an earlier run has solved all Linears of the range that read one of `values`. NULL stands
 * for all values. */
static bool walk_solved(const walk *w, const bool *values)
{
    return w->done && w->done->solved && w->done->solved(w->done->user, &w->r, values);
}

/* ---- whole subgraphs, and rounds of statistics ---- */

/* Chooses the inputs of Linears for one round (a pass that collects some of the Hessians). Takes
 * inputs whose statistics are still needed (wanted[input] >= from), as long as their Hessians fit
 * in round_bytes (0: no limit). Sets *next to the node at which the next round begins, or to the
 * end of the range. */
static void walk_choose_round(walk *w, int64_t round_bytes, int from, int *next)
{
    int end = w->r.first + w->r.n_nodes;
    int64_t bytes = 0;
    walk_clear(w, w->stats);
    *next = end;
    for (int i = w->r.l0; i < w->r.l1; i++) {
        const osh_linear *l = &w->p->match->linears[i];
        if (!osh_wants(w->p, l) || w->wanted[l->input] < from || w->stats[l->input]) continue;
        int64_t more = osh_wants(w->p, l) & OSH_STAT_HESSIAN ? osh_hessian_size(l) : 0;
        if (round_bytes && bytes && bytes + more > round_bytes) {
            *next = l->node;
            break;
        }
        w->stats[l->input] = true, bytes += more;
    }
}

/* Adds a pass in which two-pass observers take their first look (looks.h) at values. The values are
 * not kept between the looks. The next pass of the subgraph has the second look, and collects all
 * other statistics. If n is 0, no node runs, and the observers look at values in the activation
 * store. */
static osh_status walk_look(osh_ctx *cx, walk *w, int first, int n)
{
    osh_status rc = OSH_OK;
    walk_clear(w, w->look);
    if (!osh_looks_of(NULL, w->look, w->p, &w->r, w->stats)) goto done;
    if (n) {
        walk_clear(w, w->want);
        walk_add_observed(w, w->want, w->look);
        walk_choose_nodes(w);
    }
    osh_step s = walk_make_step(w, first, n, w->look);
    s.first_look = true;
    OSH_TRY(walk_add(cx, w, OSH_STEP_LOAD, &s, NULL));
    OSH_TRY(walk_add(cx, w, OSH_STEP_PASS, &s, NULL));
done:
    return rc;
}

static osh_status walk_round(osh_ctx *cx, walk *w, int next)
{
    osh_status rc = OSH_OK;
    bool last = next == w->r.first + w->r.n_nodes, outputs = last && (w->r.merged || w->carries);
    /* again: true if the inputs of the range are read after the last round: by another pass, or by
     * learning by block.
     * over: true if the inputs are not read after this round. */
    bool again = (w->r.propagate && !w->r.merged) || w->r.block, over = last && !again;
    if (walk_solved(w, w->stats) && !outputs) goto done;
    OSH_TRY(walk_add(cx, w, OSH_STEP_OPEN, &(osh_step){0}, w->stats));
    OSH_TRY(walk_look(cx, w, w->r.first, w->r.n_nodes));
    walk_clear(w, w->want);
    walk_add_observed(w, w->want, w->stats);
    walk_want_routes(w);
    if (outputs) walk_want_live_out(w, w->r.merged ? OF_BOTH : OF_ORIGINAL);
    walk_choose_nodes(w);
    osh_step s = walk_make_step(w, w->r.first, w->r.n_nodes, w->stats);
    for (int x = w->r.v0; x < w->r.v1; x++) {
        bool after = ints_have(w->r.live_out, w->r.n_live_out, x) || w->target[x];
        w->out[x] = outputs && after && walk_runs(w, w->g->values[x].producer) &&
                    (w->r.merged || value_is_original(w, x));
        w->consume[x] =
            (value_is_original(w, x) && !w->mixed[x] ? last : over) && w->in[x] && !after;
    }
    OSH_TRY(walk_add(cx, w, OSH_STEP_LOAD, &s, w->stats));
    OSH_TRY(walk_add(cx, w, OSH_STEP_PASS, &s, NULL));
    // Later rounds need the original weights, so the weights in memory stay unchanged until the
    // last round.
    s = (osh_step){.keep = !last};
    OSH_TRY(walk_add(cx, w, OSH_STEP_SOLVE, &s, w->stats));
done:
    return rc;
}

/* Adds a pass of the original model's nodes. It is needed if all Linears of the subgraph are
 * already solved. */
static osh_status walk_original(osh_ctx *cx, walk *w)
{
    osh_status rc = OSH_OK;
    walk_clear(w, w->want);
    walk_want_live_out(w, OF_ORIGINAL);
    walk_choose_nodes(w);
    osh_step s = walk_make_step(w, w->r.first, w->r.n_nodes, NULL);
    for (int x = w->r.v0; x < w->r.v1; x++) {
        bool after = ints_have(w->r.live_out, w->r.n_live_out, x);
        w->out[x] = after && walk_runs(w, w->g->values[x].producer);
        w->consume[x] = w->in[x] && !after && value_is_original(w, x);
    }
    OSH_TRY(walk_add(cx, w, OSH_STEP_LOAD, &s, NULL));
    OSH_TRY(walk_add(cx, w, OSH_STEP_PASS, &s, NULL));
done:
    return rc;
}

static osh_status walk_propagate(osh_ctx *cx, walk *w)
{
    osh_status rc = OSH_OK;
    walk_clear(w, w->want);
    walk_want_live_out(w, w->plain ? OF_BOTH : OF_QUANTIZED);
    walk_choose_nodes(w);
    walk_choose_routed(w);
    osh_step s = walk_make_step(w, w->r.first, w->r.n_nodes, NULL);
    s.again = true;
    walk_take_routed(w, &s);
    // if the mixed values are inputs of this step, the store may free them after the step
    for (int x = w->r.v0; x < w->r.v1; x++) w->in[x] |= w->mixed[x];
    for (int x = w->r.v0; x < w->r.v1; x++) {
        bool after = ints_have(w->r.live_out, w->r.n_live_out, x);
        w->out[x] = after && walk_runs(w, w->g->values[x].producer);
        w->consume[x] = w->in[x] && !after;
    }
    OSH_TRY(walk_add(cx, w, OSH_STEP_LOAD, &s, NULL));
    if (!w->plain) OSH_TRY(walk_add_nodes(cx, w, OSH_STEP_RELOAD, w->r.first, w->r.n_nodes));
    OSH_TRY(walk_add(cx, w, OSH_STEP_PASS, &s, NULL));
done:
    return rc;
}

static osh_status walk_whole(osh_ctx *cx, walk *w, int64_t round_bytes)
{
    osh_status rc = OSH_OK;
    for (int from = w->r.first, next; w->r.observe && from < w->r.first + w->r.n_nodes;
         from = next) {
        walk_choose_round(w, round_bytes, from, &next);
        OSH_TRY(walk_round(cx, w, next));
    }
    if (!w->r.observe && w->carries) OSH_TRY(walk_original(cx, w));
    if (w->r.propagate && !w->r.merged) OSH_TRY(walk_propagate(cx, w));
    OSH_TRY(walk_add_nodes(cx, w, OSH_STEP_RELEASE, w->r.first, w->r.n_nodes));
done:
    return rc;
}

/* ---- segments of a subgraph ---- */

/* Returns node i. If node i belongs to the original model, returns the next node instead, which is
 * its counterpart in the quantized model. */
static const osh_node *quantized_of(const walk *w, int i)
{
    const osh_node *n = &w->g->nodes[i];
    return n->original ? n + 1 : n;
}

static bool visit_is_linear(const osh_node *n) { return osh_node_is(n, OSH_OP_LINEAR); }

/* Returns the index of the first node after the segment that begins at node `first`. A segment
 * begins with Linears that read the same value, and ends before the next Linear. */
static int walk_segment_end(const walk *w, int first)
{
    int end = w->r.first + w->r.n_nodes, i = first;
    const osh_node *lead = quantized_of(w, first);
    while (i < end && visit_is_linear(quantized_of(w, i)) &&
           quantized_of(w, i)->in[0] == lead->in[0])
        i++;
    while (i < end && (quantized_of(w, i) == lead || !visit_is_linear(quantized_of(w, i)))) i++;
    return i;
}

/* Sets w->stats for the inputs of Linears in nodes [first, end). Leaves out inputs whose statistics
 * are not needed, or are collected by an earlier segment. Returns false if no input is left. */
static bool walk_segment_stats(walk *w, int first, int end)
{
    bool any = false;
    walk_clear(w, w->stats);
    for (int i = w->r.l0; i < w->r.l1; i++) {
        const osh_linear *l = &w->p->match->linears[i];
        if (!osh_wants(w->p, l) || l->node < first || l->node >= end || w->wanted[l->input] < first)
            continue;
        any = w->stats[l->input] = true;
    }
    return any;
}

/* True if a Linear at node `end` or later needs a statistic that is computed from value v. */
static bool statistic_waits_for(const walk *w, int end, int v)
{
    for (int i = 0; i < w->p->rewrites->n_inherits; i++) {
        const osh_inherit *h = &w->p->rewrites->inherits[i];
        bool mine = h->linear >= w->r.l0 && h->linear < w->r.l1;
        if (mine && walk_observed(w, h->from) == v &&
            w->wanted[w->p->match->linears[h->linear].input] >= end)
            return true;
    }
    int quantized_of = w->g->values[v].quantized;
    if (quantized_of >= 0)
        return w->wanted[quantized_of] >= end &&
               (w->shift[quantized_of] || walk_observed(w, quantized_of) == v);
    return w->wanted[v] >= end && walk_observed(w, v) == v;
}

/* Sets w->keep for the values that must stay in the activation store after a segment that ends at
 * node `end`. These are values that later nodes of this pass, a later pass, or later subgraphs
 * read. */
static void walk_choose_kept(walk *w, int end, bool first_way)
{
    // true if a second pass over the range follows; that pass uses the solved weights
    bool twice = first_way && w->r.propagate && !w->r.merged;
    for (int v = w->r.v0; v < w->r.v1; v++) {
        bool after = ints_have(w->r.live_out, w->r.n_live_out, v),
             before = ints_have(w->r.live_in, w->r.n_live_in, v);
        bool made = w->g->values[v].producer >= w->r.first,
             again = twice && !value_is_original(w, v);
        w->keep[v] = walk_reads_from(w, end, v) ||
                     (first_way && w->r.observe && statistic_waits_for(w, end, v)) ||
                     (again && before) || (after && !(again && made));
    }
    for (int v = w->r.v0; v < w->r.v1; v++) {
        int route = w->keep[v] ? walk_route_of(w, v) : -1;
        if (route >= w->r.v0) w->keep[route] = true;
    }
}

static osh_status walk_solve_segment(osh_ctx *cx, walk *w, int first, int end)
{
    osh_status rc = OSH_OK;
    if (!walk_segment_stats(w, first, end)) goto done;
    if (walk_solved(w, w->stats)) goto done;
    OSH_TRY(walk_add(cx, w, OSH_STEP_OPEN, &(osh_step){0}, w->stats));
    OSH_TRY(walk_look(cx, w, first, 0));
    // this step runs no nodes, and only collects statistics from values in the activation store
    osh_step s = walk_make_step(w, first, 0, w->stats);
    OSH_TRY(walk_add(cx, w, OSH_STEP_PASS, &s, NULL));
    OSH_TRY(walk_add(cx, w, OSH_STEP_LOAD, &s, w->stats));
    s = (osh_step){.keep = true};
    OSH_TRY(walk_add(cx, w, OSH_STEP_SOLVE, &s, w->stats));
done:
    return rc;
}

static osh_status walk_run_segment(osh_ctx *cx, walk *w, int first, int end, bool first_way)
{
    osh_status rc = OSH_OK;
    bool any = false;
    for (int i = first; i < end; i++) any |= walk_runs(w, i);
    walk_choose_kept(w, end, first_way);
    if (!any) goto done;
    osh_step s = walk_make_step(w, first, end - first, NULL);
    s.again = !first_way;
    if (!first_way) walk_take_routed(w, &s);
    for (int x = w->r.v0; x < w->r.v1; x++) {
        int producer = w->g->values[x].producer;
        w->out[x] = w->keep[x] && producer >= first && producer < end && walk_runs(w, producer);
        w->consume[x] = w->in[x] && !w->keep[x];
    }
    OSH_TRY(walk_add(cx, w, OSH_STEP_LOAD, &s, NULL));
    if (!first_way && !w->plain)
        OSH_TRY(walk_add_nodes(cx, w, OSH_STEP_RELOAD, first, end - first));
    OSH_TRY(walk_add(cx, w, OSH_STEP_PASS, &s, NULL));
done:
    return rc;
}

/* Adds the steps of one pass over the range. The pass runs in segments. first_way: true for the
 * pass with the original weights, false for the pass with the solved weights. The pass with the
 * original weights also collects statistics, and computes the values of the original model. */
static osh_status walk_way(osh_ctx *cx, walk *w, bool first_way)
{
    osh_status rc = OSH_OK;
    bool observing = first_way && w->r.observe;
    walk_clear(w, w->want), walk_clear(w, w->stats);
    for (int i = w->r.l0; observing && i < w->r.l1; i++)
        if (osh_wants(w->p, &w->p->match->linears[i]))
            w->stats[w->p->match->linears[i].input] = true;
    walk_add_observed(w, w->want, w->stats);
    if (observing) walk_want_routes(w);
    if (first_way && w->carries) walk_want_live_out(w, OF_ORIGINAL);
    else if (!first_way || w->r.merged)
        walk_want_live_out(w, w->r.merged || w->plain ? OF_BOTH : OF_QUANTIZED);
    walk_choose_nodes(w), visit_find_last(w);
    if (!first_way) walk_choose_routed(w);
    for (int first = w->r.first, end; first < w->r.first + w->r.n_nodes; first = end) {
        end = walk_segment_end(w, first);
        if (observing) OSH_TRY(walk_solve_segment(cx, w, first, end));
        OSH_TRY(walk_run_segment(cx, w, first, end, first_way));
        OSH_TRY(walk_add_nodes(cx, w, OSH_STEP_RELEASE, first, end - first));
        OSH_TRY(walk_add(cx, w, OSH_STEP_DROP, &(osh_step){0}, w->keep));
    }
done:
    return rc;
}

/* ---- the fold pass ---- */

/* Sets w->keep for the values that must stay in the activation store after a segment. The segment
 * ends at node `end`, and belongs to the fold pass, which collects statistics for factors. The
 * values are those that later nodes of the pass read. They are also the inputs and outputs of the
 * range that were in the store before the pass. */
static void walk_choose_kept_folding(walk *w, int end)
{
    for (int v = w->r.v0; v < w->r.v1; v++) {
        bool before = w->g->values[v].producer < w->r.first;
        w->keep[v] = walk_reads_from(w, end, v) ||
                     (before && (ints_have(w->r.live_in, w->r.n_live_in, v) ||
                                 ints_have(w->r.live_out, w->r.n_live_out, v)));
    }
}

static osh_status walk_fold_segment(osh_ctx *cx, walk *w, int first, int end)
{
    osh_status rc = OSH_OK;
    bool any = false;
    walk_choose_kept_folding(w, end);
    for (int i = first; i < end; i++) any |= walk_runs(w, i);
    if (any) {
        osh_step s = walk_make_step(w, first, end - first, NULL);
        s.fold = true;
        for (int x = w->r.v0; x < w->r.v1; x++) {
            int producer = w->g->values[x].producer;
            w->out[x] = w->keep[x] && producer >= first && producer < end && walk_runs(w, producer);
            w->consume[x] = w->in[x] && !w->keep[x];
        }
        OSH_TRY(walk_add(cx, w, OSH_STEP_LOAD, &s, NULL));
        OSH_TRY(walk_add(cx, w, OSH_STEP_PASS, &s, NULL));
    }
    OSH_TRY(walk_add_nodes(cx, w, OSH_STEP_RELEASE, first, end - first));
    OSH_TRY(walk_add(cx, w, OSH_STEP_DROP, &(osh_step){0}, w->keep));
done:
    return rc;
}

static osh_status walk_fold(osh_ctx *cx, walk *w, bool segments)
{
    osh_status rc = OSH_OK;
    walk_clear(w, w->want);
    for (int i = 0; i < w->p->rewrites->n_folds; i++)
        if (osh_fold_inside(w->p, &w->r, &w->p->rewrites->folds[i]))
            w->want[w->p->rewrites->folds[i].value] = true;
    walk_choose_nodes(w), visit_find_last(w);
    OSH_TRY(walk_add(cx, w, OSH_STEP_FOLD_OPEN, &(osh_step){0}, NULL));
    for (int first = w->r.first, end; segments && first < w->r.first + w->r.n_nodes; first = end) {
        end = walk_segment_end(w, first);
        OSH_TRY(walk_fold_segment(cx, w, first, end));
    }
    if (!segments) {
        osh_step s = walk_make_step(w, w->r.first, w->r.n_nodes, NULL);
        s.fold = true;
        OSH_TRY(walk_add(cx, w, OSH_STEP_LOAD, &s, NULL));
        OSH_TRY(walk_add(cx, w, OSH_STEP_PASS, &s, NULL));
    }
    OSH_TRY(walk_add(cx, w, OSH_STEP_FOLD, &(osh_step){0}, NULL));
done:
    return rc;
}

osh_status osh_visit_list(osh_ctx *cx, osh_steps *to, const osh_schedule *p, int index,
                          const osh_visit_state *done)
{
    osh_status rc = OSH_OK;
    walk w = {.p = p, .g = p->in->graph, .done = done, .to = to, .r = osh_range_at(p, index)};
    const osh_phases *how = &p->visits[index].how;
    /* true if no Linear of the range has statistics, so that no weight of the range changes */
    w.plain = !w.r.observe;
    if (walk_solved(&w, NULL)) {
        w.plain |= w.r.merged;
        w.r.observe = w.r.merged = false;
    }
    osh_steps_begin(to, &w.r);
    bool fold = w.r.fold && !(done && done->folded && done->folded(done->user, &w.r));
    if (!w.r.observe && !w.r.propagate && !fold) goto done;
    OSH_TRY(walk_init(cx, &w));
    if (fold) OSH_TRY(walk_fold(cx, &w, how->segments));
    if (how->segments) {
        if (w.r.observe || w.carries) OSH_TRY(walk_way(cx, &w, true));
        if (w.r.propagate && !w.r.merged) OSH_TRY(walk_way(cx, &w, false));
    } else {
        OSH_TRY(walk_whole(cx, &w, how->round_bytes));
    }
done:
    walk_deinit(cx, &w);
    return rc;
}
