/* moe_gate.cu - computes moe_gate. A warp computes a token; lane l computes the experts l, l + 32,
 * ...
 *
 *   in[0] x [N, D]     in[1] w [E, D]     in[2] b [E] optional     out route [N, E]
 *
 * A butterfly over the warp adds the products of the lanes to a logit. Logits, scores s and choices
 * c (steps of moe_gate.c) are in shared memory. All values are f32. N tokens, D elements per token,
 * E experts. */
#include "ops/cuda/pack.cuh"

#include <assert.h>

enum { WARPS = 4, MOST_GROUPS = OSH_MOE_MAX_EXPERTS / 2 };

/* Returns the rank of x[at] in x [n] in descending order: the number of elements that are larger,
 * or equal with a lower index. */
static __device__ inline int gate_rank_of(const float *x, int at, int n)
{
    int before = 0;
    for (int i = 0; i < n; i++) before += x[i] > x[at] || (x[i] == x[at] && i < at);
    return before;
}

/* Sets choice [E] to -infinity for the experts of all groups except the topk_group best. worth
 * [n_group]: scratch. Both arrays are in shared memory. */
static __device__ OSH_CU_APART void gate_cu_keep_groups(float *choice, float *worth,
                                                        const osh_moe_gate_attr &at, int lane)
{
    int groups = (int)at.n_group, each = (int)(at.experts / at.n_group);
    for (int g = lane; g < groups; g += 32) {
        float first = -INFINITY, second = -INFINITY;
        for (int e = g * each; e < (g + 1) * each; e++) {
            float c = choice[e];
            if (c > first) second = first, first = c;
            else if (c > second) second = c;
        }
        worth[g] = at.sigmoid ? __fadd_rn(first, second) : first;
    }
    __syncwarp();
    for (int g = lane; g < groups; g += 32)
        if (gate_rank_of(worth, g, groups) >= at.topk_group)
            for (int e = g * each; e < (g + 1) * each; e++) choice[e] = -INFINITY;
    __syncwarp();
}

typedef struct gate_sizes {
    int64_t n, D;
    bool grouped;
} gate_sizes;

/* Computes route [n, E] from x [n, D], the router's weights w [E, D] and, if it exists, bias
 * [E]. */
template <class T, class S>
static __global__ void gate_kernel(T *route, const T *x, const S *w, osh_cu_vector bias,
                                   gate_sizes sizes, osh_moe_gate_attr at)
{
    const int64_t n = sizes.n, D = sizes.D;
    const bool grouped = sizes.grouped;
    __shared__ float scores[WARPS][OSH_MOE_MAX_EXPERTS], choices[WARPS][OSH_MOE_MAX_EXPERTS];
    __shared__ float worths[WARPS][MOST_GROUPS];
    int lane = (int)(threadIdx.x % 32), warp = (int)(threadIdx.x / 32), E = (int)at.experts;
    float *score = scores[warp], *choice = choices[warp];

    for (int64_t r = (int64_t)blockIdx.x * WARPS + warp; r < n; r += (int64_t)gridDim.x * WARPS) {
        const T *row = x + r * D;
        float max = -INFINITY, sum = 0, top = 0;
        for (int e = 0; e < E; e++) {
            float dot = 0;
            for (int64_t i = lane; i < D; i += 32)
                dot = fmaf(osh_cu_load(row[i]), osh_cu_load(w[e * D + i]), dot);
            dot = osh_cu_warp_sum(dot);
            if (lane == e % 32) score[e] = dot;
            max = fmaxf(max, dot);
        }
        __syncwarp();
        for (int e = lane; e < E; e += 32) sum += expf(score[e] - max);
        sum = osh_cu_warp_sum(sum);
        for (int e = lane; e < E; e += 32) {
            float logit = score[e],
                  s = at.sigmoid ? 1.0f / (1.0f + expf(-logit)) : expf(logit - max) / sum;
            score[e] = s;
            choice[e] = bias.data ? __fadd_rn(s, osh_cu_at(bias, e)) : at.sigmoid ? s : logit;
        }
        __syncwarp();
        if (grouped) gate_cu_keep_groups(choice, worths[warp], at, lane);
        for (int e = lane; e < E; e += 32) {
            if (gate_rank_of(choice, e, E) >= at.route.top_k) score[e] = 0;
            top += score[e];
        }
        top = osh_cu_warp_sum(top);
        for (int e = lane; e < E; e += 32) {
            float s = at.route.norm_topk_prob ? score[e] / (top + 1e-20f) : score[e];
            osh_cu_store(&route[r * E + e], __fmul_rn(s, (float)at.scale));
        }
        __syncwarp();
    }
}

template <class T, class S> static void gate_launch(const osh_op_args *a)
{
    const osh_moe_gate_attr *at = static_cast<const osh_moe_gate_attr *>(a->attr);
    const osh_tensor *x = a->in[0], *y = a->out[0];
    OSH_LAUNCH((gate_kernel<T, S>), osh_cu_grid(y->device, osh_rows(x), WARPS), 32 * WARPS, 0,
               osh_cuda_stream(y->device), static_cast<T *>(y->data),
               static_cast<const T *>(x->data), static_cast<const S *>(a->in[1]->data),
               osh_cu_vector_of(a->in[2]),
               (gate_sizes{osh_rows(x), osh_width(x), osh_moe_gate_is_grouped(at)}), *at);
}

osh_status osh_moe_gate_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *b = a->in[2];

    assert(osh_width(a->out[0]) <= OSH_MOE_MAX_EXPERTS);
    if (!osh_rows(x)) return OSH_OK;
    OSH_TRY(osh_cu_readable(cx, a->in[1]->dtype));
    if (b) OSH_TRY(osh_cu_readable(cx, b->dtype));
    OSH_CU_BY_DTYPE(x->dtype, T, OSH_CU_BY_STORED(a->in[1]->dtype, S, gate_launch<T, S>(a)));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
