/* rows_grad.cu - computes the gradients of the ops of rows.cu, of routed_rows and of moe_combine,
 * in f32.
 *
 *   positions        dx += dy
 *                    dw += dy, at the row of the position
 *   position_scale   dx += dy times the factor of the position
 *   gain             dx += dy w
 *                    dw += sum of dy x
 *   sigmoid_gate     dx += dy f(gate)
 *                    dgate += f'(gate) times the sum of dy x over the elements of the gate
 *   routed_scale     dx += dy times the weight of the row
 *                    droute += sum of dy x
 *                    dlogit += s (1 - s) times the sum of dy x, if the weight is a sigmoid s
 *   routed_rows      dx += dy in the rows of the expert
 *   moe_combine      dsum += dy
 *                    dy_expert += dy times the weight, and droute += sum of dy y, in the rows of
 *                    the expert
 *
 * A sum over a row is a sum of the lanes of a warp. */
#include "ops/cuda/add.cuh"
#include "ops/cuda/sums.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

static float *rows_grad_of(const osh_tensor *t)
{
    return t ? static_cast<float *>(t->data) : NULL;
}

osh_status osh_positions_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->dout[0]->device;
    int64_t N = osh_rows(a->in[0]), D = osh_width(a->in[0]), one[2] = {0, N},
            n_seqs = a->seqs ? a->seqs->n : 1;
    const int64_t *offsets = a->seqs ? a->seqs->offsets : one;
    const float *dy = static_cast<const float *>(a->dout[0]->data);
    int64_t offset = static_cast<const osh_positions_attr *>(a->attr)->offset;

    if (a->din[0]) OSH_TRY(osh_cu_add(cx, d, rows_grad_of(a->din[0]), dy, N * D, 1));
    // one launch for each sample, because all samples add to the same rows of dw
    for (int64_t s = 0; a->din[1] && s < n_seqs; s++)
        OSH_TRY(osh_cu_add(cx, d, rows_grad_of(a->din[1]) + offset * D, dy + offsets[s] * D,
                           (offsets[s + 1] - offsets[s]) * D, 1));
done:
    return rc;
}

/* Adds the gradients of n elements of one sample to dx. */
static __global__ void position_scale_back(float *dx, const float *dy, int64_t n, int64_t D,
                                           float beta, float original)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * THREADS) {
        float turns = floorf(((float)(i / D) + 1.0f) / original);
        dx[i] += dy[i] * __fadd_rn(__fmul_rn((float)log(1 + (double)turns), beta), 1.0f);
    }
}

osh_status osh_position_scale_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const osh_position_scale_attr *at = static_cast<const osh_position_scale_attr *>(a->attr);
    osh_device *d = a->dout[0]->device;
    int64_t one[2] = {0, osh_rows(a->in[0])}, n_seqs = a->seqs ? a->seqs->n : 1,
            D = osh_width(a->in[0]);
    const int64_t *offsets = a->seqs ? a->seqs->offsets : one;

    for (int64_t s = 0; a->din[0] && s < n_seqs; s++) {
        int64_t first = offsets[s] * D, n = (offsets[s + 1] - offsets[s]) * D;
        if (n)
            OSH_LAUNCH(position_scale_back, osh_cu_grid(d, n, THREADS), THREADS, 0,
                       osh_cuda_stream(d), rows_grad_of(a->din[0]) + first,
                       static_cast<const float *>(a->dout[0]->data) + first, n, D, (float)at->beta,
                       (float)at->original);
    }
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* Adds dy times w[0] to dx [n]. */
template <class T>
static __global__ void gain_back(float *dx, const float *dy, osh_cu_vector w, int64_t n)
{
    float by = osh_cu_round<T>(osh_cu_at(w, 0));
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * THREADS)
        dx[i] += __fmul_rn(dy[i], by);
}

template <class T> struct gain_weight_back { // a term of the sums of the columns
    const float *dy;
    const T *x;
    int64_t D;
    __device__ float operator()(int64_t row, int64_t i) const
    {
        return dy[row * D + i] * osh_cu_load(x[row * D + i]);
    }
};
struct gain_columns_back { // the sum of a column
    const float *sums;
    __device__ float operator()(int64_t row, int64_t) const { return sums[row]; }
};

