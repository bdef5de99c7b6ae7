/* moe_router.cu - computes moe_router. A warp computes a token; lane l computes the experts l, l +
 * 32, ...
 *
 *   in[0] logits [N, E]
 *   in[1] w [E], if scaled
 *   out route [N, E]
 *
 *   route = e^(logit - max) / sum, in f32
 *
 * Only the experts with the top_k largest logits get this weight; all others get 0. If logits are
 * equal, the lower index is chosen. A butterfly over the warp computes the sum. With
 * norm_topk_prob, the results are divided by their own sum, whose terms are added in the order of
 * the choice. With the attribute `scaled`, the result of expert e is multiplied by w[e]. N tokens,
 * E experts. */
#include "ops/cuda/moe_router.cuh"

#include <assert.h>

/* Computes route [n, E] from logits [n, E]. If the op is scaled, also reads w [E]. */
template <class T>
static __global__ void router_kernel(T *route, const T *logits, osh_cu_vector w, int64_t n, int E,
                                     osh_moe_router_attr at)
{
    int lane = (int)(threadIdx.x % 32), warps = (int)(blockDim.x / 32);

    for (int64_t r = (int64_t)blockIdx.x * warps + threadIdx.x / 32; r < n;
         r += (int64_t)gridDim.x * warps) {
        const T *row = logits + r * E;
        T *to = route + r * E;
        float max = -INFINITY, sum = 0, top = 0, logit;
        uint32_t taken = 0;
        for (int e = lane; e < E; e += 32) max = fmaxf(max, osh_cu_load(row[e]));
        max = osh_cu_warp_max(max);
        for (int e = lane; e < E; e += 32) sum += expf(osh_cu_load(row[e]) - max);
        sum = osh_cu_warp_sum(sum);
        for (int k = 0; k < at.top_k; k++) {
            int e = router_next_best(&logit, row, E, taken, lane);
            if (e % 32 == lane) taken |= 1u << (e / 32);
            top += expf(logit - max) / sum;
        }
        for (int i = 0, e = lane; e < E; i++, e += 32) {
            float x = osh_cu_load(row[e]),
                  p = at.sigmoid ? 1.0f / (1.0f + expf(-x)) : expf(x - max) / sum;
            if (!(taken >> i & 1)) p = 0;
            if (at.norm_topk_prob) p /= top;
            if (at.scaled) p *= osh_cu_round<T>(osh_cu_at(w, e));
            osh_cu_store(&to[e], p);
        }
    }
}

template <class T> static void router_launch(const osh_op_args *a)
{
    const osh_moe_router_attr *at = static_cast<const osh_moe_router_attr *>(a->attr);
    const osh_tensor *x = a->in[0], *y = a->out[0];
    OSH_LAUNCH(router_kernel<T>, osh_cu_grid(y->device, osh_rows(x), 4), 128, 0,
               osh_cuda_stream(y->device), static_cast<T *>(y->data),
               static_cast<const T *>(x->data), osh_cu_vector_of(at->scaled ? a->in[1] : NULL),
               osh_rows(x), (int)osh_width(x), *at);
}

osh_status osh_moe_router_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_moe_router_attr *at = static_cast<const osh_moe_router_attr *>(a->attr);
    osh_dtype dt = a->in[0]->dtype, stored = at->scaled ? a->in[1]->dtype : dt;

    assert(osh_width(a->in[0]) <= OSH_MOE_MAX_EXPERTS &&
           osh_width(a->out[0]) == osh_width(a->in[0]));
    assert(at->top_k <= osh_width(a->in[0]));
    if (!osh_rows(a->in[0])) return OSH_OK;
    OSH_TRY(osh_cu_readable(cx, stored));
    OSH_CU_BY_DTYPE(dt, T, router_launch<T>(a));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
