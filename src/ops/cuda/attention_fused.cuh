/* attention_fused.cuh - computes attention of bf16 and f16 in one kernel that does not write scores
 * to memory: FlashAttention-2 (Dao 2023, algorithm 1) with the instruction mma m16n8k16. The number
 * of elements of a head must be a multiple of 8 and at most 128.
 *
 * A block computes FUSED_QUERIES queries of one head of one sample. A warp computes one or two
 * bands of 16 queries each. The block processes the keys that its queries see from first to last,
 * FUSED_KEYS at a time (a tile of keys). For a query:
 *
 *   s = q k^T                        f32, not rounded
 *   b = max(b, max(s) c)             c = scale log2(e); b starts at -inf; f32
 *   p = 2^(s c - b)                  f32; 0 if the query does not see the key
 *   l = 2^(b_before - b) l + sum(p)  f32; four lanes hold partial sums, added at the end
 *   o = 2^(b_before - b) o + P v     f32; P is p rounded to the dtype
 *   y = o (1 / l)                    rounded to the dtype
 *
 * Tiles of keys begin at multiples of FUSED_KEYS from the sample's first token. If a query sees no
 * key of a tile, the tile does not change the result of the query. So the result depends only on
 * the sample, not on the other queries of the warp.
 *
 * Shared memory contains the queries of the block and a ring of three slots. A slot contains one
 * half of a tile: the keys or the values. While one half is read, the next two halves are copied.
 * The block waits at a barrier before it reads a half. After the barrier the copy of this half is
 * complete, and the slot of the half before it is free.
 *
 *   read            k0   v0   k1   v1   k2      slots of the ring: 0 1 2 0 1
 *   copy started    k1   v1   k2   v2   k3      into the slot that was read before
 *
 * Rows have no padding. Their 16-byte chunks are permuted (swizzled) instead (fused_at), so that
 * the eight rows of a matrix of ldmatrix are in different banks. Because there is no padding, and a
 * slot has only half of a tile, a block with heads of 128 elements needs only 80 KiB. So two blocks
 * fit in a multiprocessor with 164 KiB.
 *
 * One ldmatrix reads 16 keys by 16 columns in 4 clocks of shared memory. A warp with two bands uses
 * these values in four mma instructions, a warp with one band in two. So warps have two bands if
 * two blocks of such warps fit in a multiprocessor. If they do not fit, a block has twice as many
 * warps, with one band each. They do not fit for heads of more than 64 elements on compute
 * capability 8.6 and 8.9. One band is sufficient there, because an mma takes 4 or 8 clocks. */
#ifndef OSH_ATTENTION_FUSED_CUH
#define OSH_ATTENTION_FUSED_CUH
#include "ops/cuda/mma.cuh"
#include "ops/cuda/sizes.h"

#include <math.h>

enum { FUSED_QUERIES = 128, FUSED_KEYS = 64, FUSED_RING = 3, FUSED_SAMPLES = 64,
       FUSED_MAX_DIM = OSH_ATTENTION_FUSED_DIM };

/* The samples that one launch of the kernel computes. */
typedef struct fused_samples {
    int n;
    /* T: number of tokens of each sample.
     * tile: number of blocks of queries in all earlier samples. */
    int T[FUSED_SAMPLES], tile[FUSED_SAMPLES + 1];
    int64_t row[FUSED_SAMPLES];                    // first row of each sample
} fused_samples;

typedef struct fused_shape {
    /* group: number of query heads that share a kv head.
     * window: sliding window in tokens, 0: none. */
    int n_heads, group, head_dim, window;
    float c;
} fused_shape;

/* Sizes for heads of up to DIM elements and warps with BANDS bands. docs/internals/cuda.md lists
 * the values. */
