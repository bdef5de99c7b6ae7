/* linear.cu - computes y = x W^T + b by matrix products of cuBLASLt.
 *
 * If w has another dtype than x, rows of W are cast to the dtype of x, one panel at a time. If
 * there is a bias, the sums of a panel are f32, and b is added before the only rounding.
 *
 * A panel is a range of rows with at most 2^23 elements together. Its size does not depend on the
 * free bytes of the arena. If the caller needs only some rows of y, routed.cu computes them. If
 * routed.cu does not support the arguments, all rows are computed. */
#include "ops/cuda/cast.cuh"
#include "ops/cuda/op.cuh"
#include "ops/cuda/sizes.h"

enum { THREADS = 256 };

/* Computes y [n_rows, n] = sums [n_rows, n] + b [n], rounded once. `ldy`: row stride of y in
 * elements. */
template <class S, class T>
static __global__ void add_bias(T *y, const float *sums, const S *b, int64_t n_rows, int64_t n,
                                int64_t ldy)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n_rows * n;
         i += (int64_t)gridDim.x * THREADS)
        osh_cu_store(&y[i / n * ldy + i % n],
                     __fadd_rn(sums[i], osh_cu_round<T>(osh_cu_load(b[i % n]))));
}

static unsigned bias_grid(int64_t n)
{
    return (unsigned)osh_min64(osh_div_up(n, THREADS), 1 << 16);
}

/* Computes columns [first, first + n) of y. w contains rows [first, first + n) of W in the dtype of
 * x. `sums`: scratch, or NULL if there is no bias. */
static osh_status linear_columns(osh_ctx *cx, const osh_op_args *a, void *w, float *sums,
                                 int64_t first, int64_t n)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *y = a->out[0], *bias = a->in[2];
    osh_device *d = y->device;
    int64_t N = osh_rows(x), I = osh_width(x), O = osh_width(y),
            rows = sums ? osh_linear_panel_rows(N, n) : N;
    osh_cuda_mat b = {w, I, 0, x->dtype, true};

    for (int64_t row = 0; row < N; row += rows) {
        int64_t m = osh_min64(rows, N - row);
        void *to = osh_elem(y, row * O + first);
        osh_cuda_mat c = {sums ? sums : to, sums ? n : O, 0, sums ? OSH_F32 : y->dtype, false};
        osh_cuda_mat xs = {osh_elem(x, row * I), I, 0, x->dtype, false};
        OSH_TRY(osh_cuda_gemm(cx, d, {&c, &xs, &b, m, n, I, 1, 1, 0}));
        if (!sums) continue;
        OSH_CU_BY_STORED(bias->dtype, S, OSH_CU_BY_DTYPE(y->dtype, T,
            OSH_LAUNCH((add_bias<S, T>), bias_grid(m * n), THREADS, 0, osh_cuda_stream(d),
                       static_cast<T *>(to), sums, static_cast<const S *>(osh_elem(bias, first)), m,
                       n, O)));
        OSH_CUDA(cx, cudaGetLastError());
    }
done:
    return rc;
}

osh_status osh_linear_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *w = a->in[1];
    osh_device *d = x->device;
    int64_t N = osh_rows(x), I = osh_width(x), O = w->shape[0];
    bool other = w->dtype != x->dtype;
    int64_t step = other ? osh_linear_panel_rows(O, I) : O;
    void *copy = NULL;  // own [step, I]: rows of W in the dtype of x; NULL: W has the dtype of x
    float *sums = NULL; // sums of a panel in f32, [rows of a panel, step]; NULL: no bias; own

    if (!N || (a->rows && !a->rows->n)) return OSH_OK;
    if (osh_cuda_linear_takes_rows(a)) return osh_cuda_linear_rows(cx, a);
    if (other && !(copy = osh_device_alloc(cx, d, (size_t)(step * I) * osh_dtype_bytes(x->dtype),
                                           OSH_LIFE_SHORT)))
        OSH_TRY(OSH_E_NOMEM);
    if (a->in[2]) {
        size_t n_bytes = (size_t)(osh_linear_panel_rows(N, step) * step) * sizeof *sums;
        sums = static_cast<float *>(osh_device_alloc(cx, d, n_bytes, OSH_LIFE_SHORT));
        if (!sums) OSH_TRY(OSH_E_NOMEM);
    }
    for (int64_t first = 0; first < O; first += step) {
        int64_t n = osh_min64(step, O - first);
        void *from = osh_elem(w, first * I);
        if (other) OSH_TRY(osh_cuda_cast(cx, d, {copy, x->dtype}, {from, w->dtype}, n * I));
        OSH_TRY(linear_columns(cx, a, other ? copy : from, sums, first, n));
    }
done:
    osh_device_free(d, sums);
    osh_device_free(d, copy);
    return rc;
}
