/* moe_gate.c - implements a router with f32 logits, which chooses the experts of each token, and
 * their weights.
 *
 *   moe_gate  in[0] x [N, D], in[1] w [E, D], in[2] b [E] optional
 *   moe_hash  in[0] x [N, D], in[1] ids [N], in[2] w [E, D], in[3] table [V, top_k]
 *   both      out route [N, E]: weight of the expert; 0: not chosen
 *
 * Steps, for one token:
 *
 *   1. s = softmax(x w^T), sigmoid(x w^T) or sqrt(log(1 + e^(x w^T))) (`root`). The choice depends
 *      on c = s + b.
 *   2. n_group groups have E / n_group experts each. The score of a group is the sum of its two
 *      largest c (sigmoid) or its largest c (softmax). The topk_group groups with the largest
 *      scores remain.
 *   3. The top_k remaining experts with the largest c are chosen. If c is equal, the lower index
 *      is chosen.
 *   4. route = s of the chosen experts, divided by their sum (norm_topk_prob), times scale.
 *
 * moe_hash does not compare c. The table has expert numbers: the experts of token `id` are those in
 * row `id`.
 *
 * Example with E = 4, 2 groups, topk_group 1, top_k 1, b = 0 and sigmoid: s = .9 .1 .6 .7 gives the
 * group scores 1.0 and 1.3. So expert 3 is chosen, and not expert 0.
 *
 * The op computes these routers of transformers: DeepseekV3TopkRouter and Glm4MoeTopkRouter
 * (sigmoid), DeepseekV2TopkRouter (softmax; greedy: one group), DeepseekV4TopKRouter and
 * DeepseekV4HashRouter (root). As there, x and w are converted to f32, and the weights of the
 * experts are rounded to the dtype of x at the end. Dot products are summed in double, in a fixed
 * order. Shapes: N tokens of the batch, D elements per token, E experts, V vocabulary size. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/dot.h"
#include "ops/kernel.h"

/* ROWS: number of rows in a chunk of parallel work.
 * PIECE: number of columns that are computed together. */
enum { ROWS = 4, PIECE = 512 };

static const osh_field attrs[] = {
    {"top_k", OSH_F_INT, offsetof(osh_moe_gate_attr, route.top_k), "1", 1, OSH_MOE_MAX_EXPERTS,
     "experts of a token", NULL, NULL},
    {"norm_topk_prob", OSH_F_BOOL, offsetof(osh_moe_gate_attr, route.norm_topk_prob), "false", 0, 0,
     "their weights are divided by their sum", NULL, NULL},
    {"sigmoid", OSH_F_BOOL, offsetof(osh_moe_gate_attr, sigmoid), "false", 0, 0,
     "sigmoid of each logit; else softmax", NULL, NULL},
    {"scale", OSH_F_FLOAT, offsetof(osh_moe_gate_attr, scale), "1", 0, 1e6, "factor of the weights",
     NULL, NULL},
    {"n_group", OSH_F_INT, offsetof(osh_moe_gate_attr, n_group), "1", 1, OSH_MOE_MAX_EXPERTS,
     "groups of experts", NULL, NULL},
    {"topk_group", OSH_F_INT, offsetof(osh_moe_gate_attr, topk_group), "1", 1, OSH_MOE_MAX_EXPERTS,
     "groups that a token may go to", NULL, NULL},
    {"method", OSH_F_STR, offsetof(osh_moe_gate_attr, method), "groups", 0, 0,
     "greedy: groups are ignored", NULL, "groups|group_limited_greedy|greedy"},
    {"rows", OSH_F_INT, offsetof(osh_moe_gate_attr, experts), "0", 0, 1e9, "E", NULL, NULL},
    {"bias", OSH_F_BOOL, offsetof(osh_moe_gate_attr, bias), "false", 0, 0, "b is there",
     NULL, NULL},
    {"root", OSH_F_BOOL, offsetof(osh_moe_gate_attr, root), "false", 0, 0,
     "square root of the softplus of each logit", NULL, NULL},
    {"table_rows", OSH_F_INT, offsetof(osh_moe_gate_attr, vocab), "0", 0, 1e9,
     "V, rows of the table of moe_hash", NULL, NULL},
    {0},
};

