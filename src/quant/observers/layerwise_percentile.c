/* layerwise_percentile.c - of three percentiles the one that loses least: mean |x - dq(x)|, or with mse its
 * square, of the middles of the bins. The first of equal ones stays. */
#include "quant/calibrate.h"

#include <math.h>

static bool halves(const osh_q_args *a) { return !a->symmetric; }

static void choose(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a)
{
    static const char *const names[] = {"first", "second", "third"};
    int power = osh_observer_value(a, "mse") != 0 ? 2 : 1;
    double least = INFINITY;
    for (int k = 0; k < 3; k++) {
        double l, u, loss;
        osh_calibrate_percentile(&l, &u, h, a, osh_observer_value(a, names[k]));
        loss = osh_calibrate_loss(h, a, l, u, power);
        if (loss < least) least = loss, *lo = l, *hi = u;
    }
}

static const osh_observer_key keys[] = {{"first", 99.99, 50, 100, false, false},
                                        {"second", 99.999, 50, 100, false, false},
                                        {"third", 99.99999, 50, 100, false, false},
                                        {"mse", 0, 0, 1, true, false},
                                        {"bins", 2048, 16, 65536, true, false}, {0}};
const osh_observer osh_observer_layerwise_percentile = {.name = "layerwise_percentile", .keys = keys, .choose = choose,
                                                        .halves = halves};
