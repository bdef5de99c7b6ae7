/* histogram.h - values counted by their size, from which an observer chooses a range when all of them are counted.
 *
 * Two halves, of values from 0 on and of those below, with bins of one width: x is in bin floor(|x| / width) of
 * its half. The first values make bins / (their largest |x|) the width, and later ones that are larger as many
 * more bins of that width as they take; so counts never move, nothing is lost, and the order of the values inside
 * a sample decides nothing. With bins 4 and samples whose largest |x| are 2 and 3.2 the width is 0.5, and the half
 * has 4 and then 7 bins. Where there is no room for more bins, each two of them become one. */
#ifndef OSH_HISTOGRAM_H
#define OSH_HISTOGRAM_H
#include "tensor/tensor.h"

typedef struct osh_histogram {
    double width;        // of a bin; 0: there were only zeros
    int64_t bins, n, cap; // of a half: at first, now, at most
    int64_t *up, *down;  // own [cap]: of x >= 0, of x < 0
    int64_t total;       // of all
    float min, max;      // of all
} osh_histogram;

/* grow: by so much it may have more bins than at first. */
osh_status osh_histogram_init(osh_ctx *cx, osh_histogram *h, int64_t bins, int64_t grow);
size_t osh_histogram_bytes(int64_t bins, int64_t grow);
void osh_histogram_deinit(osh_ctx *cx, osh_histogram *h);
void osh_histogram_clear(osh_histogram *h);
/* Room for values between lo and hi, before they are counted in as many pieces as one likes. */
void osh_histogram_widen(osh_histogram *h, float lo, float hi);
void osh_histogram_count(osh_histogram *h, const void *x, osh_dtype dt, int64_t n);
/* The number of values in bin i, which is below 0 for those of the lower half: bin -1 is [-width, 0). */
int64_t osh_histogram_at(const osh_histogram *h, int64_t i);
/* The edge below the first bin up to which share of the values of [first, n) are counted. abs: |x|, with both halves as
 * one; else bins are those from -n on. */
double osh_histogram_edge(const osh_histogram *h, double share, bool abs);
#endif
