/* gptq_rescale.c - finds a new scale, a new zero point and new codes for each group, in plain
 * loops. All other groups are fixed meanwhile.
 *
 * Let x be the columns of w^ that belong to the group, and G = (w^ - w) H. The loss of the row is
 * least if x is
 *
 *   v = w^[g] - G[g] (H[g, g])^-1
 *
 * For another x the loss is larger by
 *
 *   (x - v) H[g, g] (x - v)^T
 *
 * So v is quantized instead of the weights. First, scale and zero point are searched
 * (gptq_scales.c); an error of column j costs 1 / (H[g, g]^-1)_jj. Then the column loop
 * (gptq_solve.c) runs inside the group with U^T U = (H[g, g])^-1 and columns in solving order.
 * Compared with x = v, the loss is larger by the sum of err^2 of this loop. A row takes the new
 * values if their loss is lower than that of the current values. A scale does not change if several
 * rows share it, or if all columns share it. */
#include "solver/gptq_refine.h"
#include "ops/kernel.h"

#include <math.h>

enum { MOST = OSH_RESCALE_WIDEST };

/* Searches a new scale, zero point and codes for group g, and stores them if they lower the loss.
 * `pull` [I]: (w^ - w) H of the row. */
static void rescale_group_ref(const osh_refine_row *r, int64_t g, const double *pull)
{
    const osh_gptq_refine_args *a = r->a;
    const osh_grid *grid = &a->rule.grid;
    int64_t first = g * a->group, n = osh_min64(a->group, a->I - first);
    const float *inverse = r->f->inverse + first * a->group, *u = r->f->u + first * a->group;
    const int32_t *order = r->f->order + first;
    float v[MOST] = {0}, cost[MOST] = {0}, q[MOST], s = 0, z = 0;
    double was = 0, now = 0;

    for (int64_t j = 0; j < n; j++) {
        double step = 0;
        for (int64_t k = 0; k < n; k++) step += pull[first + k] * inverse[k * n + j];
        v[j] = (float)(osh_refine_value(a, (float)r->q[first + j], r->s[g], r->z[g]) - step);
        was += pull[first + j] * step;
        cost[j] = 1 / inverse[j * n + j];
    }
    osh_scale_search_ref(&s, &z, &a->rule, v, cost, n);
    for (int64_t j = 0; j < n; j++) {
        float w = v[order[j]];
        q[j] = osh_grid_nearest(grid, fminf(fmaxf(w / s + z, grid->lo), grid->hi));
        float err = (float)(w - osh_refine_value(a, q[j], s, z)) / u[j * n + j];
        now += (double)err * err;
        for (int64_t k = j + 1; k < n; k++) v[order[k]] -= err * u[j * n + k];
    }
    if (!(now < was)) return;
    for (int64_t j = 0; j < n; j++) r->q[first + order[j]] = q[j];
    r->s[g] = s, r->z[g] = z;
}

void osh_rescale_ref(const osh_refine_row *r, double *room)
{
    const osh_gptq_refine_args *a = r->a;
    for (int64_t g = 0; osh_rescales(a) && g < osh_div_up(a->I, a->group); g++) {
        if (!r->f->ok[g]) continue;
        osh_refine_pull(room, r, 0);
        rescale_group_ref(r, g, room);
    }
}

/* ---- factors of the groups ---- */

typedef struct factors_job {
    osh_group_factors *f;
    const osh_gptq_refine_args *a;
    const float *blocks;
    double *room; // own [threads, 2 group^2]: scratch
} factors_job;

/* Replaces m [n, n] by its lower Cholesky factor. Returns false if m is not positive definite. */
static bool group_cholesky(double *m, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = j; i < n; i++) {
            double sum = m[i * n + j];
            for (int64_t k = 0; k < j; k++) sum -= m[i * n + k] * m[j * n + k];
            m[i * n + j] = i == j ? sqrt(sum) : sum / m[j * n + j];
        }
        if (!(m[j * n + j] > 0) || !isfinite(m[j * n + j])) return false;
    }
    return true;
}

