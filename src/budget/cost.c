/* cost.c - counts the floating-point operations and the work (estimated seconds) of each phase of
 * each subgraph. For each Linear with I inputs and O outputs, and for T tokens:
 *
 *   Linear       2 I O for each token
 *   attention    2 H Dh (t + 1) at position t, for each of the two matrix products, with H heads of
 *                width Dh. Both products of a sample of T tokens cost 2 H Dh T (T + 1). With a
 *                sliding window of W tokens, t + 1 is at most W
 *   Hessian      I (I + 1) for each token. Its factor costs 2/3 I^3 once (a Cholesky and a
 *                triangular inverse)
 *   solve        O I^2 for each Linear. On the host, some rows cost twice as much, because
 *                the error of rounding them to nearest is computed, too
 *
 * While statistics are collected, experts run on all tokens. In later passes, they run only on the
 * tokens that are routed to them. With --moe-calibrate-all-experts false, a GPU runs them only on
 * these tokens in all passes. Other operations are not counted. */
#include "budget/cost.h"
#include "graph/picked.h"
#include "graph/routed.h"
#include "solver/gptq_solve.h"
#include "schedule/blocks.h"
#include "rewrite/folds.h"
#include "schedule/looks.h"
#include "schedule/tuning.h"

#include <string.h>

/* The constants below are the speeds of an imaginary machine with one AVX2 core. Only their ratios
 * matter, because the progress estimate corrects the time of each phase by measurement. */
/* Floating-point operations per second of matrix products in F32 and BF16. */
static const double products_per_s = 50e9;
/* Speed of attention divided by the speed of matrix products. Measured with AVX2 and AMX, for
 * samples of 2,048 to 23,000 tokens. */
static const double attends_rate = 0.6;
/* Floating-point operations per second of Cholesky factorizations and triangular inverses. */
static const double factors_per_s = 20e9;
static const double solves_per_s = 15e9;   // operations per second of GPTQ's column loop
static const double elements_per_s = 0.5e9; // elements that elementwise ops write per second
/* bytes per second that are read from files or written to them */
static const double bytes_per_s = 1e9;
static const double codes_per_s = 0.15e9;  // weights per second that are rounded and packed
/* rows per second, if the rows of a table are read from the file one by one */
static const double picked_per_s = 0.4e6;
/* On a GPU: speed of the kernel for rows of experts (ops/cuda/routed.cuh) divided by the speed of
 * cuBLAS's matrix products. Measured on an H100 with the shapes of Qwen3-30B-A3B. */
static const double routed_rate = 0.31;

const char *osh_phase_name(osh_phase p)
{
    static const char *const names[] = {"observe", "solve", "propagate", "round", "copy",
                                        "tune", "seal"};
    return names[p];
}

static double node_flops(const osh_graph *g, const osh_dataset *d, const osh_node *n, double tokens)
{
    int64_t width[OSH_OP_MAX_IN] = {0};
    if (!n->op->flops) return 0;
    for (int k = 0; k < n->op->n_in; k++)
        if (n->in[k] >= 0) width[k] = g->values[n->in[k]].width;
    return n->op->flops(n->attr, width, g->values[n->out[0]].width,
                        &(osh_op_load){tokens, &(osh_seqs){d->n, d->offsets}});
}

/* Returns the fraction of the tokens that a router sends to each expert. route: index of the
 * router's output. */
static double route_share(const osh_graph *g, int route)
{
    const osh_node *router = &g->nodes[g->values[route].producer];
    // the op moe_gate has another type of attributes, which begins with the member `top_k`, too
    const osh_moe_router_attr *a = router->attr;
    return osh_node_routes(router) ? (double)a->top_k / (double)g->values[route].width : 1;
}

/* Returns the fraction of the rows of a value that a GPU computes while it collects statistics.
 * This fraction is 1, except if experts are calibrated on their own tokens. Then it is the fraction
 * of the tokens that are routed to the expert of the value. */
static double observed_share(const osh_budget *p, int value)
{
    const osh_graph *g = p->in->graph;
    int from = p->in->by_route && p->in->on_device ? osh_routed_from(g, value) : -1;
    return from >= 0 ? route_share(g, osh_routed_route(g, from)) : 1;
}

/* Returns the fraction of the tokens for which the model uses the output of node n. For a node of
 * an expert, this is the fraction of the tokens that are routed to the expert. (Outputs of experts
 * for other tokens are only used for statistics.) */
