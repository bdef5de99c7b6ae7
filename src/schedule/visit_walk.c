/* visit_walk.c - chooses the nodes, inputs and outputs of the steps of a visit. */
#include "schedule/visit_walk.h"
#include "graph/routed.h"
#include "match/lookup.h"
#include "schedule/blocks.h"

#include <string.h>

osh_status osh_visit_init(osh_ctx *cx, osh_visit_walk *w)
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
                      osh_visit_is_original(w, w->r.live_out[i]) &&
                      w->g->values[w->r.live_out[i]].producer >= w->r.first;
done:
    return rc;
}

void osh_visit_clear(const osh_visit_walk *w, bool *values)
{
    memset(values + w->r.v0, 0, (size_t)(w->r.v1 - w->r.v0) * sizeof *values);
}

void osh_visit_deinit(osh_ctx *cx, osh_visit_walk *w)
{
    for (int i = 0; i < OSH_STEP_LISTS; i++) osh_visit_clear(w, osh_steps_list(w->to, i));
    for (int v = w->r.v0; v < w->r.v1; v++) osh_steps_numbers(w->to)[v] = -1;
    osh_free(cx, w->run);
    osh_free(cx, w->routed);
    osh_free(cx, w->last);
}

bool osh_visit_has(const int *list, int n, int v)
{
    for (int i = 0; i < n; i++)
        if (list[i] == v) return true;
    return false;
}

bool osh_visit_runs(const osh_visit_walk *w, int node) // node: index in the graph
{
    return node >= w->r.first && node < w->r.first + w->r.n_nodes && w->run[node - w->r.first];
}

int osh_visit_route_of(const osh_visit_walk *w, int v)
{
    int from = w->p->in->by_route && w->p->in->on_device ? osh_routed_from(w->g, v) : -1;
    return from >= 0 ? osh_routed_route(w->g, from) : -1;
}

/* Returns the router's output that node i needs in addition to its inputs, or -1 if it needs
 * none. */
static int walk_route_for(const osh_visit_walk *w, int i)
{
    return osh_visit_runs(w, i) ? osh_visit_route_of(w, w->g->nodes[i].out[0]) : -1;
}

void osh_visit_find_last(osh_visit_walk *w)
{
    for (int v = w->r.v0; v < w->r.v1; v++) w->last[v - w->r.v0] = -1;
    for (int i = w->r.first; i < w->r.first + w->r.n_nodes; i++)
        for (int k = 0; osh_visit_runs(w, i) && k < w->g->nodes[i].op->n_in; k++)
            if (w->g->nodes[i].in[k] >= 0) w->last[w->g->nodes[i].in[k] - w->r.v0] = i;
    for (int i = w->r.first; i < w->r.first + w->r.n_nodes; i++) {
        int route = walk_route_for(w, i);
        if (route >= w->r.v0 && w->last[route - w->r.v0] < i) w->last[route - w->r.v0] = i;
    }
}

bool osh_visit_reads_from(const osh_visit_walk *w, int first, int v)
{
    return w->last[v - w->r.v0] >= first;
}

void osh_visit_add_observed(const osh_visit_walk *w, bool *values, const bool *stats)
{
    for (int i = 0; i < w->p->rewrites->n_inherits; i++) {
        const osh_inherit *h = &w->p->rewrites->inherits[i];
        bool mine = h->linear >= w->r.l0 && h->linear < w->r.l1;
        int of = osh_visit_observed(w, h->from);
        if (!mine || of < w->r.v0 || of >= w->r.v1) continue;
        if (stats[w->p->match->linears[h->linear].input] || stats[h->from]) values[of] = true;
    }
    for (int v = w->r.v0; v < w->r.v1; v++) {
        if (!stats[v]) continue;
        values[osh_visit_observed(w, v)] = true;
        if (w->shift[v] && stats != w->look) values[w->g->values[v].original] = true;
    }
    for (int i = w->r.l0; w->p->match->outputs && stats != w->look && i < w->r.l1; i++) {
        const osh_linear *l = &w->p->match->linears[i];
        if (!osh_wants_elsewhere(w->p, l) && l->ranged[OSH_OUTPUT] >= 0 && stats[l->input])
            values[l->ranged[OSH_OUTPUT]] = true;
    }
}

