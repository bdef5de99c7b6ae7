/* ada.c - the steps of ops/ada.h, a block of rows from first to last before the next one begins: all that a thread
 * holds are the numbers of its block. The blocks know nothing of threads.
 *
 * AdaRound (Nagel et al., arXiv 2004.10568): a weight goes down or up, by a soft number h of v
 *
 *   h = clip(1.2 sigmoid(v) - 0.1, 0, 1)    q = clip(floor(w / s) + z + h, lo, hi)    w^ = (q - z) s
 *   loss + reg sum (1 - |2 h - 1|^beta)     beta from `from` to `to` along half a cosine, behind the warm start
 *
 * v begins where h is the fraction of w / s; in the end h is v >= 0.
 *
 * AdaQuant (Hubara et al., arXiv 2006.10518): a weight x moves, and its scale, roundings counting as none
 *
 *   u = x / s    q = clip(round(u) + z, lo, hi)    w^ = (q - z) s    s = rnd(s0 (1 + d))
 *   in range: dw^/dx = 1, dw^/ds = round(u) - u    clipped: dw^/dx = 0, dw^/ds = q - z
 *
 * AutoRound (Cheng et al., arXiv 2309.05516): an offset v of what is rounded, and shares a, b of a group's range
 *
 *   q = clip(round(w / s + v) + z, lo, hi)    -1/2 <= v <= 1/2, from 0    0 <= a, b <= 1, from 1
 *   s = s0 max(a |least|, b |most|) / max(|least|, |most|), or with zero points, of least <= 0 <= most,
 *   s = s0 (b most - a least) / (most - least), z = round(lo - a least / s)
 *
 * by the sign of the gradient, at a rate that falls to 0 in a line. Of a row the step is taken that lost least.
 *
 * Adam has decays 0.9 and 0.999 and 1e-8 beside the root. f32 but for losses, which are double. While it learns w^ is
 * not rounded to the dtype that it is stored in; losses of codes are of rounded weights. */
#include "ops/ada.h"

#include "base/elementary.h"
#include "ops/cpu/ada_rows.h"
#include "ops/cpu/blas.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/vec.h"
#include "ops/kernel.h"

#include <math.h>
#include <string.h>

enum { ROWS = 64, PARTS = 9, SMALL = 8 }; // of a block; arrays of a block, and small ones
enum { DOWN = -40 };                      // a v of AdaRound that no step moves: h is 0

typedef struct ada_job {
    const osh_ada_args *a;
    int64_t ld, groups, rows, points;
    float *room;    // own: [threads, floats]
    size_t floats;  // of a thread
    double *curves; // own: [blocks, points]
} ada_job;

int64_t osh_ada_points(int64_t steps, int64_t period) { return steps > 0 ? (steps - 1) / period + 1 : 0; }

static size_t floats_of(int64_t rows, int64_t I, int64_t groups)
{
    return (size_t)(PARTS * rows * osh_pad8(I) + 2 * osh_pad8(I) + SMALL * rows * groups);
}

size_t osh_ada_bytes(int64_t O, int64_t I, int64_t group, int64_t points, int n_threads)
{
    int64_t rows = osh_min64(ROWS, O), blocks = osh_div_up(O, ROWS);
    return osh_mem_gross((size_t)n_threads * floats_of(rows, I, osh_div_up(I, group)) * sizeof(float)) +
           osh_mem_gross((size_t)(blocks * points + 1) * sizeof(double));
}

/* ---- a block of rows ---- */

static osh_ada_room room_of(const ada_job *j, int worker, int64_t block)
{
    osh_ada_room m;
    float *at = j->room + (size_t)worker * j->floats;
    float **whole[PARTS] = {&m.w, &m.e, &m.grad, &m.c, &m.x, &m.mean, &m.square, &m.base, &m.soft};
    float **small[SMALL] = {&m.s0, &m.d, &m.d_mean, &m.d_square, &m.least, &m.most, &m.best_s, &m.best_z};
    memset(at, 0, j->floats * sizeof *at);
    for (int k = 0; k < PARTS; k++, at += j->rows * j->ld) *whole[k] = at;
    m.s = at, m.z = at + j->ld, at += 2 * j->ld;
    for (int k = 0; k < SMALL; k++, at += j->rows * j->groups) *small[k] = at;
    m.curve = j->curves + block * j->points;
    return m;
}

static int64_t scale_at(const ada_job *j, int64_t row, int64_t group)
{
    return row / j->a->row_block * j->groups + group;
}