static double routed_share(const osh_graph *g, const osh_node *n)
{
    for (;;) {
        const osh_value *v = &g->values[n->out[0]];
        if (v->first_use < 0 || v->first_use != v->last_use) return 1;
        const osh_node *reader = &g->nodes[v->first_use];
        if (osh_node_is(reader, OSH_OP_COMBINES) && reader->in[1] == n->out[0])
            return route_share(g, reader->in[2]);
        n = reader;
    }
}

/* Returns the fraction of the tokens on which node i of the span `s` runs. If the node adds the
 * output of an expert (moe_combine), this is the fraction of the tokens that are routed to the
 * expert. */
static double node_share(const osh_exec_span *s, int i)
{
    const osh_node *n = &s->g->nodes[s->first + i];
    int made_by = osh_node_is(n, OSH_OP_COMBINES) ? s->g->values[n->in[1]].producer - s->first : i;
    bool routed = s->routed && made_by >= 0 && made_by < s->n && s->routed[made_by];
    return routed ? routed_share(s->g, &s->g->nodes[s->first + made_by]) : 1;
}

static osh_exec_span cost_span(const osh_budget *p, const osh_step *s)
{
    return (osh_exec_span){p->in->graph, s->first, s->n, s->run, NULL, {0, 0}, s->routed};
}

static double cost_weight_bytes(const osh_graph *g, int w)
{
    const osh_weight *x = &g->weights[w];
    return (double)x->shape[0] * (double)(x->ndim > 1 ? x->shape[1] : 1) *
           (double)osh_dtype_bytes(g->dtype);
}

static double node_bytes(const osh_graph *g, const osh_node *n)
{
    double bytes = 0;
    for (int k = 0; k < n->op->n_weights; k++)
        if (n->w[k] >= 0 && !osh_is_picked(g, n, k)) bytes += cost_weight_bytes(g, n->w[k]);
    return bytes;
}

static double node_full_work(const osh_graph *g, const osh_dataset *d, const osh_node *n,
                             double tokens)
{
    double rate = products_per_s * (osh_node_is(n, OSH_OP_ATTENDS) ? attends_rate : 1);
    double work = node_flops(g, d, n, tokens) / rate;
    for (int k = 0; k < n->op->n_out; k++)
        work += tokens * (double)g->values[n->out[k]].width / elements_per_s;
    for (int k = 0; k < n->op->n_weights; k++)
        if (n->w[k] >= 0 && osh_is_picked(g, n, k)) 
            work += tokens * (double)osh_picked_each(g, n) / picked_per_s;
    return work;
}

/* Returns the work of node i of the span `s` on the host. On the host, moe_combine processes all
 * tokens. */
static double cost_node_work(const osh_exec_span *s, const osh_dataset *d, int i)
{
    double tokens = d->n ? (double)d->offsets[d->n] : 0;
    return node_full_work(s->g, d, &s->g->nodes[s->first + i], tokens) *
           (s->routed && s->routed[i] ? node_share(s, i) : 1);
}

double osh_cost_of_nodes(const osh_exec_span *s, const osh_dataset *d)
{
    double work = 0;
    for (int i = 0; i < s->n; i++)
        if (s->run[i])
            work += cost_node_work(s, d, i) +
                    node_bytes(s->g, &s->g->nodes[s->first + i]) / bytes_per_s;
    return work;
}

double osh_cost_of_head(const osh_graph *g, const osh_dataset *d)
{
    double tokens = d->n ? (double)d->offsets[d->n] : 0;
    double products = 2 * tokens * (double)g->values[g->hidden].width * (double)g->n_vocab;
    return products / products_per_s + tokens * (double)g->n_vocab / elements_per_s;
}

static double solve_cube(const osh_linear *l, int64_t O)
{
    return (double)O * (double)l->I * (double)l->I;
}
/* Returns the number of operations for factoring the Hessian of a Linear's input (Cholesky and
 * triangular inverse). If the Linear has a shift, also counts the op gptq_shift. */
static double factor_flops(const osh_linear *l)
{
    return (2.0 / 3 + 2 * l->shift) * solve_cube(l, l->I);
}
/* Returns the fraction of the rows of a weight for which the solve also computes the error of
 * rounding to nearest. This error costs as many operations for each row as the column loop. */
static double judge_share(const osh_linear *l)
{
    return (double)((l->O - 1) / osh_gptq_judge_step(l->O) + 1) / (double)l->O;
}

