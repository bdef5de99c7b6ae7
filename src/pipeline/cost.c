/* cost.c - see cost.h.
 *
 * Per token: a Linear 2 I O; attention 2 H Dh (t + 1) twice at position t, so 2 H Dh T (T + 1) for a sample of T tokens
 * (a sliding window W cuts t + 1 at W); a Hessian I (I + 1). Per input: the factor 2/3 I^3 (a Cholesky and a triangular
 * inverse). Per Linear: O I^2 for the solve. */
#include "pipeline/cost.h"

#include <string.h>

/* Of the imaginary machine: what one core with AVX2 does. The pace corrects each phase by what it measures. */
static const double products_per_s = 50e9; // f32 and bf16 matrix products
static const double factors_per_s = 20e9;  // Cholesky, inverse
static const double solves_per_s = 15e9;   // the column loop
static const double elements_per_s = 0.5e9; // elementwise ops, each value once
static const double bytes_per_s = 1e9;     // files
static const double codes_per_s = 0.15e9;  // rounding and packing, each weight once

const char *osh_phase_name(osh_phase p)
{
    static const char *const names[] = {"observe", "solve", "propagate", "round", "copy", "seal"};
    return names[p];
}

static bool is_op(const osh_node *n, const char *name) { return !strcmp(n->op->name, name); }

/* Sum over the samples of the pairs (query, key) that a causal window leaves. */
static double attended_pairs(const osh_dataset *d, int64_t window)
{
    double sum = 0;
    for (int64_t s = 0; s < d->n; s++) {
        double t = (double)(d->offsets[s + 1] - d->offsets[s]), w = (double)window;
        sum += !window || t <= w ? t * (t + 1) / 2 : w * (w + 1) / 2 + (t - w) * w;
    }
    return sum;
}

static double node_flops(const osh_graph *g, const osh_dataset *d, const osh_node *n, double tokens)
{
    if (is_op(n, "linear"))
        return 2 * tokens * (double)g->values[n->in[0]].width * (double)g->values[n->out[0]].width;
    if (is_op(n, "attention")) {
        const osh_attention_attr *a = n->attr;
        return 4 * (double)a->n_heads * (double)a->head_dim * attended_pairs(d, a->sliding_window);
    }
    return 0;
}

/* Weights of a node, read from the source. */
static double node_bytes(const osh_graph *g, const osh_node *n)
{
    double bytes = 0;
    for (int k = 0; k < n->op->n_weights; k++) {
        const osh_weight *w = n->w[k] >= 0 ? &g->weights[n->w[k]] : NULL;
        if (w)
            bytes += (double)w->shape[0] * (double)(w->ndim > 1 ? w->shape[1] : 1) *
                     (double)osh_dtype_bytes(g->dtype);
    }
    return bytes;
}

static double node_work(const osh_graph *g, const osh_dataset *d, const osh_node *n, double tokens, bool loaded)
{
    double work = node_flops(g, d, n, tokens) / products_per_s;
    if (!loaded) work += node_bytes(g, n) / bytes_per_s;
    for (int k = 0; k < n->op->n_out; k++) work += tokens * (double)g->values[n->out[k]].width / elements_per_s;
    return work;
}

double osh_cost_of_nodes(const osh_graph *g, const osh_dataset *d, int first, int n, const bool *run)
{
    double work = 0, tokens = d->n ? (double)d->offsets[d->n] : 0;
    for (int i = 0; i < n; i++)
        if (run[i]) work += node_work(g, d, &g->nodes[first + i], tokens, false);
    return work;
}

double osh_cost_of_head(const osh_graph *g, const osh_dataset *d)
{
    double tokens = d->n ? (double)d->offsets[d->n] : 0;
    double products = 2 * tokens * (double)g->values[g->hidden].width * (double)g->n_vocab;
    return products / products_per_s + tokens * (double)g->n_vocab / elements_per_s;
}

/* loaded: nodes whose weights an earlier pass left, NULL: none. */
static void add_nodes(osh_cost *c, osh_phase phase, const osh_plan *p, int first, int n, const bool *run,
                      const bool *loaded, double tokens)
{
    for (int i = 0; i < n; i++) {
        if (!run[i]) continue;
        const osh_node *node = &p->graph->nodes[first + i];
        c->flops[phase] += node_flops(p->graph, &p->data, node, tokens);
        c->work[phase] += node_work(p->graph, &p->data, node, tokens, loaded && loaded[i]);
    }
}

/* Whether no earlier Linear with a Hessian reads the same input: this one stands for it. */
static bool leads(const osh_plan *p, int linear)
{
    const osh_linear *l = &p->linears[linear];
    if (!(l->wants & OSH_STAT_HESSIAN)) return false;
    for (int i = 0; i < linear; i++)
        if (p->linears[i].input == l->input && (p->linears[i].wants & OSH_STAT_HESSIAN)) return false;
    return true;
}

