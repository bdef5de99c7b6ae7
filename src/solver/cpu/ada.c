/* ada.c - runs AdaRound, AdaQuant and AutoRound on one weight (solver/ada.h). A thread does all
 * steps of a block of rows before it begins the next block, so each thread needs memory for one
 * block only. The result does not depend on the number of threads.
 *
 * AdaRound (Nagel et al., arXiv 2004.10568) learns v. h = 0 rounds w / s down, h = 1 rounds up.
 *
 *   h  = clip(1.2 sigmoid(v) - 0.1, 0, 1)
 *   q  = clip(floor(w / s) + z + h, lo, hi)
 *   w^ = (q - z) s
 *   minimized: loss + reg sum (1 - |2 h - 1|^beta)
 *
 * After the warm start, beta changes along half a cosine. Its first value is `from`, and its last
 * value is `to`. Before the first step, h is the fractional part of w / s. The final codes use
 * h = 1 if v >= 0, else 0.
 *
 * AdaQuant (Hubara et al., arXiv 2006.10518) learns the weight x and the change d of the scale s0.
 * Gradients ignore rounding.
 *
 *   s  = rnd(s0 (1 + d))
 *   u  = x / s
 *   q  = clip(round(u) + z, lo, hi)
 *   w^ = (q - z) s
 *
 *              dw^/dx   dw^/ds
 *   in range   1        q - z - u
 *   clipped    0        q - z
 *
 * AutoRound (Cheng et al., arXiv 2309.05516) learns an offset v, which is added before rounding,
 * and two factors (shares), a and b, of the ends of a group's range.
 *
 *   q = clip(round(w / s + v) + z, lo, hi)
 *   -1/2 <= v <= 1/2     v begins with 0
 *   0 <= a, b <= 1       a and b begin with 1
 *
 * Let [L, M] be the range of the group's weights, with L <= 0 <= M. Without zero points:
 *
 *   s = s0 max(a |L|, b |M|) / max(|L|, |M|)
 *
 * With zero points:
 *
 *   s = s0 (b M - a L) / (M - L)
 *   z = round(lo - a L / s)
 *
 * Without zero points scales may be signed. The weight with the largest magnitude then always has
 * the code lo, as in auto-round:
 *
 *   s = a |L| / |lo| if a |L| > b |M|, else -b |M| / |lo|
 *
 * Float codes (FP4, FP6, FP8) are symmetric. Near u their values are multiples of step(u), which
 * depends on the binade of u. The formulas change in these places:
 *
 *   AdaRound     q = clip(floor(w / s) + step(w / s) h, lo, hi)    floor: next lower value
 *   AdaQuant     q = round(clip(u, lo, hi))                        round: nearest value
 *   AutoRound    q = round(clip(w / s + v, lo, hi))
 *                s = rnd(b max(-L, M) / hi)
 *
 * v is added to w / s, and is not multiplied by the step (as in auto-round). Near 0, v can move a
 * code by several values; near hi, v cannot move it. Only one share b is learned, as in auto-round.
 * rnd rounds to a scale that can be stored: for NVFP4 an E4M3 value divided by the global scale,
 * which does not change.
 *
 * A step of AutoRound follows the sign of the gradient, at a rate that falls linearly to 0. A row
 * keeps the codes of the step in which it had its lowest loss.
 *
 * Adam has decays 0.9 and 0.999 and adds 1e-8 to the root. Arithmetic is f32, losses are double.
 * During learning w^ is not rounded to the dtype in which it is stored; the final losses of codes
 * are computed with rounded weights. */
#include "solver/ada.h"

#include "solver/cpu/ada_rows.h"
#include "math/blas.h"
#include "math/gemm.h"
#include "math/vec.h"
#include "ops/kernel.h"

#include <math.h>
#include <string.h>

/* ROWS: number of rows of a block. A thread learns one block at a time. For a block it needs PARTS
 * arrays [rows, ld] and SMALL arrays [rows, groups]. ld is I, rounded up to a multiple of 8. */