bool osh_moe_gate_is_grouped(const osh_moe_gate_attr *at)
{
    return at->topk_group < at->n_group && !(at->method && !strcmp(at->method, "greedy"));
}

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_moe_gate_attr *at = attr;
    int64_t E = at->experts, each = E / at->n_group;

    if (E < 1 || E > OSH_MOE_MAX_EXPERTS || E % at->n_group || at->topk_group > at->n_group ||
        at->route.top_k > at->topk_group * each || (at->n_group > 1 && each < 2))
        return osh_fail(cx, OSH_E_UNSUPPORTED,
                        "moe_gate: %lld of %lld experts, in %lld of %lld groups: want groups of "
                        "equal size, no more than there are, and %d experts at most",
                        (long long)at->route.top_k, (long long)E, (long long)at->topk_group,
                        (long long)at->n_group, OSH_MOE_MAX_EXPERTS);
    w_ndim[0] = 2, w_shape[0][0] = E, w_shape[0][1] = in_width[0];
    w_ndim[1] = at->bias, w_shape[1][0] = E;
    out_width[0] = E;
    return OSH_OK;
}

/* True if at least `most` elements of x [n] are before x[at] in the order of size. An element is
 * before x[at] if it is larger, or if it is equal and has a lower index. */
static bool is_outranked(const float *x, int64_t at, int64_t n, int64_t most)
{
    int64_t before = 0;
    for (int64_t i = 0; i < n && before < most; i++)
        before += x[i] > x[at] || (x[i] == x[at] && i < at);
    return before >= most;
}

/* Sets c [E] to -infinity for the experts of all groups, except the topk_group best groups. */
static void gate_keep_groups(float *c, const osh_moe_gate_attr *at)
{
    float worth[OSH_MOE_MAX_EXPERTS];
    int64_t each = at->experts / at->n_group;
    for (int64_t g = 0; g < at->n_group; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int64_t e = g * each; e < (g + 1) * each; e++) {
            if (c[e] > first) second = first, first = c[e];
            else if (c[e] > second) second = c[e];
        }
        worth[g] = at->sigmoid ? first + second : first;
    }
    for (int64_t g = 0; g < at->n_group; g++)
        for (int64_t e = g * each;
             e < (g + 1) * each && is_outranked(worth, g, at->n_group, at->topk_group); e++)
            c[e] = -INFINITY;
}

/* Computes the scores s [E] of one token. */
static void gate_scores(float *s, const double *logits, const osh_moe_gate_attr *at)
{
    double max = logits[0], sum = 0;
    int64_t E = at->experts;
    for (int64_t e = 1; e < E; e++) max = logits[e] > max ? logits[e] : max;
    for (int64_t e = 0; e < E; e++) sum += osh_math_exp(logits[e] - max);
    for (int64_t e = 0; e < E; e++) {
        double x = logits[e];
        s[e] = (float)(at->sigmoid ? 1 / (1 + osh_math_exp(-x)) : osh_math_exp(x - max) / sum);
        if (at->root) s[e] = (float)sqrt(x > 20 ? x : osh_math_log(1 + osh_math_exp(x)));
    }
}

/* Divides the scores s [E] by their sum if norm_topk_prob is true. Then multiplies them by
 * scale. */
static void gate_scale(float *s, const osh_moe_gate_attr *at)
{
    double top = 0;
    for (int64_t e = 0; e < at->experts; e++) top += s[e];
    for (int64_t e = 0; e < at->experts; e++)
        s[e] = (float)((at->route.norm_topk_prob ? s[e] / (top + 1e-20) : s[e]) * at->scale);
}

/* Sets s [E] to the weights of the experts for one token. logits [E]: those of the token. bias [E]:
 * in f32, or NULL. */
