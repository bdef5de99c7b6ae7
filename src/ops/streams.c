/* streams.c - computes hyper-connections: S residual streams h_0 ... h_{S-1} in one value h [N,
 * S*D]. A layer reads a weighted sum of the streams, and its output y is added to each stream.
 *
 *   stream_weights  in[0] h [N, S*D]  in[1] fn [M, S*D]  in[2] base [M]  in[3] scale [1, 2 or 3]
 *                   out w [N, M] F32
 *   stream_read     in[0] w [N, M], may be F32  in[1] h [N, S*D]                 out x [N, D]
 *   stream_write    in[0] w [N, M], may be F32  in[1] h [N, S*D]  in[2] y [N, D] out h' [N, S*D]
 *   stream_mean     in[0] h [N, S*D]                                             out x [N, D]
 *
 * w has the M weights of each token: pre [S], post [S] and mix [S, S] (M = 2S + S^2). If the
 * streams are not mixed, there is no mix (M = 2S). The head of the model has only pre (M = S):
 *
 *   m    = fn h / sqrt(mean(h^2) + norm_eps)
 *   pre  = sigmoid(m_pre scale[0] + base_pre) + eps
 *   post = magnitude sigmoid(m_post scale[1] + base_post) + post_eps
 *   P    = softmax(m_mix scale[2] + base_mix) + eps     softmax of each row
 *   mix  = P after Sinkhorn-Knopp: each column of P is divided by (its sum + eps); then
 *          `iterations` - 1 times each row and each column is divided in the same manner
 *
 *   x    = sum over j of pre_j h_j
 *   h'_k = post_k y + sum over j of mix[j][k] h_j, or post_k y + h_k without mix
 *
 * The ops compute transformers' DeepseekV4HyperConnection and Glm5NextTextHyperConnection (with
 * mix), and HYV4HyperConnection (without mix). fn, base and scale are f32. norm_eps, eps,
 * magnitude, post_eps and iterations are attributes. Sums are double. With mix, stream_write rounds
 * post, mix, the product post_k y and the sum over j to the dtype of h. Without mix, it rounds only
 * h'. Shapes: N tokens of the batch, D elements per token and stream. */
#include <assert.h>
#include <math.h>

#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/dot.h"
#include "ops/kernel.h"

/* STREAMS: largest number of streams (S).
 * WEIGHTS: largest number of weights of a token (M).
 * PIECE: number of elements that are converted to f32 at a time.
 * ROWS: number of rows in a chunk of parallel work. */
enum { STREAMS = 8, WEIGHTS = 2 * STREAMS + STREAMS * STREAMS, PIECE = 512, ROWS = 4 };

static const osh_field weights_attrs[] = {
    {"streams", OSH_F_INT, offsetof(osh_stream_weights_attr, streams), NULL, 1, STREAMS, "S", NULL,
     NULL},
    {"iterations", OSH_F_INT, offsetof(osh_stream_weights_attr, iterations), "0", 0, 1000,
     "steps of Sinkhorn-Knopp; 0: streams are not mixed", NULL, NULL},
    {"eps", OSH_F_FLOAT, offsetof(osh_stream_weights_attr, eps), "1e-6", 0, 1,
     "added to pre, to mix and to its sums", NULL, NULL},
    {"norm_eps", OSH_F_FLOAT, offsetof(osh_stream_weights_attr, norm_eps), "1e-6", 0, 1,
     "added to the mean of the squares", NULL, NULL},
    {"magnitude", OSH_F_FLOAT, offsetof(osh_stream_weights_attr, magnitude), "2", 0, 1e6,
     "factor of the sigmoid of post", NULL, NULL},
    {"post_eps", OSH_F_FLOAT, offsetof(osh_stream_weights_attr, post_eps), "0", 0, 1,
     "added to post", NULL, NULL},
    {"head", OSH_F_BOOL, offsetof(osh_stream_weights_attr, head), "false", 0, 0, "only pre", NULL,
     NULL},
    {0},
};
static const osh_field read_attrs[] = {
    {"streams", OSH_F_INT, offsetof(osh_stream_read_attr, streams), NULL, 1, STREAMS, "S", NULL,
     NULL},
    {0},
};
static const osh_field write_attrs[] = {
    {"streams", OSH_F_INT, offsetof(osh_stream_write_attr, streams), NULL, 1, STREAMS, "S", NULL,
     NULL},
    {"mixes", OSH_F_BOOL, offsetof(osh_stream_write_attr, mixes), "false", 0, 0,
     "the streams are mixed", NULL, NULL},
    {0},
};

