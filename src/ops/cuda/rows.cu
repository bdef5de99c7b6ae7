/* rows.cu - implements ops that combine each row of x [N, D] with a row of a table or with a
 * number.
 *
 *   positions        x + w[position + offset]
 *   sigmoid_gate     x sigmoid(gate) or x softplus(gate), gate [N, G]
 *   routed_scale     x times the weight of an expert
 *   position_scale   x times a factor of the position
 *   gain             x w, w [1]
 *
 * All values are computed in f32 and rounded as in the reference kernels. out may be the same
 * tensor as x. N tokens, D elements per token. */
#include "ops/cuda/pack.cuh"

/* Computes the op `positions` for the n elements of one sample. `w`: the row of the table for the
 * sample's first token. */
template <class T, class S>
static __global__ void positions_kernel(T *y, const T *x, const S *w, int64_t n)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        osh_cu_store(&y[i], __fadd_rn(osh_cu_load(x[i]), osh_cu_round<T>(osh_cu_load(w[i]))));
}

template <class T, class S>
static void add_positions(const osh_op_args *a, int64_t first, int64_t n_rows)
{
    const osh_tensor *x = a->in[0], *y = a->out[0];
    int64_t D = osh_width(x), n = n_rows * D,
            offset = static_cast<const osh_positions_attr *>(a->attr)->offset;

    OSH_LAUNCH((positions_kernel<T, S>), osh_cu_grid(y->device, n, 256), 256, 0,
               osh_cuda_stream(y->device), static_cast<T *>(y->data) + first * D,
               static_cast<const T *>(x->data) + first * D,
               static_cast<const S *>(a->in[1]->data) + offset * D, n);
}

osh_status osh_positions_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_positions_attr *at = static_cast<const osh_positions_attr *>(a->attr);
    int64_t one[2] = {0, osh_rows(a->in[0])}, n_seqs = a->seqs ? a->seqs->n : 1;
    const int64_t *offsets = a->seqs ? a->seqs->offsets : one;

    OSH_TRY(osh_cu_readable(cx, a->in[1]->dtype));
    for (int64_t s = 0; s < n_seqs; s++) {
        int64_t n = offsets[s + 1] - offsets[s];
        if (n + at->offset > at->rows)
            OSH_FAIL(cx, OSH_E_FORMAT, "a sample has %lld tokens, and the model has %lld positions",
                     (long long)n, (long long)(at->rows - at->offset));
        if (!n) continue;
        OSH_CU_BY_DTYPE(
            a->in[0]->dtype, T,
            OSH_CU_BY_STORED(a->in[1]->dtype, S, add_positions<T, S>(a, offsets[s], n)));
    }
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* Multiplies element i of x [n] by sigmoid(g) or softplus(g), where g is gate[i / share]. `share`:
 * number of elements of x for each element of `gate`. */
template <class T>
static __global__ void sigmoid_gate_kernel(T *y, const T *x, const T *gate, int64_t n,
                                           int64_t share, bool softplus)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        float g = osh_cu_load(gate[i / share]);
        float by = osh_cu_round<T>(!softplus ? 1.0f / (1.0f + expf(-g))
                                             : g > 20 ? g : log1pf(expf(g)));
        osh_cu_store(&y[i], __fmul_rn(osh_cu_load(x[i]), by));
    }
}

osh_status osh_sigmoid_gate_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *gate = a->in[0], *x = a->in[1], *y = a->out[0];
    bool softplus = static_cast<const osh_sigmoid_gate_attr *>(a->attr)->softplus;
    int64_t n = osh_tensor_numel(x);

    if (!n) return OSH_OK;
    OSH_CU_BY_DTYPE(x->dtype, T,
                    OSH_LAUNCH(sigmoid_gate_kernel<T>, osh_cu_grid(y->device, n, 256), 256, 0,
                               osh_cuda_stream(y->device), static_cast<T *>(y->data),
                               static_cast<const T *>(x->data), static_cast<const T *>(gate->data),
                               n, osh_width(x) / osh_width(gate), softplus));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

typedef struct {
    int64_t n, D, E;
    /* Index of the expert whose logits `route` contains; negative: `route` contains weights. */
    int expert;
} routed_sizes;

