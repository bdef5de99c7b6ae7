/* dilated_conv.c - computes a causal convolution of each channel over every `dilation`-th earlier
 * token.
 *
 *   in[0] x [N, C]
 *   in[1] w [C, K]
 *   out y [N, C]
 *
 *   y[t] = silu(sum over k of w[k] x[t - (K - 1 - k) dilation])
 *
 * x is 0 before the sample's first token. Example: K = 2, dilation 2, w = (10, 1), x = 1 2 3 4
 * gives the sums 1 2 13 24. The sum and y are rounded to the dtype of x, as in transformers'
 * Qwen4ExpTextPLELayer. This file sums in double. Shapes: N tokens of the batch, C channels. */
#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/kernel.h"

#include <string.h>

/* ROWS: number of tokens in a chunk of parallel work.
 * PIECE: number of channels that are computed together.
 * MOST: largest K (number of tokens in the convolution). */
enum { ROWS = 64, PIECE = 256, MOST = 16 };

static const osh_field attrs[] = {
    {"kernel", OSH_F_INT, offsetof(osh_dilated_conv_attr, kernel), NULL, 1, MOST, "K", NULL, NULL},
    {"dilation", OSH_F_INT, offsetof(osh_dilated_conv_attr, dilation), NULL, 1, 1024,
     "distance of the tokens", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    (void)cx;
    w_ndim[0] = 2, w_shape[0][0] = in_width[0];
    w_shape[0][1] = ((const osh_dilated_conv_attr *)attr)->kernel;
    out_width[0] = in_width[0];
    return OSH_OK;
}

typedef struct dilated_job {
    const osh_op_args *a;
    const osh_tile *tiles;
} dilated_job;

/* Returns how many earlier tokens the convolution reads for a token. */
static int64_t dilated_reach(const osh_dilated_conv_attr *at)
{
    return (at->kernel - 1) * at->dilation;
}

/* Reads channels [c, c + n) of row `row` to x [n]. If only the next tokens of a sample are computed
 * (osh_op_past), the row numbers of earlier tokens are negative. Rows with negative numbers are in
 * the state. */
static void dilated_row(float *x, const osh_op_args *a, int64_t row, int64_t c, int64_t n)
{
    const osh_tensor *in = a->in[0];
    int64_t C = osh_width(in), reach = dilated_reach(a->attr);
    const void *from = osh_elem(in, osh_max64(row, 0) * C + c);
    if (row < 0)
        from = (const char *)a->past->state +
               (size_t)((reach + row) * C + c) * osh_dtype_bytes(in->dtype);
    osh_to_f32(x, from, in->dtype, n);
}

/* Computes channels [c, c + n) of the tokens of a tile. */
static void dilated_piece(const dilated_job *j, const osh_tile *t, int64_t c, int64_t n)
{
    const osh_dilated_conv_attr *at = j->a->attr;
    const osh_tensor *x = j->a->in[0];
    int64_t K = at->kernel, C = osh_width(x);
    float w[PIECE * MOST], v[PIECE];
    osh_load_weight(w, j->a->in[1], c * K, n * K, x->dtype);
    for (int64_t r = 0; r < t->n; r++) {
        double sum[PIECE] = {0};
        for (int64_t k = 0; k < K; k++) {
            int64_t back = (K - 1 - k) * at->dilation;
            if (back > t->pos + r) continue;
            dilated_row(v, j->a, t->row + r - back, c, n);
            for (int64_t i = 0; i < n; i++) sum[i] += (double)w[i * K + k] * v[i];
        }
        for (int64_t i = 0; i < n; i++) {
            double y = osh_round_to((float)sum[i], x->dtype);
            v[i] = (float)(y / (1 + osh_math_exp(-y)));
        }
        osh_from_f32(osh_elem(j->a->out[0], (t->row + r) * C + c), x->dtype, v, n);
    }
}

static osh_status dilated_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const dilated_job *j = user;
    int64_t C = osh_width(j->a->in[0]);
    (void)cx, (void)worker;
    for (int64_t c = 0; c < C; c += PIECE)
        dilated_piece(j, &j->tiles[chunk], c, osh_min64(PIECE, C - c));
    return OSH_OK;
}

/* Copies the last rows of the sample to the state, for the sample's next tokens. */
static void dilated_keep(const osh_op_args *a)
{
    const osh_tensor *x = a->in[0];
    int64_t N = osh_rows(x), keep = dilated_reach(a->attr), old = osh_max64(0, keep - N);
    size_t row = (size_t)osh_width(x) * osh_dtype_bytes(x->dtype);
    char *state = a->past->state;
    memmove(state, state + (size_t)(keep - old) * row, (size_t)old * row);
    memcpy(state + (size_t)old * row, (const char *)x->data + (size_t)(N - keep + old) * row,
           (size_t)(keep - old) * row);
}

static size_t dilated_state(const void *attr, const int64_t *in_width, int64_t n_tokens,
                            osh_dtype dt)
{
    (void)n_tokens;
    return (size_t)(dilated_reach(attr) * in_width[0]) * osh_dtype_bytes(dt);
}

static osh_status dilated_ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    int64_t n_tiles = 0;
    osh_tile *tiles = NULL; // own
    dilated_job j = {.a = a};
    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, a->seqs, osh_rows(a->in[0]), ROWS));
    osh_tiles_move(tiles, n_tiles, a->past);
    j.tiles = tiles;
    OSH_TRY(osh_parallel_for(cx, n_tiles, dilated_chunk, &j));
    if (a->past) dilated_keep(a);
done:
    osh_free(cx, tiles);
    return rc;
}

static size_t scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                      int64_t n_tokens, int n_threads)
{
    (void)attr, (void)in_width, (void)out_width, (void)n_threads;
    return (size_t)(n_tokens + 2) * sizeof(osh_tile);
}

static double dilated_flops(const void *attr, const int64_t *in_width, int64_t out_width,
                            const osh_op_load *load)
{
    (void)in_width;
    return 2 * load->tokens * (double)((const osh_dilated_conv_attr *)attr)->kernel *
           (double)out_width;
}

const osh_op osh_op_dilated_conv = {
    .name = "dilated_conv", .n_in = 1, .n_weights = 1, .n_out = 1,
    .attrs = attrs, .attr_bytes = sizeof(osh_dilated_conv_attr), .infer = infer,
    .run = {[OSH_REF] = dilated_ref}, .tol = 0, .scratch = scratch, .next = dilated_ref,
    .state = dilated_state, .flops = dilated_flops, .traits = OSH_OP_HOST_ONLY,
};