enum { ROWS = 64, PARTS = 9, SMALL = 8 };

int64_t osh_ada_points(int64_t steps, int64_t period)
{
    return steps > 0 ? (steps - 1) / period + 1 : 0;
}

static size_t ada_room_floats(int64_t rows, int64_t I, int64_t groups)
{
    return (size_t)(PARTS * rows * osh_pad8(I) + 2 * osh_pad8(I) + SMALL * rows * groups);
}

size_t osh_ada_bytes(int64_t O, int64_t I, int64_t group, int64_t points, int n_threads)
{
    int64_t rows = osh_min64(ROWS, O), blocks = osh_div_up(O, ROWS);
    return osh_mem_gross((size_t)n_threads * ada_room_floats(rows, I, osh_div_up(I, group)) *
                         sizeof(float)) +
           osh_mem_gross((size_t)(blocks * points + 1) * sizeof(double));
}

/* ---- a block of rows ---- */

/* Sets the scratch of thread `worker` to 0. Returns views of this scratch, and of the loss curve of
 * the block. */
static osh_ada_room ada_room_of(const osh_ada_job *j, int worker, int64_t block)
{
    osh_ada_room m;
    float *at = j->room + (size_t)worker * j->floats;
    float **whole[PARTS] = {&m.w, &m.e, &m.grad, &m.c, &m.x, &m.mean, &m.square, &m.base, &m.soft};
    float **small[SMALL] = {&m.s0,    &m.d,    &m.d_mean, &m.d_square,
                            &m.least, &m.most, &m.best_s, &m.best_z};
    memset(at, 0, j->floats * sizeof *at);
    for (int k = 0; k < PARTS; k++, at += j->rows * j->ld) *whole[k] = at;
    m.s = at, m.z = at + j->ld, at += 2 * j->ld;
    for (int k = 0; k < SMALL; k++, at += j->rows * j->groups) *small[k] = at;
    m.curve = j->curves + block * j->points;
    return m;
}

/* Stores E H - C for n rows in m->grad. E H - C is the gradient of the loss, times half the number
 * of tokens. solver/ada.h defines E, H and C. */
static void ada_pull(const osh_ada_job *j, const osh_ada_room *m, int64_t n)
{
    const osh_ada_args *a = j->a;
    for (int64_t i = 0; a->shift && i < n * j->ld; i++) m->grad[i] = -m->c[i];
    osh_gemm_nn((osh_into){m->grad, j->ld, a->shift != NULL}, (osh_mat){m->e, j->ld},
                (osh_mat){a->h, a->I}, (osh_mnk){n, a->I, a->I});
}

/* Returns the loss of row r, times the number of tokens. m->grad must contain E H - C. */
static double ada_row_loss(const osh_ada_job *j, const osh_ada_room *m, int64_t r)
{
    double sum = 0;
    for (int64_t i = r * j->ld; i < r * j->ld + j->a->I; i++)
        sum += (double)m->e[i] * ((double)m->grad[i] - m->c[i]);
    return sum;
}

/* Returns the dequantized weight of a code with zero point z and scale s. */
static float ada_decoded(const osh_ada_args *a, int8_t code, float z, float s)
{
    return osh_round_to((osh_grid_value(&a->scales.grid, code) - z) * s, a->scales.dtype);
}

/* Sets m->e to w^ - w for the codes of rows [row, row + n). Sets loss[r] to the loss of row `row` +
 * r, times the number of tokens. */
static void ada_judge_codes(const osh_ada_job *j, const osh_ada_room *m, int64_t row, int64_t n,
                            double *loss)
{
    const osh_ada_args *a = j->a;
    for (int64_t r = 0; r < n; r++) {
        osh_ada_spread(j, m, row, r);
        for (int64_t i = 0; i < a->I; i++)
            m->e[r * j->ld + i] = ada_decoded(a, a->codes[(row + r) * a->I + i], m->z[i], m->s[i]) -
                                  m->w[r * j->ld + i];
    }
    ada_pull(j, m, n);
    for (int64_t r = 0; r < n; r++) loss[row + r] = ada_row_loss(j, m, r);
}

