/* entropy.c - chooses the range with the least KL(p || q). The distribution p is the histogram
 * after it is clipped to the range. The distribution q approximates p with only `levels` values:
 *
 *   p   the i bins on either side of 0; values outside are counted in the end bins
 *   q   the bins of p without the values outside, in `levels` runs. A run has 2 i / levels
 *       consecutive bins; the last run has the remaining bins. In q, each bin with p > 0 gets
 *       an equal share of the count of its run
 *
 * In p and q, each empty bin gets a count of 1e-4, and the sum of these counts is subtracted
 * equally from the other bins. The first i is levels / 2, and each next i is larger by n / bins,
 * rounded up. n is the current number of bins, and `bins` is the initial number. If several ranges
 * have the same divergence, the first is chosen. */
#include "quant/calibrate.h"

#include <math.h>

typedef struct spread {
    const osh_histogram *h;
    int64_t i, levels;
    double below, above; // numbers of values below and above the range
    double zeros, total; // zeros: number of empty bins of p; total: sum of p
} spread;

static double spread_count(const spread *s, int64_t b)
{
    return (double)osh_histogram_at(s->h, b) + (b == -s->i ? s->below : 0) +
           (b == s->i - 1 ? s->above : 0);
}

/* Returns the smoothed count of a bin that has the count x. Each empty bin gets 1e-4, and the sum
 * of these counts is subtracted equally from the other bins. `zeros`: number of empty bins; `n`:
 * number of bins. */
static double entropy_smooth(double x, double zeros, double n)
{
    return x > 0 ? fmax(x - 1e-4 * zeros / (n - zeros), 1e-4) : 1e-4;
}

/* Sets *bins to the number of the bins [first, end) for which p > 0. Returns the sum of the counts
 * of bins [first, end) divided by *bins, or 0 if *bins is 0. */
static double run_mean(const spread *s, int64_t first, int64_t end, double *bins)
{
    double sum = 0;
    *bins = 0;
    for (int64_t b = first; b < end; b++)
        sum += (double)osh_histogram_at(s->h, b), *bins += spread_count(s, b) > 0;
    return *bins > 0 ? sum / *bins : 0;
}

static double spread_divergence(const spread *s)
{
    int64_t run = 2 * s->i / s->levels;
    double n = (double)(2 * s->i), zeros_q = 0, total_q = 0, kl = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t l = 0; l < s->levels; l++) {
            int64_t first = -s->i + l * run, end = l == s->levels - 1 ? s->i : first + run;
            double bins, each = run_mean(s, first, end, &bins);
            if (!pass)
                zeros_q += (double)(end - first) - (each > 0 ? bins : 0), total_q += each * bins;
            for (int64_t b = first; pass && b < end; b++) {
                double p = entropy_smooth(spread_count(s, b), s->zeros, n) / s->total;
                double q = entropy_smooth(spread_count(s, b) > 0 ? each : 0, zeros_q, n) / total_q;
                kl += p * log(p / q);
            }
            if (!pass && l == s->levels - 1 && !(total_q > 0)) return INFINITY;
        }
    return kl;
}

static bool entropy_halves(const osh_q_args *a)
{
    (void)a;
    return true;
}

static void entropy_choose(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a)
{
    spread s = {
        .h = h, .levels = (int64_t)osh_observer_value(a, "levels"), .total = (double)h->total};
    double least = INFINITY;
    int64_t best = h->n;
    for (s.i = s.levels / 2; s.i <= h->n; s.i += (h->n + h->bins - 1) / h->bins) {
        s.below = s.above = s.zeros = 0;
        for (int64_t b = s.i; b < h->n; b++)
            s.above += (double)osh_histogram_at(h, b),
                s.below += (double)osh_histogram_at(h, -1 - b);
        for (int64_t b = -s.i; b < s.i; b++) s.zeros += spread_count(&s, b) == 0;
        double kl = spread_divergence(&s);
        if (kl < least) least = kl, best = s.i;
    }
    *hi = fmin((double)best * h->width, (double)h->max);
    *lo = fmax((double)-best * h->width, (double)h->min);
}

static const osh_observer_key keys[] = {{"levels", 128, 2, 4096, true, false},
                                        {"bins", 2048, 16, 65536, true, false}, {0}};
const osh_observer osh_observer_entropy = {
    .name = "entropy", .keys = keys, .choose = entropy_choose, .halves = entropy_halves};
