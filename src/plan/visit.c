/* visit.c - see visit.h. */
#include "plan/visit.h"
#include "graph/routed.h"
#include "plan/blocks.h"
#include "plan/folds.h"
#include "plan/looks.h"
#include "plan/lookup.h"
#include "plan/passthrough.h"

#include <string.h>

enum { N_LISTS = 10 };
struct osh_visit_lists {
    bool *of[N_LISTS]; // own [values]; between walks none is set
    int *wanted;       // own [values]; between walks -1
};

typedef struct walk {
    const osh_plan *p;
    const osh_graph *g;
    const osh_visitor *v;
    osh_range r;
    bool plain;   // later subgraphs see the weights as they were
    bool carries; // it makes values of the original model, which a pass through solved weights does not
    bool *run;    // own: [r.n_nodes]
    bool *routed; // own: [r.n_nodes]; of the way through the solved weights
    osh_visit_lists *made; // own, where the visitor brings none
    osh_visit_lists *lists; // view: has what follows
    int *wanted; // [values] node of the first Linear that wants statistics of it; -1: none
    int *last;   // own [r.v1 - r.v0]: the last node that runs and reads the value; -1: none. See find_last
    bool *want, *stats, *shift, *in, *out, *consume, *keep; // [values]; shift: the original's are compared
    bool *look;   // [values] looked at for the first time
    bool *target; // [values] that a block learns to come near to
    bool *mixed;  // [values] of the original model that come into it and that it reads
} walk;

osh_status osh_visit_lists_new(osh_ctx *cx, osh_visit_lists **out, const osh_graph *g)
{
    osh_status rc = OSH_OK;
    osh_visit_lists *l = NULL; // own
    OSH_NEW(cx, l, 1);
    for (int i = 0; i < N_LISTS; i++) OSH_NEW(cx, l->of[i], g->n_values);
    OSH_NEW(cx, l->wanted, g->n_values);
    for (int v = 0; v < g->n_values; v++) l->wanted[v] = -1;
    *out = l, l = NULL; // give
done:
    osh_visit_lists_free(cx, l);
    return rc;
}

void osh_visit_lists_free(osh_ctx *cx, osh_visit_lists *l)
{
    if (!l) return;
    for (int i = 0; i < N_LISTS; i++) osh_free(cx, l->of[i]);
    osh_free(cx, l->wanted);
    osh_free(cx, l);
}

static bool is_original(const walk *w, int v) { return w->g->values[v].quantized >= 0; }

static int observed(const walk *w, int v) { return osh_observed(w->g, w->r.same, v); }

static osh_status walk_init(osh_ctx *cx, walk *w)
{
    osh_status rc = OSH_OK;
    bool **lists[N_LISTS] = {&w->want, &w->stats,   &w->shift, &w->in,    &w->out,
                             &w->consume, &w->keep, &w->look,  &w->target, &w->mixed};
    OSH_NEW(cx, w->run, w->r.n_nodes);
    OSH_NEW(cx, w->routed, w->r.n_nodes);
    OSH_NEW(cx, w->last, w->r.v1 - w->r.v0);
    if (!w->v->lists) OSH_TRY(osh_visit_lists_new(cx, &w->made, w->g));
    w->lists = w->made ? w->made : w->v->lists;
    for (int i = 0; i < N_LISTS; i++) *lists[i] = w->lists->of[i];
    w->wanted = w->lists->wanted;
    for (int i = w->r.l1 - 1; i >= w->r.l0; i--) {
        const osh_linear *l = &w->p->linears[i];
        if (l->wants) w->wanted[l->input] = l->node;
        if (l->shift) w->shift[l->input] = true;
    }
    w->carries = w->r.block && w->r.observe;
    if (w->carries) osh_block_targets(w->p, &w->r, w->target), osh_block_mixes(w->p, &w->r, w->mixed);
    for (int i = 0; i < w->r.n_live_out; i++)
        w->carries |= w->r.propagate && !w->r.merged && !w->plain && is_original(w, w->r.live_out[i]) &&
                      w->g->values[w->r.live_out[i]].producer >= w->r.first;
done:
    return rc;
}

