/* shift_accum.c - computes D += (X0 - X)^T X. X is the input of a Linear in the quantized model,
 * and X0 is the input of the same Linear in the original model.
 *
 *   in[0] x [N, I]     in[1] x0 [N, I]     out D F32 [I, I], in place, both triangles
 *
 * The difference of each element is f32, and is rounded once to the dtype of x. So BF16 values are
 * multiplied, as in hessian_accum. In exact arithmetic, X0^T X - X^T X is equal to D. But this
 * formula would have the rounding errors of two large sums that nearly cancel. (X0 - X)^T X has
 * only the rounding errors of X0 - X and of one sum, and D is 0 if both inputs are equal. Shapes: N
 * tokens of the batch, I in_features. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

#include <assert.h>

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), I = osh_width(a->in[0]);
    // x, x0: own [N, I], the inputs in f32. d: view of the output.
    float *x = NULL, *x0 = NULL, *d = a->out[0]->data;

    assert(a->out[0]->dtype == OSH_F32 && a->out[0]->shape[0] == I && a->out[0]->shape[1] == I);
    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    OSH_TRY(osh_f32_copy(cx, &x0, a->in[1]));
    for (int64_t i = 0; i < N * I; i++) x0[i] = osh_round_to(x0[i] - x[i], a->in[0]->dtype);
    for (int64_t i = 0; i < I; i++)
        for (int64_t j = 0; j < I; j++) {
            double sum = d[i * I + j];
            for (int64_t n = 0; n < N; n++) sum += (double)x0[n * I + i] * x[n * I + j];
            d[i * I + j] = (float)sum;
        }
done:
    osh_free(cx, x);
    osh_free(cx, x0);
    return rc;
}

const osh_op osh_op_shift_accum = {
    .name = "shift_accum", .n_in = 2, .n_weights = 0, .n_out = 1,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_shift_accum_cpu,
            [OSH_CUDA] = OSH_CUDA_FN(osh_shift_accum_cuda)},
    .tol = 1e-12, .scratch = osh_shift_accum_scratch, .arena_bytes = osh_shift_accum_cuda_scratch,
};
