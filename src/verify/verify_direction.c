/* verify_direction.c - compares a pruned and quantized weight dq [O, I] with the source's weight
 * w, if the mask of the pruner depends on calibration data.
 *
 * SparseGPT changes the kept weights to z = w + e, where e compensates the pruned weights. The size
 * of e depends on the inputs, and has no useful bound. For example, with independent inputs and a
 * damping of 1 %, |e|^2 can be 25 times |w|^2 of the pruned weights. So neither |dq - w| nor the
 * cosine of dq and w has a bound. But the signs of w have nothing to do with e, so these rules hold
 * for any size of e:
 *
 *   slope   sum sign(w) dq / sum |w|, over dq != 0, is 1 if the mask does not depend on z,
 *           because the terms sign(w) e cancel. The pruner keeps the largest |z|. In these, w and
 *           e mostly have the same sign. If e is much larger than w and has a normal distribution,
 *           the slope is
 *               1 + 2 t phi(t) / (1 - s),   P(|x| > t) = 1 - s for a normal x
 *           for each distribution of w: 1.86 at a sparsity s of 0.5, 2.61 at 0.7. A smaller e has a
 *           smaller slope. If all weights of a row have one sign, e is not independent of the
 *           signs: SparseGPT then keeps the sum of the row, and the slope is 1 / (1 - s), which is
 *           larger. Without e, a code that is not 0 can be up to twice the weight. So the accepted
 *           range is LEAST to the result of direction_largest. Four standard errors are added,
 *           which matter only for small weights.
 *   signs   more than half of the signs of dq equal those of w. (If the weights were unrelated,
 *           half of the signs would be equal.) Two standard errors are subtracted from the limit.
 *   rows    a row may have few weights, so chance matters. A row is wrong if all of this is true:
 *           - as few of its signs agree with those of w as in an unrelated row (binomial, up to
 *             three standard deviations above a half)
 *           - its slope is below ROW_SLOPE
 *           - in a correct row of this weight, the chance that so few signs agree is less than
 *             1 / (RARE O). Chernoff's bound for a binomial limits this chance:
 *               P(share of n <= x) <= exp(-n KL(x, p))
 *               KL(x, p) = x ln(x / p) + ...
 *           A row of zeros is wrong if |w|^2 of the row is at least half of the mean of all rows,
 *           and s^I, the chance that all weights are pruned, is far below 1 / (RARE O).
 *
 * Measurements: the slopes were 0.96 to 1.23 with 4 and 8 bits, and up to 1.58 with 2 bits. At
 * least 0.81 of the signs were equal, and no row was wrong. The distribution of the weights was
 * normal, uniform or Student's (2 and 3 degrees of freedom). Rows and columns had different scales.
 * There were 40 to 1024 tokens and 64 to 512 columns. The sparsities were 0.5, 0.7 and 2:4. */
#include <math.h>
#include <stdio.h>

#include "verify/verify.h"

#define LEAST 0.6     // smallest accepted slope
#define ROW_SLOPE 0.4 // largest slope of a wrong row, with 4 bits or more
#define SIGNS 0.6     // smallest accepted share of signs that agree
/* Smallest accepted share of signs that agree, if the sparsity exceeds DENSE_ENOUGH. The few
 * elements that are kept then compensate many pruned elements. In a small weight, their signs
 * often change. */
#define SIGNS_OF_FEW 0.55
#define DENSE_ENOUGH 0.8
#define RARE 1e4
enum { DIRECTION_MAX = 3 }; // largest number of findings for the rows of one module

void osh_direction_row_fill(osh_direction_row *to, const float *w, const float *dq,
                            const bool *live, int64_t I)
{
    *to = (osh_direction_row){0};
    for (int64_t c = 0; c < I; c++) {
        double x = w[c], y = dq[c];
        if (live[c]) to->norm += x * x;
        if (y == 0 || x == 0) continue;
        to->n++, to->same += x * y > 0;
        to->sum += x > 0 ? y : -y, to->abs += fabs(x);
        to->dot += x * y, to->square += x * x;
        to->error += (y - x) * (y - x);
    }
}

/* Returns the largest accepted slope at sparsity s. It is max(2, 1 / (1 - s)), or 1.25 times this
 * number with 2 or 3 bits. It is also 1.25 times this number with 4 bits if a scale is for a whole
 * row, block or tensor. */
static double direction_largest(const osh_q_args *a, double s)
{
    double most = fmax(2, 1 / (1 - s));
    bool shared =
        a->strategy == OSH_Q_TENSOR || a->strategy == OSH_Q_CHANNEL || a->strategy == OSH_Q_BLOCK;
    return a->bits < 4 || (a->bits == 4 && shared) ? 1.25 * most : most;
}

