/* hessian_accum.cu - H += X^T X, lower triangle: products of bf16 (f16, f32) columns with f32 sums, straight into H.
 *
 *            columns of H
 *   rows   | a |            panel after panel of SIDE rows, each a product of the panel's columns of X with all up to
 *          | b   b |        the panel's end: SIDE = 2048 does (P + 1) / 2P of the work of the square (P panels; 0.57
 *          | c   c   c |    of it at I = 14,336), and a product of 2048 x 2048 fills a card of 132 multiprocessors.
 *
 * Squares on the diagonal are written whole: what is above the diagonal there is of no use to anyone (gptq_permute
 * writes it anew from below). A tensor core adds up at most TOKENS tokens before H, in f32, takes them: rounding errors
 * of long sums stay small, and calls of whole multiples of TOKENS give the same bytes as one call. */
#include "ops/cuda/runtime.h"

enum { SIDE = 2048, TOKENS = 16384 };

osh_status osh_hessian_accum_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0];
    osh_tensor *h = a->out[0];
    int64_t N = osh_rows(x), I = osh_width(x);

    for (int64_t token = 0; token < N; token += TOKENS)
        for (int64_t row = 0; row < I; row += SIDE) {
            int64_t k = osh_min64(TOKENS, N - token), m = osh_min64(SIDE, I - row);
            osh_cuda_mat panel = {osh_elem(x, token * I + row), I, 0, x->dtype, true};
            osh_cuda_mat before = {osh_elem(x, token * I), I, 0, x->dtype, false};
            osh_cuda_mat to = {osh_elem(h, row * I), I, 0, OSH_F32, false};
            OSH_TRY(osh_cuda_gemm(cx, h->device, &to, &panel, &before, m, row + m, k, 1, 1, 1));
        }
done:
    return rc;
}
