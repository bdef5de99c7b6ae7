/* finite.cu - finds the first non-finite element, the smallest and the largest element of a tensor.
 *
 * Threads combine their results by atomic minima and maxima, whose result does not depend on the
 * order of the threads. */
#include "ops/cuda/extremes.cuh"
#include "ops/cuda/pack.cuh"

#include <math.h>

/* Computes *first = min(*first, base + index of the first NaN or infinity of x [n]). */
template <class T>
static __global__ void finite_kernel(long long *first, const T *x, int64_t n, int64_t n_packs,
                                     long long base)
{
    const int N = osh_cu_pack<T>::N;
    int64_t step = (int64_t)gridDim.x * blockDim.x,
            me = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, at = -1;

    for (int64_t i = me; i < n_packs && at < 0; i += step) {
        osh_cu_pack<T> p = osh_cu_pack_load(x + i * N);
        for (int k = N - 1; k >= 0; k--)
            if (!osh_cu_is_finite(osh_cu_load(p.v[k]))) at = i * N + k;
    }
    for (int64_t i = n_packs * N + me; i < n && at < 0; i += step)
        if (!osh_cu_is_finite(osh_cu_load(x[i]))) at = i;
    if (at >= 0) atomicMin(first, base + (long long)at);
}

osh_status osh_cuda_finite(osh_ctx *cx, int64_t *first, const osh_tensor *x, int64_t base)
{
    osh_status rc = OSH_OK;
    int64_t n = osh_tensor_numel(x);

    if (!n) return OSH_OK;
    OSH_CU_BY_DTYPE(x->dtype, T, {
        int64_t n_packs = osh_cu_aligned(x->data) ? n / osh_cu_pack<T>::N : 0;
        OSH_LAUNCH(finite_kernel<T>, osh_cu_grid(x->device, n_packs ? n_packs : n, 256), 256, 0,
                   osh_cuda_stream(x->device), reinterpret_cast<long long *>(first),
                   static_cast<const T *>(x->data), n, n_packs, (long long)base);
    });
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

osh_status osh_cuda_all_finite(osh_ctx *cx, int *first, osh_device *d,
                               const osh_tensor *const *tensors, int n)
{
    osh_status rc = OSH_OK;
    int64_t at = 0, bad = 0, *verdict = (int64_t *)d->type->files->sums(d);
    const int64_t none = INT64_MAX;
    *first = n;
    if (!n) goto done;
    OSH_TRY(d->type->put(cx, d, verdict, &none, sizeof none));
    for (int i = 0; i < n; at += osh_tensor_numel(tensors[i++]))
        OSH_TRY(osh_cuda_finite(cx, verdict, tensors[i], at));
    OSH_TRY(d->type->get(cx, d, &bad, verdict, sizeof bad));
    at = 0;
    for (int i = 0; i < n && *first == n && bad != none; i++)
        if ((at += osh_tensor_numel(tensors[i])) > bad) *first = i;
done:
    return rc;
}

/* Sets *to_low to the minimum of *to_low and the elements of x [n]. Sets *to_high to the maximum of
 * *to_high and these elements. */
template <class T>
static __global__ void minmax_kernel(float *to_low, float *to_high, const T *x, int64_t n,
                                     int64_t n_packs)
{
    const int N = osh_cu_pack<T>::N;
    int64_t step = (int64_t)gridDim.x * blockDim.x,
            me = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    // high: maximum of x over the elements of this thread. low: maximum of -x. fmaxf ignores NaN.
    float high = -INFINITY, low = -INFINITY;

    for (int64_t i = me; i < n_packs; i += step) {
        osh_cu_pack<T> p = osh_cu_pack_load(x + i * N);
        for (int k = 0; k < N; k++) {
            high = fmaxf(high, osh_cu_load(p.v[k]));
            low = fmaxf(low, -osh_cu_load(p.v[k]));
        }
    }
    for (int64_t i = n_packs * N + me; i < n; i += step) {
        high = fmaxf(high, osh_cu_load(x[i]));
        low = fmaxf(low, -osh_cu_load(x[i]));
    }
    high = osh_cu_warp_max(high);
    low = -osh_cu_warp_max(low);
    if (threadIdx.x % 32 == 0 && low <= high) {
        osh_cu_lower(to_low, low);
        osh_cu_raise(to_high, high);
    }
}

osh_status osh_cuda_minmax(osh_ctx *cx, float *low, float *high, const osh_tensor *x, int64_t row,
                           int64_t n)
{
    osh_status rc = OSH_OK;
    int64_t numel = n * osh_width(x);

    if (!numel) return OSH_OK;
    OSH_CU_BY_DTYPE(x->dtype, T, {
        const T *from = static_cast<const T *>(x->data) + row * osh_width(x);
        int64_t n_packs = osh_cu_aligned(from) ? numel / osh_cu_pack<T>::N : 0;
        OSH_LAUNCH(minmax_kernel<T>, osh_cu_grid(x->device, n_packs ? n_packs : numel, 256), 256, 0,
                   osh_cuda_stream(x->device), low, high, from, numel, n_packs);
    });
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

typedef struct rows_samples { // samples of a batch
    const int64_t *offsets; // [n + 1], in GPU memory: first token of each sample
    int64_t n;
} rows_samples;

/* Returns the index of the sample that contains the token. */
static __device__ inline int64_t sample_of_token(const rows_samples &s, int64_t token)
{
    // binary search; invariant: s.offsets[first] <= token < s.offsets[end]
    int64_t first = 0, end = s.n;
    while (end - first > 1) {
        int64_t middle = (first + end) / 2;
        if (s.offsets[middle] <= token) first = middle;
        else end = middle;
    }
    return first;
}

/* Computes osh_device_ops.minmax_rows for rows of D elements. A warp reads a row. Does
 * not read of.seqs, which is in host memory. */
template <class T>
static __global__ void minmax_rows_kernel(float *low, float *high, const T *x, int64_t D,
                                          osh_sampled_rows of, const rows_samples samples)
{
    int64_t lane = threadIdx.x % 32, warps = blockDim.x / 32;

    for (int64_t r = (int64_t)blockIdx.x * warps + threadIdx.x / 32; r < of.rows.n;
         r += (int64_t)gridDim.x * warps) {
        const T *from = x + (of.rows.at ? of.rows.at[r] : r) * D;
        // most: maximum of x over the elements of this thread. least: maximum of -x.
        float most = -INFINITY, least = -INFINITY;
        for (int64_t i = lane; i < D; i += 32) {
            most = fmaxf(most, osh_cu_load(from[i]));
            least = fmaxf(least, -osh_cu_load(from[i]));
        }
        most = osh_cu_warp_max(most);
        least = -osh_cu_warp_max(least);
        if (lane || !(least <= most)) continue;
        int64_t sample = sample_of_token(samples, of.tokens[r]);
        osh_cu_lower(low + sample, least);
        osh_cu_raise(high + sample, most);
    }
}

osh_status osh_cuda_minmax_rows(osh_ctx *cx, float *low, float *high, const osh_tensor *x,
                                const osh_sampled_rows *of)
{
    osh_status rc = OSH_OK;
    osh_device *d = x->device;
    int64_t D = osh_width(x), n = of->seqs->n;
    size_t bytes = (size_t)(n + 1) * sizeof(int64_t);
    int64_t *offsets = NULL; // own [n + 1]

    if (!of->rows.n || !D) return OSH_OK;
    offsets = static_cast<int64_t *>(osh_device_alloc(cx, d, bytes, OSH_LIFE_SHORT));
    if (!offsets) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(d->type->put(cx, d, offsets, of->seqs->offsets, bytes));
    OSH_CU_BY_DTYPE(x->dtype, T,
                    OSH_LAUNCH(minmax_rows_kernel<T>, osh_cu_grid(d, of->rows.n, 8), 256, 0,
                               osh_cuda_stream(d), low, high, static_cast<const T *>(x->data), D,
                               *of, rows_samples{offsets, n}));
    OSH_CUDA(cx, cudaGetLastError());
done:
    osh_device_free(d, offsets);
    return rc;
}
