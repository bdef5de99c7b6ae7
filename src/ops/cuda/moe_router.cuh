/* moe_router.cuh - declares how moe_router chooses experts. Its gradient uses the experts that the
 * forward pass chooses. */
#ifndef OSH_MOE_ROUTER_CUH
#define OSH_MOE_ROUTER_CUH
#include "ops/cuda/pack.cuh"

/* Returns the expert with the largest logit among the experts that are not chosen yet. All lanes of
 * the warp get the same result. Sets *logit to that logit. A lane reads the experts `lane`,
 * `lane` + 32, ... Bit i of `taken` is set if the i-th of these experts is chosen. */
template <class T>
static __device__ inline int router_next_best(float *logit, const T *row, int E, uint32_t taken,
                                              int lane)
{
    float best = -INFINITY;
    int at = E; // index of the best expert so far; E: none
    for (int i = 0, e = lane; e < E; i++, e += 32) {
        float x = osh_cu_load(row[e]);
        if (!(taken >> i & 1) && (x > best || at == E)) best = x, at = e;
    }
    for (int d = 16; d; d >>= 1) {
        float x = __shfl_xor_sync(0xffffffffu, best, d);
        int e = __shfl_xor_sync(0xffffffffu, at, d);
        if (e < E && (at == E || x > best || (x == best && e < at))) best = x, at = e;
    }
    *logit = best;
    return at;
}
#endif
