/* moe_gate.cu - computes moe_gate. A block computes 8 tokens. Each of its warps computes the logits
 * of 8 experts at a time, and then chooses the experts of one token at a time.
 *
 *   in[0] x [N, D]     in[1] w [E, D]     in[2] b [E] optional     out route [N, E]
 *
 * w is read once for each 8 tokens. A lane multiplies every 32nd element of a row. A butterfly
 * reduction over the warp adds the sums of the lanes. So a logit does not depend on the tokens and
 * experts that are computed together with it. Logits, scores s and choices c (moe_gate.c) are in
 * shared memory. Everything is f32. */
#include "ops/cuda/pack.cuh"

#include <assert.h>

/* WARPS: number of warps of a block.
 * TOKENS: number of tokens that a block computes together.
 * TILE: number of experts whose logits a warp computes together. */
enum { WARPS = 4, TOKENS = 8, TILE = 8 };

/* Returns the rank of x[at] in x [n] in descending order: the number of elements that are larger,
 * or equal with a lower index. */
static __device__ inline int gate_rank_of(const float *x, int at, int n)
{
    int before = 0;
    for (int i = 0; i < n; i++) before += x[i] > x[at] || (x[i] == x[at] && i < at);
    return before;
}

/* Sets choice [E] to -infinity for the experts of all groups except the topk_group best groups.
 * `worth` [n_group]: scratch. Both arrays are in shared memory. */
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

/* Returns the number of bytes of shared memory: scores [TOKENS, E], choices [WARPS, E], and scores
 * of groups [WARPS, E / 2]. */
static size_t gate_shared_bytes(int64_t E)
{
    return (size_t)(TOKENS * E + WARPS * E + WARPS * (E / 2)) * sizeof(float);
}

/* Sets columns [first, first + TILE) of `score` [n, E], the logits x w^T, from x [n, D]. All lanes
 * of a warp call this function. */
template <class T, class S>
static __device__ inline void gate_cu_logits(float *score, const T *x, const S *w, gate_sizes z,
                                             int first, int E)
{
    int lane = (int)(threadIdx.x % 32), n = (int)z.n;
    float sum[TOKENS][TILE] = {};
    for (int64_t i = lane; i < z.D; i += 32) {
        float rows[TOKENS];
#pragma unroll
        for (int t = 0; t < TOKENS; t++) rows[t] = t < n ? osh_cu_load(x[t * z.D + i]) : 0;
#pragma unroll
        for (int e = 0; e < TILE; e++) {
            float by = first + e < E ? osh_cu_load(w[(first + e) * z.D + i]) : 0;
#pragma unroll
            for (int t = 0; t < TOKENS; t++) sum[t][e] = fmaf(rows[t], by, sum[t][e]);
        }
    }
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
#pragma unroll
        for (int e = 0; e < TILE; e++) {
            if (t >= n || first + e >= E) continue; // all lanes of the warp skip, or none does
            float dot = osh_cu_warp_sum(sum[t][e]);
            if (lane == e) score[t * E + first + e] = dot;
        }
    }
}

typedef struct gate_room { // scratch of one warp in shared memory
    /* choice: scores for the choice, [E].
     * worth: scores of the groups, [E / 2]; NULL: the experts have no groups. */
    float *choice, *worth;
} gate_room;

