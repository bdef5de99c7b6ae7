/* ada_adam.cu - does the steps of AdaRound and AdaQuant on a weight (solver/ada_there.h). A warp
 * does the step of one group: first the columns, then AdaQuant's scale, then the weight. The
 * results are those of the host, except where exp, log or the order of a sum round differently. */
#include "solver/cuda/ada.cuh"

__device__ static inline float adam_average(float old, float keeps, float x, float takes)
{
    return __fadd_rn(__fmul_rn(old, keeps), __fmul_rn(x, takes));
}

/* Returns x after a step of Adam with the gradient g. */
__device__ static float adam_moved(const osh_ada_there &p, int64_t i, float x, float g)
{
    float a = adam_average(p.mean[i], 0.9f, g, 0.1f),
          b = adam_average(p.square[i], 0.999f, __fmul_rn(g, g), 0.001f);
    p.mean[i] = a, p.square[i] = b;
    float root = __fadd_rn(__fmul_rn(__fsqrt_rn(b), p.root_part), 1e-8f);
    return __fsub_rn(x, __fdiv_rn(__fmul_rn(a, p.rate), root));
}

/* ---- AdaQuant ---- */

__device__ static inline float quant_scale(const osh_ada_there &p, const osh_ada_group &g, float d)
{
    float s = d == 0 ? 0 : osh_ada_stored(p.rule, __fmul_rn(g.s0, __fadd_rn(1, d)));
    return s > 0 ? s : g.s0;
}

/* Does a step of Adam on the change of the scale. Returns the new change. sum: dloss / ds. */
__device__ static float quant_move_scale(const osh_ada_there &p, const osh_ada_group &g,
                                         float *small, double sum)
{
    int64_t n = p.O * p.groups;
    float by = __fmul_rn((float)sum, g.s0), *mean = small + OSH_ADA_MEAN * n,
          *square = small + OSH_ADA_SQUARE * n;
    float a = adam_average(*mean, 0.9f, by, 0.1f),
          b = __fadd_rn(__fmul_rn(*square, 0.999f), __fmul_rn(__fmul_rn(by, 0.001f), by));
    __syncwarp(); // all lanes have read the averages
    if (threadIdx.x % LANES == 0) *mean = a, *square = b;
    float root = __fadd_rn(__fmul_rn(__fsqrt_rn(b), p.root_part), 1e-8f);
    float d = __fsub_rn(g.a, __fdiv_rn(__fmul_rn(p.share_rate, a), root));
    return d < -0.5f ? -0.5f : d;
}

template <class S>
__device__ static void quant_step(const osh_ada_there &p, osh_ada_group &g, float *small, int lane)
{
    const S *w = static_cast<const S *>(p.w);
    double sum = 0;
    for (int64_t i = g.first + lane; i < g.first + g.n; i += LANES) {
        float u, x = p.x[i], grad = p.grad[i];
        bool in;
        float whole = __fsub_rn(osh_ada_code(p, g, x, 0, &u, &in), g.z);
        sum += (double)__fmul_rn(in ? __fsub_rn(whole, u) : whole, grad);
        x = adam_moved(p, i, x, in ? grad : 0);
        p.x[i] = p.keep_zeros && osh_cu_load(w[i]) == 0 ? 0 : x;
    }
    sum = osh_ada_warp_sum(sum);
    if (p.share_rate <= 0) return;
    g.a = quant_move_scale(p, g, small, sum);
    g.s = quant_scale(p, g, g.a);
    if (lane == 0) small[OSH_ADA_D * p.O * p.groups] = g.a;
}

/* ---- AdaRound ---- */

/* Returns the largest value of the grid that is at most x. Sets *step to the distance to the next
 * value. */
__device__ static float round_floor(const osh_grid &grid, float x, float *step)
{
    *step = 1;
    if (!grid.digits) return floorf(x);
    int e = (int)(__float_as_uint(x) >> 23 & 0xff) - 126 - grid.digits;
    if (e < grid.least) e = grid.least;
    *step = __uint_as_float((uint32_t)(127 + e) << 23);
    return __fmul_rn(floorf(__fdiv_rn(x, *step)), *step);
}

__device__ static inline float round_soft(float v)
{
    return __fdiv_rn(1, __fadd_rn(1, expf(-v)));
}

/* Adds the slope of the rounding term at h to *g. Returns the term, 1 - |2 h - 1|^beta. */
__device__ static float round_term(const osh_ada_there &p, float h, float *g)
{
    float a = __fsub_rn(__fadd_rn(h, h), 1);
    bool up = a < 0;
    a = fminf(fabsf(a), 1);
    float power = expf(__fmul_rn(logf(fmaxf(a, 1e-30f)), __fsub_rn(p.beta, 1)));
    float slope = __fmul_rn(power, __fmul_rn(__fmul_rn(-2, p.beta), p.reg));
    *g = __fadd_rn(*g, up ? -slope : slope);
    return __fsub_rn(1, __fmul_rn(power, a));
}

