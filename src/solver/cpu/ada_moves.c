/* ada_moves.c - computes parts of ada.c and ada_learn.c for one row: the scales of columns, the
 * initial values of learned parameters, the steps of scales, and the final codes. The vector loops
 * are in ada_rows.c. ada.c has the formulas. */
#include "base/elementary.h"
#include "solver/cpu/ada_rows.h"
#include "math/vec.h"
#include "ops/kernel.h"

#include <math.h>

/* With this value of AdaRound's v, h is 0 and the gradient of v is 0, so no step changes v. */
enum { DOWN = -40 };

int64_t osh_ada_scale_at(const osh_ada_job *j, int64_t row, int64_t group)
{
    return row / j->a->row_block * j->groups + group;
}

float osh_ada_scale_now(const osh_ada_job *j, const osh_ada_room *m, int64_t r, int64_t g)
{
    int64_t k = r * j->groups + g;
    float s = m->d[k] == 0 ? 0 : osh_scale_round(&j->a->scales, m->s0[k] * (1 + m->d[k]));
    return s > 0 ? s : m->s0[k]; // rounding to the stored dtype may make a small scale 0
}

static bool ada_is_float(const osh_ada_args *a) { return a->scales.grid.digits > 0; }

/* Returns the largest value of the grid that is at most x. Sets *step to the distance between
 * neighbouring values of the grid near x (in the binade of x). */
static float ada_grid_floor(const osh_ada_args *a, float x, float *step)
{
    const osh_grid *g = &a->scales.grid;
    int e = 0;
    *step = 1;
    if (!g->digits) return floorf(x);
    frexpf(x, &e); // frexpf returns e with |x| in [2^(e-1), 2^e)
    *step = ldexpf(1, x != 0 && e - g->digits > g->least ? e - g->digits : g->least);
    return floorf(x / *step) * *step;
}

static bool ada_is_signed(const osh_ada_job *j) { return j->a->rule.signed_scales && !j->a->zero; }

/* Returns the signed scale of group k. It follows from the shares `a` and `b` of AutoRound. Returns
 * 0 if all weights of the group are 0. */
static float ada_signed_scale(const osh_ada_job *j, const osh_ada_room *m, int64_t k)
{
    float low = m->d[k] * -m->least[k], high = m->d_mean[k] * m->most[k];
    return osh_round_to((low > high ? low : -high) / -j->a->scales.grid.lo, j->a->scales.dtype);
}

/* For float codes: returns the scale of group k before AutoRound multiplies it by its share b. The
 * result is not yet rounded to a scale that can be stored. */
static float ada_float_scale(const osh_ada_job *j, const osh_ada_room *m, int64_t k)
{
    if (!j->a->rule.whole_range) return m->s0[k];
    return fmaxf(-m->least[k], m->most[k]) / j->a->scales.grid.hi;
}

/* Computes the scale and the zero point of group k from AutoRound's shares a and b. If both shares
 * are 1, *s and *z do not change. With float codes, only b is used. */
static void ada_clipped_range(const osh_ada_job *j, const osh_ada_room *m, int64_t k, float *s,
                              float *z)
{
    float low = -m->least[k], high = m->most[k], a = m->d[k], b = m->d_mean[k];
    if (a == 1 && b == 1) return;
    if (ada_is_float(j->a)) {
        float now = osh_scale_round(&j->a->scales, ada_float_scale(j, m, k) * b);
        if (now > 0) *s = now;
        return;
    }
    if (ada_is_signed(j)) {
        float now = ada_signed_scale(j, m, k);
        if (now != 0) *s = now;
        return;
    }
    float all = j->a->zero ? high + low : fmaxf(low, high);
    float now = j->a->zero ? b * high + a * low : fmaxf(a * low, b * high);
    *s = osh_round_to(all > 0 ? m->s0[k] * now / all : m->s0[k], j->a->scales.dtype);
    if (!(*s > 0)) *s = m->s0[k];
    const osh_grid *grid = &j->a->scales.grid;
    if (j->a->zero) *z = fmaxf(grid->lo, fminf(grid->hi, nearbyintf(grid->lo + a * low / *s)));
}

static void ada_fill(float *to, float x, int64_t n)
{
    osh_v8f all;
    int64_t i = 0;
    v8_set(&all, x);
    for (; i + OSH_LANES <= n; i += OSH_LANES) v8_store(to + i, &all);
    for (; i < n; i++) to[i] = x;
}

