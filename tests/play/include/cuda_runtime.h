/* cuda_runtime.h - emulates the part of CUDA that src/ops/cuda uses, on the host. g++ compiles the
 * same .cu files with this directory instead of the toolkit's. Kernels run one block at a time; the
 * threads of a block are fibers (block.cc). The runtime calls work on host memory (runtime.cc).
 * Tests set options of the emulated GPU by the functions of play.h. */
#ifndef OSH_PLAY_CUDA_RUNTIME_H
#define OSH_PLAY_CUDA_RUNTIME_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- qualifiers ---- */
/* Shared memory is static, because blocks run one by one (shared_memory.cc). */
#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

/* ---- vectors ---- */
#define OSH_PLAY_VECTORS(type, name)                                                               \
    struct __align__(2 * sizeof(type)) name##2 { type x, y; };                                     \
    struct name##3 { type x, y, z; };                                                              \
    struct __align__(4 * sizeof(type) > 16 ? 16 : 4 * sizeof(type)) name##4 { type x, y, z, w; };  \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }                               \
    inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                    \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
OSH_PLAY_VECTORS(float, float)
OSH_PLAY_VECTORS(double, double)
OSH_PLAY_VECTORS(int, int)
OSH_PLAY_VECTORS(unsigned, uint)
OSH_PLAY_VECTORS(short, short)
OSH_PLAY_VECTORS(unsigned short, ushort)
OSH_PLAY_VECTORS(signed char, char)
OSH_PLAY_VECTORS(unsigned char, uchar)
OSH_PLAY_VECTORS(long long, longlong)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
extern uint3 threadIdx, blockIdx; // indices of the running thread and of its block
extern dim3 blockDim, gridDim;
enum { warpSize = 32 };

/* ---- launches ---- */
struct CUstream_st;
struct CUevent_st;
typedef CUstream_st *cudaStream_t;
typedef CUevent_st *cudaEvent_t;
/* A call of a kernel, run(args). drop(args) frees `args`. This struct replaces std::function, whose
 * header and templates would take a quarter of the time in which the kernels compile. */
struct osh_play_body { void *args; void (*run)(void *args), (*drop)(void *args); };
void osh_play_launch(const char *kernel, const void *entry, dim3 grid, dim3 block, size_t shared,
                     cudaStream_t stream,
                     osh_play_body body); // takes `body`
void *osh_play_dynamic_shared(void);

#define OSH_LAUNCH(kernel, grid, block, shared, stream, ...)                                       \
    do {                                                                                           \
        auto kernel_ = kernel;                                                                     \
        osh_play_launch(#kernel, (const void *)kernel_, grid, block, shared, stream,               \
                        osh_play_bind(kernel_, __VA_ARGS__));                                      \
    } while (0)
#define OSH_DYNAMIC_SHARED(type, name)                                                             \
    type *name = reinterpret_cast<type *>(osh_play_dynamic_shared())

/* Returns a call of the kernel with copies of the arguments. */
template <class F> osh_play_body osh_play_keep(F f)
{
    return {new F(f), [](void *args) { (*(F *)args)(); }, [](void *args) { delete (F *)args; }};
}
template <class... P, class... A> osh_play_body osh_play_bind(void (*kernel)(P...), A... args)
{
    return osh_play_keep([=] { kernel(args...); });
}

/* ---- calls in which threads meet ---- */
struct osh_play_site { const char *file; int line; };
#define OSH_PLAY_SITE (osh_play_site{__FILE__, __LINE__})
int osh_play_barrier(osh_play_site at, int predicate); // returns the number of true predicates
/* Data of one lane for the other lanes: the value of a shuffle, the fragments of an mma. */
struct osh_play_slot { uint64_t word[6]; };
/* Exchanges `mine` with the other lanes in the mask. Returns the slots [32] of all lanes, a view
 * that is valid until this lane has called the function twice more. */
const osh_play_slot *osh_play_warp(osh_play_site at, uint32_t mask, const osh_play_slot &mine);
int osh_play_lane(void);
uint32_t osh_play_vote(osh_play_site at, uint32_t mask, int predicate);

#define __syncthreads() ((void)osh_play_barrier(OSH_PLAY_SITE, 0))
#define __syncthreads_count(p) osh_play_barrier(OSH_PLAY_SITE, (p))
#define __syncthreads_or(p) (osh_play_barrier(OSH_PLAY_SITE, (p)) != 0)
#define __syncthreads_and(p) (osh_play_barrier(OSH_PLAY_SITE, !(p)) == 0)
#define __syncwarp(...) osh_play_meet(OSH_PLAY_SITE, ##__VA_ARGS__)
#define __ballot_sync(mask, p) osh_play_vote(OSH_PLAY_SITE, mask, p)
#define __any_sync(mask, p) (osh_play_vote(OSH_PLAY_SITE, mask, p) != 0)
#define __all_sync(mask, p) (osh_play_vote(OSH_PLAY_SITE, mask, !(p)) == 0)
#define __shfl_sync(mask, v, ...) osh_play_shfl(OSH_PLAY_SITE, osh_play_idx, mask, v, __VA_ARGS__)
#define __shfl_xor_sync(mask, v, ...)                                                              \
    osh_play_shfl(OSH_PLAY_SITE, osh_play_xor, mask, v, __VA_ARGS__)
