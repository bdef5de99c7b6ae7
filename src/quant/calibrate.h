/* calibrate.h - helpers of observers that choose a range from a histogram (quant/histogram.h). */
#ifndef OSH_CALIBRATE_H
#define OSH_CALIBRATE_H
#include "quant/histogram.h"
#include "quant/observer.h"

/* Returns the value in the middle of bin i. */
#define OSH_CALIBRATE_MIDDLE(h, i) (((double)(i) + 0.5) * (h)->width)
/* Returns the mean loss of the values of x, with the observer's power. */
double osh_calibrate_exact(const osh_tensor *x, const osh_q_args *a, double lo, double hi);
/* Choose the candidate of the observer that has the least loss. The first function computes the
 * losses from the bins; the second gets them in losses [candidates]. The first of equal ones
 * wins. */
void osh_calibrate_least(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a);
void osh_calibrate_least_of(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a,
                            const double *losses);
/* Returns a range that contains this percentage of the values. If `a` is symmetric, it is the
 * percentage of |x|; if not, half of the other values are outside at each end. The range stays
 * within [min, max] of the values. */
void osh_calibrate_percentile(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a,
                              double percentile);
double osh_calibrate_top(const osh_q_args *a); // largest code, in steps of the scale, of a
                                               // symmetric range
/* The histogram of an activation may grow to this multiple of its first bins. */
enum { OSH_CALIBRATE_GROW = 8 };
#endif
