/* visit.c - makes the list of the steps of a visit (the work on one subgraph). visit_walk.c chooses
 * the nodes, inputs and outputs of each step. */
#include "schedule/visit.h"
#include "rewrite/folds.h"
#include "schedule/looks.h"
#include "schedule/visit_walk.h"

/* ---- whole subgraphs, and rounds of statistics ---- */

/* Chooses the values of which a measurement collects statistics in the range. One round collects
 * all of them. */
static void walk_choose_measured(osh_visit_walk *w)
{
    osh_visit_clear(w, w->want);
    osh_visit_want_live_out(w, OSH_VISIT_BOTH);
    osh_visit_choose_nodes(w);
    for (int i = w->r.first; i < w->r.first + w->r.n_nodes; i++)
        if (w->p->measured[i].value >= 0 && osh_visit_runs(w, i))
            w->stats[w->p->measured[i].value] = true;
}

/* Chooses the inputs of Linears for one round (a pass that collects some of the Hessians). Takes
 * inputs whose statistics are still needed (wanted[input] >= from), as long as their Hessians fit
 * in round_bytes (0: no limit). The first Hessian is always taken. Sets *next to the node at which
 * the next round begins, or to the end of the range. */
static void walk_choose_round(osh_visit_walk *w, int64_t round_bytes, int from, int *next)
{
    int end = w->r.first + w->r.n_nodes;
    int64_t bytes = 0;
    osh_visit_clear(w, w->stats);
    *next = end;
    if (w->p->measured) walk_choose_measured(w);
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
static osh_status walk_look(osh_ctx *cx, osh_visit_walk *w, int first, int n)
{
    osh_status rc = OSH_OK;
    osh_visit_clear(w, w->look);
    if (!osh_looks_of(NULL, w->look, w->p, &w->r, w->stats)) goto done;
    if (n) {
        osh_visit_clear(w, w->want);
        osh_visit_add_observed(w, w->want, w->look);
        osh_visit_choose_nodes(w);
    }
    osh_step s = osh_visit_make_step(w, first, n, w->look);
    s.first_look = true;
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_LOAD, &s, NULL));
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_PASS, &s, NULL));
done:
    return rc;
}

static osh_status walk_round(osh_ctx *cx, osh_visit_walk *w, int next)
{
    osh_status rc = OSH_OK;
    bool last = next == w->r.first + w->r.n_nodes, outputs = last && (w->r.merged || w->carries);
    /* again: true if another pass, or learning by block, reads the inputs of the range after the
     * last round.
     * over: true if the inputs are not read after this round. */
    bool again = (w->r.propagate && !w->r.merged) || w->r.block, over = last && !again;
    if (osh_visit_solved(w, w->stats) && !outputs) goto done;
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_OPEN, &(osh_step){0}, w->stats));
    OSH_TRY(walk_look(cx, w, w->r.first, w->r.n_nodes));
    osh_visit_clear(w, w->want);
    osh_visit_add_observed(w, w->want, w->stats);
    osh_visit_want_routes(w);
    if (outputs) osh_visit_want_live_out(w, w->r.merged ? OSH_VISIT_BOTH : OSH_VISIT_ORIGINAL);
    osh_visit_choose_nodes(w);
    osh_step s = osh_visit_make_step(w, w->r.first, w->r.n_nodes, w->stats);
    for (int x = w->r.v0; x < w->r.v1; x++) {
        bool after = osh_visit_has(w->r.live_out, w->r.n_live_out, x) || w->target[x];
        w->out[x] = outputs && after && osh_visit_runs(w, w->g->values[x].producer) &&
                    (w->r.merged || osh_visit_is_original(w, x));
        w->consume[x] =
            (osh_visit_is_original(w, x) && !w->mixed[x] ? last : over) && w->in[x] && !after;
    }
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_LOAD, &s, w->stats));
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_PASS, &s, NULL));
    // Later rounds need the original weights, so the weights in memory stay unchanged until the
    // last round.
    s = (osh_step){.keep = !last};
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_SOLVE, &s, w->stats));
done:
    return rc;
}

/* Adds a pass of the original model's nodes. It is needed if all Linears of the subgraph are
 * already solved. */
static osh_status walk_original(osh_ctx *cx, osh_visit_walk *w)
{
    osh_status rc = OSH_OK;
    osh_visit_clear(w, w->want);
    osh_visit_want_live_out(w, OSH_VISIT_ORIGINAL);
    osh_visit_choose_nodes(w);
    osh_step s = osh_visit_make_step(w, w->r.first, w->r.n_nodes, NULL);
    for (int x = w->r.v0; x < w->r.v1; x++) {
        bool after = osh_visit_has(w->r.live_out, w->r.n_live_out, x);
        w->out[x] = after && osh_visit_runs(w, w->g->values[x].producer);
        w->consume[x] = w->in[x] && !after && osh_visit_is_original(w, x);
    }
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_LOAD, &s, NULL));
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_PASS, &s, NULL));
done:
    return rc;
}

