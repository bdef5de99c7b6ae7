/* experts.c - measures the experts of each layer, and chooses the experts to keep. The method is
 * REAP. An expert is kept if its output, multiplied by the router weight, is large on the tokens
 * that are routed to the expert. modifiers/experts.c has the formula. A layer is measured in a
 * model in which the earlier layers have lost their dropped experts.
 *
 * A subgraph with experts runs twice. The first pass measures the unchanged experts. In the second
 * pass the router logits of dropped experts are minus infinity, so the router chooses only kept
 * experts. */
#include "eval/measure.h"

#include <math.h>
#include <string.h>

#include "plan/exchange.h"
#include "rewrite/experts.h"

/* Numbers of the statistics of a layer.
 * SUM: sum of g |f(x)| over the tokens that the router sends to the expert; g is the router weight,
 * f(x) the expert's output.
 * COUNT: number of these tokens. */
enum { SUM, COUNT, N_STATS };

typedef struct reaping {
    osh_measuring m; // own; m.of[N_STATS * l + k]: statistic k of layer l, for each expert
    /* Index of the layer, if the value is the layer's router logits or the output of one of its
     * experts; -1: the value is neither. */
    int *layer_of;  // own [graph values]
    /* Index of the expert that computes the value as its output; -1: none. */
    int *expert_of; // own [graph values]
    bool *gone;     // own [layers, experts]: true if the expert is dropped
    float *row;     // own [hidden_size]: output of an expert for one token
    bool measuring; // true during the first pass
} reaping;

static void reaping_close(osh_ctx *cx, osh_measuring *state)
{
    reaping *r = (reaping *)state;
    if (!r) return;
    osh_measuring_close(cx, &r->m);
    osh_free(cx, r->layer_of);
    osh_free(cx, r->expert_of);
    osh_free(cx, r->gone);
    osh_free(cx, r->row);
    osh_free(cx, r);
}

/* Finds the nodes that add the outputs of experts. Makes the steps of the model measure these
 * nodes. */
static osh_status reaping_ask(osh_ctx *cx, reaping *r)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = r->m.f->graph;
    const osh_experts *x = r->m.p->rewrites.experts;
    const osh_groups *groups = &r->m.p->in.groups;
    osh_measured *to = NULL; // own until osh_measuring_ask
    int64_t bytes = (int64_t)(osh_stat_bytes(&osh_stat_sums, groups, x->n_all) +
                              osh_stat_bytes(&osh_stat_routes, groups, x->n_all));
    OSH_NEW(cx, to, g->n_nodes);
    for (int i = 0; i < g->n_nodes; i++) to[i].value = -1;
    for (int l = 0; l < x->n; l++) {
        int64_t more = bytes; // the bytes of the layer are counted at its first node
        r->layer_of[x->layers[l].logits] = l;
        for (int i = 0; i < g->n_nodes; i++) {
            const osh_node *n = &g->nodes[i];
            if (!osh_node_is(n, OSH_OP_COMBINES) || n->in[2] != x->layers[l].route) continue;
            r->layer_of[n->in[1]] = l;
            r->expert_of[n->in[1]] = (int)((const osh_moe_combine_attr *)n->attr)->expert;
            to[i] = (osh_measured){n->out[0], more}, more = 0;
        }
    }
    OSH_TRY(osh_measuring_ask(cx, &r->m, to, true, N_STATS * x->n));
done:
    return rc;
}

