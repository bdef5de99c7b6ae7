/* absent.c - defines the functions of cuda.h in a binary without CUDA. Each function fails with a
 * message. */
#include "ops/cuda/cuda.h"
#ifndef OSH_CUDA_BUILT

osh_status osh_cuda_wordsum(osh_ctx *cx, osh_device *d, uint64_t *sum, const void *p,
                            size_t n_bytes)
{
    (void)d, (void)sum, (void)p, (void)n_bytes;
    return osh_cuda_absent(cx);
}

osh_status osh_cuda_all_finite(osh_ctx *cx, int *first, osh_device *d,
                               const osh_tensor *const *tensors, int n)
{
    (void)first, (void)d, (void)tensors, (void)n;
    return osh_cuda_absent(cx);
}

osh_status osh_cuda_peak_product(osh_ctx *cx, double *flops_per_s, osh_device *d, osh_dtype dtype,
                                 int64_t side, double seconds)
{
    (void)flops_per_s, (void)d, (void)dtype, (void)side, (void)seconds;
    return osh_cuda_absent(cx);
}

osh_status osh_cuda_peak_attention(osh_ctx *cx, double *flops_per_s, osh_device *d,
                                   int64_t n_samples, int64_t n_tokens, double seconds)
{
    (void)flops_per_s, (void)d, (void)n_samples, (void)n_tokens, (void)seconds;
    return osh_cuda_absent(cx);
}

size_t osh_cuda_peak_attention_bytes(int64_t n_samples, int64_t n_tokens)
{
    (void)n_samples, (void)n_tokens;
    return 0;
}

osh_status osh_cuda_peak_copies(osh_ctx *cx, double *inside_per_s, double *put_per_s, osh_device *d,
                                int64_t n_bytes, double seconds)
{
    (void)inside_per_s, (void)put_per_s, (void)d, (void)n_bytes, (void)seconds;
    return osh_cuda_absent(cx);
}

osh_status osh_cuda_finite(osh_ctx *cx, int64_t *first, const osh_tensor *x, int64_t base)
{
    (void)first, (void)x, (void)base;
    return osh_cuda_absent(cx);
}

osh_status osh_cuda_count_routes(osh_ctx *cx, int32_t *n, const osh_tensor *route)
{
    (void)n, (void)route;
    return osh_cuda_absent(cx);
}

osh_status osh_cuda_routes(osh_ctx *cx, int32_t *n, int32_t *lists, const osh_tensor *route)
{
    (void)n, (void)lists, (void)route;
    return osh_cuda_absent(cx);
}

osh_status osh_cuda_finite_rows(osh_ctx *cx, int64_t *first, const osh_tensor *x,
                                const osh_op_rows *rows)
{
    (void)first, (void)x, (void)rows;
    return osh_cuda_absent(cx);
}

osh_status osh_cuda_mixture_run(osh_ctx *cx, const osh_cuda_mixture *m)
{
    (void)m;
    return osh_cuda_absent(cx);
}

osh_status osh_cuda_minmax(osh_ctx *cx, float *low, float *high, const osh_tensor *x, int64_t row,
                           int64_t n)
{
    (void)low, (void)high, (void)x, (void)row, (void)n;
    return osh_cuda_absent(cx);
}

osh_status osh_gptq_factors_cuda(osh_ctx *cx, osh_device *d, int *failed,
                                 const osh_gptq_hessians *x)
{
    (void)d, (void)failed, (void)x;
    return osh_cuda_absent(cx);
}

osh_status osh_gptq_diags_cuda(osh_ctx *cx, osh_device *d, float *diag, const osh_gptq_hessians *x)
{
    (void)d, (void)diag, (void)x;
    return osh_cuda_absent(cx);
}
#endif
