/* columns.c - defines the table of the functions of GPTQ: a row for the host and a row for CUDA
 * devices. */
#include "solver/cuda/solver.h"

static osh_status host_solve(osh_ctx *cx, osh_device *d, const osh_gptq_solve_args *jobs, int n)
{
    osh_status rc = OSH_OK;
    (void)d;
    for (int k = 0; k < n && !rc; k++) rc = osh_gptq_solve(cx, &jobs[k]);
    return rc;
}

static osh_status host_scales(osh_ctx *cx, osh_device *d, const osh_gptq_scales_args *a)
{
    (void)d;
    return osh_gptq_scales(cx, a);
}

static osh_status host_refine(osh_ctx *cx, osh_device *d, const osh_gptq_refine_args *a)
{
    (void)d;
    return osh_gptq_refine(cx, a);
}

static osh_status host_diag(osh_ctx *cx, float *diag, const osh_tensor *h)
{
    int64_t I = h->shape[0];
    (void)cx;
    for (int64_t i = 0; i < I; i++) diag[i] = ((const float *)h->data)[i * (I + 1)];
    return OSH_OK;
}

static osh_status host_set_diag(osh_ctx *cx, osh_tensor *h, const float *diag)
{
    int64_t I = h->shape[0];
    (void)cx;
    for (int64_t i = 0; i < I; i++) ((float *)h->data)[i * (I + 1)] = diag[i];
    return OSH_OK;
}

static const osh_gptq_column host_column = {
    .solve = host_solve, .scales = host_scales, .refine = host_refine, .permute = osh_gptq_permute,
    .restore = osh_gptq_restore, .diag = host_diag, .set_diag = host_set_diag};
#ifdef OSH_CUDA_BUILT
static const osh_gptq_column cuda_column = {
    .solve = osh_gptq_solve_cuda, .scales = osh_gptq_scales_cuda, .refine = osh_gptq_refine_cuda,
    .permute = osh_gptq_permute_cuda, .restore = osh_gptq_restore_cuda, .diag = osh_gptq_diag_cuda,
    .set_diag = osh_gptq_set_diag_cuda, .diags = osh_gptq_diags_cuda,
    .prune = osh_prune_solve_cuda};
#endif

const osh_gptq_column *osh_gptq_column_of(const osh_device *d)
{
    static const osh_gptq_column *const rows[OSH_N_BACKENDS] = {
        [OSH_CPU] = &host_column, [OSH_CUDA] = OSH_CUDA_FN(&cuda_column)};
    return rows[osh_device_type_of(d)->column];
}
