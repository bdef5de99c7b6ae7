/* calibrate.h - helpers of observers that choose a range from a histogram (quant/histogram.h). */
#ifndef OSH_CALIBRATE_H
#define OSH_CALIBRATE_H
#include "quant/histogram.h"
#include "quant/observer.h"

/* Returns the value in the middle of bin i. */
#define OSH_CALIBRATE_MIDDLE(h, i) (((double)(i) + 0.5) * (h)->width)
/* Returns the mean of |x - dq(x)|^power over the values of x, with the range [lo, hi] and the power
 * of the observer. */
double osh_calibrate_exact(const osh_tensor *x, const osh_q_args *a, double lo, double hi);
/* Set [*lo, *hi] to the candidate range of the observer with the smallest loss. If several ranges
 * have this loss, the first is chosen. osh_calibrate_least computes the losses from the bins.
 * osh_calibrate_least_of reads the losses from losses [candidates]. */
void osh_calibrate_least(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a);
void osh_calibrate_least_of(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a,
                            const double *losses);
/* Sets [*lo, *hi] to a range that contains `percentile` percent of the values. If `a` is symmetric,
 * `percentile` refers to the values |x|. If not, half of the values outside the range are below it
 * and half are above it. The range is inside the interval from the smallest to the largest
 * value. */
void osh_calibrate_percentile(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a,
                              double percentile);
/* Returns hi / scale for a symmetric range [-hi, hi]: the largest code, or for integers the largest
 * code + 0.5. */
double osh_calibrate_top(const osh_q_args *a);
/* Largest number of bins of an activation's histogram, as a multiple of the initial number of
 * bins. */
enum { OSH_CALIBRATE_GROW = 8 };
#endif
