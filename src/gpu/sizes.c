/* sizes.c - computes the sizes of the scratch for inverse triangles (triangle.cu). Every binary has
 * these functions, because `oneshot plan` plans the memory of a GPU on machines without one. */
#include "gpu/gpu.h"

size_t osh_triangle_room(int64_t n)
{
    size_t side = n < 2 * OSH_TRIANGLE_BLOCK ? (size_t)n : 2 * OSH_TRIANGLE_BLOCK;
    return side * side * sizeof(float) + OSH_TRIANGLE_SPARE;
}

size_t osh_cuda_triangle_bytes(int64_t n)
{
    return osh_arena_gross(osh_triangle_room(n)) + osh_arena_gross(sizeof(int));
}
