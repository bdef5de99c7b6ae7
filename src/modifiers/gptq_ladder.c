/* gptq_ladder.c - computes the factor of one Hessian H: sorts the columns, adds damping to the
 * diagonal, and adds more damping if H cannot be factored. gptq.c describes the steps. */
#include "modifiers/gptq.h"
#include "solver/columns.h"

#include <math.h>
#include <stdlib.h>

typedef osh_gptq gptq;
typedef osh_gptq_factor factor;

static const osh_gptq_ladder from_damping = {
    {1, 10, 100, 1000},
    {NULL, "damping times 10", "damping times 100", "damping times 1000"},
    "Hessian not positive definite at 1000 times the damping: rounded to nearest",
};
static const osh_gptq_ladder from_zero = {
    {0, 0.01, 0.1, 1},
    {NULL, "damping 0.01 in place of 0", "damping 0.1 in place of 0", "damping 1 in place of 0"},
    "Hessian not positive definite at a damping of 1: rounded to nearest",
};

void osh_gptq_factor_deinit(osh_ctx *cx, factor *f)
{
    osh_free(cx, f->perm);
    osh_free(cx, f->dead);
    osh_free(cx, f->diag);
    osh_tensor_free(cx, f->h);
    osh_free(cx, f->cost);
    *f = (factor){0};
}

