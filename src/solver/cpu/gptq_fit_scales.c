/* gptq_fit_scales.c - computes the least-squares scales of a tile of rows. The reference
 * solver/gptq_fit_scales.c has the formulas. For each group, one matrix product and then dot
 * products compute the matrix A and the vector b of the normal equations. */
#include "base/isa.h"
#include "math/gemm.h"
#include "solver/cpu/refine.h"

#include <math.h>

/* Returns the dot product of `a` and `b`. It adds 64 consecutive products in f32, and then these
 * partial sums in double. */
OSH_VEC_FN double dot_body(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    int64_t i = 0;
    while (i + OSH_LANES <= n) {
        osh_v8f acc = {0}, x, y;
        for (int64_t end = osh_min64(i + 64, n); i + OSH_LANES <= end; i += OSH_LANES) {
            v8_load(&x, a + i), v8_load(&y, b + i);
            acc = acc + x * y;
        }
        sum += (double)v8_sum(&acc);
    }
    for (; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}
OSH_AVX2 static double dot_avx2(const float *a, const float *b, int64_t n)
{
    return dot_body(a, b, n);
}
static double fit_dot(const float *a, const float *b, int64_t n)
{
    return osh_isa_used() >= OSH_ISA_AVX2 ? dot_avx2(a, b, n) : dot_body(a, b, n);
}

void osh_tile_fit_sums(osh_refine_tile *t, int64_t g0, int64_t n)
{
    const osh_gptq_refine_args *a = t->a;
    int64_t I = a->I, first = g0 * a->group, end = osh_min64(I, (g0 + n) * a->group),
            width = end - first;
    // c [t->n, I]: q - z, set in columns [first, end).
    // part [t->n, width]: the columns of `c` that belong to one group, times the rows of H of this
    // group.
    float *c = t->d, *part = t->next;
    for (int64_t r = 0; r < t->n; r++)
        for (int64_t k = first; k < end; k++)
            c[r * I + k] = t->q[r * I + k] - t->zero[r * t->groups + k / a->group];
    for (int64_t g = 0; g < n; g++) {
        int64_t col = first + g * a->group, n_cols = osh_min64(a->group, end - col),
                wide = col + n_cols - first;
        osh_gemm_nn((osh_into){part, width, false}, (osh_mat){c + col, I},
                    (osh_mat){a->h + col * I + first, I}, (osh_mnk){t->n, wide, n_cols});
        for (int64_t r = 0; r < t->n; r++) {
            double *A = t->fit + r * n * (n + 1), *b = A + n * n;
            for (int64_t k = 0; k <= g; k++) {
                int64_t at = k * a->group, m = osh_min64(a->group, wide - at);
                A[g * n + k] = fit_dot(part + r * width + at, c + r * I + first + at, m);
            }
            b[g] = -fit_dot(t->g + r * I + col, c + r * I + col, n_cols);
        }
    }
}

/* Computes the scales that rows [row, row + n_rows) share, by solving A d = -b. On entry, A and b
 * of row `row` contain the sums over all these rows. */
static void fit_put_scales(osh_refine_tile *t, int64_t row, int64_t n_rows, int64_t g0, int64_t n)
{
    double *A = t->fit + row * n * (n + 1), *b = A + n * n;
    if (!osh_fit_solve(A, b, n, 1)) return;
    for (int64_t g = 0; g < n; g++) {
        float s = osh_scale_round(&t->a->rule, (float)(t->scale[row * t->groups + g0 + g] + b[g]));
        for (int64_t r = row; s > 0 && isfinite(s) && r < row + n_rows; r++)
            t->scale[r * t->groups + g0 + g] = s;
    }
}

void osh_tile_fit_scales(osh_refine_tile *t)
{
    const osh_gptq_refine_args *a = t->a;
    for (int64_t g0 = 0; g0 < t->groups; g0 += OSH_FIT_GROUPS) {
        int64_t n = osh_min64(OSH_FIT_GROUPS, t->groups - g0), size = n * (n + 1);
        osh_tile_fit_sums(t, g0, n);
        for (int64_t row = 0; row < t->n; row += a->row_block) {
            int64_t n_rows = osh_min64(a->row_block, t->n - row);
            for (int64_t r = row + 1; r < row + n_rows; r++)
                for (int64_t i = 0; i < size; i++) t->fit[row * size + i] += t->fit[r * size + i];
            fit_put_scales(t, row, n_rows, g0, n);
        }
        // the fit of the next groups needs G for the new scales
        if (g0 + n < t->groups) osh_tile_pull(t, t->g);
    }
}
