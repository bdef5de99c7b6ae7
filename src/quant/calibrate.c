/* calibrate.c - see calibrate.h. */
#include "quant/calibrate.h"
#include "quant/kernels.h"

#include <math.h>

#include "quant/arith.h"

double osh_calibrate_loss(const osh_histogram *h, const osh_q_args *a, double lo, double hi, int power)
{
    enum { PIECE = 256 };
    const osh_q_kernels *k = osh_q_kernels_best();
    osh_q_code code = osh_q_code_of(a, OSH_F32);
    float x[PIECE], y[PIECE];
    double counts[PIECE];
    uint8_t codes[PIECE];
    int8_t zero = 0;
    double loss = 0;
    osh_q_scale_zp_one(&code.scale, &zero, (float)lo, (float)hi, a, OSH_F32, false);
    code.zero = a->symmetric ? 0 : zero;
    for (int64_t at = -h->n, m = 0; at < h->n; m = 0) {
        for (; m < PIECE && at < h->n; at++) { // most bins of a row are empty
            counts[m] = (double)osh_histogram_at(h, at);
            if (counts[m] > 0) x[m++] = (float)OSH_CALIBRATE_MIDDLE(h, at);
        }
        k->encode(codes, x, OSH_F32, m, &code);
        k->decode(y, OSH_F32, codes, m, &code);
        for (int64_t i = 0; i < m; i++) {
            double off = fabs((double)x[i] - (double)y[i]);
            loss += counts[i] * (power == 1 ? off : off * off);
        }
    }
    return loss;
}

void osh_calibrate_percentile(double *lo, double *hi, const osh_histogram *h, const osh_q_args *a, double percentile)
{
    double cut = (100 - percentile) / 200;
    if (a->symmetric) {
        *hi = osh_histogram_edge(h, percentile / 100, true);
        if (*hi < h->width) *hi = h->width; // one bin is the least
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
    return a->type == OSH_Q_FLOAT ? (a->bits == 8 ? 448 : 6) : (double)((1 << a->bits) - 1) / 2;
}
