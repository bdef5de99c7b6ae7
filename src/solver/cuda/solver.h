/* solver.h - declares the CUDA versions of the functions in osh_gptq_column (columns.h). */
#ifndef OSH_SOLVER_CUDA_H
#define OSH_SOLVER_CUDA_H
#ifdef __cplusplus
extern "C" {
#endif
#include "gpu/gpu.h"
#include "solver/ada_there.h"
#include "solver/columns.h"
#include "solver/tune.h"

/* The arguments and the results are those of the functions in osh_gptq_column. */
osh_status osh_gptq_solve_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_solve_args *jobs, int n);
osh_status osh_gptq_scales_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_scales_args *a);
osh_status osh_gptq_refine_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_refine_args *a);
osh_status osh_gptq_permute_cuda(osh_ctx *cx, osh_tensor *h, const int32_t *perm);
osh_status osh_gptq_restore_cuda(osh_ctx *cx, osh_tensor *h, const float *diag);
osh_status osh_gptq_diag_cuda(osh_ctx *cx, float *diag, const osh_tensor *h);
osh_status osh_gptq_set_diag_cuda(osh_ctx *cx, osh_tensor *h, const float *diag);
osh_status osh_gptq_diags_cuda(osh_ctx *cx, osh_device *d, float *diag, const osh_gptq_hessians *x);
osh_status osh_prune_solve_cuda(osh_ctx *cx, osh_device *d, const osh_prune_there *x);
/* The next functions do the work of osh_ada_there_run, osh_ada_there_add and osh_ada_there_compare.
 * osh_ada_adam_cuda is the part of osh_ada_run_cuda for AdaRound and AdaQuant. */
osh_status osh_ada_run_cuda(osh_ctx *cx, osh_device *d, const osh_ada_there *a);
osh_status osh_ada_adam_cuda(osh_ctx *cx, osh_device *d, const osh_ada_there *a);
osh_status osh_ada_add_cuda(osh_ctx *cx, osh_device *d, float *sum, const float *x, int64_t n);
osh_status osh_ada_compare_cuda(osh_ctx *cx, const osh_ada_compared *c);
/* These functions do the work of osh_tune_codes_step and osh_tune_norm_step. a: NULL if no step is
 * done. */
osh_status osh_tune_codes_cuda(osh_ctx *cx, const osh_tune_codes *c, const osh_tune_adam *a);
osh_status osh_tune_norm_cuda(osh_ctx *cx, const osh_tune_norm *n, const osh_tune_adam *a);

#ifdef __cplusplus
}
#endif
#endif