/* Writes the scale and the zero point of each column of row r to m->s and m->z. */
void osh_ada_spread(const osh_ada_job *j, const osh_ada_room *m, int64_t row, int64_t r)
{
    const osh_ada_args *a = j->a;
    for (int64_t g = 0; g < j->groups; g++) {
        float s = m->s0[r * j->groups + g],
              z = a->zero ? a->zero[osh_ada_scale_at(j, row + r, g)] : 0;
        if (a->rule.kind == OSH_ADA_QUANT) s = osh_ada_scale_now(j, m, r, g);
        if (a->rule.kind == OSH_ADA_SIGN) ada_clipped_range(j, m, r * j->groups + g, &s, &z);
        int64_t first = g * a->group, n = osh_min64(a->I - first, a->group);
        ada_fill(m->s + first, s, n), ada_fill(m->z + first, z, n);
    }
    ada_fill(m->s + a->I, 1, j->ld - a->I), ada_fill(m->z + a->I, 0, j->ld - a->I);
}

void osh_ada_base(const osh_ada_job *j, const osh_ada_room *m, int64_t at)
{
    float step;
    for (int64_t i = 0; i < j->a->I; i++)
        m->base[at + i] = ada_grid_floor(j->a, m->w[at + i] / m->s[i], &step) + m->z[i];
    for (int64_t i = j->a->I; i < j->ld; i++) m->base[at + i] = 0;
}

/* Initializes the learned numbers of row r. The caller has set m->w and m->s0. */
void osh_ada_begin_row(const osh_ada_job *j, const osh_ada_room *m, int64_t row, int64_t r)
{
    const osh_ada_args *a = j->a;
    osh_ada_spread(j, m, row, r);
    osh_ada_base(j, m, r * j->ld);
    for (int64_t i = 0, at = r * j->ld; i < a->I; i++, at++) {
        float step, u = m->w[at] / m->s[i];
        float part = (u - ada_grid_floor(a, u, &step)) / step;
        if (a->rule.kind == OSH_ADA_QUANT) m->x[at] = m->w[at];
        else if (a->rule.kind == OSH_ADA_SIGN) m->x[at] = 0;
        else if (a->keep_zeros && m->w[at] == 0) m->x[at] = DOWN;
        else m->x[at] = (float)-osh_math_log(1.2 / ((double)part + 0.1) - 1);
    }
    for (int64_t i = a->I; i < j->ld; i++)
        m->x[r * j->ld + i] = a->rule.kind == OSH_ADA_ROUND ? DOWN : 0;
}

/* Sets s->rate and s->root_part for step n of Adam (the first step is 1). These numbers include
 * Adam's bias corrections. */
static void ada_adam_begin(osh_ada_row_step *s, double rate, double n)
{
    s->rate = (float)(rate / (1 - osh_math_pow(0.9, n)));
    s->root_part = (float)(1 / sqrt(1 - osh_math_pow(0.999, n)));
}

/* Updates Adam's moving averages with the gradient g. Returns the step, which the caller subtracts.
 * `rate` includes Adam's bias correction of `mean`, like s->rate. */
static float ada_adam(float *mean, float *square, float g, float rate, const osh_ada_row_step *s)
{
    *mean = 0.9f * *mean + 0.1f * g;
    *square = 0.999f * *square + 0.001f * g * g;
    return rate * *mean / (sqrtf(*square) * s->root_part + 1e-8f);
}

osh_ada_row_step osh_ada_step_at(const osh_ada_job *j, int64_t t)
{
    const osh_ada_rule *u = &j->a->rule;
    double n = (double)(t + 1), warm = floor(u->warm * (double)u->steps);
    double along = (double)u->steps > warm ? ((double)t - warm) / ((double)u->steps - warm) : 1;
    const osh_grid *grid = &j->a->scales.grid;
    osh_ada_row_step s = {.by = (float)(2 / j->a->n_tokens), .lo = grid->lo, .hi = grid->hi};
    if (grid->digits) s.least = ldexpf(1, grid->least), s.fraction = ldexpf(1, 1 - grid->digits);
    if (u->kind == OSH_ADA_SIGN) {
        s.rate = (float)(u->rate * (double)(u->steps - t) / (double)u->steps), s.offset = 1;
        s.has_zero = j->a->zero != NULL;
        return s;
    }
    ada_adam_begin(&s, u->rate, n);
    if (u->kind == OSH_ADA_QUANT || (double)t < warm) return s;
    s.reg = (float)u->reg;
    s.beta = (float)(u->to + (u->from - u->to) / 2 * (1 + osh_math_cos_pi(along)));
    return s;
}