template <int DIM, int BANDS> struct fused_plan {
    static constexpr int THREADS = FUSED_QUERIES / (16 * BANDS) * 32;
    /* Number of blocks that a multiprocessor runs at the same time. The compiler limits the
     * registers of a thread so that this number is possible. */
    static constexpr int BLOCKS = BANDS == 1 ? 1 : DIM > 32 ? 2 : 3;
    /* True: each warp holds its queries in registers. False: each warp reads its queries from
     * shared memory again for each tile of keys. */
    static constexpr bool KEEPS = BANDS == 1 || DIM <= 64;
    /* HALF: number of elements of a slot of the ring.
     * RING: offset of the ring in shared memory, in elements. The queries are stored before the
     * ring. */
    static constexpr int HALF = FUSED_KEYS * DIM, RING = FUSED_QUERIES * DIM;
    static constexpr int BYTES = 2 * (RING + FUSED_RING * HALF);
};

/* Sums of a warp for its queries: `o`, `b` and `l` of the formulas at the top of this file. Lane 4g
 * + t holds values of queries g and g + 8 of each band. */
template <int DIM, int BANDS> struct fused_state {
    osh_cu_frag_c o[BANDS][DIM / 8];
    float b[BANDS][2], l[BANDS][2];
};

/* Number of 16-byte chunks in a group, inside of which fused_at permutes the chunks. It is also the
 * number of threads that copy one row. */
template <int DIM> struct fused_row { static constexpr int LANES = DIM % 64 ? 4 : 8; };

/* A row in shared memory consists of 16-byte chunks. Returns the index of the first element of
 * chunk number `piece` of row `row`. Rows of 256 and 128 bytes all begin in the same bank, so the
 * chunk is at position `piece ^ (row % 8)`. Rows of 192 and 64 bytes begin in one of two banks in
 * turn, so the position is `piece ^ (row / 2 % 4)`. */
template <int DIM> static __device__ __forceinline__ int fused_at(int row, int piece)
{
    const int LANES = fused_row<DIM>::LANES;
    return row * DIM + (piece ^ (row / (8 / LANES) % LANES)) * 8;
}

/* The next two functions return the offset in shared memory of the elements whose address this lane
 * passes to ldmatrix. ldmatrix reads 16 rows x 16 columns as four matrices: rows 0 to 7 and rows 8
 * to 15 of the first 8 columns, then the same rows of the last 8 columns.
 * fused_lane: the columns begin at column 0. The first row begins at element `from`.
 * fused_step: the columns begin at column 16 d. lane: the result of fused_lane. */
template <int DIM> static __device__ __forceinline__ int fused_lane(int from)
{
    int lane = osh_cu_thread() % 32;
    return from + fused_at<DIM>(lane % 16, lane / 16);
}

template <int DIM> static __device__ __forceinline__ int fused_step(int lane, int d)
{
    const int LANES = fused_row<DIM>::LANES;
    return (lane ^ 2 * d % LANES * 8) + 2 * d / LANES * LANES * 8;
}

/* Starts the asynchronous copy of ROWS rows to shared memory. Rows begin `width` elements apart in
 * `from`. Only n rows and head_dim columns are copied; the others are filled with 0. */
template <class T, int DIM, int THREADS, int ROWS>
static __device__ __forceinline__ void fused_fetch(T *to, const T *from, int width, int head_dim,
                                                   int n)
{
    const int LANES = fused_row<DIM>::LANES, STEP = THREADS / LANES;
    int thread = osh_cu_thread(), row = thread / LANES, col = thread % LANES * 8,
        at = row * width + col;
    int at_to = fused_at<DIM>(row, thread % LANES);
#pragma unroll 1 // an unrolled loop would need too many registers for the addresses of all rows
    for (int i = 0; i < ROWS; i += STEP, at += STEP * width, at_to += STEP * DIM)
#pragma unroll
        for (int j = 0; j < DIM; j += LANES * 8) {
            bool there = row + i < n && col + j < head_dim;
            osh_cu_async_copy(to + at_to + j, from + (there ? at + j : 0), there);
        }
}

/* Returns the offset of fused_lane for the queries of the calling warp. */
template <int DIM, int BANDS> static __device__ __forceinline__ int fused_mine(void)
{
    return fused_lane<DIM>(osh_cu_thread() / 32 * 16 * BANDS * DIM);
}

