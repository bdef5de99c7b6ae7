/* map.cu - computes scale, act, clamp, slice and join: each element of the output depends on one
 * element of an input.
 *
 *   scale         y = `by` times x
 *   act           y = max(x, 0), its square, or a function of act.cuh
 *   clamp         y = min(max(x, -limit), limit)
 *   slice, join   y consists of copied columns
 *
 * Results are computed in f32 and rounded once. x [N, W], y [N, S]: N tokens, W and S columns. y of
 * scale, act and clamp may be the same tensor as x. */
#include "ops/cuda/act.cuh"
#include "ops/cuda/pack.cuh"

#include <assert.h>
#include <string.h>

struct osh_cu_by_fn {
    float by;
    __device__ float operator()(float x) const { return __fmul_rn(x, by); }
};
struct osh_cu_relu_fn {
    bool square;
    __device__ float operator()(float x) const
    {
        float y = x < 0 ? 0 : x;
        return square ? __fmul_rn(y, y) : y;
    }
};
struct osh_cu_clamp_fn {
    float limit;
    __device__ float operator()(float x) const
    {
        return x > limit ? limit : x < -limit ? -limit : x;
    }
};
/* Writes y[i] = f(x[i]) for n elements. */
template <class T, class F> static __global__ void map_kernel(T *y, const T *x, int64_t n, F f)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        osh_cu_store(&y[i], f(osh_cu_load(x[i])));
}

template <class F> static osh_status map_run(osh_ctx *cx, const osh_op_args *a, F f)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *y = a->out[0];
    int64_t n = osh_tensor_numel(x);

    assert(x->dtype == y->dtype);
    if (!n) return OSH_OK;
    OSH_CU_BY_DTYPE(x->dtype, T,
                    OSH_LAUNCH((map_kernel<T, F>), osh_cu_grid(y->device, n, 256), 256, 0,
                               osh_cuda_stream(y->device), static_cast<T *>(y->data),
                               static_cast<const T *>(x->data), n, f));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

osh_status osh_scale_cuda(osh_ctx *cx, const osh_op_args *a)
{
    const osh_scale_attr *at = static_cast<const osh_scale_attr *>(a->attr);
    osh_cu_by_fn f = {osh_round_to((float)at->by, at->rounded ? a->in[0]->dtype : OSH_F32)};
    return map_run(cx, a, f);
}

osh_status osh_act_cuda(osh_ctx *cx, const osh_op_args *a)
{
    const char *act = static_cast<const osh_act_attr *>(a->attr)->act;
    osh_cu_relu_fn relu = {!strcmp(act, "relu2")};

    if (!strncmp(act, "relu", strlen("relu"))) return map_run(cx, a, relu);
    if (!strcmp(act, "gelu")) return map_run(cx, a, osh_cu_gelu());
    if (osh_act_is_tanh(act)) return map_run(cx, a, osh_cu_gelu_tanh());
    return map_run(cx, a, osh_cu_silu());
}

osh_status osh_clamp_cuda(osh_ctx *cx, const osh_op_args *a)
{
    double limit = static_cast<const osh_clamp_attr *>(a->attr)->limit;
    osh_cu_clamp_fn f = {osh_round_to((float)limit, a->in[0]->dtype)};
    return map_run(cx, a, f);
}

/* Copies columns of x [N, W] to y [N, S] (ops/slice.c). `n`: number of elements of y. */
template <class T>
static __global__ void slice_kernel(T *y, const T *x, int64_t n, int64_t W, int64_t S,
                                    osh_slice_attr at)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t row = i / S, each = at.width + at.pad, p = i % S / each, c = i % S % each;
        if (c < at.width) y[i] = x[row * W + p * at.period + at.first + c];
        else osh_cu_store(&y[i], 0);
    }
}

osh_status osh_slice_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    osh_slice_attr at = *static_cast<const osh_slice_attr *>(a->attr);
    const osh_tensor *x = a->in[0], *y = a->out[0];
    int64_t n = osh_tensor_numel(y);

    if (!n) return OSH_OK;
    if (!at.period) at.period = osh_width(x);
    OSH_CU_BY_DTYPE(x->dtype, T,
                    OSH_LAUNCH(slice_kernel<T>, osh_cu_grid(y->device, n, 256), 256, 0,
                               osh_cuda_stream(y->device), static_cast<T *>(y->data),
                               static_cast<const T *>(x->data), n, osh_width(x), osh_width(y), at));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* `n`: number of elements of the output; A, B: number of elements of a row of x and of y. */
typedef struct join_sizes { int64_t n, A, B; } join_sizes;

/* Joins the rows of x [N, A] and y [N, B] head by head to rows of `to` (ops/join.c). */
template <class T>
static __global__ void join_kernel(T *to, const T *x, const T *y, join_sizes s, osh_join_attr at)
{
    const int64_t n = s.n, A = s.A, B = s.B;
    int64_t each = at.width + at.second, O = A / at.width * each;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t row = i / O, head = i % O / each, c = i % O % each,
                shared = B == at.second ? 0 : head;
        to[i] = c < at.width ? x[row * A + head * at.width + c]
                             : y[row * B + shared * at.second + c - at.width];
    }
}

osh_status osh_join_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *y = a->in[1], *to = a->out[0];
    int64_t n = osh_tensor_numel(to);

    if (!n) return OSH_OK;
    OSH_CU_BY_DTYPE(x->dtype, T,
                    OSH_LAUNCH(join_kernel<T>, osh_cu_grid(to->device, n, 256), 256, 0,
                               osh_cuda_stream(to->device), static_cast<T *>(to->data),
                               static_cast<const T *>(x->data), static_cast<const T *>(y->data),
                               (join_sizes{n, osh_width(x), osh_width(y)}),
                               *static_cast<const osh_join_attr *>(a->attr)));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
