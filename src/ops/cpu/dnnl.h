/* dnnl.h - products of bf16 on oneDNN, for CPUs with bf16 instructions. */
#ifndef OSH_DNNL_H
#define OSH_DNNL_H
#include "ops/op.h"

/* Once, before the first call of what is below, which do it themselves: opens the library under the set in force. */
osh_status osh_dnnl_open(osh_ctx *cx);
osh_status osh_dnnl_describe(osh_ctx *cx, char **text); // own: "onednn=2.6.3/avx512_core_bf16"
/* Whether the product of these is oneDNN's: all BF16, and a CPU with AVX-512 BF16. */
bool osh_dnnl_fits(const osh_tensor *y, const osh_tensor *x, const osh_tensor *w, const osh_tensor *bias);
/* As osh_gemm_linear, all tensors of one dtype: BF16, or F32 (which every CPU can do, so that tests run this code). */
osh_status osh_dnnl_linear(osh_ctx *cx, osh_tensor *y, const osh_tensor *x, const osh_tensor *w, const osh_tensor *bias,
                           const osh_seqs *seqs);
bool osh_dnnl_takes(const osh_tensor *x); // BF16, and such a CPU
typedef struct osh_dnnl_mat { // view: BF16 or F32, elements of rows and of columns so far apart
    void *p;
    osh_dtype dtype;
    int64_t row, col;
} osh_dnnl_mat;
/* c [m, n] = a [m, k] b [k, n] on this thread, after osh_dnnl_open; sums in f32, rounded to the dtype of c. */
osh_status osh_dnnl_gemm(osh_ctx *cx, osh_dnnl_mat c, osh_dnnl_mat a, osh_dnnl_mat b, int64_t m, int64_t n, int64_t k);
/* The same, += : size is m, n, k. */
osh_status osh_dnnl_add(osh_ctx *cx, osh_dnnl_mat c, osh_dnnl_mat a, osh_dnnl_mat b, const int64_t size[3]);
/* As osh_attention_cpu, of BF16 or F32 (attention.c). */
osh_status osh_dnnl_attention(osh_ctx *cx, const osh_op_args *a);
/* Lower triangle of h [n, n] (F32) += x^T x, x [N, n] of BF16 or F32; each sample by tiles of its own. */
osh_status osh_dnnl_hessian(osh_ctx *cx, osh_tensor *h, const osh_tensor *x, const osh_seqs *seqs);
/* All of d [n, n] (F32) += (x0 - x)^T x, the difference rounded to their dtype; else as osh_dnnl_hessian. */
osh_status osh_dnnl_shift(osh_ctx *cx, osh_tensor *d, const osh_tensor *x, const osh_tensor *x0, const osh_seqs *seqs);
size_t osh_dnnl_hessian_scratch(int64_t n_tokens, osh_dtype dtype, int n_threads); // of either, at most
/* y [M, O] = x [M, I] w [O, I]^T as a single primitive on this thread; all of one dtype. */
osh_status osh_dnnl_product(osh_ctx *cx, osh_tensor *y, const osh_tensor *x, const osh_tensor *w);
#endif
