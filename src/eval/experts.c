/* experts.c - measures the experts of each layer, and chooses the experts to keep. The method is
 * REAP. An expert is kept if its output, multiplied by the router weight, is large on the tokens
 * that are routed to the expert. modifiers/experts.c has the formula. A layer is measured in a
 * model in which the earlier layers have lost their dropped experts.
 *
 * A subgraph with experts runs twice for each sample. The first pass measures the unchanged
 * experts. In the second pass the router logits of dropped experts are minus infinity, so the
 * router chooses only kept experts. */
#include "eval/measure.h"

#include <math.h>
#include <string.h>

#include "eval/forward.h"
#include "eval/sweep.h"
#include "plan/exchange.h"
#include "rewrite/experts.h"

typedef struct reaping {
    osh_plan *p;    // view
    osh_forward *f; // own
    /* The ranks among which samples are divided; NULL: this process runs all samples. */
    osh_ranks *ranks; // view
    /* Index of the layer, if the value is the layer's router logits or the output of one of its
     * experts; -1: the value is neither. */
    int *layer_of;  // own [graph values]
    /* Index of the expert that computes the value as its output; -1: none. */
    int *expert_of; // own [graph values]
    int layer;             // index of the layer that is measured
    /* sum: sum of g |f(x)| over the tokens that the router sends to the expert; g is the router
     * weight, f(x) the expert's output.
     * count: number of these tokens. */
    osh_stat *sum, *count; // own [experts]
    bool *gone;     // own [layers, experts]: true if the expert is dropped
    /* True for the inputs of the subgraph. They stay in the batches while the experts of the
     * subgraph are measured. */
    bool *stay;     // own [graph values]
    float *row;     // own [hidden_size]: output of an expert for one token
    bool measuring;
    osh_sweep sweep;  // own: progress
} reaping;

static void reaping_close(osh_ctx *cx, void *state)
{
    reaping *r = state;
    if (!r) return;
    osh_forward_close(cx, r->f);
    osh_free(cx, r->layer_of);
    osh_free(cx, r->expert_of);
    osh_stat_free(cx, r->sum);
    osh_stat_free(cx, r->count);
    osh_free(cx, r->gone);
    osh_free(cx, r->stay);
    osh_free(cx, r->row);
    osh_sweep_close(cx, &r->sweep);
    osh_free(cx, r);
}

static osh_status reaping_open(osh_ctx *cx, void **out, osh_plan *p, const osh_modifier *m)
{
    osh_status rc = OSH_OK;
    reaping *r = NULL; // own
    const osh_experts *x = p->rewrites.experts;
    (void)m;
    OSH_NEW(cx, r, 1);
    r->p = p;
    // a single group of samples is not divided among ranks: each rank then measures all samples
    if (p->in.groups.n > 1) r->ranks = p->in.opt->ranks;
    OSH_TRY(osh_forward_open(cx, &r->f, p->in.opt->model, p->in.opt->adapter,
                             p->in.opt->models_dir));
    const osh_graph *g = r->f->graph;
    OSH_NEW(cx, r->layer_of, g->n_values);
    OSH_NEW(cx, r->expert_of, g->n_values);
    OSH_NEW(cx, r->gone, x->n * x->n_all);
    OSH_NEW(cx, r->stay, g->n_values);
    OSH_NEW(cx, r->row, g->values[g->hidden].width);
    for (int v = 0; v < g->n_values; v++) r->layer_of[v] = r->expert_of[v] = -1;
    for (int l = 0; l < x->n; l++) {
        r->layer_of[x->layers[l].logits] = l;
        for (int i = 0; i < g->n_nodes; i++) {
            const osh_node *n = &g->nodes[i];
            if (!osh_node_is(n, OSH_OP_COMBINES) || n->in[2] != x->layers[l].route) continue;
            r->layer_of[n->in[1]] = l;
            r->expert_of[n->in[1]] = (int)((const osh_moe_combine_attr *)n->attr)->expert;
        }
    }
    *out = r, r = NULL; // passes ownership
done:
    reaping_close(cx, r);
    return rc;
}

