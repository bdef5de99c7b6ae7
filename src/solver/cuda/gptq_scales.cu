/* gptq_scales.cu - searches scales on a GPU. A thread block searches one scale. Each thread of the
 * block computes the loss of one candidate scale, so no sum is split over threads. The weights are
 * read through shared memory. */
#include "solver/cuda/gptq_refine.cuh"
#include "solver/cuda/sizes.h"

/* THREADS: number of threads of a block, at least OSH_SCALE_CANDIDATES. CHUNK: number of weights
 * that a block reads at a time. */
enum { THREADS = 96, CHUNK = 512 };

/* Sets *s and *z to the scale and the zero point of candidate k, computed like osh_scale_of. The
 * zero point is clamped. */
template <class T>
__device__ static void candidate_scale(const osh_scale_rule &r, int k, float lo, float hi, float *s,
                                       float *z)
{
    float share = osh_scale_share(r.kind, k / OSH_SCALE_ZEROS), steps = r.grid.hi - r.grid.lo;
    float range =
        r.symmetric ? __fmul_rn(share, fmaxf(-lo, hi)) : __fmul_rn(share, __fsub_rn(hi, lo));
    *s = osh_cu_stored<T>(r, __fdiv_rn(range, r.symmetric ? steps / 2 : steps));
    if (*s == 0)
        *s = r.kind == OSH_SCALE_PLAIN ? osh_scale_least(r.dtype) : osh_cu_stored<T>(r, 0x1p-126f);
    *z = 0;
    if (r.symmetric) return;
    int beside = k % OSH_SCALE_ZEROS == 0 ? 0 : k % OSH_SCALE_ZEROS == 1 ? -1 : 1;
    float middle = __fsub_rn(r.grid.lo, rintf(__fdiv_rn(__fmul_rn(share, lo), *s)));
    *z = fminf(fmaxf(middle + (float)beside, r.grid.lo), r.grid.hi);
}

template <class S>
__device__ static float group_weight(const osh_cu_search &a, int64_t unit, int64_t e,
                                     int64_t n_cols)
{
    int64_t row = unit / a.across * a.row_block + e / n_cols,
            col = unit % a.across * a.group + e % n_cols;
    if (a.dead && a.dead[col]) return 0;
    return osh_cu_load(static_cast<const S *>(a.w)[row * a.row_step + col * a.col_step]);
}

/* Sets *lo to min(0, weights) and *hi to max(0, weights) over the n weights of the group. All
 * threads of the block get both results. */
template <class S>
__device__ static void find_group_range(const osh_cu_search &a, int64_t unit, int64_t n,
                                        int64_t n_cols, float *lo, float *hi)
{
    __shared__ float low[THREADS], high[THREADS];
    float least = 0, most = 0;
    for (int64_t e = threadIdx.x; e < n; e += THREADS) {
        float w = group_weight<S>(a, unit, e, n_cols);
        least = fminf(least, w), most = fmaxf(most, w);
    }
    low[threadIdx.x] = least, high[threadIdx.x] = most;
    __syncthreads();
    for (int k = 0; k < THREADS; k++) least = fminf(least, low[k]), most = fmaxf(most, high[k]);
    *lo = least, *hi = most;
}

