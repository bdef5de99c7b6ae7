/* visit.c - see visit.h. */
#include "plan/visit.h"

#include <string.h>

int64_t osh_memory_kept(const osh_plan *p, osh_tier tier)
{
    if (p->on_device || tier == OSH_TIER_HOST) return 0; // of a card: they are copied inside it, or from it
    return tier == OSH_TIER_DEVICE ? p->n_batches : p->memory.n_kept;
}

int osh_n_ranges(const osh_plan *p)
{
    return !p->parts ? 0 : p->pipeline == OSH_PIPELINE_BASIC ? 1 : p->parts->n;
}

static void widen(int *first, int *end, int i)
{
    if (i < 0) return;
    if (*end == 0 || i < *first) *first = i;
    if (i >= *end) *end = i + 1;
}

/* A model of experts has many of each, and what is done for a range must not look at all of them. */
static void find_ends(osh_range *r, const osh_plan *p)
{
    for (int i = 0; i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        if (l->subgraph < r->first_subgraph || l->subgraph >= r->first_subgraph + r->n_subgraphs) continue;
        widen(&r->l0, &r->l1, i), widen(&r->v0, &r->v1, l->input), widen(&r->w0, &r->w1, l->weight);
    }
    for (int i = r->first; i < r->first + r->n_nodes; i++) {
        const osh_node *n = &p->graph->nodes[i];
        for (int k = 0; k < n->op->n_in; k++) widen(&r->v0, &r->v1, n->in[k]);
        for (int k = 0; k < n->op->n_out; k++) widen(&r->v0, &r->v1, n->out[k]);
        for (int k = 0; k < n->op->n_weights; k++) widen(&r->w0, &r->w1, n->w[k]);
    }
    for (int i = 0; i < r->n_live_in; i++) widen(&r->v0, &r->v1, r->live_in[i]);
    for (int i = 0; i < r->n_live_out; i++) widen(&r->v0, &r->v1, r->live_out[i]);
}

osh_range osh_range_at(const osh_plan *p, int index)
{
    osh_range r = {.n_nodes = p->graph->n_nodes, .n_subgraphs = p->parts->n, .observe = true,
                   .name = "the whole model"};
    if (p->pipeline != OSH_PIPELINE_BASIC) {
        const osh_subgraph *s = &p->parts->parts[index];
        const osh_pass *ps = &p->passes[index];
        r = (osh_range){s->first, s->n_nodes, index, 1, s->live_in, s->live_out, s->n_live_in, s->n_live_out,
                        ps->observe, ps->propagate, ps->merged, s->name, 0, 0, 0, 0, 0, 0};
    }
    find_ends(&r, p);
    return r;
}

typedef struct walk {
    const osh_plan *p;
    const osh_graph *g;
    const osh_visitor *v;
    osh_range r;
    bool plain; // later subgraphs see the weights as they were
    bool *run;  // own: [r.n_nodes]
    int *wanted; // own: [values] node of the first Linear that wants statistics of it; -1: none
    bool *want, *stats, *in, *out, *consume, *keep; // own: [values]
} walk;

static bool in_range(const walk *w, const osh_linear *l)
{
    return l->subgraph >= w->r.first_subgraph && l->subgraph < w->r.first_subgraph + w->r.n_subgraphs;
}

static osh_status walk_init(osh_ctx *cx, walk *w)
{
    osh_status rc = OSH_OK;
    bool **lists[] = {&w->want, &w->stats, &w->in, &w->out, &w->consume, &w->keep};
    OSH_NEW(cx, w->run, w->r.n_nodes);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) OSH_NEW(cx, *lists[i], w->g->n_values);
    OSH_NEW(cx, w->wanted, w->g->n_values);
    for (int v = 0; v < w->g->n_values; v++) w->wanted[v] = -1;
    for (int i = w->r.l1 - 1; i >= w->r.l0; i--) {
        const osh_linear *l = &w->p->linears[i];
        if (in_range(w, l) && l->wants) w->wanted[l->input] = l->node;
    }
done:
    return rc;
}

static void walk_deinit(osh_ctx *cx, walk *w)
{
    bool *lists[] = {w->run, w->want, w->stats, w->in, w->out, w->consume, w->keep};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) osh_free(cx, lists[i]);
    osh_free(cx, w->wanted);
}

