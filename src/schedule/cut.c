/* cut.c - adds the values of the original model to the graph, and cuts the graph into subgraphs.
 * Also assigns each Linear to a subgraph, and decides which passes each subgraph needs. */
#include "match/cache.h"
#include "schedule/schedule.h"

osh_span osh_linears_of(const osh_schedule *p, int subgraph, int n_subgraphs)
{
    const osh_subgraph *s = &p->parts->parts[subgraph], *last = s + n_subgraphs - 1;
    if (n_subgraphs <= 0) return (osh_span){0, 0};
    return osh_linears_of_nodes(p->match, s->first, last->first + last->n_nodes - s->first);
}

/* Returns the index of the subgraph that contains the node, or -1 if there is none. Subgraphs are
 * sorted by their nodes. */
int osh_subgraph_of(const osh_schedule *p, int node)
{
    const osh_subgraph *s = p->parts->parts;
    int low = 0, high = p->parts->n;
    while (low < high) { // finds the first subgraph that does not end before `node`
        int middle = low + (high - low) / 2;
        if (s[middle].first + s[middle].n_nodes <= node) low = middle + 1;
        else high = middle;
    }
    return low < p->parts->n && node >= s[low].first ? low : -1;
}

bool osh_linear_propagates(const osh_matching *p, const osh_linear *l)
{
    const osh_modifier *m = &p->in->recipe->modifiers[l->modifier];
    return !l->kept && (l->prune.modifier >= 0 || m->type->solver->propagates);
}

/* True if the current traversal solves Linear l and then computes the inputs of later Linears with
 * the new weight. */
static bool linear_changes(const osh_schedule *p, const osh_linear *l)
{
    return osh_wants(p, l) && osh_linear_propagates(p->match, l);
}

/* Sets changed[i] to true if node i is a Linear for which linear_changes is true. */
static void note_changed(const osh_schedule *p, bool *changed)
{
    for (int i = 0; i < p->match->n_linears; i++) {
        const osh_linear *l = &p->match->linears[i];
        if (l->node >= 0) changed[l->node] |= linear_changes(p, l);
    }
}

osh_status osh_plan_carry(osh_ctx *cx, const osh_schedule *p, osh_matching *match)
{
    osh_status rc = OSH_OK;
    // own [nodes of the graph]: true if the current traversal changes the weight of the node
    bool *changed = NULL, wanted = false;
    int *moved = NULL; // own [nodes of the graph]: new index of each node
    for (int i = 0; i < p->match->n_linears; i++)
        wanted |= (p->match->linears[i].wants & (OSH_STAT_SHIFT | OSH_STAT_BLOCK)) != 0;
    if (!wanted) goto done;
    if (p->rewrites->n_folds)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "target 'original' compares with the model's weights, which %s changes: want one "
                 "of the two",
                 p->in->recipe->modifiers[p->rewrites->folds[0].modifier].type->name);
    if (p->in->pipeline == OSH_PIPELINE_BASIC)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "target 'original' needs inputs that quantized weights have changed, and "
                 "--pipeline basic changes no inputs: want --pipeline sequential");
    if (!p->in->propagate_error)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "target 'original' needs inputs that quantized weights have changed, and "
                 "--propagate-error false changes no inputs: want --propagate-error true");
    OSH_NEW(cx, changed, p->in->graph->n_nodes);
    OSH_NEW(cx, moved, p->in->graph->n_nodes);
    note_changed(p, changed);
    OSH_TRY(osh_graph_add_original(cx, p->in->graph, changed, moved));
    for (int i = 0; i < p->match->n_linears; i++) {
        osh_linear *l = &match->linears[i];
        if (l->node < 0) continue;
        l->node = moved[l->node];
        l->input = p->in->graph->nodes[l->node].in[0];
        osh_cache_follow(p->match, l);
    }
done:
    osh_free(cx, changed);
    osh_free(cx, moved);
    return rc;
}

static bool inputs_are_same(const osh_schedule *p, const osh_subgraph *s)
{
    for (int i = 0; i < s->n_live_in; i++)
        if (p->in->graph->values[s->live_in[i]].original >= 0) return false;
    return true;
}

static double cut_share(const osh_schedule *p, const osh_linear *l)
{
    return osh_modifier_share(&p->in->recipe->modifiers[l->modifier]);
}

/* Sets l->share, the probability that an element of the Linear's input is taken from the quantized
 * model, and not from the original model. Fails if a Linear with the same Hessian needs another
 * probability. */
static osh_status choose_share(osh_ctx *cx, const osh_schedule *p, osh_linear *l)
{
    osh_status rc = OSH_OK;
    l->share = cut_share(p, l);
    for (int k = osh_first_reader(p->match, l->input); k >= 0; k = osh_next_reader(p->match, k)) {
        const osh_linear *other = &p->match->linears[k];
        if (other->subgraph == l->subgraph && (osh_wants(p, other) & OSH_STAT_HESSIAN) &&
            cut_share(p, other) != l->share)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s and %s read the same values, but their drop_ratio is %g and %g: want one "
                     "value for both",
                     l->name, other->name, l->share, cut_share(p, other));
    }
done:
    return rc;
}

