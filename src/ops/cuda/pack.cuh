/* pack.cuh - declares two tools of kernels: packs and teams. A pack is 16 bytes of a tensor that a
 * thread reads or writes at once. A team is a set of threads that compute a row together.
 *
 * The address of a pack must be a multiple of 16. If all addresses are multiples of 16, the
 * argument `packed` of a kernel is true. Otherwise the kernel reads single elements. A team is a
 * warp or a block. A sum over a team is a butterfly in each warp, then the sum of the warps in
 * order. */
#ifndef OSH_PACK_CUH
#define OSH_PACK_CUH
#include "ops/cuda/op.cuh"

template <class T> struct alignas(16) osh_cu_pack {
    static constexpr int N = 16 / (int)sizeof(T);
    T v[N];
};

template <class T> static __device__ inline osh_cu_pack<T> osh_cu_pack_load(const T *from)
{
    return *reinterpret_cast<const osh_cu_pack<T> *>(from);
}
template <class T> static __device__ inline void osh_cu_pack_store(T *to, const osh_cu_pack<T> &p)
{
    *reinterpret_cast<osh_cu_pack<T> *>(to) = p;
}

static inline bool osh_cu_aligned(const void *p) { return ((uintptr_t)p & 15) == 0; }

/* Returns true if rows of `width` elements, from the data of t on, can be read by packs. */
static inline bool osh_cu_packed(const osh_tensor *t, int64_t width)
{
    return osh_cu_aligned(t->data) && (size_t)width * osh_dtype_bytes(t->dtype) % 16 == 0;
}

/* Returns the number of blocks for a kernel with a grid-stride loop over n items, if a block
 * processes per_block items at a time. */
static inline unsigned osh_cu_grid(const osh_device *d, int64_t n, int64_t per_block)
{
    int64_t want = osh_div_up(n, per_block), most = (int64_t)osh_cuda_multiprocessors(d) * 16;
    return (unsigned)(want < 1 ? 1 : want < most ? want : most);
}

/* A barrier for the team. Reads and writes of the team's threads before the barrier are complete
 * after it. */
template <int TEAM> static __device__ inline void osh_cu_team_sync()
{
    if (TEAM == 32) __syncwarp();
    else __syncthreads();
}

/* Two reductions of x over a team of TEAM threads: osh_cu_team_sum returns the sum, and
 * osh_cu_team_max returns the maximum. All threads get the same result. Both functions are also
 * barriers, because a shuffle alone does not make writes visible. TEAM is 32 or the size of the
 * block. If TEAM is the size of the block, all threads of the block must call the function, and
 * `shared` must have a float for each warp. */
template <int TEAM> static __device__ inline float osh_cu_team_sum(float x, float *shared)
{
    x = osh_cu_warp_sum(x);
    if (TEAM == 32) return __syncwarp(), x;
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (int i = 0; i < TEAM / 32; i++) x += shared[i];
    __syncthreads();
    return x;
}
template <int TEAM> static __device__ inline float osh_cu_team_max(float x, float *shared)
{
    x = osh_cu_warp_max(x);
    if (TEAM == 32) return __syncwarp(), x;
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
    __syncthreads();
    x = shared[0];
    for (int i = 1; i < TEAM / 32; i++) x = fmaxf(x, shared[i]);
    __syncthreads();
    return x;
}

/* Returns OSH_OK if the kernels can read stored weights of dtype dt. Otherwise fails. */
static inline osh_status osh_cu_readable(osh_ctx *cx, osh_dtype dt)
{
    if (dt == OSH_F64 || dt == OSH_F32 || dt == OSH_BF16 || dt == OSH_F16) return OSH_OK;
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "a tensor of %s on the CUDA device, want F64, F32, BF16 or F16",
                    osh_dtype_name(dt));
}
#endif
