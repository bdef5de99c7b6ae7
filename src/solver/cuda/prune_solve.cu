/* prune_solve.cu - runs SparseGPT (solver/prune.h) on a GPU. The weight is in f32 in the arena. For
 * each block of columns, without an n:m pattern:
 *
 *   prune_count, prune_pick   find the threshold: the k-th smallest cost of all rows, bit by bit
 *
 * and with or without a pattern:
 *
 *   prune_rows_kernel         a warp prunes the block's columns of one row
 *   matrix product            updates the columns after the block
 *
 * The bits of a result depend only on the shapes. The counts are whole numbers, so the order of the
 * atomic additions has no effect. */
#include "ops/cuda/cast.cuh"
#include "ops/cuda/pack.cuh"
#include "solver/cuda/sizes.h"

enum { WARPS = 8, LANES = 32, THREADS = WARPS * LANES };

/* The block of columns [i1, i1 + cols) that is being pruned. All pointers are views of GPU
 * memory. */
typedef struct prune_columns {
    float *w;       // [O, I]
    float *ne;      // output: negated errors of the block, [O, cols]
    double *loss;   // [O]
    const float *u; // [I, I]
    int64_t O, I, i1;
    /* n of each m consecutive columns become 0. m = 0: weights whose cost is at most a threshold
     * become 0. */
    int cols, n, m;
    uint32_t *bins; // number of costs in each bin, [OSH_PRUNE_BINS]
    osh_prune_pick *pick;
} prune_columns;

__device__ static inline float prune_cost_of(const prune_columns &b, float w, int64_t c)
{
    float d = b.u[(b.i1 + c) * (b.I + 1)];
    return __fdiv_rn(__fmul_rn(w, w), __fmul_rn(d, d));
}

/* Converts the weight w to f32 in `to`, with 0 in dead columns. */
template <class S>
static __global__ void prune_widen(float *to, const S *w, const bool *dead, int64_t n, int64_t I)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * THREADS)
        to[i] = dead[i % I] ? 0 : osh_cu_load(w[i]);
}

template <class S> static __global__ void prune_narrow(S *to, const float *w, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * THREADS)
        osh_cu_store(&to[i], w[i]);
}

/* The known bits of a cost are the bits in pick->mask. Counts the costs whose known bits equal
 * pick->prefix. Counts them separately for each value of the next bits, which `shift` and `last`
 * select. */
static __global__ void prune_count(prune_columns b, int shift, uint32_t last)
{
    __shared__ uint32_t bins[OSH_PRUNE_BINS];
    uint32_t prefix = b.pick->prefix, mask = b.pick->mask;
    int lane = threadIdx.x % LANES;
    for (int i = threadIdx.x; i < OSH_PRUNE_BINS; i += THREADS) bins[i] = 0;
    __syncthreads();
    for (int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / LANES; r < b.O;
         r += (int64_t)gridDim.x * WARPS)
        for (int c = lane; c < b.cols; c += LANES) {
            float cost = prune_cost_of(b, b.w[r * b.I + b.i1 + c], c);
            uint32_t x = __float_as_uint(cost) & 0x7fffffffu;
            if ((x & mask) == prefix) atomicAdd(&bins[x >> shift & last], 1u);
        }
    __syncthreads();
    for (int i = threadIdx.x; i < OSH_PRUNE_BINS; i += THREADS)
        if (bins[i]) atomicAdd(&b.bins[i], bins[i]);
}

/* Finds the bin that contains the k-th smallest cost, extends pick->prefix by the bits of this bin,
 * and empties all bins. Runs in one thread block. */
static __global__ void prune_pick(prune_columns b, uint64_t k, int shift, uint32_t last)
{
    enum { EACH = OSH_PRUNE_BINS / THREADS };
    __shared__ uint64_t sums[THREADS];
    int t = threadIdx.x;
    uint64_t sum = 0;
    for (int i = 0; i < EACH; i++) sum += b.bins[t * EACH + i];
    sums[t] = sum;
    __syncthreads();
    if (t == 0) {
        uint64_t less = b.pick->less;
        uint32_t at = 0;
        while (at < THREADS - 1 && less + sums[at] <= k) less += sums[at++];
        for (at *= EACH; at < last && less + b.bins[at] <= k; at++) less += b.bins[at];
        b.pick->less = less;
        b.pick->prefix |= at << shift;
        b.pick->mask |= last << shift;
    }
    __syncthreads();
    for (int i = 0; i < EACH; i++) b.bins[t * EACH + i] = 0;
}

