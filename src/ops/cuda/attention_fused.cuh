/* attention_fused.cuh - attention of bf16 and f16 in one kernel that writes no scores: FlashAttention-2 (Dao 2023,
 * algorithm 1) on mma m16n8k16, for heads of at most 128 elements, a multiple of 8.
 *
 * A block takes FUSED_QUERIES queries of one head of one sample, a warp 16 of them; it goes through the keys that they
 * see from first to last, FUSED_KEYS at a time, the next ones on their way into shared memory meanwhile. For a query:
 *
 *   s = q k^T                        f32, not rounded
 *   b = max(b, max(s) c)             c = scale log2(e); b begins at -inf; f32
 *   p = 2^(s c - b)                  f32; 0 where the query does not see the key
 *   l = 2^(b_before - b) l + sum(p)  f32: four lanes have a part each, added at the end
 *   o = 2^(b_before - b) o + P v     f32; P is p rounded to the dtype
 *   y = o (1 / l)                    rounded to the dtype
 *
 * Tiles of keys begin at multiples of FUSED_KEYS from the sample's first token, and one that a query sees nothing of
 * changes nothing of it: its result follows from its sample alone. A row of shared memory is 16 bytes longer than a
 * head, so that the eight rows of a matrix of ldmatrix lie in different banks. */
#ifndef OSH_ATTENTION_FUSED_CUH
#define OSH_ATTENTION_FUSED_CUH
#include "ops/cuda/mma.cuh"
#include "ops/cuda/sizes.h"

#include <math.h>

enum { FUSED_QUERIES = 128, FUSED_KEYS = 64, FUSED_THREADS = 256, FUSED_SAMPLES = 64,
       FUSED_MAX_DIM = OSH_ATTENTION_FUSED_DIM };

/* Samples of one launch. */
typedef struct fused_samples {
    int n;
    int T[FUSED_SAMPLES], tile[FUSED_SAMPLES + 1]; // length; tiles of queries in front of it
    int64_t row[FUSED_SAMPLES];                    // first one
} fused_samples;

typedef struct fused_shape {
    int n_heads, group, head_dim, window; // group: query heads of a kv head; window 0: none
    float c;
} fused_shape;

/* What a warp has of its queries: lane 4g + t has those of index g and g + 8. */
template <int DIM> struct fused_state {
    osh_cu_frag_c o[DIM / 8];
    float b[2], l[2];
};

template <int DIM> struct fused_room { // of shared memory, in elements: keys, then values, twice
    static constexpr int STRIDE = DIM + 8, TILE = FUSED_KEYS * STRIDE, STAGE = 2 * TILE, ALL = 2 * STAGE;
};

/* Asks for n keys and values (the rest of the tile: zeros) of rows `width` apart; columns behind head_dim are 0. */
template <class T, int DIM>
static __device__ __forceinline__ void fused_fetch(T *stage, const T *k, const T *v, int width, int head_dim, int n)
{
    const int CHUNKS = DIM / 8;
    for (int i = (int)threadIdx.x; i < FUSED_KEYS * CHUNKS; i += FUSED_THREADS) {
        int key = i / CHUNKS, col = i % CHUNKS * 8;
        bool there = key < n && col < head_dim;
        int from = there ? key * width + col : 0;
        T *to = stage + key * fused_room<DIM>::STRIDE + col;
        osh_cu_async_copy(to, k + from, there);
        osh_cu_async_copy(to + fused_room<DIM>::TILE, v + from, there);
    }
    osh_cu_async_commit();
}

/* The warp's queries as A: row of q, `n` rows are there. */
template <class T, int DIM>
static __device__ __forceinline__ void fused_queries(osh_cu_frag_a (&a)[DIM / 16], const T *q, int width,
                                                     int head_dim, int n)
{
    int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
#pragma unroll
    for (int d = 0; d < DIM / 16; d++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = g + i % 2 * 8, col = d * 16 + i / 2 * 8 + 2 * t;
            bool there = row < n && col < head_dim;
            a[d].r[i] = there ? *reinterpret_cast<const uint32_t *>(q + row * width + col) : 0;
        }
}