/* Returns the number of operations of GPTQ's column loop and of the op gptq_target. On the host,
 * also counts the operations that compute the error of rounding to nearest. */
static double solve_flops(const osh_budget *p, const osh_linear *l)
{
    const osh_modifier *m = &p->in->recipe->modifiers[l->modifier];
    if (l->wants & OSH_STAT_BLOCK) return osh_block_flops(p->schedule, l);
    if (m->type->solver->flops) return m->type->solver->flops(m, l->O, l->I);
    return ((p->in->device ? 1 : 1 + judge_share(l)) + 2 * l->shift) * solve_cube(l, l->O);
}

double osh_cost_of_linear(const osh_budget *p, int linear)
{
    const osh_linear *l = &p->match->linears[linear];
    double work = (double)l->O * (double)l->I / codes_per_s;
    if (osh_wants_elsewhere(p->schedule, l)) return 0;
    if (!osh_wants(p->schedule, l))
        return work + (double)l->O * (double)l->I * (double)osh_dtype_bytes(l->dtype) / bytes_per_s;
    if (osh_wants(p->schedule, l) & (OSH_STAT_HESSIAN | OSH_STAT_BLOCK))
        work += solve_flops(p, l) / solves_per_s;
    // the factoring of a Hessian is counted once, for the first Linear that reads the value
    if (osh_hessian_bytes(p->schedule, linear)) work += factor_flops(l) / factors_per_s;
    return work;
}

/* True if GPTQ solves the Linear on the host although the passes run on a GPU. The reason is that
 * the GPU does not keep the zeros of a pruner. */
static bool solves_on_host(const osh_budget *p, const osh_linear *l)
{
    if (!p->in->on_device || l->prune.modifier < 0 || l->modifier < 0) return false;
    const osh_modifier *m = &p->in->recipe->modifiers[l->modifier];
    return !l->kept && (m->type->solver->wants(m, l->scheme) & OSH_STAT_HESSIAN);
}

/* True if the codes of the Linear are learned on the host although the passes run on a GPU. */
static bool learns_on_host(const osh_budget *p, const osh_linear *l)
{
    if (!p->in->on_device || l->modifier < 0 || l->kept) return false;
    if (l->wants & OSH_STAT_BLOCK) return false;
    return osh_modifier_learns(&p->in->recipe->modifiers[l->modifier]);
}

bool osh_cost_uses_host(const osh_budget *p)
{
    for (int i = 0; i < p->match->n_linears; i++)
        if (solves_on_host(p, &p->match->linears[i]) || learns_on_host(p, &p->match->linears[i]))
            return true;
    for (int f = 0; f < p->rewrites->n_folds; f++)
        if (osh_cost_of_fold(p, &p->rewrites->folds[f]) > 0) return true;
    return false;
}

bool osh_cost_leaves_gpu(const osh_budget *p, const osh_linear *l)
{
    if (learns_on_host(p, l)) return true;
    if (!solves_on_host(p, l)) return false;
    const osh_modifier *m = &p->in->recipe->modifiers[l->prune.modifier];
    return !(m->type->solver->wants(m, l->scheme) & OSH_STAT_HESSIAN);
}

/* Adds the operations of a Linear that is pruned and then solved on the host. SparseGPT prunes on
 * the GPU, and needs as many operations as a column loop. */
static void cost_add_pruned(osh_cost *c, const osh_budget *p, const osh_linear *l, bool factors)
{
    c->pruned_flops += (1 + judge_share(l)) * solve_cube(l, l->O) + (factors ? factor_flops(l) : 0);
    if (osh_cost_leaves_gpu(p, l)) return;
    c->flops[OSH_PHASE_SOLVE] += solve_cube(l, l->O) + (factors ? factor_flops(l) : 0);
    c->factor_flops += factors ? factor_flops(l) : 0;
}

