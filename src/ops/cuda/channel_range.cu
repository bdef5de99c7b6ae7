/* channel_range.cu - computes the smallest and the largest value of each channel (channel_range.c).
 *
 * A block has 8 warps. It reads 32 packs of channels from some of the rows. Each thread keeps the
 * range of the channels of one pack. The block combines the ranges of its warps. Then it extends
 * the output by atomic minima and maxima. */
#include "ops/cuda/channels.h"
#include "ops/cuda/extremes.cuh"
#include "ops/cuda/pack.cuh"

#include <math.h>

/* ROWS: smallest number of rows that a block reads. If x has fewer rows, one block reads all
 * rows. */
enum { WARPS = 8, THREADS = 32 * WARPS, ROWS = 128, BLOCKS_EACH = 8 };

/* Computes low[c] = min(low[c], x[., c]) and high[c] = max(high[c], x[., c]) for x [n, D]. V:
 * number of elements that a thread reads at once. V must divide D. fminf and fmaxf ignore NaN. */
template <class T, int V>
static __global__ void channel_range_kernel(float *low, float *high, const T *x, int64_t n,
                                            int64_t D)
{
    __shared__ float lows[WARPS][32 * V], highs[WARPS][32 * V];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t first = (int64_t)blockIdx.x * 32 * V, c = first + lane * V;
    float lo[V], hi[V];

    for (int k = 0; k < V; k++) lo[k] = INFINITY, hi[k] = -INFINITY;
    for (int64_t r = (int64_t)blockIdx.y * WARPS + warp; c < D && r < n;
         r += (int64_t)gridDim.y * WARPS) {
        osh_cu_pack<T> p;
        if (V == 1) p.v[0] = x[r * D + c];
        else p = osh_cu_pack_load(x + r * D + c);
        for (int k = 0; k < V; k++) {
            lo[k] = fminf(lo[k], osh_cu_load(p.v[k]));
            hi[k] = fmaxf(hi[k], osh_cu_load(p.v[k]));
        }
    }
    for (int k = 0; k < V; k++) lows[warp][lane * V + k] = lo[k], highs[warp][lane * V + k] = hi[k];
    __syncthreads();
    for (int i = threadIdx.x; i < 32 * V && first + i < D; i += THREADS) {
        float l = lows[0][i], h = highs[0][i];
        for (int w = 1; w < WARPS; w++) l = fminf(l, lows[w][i]), h = fmaxf(h, highs[w][i]);
        // nothing to add: the block has no rows, or only NaN in this channel
        if (!(l <= h)) continue;
        osh_cu_lower(low + first + i, l);
        osh_cu_raise(high + first + i, h);
    }
}

template <class T, int V>
static void channel_range_launch(float *to, const osh_tensor *x, int64_t n, int64_t D)
{
    int64_t columns = osh_div_up(D, 32 * V),
            most = osh_div_up((int64_t)osh_cuda_multiprocessors(x->device) * BLOCKS_EACH, columns),
            rows = osh_min64(osh_div_up(n, ROWS), most);
    OSH_LAUNCH((channel_range_kernel<T, V>), dim3((unsigned)columns, (unsigned)rows), THREADS, 0,
               osh_cuda_stream(x->device), to, to + D, static_cast<const T *>(x->data), n, D);
}

osh_status osh_channel_range_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0];
    int64_t n = osh_rows(x), D = osh_width(x);
    float *to = static_cast<float *>(a->out[0]->data);

    if (!n || !D) goto done;
    OSH_CU_BY_DTYPE(x->dtype, T, {
        if (osh_cu_packed(x, D)) channel_range_launch<T, osh_cu_pack<T>::N>(to, x, n, D);
        else channel_range_launch<T, 1>(to, x, n, D);
    });
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