/* Fails if the width of h is not a multiple of S. width: the width of h. */
static osh_status streams_check(osh_ctx *cx, const char *op, int64_t width, int64_t S)
{
    if (S >= 1 && width % S == 0) return OSH_OK;
    return osh_fail(cx, OSH_E_FORMAT, "%s: width %lld, want a multiple of %lld streams", op,
                    (long long)width, (long long)S);
}

static osh_status weights_infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2],
                                int *w_ndim, const int64_t *in_width, const void *attr)
{
    const osh_stream_weights_attr *at = attr;
    int64_t S = at->streams, parts = at->head ? 1 : at->iterations ? 3 : 2;
    out_width[0] = at->head ? S : at->iterations ? 2 * S + S * S : 2 * S;
    w_ndim[0] = 2, w_shape[0][0] = out_width[0], w_shape[0][1] = in_width[0];
    w_ndim[1] = 1, w_shape[1][0] = out_width[0];
    w_ndim[2] = 1, w_shape[2][0] = parts;
    return streams_check(cx, "stream_weights", in_width[0], S);
}

/* Divides each row (or column) of P [S, S] by its sum plus eps. */
static void matrix_divide(double *P, int64_t S, bool rows, double eps)
{
    int64_t step = rows ? 1 : S, next = rows ? S : 1;
    for (int64_t i = 0; i < S; i++) {
        double sum = eps;
        for (int64_t j = 0; j < S; j++) sum += P[i * next + j * step];
        for (int64_t j = 0; j < S; j++) P[i * next + j * step] /= sum;
    }
}

/* Sets mix [S, S] from its logits P, which the function overwrites. */
static void streams_mix(float *mix, double *P, const osh_stream_weights_attr *at)
{
    int64_t S = at->streams;
    for (int64_t j = 0; j < S; j++) {
        double *row = P + j * S, max = row[0], sum = 0;
        for (int64_t k = 1; k < S; k++) max = row[k] > max ? row[k] : max;
        for (int64_t k = 0; k < S; k++) sum += row[k] = osh_math_exp(row[k] - max);
        for (int64_t k = 0; k < S; k++) row[k] = row[k] / sum + at->eps;
    }
    matrix_divide(P, S, false, at->eps);
    for (int64_t i = 1; i < at->iterations; i++)
        matrix_divide(P, S, true, at->eps), matrix_divide(P, S, false, at->eps);
    for (int64_t i = 0; i < S * S; i++) mix[i] = (float)P[i];
}

/* Computes the weights w [M] of one token from m [M]. Overwrites m. */
static void weights_finish(float *w, double *m, const float *base, const float *scale,
                           const osh_stream_weights_attr *at)
{
    int64_t S = at->streams, M = at->head ? S : at->iterations ? 2 * S + S * S : 2 * S;
    for (int64_t i = 0; i < M; i++) {
        m[i] = m[i] * scale[i < S ? 0 : i < 2 * S ? 1 : 2] + base[i];
        double s = 1 / (1 + osh_math_exp(-m[i]));
        if (i < S) w[i] = (float)(s + at->eps);
        else if (i < 2 * S) w[i] = (float)(at->magnitude * s + at->post_eps);
    }
    if (M > 2 * S) streams_mix(w + 2 * S, m + 2 * S, at);
}

static osh_status weights_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    const osh_stream_weights_attr *at = a->attr;
    const osh_tensor *h = a->in[0], *fn = a->in[1];
    int64_t M = osh_width(a->out[0]), W = osh_width(h), first = chunk * ROWS,
            n_rows = osh_min64(ROWS, osh_rows(h) - first);
    double m[ROWS][WEIGHTS] = {{0}}, squares[ROWS] = {0};
    float x[ROWS][PIECE], f[PIECE], base[WEIGHTS], scale[3] = {0}, w[WEIGHTS];

    (void)cx, (void)worker;
    for (int64_t from = 0, n; from < W; from += n) {
        n = osh_min64(PIECE, W - from);
        for (int64_t r = 0; r < n_rows; r++) {
            osh_to_f32(x[r], osh_elem(h, (first + r) * W + from), h->dtype, n);
            squares[r] += osh_dot(x[r], x[r], n);
        }
        for (int64_t i = 0; i < M; i++) {
            osh_load_weight(f, fn, i * W + from, n, OSH_F32);
            for (int64_t r = 0; r < n_rows; r++) m[r][i] += osh_dot(x[r], f, n);
        }
    }
    osh_load_weight(base, a->in[2], 0, M, OSH_F32);
    osh_load_weight(scale, a->in[3], 0, osh_tensor_numel(a->in[3]), OSH_F32);
    for (int64_t r = 0; r < n_rows; r++) {
        double by = 1 / sqrt(squares[r] / (double)W + at->norm_eps);
        for (int64_t i = 0; i < M; i++) m[r][i] *= by;
        weights_finish(w, m[r], base, scale, at);
        osh_from_f32(osh_elem(a->out[0], (first + r) * M), a->out[0]->dtype, w, M);
    }
    return OSH_OK;
}

