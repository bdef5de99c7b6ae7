/* distribution.c - chooses the scale for which the standard deviation of the scaled values equals
 * the standard deviation of all FP8 numbers. The standard deviation of the scaled values is
 * computed from the middles of the histogram's bins. For integer types the range ends at the
 * largest |x|, so that no value is outside. */
#include "quant/calibrate.h"

#include <math.h>

#include "base/num.h"

static bool distribution_halves(const osh_q_args *a)
{
    (void)a;
    return true;
}

/* Returns the standard deviation of all finite E4M3 numbers, including both 0 and -0. */
static double deviation_of_fp8(void)
{
    double sum = 0;
    int n = 0;
    for (int c = 0; c < 256; c++) {
        double v = osh_f32_of_fp8((uint8_t)c);
        if (isfinite(v)) sum += v * v, n++;
    }
    return sqrt(sum / n);
}

static void distribution_choose(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a)
{
    double sum = 0, squares = 0, n = (double)h->total;
    *hi = fmax(-(double)h->min, (double)h->max);
    for (int64_t i = -h->n; i < h->n; i++) {
        double x = OSH_CALIBRATE_MIDDLE(h, i), count = (double)osh_histogram_at(h, i);
        sum += count * x, squares += count * x * x;
    }
    double deviation = sqrt(fmax(squares / n - sum / n * (sum / n), 0));
    if (a->type == OSH_Q_FLOAT && a->bits == 8 && deviation > 0)
        *hi = 448 * deviation / deviation_of_fp8();
    *lo = -*hi;
}

static const osh_observer_key keys[] = {{"bins", 2048, 512, 65536, true, false}, {0}};
const osh_observer osh_observer_distribution = {.name = "distribution", .keys = keys,
                                                .choose = distribution_choose,
                                                .halves = distribution_halves};
