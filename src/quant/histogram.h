/* histogram.h - counts values by size. Some observers choose a range from such a histogram of all
 * values.
 *
 * A histogram has two arrays of bins, called halves: for values >= 0 and for values < 0. All bins
 * have the same width: x is in bin floor(|x| / width) of one half. The first sample with a value
 * other than 0 sets the width: the largest |x| of the sample, divided by the initial number of
 * bins. Later, larger values add bins of the same width. As long as bins can be added, counts stay
 * in their bins, no value is lost, and the order of the values inside a sample has no effect.
 * Example: 4 bins, and samples with largest |x| 2, then 3.2. The width is 0.5. A half has 4 bins
 * after the first sample and 7 after the second. If no more bins are allowed, pairs of bins are
 * merged and the width doubles. */
#ifndef OSH_HISTOGRAM_H
#define OSH_HISTOGRAM_H
#include "tensor/tensor.h"

typedef struct osh_histogram {
    double width;        // width of a bin; 0: all values counted so far are 0
    /* Initial (bins), current (n) and largest (cap) number of bins of a half (the bins for one
     * sign). */
    int64_t bins, n, cap;
    int64_t *up, *down;  // own [cap]: counts of x >= 0 (up) and of x < 0 (down) in each bin
    int64_t total;       // number of values
    float min, max;      // smallest and largest value counted so far
} osh_histogram;

/* Initializes a histogram with `bins` bins for each sign, which can grow to `bins` * `grow` bins
 * for each sign. */
osh_status osh_histogram_init(osh_ctx *cx, osh_histogram *h, int64_t bins, int64_t grow);
size_t osh_histogram_bytes(int64_t bins, int64_t grow);
void osh_histogram_deinit(osh_ctx *cx, osh_histogram *h);
void osh_histogram_clear(osh_histogram *h);
/* Adds bins until they cover the range [lo, hi]. The caller then counts the values with any number
 * of calls of osh_histogram_count. */
void osh_histogram_widen(osh_histogram *h, float lo, float hi);
void osh_histogram_count(osh_histogram *h, const void *x, osh_dtype dt, int64_t n);
/* Returns the number of values in bin i. Bins of negative values have negative indices: bin -1 is
 * [-width, 0). */
int64_t osh_histogram_at(const osh_histogram *h, int64_t i);
/* Returns the lower edge of the first bin at which the cumulative count reaches `share` times the
 * number of all values. If `abs` is true, cumulates the counts of |x| from bin 0 on, else the
 * counts of x from bin -n on. */
double osh_histogram_edge(const osh_histogram *h, double share, bool abs);
#endif