/* Loads the warp's queries from shared memory: columns [16 d, 16 d + 16), as operand A of
 * osh_cu_mma. */
template <class T, int DIM, int BANDS>
static __device__ __forceinline__ void fused_queries(osh_cu_frag_a (&a)[BANDS], const T *shared,
                                                     int q, int d)
{
#pragma unroll
    for (int band = 0; band < BANDS; band++)
        osh_cu_ldmatrix<false>(a[band].r, shared + fused_step<DIM>(q, d) + band * 16 * DIM);
}

/* Computes the scores s [BANDS, 16, FUSED_KEYS] = q k^T of the warp. q and `keys` are results of
 * fused_lane. `kept`: the queries in registers, used if KEEPS is true. */
template <class T, int DIM, int BANDS, int KEPT>
static __device__ __forceinline__ void fused_scores(osh_cu_frag_c (&s)[BANDS][FUSED_KEYS / 8],
                                                    const osh_cu_frag_a (&kept)[KEPT][BANDS],
                                                    const T *shared, int q, int keys)
{
#pragma unroll
    for (int band = 0; band < BANDS; band++)
#pragma unroll
        for (int j = 0; j < FUSED_KEYS / 8; j++) s[band][j] = {{0, 0, 0, 0}};
#pragma unroll
    for (int d = 0; d < DIM / 16; d++) {
        osh_cu_frag_a a[BANDS];
        if (!fused_plan<DIM, BANDS>::KEEPS) fused_queries<T, DIM>(a, shared, q, d);
#pragma unroll
        for (int j = 0; j < FUSED_KEYS / 16; j++) {
            // b[0] and b[2] are operand B of osh_cu_mma for 8 keys, b[1] and b[3] for the next 8
            // keys
            uint32_t b[4];
            osh_cu_ldmatrix<false>(b, shared + fused_step<DIM>(keys, d) + j * 16 * DIM);
#pragma unroll
            for (int band = 0; band < BANDS; band++) {
                const osh_cu_frag_a &x =
                    fused_plan<DIM, BANDS>::KEEPS ? kept[d % KEPT][band] : a[band];
                osh_cu_mma<T>(s[band][2 * j], x, {{b[0], b[2]}});
                osh_cu_mma<T>(s[band][2 * j + 1], x, {{b[1], b[3]}});
            }
        }
    }
}

/* Sets the scores of s to -inf where the query does not see the key. `key`: position of the first
 * key of the tile; `query`: position of the first query of the band. */
static __device__ __forceinline__ void fused_mask(osh_cu_frag_c (&s)[FUSED_KEYS / 8], int key,
                                                  int query, int window)
{
    int lane = osh_cu_thread() % 32, ahead = query + lane / 4 - (key + lane % 4 * 2);
#pragma unroll
    for (int j = 0; j < FUSED_KEYS / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int after = ahead + i / 2 * 8 - (j * 8 + i % 2);
            if (after < 0 || (window && after >= window)) s[j].v[i] = -INFINITY;
        }
}

/* Computes the probabilities of a band as operand P (rounded to T), and updates b, l and o of the
 * band. Overwrites s. */
template <class T, int DIM, int BANDS>
static __device__ __forceinline__ void fused_softmax(osh_cu_frag_a (&P)[FUSED_KEYS / 16],
                                                     fused_state<DIM, BANDS> &w, int band,
                                                     osh_cu_frag_c (&s)[FUSED_KEYS / 8], float c)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float max = -INFINITY, sum = 0;
#pragma unroll
        for (int j = 0; j < FUSED_KEYS / 8; j++)
            max = fmaxf(max, fmaxf(s[j].v[2 * half], s[j].v[2 * half + 1]));
        /* The two shuffles compute the maximum over the four lanes that hold scores of the
         * query. */
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
        float b = fmaxf(w.b[band][half], __fmul_rn(max, c));
        float from = b == -INFINITY ? 0 : b; // b is -INFINITY until the query has seen a key
        float shrink = osh_cu_exp2(w.b[band][half] - from);
        w.b[band][half] = b;