template <class S>
__device__ static void round_step(const osh_ada_there &p, const osh_ada_group &g, float *small,
                                  int lane)
{
    const S *w = static_cast<const S *>(p.w);
    const osh_grid &grid = p.rule.grid;
    double sum = 0;
    for (int64_t i = g.first + lane; i < g.first + g.n; i += LANES) {
        float step, v = p.x[i], soft = round_soft(v),
                    base = round_floor(grid, __fdiv_rn(osh_cu_load(w[i]), g.s), &step);
        float h = __fsub_rn(__fmul_rn(soft, 1.2f), 0.1f),
              q = __fadd_rn(__fadd_rn(base, g.z), __fmul_rn(h, step));
        bool inside = h > 0 && h < 1, in = q >= grid.lo && q <= grid.hi;
        float by = in ? __fmul_rn(__fmul_rn(p.grad[i], g.s), step) : 0;
        if (p.reg > 0) sum += round_term(p, h, &by);
        by = inside ? __fmul_rn(by, __fmul_rn(__fmul_rn(soft, __fsub_rn(1, soft)), 1.2f)) : 0;
        p.x[i] = adam_moved(p, i, v, by);
    }
    sum = osh_ada_warp_sum(sum);
    if (lane == 0) small[OSH_ADA_BEST_S * p.O * p.groups] = (float)sum;
}

/* Returns the value of the grid for column i of AdaRound: the final value if p.last is true, else
 * the soft value. */
template <class S>
__device__ static float round_value(const osh_ada_there &p, const osh_ada_group &g, int64_t i)
{
    const osh_grid &grid = p.rule.grid;
    float step, v = p.x[i],
                u = __fdiv_rn(osh_cu_load(static_cast<const S *>(p.w)[i]), g.s),
                base = __fadd_rn(round_floor(grid, u, &step), g.z);
    float h = fminf(fmaxf(__fsub_rn(__fmul_rn(round_soft(v), 1.2f), 0.1f), 0), 1);
    if (p.last) h = v >= 0 ? 1 : 0;
    return fminf(fmaxf(__fadd_rn(base, __fmul_rn(h, step)), grid.lo), grid.hi);
}

/* ---- both ---- */

template <class S, bool ROUND>
__device__ static void adam_write(const osh_ada_there &p, const osh_ada_group &g, int lane)
{
    const S *w = static_cast<const S *>(p.w);
    S *to = static_cast<S *>(p.to);
    for (int64_t i = g.first + lane; i < g.first + g.n; i += LANES) {
        float u, q;
        bool in, zero = p.keep_zeros && osh_cu_load(w[i]) == 0;
        if (zero) q = g.z;
        else q = ROUND ? round_value<S>(p, g, i) : osh_ada_code(p, g, p.x[i], 0, &u, &in);
        osh_cu_store(&to[i], __fmul_rn(__fsub_rn(q, g.z), g.s));
        // the addition replaces -0 by 0
        if (p.codes) p.codes[i] = (int8_t)osh_cu_code(p.rule.grid, __fadd_rn(q, 0));
    }
}

template <class S, bool ROUND> static __global__ void adam_kernel(osh_ada_there p)
{
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    int64_t n = p.O * p.groups;
    for (int64_t k = (int64_t)blockIdx.x * WARPS + warp; k < n; k += (int64_t)gridDim.x * WARPS) {
        float *small = p.small + k;
        osh_ada_group g = osh_ada_group_at(p, k);
        g.z = g.z0, g.s = ROUND ? g.s0 : quant_scale(p, g, g.a);
        if (p.step && ROUND) round_step<S>(p, g, small, lane);
        if (p.step && !ROUND) quant_step<S>(p, g, small, lane);
        adam_write<S, ROUND>(p, g, lane);
        __syncwarp(); // all lanes have read the numbers of the group
        if (lane == 0 && p.codes) small[OSH_ADA_BEST_S * n] = g.s, small[OSH_ADA_BEST_Z * n] = g.z;
    }
}

/* Adds the rounding terms of the groups of each row in order. */
static __global__ void adam_terms(double *to, const float *terms, int64_t rows, int64_t groups)
{
    for (int64_t r = (int64_t)blockIdx.x * THREADS + threadIdx.x; r < rows;
         r += (int64_t)gridDim.x * THREADS) {
        double sum = 0;
        for (int64_t g = 0; g < groups; g++) sum += terms[r * groups + g];
        to[r] = sum;
    }
}

osh_status osh_ada_adam_cuda(osh_ctx *cx, osh_device *d, const osh_ada_there *a)
{
    osh_status rc = OSH_OK;
    unsigned grid = osh_cu_grid(d, a->O * a->groups, WARPS);
    cudaStream_t stream = osh_cuda_stream(d);
    if (a->kind == OSH_ADA_ROUND)
        OSH_CU_BY_STORED(a->dtype, S,
            OSH_LAUNCH((adam_kernel<S, true>), grid, THREADS, 0, stream, *a));
    else
        OSH_CU_BY_STORED(a->dtype, S,
            OSH_LAUNCH((adam_kernel<S, false>), grid, THREADS, 0, stream, *a));
    OSH_CUDA(cx, cudaGetLastError());
    if (!a->step || a->kind != OSH_ADA_ROUND) return rc;
    OSH_LAUNCH(adam_terms, osh_cu_grid(d, a->O, THREADS), THREADS, 0, stream, a->terms,
               a->small + OSH_ADA_BEST_S * a->O * a->groups, a->O, a->groups);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
