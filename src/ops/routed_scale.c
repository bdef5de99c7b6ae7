/* routed_scale.c - a token times the weight of its expert: what experts of Llama 4 read.
 *
 *   in[0] x [N, D]     in[1] route [N, E], a token has one expert     out y [N, D] = x * sum of route[n, :]
 *
 * transformers' Llama4TextMoe: rounded once. Each expert would see these rows, whether the token goes to it or not. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim, const int64_t *in_width,
                        const void *attr)
{
    (void)attr, (void)w_shape, (void)w_ndim;
    if (in_width[1] > OSH_MOE_MAX_EXPERTS)
        return osh_fail(cx, OSH_E_UNSUPPORTED, "routed_scale: %lld experts, want at most %d", (long long)in_width[1],
                        OSH_MOE_MAX_EXPERTS);
    out_width[0] = in_width[0];
    return OSH_OK;
}

static float row_weight(const osh_tensor *route, int64_t n)
{
    int64_t E = osh_width(route);
    float w[OSH_MOE_MAX_EXPERTS], sum = 0;
    osh_to_f32(w, osh_elem(route, n * E), route->dtype, E);
    for (int64_t e = 0; e < E; e++) sum += w[e];
    return sum;
}

enum { ROWS = 16, PIECE = 1024 }; // rows of one chunk; elements in f32 at a time

static osh_status scale_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    const osh_tensor *x = a->in[0];
    int64_t D = osh_width(x), end = osh_min64(osh_rows(x), (chunk + 1) * ROWS);
    float y[PIECE];
    (void)cx, (void)worker;
    for (int64_t n = chunk * ROWS; n < end; n++) {
        float by = row_weight(a->in[1], n);
        for (int64_t at = n * D, m; at < (n + 1) * D; at += m) {
            m = osh_min64(PIECE, (n + 1) * D - at);
            osh_to_f32(y, osh_elem(x, at), x->dtype, m);
            for (int64_t i = 0; i < m; i++) y[i] *= by;
            osh_from_f32(osh_elem(a->out[0], at), x->dtype, y, m);
        }
    }
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_parallel_for(cx, osh_div_up(osh_rows(a->in[0]), ROWS), scale_chunk, (void *)(uintptr_t)a);
}

/* dx = dy * weight     droute[n, e] = sum of dy x, of each expert */
static osh_status grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), D = osh_width(a->in[0]), E = osh_width(a->in[1]);
    const float *dy = a->dout[0]->data;
    float *x = NULL; // own: [N, D]

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    for (int64_t n = 0; n < N; n++) {
        double by = row_weight(a->in[1], n), sum = 0;
        for (int64_t i = n * D; i < (n + 1) * D; i++) {
            osh_grad_add(a->din[0], i, by * dy[i]);
            sum += (double)dy[i] * x[i];
        }
        for (int64_t e = 0; e < E; e++) osh_grad_add(a->din[1], n * E + e, sum);
    }
done:
    osh_free(cx, x);
    return rc;
}

const osh_op osh_op_routed_scale = {
    .name = "routed_scale", .n_in = 2, .n_weights = 0, .n_out = 1, .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CUDA] = OSH_CUDA_FN(osh_routed_scale_cuda)},
    .tol = 1e-12, .scratch = osh_elementwise_scratch, .grad = {[OSH_REF] = grad_ref},
};
