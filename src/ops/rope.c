/* rope.c - computes the rotary position embedding: rotates the pairs (i, i + R/2) of each head by
 * the angle position * inv_freq[i]. If interleaved, the pairs are (2i, 2i + 1).
 *
 *   in[0] q [N, H*Dh]     out [N, H*Dh]     R = rotary_dim <= Dh; elements from R on are copied
 *
 *   out[i]       = q[i] cos - q[i + R/2] sin
 *   out[i + R/2] = q[i + R/2] cos + q[i] sin
 *
 * The position is the index of the token in its sample. The angle is an f32 product, as in
 * transformers' apply_rotary_pos_emb. cos and sin are multiplied by attention_scaling. cos, sin,
 * each product and each sum are rounded to the dtype of q. Exceptions:
 *
 *   f32 (Olmo2)           cos, sin and products are f32; the sum is rounded
 *   dynamic NTK           a sample longer than max_pos has frequencies for its length
 *                         (_compute_dynamic_ntk_parameters)
 *   longrope              a sample longer than long_from uses the frequencies long_freq
 *   back                  this number is subtracted from the position (entries of windows,
 *                         compress.c)
 *   beta (Ministral3)     the result is multiplied by a rounded factor of the position and
 *                         rounded again
 *
 * Shapes: N tokens of the batch, H heads, Dh head_dim. */
#include "ops/rope.h"
#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

#include <assert.h>
#include <math.h>
#include <string.h>

int64_t osh_rope_key(const osh_rope_attr *at, int64_t len)
{
    if (at->dynamic && len > at->max_pos) return len;
    return at->long_from && len > at->long_from;
}

float osh_rope_position_factor(const osh_rope_attr *at, int64_t pos)
{
    if (at->position_beta == 0) return 1;
    float turns = floorf((float)pos / (float)at->position_original);
    return 1 + (float)at->position_beta * (float)osh_math_log(1 + turns);
}

void osh_rope_freqs(float *inv_freq, const osh_rope_attr *at, int64_t len)
{
    int64_t n = at->rotary_dim / 2;
    double dim = (double)at->rotary_dim, base = at->theta;

    if (!osh_rope_key(at, len)) {
        memcpy(inv_freq, at->inv_freq, (size_t)n * sizeof *inv_freq);
        return;
    }
    if (!at->dynamic) {
        memcpy(inv_freq, at->long_freq, (size_t)n * sizeof *inv_freq);
        return;
    }
    double grow = at->factor * (double)len / (double)at->max_pos - (at->factor - 1);
    base *= osh_math_pow(grow, dim / (dim - 2));
    for (int64_t i = 0; i < n; i++)
        inv_freq[i] = (float)(1 / osh_math_pow(base, 2 * (double)i / dim));
}

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_rope_attr *at = attr;

    (void)w_shape, (void)w_ndim;
    if (at->head_dim <= 0 || in_width[0] % at->head_dim)
        return osh_fail(cx, OSH_E_FORMAT, "rope: width %lld is not a multiple of head_dim %lld",
                        (long long)in_width[0], (long long)at->head_dim);
    if (at->rotary_dim % 2 || at->rotary_dim > at->head_dim ||
        at->rotary_dim / 2 > OSH_ROPE_MAX_FREQS)
        return osh_fail(cx, OSH_E_FORMAT,
                        "rope: rotary dim %lld, want an even number up to head_dim %lld and %d",
                        (long long)at->rotary_dim, (long long)at->head_dim, 2 * OSH_ROPE_MAX_FREQS);
    out_width[0] = in_width[0];
    return OSH_OK;
}

/* Rotates one head [Dh] of a token at position pos. way: factor of the angle. It is -1 for
 * gradients, and otherwise 1. */
