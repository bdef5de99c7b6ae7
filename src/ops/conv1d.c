/* conv1d.c - computes a causal convolution of each channel over its last K tokens.
 *
 *   in[0] x [N, C]
 *   in[1] w [C, K]
 *   in[2] bias [C] optional
 *   out y [N, C]
 *
 *   y[t] = act(bias + sum over k of w[k] x[t - K + 1 + k])
 *
 * x is 0 before the sample's first token. Example: K = 2, w = (10, 1), x = 1 2 3 gives y = 1 12 23.
 * The sum is rounded to the dtype of x, as in transformers' causal_conv1d_fn. With the attribute
 * `silu`, silu is applied to the rounded sum, and its result is rounded again. With the attribute
 * `f32`, w and the sum are not rounded (Glm5NextTextLinearAttention). This file sums in double.
 * Shapes: N tokens of the batch, C channels. */
#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"
#include "ops/scan.h"

#include <string.h>

/* ROWS: number of tokens in a chunk of parallel work.
 * PIECE: number of channels that are computed together.
 * MOST: largest K (number of tokens in the convolution). */
enum { ROWS = 64, PIECE = 256, MOST = 16 };
/* NEAR: number of channels in a chunk of parallel work of the backward pass. */
enum { NEAR = 32 };

static const osh_field attrs[] = {
    {"kernel", OSH_F_INT, offsetof(osh_conv1d_attr, kernel), NULL, 1, MOST, "K", NULL, NULL},
    {"silu", OSH_F_BOOL, offsetof(osh_conv1d_attr, silu), "false", 0, 0,
     "act is silu; else the identity", NULL, NULL},
    {"bias", OSH_F_BOOL, offsetof(osh_conv1d_attr, bias), "false", 0, 0, "b is there", NULL, NULL},
    {"f32", OSH_F_BOOL, offsetof(osh_conv1d_attr, f32), "false", 0, 0,
     "weights and sums are not rounded", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_conv1d_attr *at = attr;
    (void)cx;
    w_ndim[0] = 2, w_shape[0][0] = in_width[0], w_shape[0][1] = at->kernel;
    w_ndim[1] = at->bias, w_shape[1][0] = in_width[0];
    out_width[0] = in_width[0];
    return OSH_OK;
}

typedef struct conv_job {
    const osh_op_args *a;
    const osh_tile *tiles;
} conv_job;

/* Returns a pointer to channel c of row `row` of x. If only the next tokens of a sample are
 * computed (osh_op_past), the row numbers of earlier tokens are negative. Rows with negative
 * numbers are in the state [K - 1, C]. */
static const void *conv_row(const conv_job *j, int64_t row, int64_t c)
{
    const osh_tensor *x = j->a->in[0];
    int64_t C = osh_width(x), K = ((const osh_conv1d_attr *)j->a->attr)->kernel;
    if (row >= 0) return osh_elem(x, row * C + c);
    size_t at = (size_t)((K - 1 + row) * C + c);
    return (const char *)j->a->past->state + at * osh_dtype_bytes(x->dtype);
}

/* Computes channels [c, c + n) of the tokens of a tile. `ring` is a ring buffer with the last K
 * rows of these channels. */
static void conv_piece(const conv_job *j, const osh_tile *t, int64_t c, int64_t n)
{
    const osh_conv1d_attr *at = j->a->attr;
    const osh_tensor *x = j->a->in[0];
    int64_t K = at->kernel, C = osh_width(x), before = osh_min64(t->pos, K - 1);
    float ring[MOST][PIECE], w[PIECE * MOST], bias[PIECE] = {0}, y[PIECE];

    osh_dtype dt = at->f32 ? OSH_F32 : x->dtype;
    osh_load_weight(w, j->a->in[1], c * K, n * K, dt);
    if (j->a->in[2]) osh_load_weight(bias, j->a->in[2], c, n, dt);
    memset(ring, 0, sizeof ring);
    for (int64_t r = -before; r < t->n; r++) {
        int64_t row = t->row + r, slot = (t->pos + r) % K;
        osh_to_f32(ring[slot], conv_row(j, row, c), x->dtype, n);
        for (int64_t i = 0; r >= 0 && i < n; i++) {
            double sum = bias[i];
            for (int64_t k = 0; k < K; k++)
                sum += (double)w[i * K + k] * ring[(slot + 1 + k) % K][i];
            y[i] = osh_round_to((float)sum, dt);
            if (at->silu) y[i] = (float)(y[i] / (1 + osh_math_exp(-(double)y[i])));
        }
        if (r >= 0) osh_from_f32(osh_elem(j->a->out[0], row * C + c), x->dtype, y, n);
    }
}

static osh_status conv_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const conv_job *j = user;
    int64_t C = osh_width(j->a->in[0]);
    (void)cx, (void)worker;
    for (int64_t c = 0; c < C; c += PIECE)
        conv_piece(j, &j->tiles[chunk], c, osh_min64(PIECE, C - c));
    return OSH_OK;
}

/* Copies the last K - 1 rows of the sample to the state, for the sample's next tokens. */
static void conv_keep_rows(const osh_op_args *a)
{
    const osh_tensor *x = a->in[0];
    int64_t N = osh_rows(x), keep = ((const osh_conv1d_attr *)a->attr)->kernel - 1;
    size_t row = (size_t)osh_width(x) * osh_dtype_bytes(x->dtype);
    int64_t old = osh_max64(0, keep - N), fresh = keep - old;
    char *state = a->past->state;
    memmove(state, state + (size_t)fresh * row, (size_t)old * row);
    memcpy(state + (size_t)old * row, (const char *)x->data + (size_t)(N - fresh) * row,
           (size_t)fresh * row);
}

