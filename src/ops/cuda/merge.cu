/* merge.cu - merges two states of a statistic (merge.c): out[0] += out[1], and out[1] = 0. */
#include "ops/cuda/pack.cuh"

/* MOST_ROWS: largest number of thread blocks of a grid in the y dimension. */
enum { THREADS = 256, MOST_ROWS = 32768 };

/* Adds the lower triangle of `from` [n, n] to the lower triangle of `to`, and sets the lower
 * triangle of `from` to 0. */
static __global__ void merge_lower_kernel(float *to, float *from, int64_t n)
{
    int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    for (int64_t r = blockIdx.y; r < n; r += gridDim.y) {
        if (c > r) continue;
        to[r * n + c] = __fadd_rn(to[r * n + c], from[r * n + c]);
        from[r * n + c] = 0;
    }
}

osh_status osh_merge_lower_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    int64_t n = a->out[0]->shape[0];
    OSH_LAUNCH(merge_lower_kernel,
               dim3((unsigned)osh_div_up(n, THREADS), (unsigned)osh_min64(n, MOST_ROWS)), THREADS,
               0, osh_cuda_stream(a->out[0]->device), static_cast<float *>(a->out[0]->data),
               static_cast<float *>(a->out[1]->data), n);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* Adds `from` [n] to `to` [n], and sets `from` to 0. */
template <class T> static __global__ void merge_sums_kernel(T *to, T *from, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        to[i] += from[i];
        from[i] = 0;
    }
}

template <class T> static void merge_sums_launch(const osh_op_args *a)
{
    osh_tensor *to = a->out[0];
    int64_t n = osh_tensor_numel(to);
    OSH_LAUNCH(merge_sums_kernel<T>, osh_cu_grid(to->device, n, THREADS), THREADS, 0,
               osh_cuda_stream(to->device), static_cast<T *>(to->data),
               static_cast<T *>(a->out[1]->data), n);
}

osh_status osh_merge_sums_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    osh_dtype dt = a->out[0]->dtype;
    if (dt != OSH_F32 && dt != OSH_F64)
        return osh_fail(cx, OSH_E_INTERNAL, "merge_sums of %s on a GPU, want F32 or F64",
                        osh_dtype_name(dt));
    if (dt == OSH_F64) merge_sums_launch<double>(a);
    else merge_sums_launch<float>(a);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
