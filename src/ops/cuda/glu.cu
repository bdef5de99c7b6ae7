/* glu.cu - computes glu. act(`gate`) is computed in f32, rounded to the dtype of `gate`, multiplied
 * by `up` and rounded again. The form with a limit (glu.c) is computed in f32 and rounded once.
 *
 *   in[0] gate [N, F]     in[1] up [N, F]     out y [N, F]     y may overwrite `gate` or `up` */
#include "ops/cuda/act.cuh"
#include "ops/cuda/zip.cuh"

#include <assert.h>

/* Computes glu only for the rows that `rows` lists. A row has D elements. */
template <class T, class F>
static __global__ void glu_rows(T *out, const T *x, const T *y, osh_op_rows rows, int64_t D, F f)
{
    const int N = osh_cu_pack<T>::N;
    int64_t n_packs = D / N, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows.n * n_packs;
         i += step) {
        int64_t at = rows.at[i / n_packs] * D + i % n_packs * N;
        osh_cu_pack<T> a = osh_cu_pack_load(x + at), b = osh_cu_pack_load(y + at);
        for (int k = 0; k < N; k++)
            osh_cu_store(&a.v[k], f(osh_cu_load(a.v[k]), osh_cu_load(b.v[k])));
        osh_cu_pack_store(out + at, a);
    }
}

template <class T, class F> static osh_status glu_run(osh_ctx *cx, const osh_op_args *a, F f)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *y = a->in[1], *out = a->out[0];
    int64_t D = osh_width(out);
    if (!a->rows || !osh_cu_packed(x, D) || !osh_cu_packed(y, D) || !osh_cu_packed(out, D))
        return osh_cu_zip<T>(cx, a, f);
    if (!a->rows->n) return OSH_OK;
    OSH_LAUNCH((glu_rows<T, F>), osh_cu_grid(out->device, a->rows->n * D / osh_cu_pack<T>::N, 256),
               256, 0, osh_cuda_stream(out->device), static_cast<T *>(out->data),
               static_cast<const T *>(x->data), static_cast<const T *>(y->data), *a->rows, D, f);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

osh_status osh_glu_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;

    assert(a->in[0]->dtype == a->in[1]->dtype && a->in[0]->dtype == a->out[0]->dtype);
    const osh_glu_attr *at = static_cast<const osh_glu_attr *>(a->attr);
    OSH_CU_BY_DTYPE(a->out[0]->dtype, T,
                    rc = osh_cu_with_glu<T>(at, [&](auto f) { return glu_run<T>(cx, a, f); }));
    return rc;
}
