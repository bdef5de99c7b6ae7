/* kernel.cuh - what the kernels share: launching, narrow floats, reductions in a fixed order.
 *
 * Every kernel is written so that the tests can play it on the host (tests/play: one block at a time, its threads as
 * fibers): launched through OSH_LAUNCH, dynamic shared memory through OSH_DYNAMIC_SHARED, barriers and warp calls with
 * all threads of the block or warp. PTX only inside wrappers that have a plain twin under OSH_PLAY. No sum depends on
 * the order in which blocks run: no atomic addition of floats. */
#ifndef OSH_KERNEL_CUH
#define OSH_KERNEL_CUH
#include <cuda_runtime.h>
#include <stdint.h>
#ifndef OSH_PLAY
#include <cuda_fp16.h>
#endif

#include "gpu/runtime.h"

#ifndef OSH_PLAY // else they come, as threadIdx and __syncthreads do, with the cuda_runtime.h of tests/play
/* OSH_LAUNCH(kernel, grid, block, shared bytes, stream, arguments...): a name with commas goes into parentheses. The
 * launch's own failure is asked for with OSH_CUDA(cx, cudaGetLastError()). */
#define OSH_LAUNCH(kernel, grid, block, shared, stream, ...)                                                           \
    do {                                                                                                               \
        auto kernel_ = kernel;                                                                                         \
        kernel_<<<grid, block, shared, stream>>>(__VA_ARGS__);                                                         \
    } while (0)
#define OSH_DYNAMIC_SHARED(type, name)                                                                                 \
    extern __shared__ __align__(16) unsigned char dynamic_shared_[];                                                   \
    type *name = reinterpret_cast<type *>(dynamic_shared_)
#define OSH_CU_APART __noinline__ // a function that many kernels call: compiled for each of them once
#else
#define OSH_CU_APART __attribute__((noinline)) // the toolkit's word would be a macro that the host's headers trip over
#endif

/* Storage types of the compute dtypes. */
struct osh_bf16_t { uint16_t bits; };
struct osh_f16_t { uint16_t bits; };

__device__ inline float osh_cu_load(float x) { return x; }
__device__ inline float osh_cu_load(double x) { return (float)x; }
__device__ inline float osh_cu_load(osh_bf16_t x) { return __uint_as_float((uint32_t)x.bits << 16); }
__device__ inline void osh_cu_store(float *to, float x) { *to = x; }
__device__ inline void osh_cu_store(double *to, float x) { *to = x; }
__device__ inline void osh_cu_store(osh_bf16_t *to, float f) // ties to even, NaN stays NaN
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
__device__ inline void osh_cu_store(osh_f16_t *to, float f) { to->bits = __half_as_ushort(__float2half_rn(f)); }
#endif
__device__ inline bool osh_cu_is_finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }
/* The value that a tensor of T keeps of f. */
template <class T> __device__ inline float osh_cu_round(float f)
{
    T t;
    osh_cu_store(&t, f);
    return osh_cu_load(t);
}

/* A small stored vector whose dtype a kernel looks up for each element: a switch there costs less than a kernel for
 * each dtype that the others might go with. */
typedef struct osh_cu_vector {
    const void *data; // NULL: none
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

/* x = c tanh(x / c), rounded after each step. */
template <class T> __device__ inline void osh_cu_softcap(T *x, float c)
{
    float t = osh_cu_round<T>(__fdiv_rn(osh_cu_load(*x), c));
    osh_cu_store(x, __fmul_rn(osh_cu_round<T>(tanhf(t)), c));
}

/* Sum and maximum over the warp, the same in all lanes; a butterfly, so that every lane adds in the same order. */
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

/* Calls f with a value of the storage type of dt: OSH_CU_BY_DTYPE(dt, T, statement using T). */
#define OSH_CU_BY_DTYPE(dt, T, ...)                                                                                    \
    do {                                                                                                               \
        switch (dt) {                                                                                                  \
        case OSH_BF16: { typedef osh_bf16_t T; __VA_ARGS__; } break;                                                   \
        case OSH_F16: { typedef osh_f16_t T; __VA_ARGS__; } break;                                                     \
        default: { typedef float T; __VA_ARGS__; } break;                                                              \
        }                                                                                                              \
    } while (0)
/* The same of the dtypes that a stored weight may have. */
#define OSH_CU_BY_STORED(dt, T, ...)                                                                                   \
    do {                                                                                                               \
        switch (dt) {                                                                                                  \
        case OSH_F64: { typedef double T; __VA_ARGS__; } break;                                                        \
        case OSH_BF16: { typedef osh_bf16_t T; __VA_ARGS__; } break;                                                   \
        case OSH_F16: { typedef osh_f16_t T; __VA_ARGS__; } break;                                                     \
        default: { typedef float T; __VA_ARGS__; } break;                                                              \
        }                                                                                                              \
    } while (0)
#endif
