/* scan.cu - computes the ops of recurrent layers: conv1d, delta_rule, ssm_scan, gated_norm.
 *
 *   conv1d       a thread computes a channel of a token
 *   delta_rule   a block computes a head of a sample. The state [Dk, Dv] is in scratch; a thread
 *                updates columns; query and key of the current token are in shared memory
 *   ssm_scan     like delta_rule, with the state [S, P], and B and C in shared memory
 *   gated_norm   a block computes a head of a row
 *
 * All values are f32 and rounded as in the reference kernels. One thread of a block computes the
 * gates in double. A sum over keys or over the state is added in order by one thread, so the result
 * does not depend on the number of blocks. Letters in shapes: ops/scan.h. */
#include "ops/cuda/scan.cuh"

/* Computes conv1d for x [n, C] of one sample. The weights `p` are w [C, K] and the bias [C] or
 * NULL. W: the type to which weights and sums are rounded. */
template <class T, class W>
static __global__ void conv_kernel(T *y, const T *x, weights p, int64_t n, int64_t C,
                                   osh_conv1d_attr at)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n * C;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t t = i / C, c = i % C, K = at.kernel;
        float sum = p.w[1] ? osh_cu_weight<W>(p.w[1], p.dtype[1], c) : 0;
        for (int64_t k = t + 1 >= K ? 0 : K - 1 - t; k < K; k++)
            sum += osh_cu_weight<W>(p.w[0], p.dtype[0], c * K + k) *
                   osh_cu_load(x[(t - K + 1 + k) * C + c]);
        sum = osh_cu_round<W>(sum);
        osh_cu_store(&y[i], at.silu ? silu(sum) : sum);
    }
}

/* Computes conv1d for all samples of `of`. */
template <class T, class W>
static void conv_launch(const osh_op_args *a, const weights *p, const scan_samples *of)
{
    const osh_tensor *x = a->in[0], *y = a->out[0];
    int64_t C = osh_width(x);
    for (int s = 0; s < of->count; s++)
        OSH_LAUNCH((conv_kernel<T, W>), osh_cu_grid(y->device, of->n[s] * C, SCAN_THREADS),
                   SCAN_THREADS, 0, osh_cuda_stream(y->device),
                   static_cast<T *>(y->data) + of->row[s] * C,
                   static_cast<const T *>(x->data) + of->row[s] * C, *p, of->n[s], C,
                   *static_cast<const osh_conv1d_attr *>(a->attr));
}

osh_status osh_conv1d_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    bool f32 = static_cast<const osh_conv1d_attr *>(a->attr)->f32;
    weights p = {};

    OSH_TRY(scan_weights_of(cx, &p, a->in + 1, 2));
    OSH_TRY(scan_by_samples(cx, a->seqs, osh_rows(a->in[0]), [&](const scan_samples &of) {
        OSH_CU_BY_DTYPE(a->in[0]->dtype, T,
                        f32 ? conv_launch<T, float>(a, &p, &of) : conv_launch<T, T>(a, &p, &of));
    }));
done:
    return rc;
}

typedef struct scan_heads { // the samples, weights and states of a launch
    scan_samples of;
    weights p;
    float *state; // states, one per block: [blocks, rows of a state, columns of a state]; own
} scan_heads;

/* Computes delta_rule. Shared memory has the values of the current token: q and k [Dk], the decay,
 * and beta * sigmoid(b).
 * x: [N, 2 Nk Dk + Nv Dv].
 * a, b: [N, Nv].
 * y: [N, Nv Dv]. */
