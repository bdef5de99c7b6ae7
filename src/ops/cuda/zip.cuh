/* zip.cuh - computes out[i] = f(x[i], y[i]) for tensors of one dtype. x and y are converted to f32,
 * and the result is rounded once. out may be the same tensor as x or y. */
#ifndef OSH_ZIP_CUH
#define OSH_ZIP_CUH
#include "ops/cuda/pack.cuh"

/* Computes out = f(x, y) for n elements. The first n_packs packs (pack.cuh) are read as packs, the
 * rest as single elements. */
template <class T, class F>
static __global__ void osh_cu_zip_kernel(T *out, const T *x, const T *y, int64_t n, int64_t n_packs,
                                         F f)
{
    const int N = osh_cu_pack<T>::N;
    int64_t step = (int64_t)gridDim.x * blockDim.x,
            first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

    for (int64_t i = first; i < n_packs; i += step) {
        osh_cu_pack<T> a = osh_cu_pack_load(x + i * N), b = osh_cu_pack_load(y + i * N);
        for (int k = 0; k < N; k++)
            osh_cu_store(&a.v[k], f(osh_cu_load(a.v[k]), osh_cu_load(b.v[k])));
        osh_cu_pack_store(out + i * N, a);
    }
    for (int64_t i = n_packs * N + first; i < n; i += step)
        osh_cu_store(&out[i], f(osh_cu_load(x[i]), osh_cu_load(y[i])));
}

/* Computes out[0] = f(in[0], in[1]) for all elements. f takes and returns f32. T: storage type of
 * the three tensors. */
template <class T, class F> static osh_status osh_cu_zip(osh_ctx *cx, const osh_op_args *a, F f)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *y = a->in[1], *out = a->out[0];
    int64_t n = osh_tensor_numel(x), n_packs = n / osh_cu_pack<T>::N;

    if (!n) return OSH_OK;
    if (!osh_cu_aligned(x->data) || !osh_cu_aligned(y->data) || !osh_cu_aligned(out->data))
        n_packs = 0;
    OSH_LAUNCH((osh_cu_zip_kernel<T, F>), osh_cu_grid(out->device, n_packs ? n_packs : n, 256), 256,
               0, osh_cuda_stream(out->device), static_cast<T *>(out->data),
               static_cast<const T *>(x->data), static_cast<const T *>(y->data), n, n_packs, f);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
#endif
