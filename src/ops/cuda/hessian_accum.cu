/* hessian_accum.cu - H += X^T X, lower triangle: products of bf16 (f16, f32) columns with f32 sums, straight into H.
 *
 *            columns of H
 *   rows   | a |            panel after panel of SIDE rows, each a product of the panel's columns of X with all up to
 *          | b   b |        the panel's end: SIDE = 2048 does (P + 1) / 2P of the work of the square (P panels; 0.57
 *          | c   c   c |    of it at I = 14,336), and a product of 2048 x 2048 fills a card of 132 multiprocessors.
 *
 * Squares on the diagonal are written whole: what is above the diagonal there is of no use to anyone (gptq_permute
 * writes it anew from below).
 *
 *   tokens of a batch   | 4096 | 4096 | 4096 | 4096 | 512 | 97 + 159 zeros |
 *
 * A tensor core cuts its sum off behind every few products: half a unit in the last place each, always towards zero,
 * up to 6e-5 of a sum of 16,384 squares. The damping of 14,336 columns is 7e-7 of the trace, so that two channels that
 * are nearly multiples of each other would make H indefinite. It adds up at most TOKENS tokens before H, in f32, takes
 * them: calls of whole multiples of TOKENS give the same bytes as one call. H is read and written for each such chunk,
 * 15 % of the product's time at 600 TFLOP/s and 4 TB/s. What a ragged batch leaves is cut into whole multiples of 256
 * tokens and filled up with zeros to 256, so that there are 16 shapes of products and not one for each batch. */
#include "ops/cuda/runtime.h"
#include "ops/cuda/sizes.h"

enum { SIDE = 2048, TOKENS = OSH_HESSIAN_TOKENS, GRAIN = OSH_HESSIAN_GRAIN };

/* H += of n rows of x [n, I] that lie together. */
static osh_status add_rows(osh_ctx *cx, osh_tensor *h, char *x, osh_dtype dt, int64_t n)
{
    osh_status rc = OSH_OK;
    int64_t I = h->shape[0];
    size_t each = osh_dtype_bytes(dt);
    for (int64_t row = 0; row < I; row += SIDE) {
        int64_t m = osh_min64(SIDE, I - row);
        osh_cuda_mat panel = {x + (size_t)row * each, I, 0, dt, true}, before = {x, I, 0, dt, false};
        osh_cuda_mat to = {osh_elem(h, row * I), I, 0, OSH_F32, false};
        OSH_TRY(osh_cuda_gemm(cx, h->device, {&to, &panel, &before, m, row + m, n, 1, 1, 1}));
    }
done:
    return rc;
}

/* The last n < GRAIN rows. */
static osh_status add_last(osh_ctx *cx, osh_tensor *h, const void *x, osh_dtype dt, int64_t n)
{
    osh_status rc = OSH_OK;
    osh_device *d = h->device;
    size_t row = (size_t)h->shape[0] * osh_dtype_bytes(dt), used = (size_t)n * row, all = GRAIN * row;
    char *filled = static_cast<char *>(osh_device_alloc(cx, d, all, OSH_LIFE_SHORT)); // own: [GRAIN, I]

    if (!filled) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(d->type->copy(cx, d, filled, x, used));
    OSH_TRY(d->type->fill(cx, d, filled + used, 0, all - used));
    OSH_TRY(add_rows(cx, h, filled, dt, GRAIN));
done:
    osh_device_free(d, filled);
    return rc;
}

osh_status osh_hessian_accum_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0];
    osh_tensor *h = a->out[0];
    int64_t N = osh_rows(x), I = osh_width(x), whole = N / GRAIN * GRAIN;

    for (int64_t token = 0, n; token < whole; token += n) {
        n = osh_min64(TOKENS, whole - token);
        OSH_TRY(add_rows(cx, h, static_cast<char *>(osh_elem(x, token * I)), x->dtype, n));
    }
    if (whole < N) OSH_TRY(add_last(cx, h, osh_elem(x, whole * I), x->dtype, N - whole));
done:
    return rc;
}