static size_t conv1d_state(const void *attr, const int64_t *in_width, int64_t n_tokens,
                           osh_dtype dt)
{
    (void)n_tokens;
    return (size_t)((((const osh_conv1d_attr *)attr)->kernel - 1) * in_width[0]) *
           osh_dtype_bytes(dt);
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    int64_t n_tiles = 0;
    osh_tile *tiles = NULL; // own
    conv_job j = {.a = a};

    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, a->seqs, osh_rows(a->in[0]), ROWS));
    osh_tiles_move(tiles, n_tiles, a->past);
    j.tiles = tiles;
    OSH_TRY(osh_parallel_for(cx, n_tiles, conv_chunk, &j));
    if (a->past) conv_keep_rows(a);
done:
    osh_free(cx, tiles);
    return rc;
}

/* Adds the gradients of channel c of one sample. room [2, seq->n]: scratch for x, and for the
 * gradients of the sums. */
static void conv_channel_back(const osh_grad_args *a, const osh_tile *seq, int64_t c, double *room)
{
    const osh_conv1d_attr *at = a->attr;
    const osh_tensor *x = a->in[0];
    int64_t K = at->kernel, C = osh_width(x), n = seq->n;
    double *xs = room, *g = room + n, dw[MOST] = {0}, db = 0;
    float w[MOST], bias = 0;

    osh_load_weight(w, a->in[1], c * K, K, x->dtype);
    if (a->in[2]) osh_load_weight(&bias, a->in[2], c, 1, x->dtype);
    for (int64_t t = 0; t < n; t++) xs[t] = osh_tensor_at(x, (seq->row + t) * C + c);
    for (int64_t t = 0; t < n; t++) {
        double sum = bias, half;
        // the first `none` terms of the sum are left out: their tokens would be before the sample
        int64_t none = osh_max64(0, K - 1 - t);
        for (int64_t k = none; k < K; k++) sum += w[k] * xs[t - K + 1 + k];
        half = 1 / (1 + osh_math_exp(-sum));
        g[t] = ((const float *)a->dout[0]->data)[(seq->row + t) * C + c];
        if (at->silu) g[t] *= half * (1 + sum * (1 - half));
        for (int64_t k = none; k < K; k++) dw[k] += g[t] * xs[t - K + 1 + k];
        db += g[t];
    }
    for (int64_t t = 0; t < n; t++) {
        double dx = 0;
        for (int64_t k = osh_max64(0, t + K - n); k < K; k++) dx += g[t + K - 1 - k] * w[k];
        osh_grad_add(a->din[0], (seq->row + t) * C + c, dx);
    }
    for (int64_t k = 0; k < K; k++) osh_grad_add(a->din[1], c * K + k, dw[k]);
    osh_grad_add(a->din[2], c, db);
}

typedef struct conv_back_job {
    const osh_grad_args *a;
    osh_tile *seq; // own: for each sample, the range of its rows
    int64_t n_seqs, longest;
    double *room;  // own: scratch, for each thread [2, tokens of the longest sample]
} conv_back_job;

/* Computes the gradients of a chunk of channels for all samples, one sample after the other. So the
 * gradients of weights are summed in the order of the samples. */
static osh_status conv_back_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const conv_back_job *j = user;
    int64_t end = osh_min64(osh_width(j->a->in[0]), (chunk + 1) * NEAR);
    (void)cx;
    for (int64_t s = 0; s < j->n_seqs; s++)
        for (int64_t c = chunk * NEAR; c < end; c++)
            conv_channel_back(j->a, &j->seq[s], c, j->room + worker * 2 * j->longest);
    return OSH_OK;
}

static osh_status conv1d_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]);
    conv_back_job j = {.a = a};

    OSH_TRY(osh_tiles_new(cx, &j.seq, &j.n_seqs, a->seqs, N, N + 1));
    for (int64_t s = 0; s < j.n_seqs; s++) j.longest = osh_max64(j.longest, j.seq[s].n);
    OSH_NEW(cx, j.room, osh_threads(cx) * 2 * j.longest);
    OSH_TRY(osh_parallel_for(cx, osh_div_up(osh_width(a->in[0]), NEAR), conv_back_chunk, &j));
done:
    osh_free(cx, j.room);
    osh_free(cx, j.seq);
    return rc;
}

static size_t conv1d_grad_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                  int64_t n_tokens, int n_threads)
{
    (void)attr, (void)in_width, (void)out_width;
    return (size_t)(n_threads * 2 * n_tokens) * sizeof(double) +
           (size_t)(n_tokens + 1) * sizeof(osh_tile);
}

static size_t scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                      int64_t n_tokens, int n_threads)
{
    (void)attr, (void)in_width, (void)out_width, (void)n_threads;
    return (size_t)(n_tokens + 2) * sizeof(osh_tile);
}

static double conv1d_flops(const void *attr, const int64_t *in_width, int64_t out_width,
                           const osh_op_load *load)
{
    (void)in_width;
    return 2 * load->tokens * (double)((const osh_conv1d_attr *)attr)->kernel * (double)out_width;
}

const osh_op osh_op_conv1d = {
    .name = "conv1d", .n_in = 1, .n_weights = 2, .n_out = 1,
    .attrs = attrs, .attr_bytes = sizeof(osh_conv1d_attr), .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CUDA] = OSH_CUDA_FN(osh_conv1d_cuda)}, .tol = 1e-12,
    .scratch = scratch, .next = ref, .state = conv1d_state,
    .grad.run = {[OSH_REF] = conv1d_grad_ref, [OSH_CUDA] = OSH_CUDA_GRAD(osh_conv1d_grad_cuda)},
    .grad.arena_bytes = osh_conv1d_grad_cuda_scratch,
    .grad.scratch = conv1d_grad_scratch,
    .flops = conv1d_flops,
};