static void clear(const walk *w, bool *values)
{
    memset(values + w->r.v0, 0, (size_t)(w->r.v1 - w->r.v0) * sizeof *values);
}

/* The lists are as they were: a range has marked its own values alone. */
static void walk_deinit(osh_ctx *cx, walk *w)
{
    for (int i = 0; w->lists && i < N_LISTS; i++) clear(w, w->lists->of[i]);
    for (int v = w->r.v0; w->lists && v < w->r.v1; v++) w->wanted[v] = -1;
    osh_visit_lists_free(cx, w->made);
    osh_free(cx, w->run);
    osh_free(cx, w->routed);
    osh_free(cx, w->last);
}

static bool has(const int *list, int n, int v)
{
    for (int i = 0; i < n; i++)
        if (list[i] == v) return true;
    return false;
}

static bool runs(const walk *w, int node) // a node of the whole graph
{
    return node >= w->r.first && node < w->r.first + w->r.n_nodes && w->run[node - w->r.first];
}

/* The last reader of each value among the nodes that run, which needed() has chosen. */
static void find_last(walk *w)
{
    for (int v = w->r.v0; v < w->r.v1; v++) w->last[v - w->r.v0] = -1;
    for (int i = w->r.first; i < w->r.first + w->r.n_nodes; i++)
        for (int k = 0; runs(w, i) && k < w->g->nodes[i].op->n_in; k++)
            if (w->g->nodes[i].in[k] >= 0) w->last[w->g->nodes[i].in[k] - w->r.v0] = i;
}

/* A running node of [first, end of the range) reads v. */
static bool read_from(const walk *w, int first, int v) { return w->last[v - w->r.v0] >= first; }

/* The values that statistics are made of. */
static void add_observed(const walk *w, bool *values, const bool *stats)
{
    for (int i = 0; i < w->p->n_inherits; i++) {
        const osh_inherit *h = &w->p->inherits[i];
        bool mine = h->linear >= w->r.l0 && h->linear < w->r.l1;
        int of = observed(w, h->from);
        if (!mine || of < w->r.v0 || of >= w->r.v1) continue;
        if (stats[w->p->linears[h->linear].input] || stats[h->from]) values[of] = true;
    }
    for (int v = w->r.v0; v < w->r.v1; v++) {
        if (!stats[v]) continue;
        values[observed(w, v)] = true;
        if (w->shift[v] && stats != w->look) values[w->g->values[v].original] = true;
    }
    for (int i = w->r.l0; w->p->outputs && stats != w->look && i < w->r.l1; i++) {
        const osh_linear *l = &w->p->linears[i];
        if (!l->elsewhere && l->ranged[OSH_OUTPUT] >= 0 && stats[l->input]) values[l->ranged[OSH_OUTPUT]] = true;
    }
}

/* Where statistics are collected, where each token goes is counted (run/coverage.h). */
static void want_routes(walk *w)
{
    for (int i = w->r.first; i < w->r.first + w->r.n_nodes; i++)
        if (osh_node_routes(&w->g->nodes[i]) && !w->g->nodes[i].original) w->want[w->g->nodes[i].out[0]] = true;
}

/* in: what the running nodes of the step, and its statistics, take from outside. */
static osh_step make_step(walk *w, int first, int n, const bool *stats)
{
    clear(w, w->in), clear(w, w->out), clear(w, w->consume);
    for (int i = first; i < first + n; i++)
        for (int k = 0; runs(w, i) && k < w->g->nodes[i].op->n_in; k++) w->in[w->g->nodes[i].in[k]] = true;
    if (stats) add_observed(w, w->in, stats);
    for (int v = w->r.v0; v < w->r.v1; v++) {
        int producer = w->g->values[v].producer;
        if (producer >= first && producer < first + n && runs(w, producer)) w->in[v] = false;
    }
    return (osh_step){.first = first, .n = n, .run = w->run + (first - w->r.first), .in = w->in, .out = w->out,
                      .consume = w->consume, .observe = stats != NULL};
}

typedef enum { OF_BOTH, OF_ORIGINAL, OF_QUANTIZED } whose; // both: they are the same, or made in one pass

