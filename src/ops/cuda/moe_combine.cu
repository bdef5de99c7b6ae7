/* moe_combine.cu - computes moe_combine. A warp computes a token.
 *
 *   in[0] sum [N, D]     in[1] y [N, D]     in[2] route [N, E]     out [N, D]
 *
 * out = sum + round(y * weight), rounded, if the weight of the expert for the token is not 0. If
 * the weight is 0, out has the bytes of sum. With the attribute `plain`, a weight that is not 0
 * counts as 1. N tokens, D elements per token, E experts. */
#include "ops/cuda/pack.cuh"

#include <assert.h>

/* Adds y * weight to *out; rounds the product and the sum. */
template <class T> static __device__ inline void combine_add_one(T *out, T y, float weight)
{
    osh_cu_store(out,
                 __fadd_rn(osh_cu_load(*out), osh_cu_round<T>(__fmul_rn(osh_cu_load(y), weight))));
}

typedef struct combine_sizes {
    int64_t n, D, E;
    bool packed;
} combine_sizes;

/* Computes out [n, D] from sum and y [n, D] and the column of the expert in route [n, E]. */
template <class T>
static __global__ void combine_kernel(T *out, const T *sum, const T *y, const T *route,
                                      combine_sizes s, osh_moe_combine_attr by)
{
    const int64_t n = s.n, D = s.D, E = s.E;
    const bool packed = s.packed;
    const int N = osh_cu_pack<T>::N;
    int64_t lane = threadIdx.x % 32, warps = blockDim.x / 32, n_packs = packed ? D / N : 0;

    for (int64_t r = (int64_t)blockIdx.x * warps + threadIdx.x / 32; r < n;
         r += (int64_t)gridDim.x * warps) {
        float weight = osh_cu_load(route[r * E + by.expert]);
        if (by.plain && weight != 0) weight = 1;
        int64_t at = r * D;
        for (int64_t i = lane; i < n_packs; i += 32) {
            osh_cu_pack<T> p = osh_cu_pack_load(sum + at + i * N);
            if (weight != 0) {
                osh_cu_pack<T> q = osh_cu_pack_load(y + at + i * N);
                for (int k = 0; k < N; k++) combine_add_one(&p.v[k], q.v[k], weight);
            }
            osh_cu_pack_store(out + at + i * N, p);
        }
        for (int64_t i = n_packs * N + lane; i < D; i += 32) {
            T v = sum[at + i];
            if (weight != 0) combine_add_one(&v, y[at + i], weight);
            out[at + i] = v;
        }
    }
}

osh_status osh_moe_combine_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_moe_combine_attr *at = static_cast<const osh_moe_combine_attr *>(a->attr);
    const osh_tensor *sum = a->in[0], *y = a->in[1], *route = a->in[2], *out = a->out[0];
    int64_t n = osh_rows(sum), D = osh_width(sum), E = osh_width(route);
    bool packed = osh_cu_packed(sum, D) && osh_cu_packed(y, D) && osh_cu_packed(out, D);

    assert(osh_width(y) == D && osh_width(out) == D && at->expert < E);
    if (!n) return OSH_OK;
    OSH_CU_BY_DTYPE(out->dtype, T,
        OSH_LAUNCH(combine_kernel<T>, osh_cu_grid(out->device, n, 4), 128, 0,
                   osh_cuda_stream(out->device), static_cast<T *>(out->data),
                   static_cast<const T *>(sum->data), static_cast<const T *>(y->data),
                   static_cast<const T *>(route->data), (combine_sizes{n, D, E, packed}), *at));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
