/* norm_grad.cu - computes the gradients of rms_norm and layer_norm. For each row, a team (a warp or
 * a block) computes dx. It also stores the mean of the row, and r = 1 / sqrt(variance + eps). Then
 * sums over all rows (sums.cuh) give the gradients of the weights. Sums are f32.
 *
 *   both         g   = dy (w + offset)
 *   rms_norm     n   = x r
 *                dx += (g - n mean(g n)) r
 *   layer_norm   n   = (x - mean) r
 *                dx += (g - mean(g) - n mean(g n)) r
 *   both         dw += dy n
 *                db += dy */
#include "ops/cuda/sums.cuh"

typedef struct norm_back {
    /* dx: gradient [rows, D], or NULL.
     * r [rows]: for each row, 1 / sqrt(variance + eps). In rms_norm: 1 / sqrt(mean square + eps).
     * mean [rows]: mean of each row; only for layer_norm. */
    float *dx, *r, *mean;
    const float *dy;      // view: [rows, D]
    int64_t rows, D;
    float eps, offset;
    bool plain;           // true: the op has no weight (same as all weights 1)
} norm_back;

template <class T, class S, int TEAM>
static __global__ void rms_norm_back(const T *x, const S *w, norm_back p)
{
    const int TEAMS = 256 / TEAM;
    __shared__ float shared[8];
    int64_t lane = threadIdx.x % TEAM;

    for (int64_t s = (int64_t)blockIdx.x * TEAMS + threadIdx.x / TEAM; s < p.rows;
         s += (int64_t)gridDim.x * TEAMS) {
        const T *from = x + s * p.D;
        const float *dy = p.dy + s * p.D;
        float sum = 0, dot = 0;
        for (int64_t i = lane; i < p.D; i += TEAM) {
            float v = osh_cu_load(from[i]),
                  g = p.plain ? 1 : osh_cu_round<T>(osh_cu_load(w[i])) + p.offset;
            sum += v * v, dot += dy[i] * g * v;
        }
        sum = osh_cu_team_sum<TEAM>(sum, shared);
        dot = osh_cu_team_sum<TEAM>(dot, shared);
        float r = 1.0f / sqrtf(sum / (float)p.D + p.eps), mean = dot * r / (float)p.D;
        if (!lane) p.r[s] = r;
        for (int64_t i = lane; p.dx && i < p.D; i += TEAM) {
            float n = osh_cu_load(from[i]) * r,
                  g = p.plain ? 1 : osh_cu_round<T>(osh_cu_load(w[i])) + p.offset;
            p.dx[s * p.D + i] += (dy[i] * g - n * mean) * r;
        }
    }
}

/* Returns the factor of channel i in layer_norm: the weight plus the offset, as the op rounds
 * it. */
template <class T, class S>
static __device__ inline float layer_norm_factor(const S *w, int64_t i, const norm_back &p)
{
    if (p.plain) return 1;
    return osh_cu_round<T>(osh_cu_round<T>(osh_cu_load(w[i])) + p.offset);
}

template <class T, class S>
static __global__ void layer_norm_back(const T *x, const S *w, norm_back p)
{
    __shared__ float shared[8];

    for (int64_t s = blockIdx.x; s < p.rows; s += gridDim.x) {
        const T *from = x + s * p.D;
        const float *dy = p.dy + s * p.D;
        float mean = 0, sum = 0, g1 = 0, gn = 0;
        for (int64_t i = threadIdx.x; i < p.D; i += 256) mean += osh_cu_load(from[i]);
        mean = osh_cu_team_sum<256>(mean, shared) / (float)p.D;
        for (int64_t i = threadIdx.x; i < p.D; i += 256) {
            float v = osh_cu_load(from[i]) - mean, g = dy[i] * layer_norm_factor<T>(w, i, p);
            sum += v * v, g1 += g, gn += g * v;
        }
        sum = osh_cu_team_sum<256>(sum, shared);
        float r = 1.0f / sqrtf(sum / (float)p.D + p.eps);
        g1 = osh_cu_team_sum<256>(g1, shared) / (float)p.D;
        gn = osh_cu_team_sum<256>(gn, shared) * r / (float)p.D;
        if (!threadIdx.x) p.r[s] = r, p.mean[s] = mean;
        for (int64_t i = threadIdx.x; p.dx && i < p.D; i += 256) {
            float n = (osh_cu_load(from[i]) - mean) * r, g = dy[i] * layer_norm_factor<T>(w, i, p);
            p.dx[s * p.D + i] += (g - g1 - n * gn) * r;
        }
    }
}

/* Function object that returns the term dy n of the gradient of w, for one element. */
template <class T> struct norm_weight_back {
    const float *dy, *r, *mean; // mean: NULL stands for means that are 0
    const T *x;
    int64_t D;
    __device__ float operator()(int64_t row, int64_t i) const
    {
        return dy[row * D + i] * (osh_cu_load(x[row * D + i]) - (mean ? mean[row] : 0)) * r[row];
    }
};
struct norm_bias_back {
    const float *dy;
    int64_t D;
    __device__ float operator()(int64_t row, int64_t i) const { return dy[row * D + i]; }
};

/* Adds the gradients of weight and bias. Requires p->r and p->mean, which the kernel for dx has
 * computed. */
