/* min_mse.c - chooses the range with the smallest loss (x - dq(x))^2. Without `exact`, the losses
 * are summed over the histogram, with the middle of each bin as x. With `exact`, the mean loss over
 * the values of each sample is computed, and these means are summed.
 *
 * Candidate i is the whole range times 1 - i / grid, for i = 0, 1, ... below int(maxshrink * grid).
 * If power_of_two is set, the candidates are the scales 2^e instead, for e = m + 1, m, ..., m - 3.
 * The scale 2^m is the smallest power of two with which no value is outside of the range. If
 * several candidates have the smallest loss, the first is chosen. */
#include "quant/calibrate.h"

#include <math.h>

static bool min_mse_halves(const osh_q_args *a) { return !a->symmetric; }

static bool by_power_of_two(const osh_q_args *a)
{
    return osh_observer_value(a, "power_of_two") != 0;
}

static int64_t min_mse_candidates(const osh_q_args *a)
{
    int64_t steps = (int64_t)(osh_observer_value(a, "maxshrink") * osh_observer_value(a, "grid"));
    return by_power_of_two(a) ? 5 : steps < 1 ? 1 : steps;
}

static void min_mse_candidate(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a,
                              int64_t i)
{
    double top = osh_calibrate_top(a), p = 1 - (double)i / osh_observer_value(a, "grid");
    int e = (int)ceil(log2(fmax(-(double)h->min, (double)h->max) / top));
    double most = ldexp(top, e + 1 - (int)i);
    *lo = by_power_of_two(a) ? -most : h->min * p, *hi = by_power_of_two(a) ? most : h->max * p;
}

static int min_mse_power(const osh_q_args *a)
{
    (void)a;
    return 2;
}

static const osh_observer_key keys[] = {{"grid", 100, 1, 10000, false, false},
                                        {"maxshrink", 0.8, 0, 1, false, false},
                                        {"power_of_two", 0, 0, 1, true, false},
                                        {"exact", 0, 0, 1, true, false},
                                        {"bins", 2048, 16, 65536, true, false}, {0}};
const osh_observer osh_observer_min_mse = {.name = "min_mse", .keys = keys,
                                           .choose = osh_calibrate_least, .halves = min_mse_halves,
                                           .candidates = min_mse_candidates,
                                           .candidate = min_mse_candidate, .power = min_mse_power,
                                           .exact = osh_calibrate_exact};