/* Adds g |y| to the expert's sum, and 1 to its count, for each counted token that the router sends
 * to the expert. g is the router weight of the token and the expert. |y| is the norm of the
 * expert's output for the token. g is 0 if the router does not send the token to the expert. */
static osh_status reaping_add_tokens(osh_ctx *cx, reaping *r, int value, const osh_tensor *y,
                                     const osh_batch *b)
{
    osh_status rc = OSH_OK;
    const osh_tensor *route = b->values[r->p->rewrites.experts->layers[r->layer].route];
    int64_t D = y->shape[1], E = route->shape[1], e = r->expert_of[value];
    osh_tensor *sum, *count; // views
    OSH_TRY(osh_stat_at(cx, &sum, r->sum, b->first_sample));
    OSH_TRY(osh_stat_at(cx, &count, r->count, b->first_sample));
    const osh_dataset *d = &r->p->in.data;
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
    bool measured = r->measuring && l == r->layer && r->expert_of[value] >= 0;
    return measured ? reaping_add_tokens(cx, r, value, x, b) : OSH_OK;
}

/* Drops the experts with the smallest means of g |f(x)| (router weight times norm of the output).
 * If means are equal, drops the expert with the lowest number. */
static void reaping_choose_kept(osh_ctx *cx, reaping *r, int layer)
{
    osh_experts *x = r->p->rewrites.experts;
    int *kept = x->layers[layer].kept;
    const double *sum = r->sum->all->data;
    const int64_t *count = r->count->all->data;
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

/* Runs a subgraph over the samples of this rank. If experts are measured, adds the sums of all
 * ranks. reaping_pass first calls this function for each layer with experts, to measure the
 * experts. Then it calls the function once more, to compute the values that later subgraphs
 * read. */
static osh_status reaping_run_part(osh_ctx *cx, reaping *r, const osh_forward_part *p,
                                   const bool *keep)
{
    osh_status rc = OSH_OK;
    osh_exec_hooks hooks = {.value = reaping_value, .user = r};
    const osh_groups *groups = &r->p->in.groups;
    double work = r->sweep.work[p->index];
    osh_exec_span span = osh_forward_span(p);
    /* The hooks need the values of all tokens, so experts run on all tokens. */
    span.keep = keep, span.routed = NULL;
    for (int64_t k = 0; k < osh_exchange_rounds(groups, r->ranks); k++) {
        for (int64_t b = 0; b < r->f->n_batches; b++) {
            osh_batch *at = r->f->batches[b];
            if (!osh_exchange_is_now(groups, r->ranks, at->first_sample, k)) continue;
            OSH_TRY(osh_check_interrupt(cx));
            OSH_TRY(osh_ranks_hear(cx, r->ranks));
            OSH_TRY(osh_exec_run(cx, &span, p->w, at, &hooks, true));
            osh_sweep_show(cx, &r->sweep, work, b + 1, r->f->n_batches);
        }
        if (r->measuring) OSH_TRY(osh_exchange_groups(cx, r->ranks, r->sum, 0, k));
    }
done:
    return rc;
}

/* Measures the experts of one layer of the subgraph, and chooses the experts to keep. */
static osh_status reaping_measure(osh_ctx *cx, reaping *r, const osh_forward_part *p, int layer)
{
    osh_status rc = OSH_OK;
    const osh_where host = {NULL, OSH_LIFE_LONG};
    int64_t n = r->p->rewrites.experts->n_all;
    OSH_TRY(osh_stat_new(cx, &r->sum, &osh_stat_sums, r->p->in.groups, n, host));
    OSH_TRY(osh_stat_new_part(cx, r->sum, host));
    r->sum->open = r->ranks != NULL;
    OSH_TRY(osh_stat_new(cx, &r->count, &osh_stat_routes, r->p->in.groups, n, host));
    r->measuring = true, r->layer = layer;
    OSH_TRY(reaping_run_part(cx, r, p, r->stay));
    OSH_TRY(osh_stat_finish(cx, r->sum));
    OSH_TRY(osh_exchange_give(cx, r->ranks, r->sum->all));
    OSH_TRY(osh_exchange_exact(cx, r->ranks, &osh_stat_routes, r->count->all));
    reaping_choose_kept(cx, r, layer);
done:
    osh_stat_free(cx, r->sum), r->sum = NULL;
    osh_stat_free(cx, r->count), r->count = NULL;
    r->measuring = false;
    return rc;
}

static osh_status reaping_pass(osh_ctx *cx, void *user, osh_forward_part *p)
{
    osh_status rc = OSH_OK;
    reaping *r = user;
    const osh_graph *g = r->f->graph;
    const osh_experts *x = r->p->rewrites.experts;
    for (int v = 0; v < g->n_values; v++)
        r->stay[v] = r->f->n_batches && r->f->batches[0]->values[v];
    for (int l = 0; l < x->n; l++) {
        int node = g->values[x->layers[l].route].producer;
        if (node < p->s->first || node >= p->s->first + p->s->n_nodes) continue;
        OSH_TRY(reaping_measure(cx, r, p, l));
    }
    if (p->index + 1 < r->f->parts->n) OSH_TRY(reaping_run_part(cx, r, p, p->keep));
done:
    return rc;
}

/* Returns how many times reaping_pass runs the subgraph. */
static double reaping_times(const reaping *r, int subgraph)
{
    const osh_graph *g = r->f->graph;
    const osh_experts *x = r->p->rewrites.experts;
    const osh_subgraph *s = &r->f->parts->parts[subgraph];
    double n = subgraph + 1 < r->f->parts->n;
    for (int l = 0; l < x->n; l++) {
        int node = g->values[x->layers[l].route].producer;
        n += node >= s->first && node < s->first + s->n_nodes;
    }
    return n;
}

static osh_status reaping_run(osh_ctx *cx, void *state, osh_progress *pr)
{
    osh_status rc = OSH_OK;
    reaping *r = state;
    const osh_dataset *d = &r->p->in.data;
    osh_forward *f = r->f;
    OSH_TRY(osh_sweep_samples(cx, f, d, &r->p->in.groups, r->ranks));
    pr->n_steps = f->parts->n, pr->phase = "experts";
    OSH_TRY(osh_sweep_open(cx, &r->sweep, pr, f, d));
    for (int i = 0; i < f->parts->n; i++) r->sweep.times[i] = reaping_times(r, i);
    r->sweep.ranks = r->ranks;
    osh_sweep_begin(&r->sweep, 0);
    // a rank without samples reads no weights
    OSH_TRY(osh_sweep_walk(cx, &r->sweep, f,
                           &(osh_forward_visitor){reaping_pass, r, f->n_batches > 0}));
    r->p->rewrites.experts->known = true;
done:
    return rc;
}

static osh_status reaping_bytes(osh_ctx *cx, int64_t *peak, const void *state)
{
    const reaping *r = state;
    osh_forward_memory m = {0};
    osh_status rc = osh_forward_bytes(cx, &m, r->f, &r->p->in.data, r->p->in.data.n, 1);
    int64_t n = r->p->rewrites.experts->n_all;
    *peak = m.peak + (r->ranks ? OSH_RANKS_BYTES : 0) +
            (int64_t)(osh_stat_bytes(&osh_stat_sums, &r->p->in.groups, n) +
                      osh_stat_bytes(&osh_stat_routes, &r->p->in.groups, n));
    return rc;
}

static osh_status reaping_print(osh_ctx *cx, char **value, char **said, const void *state)
{
    osh_status rc = OSH_OK;
    const osh_experts *x = ((const reaping *)state)->p->rewrites.experts;
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
    .bytes = reaping_bytes, .run = reaping_run, .print = reaping_print, .plan = reaping_plan,
};
