/* solver.h - the solver's functions for a GPU, callable from C. gpu/gpu.h says what a call waits
 * for and how it fails. */
#ifndef OSH_SOLVER_CUDA_H
#define OSH_SOLVER_CUDA_H
#ifdef __cplusplus
extern "C" {
#endif
#include "gpu/gpu.h"
#include "solver/gptq_refine.h"
#include "solver/gptq_solve.h"

/* The column loop (solver/gptq_solve.h) on the device, for n weights in one call. The weights have
 * one input, or several inputs; those of one input stand next to each other, and each input has
 * equally many panels. All have the I, block_size, dq_dtype and weight dtype of the first; perm and
 * dead are those of the first with the same u. The result of a job does not depend on the others. h
 * [I, I] F32 and diag stay on the device; a->w (stored dtype), a->target, a->u and a->w_out are in
 * GPU memory, the other members in host memory. codes, loss and squares are complete on return. The
 * call works on as many rows at a time as the arena has room for. */
osh_status osh_gptq_solve_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_solve_args *jobs, int n);
typedef struct osh_gptq_group { // the jobs of a call, to compute its scratch
    int64_t I, block_size; // set by the caller; the others begin as 0
    int64_t n_jobs, n_panels, n_scales, n_scale_cols;
    int64_t n_inputs; // inputs of all jobs; osh_gptq_group_add sets 0 to 1
} osh_gptq_group;
void osh_gptq_group_add(osh_gptq_group *g, int64_t O, int64_t n_scale_cols); // adds a job
/* Arena bytes of a solve with `room` bytes free; more than `room` if even one panel does not
 * fit. */
size_t osh_gptq_solve_cuda_bytes(const osh_gptq_group *g, size_t room);
size_t osh_gptq_solve_cuda_host_bytes(const osh_gptq_group *g);
/* solver/gptq_scales.h and solver/gptq_refine.h on the device. w and h are on the device, the other
 * members in host memory; the results are there when the call returns. Rows are worked on in tiles
 * that follow from the shape. */
osh_status osh_gptq_scales_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_scales_args *a);
/* Returns arena bytes. */
size_t osh_gptq_scales_cuda_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block);
osh_status osh_gptq_refine_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_refine_args *a);
size_t osh_gptq_refine_cuda_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block);
size_t osh_gptq_refine_cuda_host_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block,
                                       int n_threads);
/* See solver/gptq_solve.h. h is on the device; perm and diag are in host memory. */
osh_status osh_gptq_permute_cuda(osh_ctx *cx, osh_tensor *h, const int32_t *perm);
osh_status osh_gptq_restore_cuda(osh_ctx *cx, osh_tensor *h, const float *diag);
size_t osh_gptq_permute_cuda_bytes(int64_t I);
/* Reads the diagonal. */
osh_status osh_gptq_diag_cuda(osh_ctx *cx, float *diag, const osh_tensor *h);
/* Writes the diagonal. */
osh_status osh_gptq_set_diag_cuda(osh_ctx *cx, osh_tensor *h, const float *diag);

#ifdef __cplusplus
}
#endif
#endif
