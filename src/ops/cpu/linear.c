/* linear.c - the linear layer: its product is in gemm.c. */
#include "ops/cpu/cpu.h"
#include "ops/cpu/gemm.h"

osh_status osh_linear_cpu(osh_ctx *cx, const osh_op_args *a)
{
    return osh_gemm_linear(cx, a->out[0], a->in[0], a->in[1], a->in[2], a->seqs);
}

size_t osh_linear_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens, int n_threads)
{
    (void)attr;
    return osh_gemm_scratch(in_width[0], n_tokens, n_threads) + (size_t)out_width * sizeof(float);
}