static osh_status walk_propagate(osh_ctx *cx, osh_visit_walk *w)
{
    osh_status rc = OSH_OK;
    osh_visit_clear(w, w->want);
    osh_visit_want_live_out(w, w->plain ? OSH_VISIT_BOTH : OSH_VISIT_QUANTIZED);
    osh_visit_choose_nodes(w);
    osh_visit_choose_routed(w);
    osh_step s = osh_visit_make_step(w, w->r.first, w->r.n_nodes, NULL);
    s.again = true;
    osh_visit_take_routed(w, &s);
    // if the mixed values are inputs of this step, the store may free them after the step
    for (int x = w->r.v0; x < w->r.v1; x++) w->in[x] |= w->mixed[x];
    for (int x = w->r.v0; x < w->r.v1; x++) {
        bool after = osh_visit_has(w->r.live_out, w->r.n_live_out, x);
        w->out[x] = after && osh_visit_runs(w, w->g->values[x].producer);
        w->consume[x] = w->in[x] && !after;
    }
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_LOAD, &s, NULL));
    if (!w->plain) OSH_TRY(osh_visit_add_nodes(cx, w, OSH_STEP_RELOAD, w->r.first, w->r.n_nodes));
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_PASS, &s, NULL));
done:
    return rc;
}

static osh_status walk_whole(osh_ctx *cx, osh_visit_walk *w, int64_t round_bytes)
{
    osh_status rc = OSH_OK;
    for (int from = w->r.first, next; w->r.observe && from < w->r.first + w->r.n_nodes;
         from = next) {
        walk_choose_round(w, round_bytes, from, &next);
        OSH_TRY(walk_round(cx, w, next));
    }
    if (!w->r.observe && w->carries) OSH_TRY(walk_original(cx, w));
    if (w->r.propagate && !w->r.merged) OSH_TRY(walk_propagate(cx, w));
    OSH_TRY(osh_visit_add_nodes(cx, w, OSH_STEP_RELEASE, w->r.first, w->r.n_nodes));
done:
    return rc;
}

/* ---- segments of a subgraph ---- */

/* Returns node i. If node i belongs to the original model, returns the next node instead, which is
 * its counterpart in the quantized model. */
static const osh_node *quantized_of(const osh_visit_walk *w, int i)
{
    const osh_node *n = &w->g->nodes[i];
    return n->original ? n + 1 : n;
}

static bool visit_is_linear(const osh_node *n) { return osh_node_is(n, OSH_OP_LINEAR); }

/* Returns the index of the first node after the segment that begins at node `first`. A segment
 * begins with Linears that read the same value, and ends before the next Linear. */
static int walk_segment_end(const osh_visit_walk *w, int first)
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
static bool walk_segment_stats(osh_visit_walk *w, int first, int end)
{
    bool any = false;
    osh_visit_clear(w, w->stats);
    for (int i = w->r.l0; i < w->r.l1; i++) {
        const osh_linear *l = &w->p->match->linears[i];
        if (!osh_wants(w->p, l) || l->node < first || l->node >= end || w->wanted[l->input] < first)
            continue;
        any = w->stats[l->input] = true;
    }
    return any;
}

/* True if a Linear at node `end` or later needs a statistic that is computed from value v. */
static bool statistic_waits_for(const osh_visit_walk *w, int end, int v)
{
    for (int i = 0; i < w->p->rewrites->n_inherits; i++) {
        const osh_inherit *h = &w->p->rewrites->inherits[i];
        bool mine = h->linear >= w->r.l0 && h->linear < w->r.l1;
        if (mine && osh_visit_observed(w, h->from) == v &&
            w->wanted[w->p->match->linears[h->linear].input] >= end)
            return true;
    }
    int quantized_of = w->g->values[v].quantized;
    if (quantized_of >= 0)
        return w->wanted[quantized_of] >= end &&
               (w->shift[quantized_of] || osh_visit_observed(w, quantized_of) == v);
    return w->wanted[v] >= end && osh_visit_observed(w, v) == v;
}

/* Sets w->keep for the values that must stay in the activation store after a segment that ends at
 * node `end`. These are values that later nodes of this pass, a later pass, or later subgraphs
 * read. */
