/* elementwise_grad.cu - computes the gradients of add, add_f32, scale, slice, join, product, glu,
 * act and clamp, in f32.
 *
 *   add, add_f32   da += dy
 *                  db += dy
 *   scale          dx += `by` dy
 *   slice          dx += dy, at the columns of the slice
 *   join           da += dy, at the columns of a
 *                  db += dy, at the columns of b; if all heads read the same columns of b, the
 *                  gradients of the heads are added in order
 *   product        da += dy b
 *                  db += dy a
 *   glu            dgate += dy up act'(gate)
 *                  dup += dy act(gate); clamped values have gradient 0 (glu.c)
 *   act            dx += dy act'(x)
 *   clamp          dx += dy, if x is within the limits */
#include "ops/cuda/act.cuh"
#include "ops/cuda/add.cuh"

#include <string.h>

enum { THREADS = 256 };

static __global__ void add_back(float *to, const float *dy, int64_t n, float by)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * THREADS)
        to[i] += __fmul_rn(by, dy[i]);
}

osh_status osh_cu_add(osh_ctx *cx, osh_device *d, float *to, const float *from, int64_t n, float by)
{
    osh_status rc = OSH_OK;
    if (!n) return OSH_OK;
    OSH_LAUNCH(add_back, osh_cu_grid(d, n, THREADS), THREADS, 0, osh_cuda_stream(d), to, from, n,
               by);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

static osh_status add_back_run(osh_ctx *cx, const osh_grad_args *a, int k, float by)
{
    const osh_tensor *dy = a->dout[0];
    if (!a->din[k]) return OSH_OK;
    return osh_cu_add(cx, dy->device, static_cast<float *>(a->din[k]->data),
                      static_cast<const float *>(dy->data), osh_tensor_numel(dy), by);
}

osh_status osh_add_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    // two launches, one after the other, because din[0] and din[1] may be the same tensor
    osh_status rc = add_back_run(cx, a, 0, 1);
    return rc ? rc : add_back_run(cx, a, 1, 1);
}

osh_status osh_scale_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    const osh_scale_attr *at = static_cast<const osh_scale_attr *>(a->attr);
    return add_back_run(cx, a, 0,
                        osh_round_to((float)at->by, at->rounded ? a->in[0]->dtype : OSH_F32));
}

/* each: number of columns of dy that belong to one period of x: `width` columns and padding */
typedef struct slice_shape { int64_t parts, period, first, width, each; } slice_shape;

static __global__ void slice_back(float *to, const float *dy, slice_shape p)
{
    int64_t n = p.parts * p.width;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * THREADS)
        to[i / p.width * p.period + p.first + i % p.width] +=
            dy[i / p.width * p.each + i % p.width];
}

osh_status osh_slice_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const osh_slice_attr *at = static_cast<const osh_slice_attr *>(a->attr);
    osh_device *d = a->dout[0]->device;
    int64_t W = osh_width(a->in[0]), period = at->period ? at->period : W;
    slice_shape p = {osh_rows(a->in[0]) * (W / period), period, at->first, at->width,
                     at->width + at->pad};

    if (!p.parts || !p.width || !a->din[0]) return OSH_OK;
    OSH_LAUNCH(slice_back, osh_cu_grid(d, p.parts * p.width, THREADS), THREADS, 0,
               osh_cuda_stream(d), static_cast<float *>(a->din[0]->data),
               static_cast<const float *>(a->dout[0]->data), p);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* The columns of a joined row: `width` of a, then `second` of b, for each head. A, B, O: number of
 * columns of a row of a, of b and of the joined row. */
typedef struct join_shape { int64_t rows, A, B, O, width, second; } join_shape;

/* Adds the gradients of a to `to` [rows, A]. */
static __global__ void join_back_first(float *to, const float *dy, join_shape p)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < p.rows * p.A;
         i += (int64_t)gridDim.x * THREADS) {
        int64_t row = i / p.A, c = i % p.A;
        to[i] += dy[row * p.O + c / p.width * (p.width + p.second) + c % p.width];
    }
}

/* Adds the gradients of b to `to` [rows, B]. */
static __global__ void join_back_second(float *to, const float *dy, join_shape p)
{
    int64_t heads = p.A / p.width, each = p.width + p.second, shared = p.B == p.second ? heads : 1;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < p.rows * p.B;
         i += (int64_t)gridDim.x * THREADS) {
        int64_t row = i / p.B, c = i % p.B, head = c / p.second;
        for (int64_t h = head; h < head + shared; h++)
            to[i] += dy[row * p.O + h * each + p.width + c % p.second];
    }
}

osh_status osh_join_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const osh_join_attr *at = static_cast<const osh_join_attr *>(a->attr);
    osh_device *d = a->dout[0]->device;
    const float *dy = static_cast<const float *>(a->dout[0]->data);
    join_shape p = {osh_rows(a->in[0]), osh_width(a->in[0]), osh_width(a->in[1]),
                    osh_width(a->dout[0]), at->width, at->second};

    if (!p.rows) return OSH_OK;
    if (a->din[0])
        OSH_LAUNCH(join_back_first, osh_cu_grid(d, p.rows * p.A, THREADS), THREADS, 0,
                   osh_cuda_stream(d), static_cast<float *>(a->din[0]->data), dy, p);
    if (a->din[1])
        OSH_LAUNCH(join_back_second, osh_cu_grid(d, p.rows * p.B, THREADS), THREADS, 0,
                   osh_cuda_stream(d), static_cast<float *>(a->din[1]->data), dy, p);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* Adds dy y to `to` [n]. */
