/* add.cu - computes the ops add, product and add_f32. The results are computed in f32. The ops add
 * and product round them once; add_f32 does not round them. `a` of product and of add_f32 may be
 * F32.
 *
 *   in[0] a [N, D]     in[1] b [N, D]     out y [N, D]     y may overwrite a or b */
#include "ops/cuda/zip.cuh"

#include <assert.h>

struct osh_cu_add_fn {
    __device__ float operator()(float a, float b) const { return a + b; }
};

osh_status osh_add_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;

    assert(a->in[0]->dtype == a->in[1]->dtype && a->in[0]->dtype == a->out[0]->dtype);
    OSH_CU_BY_DTYPE(a->out[0]->dtype, T, rc = osh_cu_zip<T>(cx, a, osh_cu_add_fn()));
    return rc;
}

/* Writes y = a + b for n elements. The type A is T or float. */
template <class T, class A>
static __global__ void add_f32_kernel(float *y, const A *a, const T *b, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        y[i] = osh_cu_load(a[i]) + osh_cu_load(b[i]);
}

template <class T, class A> static void add_f32_launch(const osh_op_args *a)
{
    const osh_tensor *y = a->out[0];
    int64_t n = osh_tensor_numel(y);
    OSH_LAUNCH((add_f32_kernel<T, A>), osh_cu_grid(y->device, n, 256), 256, 0,
               osh_cuda_stream(y->device), static_cast<float *>(y->data),
               static_cast<const A *>(a->in[0]->data), static_cast<const T *>(a->in[1]->data), n);
}

osh_status osh_add_f32_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;

    if (!osh_tensor_numel(a->out[0])) return OSH_OK;
    OSH_CU_BY_DTYPE(a->in[1]->dtype, T, {
        if (a->in[0]->dtype == OSH_F32) add_f32_launch<T, float>(a);
        else add_f32_launch<T, T>(a);
    });
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* Writes y = a b, rounded to T, for n elements. The type A is T or float. */
template <class T, class A>
static __global__ void product_kernel(T *y, const A *a, const T *b, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        osh_cu_store(&y[i], __fmul_rn(osh_cu_load(a[i]), osh_cu_load(b[i])));
}

template <class T, class A> static void product_launch(const osh_op_args *a)
{
    const osh_tensor *y = a->out[0];
    int64_t n = osh_tensor_numel(y);
    OSH_LAUNCH((product_kernel<T, A>), osh_cu_grid(y->device, n, 256), 256, 0,
               osh_cuda_stream(y->device), static_cast<T *>(y->data),
               static_cast<const A *>(a->in[0]->data), static_cast<const T *>(a->in[1]->data), n);
}

osh_status osh_product_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;

    if (!osh_tensor_numel(a->out[0])) return OSH_OK;
    OSH_CU_BY_DTYPE(a->in[1]->dtype, T, {
        if (a->in[0]->dtype == OSH_F32) product_launch<T, float>(a);
        else product_launch<T, T>(a);
    });
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