static void gate_route_row(float *s, const double *logits, const float *bias,
                           const osh_moe_gate_attr *at)
{
    float c[OSH_MOE_MAX_EXPERTS];
    int64_t E = at->experts;
    gate_scores(s, logits, at);
    for (int64_t e = 0; e < E; e++) {
        /* With softmax, experts are chosen by their logits and not by their scores, because
         * different logits can have equal scores after exp. */
        c[e] = bias ? s[e] + bias[e] : at->sigmoid || at->root ? s[e] : (float)logits[e];
    }
    if (osh_moe_gate_is_grouped(at)) gate_keep_groups(c, at);
    for (int64_t e = 0; e < E; e++)
        if (is_outranked(c, e, E, at->route.top_k)) s[e] = 0;
    gate_scale(s, at);
}

/* Computes the logits of rows [first, first + n_rows), each [E]. */
static void gate_logits(double (*logits)[OSH_MOE_MAX_EXPERTS], const osh_tensor *x,
                        const osh_tensor *w, int64_t first, int64_t n_rows)
{
    int64_t E = w->shape[0], D = osh_width(x);
    float xs[ROWS][PIECE], ws[PIECE];

    memset(logits, 0, ROWS * sizeof *logits);
    for (int64_t from = 0, n; from < D; from += n) {
        n = osh_min64(PIECE, D - from);
        for (int64_t r = 0; r < n_rows; r++)
            osh_to_f32(xs[r], osh_elem(x, (first + r) * D + from), x->dtype, n);
        for (int64_t e = 0; e < E; e++) {
            osh_to_f32(ws, osh_elem(w, e * D + from), w->dtype, n);
            for (int64_t r = 0; r < n_rows; r++) logits[r][e] += osh_dot(xs[r], ws, n);
        }
    }
}

static osh_status moe_gate_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    const osh_moe_gate_attr *at = a->attr;
    const osh_tensor *b = a->in[2];
    int64_t E = at->experts, first = chunk * ROWS,
            n_rows = osh_min64(ROWS, osh_rows(a->in[0]) - first);
    double logits[ROWS][OSH_MOE_MAX_EXPERTS];
    float route[OSH_MOE_MAX_EXPERTS], bias[OSH_MOE_MAX_EXPERTS];

    (void)cx, (void)worker;
    gate_logits(logits, a->in[0], a->in[1], first, n_rows);
    if (b) osh_to_f32(bias, b->data, b->dtype, E);
    for (int64_t r = 0; r < n_rows; r++) {
        gate_route_row(route, logits[r], b ? bias : NULL, at);
        osh_from_f32(osh_elem(a->out[0], (first + r) * E), a->out[0]->dtype, route, E);
    }
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    const osh_moe_gate_attr *at = a->attr;
    assert(at->experts <= OSH_MOE_MAX_EXPERTS && osh_width(a->out[0]) == at->experts), (void)at;
    return osh_by_part(cx, a, osh_rows(a->in[0]), ROWS, moe_gate_chunk);
}

/* ---- moe_hash ---- */

static osh_status moe_hash_infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2],
                                 int *w_ndim, const int64_t *in_width, const void *attr)
{
    const osh_moe_gate_attr *at = attr;
    if (at->experts < 1 || at->experts > OSH_MOE_MAX_EXPERTS || at->route.top_k > at->experts)
        return osh_fail(cx, OSH_E_UNSUPPORTED,
                        "moe_hash: %lld of %lld experts, want at most %d experts",
                        (long long)at->route.top_k, (long long)at->experts, OSH_MOE_MAX_EXPERTS);
    w_ndim[0] = 2, w_shape[0][0] = at->experts, w_shape[0][1] = in_width[0];
    w_ndim[1] = 2, w_shape[1][0] = at->vocab, w_shape[1][1] = at->route.top_k;
    out_width[0] = at->experts;
    return OSH_OK;
}

/* Multiplies the score of each expert by the number of times that row `id` of the table has the
 * expert. In released models, this number is 0 or 1. */