void osh_ada_vector_step(const osh_ada_vector *v, int64_t t, double rate)
{
    osh_ada_row_step s = {0};
    ada_adam_begin(&s, rate, (double)(t + 1));
    for (int64_t i = 0; i < v->n; i++) {
        v->x[i] -= ada_adam(&v->mean[i], &v->square[i], v->grad[i], s.rate, &s);
        v->grad[i] = 0;
    }
}

/* Does a step of Adam on the scales of row r. The gradient of a scale is the sum of m->grad over
 * the columns of the scale. */
static void ada_move_scales(const osh_ada_job *j, const osh_ada_room *m, int64_t r,
                            const osh_ada_row_step *t)
{
    const osh_ada_args *a = j->a;
    float rate = (float)(t->rate / a->rule.rate * a->rule.scale_rate);
    for (int64_t g = 0; g < j->groups; g++) {
        int64_t k = r * j->groups + g;
        double sum = 0;
        for (int64_t i = g * a->group; i < osh_min64(a->I, (g + 1) * a->group); i++)
            sum += m->grad[r * j->ld + i];
        m->d[k] -= ada_adam(&m->d_mean[k], &m->d_square[k], (float)sum * m->s0[k], rate, t);
        if (m->d[k] < -0.5f) m->d[k] = -0.5f;
    }
}

void osh_ada_quant_row(const osh_ada_job *j, const osh_ada_room *m, int64_t r,
                       const osh_ada_row_step *s)
{
    const osh_ada_args *a = j->a;
    osh_ada_quant_step(m, r * j->ld, j->ld, s);
    if (a->rule.scale_rate > 0) ada_move_scales(j, m, r, s);
    for (int64_t i = r * j->ld; a->keep_zeros && i < (r + 1) * j->ld; i++)
        if (m->w[i] == 0) m->x[i] = 0;
}

static float ada_signed_rate(double gradient, float rate)
{
    return gradient > 0 ? rate : gradient < 0 ? -rate : 0;
}

/* Number of sums that are computed at the same time. A single sum is slow, because each addition
 * waits for the addition before it. */
enum { SIDE_BY_SIDE = 4 };

/* Sets sum[k] to x[k * n] + ... + x[(k + 1) * n - 1], added in order. */
static void ada_sums(double sum[SIDE_BY_SIDE], const float *x, int64_t n)
{
    double a = 0, b = 0, c = 0, d = 0;
    for (int64_t i = 0; i < n; i++) a += x[i], b += x[n + i], c += x[2 * n + i], d += x[3 * n + i];
    sum[0] = a, sum[1] = b, sum[2] = c, sum[3] = d;
}

/* Sets sum[k] to the sum of x over the columns of group g + k, added in order. x [I] is one row of
 * a weight. */
static void ada_group_sums(double sum[SIDE_BY_SIDE], const float *x, const osh_ada_args *a,
                           int64_t g)
{
    int64_t first = g * a->group;
    if (first + SIDE_BY_SIDE * a->group <= a->I) {
        ada_sums(sum, x + first, a->group);
        return;
    }
    for (int k = 0; k < SIDE_BY_SIDE; k++) {
        sum[k] = 0;
        for (int64_t i = first + k * a->group; i < osh_min64(a->I, first + (k + 1) * a->group); i++)
            sum[k] += x[i];
    }
}

/* Changes AutoRound's shares `a` and `b` of each group of row r by one step. The step depends only
 * on the signs of the gradients. The gradients follow from two sums over the group: the sum of
 * m->soft (dloss / ds), and the sum of m->e (dloss / dz). */
