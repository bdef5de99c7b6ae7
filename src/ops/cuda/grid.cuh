/* grid.cuh - defines device functions for a grid (math/grid.h), which is the set of values that
 * codes can represent. The functions round to values of the grid, and convert values to codes and
 * codes to values. */
#ifndef OSH_GRID_CUH
#define OSH_GRID_CUH
#include "ops/cuda/op.cuh"
extern "C" {
#include "math/grid.h"
}

/* Returns the value of the grid that is nearest to x. |x| must not be above the largest value. The
 * result equals v8_on_grid of solver/cpu/panel.c. */
__device__ inline float osh_cu_on_grid(const osh_grid &g, float x)
{
    if (!g.digits) return rintf(x);
    int cut = 24 - g.digits;
    uint32_t u = __float_as_uint(x), sign = u & 0x80000000u, a = u & 0x7fffffffu;
    float r =
        __uint_as_float((a + ((1u << (cut - 1)) - 1) + ((a >> cut) & 1)) & ~((1u << cut) - 1));
    /* Adding `magic` and subtracting it again rounds to multiples of 2^least. */
    float magic = __uint_as_float((uint32_t)(127 + 23 + g.least) << 23);
    if (a < (uint32_t)(127 + g.least + g.digits - 1) << 23)
        r = __fsub_rn(__fadd_rn(__uint_as_float(a), magic), magic);
    return __uint_as_float(__float_as_uint(r) | sign);
}

/* Returns the code of x, which must be a value of the grid. */
__device__ inline int osh_cu_code(const osh_grid &g, float x)
{
    if (!g.digits) return (int)x;
    uint32_t u = __float_as_uint(x), a = u & 0x7fffffffu, fraction = (uint32_t)g.digits - 1;
    /* `first`: exponent field of the smallest value with g.digits significant bits. */
    uint32_t first = (uint32_t)(127 + g.least + (int)fraction);
    float whole = __fmul_rn(__uint_as_float(a), __uint_as_float((uint32_t)(127 - g.least) << 23));
    int low =
        a < first << 23 ? (int)whole : (int)((a >> (23 - fraction)) - ((first - 1) << fraction));
    return (int)(u >> 31) << (g.bits - 1) | low;
}

/* Returns the value of the grid that `code` represents. */
__device__ inline float osh_cu_value_of_code(const osh_grid &g, int8_t code)
{
    if (!g.digits) return (float)code;
    uint32_t sign = (uint32_t)(code >> (g.bits - 1) & 1) << 31,
             low = (uint32_t)code & ((1u << (g.bits - 1)) - 1);
    uint32_t fraction = (uint32_t)g.digits - 1;
    /* `whole`: the value low * 2^least. It is correct only if the value of the code has fewer than
     * g.digits significant bits. */
    float whole = __fmul_rn((float)low, __uint_as_float((uint32_t)(127 + g.least) << 23));
    uint32_t all = (low << (23 - fraction)) + ((uint32_t)(127 + g.least + (int)fraction - 1) << 23);
    return __uint_as_float(sign | (low < 1u << fraction ? __float_as_uint(whole) : all));
}

/* Returns (q - zero) s, the value that code q represents. Rounds to T after each step. */
template <class T> __device__ inline float osh_cu_value(float q, float s, float zero)
{
    return osh_cu_round<T>(__fmul_rn(osh_cu_round<T>(__fsub_rn(q, zero)), s));
}
#endif
