/* gated_norm_grad.cu - computes the gradients of gated_norm in f32. s is silu(z) or sigmoid(z), and
 * s' is its derivative. r is 1 / sqrt(mean(u u) + eps). A block computes a head.
 *
 *   gate after the norm    u = x     n = u r     g = dy w s     dw += dy n s
 *   gate before the norm   u = x s   n = u r     g = dy w       dw += dy n
 *   both                   du = (g - n mean(g n)) r
 *   gate after the norm    dx += du       dz += dy w n s'
 *   gate before the norm   dx += du s     dz += du x s' */
#include "ops/cuda/scan.cuh"
#include "ops/cuda/sums.cuh"

typedef struct gated_back { // n heads of D elements; r [n] is scratch
    float *dx, *dz, *r;
    const float *dy;
    weights p;
    int64_t n, heads; // heads: number of heads that have weights of their own
    osh_gated_norm_attr at;
} gated_back;

static __device__ inline float gated_slope(float z, bool sigmoid)
{
    float s = 1.0f / (1.0f + expf(-z));
    return sigmoid ? s * (1 - s) : s * (1 + z * (1 - s));
}

template <class T, class X>
static __global__ void gated_back_kernel(const X *x, const T *z, gated_back b)
{
    __shared__ float shared[8];
    int64_t D = b.at.head_dim;
    bool before = b.at.before;

    for (int64_t h = blockIdx.x; h < b.n; h += gridDim.x) {
        float sum = 0, dot = 0;
        for (int64_t i = h * D + threadIdx.x; i < (h + 1) * D; i += SCAN_THREADS) {
            float v = osh_cu_load(x[i]), s = scan_gate(osh_cu_load(z[i]), b.at.sigmoid);
            float w = osh_cu_weight<T>(b.p.w[0], b.p.dtype[0], h % b.heads * D + i - h * D);
            float u = before ? v * s : v;
            sum += u * u;
            dot += b.dy[i] * w * s * v; // the product g u, for both places of the gate
        }
        sum = osh_cu_team_sum<SCAN_THREADS>(sum, shared);
        dot = osh_cu_team_sum<SCAN_THREADS>(dot, shared);
        float r = 1.0f / sqrtf(sum / (float)D + (float)b.at.eps), mean = r * dot / (float)D;
        if (threadIdx.x == 0) b.r[h] = r;
        for (int64_t i = h * D + threadIdx.x; i < (h + 1) * D; i += SCAN_THREADS) {
            float v = osh_cu_load(x[i]), gate = osh_cu_load(z[i]);
            float s = scan_gate(gate, b.at.sigmoid), slope = gated_slope(gate, b.at.sigmoid);
            float w = osh_cu_weight<T>(b.p.w[0], b.p.dtype[0], h % b.heads * D + i - h * D);
            float g = b.dy[i] * w, n = (before ? v * s : v) * r;
            float du = ((before ? g : g * s) - n * mean) * r;
            if (b.dx) b.dx[i] += before ? du * s : du;
            if (b.dz) b.dz[i] += (before ? du * v : g * n) * slope;
        }
    }
}

template <class T, class X> struct gated_weight_back { // a term of the gradient of w
    const X *x;
    const T *z;
    const float *dy, *r;
    int64_t width, D; // width: number of elements of w
    bool sigmoid;
    __device__ float operator()(int64_t row, int64_t i) const
    {
        int64_t at = row * width + i;
        // s is a factor of n or of g
        return dy[at] * osh_cu_load(x[at]) * scan_gate(osh_cu_load(z[at]), sigmoid) * r[at / D];
    }
};

template <class T, class X>
static osh_status gated_back_run(osh_ctx *cx, const osh_grad_args *a, const gated_back &b)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->dout[0]->device;
    const X *x = static_cast<const X *>(a->in[0]->data);
    const T *z = static_cast<const T *>(a->in[1]->data);
    int64_t width = b.heads * b.at.head_dim;

    OSH_LAUNCH((gated_back_kernel<T, X>), osh_cu_grid(d, b.n, 1), SCAN_THREADS, 0,
               osh_cuda_stream(d), x, z, b);
    OSH_CUDA(cx, cudaGetLastError());
    if (a->din[2])
        OSH_TRY(osh_cu_sums(cx, d, static_cast<float *>(a->din[2]->data),
                            {b.n / b.heads, width, b.r + b.n},
                            gated_weight_back<T, X>{x, z, b.dy, b.r, width, b.at.head_dim,
                                                    b.at.sigmoid}));
done:
    return rc;
}

osh_status osh_gated_norm_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->dout[0]->device;
    gated_back b = {};

    if (!osh_rows(a->in[0])) return OSH_OK;
    b.at = *static_cast<const osh_gated_norm_attr *>(a->attr);
    b.n = osh_tensor_numel(a->in[0]) / b.at.head_dim;
    b.heads = osh_tensor_numel(a->in[2]) / b.at.head_dim;
    b.dx = a->din[0] ? static_cast<float *>(a->din[0]->data) : NULL;
    b.dz = a->din[1] ? static_cast<float *>(a->din[1]->data) : NULL;
    b.dy = static_cast<const float *>(a->dout[0]->data);
    OSH_TRY(scan_weights_of(cx, &b.p, a->in + 2, 1));
    // r, then scratch for the sums
    b.r = static_cast<float *>(osh_device_alloc(
        cx, d, osh_gated_norm_back_bytes(b.n, b.heads, b.at.head_dim), OSH_LIFE_SHORT));
    if (!b.r) OSH_TRY(OSH_E_NOMEM);
    OSH_CU_BY_DTYPE(a->in[1]->dtype, T, {
        if (a->in[0]->dtype == OSH_F32) rc = gated_back_run<T, float>(cx, a, b);
        else rc = gated_back_run<T, T>(cx, a, b);
    });
done:
    osh_device_free(d, b.r);
    return rc;
}