static osh_status weights_ref(osh_ctx *cx, const osh_op_args *a)
{
    assert(osh_width(a->out[0]) <= WEIGHTS);
    return osh_by_part(cx, a, osh_rows(a->in[0]), ROWS, weights_chunk);
}

static osh_status read_infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                             const int64_t *in_width, const void *attr)
{
    int64_t S = ((const osh_stream_read_attr *)attr)->streams;
    (void)w_shape, (void)w_ndim;
    if (in_width[0] < S)
        return osh_fail(cx, OSH_E_FORMAT, "stream_read: %lld weights for %lld streams",
                        (long long)in_width[0], (long long)S);
    out_width[0] = in_width[1] / S;
    return streams_check(cx, "stream_read", in_width[1], S);
}

/* Computes row n of `out` [N, D]: the sum of the S streams of h, each multiplied by its element of
 * w [S]. */
static void row_read(const osh_tensor *out, const osh_tensor *h, const float *w, int64_t S,
                     int64_t n)
{
    int64_t D = osh_width(out);
    float x[PIECE];
    for (int64_t from = 0, k; from < D; from += k) {
        double sum[PIECE] = {0};
        k = osh_min64(PIECE, D - from);
        for (int64_t j = 0; j < S; j++) {
            osh_to_f32(x, osh_elem(h, (n * S + j) * D + from), h->dtype, k);
            for (int64_t i = 0; i < k; i++) sum[i] += (double)w[j] * x[i];
        }
        for (int64_t i = 0; i < k; i++) x[i] = (float)sum[i];
        osh_from_f32(osh_elem(out, n * D + from), out->dtype, x, k);
    }
}

static osh_status read_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    int64_t S = ((const osh_stream_read_attr *)a->attr)->streams, M = osh_width(a->in[0]);
    int64_t end = osh_min64(osh_rows(a->in[1]), (chunk + 1) * ROWS);
    float w[STREAMS];
    (void)cx, (void)worker;
    for (int64_t n = chunk * ROWS; n < end; n++) {
        osh_to_f32(w, osh_elem(a->in[0], n * M), a->in[0]->dtype, S);
        row_read(a->out[0], a->in[1], w, S, n);
    }
    return OSH_OK;
}

static osh_status read_ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_rows(a->in[1]), ROWS, read_chunk);
}

static osh_status write_infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                              const int64_t *in_width, const void *attr)
{
    const osh_stream_write_attr *at = attr;
    int64_t S = at->streams, M = at->mixes ? 2 * S + S * S : 2 * S;
    (void)w_shape, (void)w_ndim;
    if (in_width[0] != M || in_width[1] != S * in_width[2])
        return osh_fail(cx, OSH_E_FORMAT,
                        "stream_write: widths %lld, %lld, %lld, want %lld weights and %lld streams",
                        (long long)in_width[0], (long long)in_width[1], (long long)in_width[2],
                        (long long)M, (long long)S);
    out_width[0] = in_width[1];
    return OSH_OK;
}

/* Computes elements [from, from + n) of each stream of one row. w [M]: the weights of the row,
 * rounded if the streams are mixed. */