static osh_status reaping_open(osh_ctx *cx, osh_measuring **out, osh_plan *p,
                               const osh_modifier *m)
{
    osh_status rc = OSH_OK;
    reaping *r = NULL; // own
    const osh_experts *x = p->rewrites.experts;
    (void)m;
    OSH_NEW(cx, r, 1);
    OSH_TRY(osh_measuring_open(cx, &r->m, &osh_measure_experts, p));
    const osh_graph *g = r->m.f->graph;
    OSH_NEW(cx, r->layer_of, g->n_values);
    OSH_NEW(cx, r->expert_of, g->n_values);
    OSH_NEW(cx, r->gone, x->n * x->n_all);
    OSH_NEW(cx, r->row, g->values[g->hidden].width);
    for (int v = 0; v < g->n_values; v++) r->layer_of[v] = r->expert_of[v] = -1;
    OSH_TRY(reaping_ask(cx, r));
    *out = &r->m, r = NULL; // passes ownership
done:
    reaping_close(cx, (osh_measuring *)r);
    return rc;
}

/* Adds g |y| to the expert's sum, and 1 to its count, for each counted token that the router sends
 * to the expert. g is the router weight of the token and the expert. |y| is the norm of the
 * expert's output for the token. g is 0 if the router does not send the token to the expert. */
static osh_status reaping_add_tokens(osh_ctx *cx, reaping *r, int value, const osh_tensor *y,
                                     const osh_batch *b)
{
    osh_status rc = OSH_OK;
    int layer = r->layer_of[value];
    const osh_tensor *route = b->values[r->m.p->rewrites.experts->layers[layer].route];
    int64_t D = y->shape[1], E = route->shape[1], e = r->expert_of[value];
    osh_tensor *sum, *count; // views
    osh_stat **of = &r->m.of[N_STATS * layer];
    OSH_TRY(osh_stat_at(cx, &sum, of[SUM], b->first_sample));
    OSH_TRY(osh_stat_at(cx, &count, of[COUNT], b->first_sample));
    const osh_dataset *d = &r->m.p->in.data;
    const uint8_t *counted = d->counted ? d->counted + d->offsets[b->first_sample] : NULL;
    for (int64_t t = 0; t < y->shape[0]; t++) {
        double squares = 0;
        float g;
        if (counted && !counted[t]) continue;
        osh_to_f32(&g,
                   (const char *)route->data + (size_t)(t * E + e) * osh_dtype_bytes(route->dtype),
                   route->dtype, 1);
        if (g == 0) continue;
        osh_to_f32(r->row, (const char *)y->data + (size_t)(t * D) * osh_dtype_bytes(y->dtype),
                   y->dtype, D);
        for (int64_t i = 0; i < D; i++) squares += (double)r->row[i] * r->row[i];
        ((double *)sum->data)[e] += (double)g * sqrt(squares);
        ((int64_t *)count->data)[e] += 1;
    }
done:
    return rc;
}

static void reaping_mask_logits(const reaping *r, int layer, osh_tensor *logits)
{
    const float never = -INFINITY;
    int64_t E = logits->shape[1];
    for (int64_t t = 0; t < logits->shape[0]; t++)
        for (int64_t e = 0; e < E; e++)
            if (r->gone[layer * E + e])
                osh_from_f32((char *)logits->data +
                                 (size_t)(t * E + e) * osh_dtype_bytes(logits->dtype),
                             logits->dtype, &never, 1);
}

static osh_status reaping_value(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                                const osh_batch *b)
{
    reaping *r = user;
    int l = r->layer_of[value];
    if (l < 0) return OSH_OK;
    if (r->expert_of[value] < 0 && !r->measuring) reaping_mask_logits(r, l, b->values[value]);
    bool measured = r->measuring && r->expert_of[value] >= 0;
    return measured ? reaping_add_tokens(cx, r, value, x, b) : OSH_OK;
}

/* Drops the experts with the smallest means of g |f(x)| (router weight times norm of the output).
 * If means are equal, drops the expert with the lowest number. */
