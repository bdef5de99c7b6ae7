/* tune.cu - does a step of Adam on a quantized weight or on the weight of a norm (solver/tune.h). A
 * warp does the step of one group: first the codes, then their scale, then the weight. The f32
 * operations are those of solver/tune.c, in the same order and without fused products. Only the sum
 * of a group is added in another order. */
#include "solver/cuda/ada.cuh"

/* Updates Adam's moving averages with the gradient g. Returns the change of the optimized number
 * for a learning rate of 1. */
__device__ static float tuned_move(const osh_tune_adam &a, float *mean, float *square, float g)
{
    float m = __fadd_rn(__fmul_rn(0.9f, *mean), __fmul_rn(0.1f, g)),
          s = __fadd_rn(__fmul_rn(0.95f, *square), __fmul_rn(__fmul_rn(0.05f, g), g));
    *mean = m, *square = s;
    float root = __fadd_rn(__fsqrt_rn(__fdiv_rn(s, a.square_part)), 1e-12f);
    return __fdiv_rn(__fdiv_rn(m, a.mean_part), root);
}

__device__ static inline float tuned_code(const osh_tune_codes &c, float v)
{
    return rintf(v < c.lo ? c.lo : v > c.hi ? c.hi : v);
}

/* Does a step on the codes of columns [first, end) that lane `lane` has. Returns the sum of their
 * g (q - z). */
__device__ static double tuned_codes(const osh_tune_codes &c, const osh_tune_adam &a, float s,
                                     float z, int64_t first, int64_t end)
{
    double sum = 0;
    for (int64_t i = first; i < end; i += LANES) {
        float v = c.v[i], grad = c.grad[i];
        sum += (double)__fmul_rn(grad, __fsub_rn(tuned_code(c, v), z));
        float g = v >= c.lo && v <= c.hi ? __fmul_rn(grad, s) : 0;
        float by = tuned_move(a, &c.mean[i], &c.square[i], g);
        c.v[i] = __fsub_rn(v, __fmul_rn(a.code_rate, by)), c.grad[i] = 0;
    }
    return sum;
}

template <class S, bool STEP>
static __global__ void tune_codes_kernel(osh_tune_codes c, S *w, osh_dtype dt, osh_tune_adam a)
{
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    int64_t n = c.I / c.G;
    for (int64_t k = (int64_t)blockIdx.x * WARPS + warp; k < c.O * c.G;
         k += (int64_t)gridDim.x * WARPS) {
        int64_t first = k * n + lane, end = (k + 1) * n;
        float d = c.d[k], s0 = c.s0[k], z = c.zero ? c.zero[k] : 0,
              s = osh_ada_rounded(dt, __fmul_rn(s0, __fadd_rn(1, d)));
        if (STEP) {
            float sum = (float)osh_ada_warp_sum(tuned_codes(c, a, s, z, first, end)),
                  mean = c.d_mean[k], square = c.d_square[k],
                  by = tuned_move(a, &mean, &square, __fmul_rn(sum, s0));
            d = __fsub_rn(d, __fmul_rn(a.rate, by));
            s = osh_ada_rounded(dt, __fmul_rn(s0, __fadd_rn(1, d)));
            __syncwarp(); // all lanes have read the numbers of the group
            if (lane == 0) c.d[k] = d, c.d_mean[k] = mean, c.d_square[k] = square;
        }
        for (int64_t i = first; i < end; i += LANES)
            osh_cu_store(&w[i], __fmul_rn(__fsub_rn(tuned_code(c, c.v[i]), z), s));
    }
}

osh_status osh_tune_codes_cuda(osh_ctx *cx, const osh_tune_codes *c, const osh_tune_adam *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = c->w->device;
    osh_dtype dt = c->w->dtype;
    unsigned grid = osh_cu_grid(d, c->O * c->G, WARPS);
    cudaStream_t stream = osh_cuda_stream(d);
    const osh_tune_adam none = {0, 0, 1, 1};
    if (a)
        OSH_CU_BY_DTYPE(dt, T,
            OSH_LAUNCH((tune_codes_kernel<T, true>), grid, THREADS, 0, stream, *c,
                       static_cast<T *>(c->w->data), dt, *a));
    else
        OSH_CU_BY_DTYPE(dt, T,
            OSH_LAUNCH((tune_codes_kernel<T, false>), grid, THREADS, 0, stream, *c,
                       static_cast<T *>(c->w->data), dt, none));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

template <class S, bool STEP>
static __global__ void tune_norm_kernel(osh_tune_norm n, S *to, osh_tune_adam a)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n.n;
         i += (int64_t)gridDim.x * THREADS) {
        float w = __fadd_rn(n.w0[i], n.offset), d = n.d[i];
        if (STEP) {
            float by = tuned_move(a, &n.mean[i], &n.square[i], __fmul_rn(n.grad[i], w));
            n.d[i] = d = __fsub_rn(d, __fmul_rn(a.rate, by));
        }
        n.grad[i] = 0;
        osh_cu_store(&to[i],
                     d == 0 ? n.w0[i] : __fsub_rn(__fmul_rn(w, __fadd_rn(1, d)), n.offset));
    }
}

osh_status osh_tune_norm_cuda(osh_ctx *cx, const osh_tune_norm *n, const osh_tune_adam *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = n->w->device;
    unsigned grid = osh_cu_grid(d, n->n, THREADS);
    const osh_tune_adam none = {0, 0, 1, 1};
    if (a)
        OSH_CU_BY_STORED(n->w->dtype, S,
            OSH_LAUNCH((tune_norm_kernel<S, true>), grid, THREADS, 0, osh_cuda_stream(d), *n,
                       static_cast<S *>(n->w->data), *a));
    else
        OSH_CU_BY_STORED(n->w->dtype, S,
            OSH_LAUNCH((tune_norm_kernel<S, false>), grid, THREADS, 0, osh_cuda_stream(d), *n,
                       static_cast<S *>(n->w->data), none));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