static void cost_add_linears(osh_cost *cost, int n, const osh_budget *p)
{
    for (int i = 0; i < p->match->n_linears; i++) {
        const osh_linear *l = &p->match->linears[i];
        osh_cost *c = &cost[!osh_wants(p->schedule, l) || l->subgraph < 0 ? n - 1
                            : p->in->pipeline == OSH_PIPELINE_BASIC ? 0 : l->subgraph];
        if (!osh_wants(p->schedule, l)) {
            c->work[OSH_PHASE_ROUND] += osh_cost_of_linear(p, i);
            continue;
        }
        c->work[OSH_PHASE_SOLVE] += osh_cost_of_linear(p, i);
        if (learns_on_host(p, l)) {
            c->learned_flops += solve_flops(p, l);
            continue;
        }
        if (solves_on_host(p, l)) {
            cost_add_pruned(c, p, l, osh_hessian_bytes(p->schedule, i));
            continue;
        }
        if (osh_wants(p->schedule, l) & (OSH_STAT_HESSIAN | OSH_STAT_BLOCK))
            c->flops[OSH_PHASE_SOLVE] += solve_flops(p, l);
        if (l->wants & OSH_STAT_BLOCK) c->block_flops += solve_flops(p, l);
        if (osh_hessian_bytes(p->schedule, i))
            c->flops[OSH_PHASE_SOLVE] += factor_flops(l), c->factor_flops += factor_flops(l);
    }
}

static double search_flops(const osh_budget *p, const osh_fold *f)
{
    double rows = 0;
    for (int k = 0; k < f->n_takes; k++)
        rows += (double)p->in->graph->weights[f->takes[k]].shape[0];
    return rows * (double)f->n * (double)f->n * osh_fold_search_points(p->rewrites, f);
}

double osh_cost_of_fold(const osh_budget *p, const osh_fold *f)
{
    double flops = search_flops(p, f);
    return flops / products_per_s + flops / (double)f->n / codes_per_s;
}

static void cost_add_folds(osh_cost *cost, const osh_budget *p)
{
    for (int i = 0; i < p->rewrites->n_folds; i++) {
        if (p->rewrites->folds[i].subgraph < 0) continue;
        if (!osh_fold_is_here(p->schedule, &p->rewrites->folds[i])) continue;
        osh_cost *c =
            &cost[p->in->pipeline == OSH_PIPELINE_BASIC ? 0 : p->rewrites->folds[i].subgraph];
        c->work[OSH_PHASE_SOLVE] += osh_cost_of_fold(p, &p->rewrites->folds[i]);
        c->flops[OSH_PHASE_SOLVE] += search_flops(p, &p->rewrites->folds[i]);
        c->search_flops += search_flops(p, &p->rewrites->folds[i]);
    }
}

static void cost_add_files(osh_cost *c, const osh_budget *p)
{
    for (int64_t i = 0; i < p->manifest->n_out; i++)
        if (p->manifest->out_info[i].source >= 0)
            c->work[OSH_PHASE_COPY] +=
                2 * (double)(p->manifest->out[i].end - p->manifest->out[i].begin) / bytes_per_s;
    c->flops[OSH_PHASE_TUNE] += osh_tuning_flops(p->schedule),
        c->work[OSH_PHASE_TUNE] += osh_tuning_flops(p->schedule) / products_per_s;
    c->work[OSH_PHASE_SEAL] += (double)p->manifest->total_bytes / bytes_per_s;
}

/* ---- costs of passes (forward computations of all batches through a subgraph) ---- */

typedef struct fed { bool hessian, shift; } fed;
typedef struct counter {
    const osh_budget *p;
    osh_cost *c;    // view: cost of the current visit's subgraph
    bool *loaded;   // own [weights of the graph]: true if the weight is in memory
    fed *open;      // own [values of the range]: sums that are now collected from the value
    double reading; // bytes of the weights that were loaded since the last pass
} counter;

static double stats_flops(const osh_budget *p, const osh_range *r, const fed *open)
{
    int64_t counted = p->in->mix.n_counted; // 0: all tokens count in statistics
    double all = (double)(counted ? counted : p->in->data.offsets[p->in->data.n]), flops = 0;
    for (int v = r->v0; v < r->v1; v++) {
        if (!open[v - r->v0].hessian && !open[v - r->v0].shift) continue;
        double width = (double)p->in->graph->values[v].width, tokens = all * observed_share(p, v);
        flops += open[v - r->v0].hessian ? tokens * width * (width + 1) : 0;
        flops += open[v - r->v0].shift ? 2 * tokens * width * width : 0;
    }
    return flops;
}

static bool step_feeds(const osh_step *s) { return (s->observe && !s->first_look) || s->fold; }

static double step_flops(const osh_budget *p, const osh_range *r, const osh_step *s,
                         const fed *open)
{
    double tokens = (double)p->in->data.offsets[p->in->data.n],
           flops = step_feeds(s) ? stats_flops(p, r, open) : 0;
    for (int i = 0; i < s->n; i++) {
        const osh_node *n = &p->in->graph->nodes[s->first + i];
        double f = s->run[i] ? node_flops(p->in->graph, &p->in->data, n, tokens) : 0;
        if (f <= 0) continue;
        flops += f * (s->again ? routed_share(p->in->graph, n) : observed_share(p, n->out[0]));
    }
    return flops;
}

