/* widen.cuh - converts a GPU array to f32, after it is rounded to the compute dtype. */
#ifndef OSH_WIDEN_CUH
#define OSH_WIDEN_CUH
#include "ops/cuda/cast.cuh"
#include "ops/cuda/pack.cuh"

/* Rounds `from` [n] to the compute dtype T, as transformers' from_pretrained does. Writes the
 * rounded values to `to` [n] as f32. */
template <class T, class S>
static __global__ void osh_cu_widen_kernel(float *to, const S *from, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < n; i += (int64_t)gridDim.x * 256)
        to[i] = osh_cu_round<T>(osh_cu_load(from[i]));
}

static inline osh_status osh_cu_widen(osh_ctx *cx, osh_device *d, float *to, osh_cuda_array from,
                                      int64_t n, osh_dtype compute)
{
    osh_status rc = OSH_OK;
    OSH_CU_BY_DTYPE(compute, T, OSH_CU_BY_STORED(from.dtype, S,
        OSH_LAUNCH((osh_cu_widen_kernel<T, S>), osh_cu_grid(d, n, 256), 256, 0, osh_cuda_stream(d),
                   to, static_cast<const S *>(from.data), n)));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
#endif