static void piece_write(const osh_op_args *a, const float *w, int64_t row, int64_t from, int64_t n)
{
    const osh_stream_write_attr *at = a->attr;
    const osh_tensor *h = a->in[1], *y = a->in[2];
    int64_t S = at->streams, D = osh_width(y);
    osh_dtype dt = a->out[0]->dtype;
    float x[STREAMS][PIECE], add[PIECE], to[PIECE];

    osh_to_f32(add, osh_elem(y, row * D + from), y->dtype, n);
    for (int64_t j = 0; j < S; j++)
        osh_to_f32(x[j], osh_elem(h, (row * S + j) * D + from), h->dtype, n);
    for (int64_t k = 0; k < S; k++) {
        for (int64_t i = 0; i < n; i++) {
            double part = (double)w[S + k] * add[i], sum = at->mixes ? 0 : x[k][i];
            for (int64_t j = 0; j < S && at->mixes; j++)
                sum += (double)w[2 * S + j * S + k] * x[j][i];
            if (at->mixes) part = osh_round_to((float)part, dt), sum = osh_round_to((float)sum, dt);
            to[i] = (float)(part + sum);
        }
        osh_from_f32(osh_elem(a->out[0], (row * S + k) * D + from), dt, to, n);
    }
}

static osh_status write_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    const osh_stream_write_attr *at = a->attr;
    int64_t M = osh_width(a->in[0]), D = osh_width(a->in[2]),
            end = osh_min64(osh_rows(a->in[1]), (chunk + 1) * ROWS);
    float w[WEIGHTS];
    (void)cx, (void)worker;
    for (int64_t n = chunk * ROWS; n < end; n++) {
        osh_to_f32(w, osh_elem(a->in[0], n * M), a->in[0]->dtype, M);
        for (int64_t i = 0; i < M && at->mixes; i++) w[i] = osh_round_to(w[i], a->out[0]->dtype);
        for (int64_t from = 0; from < D; from += PIECE)
            piece_write(a, w, n, from, osh_min64(PIECE, D - from));
    }
    return OSH_OK;
}

static osh_status write_ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_rows(a->in[1]), ROWS, write_chunk);
}

static osh_status mean_infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                             const int64_t *in_width, const void *attr)
{
    int64_t S = ((const osh_stream_read_attr *)attr)->streams;
    (void)w_shape, (void)w_ndim;
    out_width[0] = in_width[0] / S;
    return streams_check(cx, "stream_mean", in_width[0], S);
}

static osh_status mean_ref(osh_ctx *cx, const osh_op_args *a)
{
    int64_t S = ((const osh_stream_read_attr *)a->attr)->streams;
    float w[STREAMS];
    (void)cx;
    for (int64_t j = 0; j < S; j++) w[j] = 1 / (float)S;
    for (int64_t n = 0; n < osh_rows(a->in[0]); n++) row_read(a->out[0], a->in[0], w, S, n);
    return OSH_OK;
}

const osh_op osh_op_stream_weights = {
    .name = "stream_weights", .n_in = 1, .n_weights = 3, .n_out = 1, .each_token = true,
    .attrs = weights_attrs, .attr_bytes = sizeof(osh_stream_weights_attr), .infer = weights_infer,
    .run = {[OSH_REF] = weights_ref}, .tol = 0, .scratch = osh_elementwise_scratch,
    .traits = OSH_OP_F32_OUT | OSH_OP_HOST_ONLY, .flops = osh_product_flops,
};
const osh_op osh_op_stream_read = {
    .name = "stream_read", .n_in = 2, .n_weights = 0, .n_out = 1, .f32_in = 1, .each_token = true,
    .attrs = read_attrs, .attr_bytes = sizeof(osh_stream_read_attr), .infer = read_infer,
    .run = {[OSH_REF] = read_ref}, .tol = 0, .scratch = osh_elementwise_scratch,
    .traits = OSH_OP_HOST_ONLY,
};
const osh_op osh_op_stream_write = {
    .name = "stream_write", .n_in = 3, .n_weights = 0, .n_out = 1, .f32_in = 1, .each_token = true,
    .attrs = write_attrs, .attr_bytes = sizeof(osh_stream_write_attr), .infer = write_infer,
    .run = {[OSH_REF] = write_ref}, .tol = 0, .scratch = osh_elementwise_scratch,
    .traits = OSH_OP_HOST_ONLY,
};
const osh_op osh_op_stream_mean = {
    .name = "stream_mean", .n_in = 1, .n_weights = 0, .n_out = 1, .each_token = true,
    .attrs = read_attrs, .attr_bytes = sizeof(osh_stream_read_attr), .infer = mean_infer,
    .run = {[OSH_REF] = mean_ref}, .tol = 0, .scratch = osh_elementwise_scratch,
    .traits = OSH_OP_HOST_ONLY,
};
