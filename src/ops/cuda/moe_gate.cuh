/* moe_gate.cuh - declares how moe_gate computes logits and scores, and how it chooses experts. Its
 * gradient uses the same scores and experts as the forward pass. */
#ifndef OSH_MOE_GATE_CUH
#define OSH_MOE_GATE_CUH
#include "ops/cuda/pack.cuh"

/* GATE_WARPS: number of warps of a block.
 * GATE_TOKENS: number of tokens that a block computes together.
 * GATE_TILE: number of experts whose logits a warp computes together. */
enum { GATE_WARPS = 4, GATE_TOKENS = 8, GATE_TILE = 8 };

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

/* Returns the number of bytes of shared memory: scores [GATE_TOKENS, E], choices [GATE_WARPS, E],
 * and scores of groups [GATE_WARPS, E / 2]. */
static inline size_t gate_shared_bytes(int64_t E)
{
    return (size_t)(GATE_TOKENS * E + GATE_WARPS * E + GATE_WARPS * (E / 2)) * sizeof(float);
}

/* Sets columns [first, first + GATE_TILE) of `score` [n, E], the logits x w^T, from x [n, D]. All
 * lanes of a warp call this function. */
template <class T, class S>
static __device__ inline void gate_cu_logits(float *score, const T *x, const S *w, gate_sizes z,
                                             int first, int E)
{
    int lane = (int)(threadIdx.x % 32), n = (int)z.n;
    float sum[GATE_TOKENS][GATE_TILE] = {};
    for (int64_t i = lane; i < z.D; i += 32) {
        float rows[GATE_TOKENS];
#pragma unroll
        for (int t = 0; t < GATE_TOKENS; t++) rows[t] = t < n ? osh_cu_load(x[t * z.D + i]) : 0;
#pragma unroll
        for (int e = 0; e < GATE_TILE; e++) {
            float by = first + e < E ? osh_cu_load(w[(first + e) * z.D + i]) : 0;
#pragma unroll
            for (int t = 0; t < GATE_TOKENS; t++) sum[t][e] = fmaf(rows[t], by, sum[t][e]);
        }
    }
#pragma unroll
    for (int t = 0; t < GATE_TOKENS; t++) {
#pragma unroll
        for (int e = 0; e < GATE_TILE; e++) {
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

/* Replaces the logits `score` [E] of a token by its scores s, and sets room.choice to the scores
 * for the choice. These are -infinity for the experts of groups that the token cannot use. */
static __device__ inline void gate_cu_scores(float *score, gate_room room, osh_cu_vector bias,
                                             const osh_moe_gate_attr &at, int lane)
{
    float *choice = room.choice, max = -INFINITY, sum = 0;
    int E = (int)at.experts;
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
}


/* Computes the logits of all tokens x [n, D], GATE_TOKENS tokens at a time. For each token, a warp
 * calls f(token, logits [E], room). f may overwrite the logits. */
template <class T, class S, class F>
static __device__ inline void gate_cu_walk(const T *x, const S *w, gate_sizes sizes, int E,
                                           const F &f)
{
    OSH_DYNAMIC_SHARED(float, shared);
    int warp = (int)(threadIdx.x / 32);
    float *choices = shared + GATE_TOKENS * E, *worths = choices + GATE_WARPS * E;
    gate_room room = {choices + warp * E, sizes.grouped ? worths + warp * (E / 2) : NULL};

    for (int64_t r = (int64_t)blockIdx.x * GATE_TOKENS; r < sizes.n;
         r += (int64_t)gridDim.x * GATE_TOKENS) {
        int64_t left = sizes.n - r;
        gate_sizes z = {left < GATE_TOKENS ? left : GATE_TOKENS, sizes.D, sizes.grouped};
        for (int e = warp * GATE_TILE; e < E; e += GATE_WARPS * GATE_TILE)
            gate_cu_logits(shared, x + r * z.D, w, z, e, E);
        __syncthreads();
        for (int t = warp; t < z.n; t += GATE_WARPS) f(r + t, shared + t * E, room);
        // after this barrier no thread reads the scores, which the next tokens overwrite
        __syncthreads();
    }
}
#endif