static void want_live_out(walk *w, whose which)
{
    for (int i = 0; i < w->r.n_live_out; i++) {
        int v = w->r.live_out[i];
        if (which == OF_BOTH || is_original(w, v) == (which == OF_ORIGINAL)) w->want[v] = true;
    }
    for (int v = w->r.v0; v < w->r.v1 && which != OF_QUANTIZED; v++) w->want[v] |= w->target[v];
}

/* Of the way behind the solve: nothing but their combine reads what these nodes make, and it runs, too. */
static void choose_routed(walk *w)
{
    osh_routed_choose(w->routed, w->g, w->r.first, w->r.n_nodes, w->run);
}

/* The step's part of them, whose rows the router's weights tell. */
static void take_routed(walk *w, osh_step *s)
{
    s->routed = w->routed + (s->first - w->r.first);
    for (int i = 0; i < s->n; i++) {
        if (!s->routed[i]) continue;
        int route = w->g->nodes[osh_routed_to(w->g, s->first + i)].in[2];
        if (w->g->values[route].producer < s->first) w->in[route] = true;
    }
}

static void needed(walk *w) { osh_exec_needed(w->run, w->g, w->r.first, w->r.n_nodes, w->want); }

/* ---- whole, and in rounds ---- */

/* Input values of the Linears that wait for statistics, from node `from` on, as many as fit into the visit's bytes for
 * a round: *next is the node where the following round begins, or the range's end. */
static void choose_round(walk *w, int64_t round_bytes, int from, int *next)
{
    int end = w->r.first + w->r.n_nodes;
    int64_t bytes = 0;
    clear(w, w->stats);
    *next = end;
    for (int i = w->r.l0; i < w->r.l1; i++) {
        const osh_linear *l = &w->p->linears[i];
        if (!l->wants || w->wanted[l->input] < from || w->stats[l->input]) continue;
        int64_t more = l->wants & OSH_STAT_HESSIAN ? l->I * l->I * 4 * (1 + l->shift) : 0;
        if (round_bytes && bytes && bytes + more > round_bytes) {
            *next = l->node;
            break;
        }
        w->stats[l->input] = true, bytes += more;
    }
}

/* What looks twice at values that are not kept for it: the first time, before the pass that all statistics see. n 0:
 * the values come in. */
static osh_status walk_look(osh_ctx *cx, walk *w, int first, int n)
{
    osh_status rc = OSH_OK;
    const osh_visitor *v = w->v;
    clear(w, w->look);
    if (!osh_looks_of(NULL, w->look, w->p, &w->r, w->stats)) goto done;
    if (n) {
        clear(w, w->want);
        add_observed(w, w->want, w->look);
        needed(w);
    }
    osh_step s = make_step(w, first, n, w->look);
    s.first_look = true;
    if (v->load) OSH_TRY(v->load(cx, v->user, &w->r, &s, NULL));
    if (v->pass) OSH_TRY(v->pass(cx, v->user, &w->r, &s));
done:
    return rc;
}

static osh_status walk_round(osh_ctx *cx, walk *w, int next)
{
    osh_status rc = OSH_OK;
    const osh_visitor *v = w->v;
    bool last = next == w->r.first + w->r.n_nodes, outputs = last && (w->r.merged || w->carries);
    bool again = (w->r.propagate && !w->r.merged) || w->r.block, over = last && !again; // values that came in are read
    if (v->solved && v->solved(v->user, &w->r, w->stats) && !outputs) goto done;
    if (v->open) OSH_TRY(v->open(cx, v->user, &w->r, w->stats));
    OSH_TRY(walk_look(cx, w, w->r.first, w->r.n_nodes));
    clear(w, w->want);
    add_observed(w, w->want, w->stats);
    want_routes(w);
    if (outputs) want_live_out(w, w->r.merged ? OF_BOTH : OF_ORIGINAL);
    needed(w);
    osh_step s = make_step(w, w->r.first, w->r.n_nodes, w->stats);
    for (int x = w->r.v0; x < w->r.v1; x++) {
        bool after = has(w->r.live_out, w->r.n_live_out, x) || w->target[x];
        w->out[x] = outputs && after && runs(w, w->g->values[x].producer) && (w->r.merged || is_original(w, x));
        w->consume[x] = (is_original(w, x) && !w->mixed[x] ? last : over) && w->in[x] && !after;
    }
    if (v->load) OSH_TRY(v->load(cx, v->user, &w->r, &s, w->stats));
    if (v->pass) OSH_TRY(v->pass(cx, v->user, &w->r, &s));
    // later rounds run through the weights as they were
    if (v->solve) OSH_TRY(v->solve(cx, v->user, &w->r, w->stats, !last));
done:
    return rc;
}