template <class T>
static __global__ void product_back(float *to, const T *y, const float *dy, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * THREADS)
        to[i] += __fmul_rn(dy[i], osh_cu_load(y[i]));
}

osh_status osh_product_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->dout[0]->device;
    int64_t n = osh_tensor_numel(a->dout[0]);

    // two launches, one after the other, because din[0] and din[1] may be the same tensor
    for (int k = 0; n && k < 2; k++) {
        const osh_tensor *y = a->in[1 - k];
        if (!a->din[k]) continue;
        OSH_CU_BY_DTYPE(y->dtype, T,
                        OSH_LAUNCH(product_back<T>, osh_cu_grid(d, n, THREADS), THREADS, 0,
                                   osh_cuda_stream(d), static_cast<float *>(a->din[k]->data),
                                   static_cast<const T *>(y->data),
                                   static_cast<const float *>(a->dout[0]->data), n));
    }
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* first: gradient of gate. second: gradient of up. The ops act and clamp use only `first`, for the
 * gradient of x. */
typedef struct pair { float first, second; } pair;

template <class F> struct glu_back {
    F act;
    __device__ pair operator()(float x, float up, float dy) const
    {
        return {dy * up * act.slope(x), dy * act(x)};
    }
};
struct clamped_back {
    float limit, alpha, plus;
    __device__ pair operator()(float x, float up, float dy) const
    {
        float g = fminf(x, limit), u = fminf(fmaxf(up, -limit), limit),
              s = 1 / (1 + expf(-alpha * g));
        return {x > limit ? 0 : dy * (u + plus) * s * (1 + alpha * g * (1 - s)),
                u != up ? 0 : dy * g * s};
    }
};
template <class F> struct act_back {
    F act;
    __device__ pair operator()(float x, float, float dy) const { return {dy * act.slope(x), 0}; }
};
struct limit_back {
    float limit;
    __device__ pair operator()(float x, float, float dy) const
    {
        return {x > limit || x < -limit ? 0 : dy, 0};
    }
};
struct relu_back {
    bool square;
    __device__ pair operator()(float x, float, float dy) const
    {
        return {x > 0 ? (square ? 2 * x : 1) * dy : 0, 0};
    }
};

template <class T> struct elements { // n elements of each tensor; all pointers are views
    float *first, *second; // gradients; NULL: not computed
    const T *x, *y;        // inputs; y is NULL for act and clamp
    const float *dy;
    int64_t n;
};

template <class T, class F> static __global__ void elementwise_back_kernel(elements<T> e, F f)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < e.n;
         i += (int64_t)gridDim.x * THREADS) {
        pair p = f(osh_cu_load(e.x[i]), e.y ? osh_cu_load(e.y[i]) : 0, e.dy[i]);
        if (e.first) e.first[i] += p.first;
        if (e.second) e.second[i] += p.second;
    }
}

template <class F> static osh_status elementwise_back(osh_ctx *cx, const osh_grad_args *a, F f)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->dout[0]->device;
    int64_t n = osh_tensor_numel(a->dout[0]);
    float *first = a->din[0] ? static_cast<float *>(a->din[0]->data) : NULL;
    float *second = a->in[1] && a->din[1] ? static_cast<float *>(a->din[1]->data) : NULL;

    if (!n) return OSH_OK;
    OSH_CU_BY_DTYPE(a->in[0]->dtype, T,
        elements<T> e = {first, second, static_cast<const T *>(a->in[0]->data),
                         static_cast<const T *>(a->in[1] ? a->in[1]->data : NULL),
                         static_cast<const float *>(a->dout[0]->data), n};
        OSH_LAUNCH((elementwise_back_kernel<T, F>), osh_cu_grid(d, n, THREADS), THREADS, 0,
                   osh_cuda_stream(d), e, f));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

osh_status osh_glu_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    const osh_glu_attr *at = static_cast<const osh_glu_attr *>(a->attr);

    if (at->limit > 0)
        return elementwise_back(cx, a, clamped_back{(float)at->limit, (float)at->alpha,
                                                   (float)at->plus});
    if (!strcmp(at->act, "gelu")) return elementwise_back(cx, a, glu_back<osh_cu_gelu>());
    if (osh_act_is_tanh(at->act)) return elementwise_back(cx, a, glu_back<osh_cu_gelu_tanh>());
    return elementwise_back(cx, a, glu_back<osh_cu_silu>());
}

osh_status osh_act_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    const char *act = static_cast<const osh_act_attr *>(a->attr)->act;

    if (!strncmp(act, "relu", strlen("relu")))
        return elementwise_back(cx, a, relu_back{!strcmp(act, "relu2")});
    if (!strcmp(act, "gelu")) return elementwise_back(cx, a, act_back<osh_cu_gelu>());
    if (osh_act_is_tanh(act)) return elementwise_back(cx, a, act_back<osh_cu_gelu_tanh>());
    return elementwise_back(cx, a, act_back<osh_cu_silu>());
}

osh_status osh_clamp_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    double limit = static_cast<const osh_clamp_attr *>(a->attr)->limit;
    return elementwise_back(cx, a, limit_back{osh_round_to((float)limit, a->in[0]->dtype)});
}
