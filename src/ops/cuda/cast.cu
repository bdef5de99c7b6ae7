/* cast.cu - converts a GPU array to another dtype, as transformers' from_pretrained does on
 * loading. */
#include "ops/cuda/cast.cuh"
#include "ops/cuda/pack.cuh"

template <class S, class T> static __global__ void cast_kernel(T *to, const S *from, int64_t n)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        osh_cu_store(&to[i], osh_cu_load(from[i]));
}

osh_status osh_cuda_cast(osh_ctx *cx, osh_device *d, osh_cuda_array to, osh_cuda_array from,
                         int64_t n)
{
    osh_status rc = OSH_OK;

    if (!n) return OSH_OK;
    OSH_TRY(osh_cu_readable(cx, from.dtype));
    OSH_CU_BY_STORED(from.dtype, S, OSH_CU_BY_DTYPE(to.dtype, T,
        OSH_LAUNCH((cast_kernel<S, T>), osh_cu_grid(d, n, 256), 256, 0, osh_cuda_stream(d),
                   static_cast<T *>(to.data), static_cast<const S *>(from.data), n)));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
