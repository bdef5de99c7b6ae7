/* hessian_accum.c - computes the lower triangle of H += X^T X.
 *
 *   in[0] x [N, I]     out H F32 [I, I], in place; elements above the diagonal are not written
 *
 * H is the Hessian of GPTQ and SparseGPT up to a factor, which the modifier applies (llmcompressor
 * accumulate_hessian). Products of bf16 values are exact in f32. Sums are f32. The kernels add
 * tiles of tokens in order, sample by sample. Shapes: N tokens of the batch, I in_features. */
#include "base/checked.h"
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

#include <assert.h>

/* Returns sum + x^T y. x and y point to the first elements of two columns of one matrix [N, I]. */
OSH_RANGES_CHECKED static double hessian_add_products(double sum, const float *x, const float *y,
                                                      int64_t N, int64_t I)
{
    for (int64_t n = 0; n < N; n++) sum += (double)x[n * I] * y[n * I];
    return sum;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), I = osh_width(a->in[0]);
    float *x = NULL, *h = a->out[0]->data; // x: own [N, I], the input in f32. h: view of the output

    assert(a->out[0]->dtype == OSH_F32 && a->out[0]->shape[0] == I && a->out[0]->shape[1] == I);
    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    osh_check_range(x, (size_t)(N * I) * sizeof *x);
    for (int64_t i = 0; i < I; i++)
        for (int64_t j = 0; j <= i; j++)
            h[i * I + j] = (float)hessian_add_products(h[i * I + j], x + i, x + j, N, I);
done:
    osh_free(cx, x);
    return rc;
}

const osh_op osh_op_hessian_accum = {
    .name = "hessian_accum", .n_in = 1, .n_weights = 0, .n_out = 1,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_hessian_accum_cpu,
            [OSH_CUDA] = OSH_CUDA_FN(osh_hessian_accum_cuda)},
    .tol = 1e-12, .scratch = osh_hessian_accum_scratch,
    .arena_bytes = osh_hessian_accum_cuda_scratch,
};