template <class T>
static __global__ void delta_kernel(T *y, const T *x, const T *a, const T *b, scan_heads h,
                                    osh_delta_rule_attr at)
{
    OSH_DYNAMIC_SHARED(float, shared);
    __shared__ float sums[8];
    int64_t Dk = at.k_dim, Dv = at.v_dim, keys = at.k_heads * Dk,
            width = 2 * keys + at.v_heads * Dv;
    float *q = shared, *k = q + Dk, *gates = k + Dk, *S = h.state + (int64_t)blockIdx.x * Dk * Dv;

    for (int64_t item = blockIdx.x; item < h.of.count * at.v_heads; item += gridDim.x) {
        int64_t head = item % at.v_heads, sample = item / at.v_heads;
        for (int64_t i = threadIdx.x; i < Dk * Dv; i += SCAN_THREADS) S[i] = 0;
        for (int64_t t = h.of.row[sample]; t < h.of.row[sample] + h.of.n[sample]; t++) {
            const T *row = x + t * width, *from = row + head / (at.v_heads / at.k_heads) * Dk;
            float qq = 0, kk = 0;
            __syncthreads(); // after this barrier all threads have finished the previous token
            for (int64_t i = threadIdx.x; i < Dk; i += SCAN_THREADS) {
                q[i] = osh_cu_load(from[i]), k[i] = osh_cu_load(from[keys + i]);
                qq += q[i] * q[i], kk += k[i] * k[i];
            }
            qq = osh_cu_team_sum<SCAN_THREADS>(qq, sums);
            kk = osh_cu_team_sum<SCAN_THREADS>(kk, sums);
            for (int64_t i = threadIdx.x; i < Dk; i += SCAN_THREADS) {
                q[i] *= 1.0f / sqrtf(qq + 1e-6f) / sqrtf((float)Dk);
                k[i] *= 1.0f / sqrtf(kk + 1e-6f);
            }
            if (threadIdx.x == 0) {
                double fade = -exp((double)osh_cu_weight<T>(h.p.w[0], h.p.dtype[0], head)) *
                              softplus((double)osh_cu_load(a[t * at.v_heads + head]) +
                                       osh_cu_weight<T>(h.p.w[1], h.p.dtype[1], head));
                gates[0] = (float)exp(fade);
                gates[1] = osh_cu_round<T>(
                    (float)(1 / (1 + exp(-(double)osh_cu_load(b[t * at.v_heads + head])))));
                gates[1] = osh_cu_round<T>(gates[1] * (float)at.beta);
            }
            __syncthreads();
            for (int64_t c = threadIdx.x; c < Dv; c += SCAN_THREADS) {
                float says = 0, read = 0;
                for (int64_t i = 0; i < Dk; i++) {
                    float s = S[i * Dv + c] * gates[0];
                    S[i * Dv + c] = s, says += s * k[i];
                }
                float v = (osh_cu_load(row[2 * keys + head * Dv + c]) - says) * gates[1];
                for (int64_t i = 0; i < Dk; i++) {
                    float s = S[i * Dv + c] + v * k[i];
                    S[i * Dv + c] = s, read += s * q[i];
                }
                osh_cu_store(&y[(t * at.v_heads + head) * Dv + c], read);
            }
        }
        __syncthreads();
    }
}

osh_status osh_delta_rule_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *y = a->out[0];
    osh_delta_rule_attr at = *static_cast<const osh_delta_rule_attr *>(a->attr);
    osh_device *d = y->device;
    int64_t blocks = osh_scan_blocks(osh_rows(x), at.v_heads);
    scan_heads h = {};

    if (!osh_rows(x)) return OSH_OK;
    if (at.k_dim > OSH_SCAN_DIM)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "delta_rule: keys of %lld, want at most %d on a GPU",
                 (long long)at.k_dim, OSH_SCAN_DIM);
    OSH_TRY(scan_weights_of(cx, &h.p, a->in + 3, 2));
    h.state = static_cast<float *>(osh_device_alloc(
        cx, d, (size_t)(blocks * at.k_dim * at.v_dim) * sizeof(float), OSH_LIFE_SHORT));
    if (!h.state) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(scan_by_samples(cx, a->seqs, osh_rows(a->in[0]), [&](const scan_samples &of) {
        h.of = of;
        OSH_CU_BY_DTYPE(x->dtype, T,
                        OSH_LAUNCH(delta_kernel<T>,
                                   (unsigned)osh_min64(blocks, of.count * at.v_heads), SCAN_THREADS,
                                   (size_t)(2 * at.k_dim + 2) * sizeof(float), osh_cuda_stream(d),
                                   static_cast<T *>(y->data), static_cast<const T *>(x->data),
                                   static_cast<const T *>(a->in[1]->data),
                                   static_cast<const T *>(a->in[2]->data), h, at));
    }));