/* Computes the row `route` [E] of a token from its logits `score` [E], which are overwritten. */
template <class T>
static __device__ inline void gate_cu_choose(T *route, float *score, gate_room room,
                                             osh_cu_vector bias, const osh_moe_gate_attr &at)
{
    float *choice = room.choice;
    int lane = (int)(threadIdx.x % 32), E = (int)at.experts;
    float max = -INFINITY, sum = 0, top = 0;
    for (int e = lane; e < E; e += 32) max = fmaxf(max, score[e]);
    max = osh_cu_warp_max(max);
    for (int e = lane; e < E; e += 32) sum += expf(score[e] - max);
    sum = osh_cu_warp_sum(sum);
    for (int e = lane; e < E; e += 32) {
        float logit = score[e],
              s = at.root      ? sqrtf(logit > 20 ? logit : log1pf(expf(logit)))
                  : at.sigmoid ? 1.0f / (1.0f + expf(-logit))
                               : expf(logit - max) / sum;
        score[e] = s;
        choice[e] = bias.data ? __fadd_rn(s, osh_cu_at(bias, e))
                    : at.sigmoid || at.root ? s : logit;
    }
    __syncwarp();
    if (room.worth) gate_cu_keep_groups(choice, room.worth, at, lane);
    for (int e = lane; e < E; e += 32) {
        if (gate_rank_of(choice, e, E) >= at.route.top_k) score[e] = 0;
        top += score[e];
    }
    top = osh_cu_warp_sum(top);
    for (int e = lane; e < E; e += 32) {
        float s = at.route.norm_topk_prob ? score[e] / (top + 1e-20f) : score[e];
        osh_cu_store(&route[e], __fmul_rn(s, (float)at.scale));
    }
    __syncwarp(); // after this barrier no lane reads `choice`
}

/* Computes `route` [n, E] from x [n, D], w [E, D] and `bias` [E]. The bias may be absent. */
template <class T, class S>
static __global__ void gate_kernel(T *route, const T *x, const S *w, osh_cu_vector bias,
                                   gate_sizes sizes, osh_moe_gate_attr at)
{
    OSH_DYNAMIC_SHARED(float, shared);
    int warp = (int)(threadIdx.x / 32), E = (int)at.experts;
    gate_room room = {shared + (TOKENS + warp) * E,
                      sizes.grouped ? shared + (TOKENS + WARPS) * E + warp * (E / 2) : NULL};

    for (int64_t r = (int64_t)blockIdx.x * TOKENS; r < sizes.n; r += (int64_t)gridDim.x * TOKENS) {
        gate_sizes z = {sizes.n - r < TOKENS ? sizes.n - r : TOKENS, sizes.D, sizes.grouped};
        for (int e = warp * TILE; e < E; e += WARPS * TILE)
            gate_cu_logits(shared, x + r * z.D, w, z, e, E);
        __syncthreads();
        for (int t = warp; t < z.n; t += WARPS)
            gate_cu_choose(route + (r + t) * E, shared + t * E, room, bias, at);
        // after this barrier no thread reads the scores, which the next tokens overwrite
        __syncthreads();
    }
}

template <class T, class S> static osh_status gate_launch(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_moe_gate_attr *at = static_cast<const osh_moe_gate_attr *>(a->attr);
    const osh_tensor *x = a->in[0], *y = a->out[0];
    size_t shared = gate_shared_bytes(at->experts);
    OSH_CUDA(cx, cudaFuncSetAttribute(gate_kernel<T, S>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    OSH_LAUNCH((gate_kernel<T, S>), osh_cu_grid(y->device, osh_rows(x), TOKENS), 32 * WARPS, shared,
               osh_cuda_stream(y->device), static_cast<T *>(y->data),
               static_cast<const T *>(x->data), static_cast<const S *>(a->in[1]->data),
               osh_cu_vector_of(a->in[2]),
               (gate_sizes{osh_rows(x), osh_width(x), osh_moe_gate_is_grouped(at)}), *at);
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}

osh_status osh_moe_gate_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *b = a->in[2];

    assert(osh_width(a->out[0]) <= OSH_MOE_MAX_EXPERTS);
    if (!osh_rows(x)) return OSH_OK;
    OSH_TRY(osh_cu_readable(cx, a->in[1]->dtype));
    if (b) OSH_TRY(osh_cu_readable(cx, b->dtype));
    OSH_CU_BY_DTYPE(x->dtype, T,
                    OSH_CU_BY_STORED(a->in[1]->dtype, S, rc = gate_launch<T, S>(cx, a)));
done:
    return rc;
}
