/* kernel.cuh - defines macros and functions that all kernels use: launches, conversions of 16-bit
 * floats, sums and maxima in a fixed order.
 *
 * Every kernel can also run on the emulated GPU of the tests (tests/play), which runs one block at
 * a time. The threads of the block are fibers. So every kernel is launched with OSH_LAUNCH and
 * declares dynamic shared memory with OSH_DYNAMIC_SHARED. All threads of a block reach each
 * barrier, and all threads of a warp reach each warp call. PTX is allowed only in wrappers that
 * have a plain version under OSH_PLAY. No sum depends on the order in which blocks run: no kernel
 * adds floats atomically. */
#ifndef OSH_KERNEL_CUH
#define OSH_KERNEL_CUH
#include <cuda_runtime.h>
#include <stdint.h>
#ifndef OSH_PLAY
#include <cuda_fp16.h>
#endif

#include "gpu/runtime.h"

/* With OSH_PLAY (tests), tests/play/cuda_runtime.h defines these macros for the emulated GPU. */
#ifndef OSH_PLAY
/* OSH_LAUNCH(kernel, grid, block, shared bytes, stream, arguments...) launches a kernel. A kernel
 * name with commas needs parentheses. The caller checks for launch errors with OSH_CUDA(cx,
 * cudaGetLastError()). */
#define OSH_LAUNCH(kernel, grid, block, shared, stream, ...)                                       \
    do {                                                                                           \
        auto kernel_ = kernel;                                                                     \
        kernel_<<<grid, block, shared, stream>>>(__VA_ARGS__);                                     \
    } while (0)
#define OSH_DYNAMIC_SHARED(type, name)                                                             \
    extern __shared__ __align__(16) unsigned char dynamic_shared_[];                               \
    type *name = reinterpret_cast<type *>(dynamic_shared_)
/* Prevents inlining of a function that a kernel calls in many places. The kernel then has one copy
 * of its code. */
#define OSH_CU_APART __noinline__
#else
/* The emulated GPU does not define a macro __noinline__, because such a macro would break host
 * headers. */
#define OSH_CU_APART __attribute__((noinline))
#endif

/* Storage types of the compute dtypes. */
struct osh_bf16_t { uint16_t bits; };
struct osh_f16_t { uint16_t bits; };

__device__ inline float osh_cu_load(float x) { return x; }
__device__ inline float osh_cu_load(double x) { return (float)x; }
__device__ inline float osh_cu_load(osh_bf16_t x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}
__device__ inline void osh_cu_store(float *to, float x) { *to = x; }
__device__ inline void osh_cu_store(double *to, float x) { *to = x; }
/* Rounds to nearest, ties to even. A NaN gives a NaN. */
__device__ inline void osh_cu_store(osh_bf16_t *to, float f)
{
    uint32_t u = __float_as_uint(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) to->bits = (uint16_t)((u >> 16) | 0x40);
    else to->bits = (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}
#ifdef OSH_PLAY
__device__ inline float osh_cu_load(osh_f16_t x) { return osh_f32_of_f16(x.bits); }
__device__ inline void osh_cu_store(osh_f16_t *to, float f) { to->bits = osh_f16_of_f32(f); }
#else
__device__ inline float osh_cu_load(osh_f16_t x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ inline void osh_cu_store(osh_f16_t *to, float f)
{
    to->bits = __half_as_ushort(__float2half_rn(f));
}
#endif
__device__ inline bool osh_cu_is_finite(float x)
{
    return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}
/* Returns f rounded to T. */
template <class T> __device__ inline float osh_cu_round(float f)
{
    T t;
    osh_cu_store(&t, f);
    return osh_cu_load(t);
}

/* A small vector of any dtype in GPU memory, such as a bias. Kernels read elements with osh_cu_at,
 * which switches on the dtype for each element. Without osh_cu_at, a kernel would need one copy
 * of its code for every combination of dtypes. */
typedef struct osh_cu_vector {
    const void *data; // NULL: no vector
    osh_dtype dtype;
} osh_cu_vector;

static inline osh_cu_vector osh_cu_vector_of(const osh_tensor *t)
{
    return t ? (osh_cu_vector{t->data, t->dtype}) : (osh_cu_vector{nullptr, OSH_F32});
}

__device__ inline float osh_cu_at(const osh_cu_vector &v, int64_t i)
{
    switch (v.dtype) {
    case OSH_F64: return osh_cu_load(static_cast<const double *>(v.data)[i]);
    case OSH_BF16: return osh_cu_load(static_cast<const osh_bf16_t *>(v.data)[i]);
    case OSH_F16: return osh_cu_load(static_cast<const osh_f16_t *>(v.data)[i]);
    default: return static_cast<const float *>(v.data)[i];
    }
}

/* Computes x = c tanh(x / c), rounded to T after each step. */
template <class T> __device__ inline void osh_cu_softcap(T *x, float c)
{
    float t = osh_cu_round<T>(__fdiv_rn(osh_cu_load(*x), c));
    osh_cu_store(x, __fmul_rn(osh_cu_round<T>(tanhf(t)), c));
}

/* Two reductions of x over the warp: osh_cu_warp_sum returns the sum, and osh_cu_warp_max returns
 * the maximum. All lanes get the same result. The butterfly adds in a fixed order. */
__device__ inline float osh_cu_warp_sum(float x)
{
    for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}
__device__ inline float osh_cu_warp_max(float x)
{
    for (int d = 16; d; d >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

/* OSH_CU_BY_DTYPE(dt, T, statement) runs the statement with T as the storage type of the compute
 * dtype dt. */
#define OSH_CU_BY_DTYPE(dt, T, ...)                                                                \
    do {                                                                                           \
        switch (dt) {                                                                              \
        case OSH_BF16: { typedef osh_bf16_t T; __VA_ARGS__; } break;                               \
        case OSH_F16: { typedef osh_f16_t T; __VA_ARGS__; } break;                                 \
        default: { typedef float T; __VA_ARGS__; } break;                                          \
        }                                                                                          \
    } while (0)
/* Works like OSH_CU_BY_DTYPE for the dtypes of stored weights. These dtypes include F64. */
#define OSH_CU_BY_STORED(dt, T, ...)                                                               \
    do {                                                                                           \
        switch (dt) {                                                                              \
        case OSH_F64: { typedef double T; __VA_ARGS__; } break;                                    \
        case OSH_BF16: { typedef osh_bf16_t T; __VA_ARGS__; } break;                               \
        case OSH_F16: { typedef osh_f16_t T; __VA_ARGS__; } break;                                 \
        default: { typedef float T; __VA_ARGS__; } break;                                          \
        }                                                                                          \
    } while (0)
#endif
