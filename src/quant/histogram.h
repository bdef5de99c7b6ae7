/* histogram.h - counts values by size. Some observers choose a range from such a histogram of all
 * values.
 *
 * A histogram has one array of bins for values >= 0 and one for values < 0. All bins have the same
 * width: x is in bin floor(|x| / width) of one array. The first sample with a value other than 0
 * sets the width to its largest |x|, divided by the initial number of bins. For larger values of
 * later samples, bins of this width are added. The earlier values stay in their bins, and the order
 * of the values inside a sample has no effect. If no more bins are allowed, pairs of bins are
 * merged and the width doubles.
 *
 * Example: there are 4 bins at first. The largest |x| is 2 in the first sample and 3.2 in the
 * second. The width is 0.5. An array has 4 bins after the first sample and 7 after the second. */
#ifndef OSH_HISTOGRAM_H
#define OSH_HISTOGRAM_H
#include "tensor/tensor.h"

typedef struct osh_histogram {
    double width;        // width of each bin; 0: all values counted so far are 0
    /* Initial number (bins), current number (n) and largest number (cap) of bins for each sign. */
    int64_t bins, n, cap;
    /* Own [cap]: for each bin, the number of values >= 0 (up) and of values < 0 (down). */
    int64_t *up, *down;
    int64_t total;       // number of values counted so far
    float min, max;      // smallest and largest value counted so far
} osh_histogram;

/* Initializes a histogram with `bins` bins for each sign. It can grow to `bins` * `grow` bins for
 * each sign. */
osh_status osh_histogram_init(osh_ctx *cx, osh_histogram *h, int64_t bins, int64_t grow);
/* Returns the number of host bytes of a histogram, with the allocator's overhead. */
size_t osh_histogram_bytes(int64_t bins, int64_t grow);
/* Frees the counts. */
void osh_histogram_deinit(osh_ctx *cx, osh_histogram *h);
/* Sets all counts to 0. */
void osh_histogram_clear(osh_histogram *h);
/* Adds bins until all bins together cover the range [lo, hi]. Values in this range can then be
 * counted with any number of calls of osh_histogram_count. */
void osh_histogram_widen(osh_histogram *h, float lo, float hi);
void osh_histogram_count(osh_histogram *h, const void *x, osh_dtype dt, int64_t n);
/* Returns the number of values in bin i. Bins of negative values have negative indices: bin -1 is
 * [-width, 0). */
int64_t osh_histogram_at(const osh_histogram *h, int64_t i);
/* Returns the lower edge of the first bin at which the cumulative count reaches the fraction
 * `share` of all values. If `abs` is true, counts |x|, from bin 0 on. Otherwise, counts x, from bin
 * -n on. */
double osh_histogram_edge(const osh_histogram *h, double share, bool abs);
#endif