/* s [16, FUSED_KEYS] = q k^T */
template <class T, int DIM>
static __device__ __forceinline__ void fused_scores(osh_cu_frag_c (&s)[FUSED_KEYS / 8],
                                                    const osh_cu_frag_a (&q)[DIM / 16], const T *keys)
{
    const int STRIDE = fused_room<DIM>::STRIDE;
    int m = (int)threadIdx.x % 32 / 8, r = (int)threadIdx.x % 8;
    const T *at = keys + (m / 2 * 8 + r) * STRIDE + m % 2 * 8; // b[0], b[1] of 8 keys, then of the next 8
#pragma unroll
    for (int j = 0; j < FUSED_KEYS / 8; j++) s[j] = {{0, 0, 0, 0}};
#pragma unroll
    for (int d = 0; d < DIM / 16; d++)
#pragma unroll
        for (int j = 0; j < FUSED_KEYS / 16; j++) {
            uint32_t b[4];
            osh_cu_ldmatrix<false>(b, at + j * 16 * STRIDE + d * 16);
            osh_cu_mma<T>(s[2 * j], q[d], {{b[0], b[1]}});
            osh_cu_mma<T>(s[2 * j + 1], q[d], {{b[2], b[3]}});
        }
}

/* -inf where a query does not see a key. key, query: of the tile's and of the lane's first. */
static __device__ __forceinline__ void fused_mask(osh_cu_frag_c (&s)[FUSED_KEYS / 8], int key, int query, int window)
{
#pragma unroll
    for (int j = 0; j < FUSED_KEYS / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int behind = query + i / 2 * 8 - (key + j * 8 + (int)threadIdx.x % 4 * 2 + i % 2);
            if (behind < 0 || (window && behind >= window)) s[j].v[i] = -INFINITY;
        }
}

/* s becomes p; b, l and o go on to it. */
template <int DIM>
static __device__ __forceinline__ void fused_softmax(fused_state<DIM> &w, osh_cu_frag_c (&s)[FUSED_KEYS / 8], float c)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float max = -INFINITY, sum = 0;
#pragma unroll
        for (int j = 0; j < FUSED_KEYS / 8; j++) max = fmaxf(max, fmaxf(s[j].v[2 * half], s[j].v[2 * half + 1]));
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1)); // the four lanes of the query
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
        float b = fmaxf(w.b[half], __fmul_rn(max, c));
        float from = b == -INFINITY ? 0 : b; // nothing is seen yet
        float shrink = osh_cu_exp2(w.b[half] - from);
        w.b[half] = b;
#pragma unroll
        for (int j = 0; j < FUSED_KEYS / 8; j++)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++)
                sum += s[j].v[i] = osh_cu_exp2(__fmaf_rn(s[j].v[i], c, -from));
        w.l[half] = __fmaf_rn(w.l[half], shrink, sum);
#pragma unroll
        for (int d = 0; d < DIM / 8; d++)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) w.o[d].v[i] = __fmul_rn(w.o[d].v[i], shrink);
    }
}