/* Sets both triangles of `inverse` [n, n] to (L L^T)^-1. `m` [n, n]: L on entry; overwritten. */
static void group_invert(double *inverse, double *m, int64_t n)
{
    // Writes L^-1, column by column, to the upper triangle of `inverse`.
    for (int64_t j = 0; j < n; j++) {
        inverse[j * n + j] = 1 / m[j * n + j];
        for (int64_t i = j + 1; i < n; i++) {
            double sum = 0;
            for (int64_t k = j; k < i; k++) sum -= m[i * n + k] * inverse[j * n + k];
            inverse[j * n + i] = sum / m[i * n + i];
        }
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = 0;
            for (int64_t k = i; k < n; k++) sum += inverse[i * n + k] * inverse[j * n + k];
            m[i * n + j] = sum;
        }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) inverse[i * n + j] = inverse[j * n + i] = m[i * n + j];
}

static osh_status group_factors_chunk(osh_ctx *cx, void *user, int64_t g, int worker)
{
    const factors_job *job = user;
    const osh_gptq_refine_args *a = job->a;
    osh_group_factors *f = job->f;
    int64_t first = g * f->group, n = osh_min64(f->group, f->I - first);
    double *m = job->room + worker * 2 * f->group * f->group, *inverse = m + f->group * f->group;
    float *to = f->inverse + first * f->group, *u = f->u + first * f->group;

    (void)cx;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            m[i * n + j] = job->blocks ? job->blocks[first * f->group + i * n + j]
                                       : a->h[(first + i) * f->I + first + j];
    f->ok[g] = group_cholesky(m, n);
    if (!f->ok[g]) return OSH_OK;
    group_invert(inverse, m, n);
    for (int64_t i = 0; i < n * n; i++) to[i] = (float)inverse[i];
    const int32_t *order = f->order + first;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) m[i * n + j] = inverse[order[i] * n + order[j]];
    f->ok[g] = group_cholesky(m, n);
    // U is the transpose of the lower Cholesky factor of (H[g, g])^-1
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) u[i * n + j] = j < i ? 0 : (float)m[j * n + i];
    return OSH_OK;
}

osh_status osh_group_factors_init(osh_ctx *cx, osh_group_factors *f, const osh_gptq_refine_args *a,
                                  const float *blocks)
{
    osh_status rc = OSH_OK;
    int64_t groups = osh_div_up(a->I, a->group);
    factors_job job = {.f = f, .a = a, .blocks = blocks};
    int32_t *n = NULL; // own [groups]: number of columns of each group that f->order has so far
    bool wanted = false;

    for (int k = 0; k < a->n_steps; k++) wanted |= a->steps[k] == OSH_REFINE_RESCALE;
    if (!wanted || !osh_rescales(a)) goto done;
    f->I = a->I, f->group = a->group;
    OSH_NEW(cx, f->inverse, a->I * a->group);
    OSH_NEW(cx, f->u, a->I * a->group);
    OSH_NEW(cx, f->order, a->I);
    OSH_NEW(cx, f->ok, groups);
    OSH_NEW(cx, job.room, osh_threads(cx) * 2 * a->group * a->group);
    OSH_NEW(cx, n, groups);
    for (int64_t i = 0; i < a->I; i++) {
        int64_t c = a->perm ? a->perm[i] : i, g = c / a->group;
        f->order[g * a->group + n[g]++] = (int32_t)(c % a->group);
    }
    OSH_TRY(osh_parallel_for(cx, groups, group_factors_chunk, &job));
done:
    osh_free(cx, n);
    osh_free(cx, job.room);
    return rc;
}

void osh_group_factors_deinit(osh_ctx *cx, osh_group_factors *f)
{
    osh_free(cx, f->inverse);
    osh_free(cx, f->u);
    osh_free(cx, f->order);
    osh_free(cx, f->ok);
    *f = (osh_group_factors){0};
}

size_t osh_group_factors_bytes(int64_t I, int64_t group, int n_threads)
{
    size_t part = osh_mem_gross((size_t)(I * group) * sizeof(float)),
           groups = (size_t)osh_div_up(I, group);
    return 2 * part + osh_mem_gross((size_t)I * 4) + osh_mem_gross(groups) +
           osh_mem_gross(groups * 4) +
           osh_mem_gross((size_t)(n_threads * 2 * group * group) * sizeof(double));
}
