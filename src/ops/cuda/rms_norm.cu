/* rms_norm.cu - computes rms_norm. A team (a warp or a block) computes a row, or a slice of
 * head_dim elements. Each element is read twice, the second time from the L1 cache.
 *
 *   in[0] x [N, D], may be F32   in[1] w [D] (or [head_dim])   out y [N, D]   y may overwrite x
 *
 * y = (w + offset) * round(x / sqrt(mean(x^2) + eps)), rounded. With the attribute `late`, only the
 * product is rounded. Sums are f32: each thread adds its elements, then the team adds the sums of
 * its threads (pack.cuh). N tokens, D elements per row or slice. */
#include "ops/cuda/pack.cuh"

#include <assert.h>

/* Loads the weights for one pack of elements, rounded to the compute dtype T. `packed`: true if S
 * is T and w is aligned to 16 bytes. */
template <class T, class S>
static __device__ inline void norm_load_weights(float *to, const S *w, bool packed)
{
    const int N = osh_cu_pack<T>::N;

    if (packed) {
        osh_cu_pack<T> p = osh_cu_pack_load(reinterpret_cast<const T *>(w));
        for (int k = 0; k < N; k++) to[k] = osh_cu_load(p.v[k]);
    } else {
        for (int k = 0; k < N; k++) to[k] = osh_cu_round<T>(osh_cu_load(w[k]));
    }
}

typedef struct norm_rule {
    float eps, offset;
    /* late: true if only the product is rounded.
     * packed: true if x is read as packs.
     * w_packed: true if the weight is read as packs.
     * plain: true if the op has no weight. */
    bool late, packed, w_packed, plain;
} norm_rule;

template <class T, class X>
static __device__ inline void normalize(T *y, X x, float r, float w, const norm_rule &p)
{
    float n = __fmul_rn(osh_cu_load(x), r);
    osh_cu_store(y, __fmul_rn(__fadd_rn(w, p.offset), p.late ? n : osh_cu_round<T>(n)));
}

/* Writes y = x r, for an op without a weight. r is 1 / sqrt(mean(x^2) + eps). */
template <class T, class X> static __device__ inline void normalize_plain(T *y, X x, float r)
{
    osh_cu_store(y, __fmul_rn(osh_cu_load(x), r));
}

/* Normalizes the slices of x [n_slices, D] to y; `w`: [D]. TEAM threads compute a slice. The type X
 * is T, or float if packs are not used. */
template <class T, class X, class S, int TEAM>
static __global__ void norm_kernel(T *y, const X *x, const S *w, int64_t n_slices, int64_t D,
                                   norm_rule p)
{
    const int N = osh_cu_pack<T>::N, TEAMS = 256 / TEAM;
    __shared__ float shared[8];
    int64_t lane = threadIdx.x % TEAM, n_packs = p.packed ? D / N : 0;

    for (int64_t s = (int64_t)blockIdx.x * TEAMS + threadIdx.x / TEAM; s < n_slices;
         s += (int64_t)gridDim.x * TEAMS) {
        const X *from = x + s * D;
        const T *packs = reinterpret_cast<const T *>(from);
        T *to = y + s * D;
        float sum = 0, weights[N];
        for (int64_t i = lane; i < n_packs; i += TEAM) {
            osh_cu_pack<T> v = osh_cu_pack_load(packs + i * N);
            for (int k = 0; k < N; k++) sum += osh_cu_load(v.v[k]) * osh_cu_load(v.v[k]);
        }
        for (int64_t i = n_packs * N + lane; i < D; i += TEAM)
            sum += osh_cu_load(from[i]) * osh_cu_load(from[i]);
        sum = osh_cu_team_sum<TEAM>(sum, shared);
        float r = 1.0f / sqrtf(sum / (float)D + p.eps);
        for (int64_t i = lane; i < n_packs; i += TEAM) {
            osh_cu_pack<T> v = osh_cu_pack_load(packs + i * N);
            if (!p.plain) norm_load_weights<T>(weights, w + i * N, p.w_packed);
            for (int k = 0; k < N; k++) {
                if (p.plain) normalize_plain(&v.v[k], v.v[k], r);
                else normalize(&v.v[k], v.v[k], r, weights[k], p);
            }
            osh_cu_pack_store(to + i * N, v);
        }
        for (int64_t i = n_packs * N + lane; i < D; i += TEAM)
            if (p.plain) normalize_plain(&to[i], from[i], r);
            else normalize(&to[i], from[i], r, osh_cu_round<T>(osh_cu_load(w[i])), p);
    }
}

template <class T, class X, class S> static void rms_norm_launch(const osh_op_args *a, int64_t D)
{
    const osh_rms_norm_attr *at = static_cast<const osh_rms_norm_attr *>(a->attr);
    const osh_tensor *x = a->in[0], *w = a->in[1] ? a->in[1] : x, *y = a->out[0];
    osh_device *d = y->device;
    int64_t n_slices = osh_tensor_numel(x) / D;
    bool packed = x->dtype == y->dtype && osh_cu_packed(x, D) && osh_cu_packed(y, D);
    norm_rule p = {(float)at->eps, (float)at->offset, at->late, packed,
                   w->dtype == y->dtype && osh_cu_aligned(w->data), !a->in[1]};
    T *to = static_cast<T *>(y->data);
    const X *from = static_cast<const X *>(x->data);
    const S *weights = static_cast<const S *>(w->data);

    if (D <= 1024)
        OSH_LAUNCH((norm_kernel<T, X, S, 32>), osh_cu_grid(d, n_slices, 8), 256, 0,
                   osh_cuda_stream(d), to, from, weights, n_slices, D, p);
    else
        OSH_LAUNCH((norm_kernel<T, X, S, 256>), osh_cu_grid(d, n_slices, 1), 256, 0,
                   osh_cuda_stream(d), to, from, weights, n_slices, D, p);
}

osh_status osh_rms_norm_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_rms_norm_attr *at = static_cast<const osh_rms_norm_attr *>(a->attr);
    int64_t width = osh_width(a->in[0]), D = at->head_dim ? at->head_dim : width;

    const osh_tensor *w = a->in[1] ? a->in[1] : a->in[0];

    assert(width % D == 0 && (!a->in[1] || osh_tensor_numel(w) == D));
    if (!osh_tensor_numel(a->in[0])) return OSH_OK;
    OSH_TRY(osh_cu_readable(cx, w->dtype));
    if (a->in[0]->dtype == OSH_F32)
        OSH_CU_BY_DTYPE(a->out[0]->dtype, T,
                        OSH_CU_BY_STORED(w->dtype, S, (rms_norm_launch<T, float, S>(a, D))));
    else
        OSH_CU_BY_DTYPE(a->out[0]->dtype, T,
                        OSH_CU_BY_STORED(w->dtype, S, (rms_norm_launch<T, T, S>(a, D))));
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