/* Chooses the Linears whose inputs are compared with the inputs in the original model. With this
 * comparison, a solve compensates the error that earlier subgraphs leave in the input. A modifier
 * must ask for the comparison.
 * A Linear is left out if a solved Linear of the same subgraph comes before it. All statistics of a
 * subgraph are collected before its Linears are solved. So the input of the later Linear still has
 * the error that the solve of the earlier Linear compensates, and the error would be compensated
 * twice. */
static osh_status choose_compared(osh_ctx *cx, const osh_schedule *p, osh_matching *match)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    // changed: own [nodes of the graph], set by note_changed. compared: own [Linears], true if the
    // Linear's input is compared.
    bool *changed = NULL, *compared = NULL;
    // own [values]: 1 + index of the last subgraph whose solved Linears change the value
    int *moves = NULL;
    OSH_NEW(cx, changed, g->n_nodes);
    OSH_NEW(cx, compared, p->match->n_linears);
    OSH_NEW(cx, moves, g->n_values);
    note_changed(p, changed);
    for (int s = 0; s < p->parts->n; s++)
        for (int i = p->parts->parts[s].first;
             i < p->parts->parts[s].first + p->parts->parts[s].n_nodes; i++) {
            bool moved = changed[i];
            for (int k = 0; k < g->nodes[i].op->n_in; k++)
                moved |= moves[g->nodes[i].in[k]] == s + 1;
            for (int k = 0; moved && k < g->nodes[i].op->n_out; k++)
                moves[g->nodes[i].out[k]] = s + 1;
        }
    for (int i = 0; i < p->match->n_linears; i++) {
        const osh_linear *l = &p->match->linears[i];
        compared[i] = (l->wants & OSH_STAT_SHIFT) && g->values[l->input].original >= 0 &&
                      !p->passes[l->subgraph].same && moves[l->input] != l->subgraph + 1;
    }
    // Linears of one subgraph that have the same input share the statistics of the input. If the
    // input is compared for one of these Linears, it is compared for all.
    for (int i = 0; i < p->match->n_linears; i++) {
        osh_linear *l = &match->linears[i];
        l->share = 1;
        for (int k = osh_first_reader(p->match, l->input); k >= 0; k = osh_next_reader(p->match, k))
            if (p->match->linears[k].subgraph == l->subgraph) l->shift |= compared[k];
        if (l->shift) OSH_TRY(choose_share(cx, p, l));
    }
done:
    osh_free(cx, changed);
    osh_free(cx, compared);
    osh_free(cx, moves);
    return rc;
}

osh_status osh_plan_passes(osh_ctx *cx, osh_schedule *p)
{
    osh_status rc = OSH_OK;
    int last = -1;
    OSH_NEW(cx, p->passes, p->parts->n);
    for (int s = 0; s < p->parts->n; s++)
        p->passes[s].same = inputs_are_same(p, &p->parts->parts[s]);
    for (int i = 0; i < p->match->n_linears; i++) {
        const osh_linear *l = &p->match->linears[i];
        if (osh_wants(p, l)) p->passes[l->subgraph].observe = true;
        if (osh_wants(p, l) & OSH_STAT_BLOCK) p->passes[l->subgraph].block = true;
    }
    for (int i = 0; i < p->rewrites->n_folds; i++)
        if (p->rewrites->folds[i].subgraph >= 0 && osh_fold_is_here(p, &p->rewrites->folds[i]))
            p->passes[p->rewrites->folds[i].subgraph].fold = true;
    for (int s = 0; s < p->parts->n; s++)
        if (p->passes[s].observe || p->passes[s].fold) last = s;
    for (int s = 0; s < last; s++) p->passes[s].propagate = true;
    for (int s = 0; s < p->parts->n; s++) {
        bool changes = false;
        osh_span own = osh_linears_of(p, s, 1);
        for (int i = own.first; i < own.end; i++)
            changes |= !osh_wants_elsewhere(p, &p->match->linears[i]) &&
                       osh_linear_propagates(p->match, &p->match->linears[i]);
        p->passes[s].merged =
            p->passes[s].observe && p->passes[s].propagate && (!p->in->propagate_error || !changes);
    }
done:
    return rc;
}

osh_status osh_plan_cut(osh_ctx *cx, osh_schedule *p, osh_matching *match, osh_rewrites *rewrites,
                        const osh_strs *targets, int64_t per_subgraph)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_partition_new(cx, &p->parts, p->in->graph, (const char *const *)targets->items,
                              targets->n, per_subgraph));
    OSH_TRY(osh_plan_index(cx, match));
    for (int i = 0; i < match->n_linears; i++) {
        osh_linear *l = &match->linears[i];
        l->subgraph = osh_subgraph_of(p, l->node);
        if (l->ranged[0] >= 0 &&
            osh_subgraph_of(p, osh_cache_attention(p->in->graph, l->node)) != l->subgraph)
            OSH_FAIL(cx, OSH_E_USAGE,
                     "kv_cache_scheme: %s and the attention before it are in two subgraphs: want "
                     "decoder layers as --sequential-targets",
                     l->name);
    }
    for (int i = 0; i < rewrites->n_folds; i++) {
        osh_fold *f = &rewrites->folds[i];
        f->subgraph = osh_subgraph_of(p, p->in->graph->modules[f->module].node);
    }
    OSH_TRY(osh_plan_passes(cx, p));
    OSH_TRY(choose_compared(cx, p, match));
done:
    return rc;
}