done:
    osh_device_free(d, h.state);
    return rc;
}

/* Computes ssm_scan. x is [N, H P + 2 G S], dt is [N, H], and y is F32 [N, H P]. For the current
 * token, shared memory contains B [S], C [S], the decay and the step. */
template <class T>
static __global__ void ssm_kernel(float *y, const T *x, const T *dt, scan_heads h,
                                  osh_ssm_scan_attr at)
{
    OSH_DYNAMIC_SHARED(float, shared);
    int64_t P = at.head_dim, S = at.state, inner = at.heads * P, width = inner + 2 * at.groups * S;
    float *B = shared, *C = B + S, *gates = C + S, *Z = h.state + (int64_t)blockIdx.x * P * S;

    for (int64_t item = blockIdx.x; item < h.of.count * at.heads; item += gridDim.x) {
        int64_t head = item % at.heads, sample = item / at.heads;
        float D = osh_cu_weight<T>(h.p.w[1], h.p.dtype[1], head);
        for (int64_t i = threadIdx.x; i < P * S; i += SCAN_THREADS) Z[i] = 0;
        for (int64_t t = h.of.row[sample]; t < h.of.row[sample] + h.of.n[sample]; t++) {
            const T *row = x + t * width, *from = row + inner + head / (at.heads / at.groups) * S;
            __syncthreads(); // after this barrier all threads have finished the previous token
            for (int64_t i = threadIdx.x; i < S; i += SCAN_THREADS)
                B[i] = osh_cu_load(from[i]), C[i] = osh_cu_load(from[at.groups * S + i]);
            if (threadIdx.x == 0) {
                float bias = osh_cu_weight<T>(h.p.w[2], h.p.dtype[2], head);
                float sum = osh_cu_round<T>(__fadd_rn(osh_cu_load(dt[t * at.heads + head]), bias));
                float step = osh_cu_round<T>((float)softplus((double)sum));
                if (step < (float)at.dt_min) step = (float)at.dt_min;
                if (at.dt_max > 0 && step > (float)at.dt_max) step = (float)at.dt_max;
                gates[0] =
                    (float)exp(-exp((double)osh_cu_weight<T>(h.p.w[0], h.p.dtype[0], head)) * step),
                gates[1] = step;
            }
            __syncthreads();
            for (int64_t c = threadIdx.x; c < P; c += SCAN_THREADS) {
                float value = osh_cu_load(row[head * P + c]), more = value * gates[1], read = 0;
                for (int64_t i = 0; i < S; i++) {
                    float z = Z[i * P + c] * gates[0] + more * B[i];
                    Z[i * P + c] = z, read += z * C[i];
                }
                y[t * inner + head * P + c] = read + D * value;
            }
        }
        __syncthreads();
    }
}

