/* sizes.c - names of detours (gpu.h) and sizes of scratch for triangles. Every binary has these
 * functions, because `oneshot plan` plans the memory of a GPU on machines without a GPU or CUDA. */
#include "gpu/gpu.h"

const char *osh_cuda_detour_name(osh_cuda_detour which)
{
    static const char *const names[] = {"default_f32_products", "products_one_by_one",
                                        "pageable_copies", "blocks_elsewhere",
                                        "files_through_host"};
    return names[which];
}

const char *osh_cuda_detour_text(osh_cuda_detour which)
{
    static const char *const texts[] = {"products of F32 without a pedantic algorithm",
                                        "products of a batch one by one",
                                        "copies of values that are not page-locked",
                                        "blocks of its memory elsewhere than planned",
                                        "reads of files that went through host memory"};
    return texts[which];
}

size_t osh_triangle_room(int64_t n)
{
    size_t side = n < 2 * OSH_TRIANGLE_BLOCK ? (size_t)n : 2 * OSH_TRIANGLE_BLOCK;
    return side * side * sizeof(float) + OSH_TRIANGLE_SPARE;
}

size_t osh_cuda_triangle_bytes(int64_t n)
{
    return osh_arena_gross(osh_triangle_room(n)) + osh_arena_gross(sizeof(int));
}