template <class S, class T> static __global__ void scales_search_kernel(osh_cu_search a)
{
    __shared__ float x[CHUNK], cost[CHUNK];
    __shared__ double losses[THREADS];
    int64_t unit = blockIdx.x, row = unit / a.across * a.row_block, col = unit % a.across * a.group;
    int64_t n_rows = a.O - row < a.row_block ? a.O - row : a.row_block;
    int64_t n_cols = a.I - col < a.group ? a.I - col : a.group, n = n_rows * n_cols;
    int k = threadIdx.x, n_candidates = a.rule.fixed ? 1 : OSH_SCALE_CANDIDATES;
    bool mine = k < n_candidates && (k % OSH_SCALE_ZEROS == 0 || !a.rule.symmetric);
    float lo, hi, s, z;
    double loss = 0;

    find_group_range<S>(a, unit, n, n_cols, &lo, &hi);
    candidate_scale<T>(a.rule, k < n_candidates ? k : 0, lo, hi, &s, &z);
    float inverse = __fdiv_rn(1.0f, s), first = a.rule.grid.lo - z, last = a.rule.grid.hi - z;
    for (int64_t e0 = 0; e0 < n; e0 += CHUNK) {
        int m = n - e0 < CHUNK ? (int)(n - e0) : CHUNK;
        __syncthreads(); // after this barrier all threads have read the previous chunk
        for (int e = threadIdx.x; e < m; e += THREADS) {
            x[e] = group_weight<S>(a, unit, e0 + e, n_cols);
            cost[e] = a.weight ? a.weight[col + (e0 + e) % n_cols] : 1;
        }
        __syncthreads();
        float sum = 0;
        for (int e = 0; e < m && mine; e++) {
            float t =
                osh_cu_on_grid(a.rule.grid, fminf(fmaxf(__fmul_rn(x[e], inverse), first), last));
            float d = __fsub_rn(__fmul_rn(t, s), x[e]);
            sum = __fadd_rn(sum, __fmul_rn(__fmul_rn(d, d), cost[e]));
        }
        loss += sum;
    }
    losses[k] = mine ? loss : INFINITY;
    __syncthreads();
    int best = 0;
    for (int i = 1; i < THREADS; i++)
        if (losses[i] < losses[best]) best = i;
    if (k != best) return;
    a.scale[unit] = s;
    if (a.zero) a.zero[unit] = z;
}

osh_status osh_cuda_search(osh_ctx *cx, osh_device *d, const osh_cu_search *a, osh_dtype stored)
{
    osh_status rc = OSH_OK;
    int64_t units = osh_div_up(a->O, a->row_block) * a->across;
    OSH_CU_BY_STORED(stored, S,
                     OSH_CU_BY_DTYPE(a->rule.dtype, T,
                                     OSH_LAUNCH((scales_search_kernel<S, T>), (unsigned)units,
                                                THREADS, 0, osh_cuda_stream(d), *a)));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* ---- host ---- */
osh_status osh_gptq_scales_cuda(osh_ctx *cx, osh_device *d, const osh_gptq_scales_args *a)
{
    osh_status rc = OSH_OK;
    int64_t across = osh_div_up(a->I, a->group), n = osh_div_up(a->O, a->row_block) * across;
    size_t at[OSH_SCALES_N_ARRAYS], bytes = osh_scales_offsets(at, a->I, n);
    char *base = static_cast<char *>(osh_device_alloc(cx, d, bytes, OSH_LIFE_SHORT)); // own
    osh_cu_search s = {a->w->data, NULL, NULL, a->O, a->I, a->group, a->row_block,
                       across, a->I, 1, a->rule, NULL, NULL};

    if (!base) OSH_TRY(OSH_E_NOMEM);
    s.scale = reinterpret_cast<float *>(base + at[OSH_SCALES_SCALE]);
    if (a->zero) s.zero = reinterpret_cast<float *>(base + at[OSH_SCALES_ZERO]);
    if (a->weight) {
        OSH_TRY(d->type->put(cx, d, base + at[OSH_SCALES_WEIGHT], a->weight,
                             (size_t)a->I * sizeof *a->weight));
        s.weight = reinterpret_cast<float *>(base + at[OSH_SCALES_WEIGHT]);
    }
    if (a->dead) {
        OSH_TRY(d->type->put(cx, d, base + at[OSH_SCALES_DEAD], a->dead, (size_t)a->I));
        s.dead = reinterpret_cast<bool *>(base + at[OSH_SCALES_DEAD]);
    }
    OSH_TRY(osh_cuda_search(cx, d, &s, a->w->dtype));
    OSH_TRY(d->type->get(cx, d, a->scale, s.scale, (size_t)n * sizeof *a->scale));
    if (a->zero) OSH_TRY(d->type->get(cx, d, a->zero, s.zero, (size_t)n * sizeof *a->zero));
done:
    osh_device_free(d, base);
    return rc;
}