#define __shfl_up_sync(mask, v, ...) osh_play_shfl(OSH_PLAY_SITE, osh_play_up, mask, v, __VA_ARGS__)
#define __shfl_down_sync(mask, v, ...)                                                             \
    osh_play_shfl(OSH_PLAY_SITE, osh_play_down, mask, v, __VA_ARGS__)

// implements __syncwarp, the only call of a warp that orders memory accesses
void osh_play_meet(osh_play_site at, uint32_t mask = 0xffffffffu);
/* Each function returns the lane from which lane `me` reads in a shuffle. The shuffle is among the
 * lanes [first, first + width). */
inline int osh_play_idx(int me, int arg, int first, int width)
{
    return (void)me, first + (arg & (width - 1));
}
inline int osh_play_xor(int me, int arg, int first, int width)
{
    return (me ^ arg) < first + width ? me ^ arg : me;
}
inline int osh_play_up(int me, int arg, int first, int width)
{
    return (void)width, me - arg < first ? me : me - arg;
}
inline int osh_play_down(int me, int arg, int first, int width)
{
    return me + arg >= first + width ? me : me + arg;
}
template <class T>
T osh_play_shfl(osh_play_site at, int (*source)(int, int, int, int), uint32_t mask, T v, int arg,
                int width = warpSize)
{
    osh_play_slot mine = {{0}};
    int me = osh_play_lane(), from = source(me, arg, me & -width, width);
    static_assert(sizeof v <= sizeof(uint64_t), "a shuffle moves at most 8 bytes");
    memcpy(&mine, &v, sizeof v);
    uint64_t value = osh_play_warp(at, mask, mine)[from].word[0];
    // lane `from` is not in the mask, so the value is NaN
    if (!(mask >> from & 1)) value = ~(uint64_t)0;
    memcpy(&v, &value, sizeof v);
    return v;
}
/* ---- asynchronous copies (cp.async) ---- */
/* Begins an asynchronous copy, and fills the target with NaN. When the thread waits for the group
 * of the copy, the target gets the data (n_read bytes, then zeros). So a thread that reads the
 * target too early, or that still needs the old data, gets NaN. */
void osh_play_async_copy(void *to, const void *from, size_t n_bytes, size_t n_read);
void osh_play_async_commit(void);
void osh_play_async_wait(int n_left); // n_left: number of groups that may stay pending
/* Aborts if the address p is not a multiple of n bytes. */
void osh_play_aligned(const void *p, size_t n, const char *what);
inline void __threadfence(void) {}
inline void __threadfence_block(void) {}

/* ---- atomics ---- */
/* Plain reads and writes are enough, because fibers do not interrupt each other. */
template <class T, class F>
__attribute__((noinline, no_sanitize("thread"))) T osh_play_atomic(T *p, F f)
{
    T old = *p;
    *p = f(old);
    return old;
}
#define OSH_PLAY_ATOMICS(T)                                                                        \
    inline T atomicAdd(T *p, T v)                                                                  \
    {                                                                                              \
        return osh_play_atomic(p, [=](T o) { return (T)(o + v); });                                \
    }                                                                                              \
    inline T atomicMin(T *p, T v)                                                                  \
    {                                                                                              \
        return osh_play_atomic(p, [=](T o) { return o < v ? o : v; });                             \
    }                                                                                              \
    inline T atomicMax(T *p, T v)                                                                  \
    {                                                                                              \
        return osh_play_atomic(p, [=](T o) { return o > v ? o : v; });                             \
    }                                                                                              \
    inline T atomicOr(T *p, T v)                                                                   \
    {                                                                                              \
        return osh_play_atomic(p, [=](T o) { return o | v; });                                     \
    }                                                                                              \
    inline T atomicAnd(T *p, T v)                                                                  \
    {                                                                                              \
        return osh_play_atomic(p, [=](T o) { return o & v; });                                     \
    }                                                                                              \
    inline T atomicExch(T *p, T v)                                                                 \
    {                                                                                              \
        return osh_play_atomic(p, [=](T) { return v; });                                           \
    }                                                                                              \
    inline T atomicCAS(T *p, T want, T v)                                                          \
    {                                                                                              \
        return osh_play_atomic(p, [=](T o) { return o == want ? v : o; });                         \
    }
OSH_PLAY_ATOMICS(int)
OSH_PLAY_ATOMICS(unsigned)
OSH_PLAY_ATOMICS(long long)
OSH_PLAY_ATOMICS(unsigned long long)

