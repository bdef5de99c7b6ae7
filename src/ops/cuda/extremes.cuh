/* extremes.cuh - computes atomic minima and maxima of floats in GPU memory.
 *
 * The bits of a float are read as an integer, so the functions use atomic minima and maxima of
 * integers. Their result does not depend on the order of the threads. Non-negative floats have the
 * order of their bits as signed integers; negative floats have the reverse order of their bits as
 * unsigned integers. -0 is below 0. */
#ifndef OSH_EXTREMES_CUH
#define OSH_EXTREMES_CUH
#include "ops/cuda/op.cuh"

/* Sets *p to min(*p, x). */
static __device__ inline void osh_cu_lower(float *p, float x)
{
    if (__float_as_int(x) >= 0) atomicMin(reinterpret_cast<int *>(p), __float_as_int(x));
    else atomicMax(reinterpret_cast<unsigned *>(p), __float_as_uint(x));
}

/* Sets *p to max(*p, x). */
static __device__ inline void osh_cu_raise(float *p, float x)
{
    if (__float_as_int(x) >= 0) atomicMax(reinterpret_cast<int *>(p), __float_as_int(x));
    else atomicMin(reinterpret_cast<unsigned *>(p), __float_as_uint(x));
}
#endif
