/* routed.cuh - multiplies the rows (tokens) of an expert by the expert's weights, y = x W^T, with
 * the instruction mma m16n8k16. One launch computes many experts.
 *
 *   rows of expert 5: 3, 8, 40     x[3], x[8], x[40] -> tile of 128 x 128 -> y[3], y[8], y[40]
 *
 * Without `scatter`, the rows of an expert are y[first], y[first + 1], and so on. They follow the
 * rows of the previous expert.
 *
 * A block of four warps computes a tile. Each warp computes 64 x 64 elements of the tile: four
 * matrices of x and four of W, read by ldmatrix, are the operands of 32 mma instructions.
 * Asynchronous copies move 32 elements of each row at a time to shared memory, in a ring of four
 * stages. Rows of a stage are padded by 16 bytes, so that the eight rows of a matrix are in
 * different banks. In every tile, an element of y is summed over the row of x from the first
 * element to the last, 16 per instruction. So the element does not depend on the other rows or
 * experts.
 *
 * With an activation, a tile has 64 columns of `gate` and 64 columns of `up`. A warp has 32 columns
 * of both, and the lane that holds an element of `gate` also holds the same element of `up`. The
 * lane computes y = act(gate) up, rounded as in the op glu.
 *
 * The dtype is bf16 or f16. Rows of x and of y begin at multiples of 16 bytes. */
#ifndef OSH_ROUTED_CUH
#define OSH_ROUTED_CUH
#include "ops/cuda/act.cuh"
#include "ops/cuda/mma.cuh"

enum {
    ROUTED_TILE = 128,
    ROUTED_STEP = 32,
    ROUTED_STAGES = 4,
    ROUTED_THREADS = 128,
    ROUTED_LD = ROUTED_STEP + 8
};
enum { ROUTED_SIDE = ROUTED_TILE * ROUTED_LD }; // number of elements of x, or of W, in one stage
/* Number of elements of the shared memory of a block. */
enum { ROUTED_SHARED = ROUTED_STAGES * 2 * ROUTED_SIDE };
enum { ROUTED_WARP = 64 }; // number of rows and of columns of a tile that one warp computes

typedef struct routed_part { // weights and rows of one expert; all pointers are views of GPU memory
    const void *w[2]; // w[0] is the weight [O, I]; with an activation, w[0] is gate and w[1] is up
    const int32_t *rows; // indices of the rows (tokens) that are routed to the expert, [n]
    /* Index of the expert's first row in x (without gather) or in y (without scatter). */
    int64_t first;
    int32_t n, column;   // n: number of rows; column: column of the expert in the router's output
    /* Set to the index of the first NaN or infinity in y [N, O], if this index is below *found.
     * NULL: no search. */
    long long *found;
} routed_part;

/* Rows of a tile.
 * part: index of the routed_part.
 * row: index of the tile's first row in routed_part.rows. */
typedef struct routed_tile { int32_t part, row; } routed_tile;

typedef struct routed_sizes {
    int64_t I, O;
    /* gather: true if x has a row for each token; false if x has only the routed rows, expert by
     * expert.
     * scatter: the same for y. */
    bool gather, scatter;
} routed_sizes;

struct routed_plain { static constexpr bool PAIR = false; };

/* Source addresses of the copies of one thread: four rows of x and four rows of W. x_there,
 * w_there: false if zeros are copied instead of the row. */
template <class T> struct routed_reader {
    const T *x[4], *w[4];
    bool x_there[4], w_there[4];
};

/* Returns the index in y of column v of a tile. The column is computed from the row of W with the
 * same index. */
template <bool PAIR> static __device__ __forceinline__ int64_t routed_column(int v)
{
    if (!PAIR) return (int64_t)blockIdx.x * ROUTED_TILE + v;
    /* The columns of a tile alternate: 32 columns of gate, then the same 32 columns of up. */
    return (int64_t)blockIdx.x * (ROUTED_TILE / 2) + v / 64 * 32 + v % 32;
}