static void walk_choose_kept(osh_visit_walk *w, int end, bool first_way)
{
    // true if a second pass over the range follows; that pass uses the solved weights
    bool twice = first_way && w->r.propagate && !w->r.merged;
    for (int v = w->r.v0; v < w->r.v1; v++) {
        bool after = osh_visit_has(w->r.live_out, w->r.n_live_out, v),
             before = osh_visit_has(w->r.live_in, w->r.n_live_in, v);
        bool made = w->g->values[v].producer >= w->r.first,
             again = twice && !osh_visit_is_original(w, v);
        w->keep[v] = osh_visit_reads_from(w, end, v) ||
                     (first_way && w->r.observe && statistic_waits_for(w, end, v)) ||
                     (again && before) || (after && !(again && made));
    }
    for (int v = w->r.v0; v < w->r.v1; v++) {
        int route = w->keep[v] ? osh_visit_route_of(w, v) : -1;
        if (route >= w->r.v0) w->keep[route] = true;
    }
}

static osh_status walk_solve_segment(osh_ctx *cx, osh_visit_walk *w, int first, int end)
{
    osh_status rc = OSH_OK;
    if (!walk_segment_stats(w, first, end)) goto done;
    if (osh_visit_solved(w, w->stats)) goto done;
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_OPEN, &(osh_step){0}, w->stats));
    OSH_TRY(walk_look(cx, w, first, 0));
    // this step runs no nodes, and only collects statistics from values in the activation store
    osh_step s = osh_visit_make_step(w, first, 0, w->stats);
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_PASS, &s, NULL));
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_LOAD, &s, w->stats));
    s = (osh_step){.keep = true};
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_SOLVE, &s, w->stats));
done:
    return rc;
}

static osh_status walk_run_segment(osh_ctx *cx, osh_visit_walk *w, int first, int end,
                                   bool first_way)
{
    osh_status rc = OSH_OK;
    bool any = false;
    for (int i = first; i < end; i++) any |= osh_visit_runs(w, i);
    walk_choose_kept(w, end, first_way);
    if (!any) goto done;
    osh_step s = osh_visit_make_step(w, first, end - first, NULL);
    s.again = !first_way;
    if (!first_way) osh_visit_take_routed(w, &s);
    for (int x = w->r.v0; x < w->r.v1; x++) {
        int producer = w->g->values[x].producer;
        w->out[x] = w->keep[x] && producer >= first && producer < end &&
                    osh_visit_runs(w, producer);
        w->consume[x] = w->in[x] && !w->keep[x];
    }
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_LOAD, &s, NULL));
    if (!first_way && !w->plain)
        OSH_TRY(osh_visit_add_nodes(cx, w, OSH_STEP_RELOAD, first, end - first));
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_PASS, &s, NULL));
done:
    return rc;
}

/* Adds the steps of one pass over the range. The pass runs in segments. first_way: true for the
 * pass with the original weights, false for the pass with the solved weights. The pass with the
 * original weights also collects statistics, and computes the values of the original model. */
static osh_status walk_way(osh_ctx *cx, osh_visit_walk *w, bool first_way)
{
    osh_status rc = OSH_OK;
    bool observing = first_way && w->r.observe;
    osh_visit_clear(w, w->want), osh_visit_clear(w, w->stats);
    for (int i = w->r.l0; observing && i < w->r.l1; i++)
        if (osh_wants(w->p, &w->p->match->linears[i]))
            w->stats[w->p->match->linears[i].input] = true;
    osh_visit_add_observed(w, w->want, w->stats);
    if (observing) osh_visit_want_routes(w);
    if (first_way && w->carries) osh_visit_want_live_out(w, OSH_VISIT_ORIGINAL);
    else if (!first_way || w->r.merged)
        osh_visit_want_live_out(w, w->r.merged || w->plain ? OSH_VISIT_BOTH : OSH_VISIT_QUANTIZED);
    osh_visit_choose_nodes(w), osh_visit_find_last(w);
    if (!first_way) osh_visit_choose_routed(w);
    for (int first = w->r.first, end; first < w->r.first + w->r.n_nodes; first = end) {
        end = walk_segment_end(w, first);
        if (observing) OSH_TRY(walk_solve_segment(cx, w, first, end));
        OSH_TRY(walk_run_segment(cx, w, first, end, first_way));
        OSH_TRY(osh_visit_add_nodes(cx, w, OSH_STEP_RELEASE, first, end - first));
        OSH_TRY(osh_visit_add(cx, w, OSH_STEP_DROP, &(osh_step){0}, w->keep));
    }
done:
    return rc;
}

