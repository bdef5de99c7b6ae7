/* calibrate.h - ranges that observers choose from a histogram (quant/histogram.h): what they share. */
#ifndef OSH_CALIBRATE_H
#define OSH_CALIBRATE_H
#include "quant/histogram.h"
#include "quant/observer.h"

/* Of a bin: the number of values, and the middle of it. */
#define OSH_CALIBRATE_MIDDLE(h, i) (((double)(i) + 0.5) * (h)->width)
/* What is lost of the values where [lo, hi] is the range: the sum over bins of the number of their values times the
 * error of the bin's middle, |c - dq(c)| to the power of 1 or 2. Scales and zero points are those of F32. */
double osh_calibrate_loss(const osh_histogram *h, const osh_q_args *a, double lo, double hi, int power);
/* The same of values themselves, the mean of a tensor's, with the observer's power. */
double osh_calibrate_exact(const osh_tensor *x, const osh_q_args *a, double lo, double hi);
/* Of the observer's candidates the one that loses least by the bins, or by these losses; the first of equal ones. */
void osh_calibrate_least(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a);
void osh_calibrate_least_of(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a, const double *losses);
/* A range that holds so many percent of the values: of |x| where a is symmetric, else with half of the rest cut off on
 * either side. Inside of the smallest and the largest value. */
void osh_calibrate_percentile(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a, double percentile);
double osh_calibrate_top(const osh_q_args *a); // the largest code, as a multiple of the scale, of a symmetric range
enum { OSH_CALIBRATE_GROW = 8 }; // an activation's histogram may have so many times the bins of its first sample
#endif