void osh_visit_want_routes(osh_visit_walk *w)
{
    for (int i = w->r.first; i < w->r.first + w->r.n_nodes; i++)
        if (osh_node_routes(&w->g->nodes[i]) && !w->g->nodes[i].original)
            w->want[w->g->nodes[i].out[0]] = true;
}

/* If a step with nodes [first, first + n) computes or reads values of an expert, adds the router's
 * output to the inputs of the step, w->in. The router's output lists the rows of these values. */
static void walk_add_routes(osh_visit_walk *w, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        int route = walk_route_for(w, i);
        if (route >= 0) w->in[route] = true;
    }
    for (int v = w->r.v0; v < w->r.v1; v++) {
        int route = w->in[v] ? osh_visit_route_of(w, v) : -1;
        if (route >= 0) w->in[route] = true;
    }
}

osh_step osh_visit_make_step(osh_visit_walk *w, int first, int n, const bool *stats)
{
    osh_visit_clear(w, w->in), osh_visit_clear(w, w->out), osh_visit_clear(w, w->consume);
    for (int i = first; i < first + n; i++)
        for (int k = 0; osh_visit_runs(w, i) && k < w->g->nodes[i].op->n_in; k++)
            w->in[w->g->nodes[i].in[k]] = true;
    if (stats) osh_visit_add_observed(w, w->in, stats);
    walk_add_routes(w, first, n);
    for (int v = w->r.v0; v < w->r.v1; v++) {
        int producer = w->g->values[v].producer;
        if (producer >= first && producer < first + n && osh_visit_runs(w, producer))
            w->in[v] = false;
    }
    return (osh_step){.first = first, .n = n, .run = w->run + (first - w->r.first), .in = w->in,
                      .out = w->out, .consume = w->consume, .observe = stats != NULL};
}

void osh_visit_want_live_out(osh_visit_walk *w, osh_visit_model which)
{
    for (int i = 0; i < w->r.n_live_out; i++) {
        int v = w->r.live_out[i];
        if (which == OSH_VISIT_BOTH || osh_visit_is_original(w, v) == (which == OSH_VISIT_ORIGINAL))
            w->want[v] = true;
    }
    for (int v = w->r.v0; v < w->r.v1 && which != OSH_VISIT_QUANTIZED; v++)
        w->want[v] |= w->target[v];
}

void osh_visit_choose_routed(osh_visit_walk *w)
{
    if (w->p->all_rows) return; // no entry of w->routed is true
    osh_routed_choose(w->routed, w->g, w->r.first, w->r.n_nodes, w->run);
}

void osh_visit_take_routed(osh_visit_walk *w, osh_step *s)
{
    s->routed = w->routed + (s->first - w->r.first);
    for (int i = 0; i < s->n; i++) {
        if (!s->routed[i]) continue;
        int route = w->g->nodes[osh_routed_to(w->g, s->first + i)].in[2];
        if (w->g->values[route].producer < s->first) w->in[route] = true;
    }
}

void osh_visit_choose_nodes(osh_visit_walk *w)
{
    osh_exec_needed(w->run, w->g, w->r.first, w->r.n_nodes, w->want);
}

osh_status osh_visit_add(osh_ctx *cx, osh_visit_walk *w, osh_step_kind kind, const osh_step *s,
                         const bool *values)
{
    osh_step t = *s;
    t.kind = kind, t.values = values;
    return osh_steps_add(cx, w->to, &t);
}

osh_status osh_visit_add_nodes(osh_ctx *cx, osh_visit_walk *w, osh_step_kind kind, int first,
                               int n)
{
    return osh_visit_add(cx, w, kind, &(osh_step){.first = first, .n = n}, NULL);
}

bool osh_visit_solved(const osh_visit_walk *w, const bool *values)
{
    return w->done && w->done->solved && w->done->solved(w->done->user, &w->r, values);
}