/* Returns n KL(x, p): the exponent of Chernoff's bound for a share x of n. */
static double direction_exponent(double n, double x, double p)
{
    double a = x > 0 ? x * log(x / p) : 0, b = x < 1 ? (1 - x) * log((1 - x) / (1 - p)) : 0;
    return n * (a + b);
}

/* True if row r is wrong by the rules of `rows` at the top of this file. p: fraction of the whole
 * weight's signs that agree with the source. */
static bool direction_is_bad(const osh_direction_row *r, double p, const osh_linear *l)
{
    double slope = l->scheme->weights.bits < 4 ? ROW_SLOPE / 2 : ROW_SLOPE;
    double n = (double)r->n, same = (double)r->same;
    if (!r->n || same > n / 2 + 1.5 * sqrt(n) || same >= p * n) return false;
    if (r->sum >= slope * r->abs || r->dot >= slope * r->square) return false;
    return direction_exponent(n, same / n, p) > log(RARE * (double)l->O);
}

static bool direction_is_zero(const osh_direction_row *r, const osh_direction_row *all, double s,
                              const osh_linear *l)
{
    // a scale that several rows share may round all weights of a row to 0
    if (osh_q_scale_rows(&l->scheme->weights, l->O) > 1) return false;
    if (r->n || !(r->norm > 0) || r->norm < 0.5 * all->norm / (double)l->O) return false;
    return !(s > 0) || (double)l->I * -log(s) > 4 * log(RARE * (double)l->O);
}

static osh_status direction_check_rows(osh_ctx *cx, osh_verify *v, const osh_linear *l,
                                       const osh_direction_row *rows, const osh_direction_row *all,
                                       double sparsity)
{
    osh_status rc = OSH_OK;
    int found = 0;
    char text[64];
    double p = fmin((double)all->same / (double)all->n, 0.999);
    for (int64_t r = 0; r < l->O && found < DIRECTION_MAX; r++) {
        if (direction_is_zero(&rows[r], all, sparsity, l)) {
            found++;
            OSH_TRY(osh_verify_add(cx, v, l->name, "values that are not 0", "row %lld has only 0",
                                   (long long)r));
        }
        if (!direction_is_bad(&rows[r], p, l)) continue;
        found++;
        snprintf(text, sizeof text, "about %.2f of them", p);
        OSH_TRY(osh_verify_add(cx, v, l->name, text,
                               "%lld of %lld weights of row %lld have the sign of the source's",
                               (long long)rows[r].same, (long long)rows[r].n, (long long)r));
    }
done:
    return rc;
}

static osh_direction_row direction_sum(const osh_direction_row *rows, int64_t O)
{
    osh_direction_row all = {0};
    for (int64_t r = 0; r < O; r++) {
        all.n += rows[r].n, all.same += rows[r].same;
        all.sum += rows[r].sum, all.abs += rows[r].abs;
        all.error += rows[r].error, all.norm += rows[r].norm;
    }
    return all;
}

osh_status osh_verify_direction(osh_ctx *cx, osh_verify *v, const osh_linear *l,
                                const osh_direction_row *rows, double sparsity)
{
    osh_status rc = OSH_OK;
    osh_direction_row all = direction_sum(rows, l->O);
    bool coarse = l->scheme->weights.bits < 4;
    char text[64];
    size_t before = v->n;
    if (!all.n || sparsity >= 1) goto done;
    double slope = all.sum / all.abs, margin = 4 * sqrt(all.error) / all.abs,
           same = (double)all.same / (double)all.n;
    double least = coarse ? 0.4 : LEAST, most = direction_largest(&l->scheme->weights, sparsity);
    osh_log(cx, OSH_LOG_DEBUG, "%s: slope %.3f, standard error %.4f, %.3f of the signs are equal",
            l->name, slope, margin / 4, same);
    if (slope + margin < least || slope - margin > most) {
        snprintf(text, sizeof text, "%.2f to %.2f times", least, most);
        OSH_TRY(osh_verify_add(cx, v, l->name, text,
                               "the weights that are not 0 are %.3g times the source's", slope));
    }
    double signs = sparsity > DENSE_ENOUGH ? SIGNS_OF_FEW : SIGNS;
    if (same + 2 / sqrt((double)all.n) < signs) {
        snprintf(text, sizeof text, "at least %.2f", signs);
        OSH_TRY(osh_verify_add(cx, v, l->name, text,
                               "a share of %.3g of the weights has the sign of the source's",
                               same));
    }
    if (v->n == before) OSH_TRY(direction_check_rows(cx, v, l, rows, &all, sparsity));
done:
    return rc;
}