static float scale_now(const ada_job *j, const osh_ada_room *m, int64_t r, int64_t g)
{
    int64_t k = r * j->groups + g;
    return m->d[k] == 0 ? m->s0[k] : osh_round_to(m->s0[k] * (1 + m->d[k]), j->a->dtype);
}

/* Scale and zero point of AutoRound's shares a and b. */
static void clipped_range(const ada_job *j, const osh_ada_room *m, int64_t k, float *s, float *z)
{
    float low = -m->least[k], high = m->most[k], a = m->d[k], b = m->d_mean[k];
    if (a == 1 && b == 1) return;
    float all = j->a->zero ? high + low : fmaxf(low, high);
    float now = j->a->zero ? b * high + a * low : fmaxf(a * low, b * high);
    *s = osh_round_to(all > 0 ? m->s0[k] * now / all : m->s0[k], j->a->dtype);
    if (!(*s > 0)) *s = m->s0[k];
    if (j->a->zero) *z = fmaxf(j->a->lo, fminf(j->a->hi, nearbyintf(j->a->lo + a * low / *s)));
}

/* Scales and zero points of row r of the block by column. */
static void spread(const ada_job *j, const osh_ada_room *m, int64_t row, int64_t r)
{
    const osh_ada_args *a = j->a;
    for (int64_t g = 0; g < j->groups; g++) {
        float s = m->s0[r * j->groups + g], z = a->zero ? a->zero[scale_at(j, row + r, g)] : 0;
        if (a->rule.kind == OSH_ADA_QUANT) s = scale_now(j, m, r, g);
        if (a->rule.kind == OSH_ADA_SIGN) clipped_range(j, m, r * j->groups + g, &s, &z);
        for (int64_t i = g * a->group; i < osh_min64(a->I, (g + 1) * a->group); i++) m->s[i] = s, m->z[i] = z;
    }
    for (int64_t i = a->I; i < j->ld; i++) m->s[i] = 1, m->z[i] = 0;
}

/* grad = E H - C */
static void pull(const ada_job *j, const osh_ada_room *m, int64_t n)
{
    const osh_ada_args *a = j->a;
    for (int64_t i = 0; a->shift && i < n * j->ld; i++) m->grad[i] = -m->c[i];
    osh_gemm_nn(m->grad, j->ld, (osh_mat){m->e, j->ld}, (osh_mat){a->h, a->I}, n, a->I, a->I, a->shift ? 1 : 0);
}

/* T times the loss of row r, whose grad is there. */
static double loss_of(const ada_job *j, const osh_ada_room *m, int64_t r)
{
    double sum = 0;
    for (int64_t i = r * j->ld; i < r * j->ld + j->a->I; i++) sum += (double)m->e[i] * ((double)m->grad[i] - m->c[i]);
    return sum;
}

/* E of the codes in `codes`, with the scales that they had, and what they lose. */
static void judge_codes(const ada_job *j, const osh_ada_room *m, int64_t row, int64_t n, double *loss)
{
    const osh_ada_args *a = j->a;
    for (int64_t r = 0; r < n; r++) {
        spread(j, m, row, r);
        for (int64_t i = 0; i < a->I; i++)
            m->e[r * j->ld + i] =
                osh_round_to((a->codes[(row + r) * a->I + i] - m->z[i]) * m->s[i], a->dtype) - m->w[r * j->ld + i];
    }
    pull(j, m, n);
    for (int64_t r = 0; r < n; r++) loss[row + r] = loss_of(j, m, r);
}

static void block_begin(const ada_job *j, osh_ada_room *m, int64_t row, int64_t n)
{
    const osh_ada_args *a = j->a;
    for (int64_t r = 0; r < n; r++) {
        osh_to_f32(m->w + r * j->ld, osh_elem(a->w, (row + r) * a->I), a->w->dtype, a->I);
        for (int64_t g = 0; g < j->groups; g++) m->s0[r * j->groups + g] = a->scale[scale_at(j, row + r, g)];
    }
    if (a->shift)
        osh_gemm_nn(m->c, j->ld, (osh_mat){m->w, j->ld}, (osh_mat){a->shift, a->I}, n, a->I, a->I, 0);
    for (int64_t r = 0; r < n; r++) {
        spread(j, m, row, r);
        for (int64_t i = 0, at = r * j->ld; i < a->I; i++, at++) {
            float u = m->w[at] / m->s[i], below = floorf(u), part = u - below;
            m->base[at] = below + m->z[i];
            if (a->rule.kind == OSH_ADA_QUANT) m->x[at] = m->w[at];
            else if (a->rule.kind == OSH_ADA_SIGN) m->x[at] = 0;
            else if (a->keep_zeros && m->w[at] == 0) m->x[at] = DOWN;
            else m->x[at] = (float)-osh_math_log(1.2 / ((double)part + 0.1) - 1);
        }
        for (int64_t i = a->I; i < j->ld; i++) m->x[r * j->ld + i] = a->rule.kind == OSH_ADA_ROUND ? DOWN : 0;
    }
}

