/* gptq_rescale.c - searches a new scale, a new zero point and new codes for each group of a tile of
 * rows. The reference solver/gptq_rescale.c has the formulas. One matrix product computes the
 * target: the values of the group that minimize the loss. The search and the column loop work on
 * the transposed group (panel.h). Then a second matrix product updates G = (w^ - w) H for the
 * changed w^. */
#include "math/gemm.h"
#include "solver/cpu/refine.h"

/* Sets panel.w to the target, transposed and in solving order. (The target is the values of the
 * group that minimize the loss.) For each row r of the tile, sets was[r] to the loss of the current
 * codes minus that of the target. */
static void rescale_turn_wanted(osh_refine_tile *t, int64_t g, int64_t n_cols, const float *step,
                                double *was)
{
    const osh_gptq_refine_args *a = t->a;
    int64_t first = g * a->group, rows = t->rows;
    const int32_t *order = t->f->order + first;
    for (int64_t r = 0; r < t->n; r++) {
        const float *pull = t->g + r * a->I + first, *q = t->q + r * a->I + first,
                    *e = step + r * n_cols;
        float s = t->scale[r * t->groups + g], z = t->zero[r * t->groups + g];
        was[r] = 0;
        for (int64_t j = 0; j < n_cols; j++) was[r] += (double)pull[j] * e[j];
        for (int64_t j = 0; j < n_cols; j++)
            t->panel.w[j * rows + r] = osh_value(&a->rule, q[order[j]], s, z) - e[order[j]];
    }
    for (int64_t r = t->n; r < rows; r++)
        for (int64_t j = 0; j < n_cols; j++) t->panel.w[j * rows + r] = 0;
}

/* Copies new codes, scales and zero points from the panel to the rows whose loss they lower. `by`
 * [n, n_cols]: changes of w^. */
static void rescale_take_better(osh_refine_tile *t, int64_t g, int64_t n_cols, float *by,
                                const double *was)
{
    const osh_gptq_refine_args *a = t->a;
    int64_t first = g * a->group, rows = t->rows;
    const int32_t *order = t->f->order + first;
    for (int64_t r = 0; r < t->n; r++) {
        double now = 0;
        float *q = t->q + r * a->I + first, *s = &t->scale[r * t->groups + g],
              *z = &t->zero[r * t->groups + g];
        for (int64_t j = 0; j < n_cols; j++)
            now += (double)t->panel.ne[j * rows + r] * t->panel.ne[j * rows + r];
        bool better = now < was[r];
        for (int64_t j = 0; j < n_cols; j++) {
            float *old = &q[order[j]];
            by[r * n_cols + order[j]] =
                better ? t->panel.w[j * rows + r] - osh_value(&a->rule, *old, *s, *z) : 0;
            if (better) *old = t->panel.q[j * rows + r];
        }
        if (better) *s = t->panel.scale[r], *z = t->panel.zero[r];
    }
}

void osh_tile_rescale(osh_refine_tile *t)
{
    const osh_gptq_refine_args *a = t->a;
    double *was = t->fit; // [n]
    for (int64_t g = 0; osh_rescales(a) && g < t->groups; g++) {
        int64_t first = g * a->group, n_cols = osh_min64(a->group, a->I - first);
        const float *inverse = t->f->inverse + first * a->group;
        const int32_t *order = t->f->order + first;
        osh_search s = {
            .rule = a->rule, .x = t->panel.w, .weight = t->cost, .n = n_cols, .rows = t->rows};
        float *step = t->next; // first w^ minus target, later the changes of w^, [n, n_cols]
        if (!t->f->ok[g]) continue;
        osh_gemm_nn((osh_into){step, n_cols, false}, (osh_mat){t->g + first, a->I},
                    (osh_mat){inverse, n_cols}, (osh_mnk){t->n, n_cols, n_cols});
        rescale_turn_wanted(t, g, n_cols, step, was);
        for (int64_t j = 0; j < n_cols; j++) t->cost[j] = 1 / inverse[order[j] * n_cols + order[j]];
        osh_panel_ranges(&s, t->lo, t->hi);
        osh_panel_search(&s, t->lo, t->hi, t->panel.scale, t->panel.zero);
        osh_panel_solve(&t->panel, t->f->u + first * a->group, n_cols, t->zeros, n_cols);
        rescale_take_better(t, g, n_cols, step, was);
        osh_gemm_nn((osh_into){t->g, a->I, true}, (osh_mat){step, n_cols},
                    (osh_mat){a->h + first * a->I, a->I}, (osh_mnk){t->n, a->I, n_cols});
    }
}
