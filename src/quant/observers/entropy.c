/* entropy.c - the range in which levels bins say most of the distribution, of least KL(p || q). p: the bins up to
 * i on either side of 0, what lies outside counted in its ends; q: those bins alone, in levels runs of 2 i /
 * levels bins (the last one has the rest), each run's values spread over the bins in which p has some. In both, a
 * bin without values has 1e-4 of one, taken from the others. i from levels / 2 on, one by one, or where the
 * histogram grew by as many as it grew times; the first of equal ones stays. */
#include "quant/calibrate.h"

#include <math.h>

typedef struct spread {
    const osh_histogram *h;
    int64_t i, levels;
    double below, above; // outside
    double zeros, total; // of p
} spread;

static double p_at(const spread *s, int64_t b)
{
    return (double)osh_histogram_at(s->h, b) + (b == -s->i ? s->below : 0) + (b == s->i - 1 ? s->above : 0);
}

/* Bins without values have a little of the others'. */
static double smooth(double x, double zeros, double n)
{
    return x > 0 ? fmax(x - 1e-4 * zeros / (n - zeros), 1e-4) : 1e-4;
}

/* Of the run [first, end): its values, and in how many bins p has some. */
static double run_of(const spread *s, int64_t first, int64_t end, double *bins)
{
    double sum = 0;
    *bins = 0;
    for (int64_t b = first; b < end; b++) sum += (double)osh_histogram_at(s->h, b), *bins += p_at(s, b) > 0;
    return *bins > 0 ? sum / *bins : 0;
}

static double divergence(const spread *s)
{
    int64_t run = 2 * s->i / s->levels;
    double n = (double)(2 * s->i), zeros_q = 0, total_q = 0, kl = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t l = 0; l < s->levels; l++) {
            int64_t first = -s->i + l * run, end = l == s->levels - 1 ? s->i : first + run;
            double bins, each = run_of(s, first, end, &bins);
            if (!pass) zeros_q += (double)(end - first) - (each > 0 ? bins : 0), total_q += each * bins;
            for (int64_t b = first; pass && b < end; b++) {
                double p = smooth(p_at(s, b), s->zeros, n) / s->total;
                double q = smooth(p_at(s, b) > 0 ? each : 0, zeros_q, n) / total_q;
                kl += p * log(p / q);
            }
            if (!pass && l == s->levels - 1 && !(total_q > 0)) return INFINITY;
        }
    return kl;
}

static bool halves(const osh_q_args *a)
{
    (void)a;
    return true;
}

static void choose(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a)
{
    spread s = {.h = h, .levels = (int64_t)osh_observer_value(a, "levels"), .total = (double)h->total};
    double least = INFINITY;
    int64_t best = h->n;
    for (s.i = s.levels / 2; s.i <= h->n; s.i += (h->n + h->bins - 1) / h->bins) {
        s.below = s.above = s.zeros = 0;
        for (int64_t b = s.i; b < h->n; b++)
            s.above += (double)osh_histogram_at(h, b), s.below += (double)osh_histogram_at(h, -1 - b);
        for (int64_t b = -s.i; b < s.i; b++) s.zeros += p_at(&s, b) == 0;
        double kl = divergence(&s);
        if (kl < least) least = kl, best = s.i;
    }
    *hi = fmin((double)best * h->width, (double)h->max);
    *lo = fmax((double)-best * h->width, (double)h->min);
}

static const osh_observer_key keys[] = {{"levels", 128, 2, 4096, true, false},
                                        {"bins", 2048, 16, 65536, true, false}, {0}};
const osh_observer osh_observer_entropy = {.name = "entropy", .keys = keys, .choose = choose, .halves = halves};