static osh_ada_row_step step_at(const ada_job *j, int64_t t)
{
    const osh_ada_rule *u = &j->a->rule;
    double n = (double)(t + 1), warm = floor(u->warm * (double)u->steps);
    double along = (double)u->steps > warm ? ((double)t - warm) / ((double)u->steps - warm) : 1;
    osh_ada_row_step s = {.by = (float)(2 / j->a->n_tokens), .lo = j->a->lo, .hi = j->a->hi};
    if (u->kind == OSH_ADA_SIGN) {
        s.rate = (float)(u->rate * (double)(u->steps - t) / (double)u->steps), s.offset = 1;
        return s;
    }
    s.rate = (float)(u->rate / (1 - osh_math_pow(0.9, n)));
    s.root_part = (float)(1 / sqrt(1 - osh_math_pow(0.999, n)));
    if (u->kind == OSH_ADA_QUANT || (double)t < warm) return s;
    s.reg = (float)u->reg;
    s.beta = (float)(u->to + (u->from - u->to) / 2 * (1 + osh_math_cos_pi(along)));
    return s;
}

/* Scales of row r follow the sums of grad. */
static void move_scales(const ada_job *j, const osh_ada_room *m, int64_t r, const osh_ada_row_step *t)
{
    const osh_ada_args *a = j->a;
    float rate = (float)(t->rate / a->rule.rate * a->rule.scale_rate);
    for (int64_t g = 0; g < j->groups; g++) {
        int64_t k = r * j->groups + g;
        double sum = 0;
        for (int64_t i = g * a->group; i < osh_min64(a->I, (g + 1) * a->group); i++) sum += m->grad[r * j->ld + i];
        float by = (float)sum * m->s0[k];
        m->d_mean[k] = 0.9f * m->d_mean[k] + 0.1f * by;
        m->d_square[k] = 0.999f * m->d_square[k] + 0.001f * by * by;
        m->d[k] -= rate * m->d_mean[k] / (sqrtf(m->d_square[k]) * t->root_part + 1e-8f);
        if (m->d[k] < -0.5f) m->d[k] = -0.5f;
    }
}

/* The mean over a window, and whether it fell. */
typedef struct ada_watch {
    double sum, last;
    int64_t n;
    bool any;
} ada_watch;

static bool is_over(ada_watch *w, double value, int64_t window)
{
    bool over;
    w->sum += value;
    if (++w->n < window) return false;
    over = w->any && !(w->sum < w->last);
    *w = (ada_watch){.last = w->sum, .any = true};
    return over;
}

static void quant_row(const ada_job *j, const osh_ada_room *m, int64_t r, const osh_ada_row_step *s)
{
    const osh_ada_args *a = j->a;
    osh_ada_quant_step(m, r * j->ld, j->ld, s);
    if (a->rule.scale_rate > 0) move_scales(j, m, r, s);
    for (int64_t i = r * j->ld; a->keep_zeros && i < (r + 1) * j->ld; i++)
        if (m->w[i] == 0) m->x[i] = 0;
}

static void block_learn(const ada_job *j, const osh_ada_room *m, int64_t row, int64_t n)
{
    const osh_ada_args *a = j->a;
    const osh_ada_rule *u = &a->rule;
    ada_watch watch = {0};
    for (int64_t t = 0; t < u->steps; t++) {
        osh_ada_row_step s = step_at(j, t);
        bool point = t % a->period == 0, watched = u->window && (double)t >= u->warm * (double)u->steps;
        double loss = 0, rounding = 0;
        for (int64_t r = 0; r < n; r++) {
            spread(j, m, row, r);
            if (u->kind == OSH_ADA_ROUND) osh_ada_soft_error(m, r * j->ld, j->ld, &s);
            else osh_ada_near_error(m, r * j->ld, j->ld, &s);
        }
        pull(j, m, n);
        for (int64_t r = 0; r < n && (point || watched); r++) loss += loss_of(j, m, r);
        for (int64_t r = 0; r < n; r++) {
            spread(j, m, row, r);
            if (u->kind == OSH_ADA_ROUND) rounding += osh_ada_round_step(m, r * j->ld, j->ld, &s);
            else quant_row(j, m, r, &s);
        }
        if (point) m->curve[t / a->period] = loss / a->n_tokens + s.reg * rounding;
        if (!watched || !is_over(&watch, u->kind == OSH_ADA_ROUND ? rounding : loss, u->window)) continue;
        for (int64_t k = t / a->period + 1; k < j->points; k++) m->curve[k] = loss / a->n_tokens + s.reg * rounding;
        break;
    }
}

