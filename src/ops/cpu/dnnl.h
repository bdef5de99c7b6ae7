/* dnnl.h - the linear layer in bf16 on oneDNN, for CPUs with bf16 instructions. */
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
/* y [M, O] = x [M, I] w [O, I]^T as a single primitive on this thread; all of one dtype. */
osh_status osh_dnnl_product(osh_ctx *cx, osh_tensor *y, const osh_tensor *x, const osh_tensor *w);
#endif