#pragma unroll
        for (int j = 0; j < FUSED_KEYS / 8; j++)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++)
                sum += s[j].v[i] = osh_cu_exp2(__fmaf_rn(s[j].v[i], c, -from));
        w.l[band][half] = __fmaf_rn(w.l[band][half], shrink, sum);
#pragma unroll
        for (int d = 0; d < DIM / 8; d++)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++)
                w.o[band][d].v[i] = __fmul_rn(w.o[band][d].v[i], shrink);
    }
#pragma unroll
    for (int j = 0; j < FUSED_KEYS / 16; j++) {
        const float *x = s[2 * j].v, *y = s[2 * j + 1].v;
        P[j] = {{osh_cu_two<T>(x[0], x[1]), osh_cu_two<T>(x[2], x[3]), osh_cu_two<T>(y[0], y[1]),
                 osh_cu_two<T>(y[2], y[3])}};
    }
}

/* Adds P v to o [BANDS, 16, DIM]. */
template <class T, int DIM, int BANDS>
static __device__ __forceinline__ void
fused_values(fused_state<DIM, BANDS> &w, const osh_cu_frag_a (&P)[BANDS][FUSED_KEYS / 16],
             const T *shared, int values)
{
#pragma unroll
    for (int j = 0; j < FUSED_KEYS / 16; j++)
#pragma unroll
        for (int d = 0; d < DIM / 16; d++) {
            /* b[0] and b[1] are operand B of osh_cu_mma for 8 columns, b[2] and b[3] for the next 8
             * columns. */
            uint32_t b[4];
            osh_cu_ldmatrix<true>(b, shared + fused_step<DIM>(values, d) + j * 16 * DIM);
#pragma unroll
            for (int band = 0; band < BANDS; band++) {
                osh_cu_mma<T>(w.o[band][2 * d], P[band][j], {{b[0], b[1]}});
                osh_cu_mma<T>(w.o[band][2 * d + 1], P[band][j], {{b[2], b[3]}});
            }
        }
}

/* Computes y = o / l for the first n rows, and rounds y to T. */
template <class T, int DIM, int BANDS>
static __device__ __forceinline__ void fused_store(T *y, fused_state<DIM, BANDS> &w, int width,
                                                   int head_dim, int n)
{
    int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2 * BANDS; i++) {
        int band = i / 2, half = i % 2, row = 16 * band + 8 * half + g;
        float l = w.l[band][half];
        l += __shfl_xor_sync(0xffffffffu, l, 1);
        l += __shfl_xor_sync(0xffffffffu, l, 2);
        float by = __fdiv_rn(1, l);
#pragma unroll
        for (int d = 0; d < DIM / 8; d++) {
            const float *o = &w.o[band][d].v[2 * half];
            if (row >= n || d * 8 >= head_dim) continue;
            *reinterpret_cast<uint32_t *>(y + row * width + d * 8 + 2 * t) =
                osh_cu_two<T>(__fmul_rn(o[0], by), __fmul_rn(o[1], by));
        }
    }
}

/* The rows that one block of a launch computes. */
typedef struct fused_place {
    /* The block computes queries [block, end) of the sample; they see keys below `end`. */
    int block, end;
    int q_width, width; // number of elements of a row: q_width for q and y, width for k and v
    /* Indices of elements.
     * q: first element of the head in the block's first query.
     * k: first element of the kv head in the first key of the sample. */
    int64_t q, k;
} fused_place;