/* Adds the gradient of w: computes the sum of each column of dy x, then the sum of these sums. */
template <class T> static osh_status gain_weight(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->dout[0]->device;
    int64_t N = osh_rows(a->in[0]), D = osh_width(a->in[0]);
    size_t at = osh_sums_bytes(N, D);
    char *room = static_cast<char *>(
        osh_device_alloc(cx, d, at + (size_t)D * sizeof(float), OSH_LIFE_SHORT)); // own
    float *part = reinterpret_cast<float *>(room), *columns;
    if (!room) OSH_TRY(OSH_E_NOMEM);
    columns = reinterpret_cast<float *>(room + at);
    OSH_CUDA(cx, cudaMemsetAsync(columns, 0, (size_t)D * sizeof(float), osh_cuda_stream(d)));
    OSH_TRY(osh_cu_sums(cx, d, columns, {N, D, part},
                        gain_weight_back<T>{static_cast<const float *>(a->dout[0]->data),
                                            static_cast<const T *>(a->in[0]->data), D}));
    OSH_TRY(osh_cu_sums(cx, d, rows_grad_of(a->din[1]), {D, 1, part}, gain_columns_back{columns}));
done:
    osh_device_free(d, room);
    return rc;
}

osh_status osh_gain_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->dout[0]->device;
    int64_t n = osh_tensor_numel(a->in[0]);

    if (!n) return OSH_OK;
    OSH_TRY(osh_cu_readable(cx, a->in[1]->dtype));
    OSH_CU_BY_DTYPE(a->in[0]->dtype, T, {
        if (a->din[0])
            OSH_LAUNCH(gain_back<T>, osh_cu_grid(d, n, THREADS), THREADS, 0, osh_cuda_stream(d),
                       rows_grad_of(a->din[0]), static_cast<const float *>(a->dout[0]->data),
                       osh_cu_vector_of(a->in[1]), n);
        if (a->din[1]) rc = gain_weight<T>(cx, a);
    });
    OSH_TRY(rc);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

typedef struct gate_rows { // gradients of gate [gates] and x [gates, share]; NULL: not computed
    float *gate, *x;
    const float *dy;
    int64_t gates, share;
    bool softplus;
} gate_rows;

/* A team of TEAM threads (a thread or a warp) computes a gate. */
template <class T, int TEAM>
static __global__ void sigmoid_gate_back(const T *gate, const T *x, gate_rows p)
{
    int64_t lane = threadIdx.x % TEAM;
    for (int64_t g = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / TEAM; g < p.gates;
         g += (int64_t)gridDim.x * (THREADS / TEAM)) {
        float v = osh_cu_load(gate[g]), s = 1.0f / (1.0f + expf(-v)), sum = 0;
        float by = !p.softplus ? s : v > 20 ? v : log1pf(expf(v));
        for (int64_t i = g * p.share + lane; i < (g + 1) * p.share; i += TEAM) {
            sum += p.dy[i] * osh_cu_load(x[i]);
            if (p.x) p.x[i] += p.dy[i] * by;
        }
        if (TEAM == 32) sum = osh_cu_warp_sum(sum);
        if (p.gate && !lane) p.gate[g] += (p.softplus ? s : s * (1 - s)) * sum;
    }
}

osh_status osh_sigmoid_gate_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->dout[0]->device;
    const osh_tensor *gate = a->in[0], *x = a->in[1];
    gate_rows p = {rows_grad_of(a->din[0]), rows_grad_of(a->din[1]),
                   static_cast<const float *>(a->dout[0]->data), osh_tensor_numel(gate),
                   osh_width(x) / osh_width(gate),
                   static_cast<const osh_sigmoid_gate_attr *>(a->attr)->softplus};

    if (!p.gates) return OSH_OK;
    OSH_CU_BY_DTYPE(x->dtype, T, {
        const T *g = static_cast<const T *>(gate->data), *v = static_cast<const T *>(x->data);
        if (p.share < 32)
            OSH_LAUNCH((sigmoid_gate_back<T, 1>), osh_cu_grid(d, p.gates, THREADS), THREADS, 0,
                       osh_cuda_stream(d), g, v, p);
        else
            OSH_LAUNCH((sigmoid_gate_back<T, 32>), osh_cu_grid(d, p.gates, WARPS), THREADS, 0,
                       osh_cuda_stream(d), g, v, p);
    });
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

typedef struct expert_rows { // gradients of sum, x [n, D] and route [n, E]; NULL: not computed
    float *sum, *x, *route;
    const float *dy;
    int64_t n, D, E, expert; // expert: index of the expert; negative: none (routed_scale)
    bool plain;
} expert_rows;

/* Returns the arguments of a kernel for an op with the inputs in[x] and in[route]. */
static expert_rows expert_rows_of(const osh_grad_args *a, int x, int route, int64_t expert)
{
    return {NULL,
            rows_grad_of(a->din[x]),
            rows_grad_of(a->din[route]),
            static_cast<const float *>(a->dout[0]->data),
            osh_rows(a->in[x]),
            osh_width(a->in[x]),
            osh_width(a->in[route]),
            expert,
            false};
}

