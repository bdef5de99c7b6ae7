/* layerwise_percentile.c - chooses, out of three percentiles, the one with the smallest loss. The
 * loss of a value is |x - dq(x)|, or its square if `mse` is set. Without `exact`, the losses are
 * summed over the histogram, with the middle of each bin as x. With `exact`, the mean loss over the
 * values of each sample is computed, and these means are summed. If several percentiles have the
 * smallest loss, the first is chosen. */
#include "quant/calibrate.h"

static bool layerwise_halves(const osh_q_args *a) { return !a->symmetric; }

static int64_t layerwise_candidates(const osh_q_args *a)
{
    (void)a;
    return 3;
}

static void layerwise_candidate(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a,
                                int64_t i)
{
    static const char *const names[] = {"first", "second", "third"};
    osh_calibrate_percentile(lo, hi, h, a, osh_observer_value(a, names[i]));
}

static int layerwise_power(const osh_q_args *a)
{
    return osh_observer_value(a, "mse") != 0 ? 2 : 1;
}

static const osh_observer_key keys[] = {{"first", 99.99, 50, 100, false, false},
                                        {"second", 99.999, 50, 100, false, false},
                                        {"third", 99.99999, 50, 100, false, false},
                                        {"mse", 0, 0, 1, true, false},
                                        {"exact", 0, 0, 1, true, false},
                                        {"bins", 2048, 16, 65536, true, false}, {0}};
const osh_observer osh_observer_layerwise_percentile = {.name = "layerwise_percentile",
                                                        .keys = keys, .choose = osh_calibrate_least,
                                                        .halves = layerwise_halves,
                                                        .candidates = layerwise_candidates,
                                                        .candidate = layerwise_candidate,
                                                        .power = layerwise_power,
                                                        .exact = osh_calibrate_exact};
