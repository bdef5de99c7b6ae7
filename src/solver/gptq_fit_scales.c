/* gptq_fit_scales.c - computes the least-squares scales of a row, given its codes, in plain loops.
 *
 * With c = q - z and w^ = s_g c_k for column k of group g, the loss is quadratic in the scales. The
 * step d from the current to the new scales solves
 *
 *   A d   = -b
 *   A_gg' = sum over k in g, l in g' of c_k H_kl c_l
 *   b_g   = sum over k in g of c_k G_k
 *   G     = (w^ - w) H
 *
 * 1e-9 times the mean of A's diagonal is added to each element of the diagonal. At most
 * OSH_FIT_GROUPS groups are solved together, with the scales of the other groups fixed. For rows
 * that share scales, the A and the b of the rows are added before the system is solved. The new
 * scales are rounded to values that can be stored. If a new scale is not positive, the old scale is
 * kept. */
#include "solver/gptq_refine.h"
#include "ops/kernel.h"

#include <math.h>

/* Computes the least-squares scales of groups [g0, g0 + n). `pull` [I], A [n, n] and b [n] are
 * scratch. */
static void window_ref(const osh_refine_row *r, int64_t g0, int64_t n, double *pull, double *A,
                       double *b)
{
    const osh_gptq_refine_args *a = r->a;
    int64_t first = g0 * a->group, end = osh_min64(a->I, (g0 + n) * a->group);
    for (int64_t i = 0; i < n * n; i++) A[i] = 0;
    for (int64_t i = 0; i < n; i++) b[i] = 0;
    for (int64_t row = 0; row < r->n; row++) {
        const double *q = r->q + row * a->I;
        osh_refine_pull(pull, r, row);
        for (int64_t k = first; k < end; k++) {
            double c = q[k] - r->z[k / a->group];
            b[k / a->group - g0] -= c * pull[k];
            for (int64_t l = first; l < end; l++)
                A[(k / a->group - g0) * n + l / a->group - g0] +=
                    c * a->h[k * a->I + l] * (q[l] - r->z[l / a->group]);
        }
    }
    if (!osh_fit_solve(A, b, n, 1)) return;
    for (int64_t g = 0; g < n; g++) {
        float s = osh_scale_round(&a->rule, (float)(r->s[g0 + g] + b[g]));
        if (s > 0 && isfinite(s)) r->s[g0 + g] = s;
    }
}

void osh_fit_scales_ref(const osh_refine_row *r, double *room)
{
    int64_t groups = osh_div_up(r->a->I, r->a->group);
    for (int64_t g = 0; g < groups; g += OSH_FIT_GROUPS) {
        int64_t n = osh_min64(OSH_FIT_GROUPS, groups - g);
        window_ref(r, g, n, room, room + r->a->I, room + r->a->I + n * n);
    }
}
