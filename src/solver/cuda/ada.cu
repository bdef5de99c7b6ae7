/* ada.cu - does the steps of AutoRound on a weight (solver/ada_there.h), and compares the outputs
 * of a block with their targets. A warp does the step of one group: first the offsets of its
 * columns, then the shares a and b of its range, then the weight. For the same gradients, the codes
 * are those of the host. The two sums of a group are doubles, of which only the signs count, so the
 * order of the additions may differ from that of the host. */
#include "solver/cuda/ada.cuh"

/* Returns the scale of a group of float codes before it is multiplied by its share b. */
__device__ static inline float ada_float_scale(const osh_ada_there &p, const osh_ada_group &g)
{
    return p.whole_range ? __fdiv_rn(fmaxf(g.low, g.high), p.rule.grid.hi) : g.s0;
}

/* Computes g.s and g.z from the shares g.a and g.b. */
__device__ static void ada_range(const osh_ada_there &p, osh_ada_group &g)
{
    const osh_grid &grid = p.rule.grid;
    float low = __fmul_rn(g.a, g.low), high = __fmul_rn(g.b, g.high), now;
    g.s = g.s0, g.z = g.z0;
    if (g.a == 1 && g.b == 1) return;
    if (grid.digits) {
        now = osh_ada_stored(p.rule, __fmul_rn(ada_float_scale(p, g), g.b));
        if (now > 0) g.s = now;
        return;
    }
    if (p.signed_scales && !p.has_zero) {
        now = osh_ada_rounded(p.rule.dtype, __fdiv_rn(low > high ? low : -high, -grid.lo));
        if (now != 0) g.s = now;
        return;
    }
    float all = p.has_zero ? __fadd_rn(g.high, g.low) : fmaxf(g.low, g.high);
    now = p.has_zero ? __fadd_rn(high, low) : fmaxf(low, high);
    g.s = osh_ada_rounded(p.rule.dtype, all > 0 ? __fdiv_rn(__fmul_rn(g.s0, now), all) : g.s0);
    if (!(g.s > 0)) g.s = g.s0;
    if (p.has_zero)
        g.z = fmaxf(grid.lo, fminf(grid.hi, rintf(__fadd_rn(grid.lo, __fdiv_rn(low, g.s)))));
}

/* Does a step on the offsets of the columns of lane `lane`. Adds their dloss / ds to *ds, and their
 * dloss / dz to *dz. */
template <class S>
__device__ static void ada_move_offsets(const osh_ada_there &p, const osh_ada_group &g, int lane,
                                        double *ds, double *dz)
{
    const S *w = static_cast<const S *>(p.w);
    bool minus = g.s < 0; // a negative scale reverses the sign of the gradient
    for (int64_t i = g.first + lane; i < g.first + g.n; i += LANES) {
        float u, v = p.x[i], grad = p.grad[i];
        bool in;
        float whole = __fsub_rn(osh_ada_code(p, g, osh_cu_load(w[i]), v, &u, &in), g.z);
        *ds += (double)__fmul_rn(in ? __fsub_rn(whole, u) : whole, grad);
        if (p.has_zero && !in) *dz += (double)__fmul_rn(grad, -g.s);
        if (!in) continue;
        if (minus) grad = -grad;
        v = grad > 0 ? __fsub_rn(v, p.rate) : grad < 0 ? __fadd_rn(v, p.rate) : v;
        p.x[i] = v > 0.5f ? 0.5f : v < -0.5f ? -0.5f : v;
    }
}

__device__ static inline float ada_moved(float share, double gradient, float rate)
{
    float by = gradient > 0 ? rate : gradient < 0 ? -rate : 0;
    return fminf(1, fmaxf(0, __fsub_rn(share, by)));
}

/* Changes the shares by the signs of their gradients. */
__device__ static void ada_move_shares(const osh_ada_there &p, osh_ada_group &g, double ds,
                                       double dz)
{
    double low = g.low, high = g.high, s = g.s, all = p.has_zero ? high + low : fmax(low, high);
    double by = all > 0 ? g.s0 / all : 0;
    bool lower = g.a * low > g.b * high;
    if (p.signed_scales && !p.has_zero) by = (lower ? 1 : -1) / -(double)p.rule.grid.lo;
    double to_a = p.has_zero || lower ? low * by : 0, to_b = p.has_zero || !lower ? high * by : 0;
    if (p.rule.grid.digits) to_a = 0, to_b = ada_float_scale(p, g);
    // z = lo + a low / s depends on s, so a part of dloss / dz belongs to dloss / ds
    if (p.has_zero) ds -= dz * g.a * low / (s * s);
    double by_a = ds * to_a + (p.has_zero ? dz * low / s : 0), by_b = ds * to_b;
    g.a = ada_moved(g.a, by_a, p.share_rate), g.b = ada_moved(g.b, by_b, p.share_rate);
}

