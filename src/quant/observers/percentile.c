/* percentile.c - chooses the range that contains a given percentage of the values. */
#include "quant/calibrate.h"

static bool percentile_halves(const osh_q_args *a) { return !a->symmetric; }

static void percentile_choose(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a)
{
    osh_calibrate_percentile(lo, hi, h, a, osh_observer_value(a, "percentile"));
}

static const osh_observer_key keys[] = {{"percentile", 99.999, 50, 100, false, false},
                                        {"bins", 2048, 16, 65536, true, false}, {0}};
const osh_observer osh_observer_percentile = {
    .name = "percentile", .keys = keys, .choose = percentile_choose, .halves = percentile_halves};