/* Loads weights and scales of rows [row, row + n), computes C, and initializes the learned
 * parameters. */
static void ada_block_begin(const osh_ada_job *j, osh_ada_room *m, int64_t row, int64_t n)
{
    const osh_ada_args *a = j->a;
    for (int64_t r = 0; r < n; r++) {
        osh_to_f32(m->w + r * j->ld, osh_elem(a->w, (row + r) * a->I), a->w->dtype, a->I);
        for (int64_t g = 0; g < j->groups; g++)
            m->s0[r * j->groups + g] = a->scale[osh_ada_scale_at(j, row + r, g)];
    }
    if (a->shift)
        osh_gemm_nn((osh_into){m->c, j->ld, false}, (osh_mat){m->w, j->ld},
                    (osh_mat){a->shift, a->I}, (osh_mnk){n, a->I, a->I});
    for (int64_t r = 0; r < n; r++) osh_ada_begin_row(j, m, row, r);
}

bool osh_ada_is_over(osh_ada_watch *w, double value, int64_t window)
{
    bool over;
    w->sum += value;
    if (++w->n < window) return false;
    over = w->any && !(w->sum < w->last);
    *w = (osh_ada_watch){.last = w->sum, .any = true};
    return over;
}

/* Does all steps of AdaRound or AdaQuant on a block of rows. */
static void ada_block_learn(const osh_ada_job *j, const osh_ada_room *m, int64_t row, int64_t n)
{
    const osh_ada_args *a = j->a;
    const osh_ada_rule *u = &a->rule;
    osh_ada_watch watch = {0};
    for (int64_t t = 0; t < u->steps; t++) {
        osh_ada_row_step s = osh_ada_step_at(j, t);
        bool point = t % a->period == 0,
             watched = u->window && (double)t >= u->warm * (double)u->steps;
        double loss = 0, rounding = 0;
        for (int64_t r = 0; r < n; r++) {
            osh_ada_spread(j, m, row, r);
            if (u->kind == OSH_ADA_ROUND) osh_ada_soft_error(m, r * j->ld, j->ld, &s);
            else osh_ada_near_error(m, r * j->ld, j->ld, &s);
        }
        ada_pull(j, m, n);
        for (int64_t r = 0; r < n && (point || watched); r++) loss += ada_row_loss(j, m, r);
        for (int64_t r = 0; r < n; r++) {
            osh_ada_spread(j, m, row, r);
            if (u->kind == OSH_ADA_ROUND) rounding += osh_ada_round_step(m, r * j->ld, j->ld, &s);
            else osh_ada_quant_row(j, m, r, &s);
        }
        if (point) m->curve[t / a->period] = loss / a->n_tokens + s.reg * rounding;
        if (!watched ||
            !osh_ada_is_over(&watch, u->kind == OSH_ADA_ROUND ? rounding : loss, u->window))
            continue;
        for (int64_t k = t / a->period + 1; k < j->points; k++)
            m->curve[k] = loss / a->n_tokens + s.reg * rounding;
        break;
    }
}

/* Does all steps of AutoRound on a block of rows, and stores the best codes and scales of each
 * row. */