template <class T, bool PAIR>
static __device__ __forceinline__ void
routed_begin(routed_reader<T> &r, const T *x, const routed_part &p, int row0, const routed_sizes &z)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int v = (int)threadIdx.x / 4 + 32 * i, row = row0 + v;
        int64_t column = routed_column<PAIR>(v);
        r.x_there[i] = row < p.n, r.w_there[i] = column < z.O;
        int64_t at = !r.x_there[i] ? 0 : z.gather ? p.rows[row] : p.first + row;
        r.x[i] = x + at * z.I;
        r.w[i] = static_cast<const T *>(p.w[PAIR ? i % 2 : 0]) + (r.w_there[i] ? column * z.I : 0);
    }
}

/* Starts to copy elements [k, k + ROUTED_STEP) of the thread's rows to a stage. Elements whose
 * index is I or higher become zeros. */
template <class T>
static __device__ __forceinline__ void routed_fetch(T *stage, const routed_reader<T> &r, int64_t k,
                                                    int64_t I)
{
    int col = (int)threadIdx.x % 4 * 8;
    bool inside = k + col < I;
    int64_t from = inside ? k + col : 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        T *to = stage + ((int)threadIdx.x / 4 + 32 * i) * ROUTED_LD + col;
        osh_cu_async_copy(to, r.x[i] + from, inside && r.x_there[i]);
        osh_cu_async_copy(to + ROUTED_SIDE, r.w[i] + from, inside && r.w_there[i]);
    }
}

/* Adds the products of one stage to acc [64, 64], the sums of the warp. */
template <class T>
static __device__ __forceinline__ void routed_multiply(osh_cu_frag_c (&acc)[4][8], const T *stage)
{
    int warp = (int)threadIdx.x / 32, m = (int)threadIdx.x % 32 / 8, r = (int)threadIdx.x % 8;
    const T *x = stage + (warp / 2 * ROUTED_WARP + m % 2 * 8 + r) * ROUTED_LD + m / 2 * 8;
    const T *w =
        stage + ROUTED_SIDE + (warp % 2 * ROUTED_WARP + m / 2 * 8 + r) * ROUTED_LD + m % 2 * 8;
#pragma unroll
    for (int k = 0; k < ROUTED_STEP; k += 16) {
        osh_cu_frag_a a[4];
#pragma unroll
        for (int i = 0; i < 4; i++) osh_cu_ldmatrix<false>(a[i].r, x + i * 16 * ROUTED_LD + k);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t b[4];
            osh_cu_ldmatrix<false>(b, w + j * 16 * ROUTED_LD + k);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                osh_cu_mma<T>(acc[i][2 * j], a[i], {{b[0], b[1]}});
                osh_cu_mma<T>(acc[i][2 * j + 1], a[i], {{b[2], b[3]}});
            }
        }
    }
}

/* Writes two consecutive elements of a row of y. If an element is NaN or infinite, sets *p.found to
 * the minimum of *p.found and the index of the first such element. */
template <class T>
static __device__ __forceinline__ void routed_store(T *y, float lo, float hi, const routed_part &p,
                                                    int64_t token_at)
{
    uint32_t two = osh_cu_two<T>(lo, hi);
    *reinterpret_cast<uint32_t *>(y) = two;
    if (!p.found) return;
    T one[2];
    one[0].bits = (uint16_t)two, one[1].bits = (uint16_t)(two >> 16);
    if (!osh_cu_is_finite(osh_cu_load(one[1]))) atomicMin(p.found, (long long)(token_at + 1));
    if (!osh_cu_is_finite(osh_cu_load(one[0]))) atomicMin(p.found, (long long)token_at);
}

template <class T, class ACT>
static __device__ __forceinline__ void routed_finish(T *y, const osh_cu_frag_c (&acc)[4][8],
                                                     const routed_part &p, int row0,
                                                     const routed_sizes &z, ACT act)
{
    int warp = (int)threadIdx.x / 32, g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    const int N = ACT::PAIR ? 4 : 8;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = row0 + warp / 2 * ROUTED_WARP + i * 16 + half * 8 + g;
            if (row >= p.n) continue;
            int64_t token = p.rows[row], to = z.scatter ? token : p.first + row;
#pragma unroll
            for (int j = 0; j < N; j++) {
                int64_t column = routed_column<ACT::PAIR>(warp % 2 * ROUTED_WARP + j * 8 + 2 * t);
                if (column >= z.O) continue;
                float lo = acc[i][j].v[2 * half], hi = acc[i][j].v[2 * half + 1];
                if constexpr (ACT::PAIR) {
                    const float *up = &acc[i][j + 4].v[2 * half];
                    lo = act(osh_cu_round<T>(lo), osh_cu_round<T>(up[0]));
                    hi = act(osh_cu_round<T>(hi), osh_cu_round<T>(up[1]));
                }
                routed_store<T>(y + to * z.O + column, lo, hi, p, token * z.O + column);
            }
        }
}

