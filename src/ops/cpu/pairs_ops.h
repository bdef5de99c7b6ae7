/* pairs_ops.h - declares kernels that multiply BF16 values with math/pairs.h. All tensors are BF16
 * unless a comment says otherwise. Shape letters: op.h. */
#ifndef OSH_PAIRS_OPS_H
#define OSH_PAIRS_OPS_H
#include "ops/kernel.h"

/* Computes the op linear, as osh_linear_cpu does. Its inputs are x [N, I], w [O, I], and bias [O]
 * or NULL, for N tokens. A row of y does not depend on the other rows of x. */
osh_status osh_pairs_linear(osh_ctx *cx, const osh_op_args *a);
size_t osh_pairs_linear_scratch(int64_t I, int64_t O, int64_t n_tokens, int n_threads);
/* Adds to h [n, n], F32. If x0 is NULL, adds x^T x to the lower triangle. Otherwise adds (x0 - x)^T
 * x to all elements, where x0 - x is rounded to BF16 before the product. x, x0: [N, n]. The sums
 * are computed sample by sample, in tiles of one sample. */
osh_status osh_pairs_hessian(osh_ctx *cx, osh_tensor *h, const osh_tensor *x, const osh_tensor *x0,
                             const osh_seqs *seqs);
/* Returns the scratch of osh_pairs_hessian in bytes. shift: true if x0 is not NULL. */
size_t osh_pairs_hessian_scratch(int64_t n, int64_t n_tokens, bool shift);
/* Computes the gradients din[0] and din[1], as osh_linear_grad_cpu does, but rounds dy to BF16.
 * Each of the n_tiles tiles must have at most OSH_GEMM_ROWS rows. */
osh_status osh_pairs_linear_grad(osh_ctx *cx, const osh_grad_args *a, const osh_tile *tiles,
                                 int64_t n_tiles);
size_t osh_pairs_linear_grad_scratch(int64_t I, int64_t O, int64_t n_tokens, int n_threads);
/* Computes the op `attention`, as osh_attention_cpu does, with the matrix products of
 * math/pairs.h. */
osh_status osh_pairs_attention(osh_ctx *cx, const osh_op_args *a);
#endif