static float signed_rate(double gradient, float rate) { return gradient > 0 ? rate : gradient < 0 ? -rate : 0; }

/* Shares of the ranges of row r follow the sums of grad and e. */
static void move_shares(const ada_job *j, const osh_ada_room *m, int64_t r, const osh_ada_row_step *t)
{
    const osh_ada_args *a = j->a;
    float rate = (float)(t->rate / a->rule.rate * a->rule.scale_rate);
    for (int64_t g = 0; g < j->groups; g++) {
        int64_t k = r * j->groups + g, first = g * a->group;
        double ds = 0, dz = 0, low = -m->least[k], high = m->most[k], to_a, to_b, s = m->s[first];
        for (int64_t i = first; i < osh_min64(a->I, first + a->group); i++)
            ds += m->grad[r * j->ld + i], dz += m->e[r * j->ld + i];
        double all = a->zero ? high + low : fmax(low, high), by = all > 0 ? m->s0[k] / all : 0;
        bool lower = m->d[k] * low > m->d_mean[k] * high;
        to_a = a->zero || lower ? low * by : 0, to_b = a->zero || !lower ? high * by : 0;
        if (a->zero) ds -= dz * m->d[k] * low / (s * s); // z = lo + a low / s
        double by_a = ds * to_a + (a->zero ? dz * low / s : 0), by_b = ds * to_b;
        m->d[k] = fminf(1, fmaxf(0, m->d[k] - signed_rate(by_a, rate)));
        m->d_mean[k] = fminf(1, fmaxf(0, m->d_mean[k] - signed_rate(by_b, rate)));
    }
}

/* Codes of row r as they are now, with their scales: it is the best step so far. */
static void keep_row(const ada_job *j, const osh_ada_room *m, int64_t row, int64_t r)
{
    const osh_ada_args *a = j->a;
    for (int64_t i = 0, at = r * j->ld; i < a->I; i++, at++) {
        float q = nearbyintf((m->e[at] + m->w[at]) / m->s[i]) + m->z[i]; // e + w is (q - z) s
        a->codes[(row + r) * a->I + i] = (int8_t)(a->keep_zeros && m->w[at] == 0 ? m->z[i] : q);
    }
    for (int64_t g = 0; g < j->groups; g++)
        m->best_s[r * j->groups + g] = m->s[g * a->group], m->best_z[r * j->groups + g] = m->z[g * a->group];
}

static void sign_begin(const ada_job *j, const osh_ada_room *m, int64_t row, int64_t n)
{
    const osh_ada_args *a = j->a;
    for (int64_t k = 0; k < n * j->groups; k++) {
        int64_t r = k / j->groups, g = k % j->groups;
        m->d[k] = m->d_mean[k] = 1, m->best_s[k] = m->s0[k];
        m->best_z[k] = a->zero ? a->zero[scale_at(j, row + r, g)] : 0;
        for (int64_t i = g * a->group; i < osh_min64(a->I, (g + 1) * a->group); i++) {
            m->least[k] = fminf(m->least[k], m->w[r * j->ld + i]);
            m->most[k] = fmaxf(m->most[k], m->w[r * j->ld + i]);
        }
    }
}

static void sign_learn(const ada_job *j, const osh_ada_room *m, int64_t row, int64_t n)
{
    const osh_ada_args *a = j->a;
    for (int64_t r = 0; r < n; r++) a->learned[row + r] = a->nearest[row + r];
    for (int64_t t = 0; t <= a->rule.steps; t++) {
        osh_ada_row_step s = step_at(j, t);
        double all = 0;
        for (int64_t r = 0; r < n; r++) spread(j, m, row, r), osh_ada_near_error(m, r * j->ld, j->ld, &s);
        pull(j, m, n);
        for (int64_t r = 0; r < n; r++) {
            double loss = loss_of(j, m, r);
            all += loss;
            spread(j, m, row, r);
            if (loss < a->learned[row + r]) a->learned[row + r] = loss, keep_row(j, m, row, r);
            if (t == a->rule.steps) continue;
            osh_ada_sign_step(m, r * j->ld, j->ld, &s);
            if (a->rule.scale_rate > 0) move_shares(j, m, r, &s);
        }
        if (t < a->rule.steps && t % a->period == 0) m->curve[t / a->period] = all / a->n_tokens;
    }
    for (int64_t r = 0; r < n && a->rule.scale_rate > 0; r++)
        for (int64_t g = 0; g < j->groups; g++) {
            int64_t k = r * j->groups + g, to = scale_at(j, row + r, g);
            a->scale[to] = m->s0[k] = m->best_s[k], m->d[k] = m->d_mean[k] = 1;
            if (a->zero) a->zero[to] = m->best_z[k];
        }
    judge_codes(j, m, row, n, a->learned);
}

