/* embedding.cu - computes embedding. A block copies one row at a time.
 *
 *   in[0] ids I32 [N], on the device or in host memory     in[1] w [V, D]     out y [N, D]
 *
 * A row is copied bit for bit if w has the dtype of y; if not, the row is rounded to the dtype of
 * y. Ids in host memory are checked before the launch. The kernel cannot report a wrong id in GPU
 * memory. Instead, such an id gives a row of NaN, which the search for non-finite values finds
 * later. */
#include "ops/cuda/pack.cuh"

#include <math.h>

template <class T> static __device__ inline void embedding_put(T *to, T from) { *to = from; }
template <class T, class S> static __device__ inline void embedding_put(T *to, S from)
{
    osh_cu_store(to, osh_cu_load(from));
}

template <class S> struct table {
    const S *w; // the table [V, D]; view
    int64_t V, D;
    bool packed; // true: w has the dtype of y, and rows can be read by packs (pack.cuh)
};

/* Copies row ids[n] of the table to row n of y [N, D]. */
template <class T, class S>
static __global__ void gather_kernel(T *y, const int32_t *ids, int64_t N, table<S> from_rows)
{
    const S *w = from_rows.w;
    const int64_t V = from_rows.V, D = from_rows.D;
    const bool packed = from_rows.packed;
    const int P = osh_cu_pack<T>::N;

    for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
        int64_t id = ids[n];
        T *to = y + n * D;
        const S *from = w + id * D;
        if (id < 0 || id >= V)
            for (int64_t i = threadIdx.x; i < D; i += blockDim.x) osh_cu_store(&to[i], NAN);
        else if (packed)
            for (int64_t i = threadIdx.x; i < D / P; i += blockDim.x)
                osh_cu_pack_store(to + i * P,
                                  osh_cu_pack_load(reinterpret_cast<const T *>(from) + i * P));
        else
            for (int64_t i = threadIdx.x; i < D; i += blockDim.x) embedding_put(&to[i], from[i]);
    }
}

static osh_status embedding_check_ids(osh_ctx *cx, const int32_t *ids, int64_t N, int64_t V)
{
    for (int64_t n = 0; n < N; n++)
        if (ids[n] < 0 || ids[n] >= V)
            return osh_fail(cx, OSH_E_FORMAT,
                            "token id %d at position %lld, want an id in [0, %lld)", (int)ids[n],
                            (long long)n, (long long)V);
    return OSH_OK;
}

osh_status osh_embedding_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *ids = a->in[0], *w = a->in[1], *y = a->out[0];
    osh_device *d = y->device;
    int64_t N = osh_rows(ids), V = w->shape[0], D = w->shape[1];
    bool packed = w->dtype == y->dtype && osh_cu_packed(w, D) && osh_cu_packed(y, D);
    osh_tensor *copy = NULL; // copy of the ids in GPU memory; own

    if (!N || !D) return OSH_OK;
    OSH_TRY(osh_cu_readable(cx, w->dtype));
    if (!ids->device) {
        OSH_TRY(embedding_check_ids(cx, static_cast<const int32_t *>(ids->data), N, V));
        OSH_TRY(osh_tensor_new_on(cx, &copy, osh_where{d, OSH_LIFE_SHORT}, OSH_I32, 1, &N));
        OSH_TRY(osh_tensor_copy(cx, copy, ids));
        ids = copy;
    }
    OSH_CU_BY_DTYPE(y->dtype, T, OSH_CU_BY_STORED(w->dtype, S,
        OSH_LAUNCH((gather_kernel<T, S>), osh_cu_grid(d, N, 1), 128, 0, osh_cuda_stream(d),
                   static_cast<T *>(y->data), static_cast<const int32_t *>(ids->data), N,
                   (table<S>{static_cast<const S *>(w->data), V, D, packed}))));
    OSH_CUDA(cx, cudaGetLastError());
done:
    osh_tensor_free(cx, copy);
    return rc;
}
