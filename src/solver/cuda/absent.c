/* absent.c - defines the functions of solver.h in a binary without CUDA. Each fails with
 * OSH_E_UNSUPPORTED. */
#include "solver/cuda/solver.h"
#ifndef OSH_CUDA_BUILT

osh_status osh_gptq_solve_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_solve_args *jobs, int n)
{
    (void)d, (void)jobs, (void)n;
    return osh_cuda_absent(cx);
}

osh_status osh_gptq_scales_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_scales_args *a)
{
    (void)d, (void)a;
    return osh_cuda_absent(cx);
}

osh_status osh_gptq_refine_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_refine_args *a)
{
    (void)d, (void)a;
    return osh_cuda_absent(cx);
}

osh_status osh_gptq_permute_cuda(osh_ctx *cx, osh_tensor *h, const int32_t *perm)
{
    (void)h, (void)perm;
    return osh_cuda_absent(cx);
}

osh_status osh_gptq_restore_cuda(osh_ctx *cx, osh_tensor *h, const float *diag)
{
    (void)h, (void)diag;
    return osh_cuda_absent(cx);
}

osh_status osh_gptq_diag_cuda(osh_ctx *cx, float *diag, const osh_tensor *h)
{
    (void)diag, (void)h;
    return osh_cuda_absent(cx);
}

osh_status osh_gptq_set_diag_cuda(osh_ctx *cx, osh_tensor *h, const float *diag)
{
    (void)h, (void)diag;
    return osh_cuda_absent(cx);
}
#endif
