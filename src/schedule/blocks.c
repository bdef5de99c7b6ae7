/* blocks.c - chooses the Linears that learn by block. Learning by block optimizes the codes of the
 * Linears by gradients, so that the output of a block of decoder layers stays close to a target.
 * Also lists the inputs, outputs and Linears of the block in a range of nodes. */
#include "schedule/blocks.h"

#include <string.h>

static const osh_block_rule *block_rule_of(const osh_schedule *p, const osh_linear *l)
{
    const osh_modifier *m = &p->in->recipe->modifiers[l->modifier];
    return l->wants ? osh_modifier_blocks(m) : NULL;
}

static bool block_in_layer(const osh_graph *g, int node)
{
    int m = g->nodes[node].module;
    while (m >= 0 && strcmp(g->modules[m].cls, g->layer_class)) m = g->modules[m].parent;
    return m >= 0;
}

static bool block_learns(const osh_schedule *p, const osh_linear *l)
{
    return l->node >= 0 && block_rule_of(p, l) && block_in_layer(p->in->graph, l->node);
}

/* ---- Linears that learn by block ---- */

static bool targets_are_layers(const osh_schedule *p)
{
    const osh_strs *t = &p->in->opt->sequential_targets;
    bool are = true;
    for (size_t i = 0; i < t->n; i++) are &= !strcmp(t->items[i], p->in->graph->layer_class);
    return are;
}

/* Tests whether codes of Linears can be learned from the output of their decoder layer (`unit:
 * block`). Returns NULL if they can, and otherwise the reason why they cannot.
 * n_users [weights of the graph]: number of Linears that use each weight. */
static const char *block_hindrance(const osh_schedule *p, const int *n_users)
{
    int modifier = -1;
    if (p->in->pipeline != OSH_PIPELINE_SEQUENTIAL || !p->in->graph)
        return "want --pipeline sequential";
    if (!targets_are_layers(p)) return "--sequential-targets are not the decoder layers";
    if (!p->in->propagate_error) return "want --propagate-error true";
    if (p->rewrites->n_folds) return "factors are folded into weights";
    if (p->in->by_route) return "experts are calibrated on their own tokens";
    if (p->match->outputs) return "outputs of Linears are observed";
    for (int i = 0; i < p->match->n_linears; i++) {
        const osh_linear *l = &p->match->linears[i];
        if (l->node < 0 || !block_in_layer(p->in->graph, l->node) || l->kept) continue;
        if (l->prune.modifier >= 0) return "weights are pruned";
        if (!l->wants || !osh_linear_propagates(p->match, l)) continue;
        if (modifier >= 0 && l->modifier != modifier)
            return "modules of decoder layers have two modifiers";
        modifier = l->modifier;
        if (n_users[l->weight] > 1) return "modules share a weight";
    }
    return NULL;
}

/* Checks that gradients can be computed by every op between a Linear that learns and the end of the
 * decoder layers. */
static osh_status block_check_ops(osh_ctx *cx, const osh_schedule *p)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    osh_block b = {.g = g};
    OSH_NEW(cx, b.learns, p->match->n_linears);
    for (int i = 0; i < p->match->n_linears; i++)
        if (block_learns(p, &p->match->linears[i]))
            b.learns[b.n_learns++].weight = p->match->linears[i].weight;
    for (int i = 0; i < g->n_nodes; i++)
        if (block_in_layer(g, i)) b.n = i + 1;
    OSH_TRY(osh_block_check(cx, &b));
done:
    osh_free(cx, b.learns);
    return rc;
}