static __device__ __forceinline__ fused_place fused_find(const fused_shape &p,
                                                         const fused_samples &of)
{
    int n_tiles = of.tile[of.n], head = (int)blockIdx.x / n_tiles,
        tile = n_tiles - 1 - (int)blockIdx.x % n_tiles;
    /* The last queries of a sample see the most keys, so blocks with these queries are started
     * first. */
    int sample = 0;
    while (tile >= of.tile[sample + 1]) sample++;
    fused_place at;
    at.block = (tile - of.tile[sample]) * FUSED_QUERIES,
    at.end = min(of.T[sample], at.block + FUSED_QUERIES);
    at.q_width = p.n_heads * p.head_dim, at.width = at.q_width / p.group;
    at.q = (of.row[sample] + at.block) * at.q_width + head * p.head_dim;
    at.k = of.row[sample] * at.width + head / p.group * p.head_dim;
    return at;
}

template <class T, int DIM, int BANDS>
static __global__ void __launch_bounds__(fused_plan<DIM, BANDS>::THREADS,
                                         fused_plan<DIM, BANDS>::BLOCKS)
    fused_kernel(T *y, const T *q, const T *k, const T *v, fused_shape p, const fused_samples of)
{
    typedef fused_plan<DIM, BANDS> plan;
    /* ROWS: number of queries of a warp. */
    const int THREADS = plan::THREADS, KEPT = plan::KEEPS ? DIM / 16 : 1, ROWS = 16 * BANDS;
    OSH_DYNAMIC_SHARED(T, shared);
    const fused_place at = fused_find(p, of);
    /* `first`, `last`: first and last query of the warp, as positions in the sample. */
    int first = at.block + (int)threadIdx.x / 32 * ROWS, last = first + ROWS - 1;
    int key =
        p.window && at.block >= p.window ? (at.block - p.window + 1) / FUSED_KEYS * FUSED_KEYS : 0;
    /* Offsets of the ring's slots that have the current keys and values. */
    int keys = plan::RING, values = keys + plan::HALF;
    int64_t at_k = at.k + (int64_t)key * at.width;

    fused_fetch<T, DIM, THREADS, FUSED_QUERIES>(shared, q + at.q, at.q_width, p.head_dim,
                                                at.end - at.block);
    fused_fetch<T, DIM, THREADS, FUSED_KEYS>(shared + keys, k + at_k, at.width, p.head_dim,
                                             at.end - key);
    osh_cu_async_commit();
    fused_fetch<T, DIM, THREADS, FUSED_KEYS>(shared + values, v + at_k, at.width, p.head_dim,
                                             at.end - key);
    osh_cu_async_commit();
    fused_state<DIM, BANDS> w;
#pragma unroll
    for (int band = 0; band < BANDS; band++) {
#pragma unroll
        for (int d = 0; d < DIM / 8; d++) w.o[band][d] = {{0, 0, 0, 0}};
        w.b[band][0] = w.b[band][1] = -INFINITY, w.l[band][0] = w.l[band][1] = 0;
    }
    osh_cu_frag_a kept[KEPT][BANDS];
    if (plan::KEEPS) {
        osh_cu_async_wait<1>();
        __syncthreads();
#pragma unroll
        for (int d = 0; d < KEPT; d++)
            fused_queries<T, DIM>(kept[d], shared, fused_mine<DIM, BANDS>(), d);
    }
    for (; key < at.end; key += FUSED_KEYS) {
        /* `spare`: offset of the third slot of the ring, which is free. */
        int next = key + FUSED_KEYS, spare = 3 * (plan::RING + plan::HALF) - keys - values;
        bool sees = first < at.end && key <= last && !(p.window && first - (next - 1) >= p.window);
        osh_cu_frag_a P[BANDS][FUSED_KEYS / 16];
        at_k += FUSED_KEYS * at.width;
        osh_cu_async_wait<1>();
        /* After this barrier all copies of the keys are complete, and no thread reads the previous
         * values. */
        __syncthreads();
        if (next < at.end)
            fused_fetch<T, DIM, THREADS, FUSED_KEYS>(shared + spare, k + at_k, at.width, p.head_dim,
                                                     at.end - next);
        osh_cu_async_commit();
        if (sees) {
            osh_cu_frag_c s[BANDS][FUSED_KEYS / 8];
            fused_scores<T, DIM, BANDS, KEPT>(s, kept, shared, fused_mine<DIM, BANDS>(),
                                              fused_lane<DIM>(keys));
#pragma unroll
            for (int band = 0; band < BANDS; band++) {
                if (next - 1 > first || (p.window && last - key >= p.window))
                    fused_mask(s[band], key, first + 16 * band, p.window);
                fused_softmax<T, DIM, BANDS>(P[band], w, band, s[band], p.c);
            }
        }
        osh_cu_async_wait<1>();
        // after this barrier all copies of the values are complete, and no thread reads the keys
        __syncthreads();
        if (next < at.end)
            fused_fetch<T, DIM, THREADS, FUSED_KEYS>(shared + keys, v + at_k, at.width, p.head_dim,
                                                     at.end - next);
        osh_cu_async_commit();
        if (sees) fused_values<T, DIM, BANDS>(w, P, shared, fused_lane<DIM>(values));
        values = keys, keys = spare;
    }
    if (first < at.end)
        fused_store<T, DIM>(y + at.q + (first - at.block) * at.q_width, w, at.q_width, p.head_dim,
                            at.end - first);
}

