/* calibrate.c - chooses the range of values from a histogram. Computes the quantization error of a
 * range from the histogram or from the values. */
#include "quant/calibrate.h"
#include "quant/kernels.h"

#include <math.h>

#include "quant/arith.h"

enum { PIECE = 256 };

static osh_q_code code_of_range(const osh_q_args *a, double lo, double hi)
{
    osh_q_code code = osh_q_code_of(a, OSH_F32);
    osh_q_code_scale(&code, (float)lo, (float)hi, a, OSH_F32, false);
    return code;
}

/* Returns the sum of counts[i] |x[i] - dq(x[i])|^power over n <= PIECE values x. dq: quantizes and
 * dequantizes. `counts` NULL: all counts are 1. */
static double piece_loss(const float *x, const double *counts, int64_t n, const osh_q_code *code,
                         int power)
{
    const osh_q_kernels *k = osh_q_kernels_best();
    float y[PIECE];
    uint8_t codes[PIECE];
    double loss = 0;
    k->encode(codes, x, OSH_F32, n, code);
    k->decode(y, OSH_F32, codes, n, code);
    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)x[i] - (double)y[i]);
        loss += (counts ? counts[i] : 1) * (power == 1 ? off : off * off);
    }
    return loss;
}

/* Returns the loss of the range [lo, hi]: the sum over all bins of |c - dq(c)|^power times the
 * count of the bin. c is the middle of the bin, and dq quantizes and dequantizes it. Scale and zero
 * point are computed in F32. */
static double histogram_loss(const osh_histogram *h, const osh_q_args *a, double lo, double hi,
                             int power)
{
    osh_q_code code = code_of_range(a, lo, hi);
    float x[PIECE];
    double counts[PIECE], loss = 0;
    for (int64_t at = -h->n, m = 0; at < h->n; m = 0) {
        /* Bins without values are skipped, because most bins have none. */
        for (; m < PIECE && at < h->n; at++) {
            counts[m] = (double)osh_histogram_at(h, at);
            if (counts[m] > 0) x[m++] = (float)OSH_CALIBRATE_MIDDLE(h, at);
        }
        loss += piece_loss(x, counts, m, &code, power);
    }
    return loss;
}

double osh_calibrate_exact(const osh_tensor *x, const osh_q_args *a, double lo, double hi)
{
    osh_q_code code = code_of_range(a, lo, hi);
    int power = osh_observer_of(a)->power(a);
    float f[PIECE];
    double loss = 0;
    int64_t n = osh_tensor_numel(x);
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t m = n - at < PIECE ? n - at : PIECE;
        osh_to_f32(f, (const char *)x->data + (size_t)at * osh_dtype_bytes(x->dtype), x->dtype, m);
        loss += piece_loss(f, NULL, m, &code, power);
    }
    return n ? loss / (double)n : 0;
}

void osh_calibrate_least_of(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a,
                            const double *losses)
{
    const osh_observer *o = osh_observer_of(a);
    int64_t n = o->candidates(a);
    double least = INFINITY;
    for (int64_t i = 0; i < n; i++) {
        double l, u, loss;
        o->candidate(&l, &u, h, a, i);
        loss = losses ? losses[i] : histogram_loss(h, a, l, u, o->power(a));
        if (loss < least) least = loss, *lo = l, *hi = u;
    }
}

void osh_calibrate_least(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a)
{
    osh_calibrate_least_of(lo, hi, h, a, NULL);
}

void osh_calibrate_percentile(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a,
                              double percentile)
{
    double cut = (100 - percentile) / 200;
    if (a->symmetric) {
        *hi = osh_histogram_edge(h, percentile / 100, true);
        if (*hi < h->width) *hi = h->width; // the range must contain at least one bin
        *lo = -*hi;
    } else {
        *lo = osh_histogram_edge(h, cut, false);
        *hi = osh_histogram_edge(h, 1 - cut, false);
    }
    if (*lo < h->min) *lo = h->min;
    if (*hi > h->max) *hi = h->max;
}

double osh_calibrate_top(const osh_q_args *a)
{
    return osh_q_code_of(a, OSH_F32).qmax + (a->type == OSH_Q_INT ? 0.5 : 0);
}