/* ---- the fold pass ---- */

/* Sets w->keep for the values that must stay in the activation store after a segment. The segment
 * ends at node `end`, and belongs to the fold pass, which collects statistics for factors. Values
 * of two kinds must stay: values that later nodes of the pass read, and the inputs and outputs of
 * the range that were in the store before the pass. */
static void walk_choose_kept_folding(osh_visit_walk *w, int end)
{
    for (int v = w->r.v0; v < w->r.v1; v++) {
        bool before = w->g->values[v].producer < w->r.first;
        w->keep[v] = osh_visit_reads_from(w, end, v) ||
                     (before && (osh_visit_has(w->r.live_in, w->r.n_live_in, v) ||
                                 osh_visit_has(w->r.live_out, w->r.n_live_out, v)));
    }
}

static osh_status walk_fold_segment(osh_ctx *cx, osh_visit_walk *w, int first, int end)
{
    osh_status rc = OSH_OK;
    bool any = false;
    walk_choose_kept_folding(w, end);
    for (int i = first; i < end; i++) any |= osh_visit_runs(w, i);
    if (any) {
        osh_step s = osh_visit_make_step(w, first, end - first, NULL);
        s.fold = true;
        for (int x = w->r.v0; x < w->r.v1; x++) {
            int producer = w->g->values[x].producer;
            w->out[x] = w->keep[x] && producer >= first && producer < end &&
                    osh_visit_runs(w, producer);
            w->consume[x] = w->in[x] && !w->keep[x];
        }
        OSH_TRY(osh_visit_add(cx, w, OSH_STEP_LOAD, &s, NULL));
        OSH_TRY(osh_visit_add(cx, w, OSH_STEP_PASS, &s, NULL));
    }
    OSH_TRY(osh_visit_add_nodes(cx, w, OSH_STEP_RELEASE, first, end - first));
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_DROP, &(osh_step){0}, w->keep));
done:
    return rc;
}

static osh_status walk_fold(osh_ctx *cx, osh_visit_walk *w, bool segments)
{
    osh_status rc = OSH_OK;
    osh_visit_clear(w, w->want);
    for (int i = 0; i < w->p->rewrites->n_folds; i++)
        if (osh_fold_inside(w->p, &w->r, &w->p->rewrites->folds[i]))
            w->want[w->p->rewrites->folds[i].value] = true;
    osh_visit_choose_nodes(w), osh_visit_find_last(w);
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_FOLD_OPEN, &(osh_step){0}, NULL));
    for (int first = w->r.first, end; segments && first < w->r.first + w->r.n_nodes; first = end) {
        end = walk_segment_end(w, first);
        OSH_TRY(walk_fold_segment(cx, w, first, end));
    }
    if (!segments) {
        osh_step s = osh_visit_make_step(w, w->r.first, w->r.n_nodes, NULL);
        s.fold = true;
        OSH_TRY(osh_visit_add(cx, w, OSH_STEP_LOAD, &s, NULL));
        OSH_TRY(osh_visit_add(cx, w, OSH_STEP_PASS, &s, NULL));
    }
    OSH_TRY(osh_visit_add(cx, w, OSH_STEP_FOLD, &(osh_step){0}, NULL));
done:
    return rc;
}

osh_status osh_visit_list(osh_ctx *cx, osh_steps *to, const osh_schedule *p, int index,
                          const osh_visit_state *done)
{
    osh_status rc = OSH_OK;
    osh_visit_walk w = {.p = p, .g = p->in->graph, .done = done, .to = to,
                        .r = osh_range_at(p, index)};
    const osh_phases *how = &p->visits[index].how;
    // true if no weight of the range changes
    w.plain = !w.r.observe || p->measured;
    if (osh_visit_solved(&w, NULL)) {
        w.plain |= w.r.merged;
        w.r.observe = w.r.merged = false;
    }
    osh_steps_begin(to, &w.r);
    bool fold = w.r.fold && !(done && done->folded && done->folded(done->user, &w.r));
    if (!w.r.observe && !w.r.propagate && !fold) goto done;
    OSH_TRY(osh_visit_init(cx, &w));
    if (fold) OSH_TRY(walk_fold(cx, &w, how->segments));
    if (how->segments) {
        if (w.r.observe || w.carries) OSH_TRY(walk_way(cx, &w, true));
        if (w.r.propagate && !w.r.merged) OSH_TRY(walk_way(cx, &w, false));
    } else {
        OSH_TRY(walk_whole(cx, &w, how->round_bytes));
    }
done:
    osh_visit_deinit(cx, &w);
    return rc;
}