/* ---- host ---- */
template <class T, int DIM, int BANDS>
static osh_status fused_launch(osh_ctx *cx, const osh_op_args *a, const fused_shape &p,
                               const fused_samples &of)
{
    osh_status rc = OSH_OK;
    typedef fused_plan<DIM, BANDS> plan;

    OSH_CUDA(cx, cudaFuncSetAttribute(fused_kernel<T, DIM, BANDS>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, plan::BYTES));
    OSH_LAUNCH((fused_kernel<T, DIM, BANDS>), (unsigned)(of.tile[of.n] * p.n_heads), plan::THREADS,
               (size_t)plan::BYTES, osh_cuda_stream(a->out[0]->device),
               static_cast<T *>(a->out[0]->data), static_cast<const T *>(a->in[0]->data),
               static_cast<const T *>(a->in[1]->data), static_cast<const T *>(a->in[2]->data), p,
               of);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* Launches warps with two bands if two blocks of such warps fit in a multiprocessor, else warps
 * with one band. The shared memory of a block includes 1 KiB for the driver. */
template <class T, int DIM>
static osh_status fused_bands(osh_ctx *cx, const osh_op_args *a, const fused_shape &p,
                              const fused_samples &of)
{
    if (2 * (fused_plan<DIM, 2>::BYTES + 1024) <= osh_cuda_shared_bytes(a->out[0]->device))
        return fused_launch<T, DIM, 2>(cx, a, p, of);
    return fused_launch<T, DIM, 1>(cx, a, p, of);
}

template <class T>
static osh_status fused_of(osh_ctx *cx, const osh_op_args *a, const fused_shape &p,
                           const fused_samples &of)
{
    if (p.head_dim <= 32) return fused_launch<T, 32, 2>(cx, a, p, of);
    if (p.head_dim <= 64) return fused_launch<T, 64, 2>(cx, a, p, of);
    if (p.head_dim <= 96) return fused_bands<T, 96>(cx, a, p, of);
    return fused_bands<T, FUSED_MAX_DIM>(cx, a, p, of);
}

/* Runs all samples of the batch, FUSED_SAMPLES in each launch. */
static osh_status fused_run(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_attention_attr *at = static_cast<const osh_attention_attr *>(a->attr);
    int64_t N = osh_rows(a->in[0]), one[2] = {0, N}, n_seqs = a->seqs ? a->seqs->n : 1;
    const int64_t *offsets = a->seqs ? a->seqs->offsets : one;
    double scale = (float)(at->scale > 0 ? at->scale : 1 / sqrt((double)at->head_dim));
    fused_shape p = {(int)at->n_heads, (int)(at->n_heads / at->n_kv_heads), (int)at->head_dim,
                     at->sliding_window < N ? (int)at->sliding_window : 0,
                     (float)(scale * M_LOG2E)};
    fused_samples of = {};

    if (N * at->n_heads > INT32_MAX)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "attention: %lld tokens with %lld heads in a batch, want a product below 2^31",
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
