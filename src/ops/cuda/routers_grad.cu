/* routers_grad.cu - computes the gradients of moe_router and moe_gate in f32. A warp computes a
 * token; lane l computes the experts l, l + 32, ... For a chosen expert e, g[e] is the gradient of
 * its weight; for all other experts, g[e] is 0.
 *
 *   moe_router   p  = softmax(logits), over all experts or over the chosen experts
 *                dx += p (g - sum of g p), or g p (1 - p) if p is a sigmoid
 *                dw += g p, if weights are multiplied by w; then g w replaces g
 *   moe_gate     s  = softmax, sigmoid or root of the logits x w^T, computed again
 *                ds = scale g, or scale (g - sum of g s / top) / top if the sum `top` of the chosen
 *                     s divides the weights
 *                dlogits = s (ds - sum of ds s) | ds s (1 - s) | ds (1 - e^(-s s)) / (2 s)
 *                dx += dlogits w
 *                dw += dlogits^T x, by the matrix products of linear_grad.cu */
#include "ops/cuda/moe_gate.cuh"
#include "ops/cuda/moe_router.cuh"
#include "ops/cuda/sums.cuh"

enum { ROUTER_WARPS = 8 };

typedef struct router_back {
    float *dx;    // [n, E]; NULL: not computed
    float *terms; // terms of the gradient of w, [n, E]; NULL: not computed
    const float *dy;
    osh_cu_vector w; // data is NULL if weights are not multiplied by w
    int64_t n;
    int E;
} router_back;

/* Computes the gradients of the row r, whose logits are `row` [E]. */
template <class T>
static __device__ inline void router_cu_back(const T *row, const router_back &p, int64_t r,
                                             const osh_moe_router_attr &at)
{
    int lane = (int)(threadIdx.x % 32), E = p.E;
    float max = -INFINITY, sum = 0, dot = 0, logit;
    uint32_t taken = 0;
    for (int e = lane; e < E; e += 32) max = fmaxf(max, osh_cu_load(row[e]));
    max = osh_cu_warp_max(max);
    for (int k = 0; k < at.top_k; k++) {
        int e = router_next_best(&logit, row, E, taken, lane);
        if (e % 32 == lane) taken |= 1u << (e / 32);
    }
    for (int i = 0, e = lane; e < E; i++, e += 32)
        if (!at.norm_topk_prob || (taken >> i & 1)) sum += expf(osh_cu_load(row[e]) - max);
    sum = osh_cu_warp_sum(sum);
    for (int pass = 0; pass < 2; pass++) { // the first pass computes the sum of g p
        for (int i = 0, e = lane; e < E; i++, e += 32) {
            bool chosen = taken >> i & 1;
            float x = osh_cu_load(row[e]), g = chosen ? p.dy[r * E + e] : 0;
            float share = at.sigmoid ? 1.0f / (1.0f + expf(-x)) : expf(x - max) / sum;
            if (pass && p.terms) p.terms[r * E + e] = g * share;
            if (p.w.data) g *= osh_cu_round<T>(osh_cu_at(p.w, e));
            if (!pass) dot += g * share;
            else if (!p.dx) continue;
            else if (at.sigmoid) p.dx[r * E + e] += g * share * (1 - share);
            else if (chosen || !at.norm_topk_prob) p.dx[r * E + e] += share * (g - dot);
        }
        if (!pass) dot = osh_cu_warp_sum(dot);
    }
}

template <class T>
static __global__ void router_back_kernel(const T *logits, router_back p, osh_moe_router_attr at)
{
    for (int64_t r = (int64_t)blockIdx.x * ROUTER_WARPS + threadIdx.x / 32; r < p.n;
         r += (int64_t)gridDim.x * ROUTER_WARPS)
        router_cu_back(logits + r * p.E, p, r, at);
}

struct router_weight_back {
    const float *terms;
    int64_t E;
    __device__ float operator()(int64_t row, int64_t e) const { return terms[row * E + e]; }
};

osh_status osh_moe_router_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    const osh_moe_router_attr *at = static_cast<const osh_moe_router_attr *>(a->attr);
    osh_device *d = a->dout[0]->device;
    const osh_tensor *x = a->in[0];
    int64_t N = osh_rows(x), E = osh_width(x);
    size_t terms = (size_t)(N * E) * sizeof(float);
    float *room = NULL; // own: terms [N, E], then scratch for the sums
    router_back p = {a->din[0] ? static_cast<float *>(a->din[0]->data) : NULL,
                     NULL,
                     static_cast<const float *>(a->dout[0]->data),
                     osh_cu_vector_of(at->scaled ? a->in[1] : NULL),
                     N,
                     (int)E};

    if (!N) return OSH_OK;
    if (at->scaled) OSH_TRY(osh_cu_readable(cx, a->in[1]->dtype));
    if (at->scaled && a->din[1]) {
        room = static_cast<float *>(
            osh_device_alloc(cx, d, terms + osh_sums_bytes(N, E), OSH_LIFE_SHORT));
        if (!room) OSH_TRY(OSH_E_NOMEM);
        p.terms = room;
    }
    OSH_CU_BY_DTYPE(x->dtype, T,
                    OSH_LAUNCH(router_back_kernel<T>, osh_cu_grid(d, N, ROUTER_WARPS),
                               32 * ROUTER_WARPS, 0, osh_cuda_stream(d),
                               static_cast<const T *>(x->data), p, *at));
    OSH_CUDA(cx, cudaGetLastError());
    if (p.terms)
        OSH_TRY(osh_cu_sums(cx, d, static_cast<float *>(a->din[1]->data), {N, E, room + N * E},
                            router_weight_back{p.terms, E}));
