/* min_mse.c - the range that loses least, (x - dq(x))^2 of the middles of the bins: of i steps the ends times 1 -
 * i / grid, i below int(maxshrink grid). With power_of_two the scale is 2^e: e from one above to three below that
 * of the smallest power of two which cuts nothing off. The first of equal ones stays. */
#include "quant/calibrate.h"

#include <math.h>

static bool halves(const osh_q_args *a) { return !a->symmetric; }

static void choose(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a)
{
    double grid = osh_observer_value(a, "grid"), least = INFINITY, top = osh_calibrate_top(a);
    bool power = osh_observer_value(a, "power_of_two") != 0;
    int64_t steps = power ? 5 : (int64_t)(osh_observer_value(a, "maxshrink") * grid);
    int e = (int)ceil(log2(fmax(-(double)h->min, (double)h->max) / top));
    for (int64_t i = 0; i < (steps < 1 ? 1 : steps); i++) {
        double p = 1 - (double)i / grid, most = ldexp(top, e + 1 - (int)i);
        double l = power ? -most : h->min * p, u = power ? most : h->max * p;
        double loss = osh_calibrate_loss(h, a, l, u, 2);
        if (loss < least) least = loss, *lo = l, *hi = u;
    }
}

static const osh_observer_key keys[] = {{"grid", 100, 1, 10000, false, false},
                                        {"maxshrink", 0.8, 0, 1, false, false},
                                        {"power_of_two", 0, 0, 1, true, false},
                                        {"bins", 2048, 16, 65536, true, false}, {0}};
const osh_observer osh_observer_min_mse = {.name = "min_mse", .keys = keys, .choose = choose, .halves = halves};