/* Of a subgraph that is solved: what the original model makes of it. */
static osh_status walk_original(osh_ctx *cx, walk *w)
{
    osh_status rc = OSH_OK;
    const osh_visitor *v = w->v;
    clear(w, w->want);
    want_live_out(w, OF_ORIGINAL);
    needed(w);
    osh_step s = make_step(w, w->r.first, w->r.n_nodes, NULL);
    for (int x = w->r.v0; x < w->r.v1; x++) {
        bool after = has(w->r.live_out, w->r.n_live_out, x);
        w->out[x] = after && runs(w, w->g->values[x].producer);
        w->consume[x] = w->in[x] && !after && is_original(w, x);
    }
    if (v->load) OSH_TRY(v->load(cx, v->user, &w->r, &s, NULL));
    if (v->pass) OSH_TRY(v->pass(cx, v->user, &w->r, &s));
done:
    return rc;
}

static osh_status walk_propagate(osh_ctx *cx, walk *w)
{
    osh_status rc = OSH_OK;
    const osh_visitor *v = w->v;
    clear(w, w->want);
    want_live_out(w, w->plain ? OF_BOTH : OF_QUANTIZED);
    needed(w);
    choose_routed(w);
    osh_step s = make_step(w, w->r.first, w->r.n_nodes, NULL);
    s.again = true;
    take_routed(w, &s);
    for (int x = w->r.v0; x < w->r.v1; x++) w->in[x] |= w->mixed[x]; // no later step has a use for it
    for (int x = w->r.v0; x < w->r.v1; x++) {
        bool after = has(w->r.live_out, w->r.n_live_out, x);
        w->out[x] = after && runs(w, w->g->values[x].producer);
        w->consume[x] = w->in[x] && !after;
    }
    if (v->load) OSH_TRY(v->load(cx, v->user, &w->r, &s, NULL));
    if (!w->plain && v->reload) OSH_TRY(v->reload(cx, v->user, &w->r, w->r.first, w->r.n_nodes));
    if (v->pass) OSH_TRY(v->pass(cx, v->user, &w->r, &s));
done:
    return rc;
}

static osh_status walk_whole(osh_ctx *cx, walk *w, int64_t round_bytes)
{
    osh_status rc = OSH_OK;
    for (int from = w->r.first, next; w->r.observe && from < w->r.first + w->r.n_nodes; from = next) {
        choose_round(w, round_bytes, from, &next);
        OSH_TRY(walk_round(cx, w, next));
    }
    if (!w->r.observe && w->carries) OSH_TRY(walk_original(cx, w));
    if (w->r.propagate && !w->r.merged) OSH_TRY(walk_propagate(cx, w));
    if (w->v->release) OSH_TRY(w->v->release(cx, w->v->user, w->r.first, w->r.n_nodes));
done:
    return rc;
}

/* ---- segments ---- */

/* Node i, or the one behind it that it is the original of. */
static const osh_node *beside(const walk *w, int i)
{
    const osh_node *n = &w->g->nodes[i];
    return n->original ? n + 1 : n;
}

static bool is_linear(const osh_node *n) { return osh_node_is(n, "linear"); }

/* Where the segment that begins at first ends: before the next group of Linears with one input. */
static int segment_end(const walk *w, int first)
{
    int end = w->r.first + w->r.n_nodes, i = first;
    const osh_node *lead = beside(w, first);
    while (i < end && is_linear(beside(w, i)) && beside(w, i)->in[0] == lead->in[0]) i++;
    while (i < end && (beside(w, i) == lead || !is_linear(beside(w, i)))) i++;
    return i;
}

/* Inputs of the Linears in [first, end) that wait for statistics, but for those that an earlier segment has collected
 * them of; false: there are none. */