/* o [16, DIM] += P v */
template <class T, int DIM>
static __device__ __forceinline__ void fused_values(fused_state<DIM> &w, const osh_cu_frag_c (&p)[FUSED_KEYS / 8],
                                                    const T *values)
{
    const int STRIDE = fused_room<DIM>::STRIDE;
    int m = (int)threadIdx.x % 32 / 8, r = (int)threadIdx.x % 8;
    const T *at = values + (m % 2 * 8 + r) * STRIDE + m / 2 * 8; // b[0], b[1] of 8 columns, then of the next 8
#pragma unroll
    for (int j = 0; j < FUSED_KEYS / 16; j++) {
        const float *x = p[2 * j].v, *y = p[2 * j + 1].v;
        osh_cu_frag_a a = {{osh_cu_two<T>(x[0], x[1]), osh_cu_two<T>(x[2], x[3]), osh_cu_two<T>(y[0], y[1]),
                            osh_cu_two<T>(y[2], y[3])}};
#pragma unroll
        for (int d = 0; d < DIM / 16; d++) {
            uint32_t b[4];
            osh_cu_ldmatrix<true>(b, at + j * 16 * STRIDE + d * 16);
            osh_cu_mma<T>(w.o[2 * d], a, {{b[0], b[1]}});
            osh_cu_mma<T>(w.o[2 * d + 1], a, {{b[2], b[3]}});
        }
    }
}

/* The first n rows of o / l go to y. */
template <class T, int DIM>
static __device__ __forceinline__ void fused_store(T *y, fused_state<DIM> &w, int width, int head_dim, int n)
{
    int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float l = w.l[half];
        l += __shfl_xor_sync(0xffffffffu, l, 1);
        l += __shfl_xor_sync(0xffffffffu, l, 2);
        float by = __fdiv_rn(1, l);
#pragma unroll
        for (int d = 0; d < DIM / 8; d++) {
            const float *o = &w.o[d].v[2 * half];
            if (g + 8 * half >= n || d * 8 >= head_dim) continue;
            *reinterpret_cast<uint32_t *>(y + (g + 8 * half) * width + d * 8 + 2 * t) =
                osh_cu_two<T>(__fmul_rn(o[0], by), __fmul_rn(o[1], by));
        }
    }
}

template <class T, int DIM>
static __global__ void __launch_bounds__(FUSED_THREADS, DIM > 64 ? 1 : 2)
    fused_kernel(T *y, const T *q, const T *k, const T *v, fused_shape p, const fused_samples of)
{
    OSH_DYNAMIC_SHARED(T, shared);
    int n_tiles = of.tile[of.n], head = (int)blockIdx.x / n_tiles, tile = n_tiles - 1 - (int)blockIdx.x % n_tiles;
    int sample = 0; // its last tile comes first: it has the most keys
    while (tile >= of.tile[sample + 1]) sample++;
    int length = of.T[sample], block = (tile - of.tile[sample]) * FUSED_QUERIES;
    int first = block + (int)threadIdx.x / 32 * 16, last = first + 15, lane = (int)threadIdx.x % 32; // of the warp
    int q_width = p.n_heads * p.head_dim, width = q_width / p.group;
    int64_t at_q = (of.row[sample] + first) * q_width + head * p.head_dim;
    int64_t at_k = of.row[sample] * width + head / p.group * p.head_dim;

    osh_cu_frag_a a[DIM / 16];
    fused_queries<T, DIM>(a, q + at_q, q_width, p.head_dim, length - first);
    fused_state<DIM> w;
#pragma unroll
    for (int d = 0; d < DIM / 8; d++) w.o[d] = {{0, 0, 0, 0}};
    w.b[0] = w.b[1] = -INFINITY, w.l[0] = w.l[1] = 0;

    int key = p.window && block >= p.window ? (block - p.window + 1) / FUSED_KEYS * FUSED_KEYS : 0;
    int end = min(length, block + FUSED_QUERIES), stage = 0;
    at_k += (int64_t)key * width;
    fused_fetch<T, DIM>(shared, k + at_k, v + at_k, width, p.head_dim, length - key);
    for (; key < end; key += FUSED_KEYS, stage ^= 1) {
        int next = key + FUSED_KEYS;
        osh_cu_async_wait<0>();
        __syncthreads(); // this stage is there for all, and nobody reads the other one
        at_k += FUSED_KEYS * width;
        if (next < end)
            fused_fetch<T, DIM>(shared + (stage ^ 1) * fused_room<DIM>::STAGE, k + at_k, v + at_k, width, p.head_dim,
                                length - next);
        if (first >= length || key > last || (p.window && first - (next - 1) >= p.window)) continue; // sees nothing
        const T *tile_k = shared + stage * fused_room<DIM>::STAGE;
        osh_cu_frag_c s[FUSED_KEYS / 8];
        fused_scores<T, DIM>(s, a, tile_k);
        if (next - 1 > first || (p.window && last - key >= p.window)) fused_mask(s, key, first + lane / 4, p.window);
        fused_softmax<DIM>(w, s, p.c);
        fused_values<T, DIM>(w, s, tile_k + fused_room<DIM>::TILE);
    }
    if (first < length) fused_store<T, DIM>(y + at_q, w, q_width, p.head_dim, length - first);
}