static void clear(const walk *w, bool *values)
{
    memset(values + w->r.v0, 0, (size_t)(w->r.v1 - w->r.v0) * sizeof *values);
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

static bool reads(const osh_node *n, int v)
{
    for (int k = 0; k < n->op->n_in; k++)
        if (n->in[k] == v) return true;
    return false;
}

/* A running node of [first, end of the range) reads v. */
static bool read_from(const walk *w, int first, int v)
{
    int end = w->r.first + w->r.n_nodes, from = w->g->values[v].first_use;
    for (int i = from > first ? from : first; i < end && i <= w->g->values[v].last_use; i++)
        if (runs(w, i) && reads(&w->g->nodes[i], v)) return true;
    return false;
}

/* in: what the running nodes of the step, and its statistics, take from outside. */
static osh_step make_step(walk *w, int first, int n, const bool *stats)
{
    clear(w, w->in), clear(w, w->out), clear(w, w->consume);
    for (int i = first; i < first + n; i++)
        for (int k = 0; runs(w, i) && k < w->g->nodes[i].op->n_in; k++) w->in[w->g->nodes[i].in[k]] = true;
    for (int v = w->r.v0; stats && v < w->r.v1; v++) w->in[v] |= stats[v];
    for (int v = w->r.v0; v < w->r.v1; v++) {
        int producer = w->g->values[v].producer;
        if (producer >= first && producer < first + n && runs(w, producer)) w->in[v] = false;
    }
    return (osh_step){.first = first, .n = n, .run = w->run + (first - w->r.first), .in = w->in, .out = w->out,
                      .consume = w->consume, .observe = stats != NULL};
}

static void want_live_out(walk *w)
{
    for (int i = 0; i < w->r.n_live_out; i++) w->want[w->r.live_out[i]] = true;
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
        if (!in_range(w, l) || !l->wants || w->wanted[l->input] < from || w->stats[l->input]) continue;
        int64_t more = l->wants & OSH_STAT_HESSIAN ? l->I * l->I * 4 : 0;
        if (round_bytes && bytes && bytes + more > round_bytes) {
            *next = l->node;
            break;
        }
        w->stats[l->input] = true, bytes += more;
    }
}

static osh_status walk_round(osh_ctx *cx, walk *w, int next)
{
    osh_status rc = OSH_OK;
    const osh_visitor *v = w->v;
    bool last = next == w->r.first + w->r.n_nodes, outputs = w->r.merged && last;
    bool over = last && !(w->r.propagate && !w->r.merged); // the values that came in are read for the last time
    if (v->solved && v->solved(v->user, &w->r, w->stats) && !outputs) goto done;
    OSH_TRY(v->open(cx, v->user, &w->r, w->stats));
    clear(w, w->want);
    memcpy(w->want, w->stats, (size_t)w->g->n_values * sizeof *w->want);
    if (outputs) want_live_out(w);
    needed(w);
    osh_step s = make_step(w, w->r.first, w->r.n_nodes, w->stats);
    for (int x = w->r.v0; x < w->r.v1; x++) {
        bool after = has(w->r.live_out, w->r.n_live_out, x);
        w->out[x] = outputs && after && runs(w, w->g->values[x].producer);
        w->consume[x] = over && w->in[x] && !after;
    }
    OSH_TRY(v->load(cx, v->user, &w->r, &s, w->stats));
    OSH_TRY(v->pass(cx, v->user, &w->r, &s));
    OSH_TRY(v->solve(cx, v->user, &w->r, w->stats, !last)); // later rounds run through the weights as they were
done:
    return rc;
}

static osh_status walk_propagate(osh_ctx *cx, walk *w)
{
    osh_status rc = OSH_OK;
    const osh_visitor *v = w->v;
    clear(w, w->want);
    want_live_out(w);
    needed(w);
    osh_step s = make_step(w, w->r.first, w->r.n_nodes, NULL);
    s.again = true;
    for (int x = w->r.v0; x < w->r.v1; x++) {
        bool after = has(w->r.live_out, w->r.n_live_out, x);
        w->out[x] = after && runs(w, w->g->values[x].producer);
        w->consume[x] = w->in[x] && !after;
    }
    OSH_TRY(v->load(cx, v->user, &w->r, &s, NULL));
    if (!w->plain) OSH_TRY(v->reload(cx, v->user, &w->r, w->r.first, w->r.n_nodes));
    OSH_TRY(v->pass(cx, v->user, &w->r, &s));
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
    if (w->r.propagate && !w->r.merged) OSH_TRY(walk_propagate(cx, w));
    OSH_TRY(w->v->release(cx, w->v->user, w->r.first, w->r.n_nodes));
done:
    return rc;
}

/* ---- segments ---- */

static bool is_linear(const osh_node *n) { return !strcmp(n->op->name, "linear"); }

