/* solver.h - the C interface to the solver's functions for a GPU. gpu/gpu.h describes how these
 * functions wait for the GPU and how they fail. */
#ifndef OSH_SOLVER_CUDA_H
#define OSH_SOLVER_CUDA_H
#ifdef __cplusplus
extern "C" {
#endif
#include "gpu/gpu.h"
#include "solver/gptq_refine.h"
#include "solver/gptq_solve.h"

/* Runs the column loop (solver/gptq_solve.h) on the device, for n weights in one call. The weights
 * can have different inputs. Weights of the same input must be adjacent in `jobs`, and each input
 * must have the same number of panels (groups of rows of one weight, sizes.h). All jobs must have
 * the I, block_size, dq_dtype and weight dtype of the first job. Jobs with the same u use `perm`
 * and `dead` of the first of these jobs. The result of a job does not depend on other jobs. w,
 * target, u and w_out are in GPU memory, the other members in host memory. codes, loss and squares
 * are complete when the call returns. The call processes as many rows at a time as fit into the
 * arena. */
osh_status osh_gptq_solve_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_solve_args *jobs, int n);
/* Sizes of all weights (jobs) of one call of osh_gptq_solve_cuda, from which the scratch is
 * computed. */
typedef struct osh_gptq_group {
    /* Input width, and number of columns of a block. The caller sets these two members and sets all
     * others to 0. */
    int64_t I, block_size;
    int64_t n_jobs, n_panels, n_scales, n_scale_cols;
    int64_t n_inputs; // number of different inputs; osh_gptq_group_add replaces 0 by 1
} osh_gptq_group;
void osh_gptq_group_add(osh_gptq_group *g, int64_t O, int64_t n_scale_cols); // adds a job
/* Returns the number of bytes that a solve allocates in the arena if `room` bytes are free. The
 * result exceeds `room` if one panel does not fit. */
size_t osh_gptq_solve_cuda_bytes(const osh_gptq_group *g, size_t room);
size_t osh_gptq_solve_cuda_host_bytes(const osh_gptq_group *g);
/* osh_gptq_scales_cuda searches scales (solver/gptq_scales.h) and osh_gptq_refine_cuda refines
 * codes and scales (solver/gptq_refine.h), on the device. w and h are in GPU memory, all other
 * members in host memory. The results are complete when a call returns. Rows are processed in tiles
 * whose size depends only on the shape of the weight. */
osh_status osh_gptq_scales_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_scales_args *a);
/* Returns the number of bytes that osh_gptq_scales_cuda allocates in the arena. */
size_t osh_gptq_scales_cuda_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block);
osh_status osh_gptq_refine_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_refine_args *a);
size_t osh_gptq_refine_cuda_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block);
size_t osh_gptq_refine_cuda_host_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block,
                                       int n_threads);
/* The next two functions do the work of osh_gptq_permute and osh_gptq_restore (solver/gptq_solve.h)
 * on the device. h is on the device; perm and diag are in host memory. */
osh_status osh_gptq_permute_cuda(osh_ctx *cx, osh_tensor *h, const int32_t *perm);
osh_status osh_gptq_restore_cuda(osh_ctx *cx, osh_tensor *h, const float *diag);
size_t osh_gptq_permute_cuda_bytes(int64_t I);
/* Copies the diagonal of h to diag [I]. */
osh_status osh_gptq_diag_cuda(osh_ctx *cx, float *diag, const osh_tensor *h);
/* Copies diag [I] to the diagonal of h. */
osh_status osh_gptq_set_diag_cuda(osh_ctx *cx, osh_tensor *h, const float *diag);

#ifdef __cplusplus
}
#endif
#endif