osh_status osh_ssm_scan_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    const osh_tensor *x = a->in[0], *y = a->out[0];
    osh_ssm_scan_attr at = *static_cast<const osh_ssm_scan_attr *>(a->attr);
    osh_device *d = y->device;
    int64_t blocks = osh_scan_blocks(osh_rows(x), at.heads);
    scan_heads h = {};

    if (!osh_rows(x)) return OSH_OK;
    if (at.state > OSH_SCAN_DIM)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "ssm_scan: a state of %lld, want at most %d on a GPU",
                 (long long)at.state, OSH_SCAN_DIM);
    OSH_TRY(scan_weights_of(cx, &h.p, a->in + 2, 3));
    h.state = static_cast<float *>(osh_device_alloc(
        cx, d, (size_t)(blocks * at.head_dim * at.state) * sizeof(float), OSH_LIFE_SHORT));
    if (!h.state) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(scan_by_samples(cx, a->seqs, osh_rows(a->in[0]), [&](const scan_samples &of) {
        h.of = of;
        OSH_CU_BY_DTYPE(x->dtype, T,
                        OSH_LAUNCH(ssm_kernel<T>, (unsigned)osh_min64(blocks, of.count * at.heads),
                                   SCAN_THREADS, (size_t)(2 * at.state + 2) * sizeof(float),
                                   osh_cuda_stream(d), static_cast<float *>(y->data),
                                   static_cast<const T *>(x->data),
                                   static_cast<const T *>(a->in[1]->data), h, at));
    }));
done:
    osh_device_free(d, h.state);
    return rc;
}

typedef struct gated_sizes {
    /* n: number of heads in all rows. heads: number of heads that have weights of their own. */
    int64_t n, heads;
} gated_sizes;

/* Computes gated_norm for n heads x, z, y [n, D]; `p`: w [heads, D]. A block computes a head. X is
 * T or float. */
template <class T, class X>
static __global__ void gated_kernel(T *y, const X *x, const T *z, weights p, gated_sizes of,
                                    osh_gated_norm_attr at)
{
    __shared__ float shared[8];
    int64_t D = at.head_dim;

    for (int64_t r = blockIdx.x; r < of.n; r += gridDim.x) {
        float sum = 0;
        for (int64_t i = threadIdx.x; i < D; i += SCAN_THREADS) {
            float v = osh_cu_load(x[r * D + i]);
            if (at.before) v *= scan_gate(osh_cu_load(z[r * D + i]), at.sigmoid);
            sum += v * v;
        }
        sum = osh_cu_team_sum<SCAN_THREADS>(sum, shared);
        float by = 1.0f / sqrtf(sum / (float)D + (float)at.eps);
        for (int64_t i = threadIdx.x; i < D; i += SCAN_THREADS) {
            float v = osh_cu_load(x[r * D + i]);
            float gate = scan_gate(osh_cu_load(z[r * D + i]), at.sigmoid);
            float w = osh_cu_weight<T>(p.w[0], p.dtype[0], r % of.heads * D + i);
            if (at.before) v = w * (v * gate * by);
            else v = osh_cu_round<X>(w * osh_cu_round<X>(v * by)) * gate;
            osh_cu_store(&y[r * D + i], v);
        }
    }
}

template <class T, class X> static void gated_launch(const osh_op_args *a, weights p)
{
    const osh_tensor *y = a->out[0];
    osh_gated_norm_attr at = *static_cast<const osh_gated_norm_attr *>(a->attr);
    gated_sizes of = {osh_tensor_numel(y) / at.head_dim,
                      osh_tensor_numel(a->in[2]) / at.head_dim};
    OSH_LAUNCH((gated_kernel<T, X>), osh_cu_grid(y->device, of.n, 1), SCAN_THREADS, 0,
               osh_cuda_stream(y->device), static_cast<T *>(y->data),
               static_cast<const X *>(a->in[0]->data), static_cast<const T *>(a->in[1]->data), p,
               of, at);
}

osh_status osh_gated_norm_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;
    weights p = {};

    if (!osh_rows(a->out[0])) return OSH_OK;
    OSH_TRY(scan_weights_of(cx, &p, a->in + 2, 1));
    OSH_CU_BY_DTYPE(a->out[0]->dtype, T, {
        if (a->in[0]->dtype == OSH_F32) gated_launch<T, float>(a, p);
        else gated_launch<T, T>(a, p);
    });
    OSH_CUDA(cx, cudaGetLastError());
done:
    return rc;
}