/* The code that row r's element at column i stands for in the end. */
static float last_code(const ada_job *j, const osh_ada_room *m, int64_t r, int64_t i)
{
    const osh_ada_args *a = j->a;
    int64_t at = r * j->ld + i;
    float q = a->rule.kind == OSH_ADA_ROUND ? m->base[at] + (m->x[at] >= 0)
                                            : nearbyintf(m->x[at] / m->s[i]) + m->z[i];
    if (a->keep_zeros && m->w[at] == 0) q = m->z[i];
    return q < a->lo ? a->lo : q > a->hi ? a->hi : q;
}

/* Codes and scales of the rows that are taken. */
static void block_end(const ada_job *j, const osh_ada_room *m, int64_t row, int64_t n)
{
    const osh_ada_args *a = j->a;
    for (int64_t r = 0; r < n; r++) {
        spread(j, m, row, r);
        for (int64_t i = 0, at = r * j->ld; i < a->I; i++, at++) {
            m->soft[at] = last_code(j, m, r, i);
            m->e[at] = osh_round_to((m->soft[at] - m->z[i]) * m->s[i], a->dtype) - m->w[at];
        }
    }
    pull(j, m, n);
    for (int64_t r = 0; r < n; r++) {
        double loss = loss_of(j, m, r);
        bool taken = isfinite(loss) && !(a->rule.selective && loss >= a->nearest[row + r]);
        a->learned[row + r] = taken ? loss : a->nearest[row + r];
        for (int64_t i = 0; taken && i < a->I; i++)
            a->codes[(row + r) * a->I + i] = (int8_t)m->soft[r * j->ld + i];
        for (int64_t g = 0; taken && a->rule.scale_rate > 0 && g < j->groups; g++)
            a->scale[scale_at(j, row + r, g)] = scale_now(j, m, r, g);
    }
}

static osh_status ada_block(osh_ctx *cx, void *user, int64_t block, int worker)
{
    const ada_job *j = user;
    int64_t row = block * ROWS, n = osh_min64(ROWS, j->a->O - row);
    osh_ada_room m = room_of(j, worker, block);
    osh_status rc = osh_check_interrupt(cx);
    if (rc) return rc;
    block_begin(j, &m, row, n);
    if (j->a->rule.kind == OSH_ADA_SIGN) sign_begin(j, &m, row, n);
    judge_codes(j, &m, row, n, j->a->nearest);
    if (j->a->rule.kind == OSH_ADA_SIGN) {
        sign_learn(j, &m, row, n);
        return OSH_OK;
    }
    block_learn(j, &m, row, n);
    block_end(j, &m, row, n);
    return OSH_OK;
}

osh_status osh_ada(osh_ctx *cx, const osh_ada_args *a)
{
    osh_status rc = OSH_OK;
    int64_t blocks = osh_div_up(a->O, ROWS);
    ada_job j = {.a = a, .ld = osh_pad8(a->I), .groups = osh_div_up(a->I, a->group), .rows = osh_min64(ROWS, a->O),
                 .points = osh_ada_points(a->rule.steps, a->period)};
    j.floats = floats_of(j.rows, a->I, j.groups);
    OSH_TRY(osh_blas_open(cx));
    OSH_NEW(cx, j.room, (size_t)osh_threads(cx) * j.floats);
    OSH_NEW(cx, j.curves, blocks * j.points + 1);
    OSH_TRY(osh_parallel_for(cx, blocks, ada_block, &j));
    for (int64_t k = 0; k < j.points; k++) {
        a->curve[k] = 0;
        for (int64_t b = 0; b < blocks; b++) a->curve[k] += j.curves[b * j.points + k];
    }
done:
    osh_free(cx, j.room);
    osh_free(cx, j.curves);
    return rc;
}
