/* columns.c - defines the table of the functions of GPTQ: a row for the host and a row for CUDA
 * devices. */
#include "solver/cuda/solver.h"

static const osh_gptq_column host_column = {
    .solve = osh_gptq_solve_host, .scales = osh_gptq_scales_host, .refine = osh_gptq_refine_host,
    .permute = osh_gptq_permute, .restore = osh_gptq_restore, .diag = osh_gptq_diag_host,
    .set_diag = osh_gptq_set_diag_host};
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