/* Writes the weights of the columns of lane `lane`, and their codes if p.codes is set. */
template <class S>
__device__ static void ada_write(const osh_ada_there &p, const osh_ada_group &g, int lane)
{
    const S *w = static_cast<const S *>(p.w);
    S *to = static_cast<S *>(p.to);
    for (int64_t i = g.first + lane; i < g.first + g.n; i += LANES) {
        float u, x = osh_cu_load(w[i]);
        bool in, zero = p.keep_zeros && x == 0;
        float q = zero ? g.z : osh_ada_code(p, g, x, p.x[i], &u, &in);
        osh_cu_store(&to[i], __fmul_rn(__fsub_rn(q, g.z), g.s));
        // the addition replaces -0 by 0
        if (p.codes) p.codes[i] = (int8_t)osh_cu_code(p.rule.grid, __fadd_rn(q, 0));
    }
}

template <class S> static __global__ void ada_kernel(osh_ada_there p)
{
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    int64_t n = p.O * p.groups;
    for (int64_t k = (int64_t)blockIdx.x * WARPS + warp; k < n; k += (int64_t)gridDim.x * WARPS) {
        float *small = p.small + k;
        osh_ada_group g = osh_ada_group_at(p, k);
        ada_range(p, g);
        if (p.step) {
            double ds = 0, dz = 0;
            ada_move_offsets<S>(p, g, lane, &ds, &dz);
            ds = osh_ada_warp_sum(ds), dz = osh_ada_warp_sum(dz);
            if (p.share_rate > 0) ada_move_shares(p, g, ds, dz);
            ada_range(p, g);
        }
        ada_write<S>(p, g, lane);
        __syncwarp(); // all lanes have read the numbers of the group
        if (lane == 0 && p.step) small[OSH_ADA_D * n] = g.a, small[OSH_ADA_MEAN * n] = g.b;
        if (lane == 0 && p.codes) small[OSH_ADA_BEST_S * n] = g.s, small[OSH_ADA_BEST_Z * n] = g.z;
    }
}

osh_status osh_ada_run_cuda(osh_ctx *cx, osh_device *d, const osh_ada_there *a)
{
    osh_status rc = OSH_OK;
    if (a->kind != OSH_ADA_SIGN) return osh_ada_adam_cuda(cx, d, a);
    OSH_CU_BY_STORED(a->dtype, S,
        OSH_LAUNCH(ada_kernel<S>, osh_cu_grid(d, a->O * a->groups, WARPS), THREADS, 0,
                   osh_cuda_stream(d), *a));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

static __global__ void ada_add(float *sum, const float *x, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * THREADS)
        sum[i] += x[i];
}

osh_status osh_ada_add_cuda(osh_ctx *cx, osh_device *d, float *sum, const float *x, int64_t n)
{
    osh_status rc = OSH_OK;
    OSH_LAUNCH(ada_add, osh_cu_grid(d, n, THREADS), THREADS, 0, osh_cuda_stream(d), sum, x, n);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

struct ada_rows { // rows to compare
    int64_t n, width;
    const uint8_t *counted; // osh_ada_compared.counted
};

/* A warp compares a row at a time. */
template <class T>
static __global__ void ada_compare(float *dy, double *sums, const T *y, const T *y0, ada_rows of,
                                   double by)
{
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    for (int64_t r = (int64_t)blockIdx.x * WARPS + warp; r < of.n;
         r += (int64_t)gridDim.x * WARPS) {
        double sum = 0;
        bool counts = !of.counted || of.counted[r];
        for (int64_t i = r * of.width + lane; i < (r + 1) * of.width; i += LANES) {
            float e = counts ? __fsub_rn(osh_cu_load(y[i]), osh_cu_load(y0[i])) : 0;
            sum += (double)e * e;
            dy[i] = (float)(by * e);
        }
        sum = osh_ada_warp_sum(sum);
        if (lane == 0) sums[r] = sum;
    }
}

osh_status osh_ada_compare_cuda(osh_ctx *cx, const osh_ada_compared *c)
{
    osh_status rc = OSH_OK;
    osh_device *d = c->y->device;
    ada_rows of = {c->y->shape[0], c->y->shape[1], c->counted};
    if (!of.n) return OSH_OK;
    OSH_CU_BY_DTYPE(c->y->dtype, T,
        OSH_LAUNCH(ada_compare<T>, osh_cu_grid(d, of.n, WARPS), THREADS, 0, osh_cuda_stream(d),
                   static_cast<float *>(c->dy->data), c->sums,
                   static_cast<const T *>(c->y->data), static_cast<const T *>(c->y0->data), of,
                   c->by));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