osh_status osh_plan_blocks(osh_ctx *cx, const osh_schedule *p, osh_matching *match)
{
    osh_status rc = OSH_OK;
    const osh_modifier *m = NULL;
    const osh_block_rule *rule = NULL;
    int *n_users = NULL; // own [weights of the graph]: number of Linears that use the weight
    for (int i = 0; i < p->match->n_linears && !rule; i++)
        if (block_learns(p, &p->match->linears[i]))
            rule = block_rule_of(p, &p->match->linears[i]),
            m = &p->in->recipe->modifiers[p->match->linears[i].modifier];
    if (!rule) goto done;
    OSH_NEW(cx, n_users, p->in->graph->n_weights);
    for (int i = 0; i < p->match->n_linears; i++)
        if (p->match->linears[i].weight >= 0) n_users[p->match->linears[i].weight]++;
    const char *why = block_hindrance(p, n_users);
    if (!why) {
        rc = block_check_ops(cx, p);
        if (rc == OSH_E_UNSUPPORTED && rule->may) rc = OSH_OK, why = osh_error_text(cx);
        if (rc) goto done;
    }
    if (why && !rule->may)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s with unit: block learns from the output of decoder layers: %s; want unit: "
                 "linear",
                 m->type->name, why);
    if (why) {
        osh_log(cx, OSH_LOG_INFO,
                "%s learns from the output of each Linear and not of decoder layers: %s (so each "
                "step uses all samples, for any batch_size)",
                m->type->name, why);
        osh_error_clear(cx);
        goto done;
    }
    for (int i = 0; i < p->match->n_linears; i++) {
        osh_linear *l = &match->linears[i];
        if (block_learns(p, l))
            l->wants = (l->wants & ~(unsigned)(OSH_STAT_HESSIAN | OSH_STAT_SHIFT)) | OSH_STAT_BLOCK;
    }
done:
    osh_free(cx, n_users);
    return rc;
}

void osh_plan_biases(const osh_schedule *p, osh_matching *match)
{
    for (int i = 0; i < p->match->n_linears; i++) {
        osh_linear *l = &match->linears[i];
        const osh_graph *g = p->in->graph;
        size_t n = strlen(l->name);
        l->out.bias = -1;
        if (!g || !block_learns(p, l) || block_rule_of(p, l)->bias_rate <= 0 ||
            g->nodes[l->node].w[1] < 0)
            continue;
        int64_t tensor = g->weights[g->nodes[l->node].w[1]].tensor;
        const char *name = p->in->ck->tensors[tensor].e->name;
        if (!strncmp(name, l->name, n) && !strcmp(name + n, ".bias")) l->out.bias = tensor;
    }
}

/* ---- the block of a range ---- */

/* True if value v is an output of the block in range r. For this, a decoder layer of the range must
 * compute v, v must depend on solved weights, and a node after the block must read v. */
static bool block_is_output(const osh_schedule *p, const osh_range *r, int v)
{
    const osh_value *x = &p->in->graph->values[v];
    if (x->original < 0 || x->producer < r->first || x->producer >= r->first + r->n_nodes)
        return false;
    if (!block_in_layer(p->in->graph, x->producer)) return false;
    return x->last_use >= r->first + r->n_nodes ||
           (x->last_use >= 0 && !block_in_layer(p->in->graph, x->last_use));
}

void osh_block_targets(const osh_schedule *p, const osh_range *r, bool *target)
{
    for (int v = r->v0; v < r->v1; v++)
        if (block_is_output(p, r, v)) target[p->in->graph->values[v].original] = true;
}

void osh_block_mixes(const osh_schedule *p, const osh_range *r, bool *mixed)
{
    const osh_block_rule *rule = NULL;
    for (int i = r->l0; i < r->l1 && !rule; i++)
        if (p->match->linears[i].wants & OSH_STAT_BLOCK)
            rule = block_rule_of(p, &p->match->linears[i]);
    for (int i = 0; rule && rule->share < 1 && !r->same && i < r->n_live_in; i++) {
        int original = p->in->graph->values[r->live_in[i]].original;
        if (original >= 0) mixed[original] = true;
    }
}

/* Lists the inputs and outputs of the block in *o. read [values]: working memory. All entries are
 * false before the call; after it, true for values that a node of the block reads. */