static double step_work(const osh_budget *p, const osh_range *r, const osh_step *s, const fed *open)
{
    double work = step_feeds(s) ? stats_flops(p, r, open) / products_per_s : 0;
    osh_exec_span span = cost_span(p, s);
    for (int i = 0; i < s->n; i++)
        if (s->run[i]) work += cost_node_work(&span, &p->in->data, i);
    return work;
}

static void fed_open_stats(fed *open, const osh_budget *p, const osh_range *r, const bool *values)
{
    memset(open, 0, (size_t)(r->v1 - r->v0) * sizeof *open);
    for (int i = r->l0; i < r->l1; i++) {
        const osh_linear *l = &p->match->linears[i];
        if ((osh_wants(p->schedule, l) & OSH_STAT_HESSIAN) && values[l->input])
            open[l->input - r->v0] = (fed){true, l->shift};
    }
}

static void fed_open_folds(fed *open, const osh_budget *p, const osh_range *r)
{
    memset(open, 0, (size_t)(r->v1 - r->v0) * sizeof *open);
    for (int i = 0; i < p->rewrites->n_folds; i++)
        if (osh_fold_inside(p->schedule, r, &p->rewrites->folds[i]) &&
            osh_fold_searches(p->rewrites, &p->rewrites->folds[i]))
            open[p->rewrites->folds[i].value - r->v0].hessian = true;
}

/* Adds the bytes of the weights that the step loads for the nodes that run. Ignores weights that
 * are loaded and then replaced by solved weights, because they are few. */
static void count_load(counter *c, const osh_step *s)
{
    const osh_graph *g = c->p->in->graph;
    for (int i = 0; i < s->n; i++)
        for (int k = 0; s->run[i] && k < g->nodes[s->first + i].op->n_weights; k++) {
            int w = g->nodes[s->first + i].w[k];
            if (w < 0 || c->loaded[w] || osh_is_picked(g, &g->nodes[s->first + i], k)) continue;
            c->loaded[w] = true;
            c->reading += cost_weight_bytes(g, w);
        }
}

/* Counts a step on a GPU: the operations of all nodes that run, and the bytes that these nodes read
 * and write in the GPU's memory. */
static void count_traffic(osh_cost *c, osh_phase phase, const osh_budget *p, const osh_range *r,
                          const osh_step *s)
{
    const osh_graph *g = p->in->graph;
    double tokens = (double)p->in->data.offsets[p->in->data.n];
    osh_exec_span span = cost_span(p, s);
    for (int i = 0; i < s->n; i++) {
        const osh_node *n = &g->nodes[s->first + i];
        if (!s->run[i]) continue;
        double share = node_share(&span, i);
        if (share == 1) share = observed_share(p, n->out[0]);
        double rows = tokens * share;
        c->done[phase] +=
            node_flops(g, &p->in->data, n, tokens) * (share < 1 ? share / routed_rate : 1);
        for (int k = 0; k < n->op->n_in; k++)
            if (n->in[k] >= 0) c->moved[phase] += rows * (double)osh_value_bytes(g, n->in[k]);
        for (int k = 0; k < n->op->n_out; k++)
            c->moved[phase] += rows * (double)osh_value_bytes(g, n->out[k]);
    }
    for (int v = r->v0; v < r->v1; v++)
        if (v != g->input_ids)
            c->stored[phase] += (s->in[v] + s->out[v]) * tokens * (double)osh_value_bytes(g, v);
}

/* Returns the number of bytes that are read from the GPU's memory to compute the statistics of the
 * range's folds. */
static double fold_traffic(const osh_budget *p, const osh_range *r)
{
    double tokens = (double)p->in->data.offsets[p->in->data.n], bytes = 0;
    for (int i = 0; i < p->rewrites->n_folds; i++) {
        const osh_fold *f = &p->rewrites->folds[i];
        if (osh_fold_inside(p->schedule, r, f))
            bytes += tokens * (double)osh_value_bytes(p->in->graph, f->value);
    }
    return bytes;
}

