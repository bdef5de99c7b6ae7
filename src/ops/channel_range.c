/* channel_range.c - computes the smallest and the largest value of each channel over all tokens.
 *
 *   in[0] x [N, D]     out F32 [2, D], in place: row 0 smallest, row 1 largest
 *
 * Shapes: N tokens of the batch, D channels. */
#include "ops/cuda/channels.h"
#include "ops/kernel.h"

#include <assert.h>

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), D = osh_width(a->in[0]);
    // x: own [N, D], the input in f32. lo, hi: views of rows 0 and 1 of the output.
    float *x = NULL, *lo = a->out[0]->data, *hi = lo + D;

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    for (int64_t i = 0; i < N * D; i++) {
        if (x[i] < lo[i % D]) lo[i % D] = x[i];
        if (x[i] > hi[i % D]) hi[i % D] = x[i];
    }
done:
    osh_free(cx, x);
    return rc;
}

static void channel_range_widen(const osh_tensor *out, const float *x, int64_t c, int64_t n)
{
    float *lo = (float *)out->data + c, *hi = lo + out->shape[1];
    for (int64_t i = 0; i < n; i++) {
        lo[i] = x[i] < lo[i] ? x[i] : lo[i];
        hi[i] = x[i] > hi[i] ? x[i] : hi[i];
    }
}

static osh_status channel_range_fast(osh_ctx *cx, const osh_op_args *a)
{
    int64_t D = osh_width(a->in[0]);
    assert(a->out[0]->dtype == OSH_F32 && a->out[0]->shape[0] == 2 && a->out[0]->shape[1] == D);
    return osh_by_channel(cx, a, channel_range_widen);
}

const osh_op osh_op_channel_range = {
    .name = "channel_range", .n_in = 1, .n_weights = 0, .n_out = 1,
    .run = {[OSH_REF] = ref, [OSH_CPU] = channel_range_fast,
            [OSH_CUDA] = OSH_CUDA_FN(osh_channel_range_cuda)},
};