/* Computes the tiles that `tiles` lists. If `tiles` is NULL, computes all tiles of the routed_part
 * `one`. The result is:
 *
 *   without an activation   y = x W^T
 *   with an activation      y = act(x gate^T) (x up^T) */
template <class T, class ACT>
static __global__ void __launch_bounds__(ROUTED_THREADS, 2)
    routed_product(T *y, const T *x, const routed_part *parts, const routed_tile *tiles,
                   routed_part one, routed_sizes z, ACT act)
{
    OSH_DYNAMIC_SHARED(T, shared);
    int row0 = tiles ? tiles[blockIdx.y].row : (int)blockIdx.y * ROUTED_TILE;
    routed_part p = tiles ? parts[tiles[blockIdx.y].part] : one;
    routed_reader<T> r;
    osh_cu_frag_c acc[4][8];

    routed_begin<T, ACT::PAIR>(r, x, p, row0, z);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) acc[i][j] = {{0, 0, 0, 0}};
    for (int s = 0; s < ROUTED_STAGES - 1; s++) {
        routed_fetch<T>(shared + s * 2 * ROUTED_SIDE, r, s * ROUTED_STEP, z.I);
        osh_cu_async_commit();
    }
    int stage = 0, next = ROUTED_STAGES - 1;
    for (int64_t k = 0; k < z.I; k += ROUTED_STEP) {
        osh_cu_async_wait<ROUTED_STAGES - 2>();
        /* After this barrier the copies to stage `stage` are complete, and no thread reads stage
         * `next`, which is filled now. */
        __syncthreads();
        routed_fetch<T>(shared + next * 2 * ROUTED_SIDE, r, k + (ROUTED_STAGES - 1) * ROUTED_STEP,
                        z.I);
        osh_cu_async_commit();
        routed_multiply<T>(acc, shared + stage * 2 * ROUTED_SIDE);
        stage = stage + 1 == ROUTED_STAGES ? 0 : stage + 1,
        next = next + 1 == ROUTED_STAGES ? 0 : next + 1;
    }
    osh_cu_async_wait<0>(); // waits for the last copies, which are zeros that no thread reads
    routed_finish<T, ACT>(y, acc, p, row0, z, act);
}

/* ---- host ---- */

/* Arguments of routed_product; y, x, parts and tiles are views of GPU memory. */
typedef struct routed_launch {
    void *y;
    const void *x;
    const routed_part *parts;
    const routed_tile *tiles; // tiles of the launch; NULL: all tiles of the routed_part `one`
    routed_part one;
    routed_sizes z;
    int64_t n_tiles;
} routed_launch;

template <class T, class ACT>
static osh_status routed_run(osh_ctx *cx, osh_device *d, const routed_launch &l, ACT act)
{
    osh_status rc = OSH_OK;
    const int n_bytes = ROUTED_SHARED * (int)sizeof(T);
    dim3 grid((unsigned)osh_div_up(l.z.O, ACT::PAIR ? ROUTED_TILE / 2 : ROUTED_TILE),
              (unsigned)l.n_tiles);

    if (!l.n_tiles) return OSH_OK;
    OSH_CUDA(cx, cudaFuncSetAttribute(routed_product<T, ACT>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes));
    OSH_LAUNCH((routed_product<T, ACT>), grid, ROUTED_THREADS, (size_t)n_bytes, osh_cuda_stream(d),
               static_cast<T *>(l.y), static_cast<const T *>(l.x), l.parts, l.tiles, l.one, l.z,
               act);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
#endif