static double factor_flops(const osh_linear *l) { return 2.0 / 3 * (double)l->I * (double)l->I * (double)l->I; }
static double solve_flops(const osh_linear *l) { return (double)l->O * (double)l->I * (double)l->I; }

double osh_cost_of_linear(const osh_plan *p, int linear)
{
    const osh_linear *l = &p->linears[linear];
    double work = (double)l->O * (double)l->I / codes_per_s;
    if (!l->wants) return work + (double)l->O * (double)l->I * (double)osh_dtype_bytes(l->dtype) / bytes_per_s;
    if (l->wants & OSH_STAT_HESSIAN) work += solve_flops(l) / solves_per_s;
    if (leads(p, linear)) work += factor_flops(l) / factors_per_s;
    return work;
}

static void add_linears(osh_cost *cost, int n, const osh_plan *p, double tokens)
{
    for (int i = 0; i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        osh_cost *c = &cost[!l->wants || l->subgraph < 0 ? n - 1 : p->pipeline == OSH_PIPELINE_BASIC ? 0 : l->subgraph];
        if (!l->wants) {
            c->work[OSH_PHASE_ROUND] += osh_cost_of_linear(p, i);
            continue;
        }
        c->work[OSH_PHASE_SOLVE] += osh_cost_of_linear(p, i);
        if (l->wants & OSH_STAT_HESSIAN) c->flops[OSH_PHASE_SOLVE] += solve_flops(l);
        if (!leads(p, i)) continue;
        double h = tokens * (double)l->I * (double)(l->I + 1);
        c->flops[OSH_PHASE_SOLVE] += factor_flops(l);
        c->flops[OSH_PHASE_OBSERVE] += h;
        c->work[OSH_PHASE_OBSERVE] += h / products_per_s;
    }
}

static void add_files(osh_cost *c, const osh_plan *p)
{
    for (int64_t i = 0; i < p->n_out; i++)
        if (p->out_info[i].source >= 0)
            c->work[OSH_PHASE_COPY] += 2 * (double)(p->out[i].end - p->out[i].begin) / bytes_per_s;
    c->work[OSH_PHASE_SEAL] += (double)p->total_bytes / bytes_per_s;
}

/* The passes of one subgraph, or of the whole graph. */
static void add_passes(osh_cost *c, const osh_plan *p, int index, bool *run, bool *loaded, bool *want, double tokens)
{
    const osh_graph *g = p->graph;
    bool whole = p->pipeline == OSH_PIPELINE_BASIC;
    int first = whole ? 0 : p->parts->parts[index].first, n = whole ? g->n_nodes : p->parts->parts[index].n_nodes;
    osh_pass ps = whole ? (osh_pass){.observe = true} : p->passes[index];
    const osh_subgraph *s = whole ? NULL : &p->parts->parts[index];
    if (ps.observe) {
        memset(want, 0, (size_t)g->n_values * sizeof *want);
        for (int i = 0; i < p->n_linears; i++)
            if (p->linears[i].wants && (whole || p->linears[i].subgraph == index)) want[p->linears[i].input] = true;
        for (int i = 0; ps.merged && i < s->n_live_out; i++) want[s->live_out[i]] = true;
        osh_exec_needed(run, g, first, n, want);
        add_nodes(c, OSH_PHASE_OBSERVE, p, first, n, run, NULL, tokens);
        memcpy(loaded, run, (size_t)n * sizeof *run);
    }
    if (ps.propagate && !ps.merged) {
        memset(want, 0, (size_t)g->n_values * sizeof *want);
        for (int i = 0; i < s->n_live_out; i++) want[s->live_out[i]] = true;
        osh_exec_needed(run, g, first, n, want);
        add_nodes(c, OSH_PHASE_PROPAGATE, p, first, n, run, ps.observe ? loaded : NULL, tokens);
    }
}

osh_status osh_cost_new(osh_ctx *cx, osh_cost **out, int *n, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_cost *cost = NULL; // own
    bool *run = NULL, *loaded = NULL, *want = NULL; // own
    int n_parts = p->pipeline == OSH_PIPELINE_DATAFREE ? 0 : p->pipeline == OSH_PIPELINE_BASIC ? 1 : p->parts->n;
    double tokens = p->data.n ? (double)p->data.offsets[p->data.n] : 0;
    OSH_NEW(cx, cost, n_parts + 1);
    if (n_parts) {
        OSH_NEW(cx, run, p->graph->n_nodes);
        OSH_NEW(cx, loaded, p->graph->n_nodes);
        OSH_NEW(cx, want, p->graph->n_values);
    }
    for (int s = 0; s < n_parts; s++) add_passes(&cost[s], p, s, run, loaded, want, tokens);
    add_linears(cost, n_parts + 1, p, tokens);
    add_files(&cost[n_parts], p);
    *n = n_parts + 1;
    *out = cost, cost = NULL;
done:
    osh_free(cx, run);
    osh_free(cx, loaded);
    osh_free(cx, want);
    osh_free(cx, cost);
    return rc;
}
