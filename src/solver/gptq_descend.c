/* gptq_descend.c - does coordinate descent on the codes of a row, in plain loops. GPTQ's column
 * loop chooses the code of each column once and adds the error of the column to later columns.
 * Coordinate descent chooses each code again and takes the errors of all other columns into
 * account.
 *
 *   G = (w^ - w) H
 *   for each column j:   q' = round(clamp(q - G_j / (H_jj s)))
 *                        d = w^(q') - w^(q)
 *                        if q' != q and 2 d G_j + d^2 H_jj < 0:
 *                            q = q'
 *                            G += d H[j, :]
 *
 * The loop is repeated until no code changes, at most OSH_DESCEND_SWEEPS times. */
#include "solver/gptq_refine.h"
#include "ops/kernel.h"

#include <math.h>

/* Changes the code of column j in row `row` if another code lowers the loss of the row. Then
 * updates g [I], which is (w^ - w) H of the row. Returns true if the code changed. */
static bool descend_column(const osh_refine_row *r, int64_t row, int64_t j, double *g)
{
    const osh_gptq_refine_args *a = r->a;
    const osh_grid *grid = &a->rule.grid;
    float s = r->s[j / a->group], z = r->z[j / a->group], h = a->h[j * a->I + j];
    double *q = &r->q[row * a->I + j];
    float want = fminf(fmaxf((float)(*q - g[j] / ((double)h * s)), grid->lo), grid->hi);
    float next = osh_grid_nearest(grid, want);
    double d = osh_refine_value(a, next, s, z) - osh_refine_value(a, (float)*q, s, z);

    if (!(2 * d * g[j] + d * d * h < 0)) return false;
    *q = next;
    for (int64_t i = 0; i < a->I; i++) g[i] += d * a->h[j * a->I + i];
    return true;
}

void osh_descend_ref(const osh_refine_row *r, double *room)
{
    for (int64_t row = 0; row < r->n; row++) {
        bool changed = true;
        osh_refine_pull(room, r, row);
        for (int sweep = 0; sweep < OSH_DESCEND_SWEEPS && changed; sweep++) {
            changed = false;
            for (int64_t j = 0; j < r->a->I; j++) changed |= descend_column(r, row, j, room);
        }
    }
}
