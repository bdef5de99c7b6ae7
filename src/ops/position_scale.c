/* position_scale.c - multiplies each row by a factor that grows with the position of the token.
 * Llama 4 multiplies the queries of layers without rope by this factor.
 *
 *   in[0] x [N, D]
 *   out y [N, D]
 *
 *   y = x * (1 + beta ln(1 + floor((position + 1) / original)))
 *   position: index of the token in its sample
 *
 * The factor is f32, and the product is rounded to the dtype of x, as in transformers'
 * Llama4TextAttention (attn_temperature_tuning). Shapes: N tokens of the batch, D elements per
 * token. */
#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

#include <math.h>

/* ROWS: number of tokens in a chunk of parallel work.
 * PIECE: number of elements that are converted to f32 at a time. */
enum { ROWS = 64, PIECE = 1024 };

static const osh_field attrs[] = {
    {"beta", OSH_F_FLOAT, offsetof(osh_position_scale_attr, beta), NULL, -1e6, 1e6, "strength",
     NULL, NULL},
    {"original", OSH_F_FLOAT, offsetof(osh_position_scale_attr, original), NULL, 1, 1e12,
     "positions of one step", NULL, NULL},
    {0},
};

/* Returns the factor for a token at position `pos`. */
static float position_scale(const osh_position_scale_attr *at, int64_t pos)
{
    float turns = floorf(((float)pos + 1) / (float)at->original);
    return (float)osh_math_log(1 + (double)turns) * (float)at->beta + 1;
}

static osh_status position_scale_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = ((void **)user)[0];
    const osh_tile *t = (const osh_tile *)((void **)user)[1] + chunk;
    const osh_tensor *x = a->in[0];
    int64_t D = osh_width(x);
    float y[PIECE];
    (void)cx, (void)worker;
    for (int64_t r = 0; r < t->n; r++) {
        float by = position_scale(a->attr, t->pos + r);
        for (int64_t at = (t->row + r) * D, end = at + D, m; at < end; at += m) {
            m = osh_min64(PIECE, end - at);
            osh_to_f32(y, osh_elem(x, at), x->dtype, m);
            for (int64_t i = 0; i < m; i++) y[i] *= by;
            osh_from_f32(osh_elem(a->out[0], at), x->dtype, y, m);
        }
    }
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    int64_t n_tiles = 0;
    osh_tile *tiles = NULL; // own
    OSH_TRY(osh_tiles_new(cx, &tiles, &n_tiles, a->seqs, osh_rows(a->in[0]), ROWS));
    osh_tiles_move(tiles, n_tiles, a->past);
    void *job[2] = {(void *)(uintptr_t)a, tiles};
    OSH_TRY(osh_parallel_for(cx, n_tiles, position_scale_chunk, job));
done:
    osh_free(cx, tiles);
    return rc;
}

/* Computes dx = dy * factor. The factor of a row is that of the forward pass. */
static osh_status position_scale_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), D = osh_width(a->in[0]), n_seqs = 0;
    const float *dy = a->dout[0]->data;
    osh_tile *seq = NULL; // own: for each sample, the range of its rows
    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, a->seqs, N, N + 1));
    for (int64_t s = 0; s < n_seqs; s++)
        for (int64_t i = 0; i < seq[s].n * D; i++)
            osh_grad_add(a->din[0], seq[s].row * D + i,
                         (double)position_scale(a->attr, i / D) * dy[seq[s].row * D + i]);
done:
    osh_free(cx, seq);
    return rc;
}

static size_t scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                      int64_t n_tokens, int n_threads)
{
    (void)attr, (void)in_width, (void)out_width, (void)n_threads;
    return (size_t)(n_tokens + 2) * sizeof(osh_tile);
}

const osh_op osh_op_position_scale = {
    .name = "position_scale", .n_in = 1, .n_weights = 0, .n_out = 1,
    .attrs = attrs, .attr_bytes = sizeof(osh_position_scale_attr), .infer = osh_infer_same,
    .run = {[OSH_REF] = ref, [OSH_CUDA] = OSH_CUDA_FN(osh_position_scale_cuda)},
    .tol = 1e-12, .scratch = scratch, .next = ref,
    .grad.run = {[OSH_REF] = position_scale_grad_ref,
                 [OSH_CUDA] = OSH_CUDA_GRAD(osh_position_scale_grad_cuda)},
};
