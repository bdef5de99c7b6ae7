/* columns.h - declares the functions of GPTQ as a table, with a row for the host and a row for each
 * kind of device. Also declares the sizes of the scratch on a device. */
#ifndef OSH_COLUMNS_H
#define OSH_COLUMNS_H
#ifdef __cplusplus
extern "C" {
#endif
#include "ops/device_ops.h"
#include "solver/gptq_refine.h"
#include "solver/gptq_solve.h"
#include "solver/prune.h"

/* The functions of GPTQ for the host or for one kind of device. On the host, d is NULL and all
 * tensors are in host memory. On a device, all results are complete when a function returns. */
typedef struct osh_gptq_column {
    /* Runs the column loop (solver/gptq_solve.h) for n weights in one call. The weights can have
     * different inputs only on a device. Jobs with the same input must be adjacent in `jobs`. Each
     * input must have the same number of panels (groups of rows of one weight, sizes.h). All jobs
     * must have the I, block_size, dq_dtype and weight dtype of the first job. Among jobs with the
     * same u, only `perm` and `dead` of the first one are read. The result of a job does not depend
     * on other jobs. On a device, w, target, u and w_out are in device memory, and the other
     * members in host memory. The call processes as many rows at a time as fit into the arena. */
    osh_status (*solve)(osh_ctx *cx, osh_device *d, const osh_gptq_solve_args *jobs, int n);
    /* `scales` searches scales (solver/gptq_scales.h). `refine` improves codes and scales
     * (solver/gptq_refine.h). On a device, w and h are in device memory and all other members are
     * in host memory. Both functions process tiles of rows; the size of a tile depends only on the
     * shape of the weight. */
    osh_status (*scales)(osh_ctx *cx, osh_device *d, const osh_gptq_scales_args *a);
    osh_status (*refine)(osh_ctx *cx, osh_device *d, const osh_gptq_refine_args *a);
    /* The next two functions do the work of osh_gptq_permute and osh_gptq_restore
     * (solver/gptq_solve.h). perm and diag are in host memory. */
    osh_status (*permute)(osh_ctx *cx, osh_tensor *h, const int32_t *perm);
    osh_status (*restore)(osh_ctx *cx, osh_tensor *h, const float *diag);
    /* `diag` copies the diagonal of the Hessian h to diag [I] in host memory. `set_diag` copies
     * diag to the diagonal of h. */
    osh_status (*diag)(osh_ctx *cx, float *diag, const osh_tensor *h);
    osh_status (*set_diag)(osh_ctx *cx, osh_tensor *h, const float *diag);
    /* Copies the diagonals of n Hessians from device memory to diag [n, I] in host memory. NULL in
     * the table row of the host. */
    osh_status (*diags)(osh_ctx *cx, osh_device *d, float *diag, const osh_gptq_hessians *x);
    /* Prunes a weight by SparseGPT (solver/prune.h). The result differs only by rounding from that
     * of osh_prune_solve. NULL in the table row of the host. */
    osh_status (*prune)(osh_ctx *cx, osh_device *d, const osh_prune_there *x);
} osh_gptq_column;
/* The row of the host has the next functions. */
osh_status osh_gptq_solve_host(osh_ctx *cx, osh_device *d, const osh_gptq_solve_args *jobs, int n);
osh_status osh_gptq_scales_host(osh_ctx *cx, osh_device *d, const osh_gptq_scales_args *a);
osh_status osh_gptq_refine_host(osh_ctx *cx, osh_device *d, const osh_gptq_refine_args *a);
osh_status osh_gptq_diag_host(osh_ctx *cx, float *diag, const osh_tensor *h);
osh_status osh_gptq_set_diag_host(osh_ctx *cx, osh_tensor *h, const float *diag);
/* Returns the functions for the kind of device of d, or the functions for the host if d is NULL. */
const osh_gptq_column *osh_gptq_column_of(const osh_device *d);

/* ---- scratch on a device ---- */
/* The sizes of all weights (jobs) that one call of osh_gptq_column.solve solves together. The
 * scratch of the call follows from these sizes. */
typedef struct osh_gptq_group {
    /* I: input width. block_size: number of columns of a block. The caller sets these two members,
     * and sets all others to 0. */
    int64_t I, block_size;
    int64_t n_jobs, n_panels, n_scales, n_scale_cols;
    /* Number of different inputs of the weights; osh_gptq_group_add replaces 0 by 1. */
    int64_t n_inputs;
} osh_gptq_group;
void osh_gptq_group_add(osh_gptq_group *g, int64_t O, int64_t n_scale_cols); // adds one weight
/* Returns the number of bytes that a solve allocates in the arena if `room` bytes of the arena are
 * free. The result exceeds `room` if one panel of rows does not fit. */
size_t osh_gptq_solve_device_bytes(const osh_gptq_group *g, size_t room);
/* Returns the number of bytes that the same solve allocates in host memory. */
size_t osh_gptq_solve_device_host_bytes(const osh_gptq_group *g);
/* The next functions return the numbers of bytes that `scales`, `refine` and `permute` allocate in
 * the arena. osh_gptq_refine_device_host_bytes returns the number of bytes that `refine` allocates
 * in host memory. */
size_t osh_gptq_scales_device_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block);
size_t osh_gptq_refine_device_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block);
size_t osh_gptq_refine_device_host_bytes(int64_t O, int64_t I, int64_t group, int64_t row_block,
                                         int n_threads);
size_t osh_gptq_permute_device_bytes(int64_t I);

#ifdef __cplusplus
}
#endif
#endif