static osh_status hash_choose(osh_ctx *cx, float *s, const osh_tensor *table, int64_t id, int64_t E)
{
    uint16_t times[OSH_MOE_MAX_EXPERTS] = {0};
    int64_t K = table->shape[1];
    if (id < 0 || id >= table->shape[0])
        return osh_fail(cx, OSH_E_FORMAT, "token id %lld, want an id in [0, %lld)", (long long)id,
                        (long long)table->shape[0]);
    for (int64_t k = 0; k < K; k++) {
        const void *at = osh_elem(table, id * K + k);
        int64_t e = table->dtype == OSH_I64 ? *(const int64_t *)at : *(const int32_t *)at;
        if (e < 0 || e >= E)
            return osh_fail(cx, OSH_E_FORMAT,
                            "token id %lld has expert %lld, want one in [0, %lld)", (long long)id,
                            (long long)e, (long long)E);
        times[e]++;
    }
    for (int64_t e = 0; e < E; e++) s[e] *= times[e];
    return OSH_OK;
}

static osh_status moe_hash_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    osh_status rc = OSH_OK;
    const osh_op_args *a = user;
    const osh_moe_gate_attr *at = a->attr;
    int64_t E = at->experts, first = chunk * ROWS,
            n_rows = osh_min64(ROWS, osh_rows(a->in[0]) - first);
    double logits[ROWS][OSH_MOE_MAX_EXPERTS];
    float route[OSH_MOE_MAX_EXPERTS];

    (void)worker;
    gate_logits(logits, a->in[0], a->in[2], first, n_rows);
    for (int64_t r = 0; r < n_rows; r++) {
        gate_scores(route, logits[r], at);
        OSH_TRY(hash_choose(cx, route, a->in[3], ((const int32_t *)a->in[1]->data)[first + r], E));
        gate_scale(route, at);
        osh_from_f32(osh_elem(a->out[0], (first + r) * E), a->out[0]->dtype, route, E);
    }
done:
    return rc;
}

static osh_status moe_hash_ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_rows(a->in[0]), ROWS, moe_hash_chunk);
}

/* ---- gradient ---- */

typedef struct gate_back_job {
    const osh_grad_args *a;
    float *to_logits; // gradients of the logits, [N, E]; own
} gate_back_job;

/* Sets `to` [E] to the gradients of the logits [E] of one token. route [E]: the weights that
 * gate_route_row computed. g [E]: the gradients of these weights. */
static void gate_logits_back(float *to, const double *logits, const float *route, const float *g,
                             const osh_moe_gate_attr *at)
{
    double s[OSH_MOE_MAX_EXPERTS], ds[OSH_MOE_MAX_EXPERTS],
           max = logits[0], sum = 0, top = 0, dot = 0;
    int64_t E = at->experts;
    for (int64_t e = 1; e < E; e++) max = logits[e] > max ? logits[e] : max;
    for (int64_t e = 0; e < E; e++) sum += osh_math_exp(logits[e] - max);
    for (int64_t e = 0; e < E; e++) {
        s[e] = at->sigmoid ? 1 / (1 + osh_math_exp(-logits[e]))
                           : osh_math_exp(logits[e] - max) / sum;
        if (at->root) s[e] = sqrt(osh_math_log(1 + osh_math_exp(logits[e])));
        if (route[e] != 0) top += s[e], dot += g[e] * s[e];
    }
    for (int64_t e = 0; e < E; e++) {
        ds[e] = route[e] == 0 ? 0
              : at->route.norm_topk_prob ? at->scale * (g[e] - dot / top) / top : at->scale * g[e];
    }
    dot = 0;
    for (int64_t e = 0; e < E; e++) dot += ds[e] * s[e];
    for (int64_t e = 0; e < E; e++)
        to[e] = (float)(at->root      ? ds[e] / (2 * s[e] * (1 + osh_math_exp(-logits[e])))
                        : at->sigmoid ? ds[e] * s[e] * (1 - s[e])
                                      : s[e] * (ds[e] - dot));
}

