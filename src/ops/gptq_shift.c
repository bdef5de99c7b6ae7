/* gptq_shift.c - computes S = D Hd^-1 in place of D, for GPTQ with the original model as target. Hd
 * is the damped Hessian. gptq_factor computes U with U^T U = Hd^-1. Rows and columns of U are in
 * solving order, the order in which GPTQ solves the columns.
 *
 *   in[0] u F32 [I, I]     in[1] perm I32 [I]: solving order -> column
 *   out D F32 [I, I], in place, rows and columns in the order of the weight's columns
 *
 * A row d of D becomes d P^T U^T U P. The permutation P brings columns into solving order.
 *
 * X: inputs of a Linear in the quantized model. X0: its inputs in the original model. The outputs
 * of the weight W + W S on X are close to the outputs of W on X0. They are as close as possible
 * without damping, because W S is then the matrix V that minimizes |X (W + V)^T - X0 W^T|^2:
 *
 *   D = (X0 - X)^T X
 *   V = W (X0 - X)^T X (X^T X)^-1 = W D H^-1
 *
 * (The closed form is from Li et al. 2025, "GPTAQ".) Shapes: I in_features. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

/* Computes U^T (U d), where d is one row of D in solving order.
 * from [n]: d.
 * to [n]: the result.
 * u [n, n]: the upper triangular U.
 * room [n]: scratch. */
static void shift_row_ref(double *to, const double *from, const float *u, int64_t n, double *room)
{
    for (int64_t i = 0; i < n; i++) {
        room[i] = 0;
        for (int64_t k = i; k < n; k++) room[i] += (double)u[i * n + k] * from[k];
    }
    for (int64_t k = 0; k < n; k++) {
        to[k] = 0;
        for (int64_t i = 0; i <= k; i++) to[k] += (double)u[i * n + k] * room[i];
    }
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    int64_t I = a->out[0]->shape[0];
    const int32_t *perm = a->in[1]->data;
    float *d = a->out[0]->data;
    // own [3, I]: row of D in solving order, row of S in solving order, scratch
    double *row = NULL;

    OSH_NEW(cx, row, 3 * I);
    for (int64_t r = 0; r < I; r++, d += I) {
        for (int64_t i = 0; i < I; i++) row[i] = d[perm[i]];
        shift_row_ref(row + I, row, a->in[0]->data, I, row + 2 * I);
        for (int64_t i = 0; i < I; i++) d[perm[i]] = (float)row[I + i];
    }
done:
    osh_free(cx, row);
    return rc;
}

const osh_op osh_op_gptq_shift = {
    .name = "gptq_shift", .n_in = 2, .n_weights = 0, .n_out = 1,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_gptq_shift_cpu,
            [OSH_CUDA] = OSH_CUDA_FN(osh_gptq_shift_cuda)},
    .tol = 1e-10, .scratch = osh_gptq_shift_scratch, .arena_bytes = osh_gptq_shift_cuda_scratch,
};
