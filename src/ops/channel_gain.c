/* channel_gain.c - computes y = x w, with a factor for each channel (Gemma 3n's
 * correct_output_scale).
 *
 *   in[0] x [N, D]     in[1] w [D]     out y [N, D]     y may overwrite x
 *
 * w and the product are rounded to the dtype of x. Shapes: N tokens of the batch, D channels. */
#include "ops/cpu/cpu.h"
#include "ops/kernel.h"

enum { PIECE = 1024 }; // number of channels that are computed together

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    (void)cx, (void)attr;
    w_ndim[0] = 1, w_shape[0][0] = out_width[0] = in_width[0];
    return OSH_OK;
}

static osh_status channel_gain_row(osh_ctx *cx, void *user, int64_t row, int worker)
{
    const osh_op_args *a = user;
    const osh_tensor *t = a->in[0];
    int64_t D = osh_width(t);
    float x[PIECE], w[PIECE];
    (void)cx, (void)worker;
    for (int64_t c = 0; c < D; c += PIECE) {
        int64_t n = osh_min64(PIECE, D - c);
        osh_to_f32(x, osh_elem(t, row * D + c), t->dtype, n);
        osh_load_weight(w, a->in[1], c, n, t->dtype);
        for (int64_t i = 0; i < n; i++) x[i] *= w[i];
        osh_from_f32(osh_elem(a->out[0], row * D + c), t->dtype, x, n);
    }
    return OSH_OK;
}

static osh_status channel_gain_ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_rows(a->in[0]), 1, channel_gain_row);
}

const osh_op osh_op_channel_gain = {
    .name = "channel_gain", .n_in = 1, .n_weights = 1, .n_out = 1, .infer = infer,
    .each_token = true, .run = {[OSH_REF] = channel_gain_ref}, .tol = 0,
    .scratch = osh_elementwise_scratch,
    .traits = OSH_OP_HOST_ONLY,
};