static osh_status gate_row_back(osh_ctx *cx, void *user, int64_t n, int worker)
{
    const gate_back_job *j = user;
    const osh_grad_args *a = j->a;
    const osh_moe_gate_attr *at = a->attr;
    const osh_tensor *x = a->in[0], *w = a->in[1];
    int64_t E = at->experts, D = osh_width(x);
    double logits[OSH_MOE_MAX_EXPERTS] = {0};
    float xs[PIECE], ws[PIECE], route[OSH_MOE_MAX_EXPERTS], bias[OSH_MOE_MAX_EXPERTS],
        *to = j->to_logits + n * E;

    (void)cx, (void)worker;
    for (int64_t from = 0, k; from < D; from += k) {
        k = osh_min64(PIECE, D - from);
        osh_to_f32(xs, osh_elem(x, n * D + from), x->dtype, k);
        for (int64_t e = 0; e < E; e++) {
            osh_to_f32(ws, osh_elem(w, e * D + from), w->dtype, k);
            logits[e] += osh_dot(xs, ws, k);
        }
    }
    if (a->in[2]) osh_to_f32(bias, a->in[2]->data, a->in[2]->dtype, E);
    gate_route_row(route, logits, a->in[2] ? bias : NULL, at);
    gate_logits_back(to, logits, route, (const float *)a->dout[0]->data + n * E, at);
    for (int64_t from = 0, k; a->din[0] && from < D; from += k) {
        float *dx = (float *)a->din[0]->data + n * D + from;
        k = osh_min64(PIECE, D - from);
        for (int64_t e = 0; e < E; e++) {
            if (to[e] == 0) continue;
            osh_to_f32(ws, osh_elem(w, e * D + from), w->dtype, k);
            for (int64_t i = 0; i < k; i++) dx[i] += to[e] * ws[i];
        }
    }
    return OSH_OK;
}

/* Adds the gradient of w[e] [D], which is row e of the router's weight. Adds it token by token. */
static osh_status gate_expert_back(osh_ctx *cx, void *user, int64_t e, int worker)
{
    const gate_back_job *j = user;
    const osh_tensor *x = j->a->in[0];
    int64_t E = ((const osh_moe_gate_attr *)j->a->attr)->experts, D = osh_width(x), N = osh_rows(x);
    float *dw = (float *)j->a->din[1]->data + e * D;
    (void)cx, (void)worker;
    for (int64_t n = 0; n < N; n++)
        for (int64_t i = 0; i < D; i++)
            dw[i] += j->to_logits[n * E + e] * osh_tensor_at(x, n * D + i);
    return OSH_OK;
}

static osh_status moe_gate_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    int64_t E = ((const osh_moe_gate_attr *)a->attr)->experts, N = osh_rows(a->in[0]);
    gate_back_job j = {.a = a};
    OSH_NEW(cx, j.to_logits, N * E);
    OSH_TRY(osh_parallel_for(cx, N, gate_row_back, &j));
    if (a->din[1]) OSH_TRY(osh_parallel_for(cx, E, gate_expert_back, &j));
done:
    osh_free(cx, j.to_logits);
    return rc;
}

static size_t moe_gate_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                    int64_t n_tokens, int n_threads)
{
    (void)attr, (void)in_width, (void)n_threads;
    return (size_t)(n_tokens * out_width) * sizeof(float);
}

const osh_op osh_op_moe_gate = {
    .name = "moe_gate", .n_in = 1, .n_weights = 2, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_moe_gate_attr), .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CUDA] = OSH_CUDA_FN(osh_moe_gate_cuda)},
    .tol = 1e-12, .scratch = osh_elementwise_scratch,
    .grad.run = {[OSH_REF] = moe_gate_grad_ref, [OSH_CUDA] = OSH_CUDA_GRAD(osh_moe_gate_grad_cuda)},
    .grad.arena_bytes = osh_moe_gate_grad_cuda_scratch,
    .grad.scratch = moe_gate_grad_scratch,
    .traits = OSH_OP_ROUTES | OSH_OP_COLUMNS,
    .flops = osh_product_flops,
};

const osh_op osh_op_moe_hash = {
    .name = "moe_hash", .n_in = 2, .n_weights = 2, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_moe_gate_attr), .infer = moe_hash_infer,
    .run = {[OSH_REF] = moe_hash_ref}, .tol = 0, .scratch = osh_elementwise_scratch,
    .whole_numbers = 1 << 1, .traits = OSH_OP_ROUTES | OSH_OP_COLUMNS | OSH_OP_HOST_ONLY,
    .flops = osh_product_flops,
};
