/* gptq_refine.c - does the steps after GPTQ's column loop in plain loops. It works on one row at a
 * time, or on one block of rows that share scales. Each step proposes codes, scales and zero
 * points. A proposal is kept only if it lowers the loss
 *
 *   sum over the rows of (w^ - w) H (w^ - w)^T,     w^ = round(round(q - z) s) to the dtype of s */
#include "solver/gptq_refine.h"
#include "ops/kernel.h"

#include <math.h>
#include <string.h>

/* Returns the sum of the losses of all rows of r. `g` [I]: scratch. */
static double refine_loss(const osh_refine_row *r, double *g)
{
    const osh_gptq_refine_args *a = r->a;
    double loss = 0;
    for (int64_t row = 0; row < r->n; row++) {
        osh_refine_pull(g, r, row);
        for (int64_t i = 0; i < a->I; i++)
            loss += g[i] * (osh_refine_value(a, (float)r->q[row * a->I + i], r->s[i / a->group],
                                             r->z[i / a->group]) -
                            r->w[row * a->I + i]);
    }
    return loss;
}

/* Loads the codes and scales of rows [first, first + r->n) into r. refine_store does the
 * reverse. */
static void refine_load(const osh_refine_row *r, int64_t first)
{
    const osh_gptq_refine_args *a = r->a;
    int64_t across = osh_div_up(a->I, a->group), at = first / a->row_block * across;
    for (int64_t i = 0; i < r->n * a->I; i++)
        r->q[i] = osh_grid_value(&a->rule.grid, a->codes[first * a->I + i]);
    for (int64_t g = 0; g < across; g++) {
        r->s[g] = a->scale[at + g];
        r->z[g] = a->zero ? a->zero[at + g] : 0;
    }
}

static void refine_store(const osh_refine_row *r, int64_t first)
{
    const osh_gptq_refine_args *a = r->a;
    int64_t across = osh_div_up(a->I, a->group), at = first / a->row_block * across;
    for (int64_t i = 0; i < r->n * a->I; i++)
        a->codes[first * a->I + i] = osh_grid_code(&a->rule.grid, (float)r->q[i]);
    for (int64_t g = 0; g < across; g++) {
        a->scale[at + g] = r->s[g];
        if (a->zero) a->zero[at + g] = r->z[g];
    }
}

/* Does all steps on rows [first, first + r->n). Adds the losses of these rows to a->loss. Adds to
 * a->all the loss that these rows would have if all w^ were 0. */
static void refine_rows(const osh_refine_row *r, int64_t first, double *room)
{
    static void (*const steps[OSH_N_REFINES])(const osh_refine_row *, double *) = {
        [OSH_REFINE_RESCALE] = osh_rescale_ref,
        [OSH_REFINE_DESCEND] = osh_descend_ref,
        [OSH_REFINE_FIT_SCALES] = osh_fit_scales_ref,
    };
    const osh_gptq_refine_args *a = r->a;
    for (int64_t i = 0; a->all && i < r->n * a->I; i++)
        for (int64_t j = i / a->I * a->I, k = 0; k < a->I; k++)
            *a->all += r->w[i] * a->h[i % a->I * a->I + k] * r->w[j + k];
    refine_load(r, first);
    double loss = refine_loss(r, room);
    a->loss[0] += loss;
    for (int k = 0; k < a->n_steps; k++) {
        steps[a->steps[k]](r, room);
        double now = refine_loss(r, room);
        if (now < loss) refine_store(r, first), loss = now;
        else refine_load(r, first);
        a->loss[k + 1] += loss;
    }
}

osh_status osh_gptq_refine_ref(osh_ctx *cx, const osh_gptq_refine_args *a)
{
    osh_status rc = OSH_OK;
    int64_t across = osh_div_up(a->I, a->group), n = osh_min64(a->row_block, a->O);
    osh_group_factors f = {0};       // own
    osh_refine_row r = {a, &f, 0, NULL, NULL, NULL, NULL}; // own: r.w, r.q, r.s, r.z
    float *w = NULL;                 // own: [O, I]
    double *room = NULL;             // own

    OSH_TRY(osh_f32_copy(cx, &w, a->w));
    OSH_TRY(osh_group_factors_init(cx, &f, a, NULL));
    OSH_NEW(cx, r.w, n * a->I);
    OSH_NEW(cx, r.q, n * a->I);
    OSH_NEW(cx, r.s, across);
    OSH_NEW(cx, r.z, across);
    OSH_NEW(cx, room, 4 * a->I + across * (across + 2));
    memset(a->loss, 0, (size_t)(a->n_steps + 1) * sizeof *a->loss);
    if (a->all) *a->all = 0;
    for (int64_t row = 0; row < a->O; row += n) {
        r.n = osh_min64(n, a->O - row);
        for (int64_t i = 0; i < r.n * a->I; i++)
            r.w[i] = a->dead && a->dead[i % a->I] ? 0 : w[row * a->I + i];
        refine_rows(&r, row, room);
    }
done:
    osh_free(cx, room);
    osh_free(cx, r.z);
    osh_free(cx, r.s);
    osh_free(cx, r.q);
    osh_free(cx, r.w);
    osh_group_factors_deinit(cx, &f);
    osh_free(cx, w);
    return rc;
}
