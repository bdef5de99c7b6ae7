/* match_rms.c - computes y = x rms(like) / rms(x), row by row. So y has the magnitude of `like`.
 *
 *   in[0] x [N, D]     in[1] like [N, D]     out y [N, D]     y may overwrite x
 *
 * The mean square of x is at least 1e-5. Squares, means, roots, the product and the quotient are
 * rounded to the dtype of x, as in transformers' Gemma3nTextModel. This file sums in double.
 * Shapes: N tokens of the batch, D channels. */
#include "ops/cpu/cpu.h"
#include "ops/kernel.h"

#include <math.h>

enum { PIECE = 1024 }; // number of channels that are computed together

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    (void)attr, (void)w_shape, (void)w_ndim;
    if (in_width[0] != in_width[1])
        return osh_fail(cx, OSH_E_FORMAT, "match_rms: widths %lld and %lld, want the same",
                        (long long)in_width[0], (long long)in_width[1]);
    out_width[0] = in_width[0];
    return OSH_OK;
}

/* Returns the mean of the squares of a row, rounded to the dtype of t. */
static float mean_square(const osh_tensor *t, int64_t row)
{
    int64_t D = osh_width(t);
    double sum = 0;
    float x[PIECE];
    for (int64_t c = 0; c < D; c += PIECE) {
        int64_t n = osh_min64(PIECE, D - c);
        osh_to_f32(x, osh_elem(t, row * D + c), t->dtype, n);
        for (int64_t i = 0; i < n; i++) sum += osh_round_to(x[i] * x[i], t->dtype);
    }
    return osh_round_to((float)(sum / (double)D), t->dtype);
}

static osh_status match_chunk(osh_ctx *cx, void *user, int64_t row, int worker)
{
    const osh_op_args *a = user;
    const osh_tensor *t = a->in[0];
    osh_dtype dt = t->dtype;
    int64_t D = osh_width(t);
    float least = osh_round_to(1e-5f, dt), own = mean_square(t, row), x[PIECE];
    float want = osh_round_to((float)sqrt(mean_square(a->in[1], row)), dt);
    (void)cx, (void)worker;
    own = osh_round_to((float)sqrt(own > least ? own : least), dt);
    for (int64_t c = 0; c < D; c += PIECE) {
        int64_t n = osh_min64(PIECE, D - c);
        osh_to_f32(x, osh_elem(t, row * D + c), dt, n);
        for (int64_t i = 0; i < n; i++) x[i] = osh_round_to(x[i] * want, dt) / own;
        osh_from_f32(osh_elem(a->out[0], row * D + c), dt, x, n);
    }
    return OSH_OK;
}

static osh_status match_ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_rows(a->in[0]), 1, match_chunk);
}

const osh_op osh_op_match_rms = {
    .name = "match_rms", .n_in = 2, .n_out = 1, .infer = infer, .each_token = true,
    .run = {[OSH_REF] = match_ref}, .tol = 0, .scratch = osh_elementwise_scratch,
    .traits = OSH_OP_HOST_ONLY,
};