static void block_list_values(osh_block_of *o, const osh_schedule *p, const osh_range *r,
                              bool *read)
{
    const osh_graph *g = p->in->graph;
    osh_block *b = &o->b;
    for (int i = 0; i < r->n_nodes; i++) {
        const osh_node *n = &g->nodes[r->first + i];
        for (int k = 0; o->run[i] && k < n->op->n_in; k++)
            if (n->in[k] >= 0) read[n->in[k]] = true;
    }
    for (int v = r->v0; v < r->v1; v++)
        if (read[v] && g->values[v].producer < r->first) o->values[b->n_in++] = v;
    for (int v = r->v0; v < r->v1; v++)
        if (block_is_output(p, r, v)) o->values[b->n_in + b->n_out++] = v;
    b->in = o->values, b->out = o->values + b->n_in;
    for (int k = 0; k < b->n_in; k++) o->differs[k] = !r->same && g->values[b->in[k]].original >= 0;
    b->differs = o->differs;
}

osh_status osh_block_init(osh_ctx *cx, osh_block_of *o, const osh_schedule *p, const osh_range *r)
{
    osh_status rc = OSH_OK;
    bool *want = NULL; // own [values]
    *o = (osh_block_of){
        .b = {.g = p->in->graph, .data = &p->in->data, .first = r->first, .n = r->n_nodes,
              .on_device = p->in->on_device}};
    OSH_NEW(cx, o->run, r->n_nodes);
    OSH_NEW(cx, o->values, 2 * p->in->graph->n_values);
    OSH_NEW(cx, o->differs, p->in->graph->n_values);
    OSH_NEW(cx, o->linears, r->l1 - r->l0);
    OSH_NEW(cx, o->b.learns, r->l1 - r->l0);
    OSH_NEW(cx, want, p->in->graph->n_values);
    for (int v = r->v0; v < r->v1; v++) want[v] = block_is_output(p, r, v);
    osh_exec_needed(o->run, p->in->graph, r->first, r->n_nodes, want);
    o->b.run = o->run;
    memset(want, 0, (size_t)p->in->graph->n_values * sizeof *want);
    block_list_values(o, p, r, want);
    for (int i = r->l0; i < r->l1; i++) {
        const osh_linear *l = &p->match->linears[i];
        if (!(l->wants & OSH_STAT_BLOCK)) continue;
        osh_block_weight *w = &o->b.learns[o->b.n_learns];
        o->linears[o->b.n_learns++] = i;
        w->weight = l->weight, w->dtype = l->dtype;
        if (l->out.bias >= 0)
            w->bias = p->in->graph->nodes[l->node].w[1],
            w->bias_rate = block_rule_of(p, l)->bias_rate;
        w->args = (osh_ada_args){.rule.kind = block_rule_of(p, l)->kind, .O = l->O, .I = l->I,
                                 .group = osh_q_scale_cols(&l->scheme->weights, l->I)};
    }
    o->b.rule = *block_rule_of(p, &p->match->linears[o->linears[0]]);
    o->b.rule.seed = (uint64_t)p->in->opt->seed;
done:
    osh_free(cx, want);
    return rc;
}

void osh_block_deinit(osh_ctx *cx, osh_block_of *o)
{
    osh_free(cx, o->run);
    osh_free(cx, o->values);
    osh_free(cx, o->differs);
    osh_free(cx, o->linears);
    osh_free(cx, o->b.learns);
}

const osh_modifier *osh_block_modifier(const osh_schedule *p, const osh_block_of *o)
{
    return &p->in->recipe->modifiers[p->match->linears[o->linears[0]].modifier];
}

/* Counts three matrix products for each step: the output, the gradient of the input and the
 * gradient of the weight. */
double osh_block_flops(const osh_schedule *p, const osh_linear *l)
{
    const osh_block_rule *rule = block_rule_of(p, l);
    double samples = p->in->data.n < rule->samples ? (double)p->in->data.n : (double)rule->samples;
    double tokens =
        p->in->data.n ? (double)p->in->data.offsets[p->in->data.n] / (double)p->in->data.n * samples
                      : 0;
    return 6 * (double)l->O * (double)l->I * tokens * (double)rule->steps;
}