void osh_ada_move_shares(const osh_ada_job *j, const osh_ada_room *m, int64_t r,
                         const osh_ada_row_step *t)
{
    const osh_ada_args *a = j->a;
    float rate = osh_ada_share_rate(a, t);
    double to_s[SIDE_BY_SIDE], to_z[SIDE_BY_SIDE] = {0};
    for (int64_t g = 0; g < j->groups; g++) {
        int64_t k = r * j->groups + g, part = g % SIDE_BY_SIDE;
        if (!part) ada_group_sums(to_s, m->soft + r * j->ld, a, g);
        if (!part && a->zero) ada_group_sums(to_z, m->e + r * j->ld, a, g);
        double ds = to_s[part], dz = to_z[part], low = -m->least[k], high = m->most[k], to_a, to_b;
        double s = m->s[g * a->group];
        double all = a->zero ? high + low : fmax(low, high), by = all > 0 ? m->s0[k] / all : 0;
        bool lower = m->d[k] * low > m->d_mean[k] * high;
        if (ada_is_signed(j)) by = (lower ? 1 : -1) / -(double)a->scales.grid.lo;
        to_a = a->zero || lower ? low * by : 0, to_b = a->zero || !lower ? high * by : 0;
        if (ada_is_float(a)) to_a = 0, to_b = ada_float_scale(j, m, k);
        // z = lo + a low / s depends on s, so a part of dloss / dz belongs to dloss / ds
        if (a->zero) ds -= dz * m->d[k] * low / (s * s);
        double by_a = ds * to_a + (a->zero ? dz * low / s : 0), by_b = ds * to_b;
        m->d[k] = fminf(1, fmaxf(0, m->d[k] - ada_signed_rate(by_a, rate)));
        m->d_mean[k] = fminf(1, fmaxf(0, m->d_mean[k] - ada_signed_rate(by_b, rate)));
    }
}

/* Stores the codes and scales of row r. The caller has found that the loss of this row is lower
 * than in all earlier steps. */
void osh_ada_keep_row(const osh_ada_job *j, const osh_ada_room *m, int64_t row, int64_t r)
{
    const osh_ada_args *a = j->a;
    const osh_grid *grid = &a->scales.grid;
    for (int64_t i = 0, at = r * j->ld; i < a->I; i++, at++) {
        // e + w = (q - z) s, so q = (e + w) / s + z
        float q = osh_grid_nearest(grid, (m->e[at] + m->w[at]) / m->s[i]) + m->z[i];
        if (a->keep_zeros && m->w[at] == 0) q = m->z[i];
        a->codes[(row + r) * a->I + i] = osh_grid_code(grid, q);
    }
    for (int64_t g = 0; g < j->groups; g++)
        m->best_s[r * j->groups + g] = m->s[g * a->group],
        m->best_z[r * j->groups + g] = m->z[g * a->group];
}

/* Sets AutoRound's shares of n rows to 1, and computes the range of the weights of each group. */
void osh_ada_sign_begin(const osh_ada_job *j, const osh_ada_room *m, int64_t row, int64_t n)
{
    const osh_ada_args *a = j->a;
    for (int64_t k = 0; k < n * j->groups; k++) {
        int64_t r = k / j->groups, g = k % j->groups;
        m->d[k] = m->d_mean[k] = 1, m->best_s[k] = m->s0[k];
        m->best_z[k] = a->zero ? a->zero[osh_ada_scale_at(j, row + r, g)] : 0;
        for (int64_t i = g * a->group; i < osh_min64(a->I, (g + 1) * a->group); i++) {
            m->least[k] = fminf(m->least[k], m->w[r * j->ld + i]);
            m->most[k] = fmaxf(m->most[k], m->w[r * j->ld + i]);
        }
    }
}

void osh_ada_sign_scales(const osh_ada_job *j, const osh_ada_room *m, int64_t n)
{
    for (int64_t k = 0; ada_is_signed(j) && k < n * j->groups; k++) {
        float s = ada_signed_scale(j, m, k);
        if (s != 0) m->s0[k] = s;
    }
}

/* For AdaRound and AdaQuant: returns the final code of column i of row r, as a value of the
 * grid. */
float osh_ada_last_code(const osh_ada_job *j, const osh_ada_room *m, int64_t r, int64_t i)
{
    const osh_ada_args *a = j->a;
    const osh_grid *grid = &a->scales.grid;
    int64_t at = r * j->ld + i;
    float q, step;
    if (a->rule.kind == OSH_ADA_ROUND) {
        ada_grid_floor(a, m->w[at] / m->s[i], &step);
        q = m->base[at] + (m->x[at] >= 0 ? step : 0);
    } else {
        q = osh_grid_nearest(grid, m->x[at] / m->s[i]) + m->z[i];
    }
    if (a->keep_zeros && m->w[at] == 0) q = m->z[i];
    return q < grid->lo ? grid->lo : q > grid->hi ? grid->hi : q;
}

