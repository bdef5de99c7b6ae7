/* samples.c - counts, copies and frees the samples of a dataset. */
#include <string.h>

#include "data/dataset.h"

osh_status osh_dataset_unmark(osh_ctx *cx, osh_dataset *d)
{
    osh_status rc = OSH_OK;
    int64_t n = d->offsets[d->n];
    if (!(d->counted = osh_alloc(cx, (size_t)n))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a mask");
    for (int64_t i = 0; i < n; i++) {
        d->counted[i] = d->ids[i] >= 0;
        if (d->ids[i] < 0) d->ids[i] = ~d->ids[i];
    }
done:
    return rc;
}

int64_t osh_dataset_n_counted(const osh_dataset *d, int64_t first, int64_t end)
{
    int64_t n = 0, from = d->offsets[first], to = d->offsets[end];
    if (!d->counted) return to - from;
    for (int64_t i = from; i < to; i++) n += d->counted[i];
    return n;
}

osh_status osh_dataset_head(osh_ctx *cx, osh_dataset *out, const osh_dataset *d, int64_t n,
                            int64_t length)
{
    osh_status rc = OSH_OK;
    osh_dataset h = {0}; // own
    int64_t at = 0;
    if (n > d->n) n = d->n;
    OSH_NEW(cx, h.ids, n * length);
    OSH_NEW(cx, h.offsets, n + 1);
    for (; h.n < n; h.n++) {
        int64_t size = d->offsets[h.n + 1] - d->offsets[h.n];
        if (size > length) size = length;
        memcpy(h.ids + at, d->ids + d->offsets[h.n], (size_t)size * sizeof *d->ids);
        h.offsets[h.n + 1] = at += size;
    }
    *out = h, h = (osh_dataset){0}; // give
done:
    osh_dataset_deinit(cx, &h);
    return rc;
}

void osh_dataset_deinit(osh_ctx *cx, osh_dataset *d)
{
    osh_free(cx, d->ids);
    osh_free(cx, d->offsets);
    osh_free(cx, d->counted);
    *d = (osh_dataset){0};
}