/* Where the segment that begins at first ends: before the next group of Linears with one input. */
static int segment_end(const walk *w, int first)
{
    int end = w->r.first + w->r.n_nodes, i = first;
    const osh_node *n = w->g->nodes;
    while (i < end && is_linear(&n[i]) && n[i].in[0] == n[first].in[0]) i++;
    if (i == first) i++;
    while (i < end && !is_linear(&n[i])) i++;
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
        if (!in_range(w, l) || !l->wants || l->node < first || l->node >= end || w->wanted[l->input] < first) continue;
        any = w->stats[l->input] = true;
    }
    return any;
}

/* Values that something behind node `end` of this way through the range reads, or that come after it. */
static void choose_kept(walk *w, int end, bool observing)
{
    bool again = observing && w->r.propagate && !w->r.merged; // another way through follows
    for (int v = w->r.v0; v < w->r.v1; v++) {
        bool after = has(w->r.live_out, w->r.n_live_out, v), before = has(w->r.live_in, w->r.n_live_in, v);
        bool made = w->g->values[v].producer >= w->r.first;
        w->keep[v] = read_from(w, end, v) || (observing && w->wanted[v] >= end) || (again && before) ||
                     (after && !(again && made));
    }
}

static osh_status solve_segment(osh_ctx *cx, walk *w, int first, int end)
{
    osh_status rc = OSH_OK;
    const osh_visitor *v = w->v;
    if (!segment_stats(w, first, end)) goto done;
    if (v->solved && v->solved(v->user, &w->r, w->stats)) goto done;
    OSH_TRY(v->open(cx, v->user, &w->r, w->stats));
    osh_step s = make_step(w, first, 0, w->stats); // no node: the statistics of what comes in
    OSH_TRY(v->pass(cx, v->user, &w->r, &s));
    OSH_TRY(v->load(cx, v->user, &w->r, &s, w->stats));
    OSH_TRY(v->solve(cx, v->user, &w->r, w->stats, true));
done:
    return rc;
}

static osh_status run_segment(osh_ctx *cx, walk *w, int first, int end, bool observing)
{
    osh_status rc = OSH_OK;
    const osh_visitor *v = w->v;
    bool any = false;
    for (int i = first; i < end; i++) any |= runs(w, i);
    choose_kept(w, end, observing);
    if (!any) goto done;
    osh_step s = make_step(w, first, end - first, NULL);
    s.again = !observing;
    for (int x = w->r.v0; x < w->r.v1; x++) {
        int producer = w->g->values[x].producer;
        w->out[x] = w->keep[x] && producer >= first && producer < end && runs(w, producer);
        w->consume[x] = w->in[x] && !w->keep[x];
    }
    OSH_TRY(v->load(cx, v->user, &w->r, &s, NULL));
    if (!observing && !w->plain) OSH_TRY(v->reload(cx, v->user, &w->r, first, end - first));
    OSH_TRY(v->pass(cx, v->user, &w->r, &s));
done:
    return rc;
}

/* One way through the range: through the weights as they were, for the statistics, or through the solved ones. */
static osh_status walk_way(osh_ctx *cx, walk *w, bool observing)
{
    osh_status rc = OSH_OK;
    clear(w, w->want);
    for (int i = w->r.l0; observing && i < w->r.l1; i++)
        if (in_range(w, &w->p->linears[i]) && w->p->linears[i].wants) w->want[w->p->linears[i].input] = true;
    if (!observing || w->r.merged) want_live_out(w);
    needed(w);
    for (int first = w->r.first, end; first < w->r.first + w->r.n_nodes; first = end) {
        end = segment_end(w, first);
        if (observing) OSH_TRY(solve_segment(cx, w, first, end));
        OSH_TRY(run_segment(cx, w, first, end, observing));
        OSH_TRY(w->v->release(cx, w->v->user, first, end - first));
        OSH_TRY(w->v->drop(cx, w->v->user, w->keep));
    }
done:
    return rc;
}

osh_status osh_visit_walk(osh_ctx *cx, const osh_plan *p, int index, const osh_visitor *v)
{
    osh_status rc = OSH_OK;
    walk w = {.p = p, .g = p->graph, .v = v, .r = osh_range_at(p, index)};
    const osh_visit *how = &p->memory.visits[index];
    if (v->solved && v->solved(v->user, &w.r, NULL)) { // by an earlier run
        w.plain = w.r.merged;
        w.r.observe = w.r.merged = false;
    }
    if (!w.r.observe && !w.r.propagate) goto done;
    OSH_TRY(walk_init(cx, &w));
    if (how->segments) {
        if (w.r.observe) OSH_TRY(walk_way(cx, &w, true));
        if (w.r.propagate && !w.r.merged) OSH_TRY(walk_way(cx, &w, false));
    } else {
        OSH_TRY(walk_whole(cx, &w, how->round_bytes));
    }
done:
    walk_deinit(cx, &w);
    return rc;
}