/* A warp computes a row of routed_scale. */
template <class T>
static __global__ void routed_scale_back(const T *x, const T *route, expert_rows p)
{
    int64_t lane = threadIdx.x % 32;
    for (int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; r < p.n;
         r += (int64_t)gridDim.x * WARPS) {
        float by = 0, sum = 0;
        for (int64_t e = lane; e < p.E && p.expert < 0; e += 32)
            by += osh_cu_load(route[r * p.E + e]);
        by = osh_cu_warp_sum(by);
        if (p.expert >= 0) by = 1.0f / (1.0f + expf(-osh_cu_load(route[r * p.E + p.expert])));
        for (int64_t i = r * p.D + lane; i < (r + 1) * p.D; i += 32) {
            sum += p.dy[i] * osh_cu_load(x[i]);
            if (p.x) p.x[i] += p.dy[i] * by;
        }
        sum = osh_cu_warp_sum(sum);
        if (!p.route) continue; // all lanes of the warp skip, or none does
        if (p.expert >= 0 && !lane) p.route[r * p.E + p.expert] += sum * by * (1 - by);
        for (int64_t e = lane; e < p.E && p.expert < 0; e += 32) p.route[r * p.E + e] += sum;
    }
}

osh_status osh_routed_scale_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->dout[0]->device;
    expert_rows p =
        expert_rows_of(a, 0, 1, static_cast<const osh_routed_scale_attr *>(a->attr)->expert);

    if (!p.n) return OSH_OK;
    OSH_CU_BY_DTYPE(a->in[0]->dtype, T,
                    OSH_LAUNCH(routed_scale_back<T>, osh_cu_grid(d, p.n, WARPS), THREADS, 0,
                               osh_cuda_stream(d), static_cast<const T *>(a->in[0]->data),
                               static_cast<const T *>(a->in[1]->data), p));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* Adds dy to the rows of dx that are routed to the expert. */
template <class T> static __global__ void routed_rows_back(const T *route, expert_rows p)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < p.n * p.D;
         i += (int64_t)gridDim.x * THREADS)
        if (osh_cu_load(route[i / p.D * p.E + p.expert]) != 0) p.x[i] += p.dy[i];
}

osh_status osh_routed_rows_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->dout[0]->device;
    expert_rows p =
        expert_rows_of(a, 0, 1, static_cast<const osh_moe_combine_attr *>(a->attr)->expert);

    if (!p.n || !p.x) return OSH_OK;
    OSH_CU_BY_DTYPE(a->in[1]->dtype, T,
                    OSH_LAUNCH(routed_rows_back<T>, osh_cu_grid(d, p.n * p.D, THREADS), THREADS, 0,
                               osh_cuda_stream(d), static_cast<const T *>(a->in[1]->data), p));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

/* A warp computes a row of moe_combine. */
template <class T>
static __global__ void moe_combine_back(const T *y, const T *route, expert_rows p)
{
    int64_t lane = threadIdx.x % 32;
    for (int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; r < p.n;
         r += (int64_t)gridDim.x * WARPS) {
        float weight = osh_cu_load(route[r * p.E + p.expert]), sum = 0;
        bool uses = weight != 0;
        for (int64_t i = r * p.D + lane; i < (r + 1) * p.D; i += 32) {
            float dy = p.dy[i];
            if (p.sum) p.sum[i] += dy;
            if (!uses) continue;
            if (p.x) p.x[i] += p.plain ? dy : __fmul_rn(dy, weight);
            sum += dy * osh_cu_load(y[i]);
        }
        sum = osh_cu_warp_sum(sum);
        if (p.route && uses && !p.plain && !lane) p.route[r * p.E + p.expert] += sum;
    }
}

osh_status osh_moe_combine_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const osh_moe_combine_attr *at = static_cast<const osh_moe_combine_attr *>(a->attr);
    osh_device *d = a->dout[0]->device;
    expert_rows p = expert_rows_of(a, 1, 2, at->expert);

    p.sum = rows_grad_of(a->din[0]), p.plain = at->plain;
    if (!p.n) return OSH_OK;
    OSH_CU_BY_DTYPE(a->in[1]->dtype, T,
                    OSH_LAUNCH(moe_combine_back<T>, osh_cu_grid(d, p.n, WARPS), THREADS, 0,
                               osh_cuda_stream(d), static_cast<const T *>(a->in[1]->data),
                               static_cast<const T *>(a->in[2]->data), p));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