static void reaping_choose_kept(osh_ctx *cx, reaping *r, int layer)
{
    osh_experts *x = r->m.p->rewrites.experts;
    int *kept = x->layers[layer].kept;
    const double *sum = r->m.of[N_STATS * layer + SUM]->all->data;
    const int64_t *count = r->m.of[N_STATS * layer + COUNT]->all->data;
    bool *gone = r->gone + (int64_t)layer * x->n_all;
    for (int e = 0; e < x->n_all; e++)
        osh_log(cx, OSH_LOG_DEBUG, "%s: expert %d: %lld tokens, %.5g", x->layers[layer].name, e,
                (long long)count[e], sum[e] / (double)(count[e] > 1 ? count[e] : 1));
    for (int k = x->n_kept; k < x->n_all; k++) {
        int least = -1;
        double mean = INFINITY;
        for (int e = 0; e < x->n_all; e++) {
            double m = sum[e] / (double)(count[e] > 1 ? count[e] : 1);
            if (!gone[e] && (least < 0 || m < mean)) least = e, mean = m;
        }
        gone[least] = true;
    }
    for (int e = 0; e < x->n_all; e++)
        if (!gone[e]) *kept++ = e;
}

/* Begins to measure the layers with experts in a subgraph. */
static osh_status reaping_begin(osh_ctx *cx, void *user, osh_forward_part *p, const bool *values)
{
    osh_status rc = OSH_OK;
    reaping *r = user;
    const osh_graph *g = p->f->graph;
    const osh_experts *x = r->m.p->rewrites.experts;
    (void)values;
    for (int l = 0; l < x->n; l++) {
        int node = g->values[x->layers[l].route].producer;
        if (node < p->s->first || node >= p->s->first + p->s->n_nodes) continue;
        OSH_TRY(osh_measuring_begin(cx, &r->m, N_STATS * l + SUM, &osh_stat_sums, x->n_all));
        OSH_TRY(osh_measuring_begin(cx, &r->m, N_STATS * l + COUNT, &osh_stat_routes, x->n_all));
    }
    r->measuring = true;
done:
    return rc;
}

/* Chooses the experts to keep in each layer of the subgraph. */
static osh_status reaping_solve(osh_ctx *cx, void *user, osh_forward_part *p)
{
    osh_status rc = OSH_OK;
    reaping *r = user;
    osh_ranks *ranks = r->m.ranks; // view
    (void)p;
    for (int l = 0; l < r->m.p->rewrites.experts->n; l++) {
        osh_stat *const *of = &r->m.of[N_STATS * l];
        if (!of[SUM]) continue;
        OSH_TRY(osh_exchange_give(cx, ranks, of[SUM]->all));
        OSH_TRY(osh_exchange_exact(cx, ranks, &osh_stat_routes, of[COUNT]->all));
        reaping_choose_kept(cx, r, l);
    }
done:
    r->measuring = false;
    return rc;
}

static osh_status reaping_over(osh_ctx *cx, osh_measuring *m)
{
    (void)cx;
    m->p->rewrites.experts->known = true;
    return OSH_OK;
}

static osh_status reaping_print(osh_ctx *cx, char **value, char **said, const osh_measuring *m)
{
    osh_status rc = OSH_OK;
    const osh_experts *x = m->p->rewrites.experts;
    OSH_TRY(osh_experts_print(cx, value, x));
    *said = osh_sprintf(cx, "experts: %d of %d left in each of %d layers\n", x->n_kept, x->n_all,
                        x->n);
    if (!*said) OSH_TRY(OSH_E_NOMEM);
done:
    return rc;
}

static char *reaping_plan(osh_ctx *cx, const osh_plan *p, double mb)
{
    const osh_experts *x = p->rewrites.experts;
    return osh_sprintf(cx,
                       "experts are measured first: %d of %d are left in each of %d layers, "
                       "host memory %.1f MB, predicted\nthe plan below assumes that the "
                       "first experts are kept\n\n",
                       x->n_kept, x->n_all, x->n, mb);
}

const osh_measurement osh_measure_experts = {
    .key = "retained", .what = "experts", .open = reaping_open, .close = reaping_close,
    .begin = reaping_begin, .value = reaping_value, .solve = reaping_solve, .over = reaping_over,
    .print = reaping_print, .plan = reaping_plan,
};
