/* moe_gate.cu - computes moe_gate. A block computes 8 tokens. Each of its warps computes the logits
 * of 8 experts at a time, and then chooses the experts of one token at a time.
 *
 *   in[0] x [N, D]     in[1] w [E, D]     in[2] b [E] optional     out route [N, E]
 *
 * w is read once for each 8 tokens. A lane multiplies every 32nd element of a row. A butterfly
 * reduction over the warp adds the sums of the lanes. So a logit does not depend on the tokens and
 * experts that are computed together with it. Logits, scores s and choices c (moe_gate.c) are in
 * shared memory. Everything is f32. */
#include "ops/cuda/moe_gate.cuh"

#include <assert.h>

/* Computes the row `route` [E] of a token from its logits `score` [E], which are overwritten. */
template <class T>
static __device__ inline void gate_cu_choose(T *route, float *score, gate_room room,
                                             osh_cu_vector bias, const osh_moe_gate_attr &at)
{
    int lane = (int)(threadIdx.x % 32), E = (int)at.experts;
    float top = 0;
    gate_cu_scores(score, room, bias, at, lane);
    for (int e = lane; e < E; e += 32) {
        if (gate_rank_of(room.choice, e, E) >= at.route.top_k) score[e] = 0;
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
    gate_cu_walk(x, w, sizes, (int)at.experts, [&](int64_t r, float *score, gate_room room) {
        gate_cu_choose(route + r * at.experts, score, room, bias, at);
    });
}

template <class T, class S> static osh_status gate_launch(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_moe_gate_attr *at = static_cast<const osh_moe_gate_attr *>(a->attr);
    const osh_tensor *x = a->in[0], *y = a->out[0];
    size_t shared = gate_shared_bytes(at->experts);
    OSH_CUDA(cx, cudaFuncSetAttribute(gate_kernel<T, S>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    OSH_LAUNCH((gate_kernel<T, S>), osh_cu_grid(y->device, osh_rows(x), GATE_TOKENS),
               32 * GATE_WARPS, shared, osh_cuda_stream(y->device), static_cast<T *>(y->data),
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
