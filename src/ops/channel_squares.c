/* channel_squares.c - sums x^2 of each channel over all tokens.
 *
 *   in[0] x [N, D]     out s F64 [D], in place: s += x^2
 *
 * The observer imatrix_mse multiplies the errors of input channels by s (llmcompressor
 * observers/imatrix.py). A square is exact in double. Squares are added token by token, so the
 * result does not depend on batches or threads. Shapes: N tokens of the batch, D elements per
 * token. */
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

#include <assert.h>

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), D = osh_width(a->in[0]);
    float *x = NULL; // own: [N, D]
    double *s = a->out[0]->data;

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    for (int64_t i = 0; i < N * D; i++) s[i % D] += (double)x[i] * x[i];
done:
    osh_free(cx, x);
    return rc;
}

static void channel_squares_add(const osh_tensor *out, const float *x, int64_t c, int64_t n)
{
    double *s = (double *)out->data + c;
    for (int64_t i = 0; i < n; i++) s[i] += (double)x[i] * x[i];
}

static osh_status channel_squares_fast(osh_ctx *cx, const osh_op_args *a)
{
    int64_t D = osh_width(a->in[0]);
    assert(a->out[0]->dtype == OSH_F64 && a->out[0]->shape[0] == D);
    return osh_by_channel(cx, a, channel_squares_add);
}

const osh_op osh_op_channel_squares = {
    .name = "channel_squares", .n_in = 1, .n_weights = 0, .n_out = 1,
    .run = {[OSH_REF] = ref, [OSH_CPU] = channel_squares_fast,
            [OSH_CUDA] = OSH_CUDA_FN(osh_channel_squares_cuda)},
    .arena_bytes = osh_channel_squares_cuda_scratch,
};
