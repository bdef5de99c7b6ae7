/* channel_sum.c - sums |x| of each channel over all tokens.
 *
 *   in[0] x [N, D]     out s F32 [2, D], in place: sum = row 0 - row 1
 *
 * This is the statistic of AWQ (llmcompressor awq/base.py cache_smooth_activations_hook). Row 1 is
 * the sum of the rounding errors of row 0 (Kahan summation). Without row 1, a sum over a million
 * tokens would lose digits. Values are added token by token, so the result does not depend on
 * batches. Shapes: N tokens of the batch, D elements per token. */
#include "ops/cuda/channels.h"
#include "ops/kernel.h"

#include <assert.h>
#include <math.h>

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), D = osh_width(a->in[0]);
    // x: own [N, D], the input in f32. sum, much: views of rows 0 (sums) and 1 (errors) of the
    // output.
    float *x = NULL, *sum = a->out[0]->data, *much = sum + D;

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    for (int64_t c = 0; c < D; c++) {
        double all = (double)sum[c] - much[c];
        for (int64_t i = 0; i < N; i++) all += fabs((double)x[i * D + c]);
        sum[c] = (float)all;
        much[c] = (float)(sum[c] - all);
    }
done:
    osh_free(cx, x);
    return rc;
}

static void channel_sum_add(const osh_tensor *out, const float *x, int64_t c, int64_t n)
{
    float *sum = (float *)out->data + c, *much = sum + out->shape[1];
    for (int64_t i = 0; i < n; i++) {
        float more = fabsf(x[i]) - much[i], now = sum[i] + more;
        much[i] = now - sum[i] - more;
        sum[i] = now;
    }
}

static osh_status channel_sum_fast(osh_ctx *cx, const osh_op_args *a)
{
    int64_t D = osh_width(a->in[0]);
    assert(a->out[0]->dtype == OSH_F32 && a->out[0]->shape[0] == 2 && a->out[0]->shape[1] == D);
    return osh_by_channel(cx, a, channel_sum_add);
}

const osh_op osh_op_channel_sum = {
    .name = "channel_sum", .n_in = 1, .n_weights = 0, .n_out = 1,
    .run = {[OSH_REF] = ref, [OSH_CPU] = channel_sum_fast,
            [OSH_CUDA] = OSH_CUDA_FN(osh_channel_sum_cuda)},
};
