/* sizes_grad.c - computes the scratch in bytes of the CUDA kernels of the gradients of routers,
 * rows and recurrent layers (see sizes.c). */
#include "ops/cuda/sizes.h"

#include "ops/kernel.h"
#include "ops/scan.h"

/* ---- routers and rows ---- */

size_t osh_moe_router_grad_cuda_scratch(const void *attr, const int64_t *in_width,
                                        int64_t out_width, int64_t n_tokens, osh_dtype dt)
{
    const osh_moe_router_attr *at = attr;
    size_t terms = (size_t)(n_tokens * out_width) * sizeof(float);
    (void)in_width, (void)dt;
    return at->scaled ? osh_arena_gross(terms + osh_sums_bytes(n_tokens, out_width)) : 0;
}

size_t osh_moe_gate_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                      int64_t n_tokens, osh_dtype dt)
{
    return osh_arena_gross((size_t)(n_tokens * out_width) * sizeof(float)) +
           osh_linear_grad_cuda_scratch(attr, in_width, out_width, n_tokens, dt);
}

size_t osh_gain_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                  int64_t n_tokens, osh_dtype dt)
{
    (void)attr, (void)in_width, (void)dt;
    return osh_arena_gross(osh_sums_bytes(n_tokens, out_width) +
                           (size_t)out_width * sizeof(float));
}

size_t osh_rotate_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                    int64_t n_tokens, osh_dtype dt)
{
    (void)dt;
    return osh_arena_gross((size_t)(n_tokens * out_width) * sizeof(float)) +
           osh_rotate_cuda_scratch(attr, in_width, out_width, n_tokens, OSH_F32);
}

/* ---- recurrent layers ---- */

size_t osh_conv1d_back_bytes(int64_t n_tokens, int64_t C, int64_t K)
{
    return (size_t)(n_tokens * C) * sizeof(float) + (size_t)n_tokens * sizeof(int32_t) +
           osh_sums_bytes(n_tokens, C * K);
}

size_t osh_conv1d_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                    int64_t n_tokens, osh_dtype dt)
{
    (void)in_width, (void)dt;
    return osh_arena_gross(osh_conv1d_back_bytes(n_tokens, out_width,
                                                 ((const osh_conv1d_attr *)attr)->kernel));
}

size_t osh_gated_norm_back_bytes(int64_t n, int64_t heads, int64_t D)
{
    return (size_t)n * sizeof(float) + osh_sums_bytes(n / heads, heads * D);
}

size_t osh_gated_norm_grad_cuda_scratch(const void *attr, const int64_t *in_width,
                                        int64_t out_width, int64_t n_tokens, osh_dtype dt)
{
    const osh_gated_norm_attr *at = attr;
    int64_t heads = out_width / at->head_dim;
    (void)in_width, (void)dt;
    return osh_arena_gross(
        osh_gated_norm_back_bytes(n_tokens * heads, at->whole ? heads : 1, at->head_dim));
}

int64_t osh_scan_back_block(int64_t C, int64_t each) { return (2 * C + 2) * each; }

int64_t osh_scan_back_blocks(int64_t n_tokens, int64_t heads, int64_t each)
{
    int64_t block =
        osh_scan_back_block(osh_state_span(n_tokens), each) * (int64_t)sizeof(float);
    int64_t most = OSH_SCAN_BACK_BYTES / block < 1 ? 1 : OSH_SCAN_BACK_BYTES / block;
    most = osh_min64(most, OSH_SCAN_BACK_BLOCKS);
    return n_tokens < most ? osh_min64(n_tokens * heads, most) : most;
}

size_t osh_scan_back_terms_bytes(int64_t n_tokens, int64_t heads, int64_t n)
{
    return (size_t)(n_tokens * heads * n) * sizeof(float) + osh_sums_bytes(n_tokens, heads);
}

static size_t scan_back_states_bytes(int64_t n_tokens, int64_t heads, int64_t each)
{
    int64_t block = osh_scan_back_block(osh_state_span(n_tokens), each);
    return (size_t)(osh_scan_back_blocks(n_tokens, heads, each) * block) * sizeof(float);
}

size_t osh_delta_rule_grad_cuda_scratch(const void *attr, const int64_t *in_width,
                                        int64_t out_width, int64_t n_tokens, osh_dtype dt)
{
    const osh_delta_rule_attr *at = attr;
    (void)in_width, (void)out_width, (void)dt;
    return osh_arena_gross(osh_scan_back_terms_bytes(n_tokens, at->v_heads, 2)) +
           osh_arena_gross(scan_back_states_bytes(n_tokens, at->k_heads, at->k_dim * at->v_dim));
}

size_t osh_ssm_scan_grad_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width,
                                      int64_t n_tokens, osh_dtype dt)
{
    const osh_ssm_scan_attr *at = attr;
    int64_t wave = osh_min64(OSH_SCAN_BACK_WAVE, at->heads);
    (void)in_width, (void)out_width, (void)dt;
    return osh_arena_gross(osh_scan_back_terms_bytes(n_tokens, at->heads, 3)) +
           osh_arena_gross((size_t)(n_tokens * wave * 2 * at->state) * sizeof(float)) +
           osh_arena_gross(scan_back_states_bytes(n_tokens, wave, at->state * at->head_dim));
}
