/* pack.cuh - 16 bytes of a tensor at a time, and teams of threads that share a row.
 *
 * A pack may be taken where its address is a multiple of 16; a kernel gets that as an argument (bool packed) and takes
 * single elements otherwise. A team is a warp or a block; its sums are those of a butterfly in each warp, then of the
 * warps in their order. */
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

/* Whether packs may be taken of rows of `width` elements that begin at t's data. */
static inline bool osh_cu_packed(const osh_tensor *t, int64_t width)
{
    return osh_cu_aligned(t->data) && (size_t)width * osh_dtype_bytes(t->dtype) % 16 == 0;
}

/* Blocks for n pieces of work, per_block at a time, of a kernel that strides by its grid. */
static inline unsigned osh_cu_grid(const osh_device *d, int64_t n, int64_t per_block)
{
    int64_t want = osh_div_up(n, per_block), most = (int64_t)osh_cuda_multiprocessors(d) * 16;
    return (unsigned)(want < 1 ? 1 : want < most ? want : most);
}

/* What a thread of the team read or wrote before is done for all of them. */
template <int TEAM> static __device__ inline void osh_cu_team_sync()
{
    if (TEAM == 32) __syncwarp();
    else __syncthreads();
}

/* Sum and maximum over a team of TEAM threads, the same in all of them; what one of them wrote before is there for the
 * others behind it, which a shuffle alone does not promise. TEAM is 32, or the size of the block; then shared holds a
 * float for each warp, and all threads of the block must be here. */
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

/* OSH_OK where the kernels can read a stored dtype. */
static inline osh_status osh_cu_readable(osh_ctx *cx, osh_dtype dt)
{
    if (dt == OSH_F64 || dt == OSH_F32 || dt == OSH_BF16 || dt == OSH_F16) return OSH_OK;
    return osh_fail(cx, OSH_E_UNSUPPORTED, "a tensor of %s on the CUDA device, want F64, F32, BF16 or F16",
                    osh_dtype_name(dt));
}
#endif