static bool segment_stats(walk *w, int first, int end)
{
    bool any = false;
    clear(w, w->stats);
    for (int i = w->r.l0; i < w->r.l1; i++) {
        const osh_linear *l = &w->p->linears[i];
        if (!l->wants || l->node < first || l->node >= end || w->wanted[l->input] < first) continue;
        any = w->stats[l->input] = true;
    }
    return any;
}

/* A statistic that waits behind node `end` is made of v. */
static bool waits_for(const walk *w, int end, int v)
{
    for (int i = 0; i < w->p->n_inherits; i++) {
        const osh_inherit *h = &w->p->inherits[i];
        bool mine = h->linear >= w->r.l0 && h->linear < w->r.l1;
        if (mine && observed(w, h->from) == v && w->wanted[w->p->linears[h->linear].input] >= end) return true;
    }
    int beside = w->g->values[v].quantized;
    if (beside >= 0) return w->wanted[beside] >= end && (w->shift[beside] || observed(w, beside) == v);
    return w->wanted[v] >= end && observed(w, v) == v;
}

/* Values that something behind node `end` of this way through the range reads, or that come after it. */
static void choose_kept(walk *w, int end, bool first_way)
{
    bool twice = first_way && w->r.propagate && !w->r.merged; // another way through follows
    for (int v = w->r.v0; v < w->r.v1; v++) {
        bool after = has(w->r.live_out, w->r.n_live_out, v), before = has(w->r.live_in, w->r.n_live_in, v);
        bool made = w->g->values[v].producer >= w->r.first, again = twice && !is_original(w, v);
        w->keep[v] = read_from(w, end, v) || (first_way && w->r.observe && waits_for(w, end, v)) || (again && before) ||
                     (after && !(again && made));
    }
}

static osh_status solve_segment(osh_ctx *cx, walk *w, int first, int end)
{
    osh_status rc = OSH_OK;
    const osh_visitor *v = w->v;
    if (!segment_stats(w, first, end)) goto done;
    if (v->solved && v->solved(v->user, &w->r, w->stats)) goto done;
    if (v->open) OSH_TRY(v->open(cx, v->user, &w->r, w->stats));
    OSH_TRY(walk_look(cx, w, first, 0));
    osh_step s = make_step(w, first, 0, w->stats); // no node: the statistics of what comes in
    if (v->pass) OSH_TRY(v->pass(cx, v->user, &w->r, &s));
    if (v->load) OSH_TRY(v->load(cx, v->user, &w->r, &s, w->stats));
    if (v->solve) OSH_TRY(v->solve(cx, v->user, &w->r, w->stats, true));
done:
    return rc;
}

static osh_status run_segment(osh_ctx *cx, walk *w, int first, int end, bool first_way)
{
    osh_status rc = OSH_OK;
    const osh_visitor *v = w->v;
    bool any = false;
    for (int i = first; i < end; i++) any |= runs(w, i);
    choose_kept(w, end, first_way);
    if (!any) goto done;
    osh_step s = make_step(w, first, end - first, NULL);
    s.again = !first_way;
    if (!first_way) take_routed(w, &s);
    for (int x = w->r.v0; x < w->r.v1; x++) {
        int producer = w->g->values[x].producer;
        w->out[x] = w->keep[x] && producer >= first && producer < end && runs(w, producer);
        w->consume[x] = w->in[x] && !w->keep[x];
    }
    if (v->load) OSH_TRY(v->load(cx, v->user, &w->r, &s, NULL));
    if (!first_way && !w->plain && v->reload) OSH_TRY(v->reload(cx, v->user, &w->r, first, end - first));
    if (v->pass) OSH_TRY(v->pass(cx, v->user, &w->r, &s));
done:
    return rc;
}

/* One way through the range: through the weights as they were, for the statistics and what the original model makes, or
 * through the solved ones. */