static void count_pass(counter *c, const osh_range *r, const osh_step *s)
{
    osh_phase phase = s->again ? OSH_PHASE_PROPAGATE : OSH_PHASE_OBSERVE;
    c->c->flops[phase] += step_flops(c->p, r, s, c->open);
    c->c->work[phase] += step_work(c->p, r, s, c->open) + c->reading / bytes_per_s;
    c->c->loaded[phase] += c->reading;
    count_traffic(c->c, phase, c->p, r, s);
    c->c->sums[phase] += step_feeds(s) ? stats_flops(c->p, r, c->open) : 0;
    c->c->moved[phase] += s->fold ? fold_traffic(c->p, r) : 0;
    c->reading = 0;
}

static void count_release(counter *c, const osh_step *s)
{
    const osh_graph *g = c->p->in->graph;
    for (int i = s->first; i < s->first + s->n; i++)
        for (int k = 0; k < g->nodes[i].op->n_weights; k++)
            if (g->nodes[i].w[k] >= 0) c->loaded[g->nodes[i].w[k]] = false;
}

/* Adds the cost of a step to the cost of the subgraph, if the step is a pass or loads weights.
 * osh_cost_new adds the costs of solves, folds and files. The other steps take little time. */
static void count_step(counter *c, const osh_range *r, const osh_step *s)
{
    switch (s->kind) {
    case OSH_STEP_OPEN: fed_open_stats(c->open, c->p, r, s->values); break;
    case OSH_STEP_LOAD: count_load(c, s); break;
    case OSH_STEP_PASS: count_pass(c, r, s); break;
    case OSH_STEP_RELEASE: count_release(c, s); break;
    case OSH_STEP_FOLD_OPEN: fed_open_folds(c->open, c->p, r); break;
    default: break;
    }
}

static osh_status count_passes(osh_ctx *cx, osh_cost *cost, int n, const osh_budget *p)
{
    osh_status rc = OSH_OK;
    counter c = {.p = p};
    osh_steps *steps = NULL; // own
    OSH_NEW(cx, c.loaded, p->in->graph->n_weights);
    OSH_TRY(osh_steps_new(cx, &steps, p->in->graph));
    for (int i = 0; i < n; i++) {
        osh_range r = osh_range_at(p->schedule, i);
        OSH_NEW(cx, c.open, r.v1 - r.v0);
        c.c = &cost[i];
        OSH_TRY(osh_visit_list(cx, steps, p->schedule, i, NULL));
        for (int k = 0; k < osh_steps_n(steps); k++)
            count_step(&c, osh_steps_range(steps), osh_steps_at(steps, k));
        osh_free(cx, c.open), c.open = NULL;
    }
done:
    osh_steps_free(cx, steps);
    osh_free(cx, c.loaded);
    osh_free(cx, c.open);
    return rc;
}

osh_status osh_cost_share(osh_ctx *cx, double *share, const osh_budget *p, const osh_cost *cost,
                          const osh_visited *v)
{
    osh_status rc = OSH_OK;
    fed *open = NULL; // own
    const osh_step *s = v->step;
    const osh_phases *how = &p->schedule->visits[v->index].how;
    double all = cost[v->index].work[s->again ? OSH_PHASE_PROPAGATE : OSH_PHASE_OBSERVE];
    osh_range r = osh_range_at(p->schedule, v->index);
    *share = 1;
    if ((!how->segments && !how->round_bytes && !r.fold && !osh_looks_twice(p->schedule)) ||
        all <= 0)
        goto done;
    OSH_NEW(cx, open, r.v1 - r.v0);
    if (v->stats) fed_open_stats(open, p, &r, v->stats);
    if (s->fold) fed_open_folds(open, p, &r);
    *share = step_work(p, &r, s, open) / all;
    // the share is below 1, because a share of 1 means that the step is the whole phase
    if (*share >= 1) *share = 0.999;
done:
    osh_free(cx, open);
    return rc;
}

osh_status osh_cost_new(osh_ctx *cx, osh_cost **out, int *n, const osh_budget *p)
{
    osh_status rc = OSH_OK;
    osh_cost *cost = NULL; // own
    int n_parts = p->in->pipeline == OSH_PIPELINE_DATAFREE ? 0 : osh_n_ranges(p->schedule);
    OSH_NEW(cx, cost, n_parts + 1);
    if (n_parts) OSH_TRY(count_passes(cx, cost, n_parts, p));
    cost_add_linears(cost, n_parts + 1, p);
    cost_add_folds(cost, p);
    cost_add_files(&cost[n_parts], p);
    *n = n_parts + 1;
    *out = cost, cost = NULL;
done:
    osh_free(cx, cost);
    return rc;
}
