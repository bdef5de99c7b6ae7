/* min_mse.c - the range that loses least, (x - dq(x))^2 of the middles of the bins, or with exact of all values, each
 * sample's mean: of i steps the ends times 1 - i / grid, i below int(maxshrink grid). With power_of_two the scale is
 * 2^e: e from one above to three below that of the smallest power of two which cuts nothing off. The first of equal
 * ones stays. */
#include "quant/calibrate.h"

#include <math.h>

static bool halves(const osh_q_args *a) { return !a->symmetric; }

static bool by_power(const osh_q_args *a) { return osh_observer_value(a, "power_of_two") != 0; }

static int64_t candidates(const osh_q_args *a)
{
    int64_t steps = (int64_t)(osh_observer_value(a, "maxshrink") * osh_observer_value(a, "grid"));
    return by_power(a) ? 5 : steps < 1 ? 1 : steps;
}

static void candidate(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a, int64_t i)
{
    double top = osh_calibrate_top(a), p = 1 - (double)i / osh_observer_value(a, "grid");
    int e = (int)ceil(log2(fmax(-(double)h->min, (double)h->max) / top));
    double most = ldexp(top, e + 1 - (int)i);
    *lo = by_power(a) ? -most : h->min * p, *hi = by_power(a) ? most : h->max * p;
}

static int power(const osh_q_args *a)
{
    (void)a;
    return 2;
}

static const osh_observer_key keys[] = {{"grid", 100, 1, 10000, false, false},
                                        {"maxshrink", 0.8, 0, 1, false, false},
                                        {"power_of_two", 0, 0, 1, true, false},
                                        {"exact", 0, 0, 1, true, false},
                                        {"bins", 2048, 16, 65536, true, false}, {0}};
const osh_observer osh_observer_min_mse = {.name = "min_mse", .keys = keys, .choose = osh_calibrate_least,
                                           .halves = halves, .candidates = candidates, .candidate = candidate,
                                           .power = power, .exact = osh_calibrate_exact};