/* ---- host ---- */
template <class T, int DIM>
static osh_status fused_launch(osh_ctx *cx, const osh_op_args *a, const fused_shape &p, const fused_samples &of)
{
    osh_status rc = OSH_OK;
    int n_bytes = fused_room<DIM>::ALL * (int)sizeof(T);

    OSH_CUDA(cx, cudaFuncSetAttribute(fused_kernel<T, DIM>, cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes));
    OSH_LAUNCH((fused_kernel<T, DIM>), (unsigned)(of.tile[of.n] * p.n_heads), FUSED_THREADS, (size_t)n_bytes,
               osh_cuda_stream(a->out[0]->device), static_cast<T *>(a->out[0]->data),
               static_cast<const T *>(a->in[0]->data), static_cast<const T *>(a->in[1]->data),
               static_cast<const T *>(a->in[2]->data), p, of);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

template <class T>
static osh_status fused_of(osh_ctx *cx, const osh_op_args *a, const fused_shape &p, const fused_samples &of)
{
    if (p.head_dim <= 32) return fused_launch<T, 32>(cx, a, p, of);
    if (p.head_dim <= 64) return fused_launch<T, 64>(cx, a, p, of);
    if (p.head_dim <= 96) return fused_launch<T, 96>(cx, a, p, of);
    return fused_launch<T, FUSED_MAX_DIM>(cx, a, p, of);
}

/* All samples, FUSED_SAMPLES of them in a launch. */
static osh_status fused_run(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_attention_attr *at = static_cast<const osh_attention_attr *>(a->attr);
    int64_t N = osh_rows(a->in[0]), one[2] = {0, N}, n_seqs = a->seqs ? a->seqs->n : 1;
    const int64_t *offsets = a->seqs ? a->seqs->offsets : one;
    double scale = (float)(at->scale > 0 ? at->scale : 1 / sqrt((double)at->head_dim));
    fused_shape p = {(int)at->n_heads, (int)(at->n_heads / at->n_kv_heads), (int)at->head_dim,
                     at->sliding_window < N ? (int)at->sliding_window : 0, (float)(scale * M_LOG2E)};
    fused_samples of = {};

    if (N * at->n_heads > INT32_MAX)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "attention: %lld tokens with %lld heads in a batch, want a product below 2^31",
                 (long long)N, (long long)at->n_heads);
    for (int64_t s = 0; s < n_seqs; s++) {
        int64_t n = offsets[s + 1] - offsets[s];
        if (n) {
            of.row[of.n] = offsets[s], of.T[of.n] = (int)n;
            of.tile[of.n + 1] = of.tile[of.n] + (int)osh_div_up(n, FUSED_QUERIES);
            of.n++;
        }
        if (!of.n || (of.n < FUSED_SAMPLES && s + 1 < n_seqs)) continue;
        if (a->in[0]->dtype == OSH_BF16) OSH_TRY(fused_of<osh_bf16_t>(cx, a, p, of));
        else OSH_TRY(fused_of<osh_f16_t>(cx, a, p, of));
        of.n = 0;
    }
done:
    return rc;
}
#endif
