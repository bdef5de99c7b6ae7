/* narrow.c - rounds values to F16 on all threads. An element that is too large for F16 is an error:
 * clipping it could change the range that an observer chooses. */
#include "run/narrow.h"

#include <math.h>

/* PIECE: number of elements that a thread rounds at a time. LARGEST: largest finite number of
 * F16. */
enum { PIECE = 4096, LARGEST = 65504 };

typedef struct narrowing {
    const osh_tensor *x;
    osh_tensor *to;
} narrowing;

static osh_status narrow_piece(osh_ctx *cx, void *user, int64_t piece, int worker)
{
    osh_status rc = OSH_OK;
    const narrowing *w = user;
    int64_t at = piece * PIECE, n = osh_tensor_numel(w->x) - at, width = w->x->shape[1];
    float f[PIECE], back[PIECE];
    uint16_t *to = (uint16_t *)w->to->data + at;
    (void)worker;
    if (n > PIECE) n = PIECE;
    osh_to_f32(f, (const char *)w->x->data + (size_t)at * osh_dtype_bytes(w->x->dtype), w->x->dtype,
               n);
    osh_from_f32(to, OSH_F16, f, n);
    osh_to_f32(back, to, OSH_F16, n);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(back[i]))
            OSH_FAIL(cx, OSH_E_NUMERIC,
                     "token %lld, channel %lld: %g is larger than the largest F16 value (%d): want "
                     "--calib-cache "
                     "disk",
                     (long long)((at + i) / width), (long long)((at + i) % width), (double)f[i],
                     LARGEST);
done:
    return rc;
}

osh_status osh_narrow(osh_ctx *cx, osh_tensor **out, const osh_tensor *x)
{
    osh_status rc = OSH_OK;
    osh_tensor *t = NULL; // own
    OSH_TRY(osh_tensor_new(cx, &t, OSH_F16, x->ndim, x->shape));
    narrowing w = {x, t};
    OSH_TRY(osh_parallel_for(cx, (osh_tensor_numel(x) + PIECE - 1) / PIECE, narrow_piece, &w));
    *out = t, t = NULL; // passes ownership
done:
    osh_tensor_free(cx, t);
    return rc;
}