static osh_status walk_way(osh_ctx *cx, walk *w, bool first_way)
{
    osh_status rc = OSH_OK;
    bool observing = first_way && w->r.observe;
    clear(w, w->want), clear(w, w->stats);
    for (int i = w->r.l0; observing && i < w->r.l1; i++)
        if (w->p->linears[i].wants) w->stats[w->p->linears[i].input] = true;
    add_observed(w, w->want, w->stats);
    if (observing) want_routes(w);
    if (first_way && w->carries) want_live_out(w, OF_ORIGINAL);
    else if (!first_way || w->r.merged) want_live_out(w, w->r.merged || w->plain ? OF_BOTH : OF_QUANTIZED);
    needed(w), find_last(w);
    if (!first_way) choose_routed(w);
    for (int first = w->r.first, end; first < w->r.first + w->r.n_nodes; first = end) {
        end = segment_end(w, first);
        if (observing) OSH_TRY(solve_segment(cx, w, first, end));
        OSH_TRY(run_segment(cx, w, first, end, first_way));
        if (w->v->release) OSH_TRY(w->v->release(cx, w->v->user, first, end - first));
        if (w->v->drop) OSH_TRY(w->v->drop(cx, w->v->user, w->keep));
    }
done:
    return rc;
}

/* ---- factors ---- */

/* What a part of the way leaves: values that come into the range or pass it by, and what the rest of the way reads. */
static void choose_kept_folding(walk *w, int end)
{
    for (int v = w->r.v0; v < w->r.v1; v++) {
        bool before = w->g->values[v].producer < w->r.first;
        w->keep[v] = read_from(w, end, v) || (before && (has(w->r.live_in, w->r.n_live_in, v) ||
                                                         has(w->r.live_out, w->r.n_live_out, v)));
    }
}

static osh_status fold_segment(osh_ctx *cx, walk *w, int first, int end)
{
    osh_status rc = OSH_OK;
    bool any = false;
    choose_kept_folding(w, end);
    for (int i = first; i < end; i++) any |= runs(w, i);
    if (any) {
        osh_step s = make_step(w, first, end - first, NULL);
        s.fold = true;
        for (int x = w->r.v0; x < w->r.v1; x++) {
            int producer = w->g->values[x].producer;
            w->out[x] = w->keep[x] && producer >= first && producer < end && runs(w, producer);
            w->consume[x] = w->in[x] && !w->keep[x];
        }
        if (w->v->load) OSH_TRY(w->v->load(cx, w->v->user, &w->r, &s, NULL));
        if (w->v->pass) OSH_TRY(w->v->pass(cx, w->v->user, &w->r, &s));
    }
    if (w->v->release) OSH_TRY(w->v->release(cx, w->v->user, first, end - first));
    if (w->v->drop) OSH_TRY(w->v->drop(cx, w->v->user, w->keep));
done:
    return rc;
}

static osh_status walk_fold(osh_ctx *cx, walk *w, bool segments)
{
    osh_status rc = OSH_OK;
    const osh_visitor *v = w->v;
    clear(w, w->want);
    for (int i = 0; i < w->p->n_folds; i++)
        if (osh_fold_inside(&w->r, &w->p->folds[i])) w->want[w->p->folds[i].value] = true;
    needed(w), find_last(w);
    if (v->fold_open) OSH_TRY(v->fold_open(cx, v->user, &w->r));
    for (int first = w->r.first, end; segments && first < w->r.first + w->r.n_nodes; first = end) {
        end = segment_end(w, first);
        OSH_TRY(fold_segment(cx, w, first, end));
    }
    if (!segments) {
        osh_step s = make_step(w, w->r.first, w->r.n_nodes, NULL);
        s.fold = true;
        if (v->load) OSH_TRY(v->load(cx, v->user, &w->r, &s, NULL));
        if (v->pass) OSH_TRY(v->pass(cx, v->user, &w->r, &s));
    }
    if (v->fold) OSH_TRY(v->fold(cx, v->user, &w->r));
done:
    return rc;
}

osh_status osh_visit_walk(osh_ctx *cx, const osh_plan *p, int index, const osh_visitor *v)
{
    osh_status rc = OSH_OK;
    walk w = {.p = p, .g = p->graph, .v = v, .r = osh_range_at(p, index)};
    const osh_visit *how = &p->memory.visits[index];
    w.plain = !w.r.observe; // nothing in it changes
    if (v->solved && v->solved(v->user, &w.r, NULL)) { // by an earlier run
        w.plain |= w.r.merged;
        w.r.observe = w.r.merged = false;
    }
    bool fold = w.r.fold && !(v->folded && v->folded(v->user, &w.r));
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