/* Sets elements [i, i + m) of `drop` for a row x: true for the n columns with the lowest costs,
 * false for the others. */
__device__ static inline void prune_choose(const prune_columns &b, bool *drop, const float *x,
                                           int i, int lane)
{
    for (int k = lane; k < b.m; k += LANES) {
        float mine = prune_cost_of(b, x[i + k], i + k);
        int before = 0;
        for (int o = 0; o < b.m; o++) {
            float other = prune_cost_of(b, x[i + o], i + o);
            before += other < mine || (other == mine && o < k);
        }
        drop[i + k] = before < b.n;
    }
    __syncwarp();
}

/* Prunes the columns of the block. Each warp has one row. Dynamic shared memory: f32 [WARPS, cols]
 * and bool [WARPS, cols]. */
static __global__ void prune_rows_kernel(prune_columns b)
{
    OSH_DYNAMIC_SHARED(float, shared);
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    int64_t row = (int64_t)blockIdx.x * WARPS + warp;
    float *x = shared + warp * b.cols, *w = b.w + row * b.I + b.i1;
    bool *drop = reinterpret_cast<bool *>(shared + WARPS * b.cols) + warp * b.cols;
    double loss = 0;

    /* The kernel has no barrier for the thread block, so a whole warp may return. */
    if (row >= b.O) return;
    float most = b.m ? 0 : __uint_as_float(b.pick->prefix);
    for (int c = lane; c < b.cols; c += LANES) {
        x[c] = w[c];
        if (!b.m) drop[c] = prune_cost_of(b, x[c], c) <= most;
    }
    __syncwarp();
    for (int i = 0; i < b.cols; i++) {
        const float *u = b.u + (b.i1 + i) * b.I + b.i1;
        if (b.m && i % b.m == 0) prune_choose(b, drop, x, i, lane);
        float ne = drop[i] ? -__fdiv_rn(x[i], u[i]) : 0;
        loss += (double)ne * ne / 2;
        if (lane == 0) b.ne[row * b.cols + i] = ne;
        if (ne == 0) continue; // all lanes of the warp take the same branch
        for (int c = i + 1 + lane; c < b.cols; c += LANES) x[c] = __fmaf_rn(ne, u[c], x[c]);
        __syncwarp();
    }
    for (int c = lane; c < b.cols; c += LANES) w[c] = drop[c] ? 0 : x[c];
    if (lane == 0) b.loss[row] += loss;
}

static unsigned prune_row_blocks(const prune_columns &b)
{
    return (unsigned)osh_div_up(b.O, WARPS);
}

/* Finds the k-th smallest cost of the weights of block b, as osh_kth does. */
static osh_status prune_find_most(osh_ctx *cx, osh_device *d, const prune_columns &b, int64_t k)
{
    static const int shifts[] = {20, 10, 0}, widths[] = {11, 10, 10};
    osh_status rc = OSH_OK;
    cudaStream_t s = osh_cuda_stream(d);
    OSH_TRY(d->type->fill(cx, d, b.pick, 0, sizeof *b.pick));
    for (int i = 0; i < 3; i++) {
        uint32_t last = (1u << widths[i]) - 1;
        OSH_LAUNCH(prune_count, osh_cu_grid(d, b.O, WARPS), THREADS, 0, s, b, shifts[i], last);
        OSH_CUDA(cx, cudaGetLastError());
        OSH_LAUNCH(prune_pick, 1, THREADS, 0, s, b, (uint64_t)k, shifts[i], last);
        OSH_CUDA(cx, cudaGetLastError());
    }
done:
    return rc;
}

/* Prunes the columns of the block b, and updates the later columns. */
static osh_status prune_run_block(osh_ctx *cx, osh_device *d, const prune_columns &b,
                                  double sparsity)
{
    osh_status rc = OSH_OK;
    int64_t i2 = b.i1 + b.cols, n = b.O * b.cols, k = (int64_t)((double)n * sparsity);
    size_t shared = (size_t)(WARPS * b.cols) * (sizeof(float) + sizeof(bool));
    if (!b.m) OSH_TRY(prune_find_most(cx, d, b, k < n ? k : n - 1));
    OSH_LAUNCH(prune_rows_kernel, prune_row_blocks(b), THREADS, shared, osh_cuda_stream(d), b);
    OSH_CUDA(cx, cudaGetLastError());
    if (i2 < b.I) {
        osh_cuda_mat c = {b.w + i2, b.I, 0, OSH_F32, false},
                     e = {b.ne, b.cols, 0, OSH_F32, false},
                     u = {const_cast<float *>(b.u) + b.i1 * b.I + i2, b.I, 0, OSH_F32, false};
        OSH_TRY(osh_cuda_gemm(cx, d, {&c, &e, &u, b.O, b.I - i2, b.cols, 1, 1, 1}));
    }
done:
    return rc;
}

