/* histogram.c - counts values in bins of equal width. If a histogram would need more bins than
 * allowed, pairs of bins are merged. */
#include "quant/histogram.h"

#include <math.h>
#include <string.h>

osh_status osh_histogram_init(osh_ctx *cx, osh_histogram *h, int64_t bins, int64_t grow)
{
    osh_status rc = OSH_OK;
    *h = (osh_histogram){.bins = bins, .cap = bins * grow};
    OSH_NEW(cx, h->up, h->cap);
    OSH_NEW(cx, h->down, h->cap);
done:
    if (rc) osh_histogram_deinit(cx, h);
    return rc;
}

size_t osh_histogram_bytes(int64_t bins, int64_t grow)
{
    return 2 * osh_mem_gross((size_t)(bins * grow) * sizeof(int64_t));
}

void osh_histogram_deinit(osh_ctx *cx, osh_histogram *h)
{
    osh_free(cx, h->up);
    osh_free(cx, h->down);
    *h = (osh_histogram){0};
}

void osh_histogram_clear(osh_histogram *h)
{
    memset(h->up, 0, (size_t)h->n * sizeof *h->up);
    memset(h->down, 0, (size_t)h->n * sizeof *h->down);
    h->width = 0, h->n = h->total = 0;
}

/* Merges bins 2i and 2i + 1 into bin i, which doubles the width of a bin. Does so in `up` (bins for
 * values >= 0) and in `down` (bins for values < 0). */
static void histogram_halve(osh_histogram *h)
{
    int64_t *of[] = {h->up, h->down};
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < h->n; i++) {
            int64_t count = of[k][i];
            of[k][i] = 0;
            of[k][i / 2] += count;
        }
    }
    h->width *= 2, h->n = (h->n + 1) / 2;
}

void osh_histogram_widen(osh_histogram *h, float lo, float hi)
{
    double most = fmax(-(double)lo, (double)hi);
    if (!h->total || lo < h->min) h->min = lo;
    if (!h->total || hi > h->max) h->max = hi;
    if (!(most > 0)) return;
    if (!(h->width > 0)) {
        h->width = most / (double)h->bins;
        h->n = h->bins;
        h->up[0] = h->total; // a width of 0 means that all values counted so far are 0
    }
    while (most > h->width * (double)h->n) {
        double more = floor((most - h->width * (double)h->n) / h->width) + 1;
        if ((double)h->n + more <= (double)h->cap) h->n += (int64_t)more;
        else histogram_halve(h);
    }
}

void osh_histogram_count(osh_histogram *h, const void *x, osh_dtype dt, int64_t n)
{
    enum { PIECE = 1024 };
    float f[PIECE];
    const char *from = x;
    h->total += n;
    for (int64_t at = 0; at < n && h->width > 0; at += PIECE) {
        int64_t m = n - at < PIECE ? n - at : PIECE;
        osh_to_f32(f, from + (size_t)at * osh_dtype_bytes(dt), dt, m);
        for (int64_t i = 0; i < m; i++) {
            double bin = fabs((double)f[i]) / h->width;
            // The largest value may lie on the upper edge of the last bin. It is then counted in
            // the last bin.
            int64_t b = bin < (double)(h->n - 1) ? (int64_t)bin : h->n - 1;
            if (f[i] < 0) h->down[b]++;
            else h->up[b]++;
        }
    }
}

int64_t osh_histogram_at(const osh_histogram *h, int64_t i)
{
    return i < 0 ? h->down[-1 - i] : h->up[i];
}

double osh_histogram_edge(const osh_histogram *h, double share, bool abs)
{
    double sum = 0, want = share * (double)h->total;
    int64_t first = abs ? 0 : -h->n, i = first;
    if (!(h->width > 0)) return 0;
    for (; i < h->n - 1; i++) {
        sum += (double)osh_histogram_at(h, i) + (abs ? (double)osh_histogram_at(h, -1 - i) : 0);
        if (sum >= want) break;
    }
    return (double)i * h->width;
}
