/* gptq_factor.c - computes the upper triangular U with U^T U = H^-1 in place of H.
 *
 *   out H F32 [I, I], in place: reads the lower triangle, writes all elements
 *
 * llmcompressor's factorize_hessian computes cholesky(cholesky_inverse(cholesky(H)), upper). The
 * reference kernel computes the same in double. The fast kernels need no inverse of H. Let J be the
 * matrix that reverses the order of rows. From J H J = L L^T follows H = R R^T with the upper
 * triangular R = J L J. So H^-1 = R^-T R^-1, and U = R^-1 = J L^-1 J.
 *
 * U has zeros below the diagonal. If H is not positive definite, the op returns OSH_E_NUMERIC
 * without a message. (The caller then increases the damping and tries again.) The lower triangle is
 * destroyed in this case, but elements above the diagonal are unchanged. Shapes: I in_features. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

#include <math.h>

/* Replaces the lower triangle of `a` [n, n] by the lower Cholesky factor of `a`. Returns false if
 * `a` is not positive definite. */
static bool cholesky_ref(double *a, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        for (int64_t k = 0; k < j; k++) a[j * n + j] -= a[j * n + k] * a[j * n + k];
        if (!(a[j * n + j] > 0) || !isfinite(a[j * n + j])) return false;
        a[j * n + j] = sqrt(a[j * n + j]);
        for (int64_t i = j + 1; i < n; i++) {
            for (int64_t k = 0; k < j; k++) a[i * n + j] -= a[i * n + k] * a[j * n + k];
            a[i * n + j] /= a[j * n + j];
        }
    }
    return true;
}

/* Writes the lower triangle of (L L^T)^-1 to inv. Computes it from the columns of L^-1. l: the
 * lower triangle L, which L^-1 overwrites. */
static void cholesky_invert_ref(double *inv, double *l, int64_t n)
{
    /* Column j of L^-1 can overwrite column j of L, because later columns of L^-1 do not need
     * it. */
    for (int64_t j = 0; j < n; j++) {
        l[j * n + j] = 1 / l[j * n + j];
        for (int64_t i = j + 1; i < n; i++) {
            double sum = 0;
            for (int64_t k = j; k < i; k++)
                sum -= l[i * n + k] * (k == j ? l[j * n + j] : l[k * n + j]);
            l[i * n + j] = sum / l[i * n + i];
        }
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = 0;
            for (int64_t k = i; k < n; k++) sum += l[k * n + i] * l[k * n + j];
            inv[i * n + j] = sum;
        }
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    int64_t n = a->out[0]->shape[0];
    float *h = a->out[0]->data;
    double *l = NULL, *inv = NULL; // own [n, n]: factor L, and inverse of H

    OSH_NEW(cx, l, n * n);
    OSH_NEW(cx, inv, n * n);
    for (int64_t i = 0; i < n * n; i++) l[i] = h[i];
    if (!cholesky_ref(l, n)) OSH_TRY(OSH_E_NUMERIC);
    cholesky_invert_ref(inv, l, n);
    if (!cholesky_ref(inv, n)) OSH_TRY(OSH_E_NUMERIC);
    for (int64_t i = 0; i < n; i++) // transposes L, so that U is upper triangular
        for (int64_t j = 0; j < n; j++) h[i * n + j] = j < i ? 0 : (float)inv[j * n + i];
done:
    osh_free(cx, inv);
    osh_free(cx, l);
    return rc;
}

const osh_op osh_op_gptq_factor = {
    .name = "gptq_factor", .n_in = 0, .n_weights = 0, .n_out = 1,
    .run = {[OSH_REF] = ref, [OSH_CPU] = osh_gptq_factor_cpu,
            [OSH_CUDA] = OSH_CUDA_FN(osh_gptq_factor_cuda)},
    .tol = 1e-9, .scratch = NULL,
};
