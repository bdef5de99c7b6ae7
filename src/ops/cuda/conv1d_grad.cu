/* conv1d_grad.cu - computes the gradients of conv1d in f32. z[t] is the sum of w[k] x[t - K + 1 +
 * k] and the bias.
 *
 *   dz = dy, or dy silu'(z)
 *   dx[t] += sum of w[k] dz[t + K - 1 - k]
 *   dw[k] += sum of dz[t] x[t - K + 1 + k]
 *   dbias += sum of dz
 *
 * A thread computes an element of dz or dx. Tokens of other samples have no part in the sums. */
#include "ops/cuda/scan.cuh"
#include "ops/cuda/sums.cuh"

typedef struct conv_back { // dz [N, C]; pos [N]: position of each token in its sample
    float *dz;
    int32_t *pos;
    int64_t C;
    osh_conv1d_attr at;
    weights p;
} conv_back;

/* Computes dz and pos of the n tokens of one sample. All pointers are to its first token. */
template <class T, class W>
static __global__ void conv_back_sums(const T *x, const float *dy, int64_t n, conv_back b)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n * b.C;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t t = i / b.C, c = i % b.C, K = b.at.kernel;
        float z = b.p.w[1] ? osh_cu_weight<W>(b.p.w[1], b.p.dtype[1], c) : 0, slope = 1;
        for (int64_t k = t + 1 >= K ? 0 : K - 1 - t; k < K; k++)
            z += osh_cu_weight<W>(b.p.w[0], b.p.dtype[0], c * K + k) *
                 osh_cu_load(x[(t - K + 1 + k) * b.C + c]);
        if (b.at.silu) {
            float half = 1.0f / (1.0f + expf(-z));
            slope = half * (1 + z * (1 - half));
        }
        b.dz[i] = dy[i] * slope;
        if (c == 0) b.pos[t] = (int32_t)t;
    }
}

/* Adds the gradients of the n tokens of one sample to dx. */
template <class W> static __global__ void conv_back_x(float *dx, int64_t n, conv_back b)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n * b.C;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t t = i / b.C, c = i % b.C, K = b.at.kernel;
        float sum = 0;
        for (int64_t k = t + K > n ? t + K - n : 0; k < K; k++)
            sum += osh_cu_weight<W>(b.p.w[0], b.p.dtype[0], c * K + k) *
                   b.dz[(t + K - 1 - k) * b.C + c];
        dx[i] += sum;
    }
}

template <class T> struct conv_weight_back { // a term of the gradient of element i of w [C, K]
    const T *x;
    const float *dz;
    const int32_t *pos;
    int64_t C, K;
    __device__ float operator()(int64_t row, int64_t i) const
    {
        int64_t c = i / K, back = K - 1 - i % K;
        return pos[row] < back ? 0 : dz[row * C + c] * osh_cu_load(x[(row - back) * C + c]);
    }
};
struct conv_bias_back {
    const float *dz;
    int64_t C;
    __device__ float operator()(int64_t row, int64_t c) const { return dz[row * C + c]; }
};

template <class T, class W>
static void conv_back_launch(const osh_grad_args *a, const conv_back &all, const scan_samples &of)
{
    osh_device *d = a->dout[0]->device;
    for (int s = 0; s < of.count; s++) {
        int64_t n = of.n[s], first = of.row[s] * all.C;
        unsigned grid = osh_cu_grid(d, n * all.C, SCAN_THREADS);
        conv_back b = all;
        b.dz += first, b.pos += of.row[s];
        OSH_LAUNCH((conv_back_sums<T, W>), grid, SCAN_THREADS, 0, osh_cuda_stream(d),
                   static_cast<const T *>(a->in[0]->data) + first,
                   static_cast<const float *>(a->dout[0]->data) + first, n, b);
        if (a->din[0])
            OSH_LAUNCH(conv_back_x<W>, grid, SCAN_THREADS, 0, osh_cuda_stream(d),
                       static_cast<float *>(a->din[0]->data) + first, n, b);
    }
}

/* Adds the gradients of w and of the bias. room: scratch for the sums. */
template <class T>
static osh_status conv_back_weights(osh_ctx *cx, const osh_grad_args *a, const conv_back &b,
                                    float *room)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->dout[0]->device;
    int64_t N = osh_rows(a->in[0]), K = b.at.kernel;
    if (a->din[1])
        OSH_TRY(osh_cu_sums(cx, d, static_cast<float *>(a->din[1]->data), {N, b.C * K, room},
                            conv_weight_back<T>{static_cast<const T *>(a->in[0]->data), b.dz, b.pos,
                                                b.C, K}));
    if (a->din[2])
        OSH_TRY(osh_cu_sums(cx, d, static_cast<float *>(a->din[2]->data), {N, b.C, room},
                            conv_bias_back{b.dz, b.C}));
done:
    return rc;
}

osh_status osh_conv1d_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->dout[0]->device;
    int64_t N = osh_rows(a->in[0]);
    conv_back b = {NULL, NULL, osh_width(a->in[0]), *static_cast<const osh_conv1d_attr *>(a->attr),
                   {}};
    char *room = NULL; // own: dz, then pos, then scratch for the sums
    size_t dz = (size_t)(N * b.C) * sizeof(float), pos = (size_t)N * sizeof(int32_t);

    if (!N) return OSH_OK;
    OSH_TRY(scan_weights_of(cx, &b.p, a->in + 1, 2));
    room = static_cast<char *>(osh_device_alloc(
        cx, d, osh_conv1d_back_bytes(N, b.C, b.at.kernel), OSH_LIFE_SHORT));
    if (!room) OSH_TRY(OSH_E_NOMEM);
    b.dz = reinterpret_cast<float *>(room), b.pos = reinterpret_cast<int32_t *>(room + dz);
    OSH_TRY(scan_by_samples(cx, a->seqs, N, [&](const scan_samples &of) {
        OSH_CU_BY_DTYPE(a->in[0]->dtype, T,
                        b.at.f32 ? conv_back_launch<T, float>(a, b, of)
                                 : conv_back_launch<T, T>(a, b, of));
    }));
    OSH_CU_BY_DTYPE(a->in[0]->dtype, T,
        rc = conv_back_weights<T>(cx, a, b, reinterpret_cast<float *>(room + dz + pos)));
done:
    osh_device_free(d, room);
    return rc;
}