template <class T>
static osh_status norm_weights_back(osh_ctx *cx, const osh_grad_args *a, const norm_back *p)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->dout[0]->device;
    float *room = NULL; // scratch in GPU memory; own
    if (!a->din[1] && !a->din[2]) goto done;
    room = static_cast<float *>(osh_device_alloc(cx, d, osh_sums_bytes(p->rows, p->D),
                                                 OSH_LIFE_SHORT));
    if (!room) OSH_TRY(OSH_E_NOMEM);
    if (a->din[1])
        OSH_TRY(osh_cu_sums(cx, d, static_cast<float *>(a->din[1]->data), {p->rows, p->D, room},
                            norm_weight_back<T>{p->dy, p->r, p->mean,
                                                static_cast<const T *>(a->in[0]->data), p->D}));
    if (a->din[2])
        OSH_TRY(osh_cu_sums(cx, d, static_cast<float *>(a->din[2]->data), {p->rows, p->D, room},
                            norm_bias_back{p->dy, p->D}));
done:
    osh_device_free(d, room);
    return rc;
}

/* Initializes *p for rows of D elements. Allocates scratch for `keeps` floats per row: 1 for r, or
 * 2 for r and mean. */
static osh_status norm_back_begin(osh_ctx *cx, norm_back *p, const osh_grad_args *a, int64_t D,
                                  int keeps)
{
    osh_device *d = a->dout[0]->device;
    p->D = D, p->rows = osh_tensor_numel(a->in[0]) / D;
    p->dx = a->din[0] ? static_cast<float *>(a->din[0]->data) : NULL;
    p->dy = static_cast<const float *>(a->dout[0]->data);
    size_t n_bytes = (size_t)(p->rows * keeps) * sizeof(float);
    p->r = static_cast<float *>(osh_device_alloc(cx, d, n_bytes, OSH_LIFE_SHORT));
    p->mean = keeps > 1 && p->r ? p->r + p->rows : NULL;
    return p->r ? OSH_OK : OSH_E_NOMEM;
}

template <class T, class S>
static void rms_norm_back_launch(const osh_grad_args *a, const norm_back &p)
{
    osh_device *d = a->dout[0]->device;
    const T *x = static_cast<const T *>(a->in[0]->data);
    const S *w = static_cast<const S *>(a->in[1] ? a->in[1]->data : a->in[0]->data);
    if (p.D <= 1024)
        OSH_LAUNCH((rms_norm_back<T, S, 32>), osh_cu_grid(d, p.rows, 8), 256, 0, osh_cuda_stream(d),
                   x, w, p);
    else
        OSH_LAUNCH((rms_norm_back<T, S, 256>), osh_cu_grid(d, p.rows, 1), 256, 0,
                   osh_cuda_stream(d), x, w, p);
}

osh_status osh_rms_norm_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const osh_rms_norm_attr *at = static_cast<const osh_rms_norm_attr *>(a->attr);
    osh_dtype dt = a->in[0]->dtype, stored = a->in[1] ? a->in[1]->dtype : dt;
    norm_back p = {};

    if (!osh_tensor_numel(a->in[0])) return OSH_OK;
    p.eps = (float)at->eps, p.offset = (float)at->offset, p.plain = !a->in[1];
    OSH_TRY(osh_cu_readable(cx, stored));
    OSH_TRY(norm_back_begin(cx, &p, a, at->head_dim ? at->head_dim : osh_width(a->in[0]), 1));
    OSH_CU_BY_DTYPE(dt, T, OSH_CU_BY_STORED(stored, S, rms_norm_back_launch<T, S>(a, p)));
    OSH_CUDA(cx, cudaGetLastError());
    OSH_CU_BY_DTYPE(dt, T, rc = norm_weights_back<T>(cx, a, &p));
done:
    osh_device_free(a->dout[0]->device, p.r);
    return rc;
}

osh_status osh_layer_norm_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->dout[0]->device;
    const osh_layer_norm_attr *at = static_cast<const osh_layer_norm_attr *>(a->attr);
    osh_dtype dt = a->in[0]->dtype, stored = a->in[1] ? a->in[1]->dtype : dt;
    const void *w = a->in[1] ? a->in[1]->data : a->in[0]->data;
    norm_back p = {};

    if (!osh_tensor_numel(a->in[0])) return OSH_OK;
    p.eps = (float)at->eps, p.offset = (float)at->offset, p.plain = !a->in[1];
    OSH_TRY(osh_cu_readable(cx, stored));
    OSH_TRY(norm_back_begin(cx, &p, a, at->head_dim ? at->head_dim : osh_width(a->in[0]), 2));
    OSH_CU_BY_DTYPE(dt, T, OSH_CU_BY_STORED(stored, S,
        OSH_LAUNCH((layer_norm_back<T, S>), osh_cu_grid(d, p.rows, 1), 256, 0, osh_cuda_stream(d),
                   static_cast<const T *>(a->in[0]->data), static_cast<const S *>(w), p)));
    OSH_CUDA(cx, cudaGetLastError());
    OSH_CU_BY_DTYPE(dt, T, rc = norm_weights_back<T>(cx, a, &p));
done:
    osh_device_free(d, p.r);
    return rc;
}