done:
    osh_device_free(d, room);
    return rc;
}

typedef struct gate_back {
    float *to;       // gradients of the logits, [n, E]
    const float *dy; // gradients of the weights of the experts, [n, E]
    osh_cu_vector bias;
} gate_back;

/* Writes the gradients of the logits of token r. score [E] has the logits, and is overwritten. */
static __device__ inline void gate_cu_back(const gate_back &p, int64_t r, float *score,
                                           gate_room room, const osh_moe_gate_attr &at)
{
    int lane = (int)(threadIdx.x % 32), E = (int)at.experts;
    float *to = p.to + r * E;
    const float *dy = p.dy + r * E;
    float top = 0, dot = 0, all = 0, scale = (float)at.scale;
    uint32_t taken = 0; // bit i: the expert lane + 32 i is chosen
    gate_cu_scores(score, room, p.bias, at, lane);
    for (int i = 0, e = lane; e < E; i++, e += 32) {
        if (gate_rank_of(room.choice, e, E) >= at.route.top_k || score[e] == 0) continue;
        taken |= 1u << i, top += score[e], dot += dy[e] * score[e];
    }
    top = osh_cu_warp_sum(top), dot = osh_cu_warp_sum(dot);
    for (int pass = 0; pass < 2; pass++) { // the first pass computes the sum of ds s
        for (int i = 0, e = lane; e < E; i++, e += 32) {
            float s = score[e], ds = 0;
            if (taken >> i & 1)
                ds = scale * (at.route.norm_topk_prob ? (dy[e] - dot / top) / top : dy[e]);
            if (!pass) all += ds * s;
            else if (at.root) to[e] = ds == 0 ? 0 : ds * -expm1f(-s * s) / (2 * s);
            else to[e] = at.sigmoid ? ds * s * (1 - s) : s * (ds - all);
        }
        if (!pass) all = osh_cu_warp_sum(all);
    }
    __syncwarp(); // after this barrier no lane reads `choice`
}

template <class T, class S>
static __global__ void gate_back_kernel(gate_back p, const T *x, const S *w, gate_sizes sizes,
                                        osh_moe_gate_attr at)
{
    gate_cu_walk(x, w, sizes, (int)at.experts, [&](int64_t r, float *score, gate_room room) {
        gate_cu_back(p, r, score, room, at);
    });
}

template <class T, class S>
static osh_status gate_back_launch(osh_ctx *cx, const osh_grad_args *a, float *to)
{
    osh_status rc = OSH_OK;
    const osh_moe_gate_attr *at = static_cast<const osh_moe_gate_attr *>(a->attr);
    const osh_tensor *x = a->in[0];
    osh_device *d = a->dout[0]->device;
    size_t shared = gate_shared_bytes(at->experts);
    OSH_CUDA(cx, cudaFuncSetAttribute(gate_back_kernel<T, S>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    OSH_LAUNCH((gate_back_kernel<T, S>), osh_cu_grid(d, osh_rows(x), GATE_TOKENS), 32 * GATE_WARPS,
               shared, osh_cuda_stream(d),
               (gate_back{to, static_cast<const float *>(a->dout[0]->data),
                          osh_cu_vector_of(a->in[2])}),
               static_cast<const T *>(x->data), static_cast<const S *>(a->in[1]->data),
               (gate_sizes{osh_rows(x), osh_width(x), osh_moe_gate_is_grouped(at)}), *at);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

osh_status osh_moe_gate_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    osh_device *d = a->dout[0]->device;
    const osh_tensor *x = a->in[0], *w = a->in[1], *b = a->in[2];
    int64_t shape[2] = {osh_rows(x), w->shape[0]};
    osh_grad_args linear = {};
    osh_tensor to; // gradients of the logits
    float *room = NULL; // own: elements of `to`

    if (!osh_rows(x)) return OSH_OK;
    OSH_TRY(osh_cu_readable(cx, w->dtype));
    if (b) OSH_TRY(osh_cu_readable(cx, b->dtype));
    room = static_cast<float *>(
        osh_device_alloc(cx, d, (size_t)(shape[0] * shape[1]) * sizeof(float), OSH_LIFE_SHORT));
    if (!room) OSH_TRY(OSH_E_NOMEM);
    OSH_CU_BY_DTYPE(x->dtype, T, OSH_CU_BY_STORED(w->dtype, S,
        rc = gate_back_launch<T, S>(cx, a, room)));
    OSH_TRY(rc);
    to = osh_tensor_view(OSH_F32, 2, shape, room), to.device = d;
    linear.in[0] = x, linear.in[1] = w, linear.dout[0] = &to;
    linear.din[0] = a->din[0], linear.din[1] = a->din[1];
    OSH_TRY(osh_cuda_linear_back(cx, &linear, OSH_F32));
done:
    osh_device_free(d, room);
    return rc;
}
