/* sizes.h - constants of the kernels that decide what they take: between them and sizes.c. */
#ifndef OSH_CUDA_SIZES_H
#define OSH_CUDA_SIZES_H

#include <stddef.h>
#include <stdint.h>

/* Rows of a triangle that cuSOLVER gets at most; a larger one is cut into blocks of so many, or of a power of two less.
 * What a triangle takes: its square, of no more than 2 x 2 blocks, and a MiB. */
enum { OSH_TRIANGLE_BLOCK = 2048, OSH_TRIANGLE_LEAST = 64, OSH_TRIANGLE_SPARE = 1 << 20 };
static inline size_t osh_triangle_room(int64_t n)
{
    size_t side = n < 2 * OSH_TRIANGLE_BLOCK ? (size_t)n : 2 * OSH_TRIANGLE_BLOCK;
    return side * side * sizeof(float) + OSH_TRIANGLE_SPARE;
}

enum { OSH_HESSIAN_GRAIN = 256 }; // tokens: fewer are filled up with zeros
#endif