/* Rounds the pruned weight w to its stored dtype, and copies it to x->out and x->w_out, piece by
 * piece. `room`: scratch for one piece, with `floats` floats. */
static osh_status prune_take_result(osh_ctx *cx, osh_device *d, const osh_prune_there *x,
                                    const float *w, void *room, int64_t floats)
{
    osh_status rc = OSH_OK;
    osh_dtype dt = x->w->dtype;
    size_t each = osh_dtype_bytes(dt);
    int64_t all = x->a->O * x->a->I, most = floats * (int64_t)sizeof(float) / (int64_t)each;
    for (int64_t at = 0, n; at < all; at += n) {
        n = osh_min64(most, all - at);
        OSH_CU_BY_STORED(dt, S,
            OSH_LAUNCH(prune_narrow<S>, osh_cu_grid(d, n, THREADS), THREADS, 0, osh_cuda_stream(d),
                       static_cast<S *>(room), w + at, n));
        OSH_CUDA(cx, cudaGetLastError());
        if (x->w_out)
            OSH_TRY(d->type->copy(cx, d, osh_elem(x->w_out, at), room, (size_t)n * each));
        OSH_TRY(d->type->get(cx, d, static_cast<char *>(x->out) + (size_t)at * each, room,
                             (size_t)n * each));
    }
done:
    return rc;
}

osh_status osh_prune_solve_cuda(osh_ctx *cx, osh_device *d, const osh_prune_there *x)
{
    osh_status rc = OSH_OK;
    const osh_prune_solve_args *a = x->a;
    size_t at[OSH_PRUNE_N_ARRAYS], size = osh_prune_offsets(at, a);
    char *base = static_cast<char *>(osh_device_alloc(cx, d, size, OSH_LIFE_SHORT)); // own
    if (!base) return OSH_E_NOMEM;
    float *w = reinterpret_cast<float *>(base + at[OSH_PRUNE_W]);
    bool *dead = reinterpret_cast<bool *>(base + at[OSH_PRUNE_DEAD]);
    prune_columns b = {w, reinterpret_cast<float *>(base + at[OSH_PRUNE_ERR]),
                       reinterpret_cast<double *>(base + at[OSH_PRUNE_LOSS]), a->u, a->O, a->I, 0,
                       0, (int)a->n, a->n ? (int)a->m : 0,
                       reinterpret_cast<uint32_t *>(base + at[OSH_PRUNE_COUNTS]),
                       reinterpret_cast<osh_prune_pick *>(base + at[OSH_PRUNE_PICK])};

    OSH_TRY(d->type->put(cx, d, dead, x->dead, (size_t)a->I * sizeof(bool)));
    OSH_TRY(d->type->fill(cx, d, b.loss, 0, (size_t)a->O * sizeof(double)));
    OSH_TRY(d->type->fill(cx, d, b.bins, 0, OSH_PRUNE_BINS * sizeof(uint32_t)));
    OSH_CU_BY_STORED(x->w->dtype, S,
        OSH_LAUNCH(prune_widen<S>, osh_cu_grid(d, a->O * a->I, THREADS), THREADS, 0,
                   osh_cuda_stream(d), w, static_cast<const S *>(x->w->data), dead, a->O * a->I,
                   a->I));
    OSH_CUDA(cx, cudaGetLastError());
    for (; b.i1 < a->I; b.i1 += a->block_size) {
        b.cols = (int)osh_min64(a->block_size, a->I - b.i1);
        OSH_TRY(prune_run_block(cx, d, b, a->sparsity));
    }
    OSH_TRY(d->type->get(cx, d, a->loss, b.loss, (size_t)a->O * sizeof(double)));
    OSH_TRY(prune_take_result(cx, d, x, w, b.ne, osh_prune_room(a)));
done:
    osh_device_free(d, base);
    return rc;
}
