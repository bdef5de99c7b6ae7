/* sizes.h - constants of the kernels that decide what they take: between them and sizes.c. */
#ifndef OSH_CUDA_SIZES_H
#define OSH_CUDA_SIZES_H

enum { OSH_HESSIAN_GRAIN = 256 }; // tokens: fewer are filled up with zeros
#endif
