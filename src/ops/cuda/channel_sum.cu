/* channel_sum.cu - sums |x| of each channel (channel_sum.c), and merges two states of this sum
 * (merge.c).
 *
 * A block computes 32 channels. Each of its warps sums some of the rows in double, and the first
 * warp adds these sums to the state in order. So the order of additions depends only on the number
 * of rows. */
#include "ops/cuda/channels.h"
#include "ops/cuda/pack.cuh"

enum { WARPS = 16, THREADS = 32 * WARPS, MERGE_THREADS = 256 };

/* Sets the sum of channel c to `all`. The state `sum` [2, D] has two rows: the float nearest to the
 * sum, and the rounding error of this float. So the sum is row 0 - row 1. */
static __device__ __forceinline__ void put_sum(float *sum, int64_t D, int64_t c, double all)
{
    sum[c] = (float)all;
    sum[D + c] = (float)(sum[c] - all);
}

/* Adds the sums of 32 channels of x [n, D] to the state sum [2, D]. */
template <class T>
static __global__ void channel_sum_kernel(float *sum, const T *x, int64_t n, int64_t D)
{
    __shared__ double shared[WARPS][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t c = (int64_t)blockIdx.x * 32 + lane;
    double all = 0;

    for (int64_t r = warp; c < D && r < n; r += WARPS) all += fabsf(osh_cu_load(x[r * D + c]));
    shared[warp][lane] = all;
    __syncthreads();
    if (warp || c >= D) return;
    all = (double)sum[c] - sum[D + c];
    for (int w = 0; w < WARPS; w++) all += shared[w][lane];
    put_sum(sum, D, c, all);
}

osh_status osh_channel_sum_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0];
    int64_t n = osh_rows(x), D = osh_width(x);

    if (!n || !D) goto done;
    OSH_CU_BY_DTYPE(x->dtype, T, {
        OSH_LAUNCH(channel_sum_kernel<T>, (unsigned)osh_div_up(D, 32), THREADS, 0,
                   osh_cuda_stream(x->device), static_cast<float *>(a->out[0]->data),
                   static_cast<const T *>(x->data), n, D);
    });
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

static __global__ void merge_sum_kernel(float *to, float *from, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        double all = ((double)to[i] - to[n + i]) + ((double)from[i] - from[n + i]);
        put_sum(to, n, i, all);
        from[i] = from[n + i] = 0;
    }
}

osh_status osh_merge_channel_sum_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    osh_tensor *to = a->out[0];
    int64_t n = to->shape[1];

    if (!n) goto done;
    OSH_LAUNCH(merge_sum_kernel, osh_cu_grid(to->device, n, MERGE_THREADS), MERGE_THREADS,
               0, osh_cuda_stream(to->device), static_cast<float *>(to->data),
               static_cast<float *>(a->out[1]->data), n);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
