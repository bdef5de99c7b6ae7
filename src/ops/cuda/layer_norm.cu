/* layer_norm.cu - computes layer_norm. A block computes a row. Sums are f32: each thread adds its
 * elements, then the block adds the sums of its threads (pack.cuh). N rows, each of D elements; a
 * row is a token of the batch, or a head if head_dim is set.
 *
 *   in[0] x [N, D]   in[1] w [D]   in[2] b [D], optional   out y [N, D]   y may overwrite x */
#include "ops/cuda/weight.cuh"

#include <assert.h>

typedef struct layer_norm_weights {
    const void *w, *b; // weight and bias, [D]; NULL: none; views
    osh_dtype w_dtype, b_dtype;
    float offset;      // number added to the weight
} layer_norm_weights;

/* Normalizes the rows of x [N, D] to y [N, D]. */
template <class T>
static __global__ void layer_norm_kernel(T *y, const T *x, layer_norm_weights p, int64_t N,
                                         int64_t D, float eps)
{
    __shared__ float shared[8];

    for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
        const T *from = x + n * D;
        float mean = 0, sum = 0;
        for (int64_t i = threadIdx.x; i < D; i += 256) mean += osh_cu_load(from[i]);
        mean = osh_cu_team_sum<256>(mean, shared) / (float)D;
        for (int64_t i = threadIdx.x; i < D; i += 256) {
            float d = osh_cu_load(from[i]) - mean;
            sum += d * d;
        }
        sum = osh_cu_team_sum<256>(sum, shared);
        float r = 1.0f / sqrtf(sum / (float)D + eps);
        for (int64_t i = threadIdx.x; i < D; i += 256) {
            float v = __fmul_rn(osh_cu_load(from[i]) - mean, r),
                  b = p.b ? osh_cu_weight<T>(p.b, p.b_dtype, i) : 0, w = 1;
            if (p.w) w = osh_cu_round<T>(osh_cu_weight<T>(p.w, p.w_dtype, i) + p.offset);
            osh_cu_store(&y[n * D + i], __fadd_rn(__fmul_rn(v, w), b));
        }
    }
}

osh_status osh_layer_norm_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *w = a->in[1], *b = a->in[2], *y = a->out[0];
    const osh_layer_norm_attr *at = static_cast<const osh_layer_norm_attr *>(a->attr);
    int64_t D = at->head_dim ? at->head_dim : osh_width(x), N = osh_tensor_numel(x) / D;
    layer_norm_weights p = {w ? w->data : NULL, b ? b->data : NULL, w ? w->dtype : x->dtype,
                            b ? b->dtype : x->dtype, (float)at->offset};

    assert(!w || osh_tensor_numel(w) == D);
    if (!osh_tensor_numel(x)) return OSH_OK;
    OSH_TRY(osh_cu_readable(cx, p.w_dtype));
    OSH_TRY(osh_cu_readable(cx, p.b_dtype));
    OSH_CU_BY_DTYPE(x->dtype, T,
                    OSH_LAUNCH(layer_norm_kernel<T>, osh_cu_grid(y->device, N, 1), 256, 0,
                               osh_cuda_stream(y->device), static_cast<T *>(y->data),
                               static_cast<const T *>(x->data), p, N, D, (float)at->eps));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