/* Computes routed_scale for x [n, D] and route [n, E]. A warp computes a token. */
template <class T>
static __global__ void routed_scale_kernel(T *y, const T *x, const T *route, routed_sizes z)
{
    int64_t lane = threadIdx.x % 32, warps = blockDim.x / 32, D = z.D, E = z.E;

    for (int64_t r = (int64_t)blockIdx.x * warps + threadIdx.x / 32; r < z.n;
         r += (int64_t)gridDim.x * warps) {
        float by = 0;
        for (int64_t e = lane; e < E && z.expert < 0; e += 32) by += osh_cu_load(route[r * E + e]);
        by = osh_cu_warp_sum(by);
        if (z.expert >= 0)
            by = osh_cu_round<T>(1.0f / (1.0f + expf(-osh_cu_load(route[r * E + z.expert]))));
        for (int64_t i = r * D + lane; i < (r + 1) * D; i += 32)
            osh_cu_store(&y[i], __fmul_rn(osh_cu_load(x[i]), by));
    }
}

osh_status osh_routed_scale_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *route = a->in[1], *y = a->out[0];
    int64_t n = osh_rows(x);
    routed_sizes z = {n, osh_width(x), osh_width(route),
                      (int)static_cast<const osh_routed_scale_attr *>(a->attr)->expert};

    if (!n) return OSH_OK;
    OSH_CU_BY_DTYPE(x->dtype, T,
                    OSH_LAUNCH(routed_scale_kernel<T>, osh_cu_grid(y->device, n, 4), 128, 0,
                               osh_cuda_stream(y->device), static_cast<T *>(y->data),
                               static_cast<const T *>(x->data), static_cast<const T *>(route->data),
                               z));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* Computes the op `position_scale` for the n elements of one sample. */
template <class T>
static __global__ void position_scale_kernel(T *y, const T *x, int64_t n, int64_t D, float beta,
                                             float original)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        float turns = floorf(((float)(i / D) + 1.0f) / original);
        float by = __fadd_rn(__fmul_rn((float)log(1 + (double)turns), beta), 1.0f);
        osh_cu_store(&y[i], __fmul_rn(osh_cu_load(x[i]), by));
    }
}

osh_status osh_position_scale_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_position_scale_attr *at = static_cast<const osh_position_scale_attr *>(a->attr);
    const osh_tensor *x = a->in[0], *y = a->out[0];
    int64_t one[2] = {0, osh_rows(x)}, n_seqs = a->seqs ? a->seqs->n : 1, D = osh_width(x);
    const int64_t *offsets = a->seqs ? a->seqs->offsets : one;

    for (int64_t s = 0; s < n_seqs; s++) {
        int64_t first = offsets[s] * D, n = (offsets[s + 1] - offsets[s]) * D;
        if (!n) continue;
        OSH_CU_BY_DTYPE(x->dtype, T,
                        OSH_LAUNCH(position_scale_kernel<T>, osh_cu_grid(y->device, n, 256), 256, 0,
                                   osh_cuda_stream(y->device), static_cast<T *>(y->data) + first,
                                   static_cast<const T *>(x->data) + first, n, D, (float)at->beta,
                                   (float)at->original));
    }
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* Writes y = x w[0] for n elements. */
template <class T, class S>
static __global__ void gain_kernel(T *y, const T *x, const S *w, int64_t n)
{
    float by = osh_cu_round<T>(osh_cu_load(w[0]));
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x)
        osh_cu_store(&y[i], __fmul_rn(osh_cu_load(x[i]), by));
}

template <class T, class S> static void gain_launch(const osh_op_args *a)
{
    const osh_tensor *x = a->in[0], *y = a->out[0];
    int64_t n = osh_tensor_numel(x);
    OSH_LAUNCH((gain_kernel<T, S>), osh_cu_grid(y->device, n, 256), 256, 0,
               osh_cuda_stream(y->device), static_cast<T *>(y->data),
               static_cast<const T *>(x->data), static_cast<const S *>(a->in[1]->data), n);
}

osh_status osh_gain_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;

    if (!osh_tensor_numel(a->in[0])) return OSH_OK;
    OSH_TRY(osh_cu_readable(cx, a->in[1]->dtype));
    OSH_CU_BY_DTYPE(a->in[0]->dtype, T, OSH_CU_BY_STORED(a->in[1]->dtype, S, gain_launch<T, S>(a)));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
