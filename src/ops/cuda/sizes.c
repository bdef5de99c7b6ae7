/* sizes.c - what the CUDA column takes and what it tells, in every binary: a plan for a card needs no card and no
 * kernels. */
#include "ops/cuda/cuda.h"
#include "ops/cuda/sizes.h"

const char *osh_cuda_detour_name(osh_cuda_detour which)
{
    static const char *const names[] = {"default_f32_products", "products_one_by_one", "pageable_copies",
                                        "blocks_elsewhere"};
    return names[which];
}

const char *osh_cuda_detour_text(osh_cuda_detour which)
{
    static const char *const texts[] = {"products of F32 without a pedantic algorithm",
                                        "products of a batch one by one",
                                        "copies of values that are not page-locked",
                                        "blocks of its memory elsewhere than planned"};
    return texts[which];
}

size_t osh_hessian_accum_cuda_scratch(const void *attr, const int64_t *in_width, int64_t out_width, int64_t n_tokens,
                                      osh_dtype dt)
{
    (void)attr, (void)out_width, (void)n_tokens; // of the last tokens of any batch
    return osh_arena_gross((size_t)(OSH_HESSIAN_GRAIN * in_width[0]) * osh_dtype_bytes(dt));
}

size_t osh_cuda_triangle_bytes(int64_t n)
{
    return osh_arena_gross(osh_triangle_room(n)) + osh_arena_gross(sizeof(int));
}

size_t osh_gptq_factor_cuda_scratch(int64_t I) { return osh_cuda_triangle_bytes(I); }