/* ---- arithmetic ---- */
template <class To, class From> To osh_play_bits(From f)
{
    To t;
    memcpy(&t, &f, sizeof t);
    return t;
}
inline unsigned __float_as_uint(float f) { return osh_play_bits<unsigned>(f); }
inline int __float_as_int(float f) { return osh_play_bits<int>(f); }
inline float __uint_as_float(unsigned u) { return osh_play_bits<float>(u); }
inline float __int_as_float(int i) { return osh_play_bits<float>(i); }
inline long long __double_as_longlong(double d) { return osh_play_bits<long long>(d); }
inline double __longlong_as_double(long long l) { return osh_play_bits<double>(l); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frcp_rn(float a) { return 1 / a; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline float rsqrtf(float a) { return (float)(1 / sqrt((double)a)); }
inline double rsqrt(double a) { return 1 / sqrt(a); }
inline int __float2int_rn(float f) { return (int)nearbyintf(f); }
inline float __int2float_rn(int i) { return (float)i; }
inline float __double2float_rn(double d) { return (float)d; }
inline int __popc(unsigned u) { return __builtin_popcount(u); }
inline int __ffs(int i) { return __builtin_ffs(i); }
inline int __clz(int i) { return i ? __builtin_clz((unsigned)i) : 32; }
template <class T> T __ldg(const T *p) { return *p; }
template <class T> T __ldcs(const T *p) { return *p; }
template <class T> void __stcs(T *p, T v) { *p = v; }
#define OSH_PLAY_MIN_MAX(T)                                                                        \
    inline T min(T a, T b) { return a < b ? a : b; }                                               \
    inline T max(T a, T b) { return a > b ? a : b; }
OSH_PLAY_MIN_MAX(int)
OSH_PLAY_MIN_MAX(unsigned)
OSH_PLAY_MIN_MAX(long)
OSH_PLAY_MIN_MAX(unsigned long)
OSH_PLAY_MIN_MAX(long long)
OSH_PLAY_MIN_MAX(unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

/* ---- calls of the runtime ---- */
typedef enum cudaError {
    cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3, cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35, cudaErrorNoDevice = 100, cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209, cudaErrorECCUncorrectable = 214,
    cudaErrorOperatingSystem = 304, cudaErrorInvalidResourceHandle = 400, cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700, cudaErrorLaunchTimeout = 702, cudaErrorAssert = 710,
    cudaErrorHostMemoryAlreadyRegistered = 712, cudaErrorHardwareStackError = 714,
    cudaErrorIllegalInstruction = 715, cudaErrorMisalignedAddress = 716,
    cudaErrorInvalidAddressSpace = 717, cudaErrorInvalidPc = 718, cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801, cudaErrorSystemDriverMismatch = 803,
    cudaErrorUnknown = 999
} cudaError_t;
typedef enum cudaMemcpyKind {
    cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
} cudaMemcpyKind;
typedef enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8
} cudaFuncAttribute;
typedef enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16, cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
} cudaDeviceAttr;
enum { cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2,
       cudaHostAllocDefault = 0,
       cudaHostRegisterDefault = 0 };
typedef struct cudaUUID_t {
    char bytes[16];
} cudaUUID_t;
struct cudaDeviceProp { // has those members of the real struct that the program reads
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int major, minor, multiProcessorCount;
};
struct cudaFuncAttributes { int numRegs, binaryVersion; };

cudaError_t cudaGetLastError(void);
const char *cudaGetErrorName(cudaError_t e);
const char *cudaGetErrorString(cudaError_t e);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaSetDevice(int ordinal);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int ordinal);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int ordinal);
cudaError_t cudaDeviceGetPCIBusId(char *id, int room, int ordinal);
cudaError_t cudaMemGetInfo(size_t *free, size_t *total);
cudaError_t osh_play_malloc(void **out, size_t n_bytes);
cudaError_t osh_play_host_alloc(void **out, size_t n_bytes);
template <class T> cudaError_t cudaMalloc(T **out, size_t n_bytes)
{
    return osh_play_malloc((void **)out, n_bytes);
}
template <class T> cudaError_t cudaHostAlloc(T **out, size_t n_bytes, unsigned)
{
    return osh_play_host_alloc((void **)out, n_bytes);
}
cudaError_t cudaFree(void *p);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaHostRegister(void *p, size_t n_bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind,
                            cudaStream_t s);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaMemsetAsync(void *to, int byte, size_t n_bytes, cudaStream_t s);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t osh_play_set_dynamic_shared(const void *entry, int n_bytes);
cudaError_t osh_play_function(const void *entry);
template <class F> cudaError_t cudaFuncSetAttribute(F *entry, cudaFuncAttribute, int value)
{
    return osh_play_set_dynamic_shared((const void *)entry, value);
}
template <class F> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, F *entry)
{
    *out = cudaFuncAttributes();
    return osh_play_function((const void *)entry);
}
#endif