static void rope_head_ref(float *head, const float *inv_freq, const osh_rope_attr *at, int64_t pos,
                          osh_dtype dtype, int way)
{
    int64_t half = at->rotary_dim / 2, step = at->interleaved ? 2 : 1,
            apart = at->interleaved ? 1 : half;
    osh_dtype dt = at->f32 ? OSH_F32 : dtype;
    float factor = osh_round_to(osh_rope_position_factor(at, pos), dtype);

    for (int64_t i = 0; i < half; i++) {
        float angle = inv_freq[i] * (float)(pos - at->back), scaling = (float)at->attention_scaling;
        float c = osh_round_to((float)cos(angle) * scaling, dt),
              s = osh_round_to((float)sin(angle) * scaling, dt);
        s *= (float)way;
        float *a = head + step * i, *b = a + apart, lo = *a, hi = *b;
        *a = osh_round_to(lo * c, dt) + osh_round_to(-hi * s, dt);
        *b = osh_round_to(hi * c, dt) + osh_round_to(lo * s, dt);
    }
    for (int64_t i = 0; factor != 1 && i < at->head_dim; i++)
        head[i] = osh_round_to(head[i], dtype) * factor;
}

/* Rotates all heads of x, which has the shape of `like`. `way`: factor of the angle. If it is 1,
 * the result is rounded to the dtype of `like`. If it is -1 (for gradients), the result is not
 * rounded. */
static osh_status rope_turn_ref(osh_ctx *cx, float *x, const osh_tensor *like, const osh_seqs *seqs,
                                const osh_rope_attr *at, int way)
{
    osh_status rc = OSH_OK;
    osh_dtype dt = way > 0 ? like->dtype : OSH_F32;
    int64_t N = osh_rows(like), width = osh_width(like), n_seqs = 0;
    float inv_freq[OSH_ROPE_MAX_FREQS];
    osh_tile *seq = NULL; // own: for each sample, the range of its rows

    OSH_TRY(osh_tiles_new(cx, &seq, &n_seqs, seqs, N, N + 1));
    for (int64_t s = 0; s < n_seqs; s++) {
        osh_rope_freqs(inv_freq, at, seq[s].len);
        for (int64_t t = 0; t < seq[s].n; t++)
            for (int64_t h = 0; h < width; h += at->head_dim)
                rope_head_ref(x + (seq[s].row + t) * width + h, inv_freq, at, t, dt, way);
    }
done:
    osh_free(cx, seq);
    return rc;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    float *x = NULL; // own: [N, H*Dh]

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    OSH_TRY(rope_turn_ref(cx, x, a->in[0], a->seqs, a->attr, 1));
    osh_from_f32(a->out[0]->data, a->in[0]->dtype, x, osh_tensor_numel(a->in[0]));
done:
    osh_free(cx, x);
    return rc;
}

static osh_status rope_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    float *dy = NULL; // own: [N, H*Dh]

    OSH_TRY(osh_f32_copy(cx, &dy, a->dout[0]));
    OSH_TRY(rope_turn_ref(cx, dy, a->in[0], a->seqs, a->attr, -1));
    for (int64_t i = 0; i < osh_tensor_numel(a->in[0]); i++) osh_grad_add(a->din[0], i, dy[i]);
done:
    osh_free(cx, dy);
    return rc;
}

const osh_op osh_op_rope = {
    .name = "rope", .n_in = 1, .n_weights = 0, .n_out = 1, .spreads = 1,
    /* The attributes have no field table, because the graph computes them. */
    .attrs = NULL, .attr_bytes = sizeof(osh_rope_attr), .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_rope_cpu, [OSH_CUDA] = OSH_CUDA_FN(osh_rope_cuda)},
    .tol = 1e-12, .scratch = osh_rope_scratch, .next = osh_rope_cpu,
    .arena_bytes = osh_rope_cuda_scratch,
    .grad.writes = true, .grad.in_place = true,
    .grad.run = {[OSH_REF] = rope_grad_ref, [OSH_CPU] = osh_rope_grad_cpu,
             [OSH_CUDA] = OSH_CUDA_GRAD(osh_rope_grad_cuda)},
    .grad.arena_bytes = osh_rope_cuda_scratch,
    .traits = OSH_OP_ROPE,
};
