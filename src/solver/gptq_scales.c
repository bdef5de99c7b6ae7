/* gptq_scales.c - searches the scales for the column loop, in plain loops.
 *
 * A group has weights w_j with costs d_j. lo is the smaller of 0 and the smallest weight, and hi is
 * the larger of 0 and the largest weight. a and b are the smallest and the largest value of the
 * grid:
 *
 *   minimize over p and z   sum over j of d_j (Q(w_j) - w_j)^2
 *   with                    Q(w) = (clamp(round(w / s + z), a, b) - z) s
 *
 *   symmetric    s = rnd(p max(-lo, hi) / ((b - a) / 2))
 *                z = 0
 *   asymmetric   s = rnd(p (hi - lo) / (b - a))
 *                z = clamp(a - round(p lo / s) + {0, -1, 1}, a, b)
 *
 * rnd: the nearest scale that can be stored (a tie between powers of two goes up).
 *
 * The result is the first candidate with the smallest loss. p = 1 is one of the candidates, so the
 * loss is never greater than with the whole range. With d_j = 1 / U_jj^2 (gptq_factor.c computes
 * U), the cost is the effect of a rounding error of column j on the output after the column loop.
 * The loop changes later columns to compensate the error. */
#include "solver/gptq_scales.h"
#include "ops/kernel.h"

#include <math.h>

float osh_scale_round(const osh_scale_rule *r, float s)
{
    osh_grid e4m3 = osh_scale_e4m3();
    if (!(s > 0)) return 0;
    if (r->kind == OSH_SCALE_PLAIN) return osh_round_to(s, r->dtype);
    if (r->kind == OSH_SCALE_E4M3)
        return osh_grid_nearest(&e4m3, fminf(fmaxf(s * r->global, e4m3.lo), e4m3.hi)) / r->global;
    int e;
    float power = frexpf(s, &e) < 0.75f ? 0.5f : 1; // frexpf returns e with s in [2^(e-1), 2^e)
    return fminf(fmaxf(ldexpf(power, e), osh_power_least(r->dtype)), osh_power_most(r->dtype));
}

float osh_scale_of(float *zero, const osh_scale_rule *r, float share, float lo, float hi)
{
    float steps = r->grid.hi - r->grid.lo;
    float s = r->symmetric ? share * fmaxf(-lo, hi) / (steps / 2) : share * (hi - lo) / steps;
    s = osh_scale_round(r, s);
    if (s == 0)
        s = r->kind == OSH_SCALE_PLAIN ? osh_scale_least(r->dtype) : osh_scale_round(r, 0x1p-126f);
    *zero = r->symmetric ? 0 : r->grid.lo - nearbyintf(share * lo / s);
    return s;
}

typedef struct group_ref { // one group of weights, which share a scale
    const osh_gptq_scales_args *a;
    const float *w; // [O, I]
    int64_t row, n_rows, col, n_cols;
} group_ref;

/* Returns the loss of the group if its scale is s and its zero point is z. */
static double scales_loss(const group_ref *g, float s, float z)
{
    const osh_gptq_scales_args *a = g->a;
    const osh_grid *grid = &a->rule.grid;
    double sum = 0;
    for (int64_t r = g->row; r < g->row + g->n_rows; r++)
        for (int64_t c = g->col; c < g->col + g->n_cols; c++) {
            float w = g->w[r * a->I + c];
            float t = fminf(fmaxf(w / s, grid->lo - z), grid->hi - z);
            double e = (double)osh_grid_nearest(grid, t) * s - w;
            sum += (a->weight ? a->weight[c] : 1) * e * e;
        }
    return sum;
}

static void scales_search(const group_ref *g, float *scale, float *zero)
{
    const osh_scale_rule *r = &g->a->rule;
    float lo = 0, hi = 0;
    double least = INFINITY;
    for (int64_t row = g->row; row < g->row + g->n_rows; row++)
        for (int64_t c = g->col; c < g->col + g->n_cols; c++) {
            lo = fminf(lo, g->w[row * g->a->I + c]);
            hi = fmaxf(hi, g->w[row * g->a->I + c]);
        }
    for (int k = 0; k < (r->fixed ? 1 : OSH_SCALE_STEPS); k++) {
        static const float beside[OSH_SCALE_ZEROS] = {0, -1, 1};
        float z, s = osh_scale_of(&z, r, osh_scale_share(r->kind, k), lo, hi);
        for (int i = 0; i < (r->symmetric || r->fixed ? 1 : OSH_SCALE_ZEROS); i++) {
            float at = r->symmetric ? 0 : fminf(fmaxf(z + beside[i], r->grid.lo), r->grid.hi);
            double loss = scales_loss(g, s, at);
            if (!(loss < least)) continue;
            least = loss, *scale = s, *zero = at;
        }
    }
}

void osh_scale_search_ref(float *scale, float *zero, const osh_scale_rule *r, const float *x,
                          const float *weight, int64_t n)
{
    osh_gptq_scales_args a = {
        .weight = weight, .O = 1, .I = n, .group = n, .row_block = 1, .rule = *r};
    group_ref g = {&a, x, 0, 1, 0, n};
    scales_search(&g, scale, zero);
}

osh_status osh_gptq_scales_ref(osh_ctx *cx, const osh_gptq_scales_args *a)
{
    osh_status rc = OSH_OK;
    float *w = NULL; // own: [O, I]
    int64_t across = osh_div_up(a->I, a->group);
    OSH_TRY(osh_f32_copy(cx, &w, a->w));
    for (int64_t r = 0; a->dead && r < a->O; r++)
        for (int64_t c = 0; c < a->I; c++)
            if (a->dead[c]) w[r * a->I + c] = 0;
    for (int64_t r = 0; r < a->O; r += a->row_block)
        for (int64_t c = 0; c < a->I; c += a->group) {
            group_ref g = {
                a, w, r, osh_min64(a->row_block, a->O - r), c, osh_min64(a->group, a->I - c)};
            int64_t at = r / a->row_block * across + c / a->group;
            float z = 0;
            scales_search(&g, &a->scale[at], &z);
            if (a->zero) a->zero[at] = z;
        }
done:
    osh_free(cx, w);
    return rc;
}
