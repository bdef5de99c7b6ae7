/* calibrate.h - declares functions for observers that choose a range from a histogram of values
 * (quant/histogram.h). */
#ifndef OSH_CALIBRATE_H
#define OSH_CALIBRATE_H
#include "quant/histogram.h"
#include "quant/observer.h"

/* Returns the value in the middle of bin i of the histogram h. */
#define OSH_CALIBRATE_MIDDLE(h, i) (((double)(i) + 0.5) * (h)->width)
/* Returns the mean error of the values x if they are quantized with the range [lo, hi]. The error
 * of a value is |x - dq(x)|^power. The function dq quantizes and dequantizes a value. The observer
 * of `a` chooses `power`. */
double osh_calibrate_exact(const osh_tensor *x, const osh_q_args *a, double lo, double hi);
/* The next two functions are for an observer of `a` with several candidate ranges. They set
 * [*lo, *hi] to the candidate with the smallest loss. If several have this loss, the first is
 * chosen. osh_calibrate_least computes the losses from the histogram. For osh_calibrate_least_of
 * the caller gives `losses` [candidates]. */
void osh_calibrate_least(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a);
void osh_calibrate_least_of(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a,
                            const double *losses);
/* Sets [*lo, *hi] to a range that contains `percentile` percent of the values. If `a` is symmetric,
 * the percentage is that of the magnitudes. If not, half of the remaining values are below the
 * range and half are above it. The range never extends past the smallest and the largest value. */
void osh_calibrate_percentile(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a,
                              double percentile);
/* Returns hi / scale for a symmetric range [-hi, hi]. This is the largest code for floats, and the
 * largest code + 0.5 for integers. */
double osh_calibrate_top(const osh_q_args *a);
/* An activation's histogram can grow to this many times its initial number of bins. */
enum { OSH_CALIBRATE_GROW = 8 };
#endif