static void ada_sign_learn(const osh_ada_job *j, const osh_ada_room *m, int64_t row, int64_t n)
{
    const osh_ada_args *a = j->a;
    for (int64_t r = 0; r < n; r++) a->learned[row + r] = a->nearest[row + r];
    for (int64_t t = 0; t <= a->rule.steps; t++) {
        osh_ada_row_step s = osh_ada_step_at(j, t);
        double all = 0;
        for (int64_t r = 0; r < n; r++)
            osh_ada_spread(j, m, row, r), osh_ada_near_error(m, r * j->ld, j->ld, &s);
        ada_pull(j, m, n);
        for (int64_t r = 0; r < n; r++) {
            double loss = ada_row_loss(j, m, r);
            all += loss;
            osh_ada_spread(j, m, row, r);
            if (loss < a->learned[row + r])
                a->learned[row + r] = loss, osh_ada_keep_row(j, m, row, r);
            if (t == a->rule.steps) continue;
            osh_ada_sign_step(m, r * j->ld, j->ld, &s);
            if (a->rule.scale_rate > 0) osh_ada_move_shares(j, m, r, &s);
        }
        if (t < a->rule.steps && t % a->period == 0) m->curve[t / a->period] = all / a->n_tokens;
    }
    for (int64_t r = 0; r < n && osh_ada_moves_scales(a); r++)
        for (int64_t g = 0; g < j->groups; g++) {
            int64_t k = r * j->groups + g, to = osh_ada_scale_at(j, row + r, g);
            a->scale[to] = m->s0[k] = m->best_s[k], m->d[k] = m->d_mean[k] = 1;
            if (a->zero) a->zero[to] = m->best_z[k];
        }
    ada_judge_codes(j, m, row, n, a->learned);
}

/* Stores the learned codes and scales of n rows. Skips a row if learning diverged. With
 * rule.selective, also skips a row if learning did not lower its loss. */
static void ada_block_end(const osh_ada_job *j, const osh_ada_room *m, int64_t row, int64_t n)
{
    const osh_ada_args *a = j->a;
    for (int64_t r = 0; r < n; r++) {
        osh_ada_spread(j, m, row, r);
        for (int64_t i = 0, at = r * j->ld; i < a->I; i++, at++) {
            m->soft[at] = osh_ada_last_code(j, m, r, i);
            m->e[at] = osh_round_to((m->soft[at] - m->z[i]) * m->s[i], a->scales.dtype) - m->w[at];
        }
    }
    ada_pull(j, m, n);
    for (int64_t r = 0; r < n; r++) {
        double loss = ada_row_loss(j, m, r);
        bool diverged = a->diverged[row + r] = osh_ada_diverged(loss, a->nearest[row + r]);
        bool taken = !diverged && !(a->rule.selective && loss >= a->nearest[row + r]);
        a->learned[row + r] = taken ? loss : a->nearest[row + r];
        for (int64_t i = 0; taken && i < a->I; i++)
            a->codes[(row + r) * a->I + i] = osh_grid_code(&a->scales.grid, m->soft[r * j->ld + i]);
        for (int64_t g = 0; taken && a->rule.scale_rate > 0 && g < j->groups; g++)
            a->scale[osh_ada_scale_at(j, row + r, g)] = osh_ada_scale_now(j, m, r, g);
    }
}

static osh_status ada_block(osh_ctx *cx, void *user, int64_t block, int worker)
{
    const osh_ada_job *j = user;
    int64_t row = block * ROWS, n = osh_min64(ROWS, j->a->O - row);
    osh_ada_room m = ada_room_of(j, worker, block);
    osh_status rc = osh_check_interrupt(cx);
    if (rc) return rc;
    ada_block_begin(j, &m, row, n);
    if (j->a->rule.kind == OSH_ADA_SIGN) osh_ada_sign_begin(j, &m, row, n);
    ada_judge_codes(j, &m, row, n, j->a->nearest);
    if (j->a->rule.kind == OSH_ADA_SIGN) {
        osh_ada_sign_scales(j, &m, n);
        ada_sign_learn(j, &m, row, n);
        return OSH_OK;
    }
    ada_block_learn(j, &m, row, n);
    ada_block_end(j, &m, row, n);
    return OSH_OK;
}

osh_status osh_ada(osh_ctx *cx, const osh_ada_args *a)
{
    osh_status rc = OSH_OK;
    int64_t blocks = osh_div_up(a->O, ROWS);
    osh_ada_job j = {.a = a,
                     .ld = osh_pad8(a->I),
                     .groups = osh_div_up(a->I, a->group),
                     .rows = osh_min64(ROWS, a->O),
                     .points = osh_ada_points(a->rule.steps, a->period)};
    j.floats = ada_room_floats(j.rows, a->I, j.groups);
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