static int by_falling_diag(const void *a, const void *b)
{
    const osh_gptq_ranked *x = a, *y = b;
    if (x->d != y->d) return x->d > y->d ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

/* Sets f->perm and f->dead. diag [I] is the diagonal of H. If `actorder` is true, columns are
 * solved in the order of the descending diagonal, else in the order of the checkpoint. */
static osh_status ladder_order_columns(osh_ctx *cx, factor *f, const float *diag, bool actorder)
{
    osh_status rc = OSH_OK;
    int64_t I = f->I;
    osh_gptq_ranked *r = NULL; // own
    OSH_NEW(cx, f->perm, I);
    OSH_NEW(cx, f->dead, I);
    OSH_NEW(cx, r, I);
    for (int64_t i = 0; i < I; i++) {
        r[i] = (osh_gptq_ranked){diag[i], (int32_t)i};
        f->dead[i] = diag[i] == 0;
        f->n_dead += f->dead[i];
    }
    if (actorder) qsort(r, (size_t)I, sizeof *r, by_falling_diag);
    for (int64_t i = 0; i < I; i++) f->perm[i] = r[i].i;
done:
    osh_free(cx, r);
    return rc;
}

bool osh_gptq_damp(float *damped, const factor *f, const gptq *g)
{
    float damp = (float)(f->mean * (g->dampening_frac > 0 ? g->dampening_frac : 1) *
                         f->ladder->share[f->n_damped]);
    bool finite = f->n_dead < f->I;
    for (int64_t i = 0; i < f->I; i++) {
        damped[i] = f->diag[i] + damp;
        finite &= isfinite(damped[i]) != 0;
    }
    return finite;
}

/* Stores data for later steps. Writes the damped diagonal to f->h for the steps after the column
 * loop. With `scale_search: ldl`, also sets f->cost. */
static osh_status keep_factored(osh_ctx *cx, factor *f, const gptq *g, const float *damped)
{
    osh_status rc = OSH_OK;
    int64_t I = f->I;
    float *diag = NULL; // own [I]: the diagonal of the damped H; later the diagonal of U
    const osh_gptq_column *column = osh_gptq_column_of(f->device);
    osh_tensor u = osh_tensor_view(OSH_F32, 2, (int64_t[]){I, I}, (float *)f->u);
    u.device = f->device;
    if (!f->h && g->scale_search != SEARCH_LDL) goto done;
    OSH_NEW(cx, diag, I);
    for (int64_t i = 0; i < I; i++) diag[f->perm[i]] = damped[i];
    if (f->h) OSH_TRY(column->set_diag(cx, f->h, diag));
    if (g->scale_search != SEARCH_LDL) goto done;
    OSH_NEW(cx, f->cost, I);
    OSH_TRY(column->diag(cx, diag, &u));
    for (int64_t i = 0; i < I; i++) f->cost[f->perm[i]] = 1 / (diag[i] * diag[i]);
done:
    osh_free(cx, diag);
    return rc;
}

osh_status osh_gptq_order(osh_ctx *cx, factor *f, const float *diag, bool ordered, const gptq *g,
                          float dead)
{
    osh_status rc = OSH_OK;
    int64_t I = f->I;
    OSH_TRY(ladder_order_columns(cx, f, diag, ordered));
    for (int64_t i = 0; i < I; i++) f->mean += f->dead[i] ? dead : diag[i];
    f->mean /= (double)I;
    OSH_NEW(cx, f->diag, I);
    for (int64_t i = 0; i < I; i++) f->diag[i] = f->dead[f->perm[i]] ? dead : diag[f->perm[i]];
    f->ladder = g->dampening_frac > 0 ? &from_damping : &from_zero;
done:
    return rc;
}

/* `permute` leaves H in solving order in both triangles of h. The factorization overwrites the
 * lower triangle. If it fails, `restore` makes the lower triangle again from the upper triangle,
 * and the next damping is tried. */
osh_status osh_gptq_make_factor(osh_ctx *cx, factor *f, osh_tensor *h, bool ordered, const gptq *g,
                                float dead)
{
    osh_status rc = OSH_OK;
    // own [I]: first the diagonal of H, with columns as in the checkpoint; later the damped
    // diagonal, in solving order
    float *damped = NULL;
    osh_op_args a = {.out = {h}};
    const osh_gptq_column *column = osh_gptq_column_of(h->device);

    OSH_NEW(cx, damped, f->I);
    OSH_TRY(column->diag(cx, damped, h));
    OSH_TRY(osh_gptq_order(cx, f, damped, ordered, g, dead));
    if (g->n_refine) OSH_TRY(osh_gptq_keep_hessian(cx, f, h));
    OSH_TRY(column->permute(cx, h, f->perm));
    for (f->n_damped = 0; f->n_damped < OSH_GPTQ_STEPS; f->n_damped++) {
        if (f->n_damped) OSH_TRY(column->restore(cx, h, f->diag));
        if (!osh_gptq_damp(damped, f, g)) {
            f->overflow = f->n_damped == 0 && f->n_dead < f->I;
            break;
        }
        OSH_TRY(column->set_diag(cx, h, damped));
        rc = osh_op_run(cx, &osh_op_gptq_factor, &a);
        if (!rc) {
            f->u = h->data;
            OSH_TRY(keep_factored(cx, f, g, damped));
        }
        if (rc != OSH_E_NUMERIC) goto done;
        rc = OSH_OK;
        osh_error_clear(cx);
    }
done:
    osh_free(cx, damped);
    return rc;
}

osh_status osh_gptq_costs(osh_ctx *cx, float *cost, const osh_modifier *m, osh_linear_job *jobs,
                          osh_tensor *h, int64_t n_samples)
{
    osh_status rc = OSH_OK;
    /* A copy of the arguments with other keys. It is not freed, because its strings belong to
     * m->args. */
    gptq g = *(const gptq *)m->args;
    factor f = {.I = h->shape[0], .device = h->device}; // own
    g.scale_search = SEARCH_LDL, g.n_refine = 0;
    OSH_TRY(
        osh_gptq_make_factor(cx, &f, h, osh_gptq_is_ordered(jobs), &g, 0.5f * (float)n_samples));
    for (int64_t i = 0; f.u && i < f.I; i++) cost[i] = f.dead[i] ? 0 : f.cost[i];
done:
    osh_gptq_factor_deinit(cx, &f);
    return rc;
}
