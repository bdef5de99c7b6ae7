/* routed_scale.c - multiplies each token by the router's weight of an expert. Llama 4's experts
 * read the result.
 *
 *   expert -1:   in[0] x [N, D]   in[1] route [N, E]    out y [N, D] = x * sum of route[n, :]
 *   expert e:    in[0] x [N, D]   in[1] logits [N, E]   out y [N, D] = x * sigmoid(logits[n, e])
 *
 * The sigmoid and the product are rounded to the dtype of x, as in transformers' Llama4TextMoe. If
 * each token has one expert, all experts read the same y (expert -1). If a token has several
 * experts, each expert e reads its own y. In this y, each token is multiplied by its weight for e,
 * even if the token is not routed to e. Shapes: N tokens of the batch, D elements per token, E
 * experts. */
#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

static const osh_field attrs[] = {
    {"expert", OSH_F_INT, offsetof(osh_routed_scale_attr, expert), "-1", -1,
     OSH_MOE_MAX_EXPERTS - 1, "expert of the weight; -1: the expert of the token", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    int64_t expert = ((const osh_routed_scale_attr *)attr)->expert;
    (void)w_shape, (void)w_ndim;
    if (in_width[1] > OSH_MOE_MAX_EXPERTS || expert >= in_width[1])
        return osh_fail(cx, OSH_E_UNSUPPORTED,
                        "routed_scale: expert %lld of %lld, want an existing expert, and at most "
                        "%d experts",
                        (long long)expert, (long long)in_width[1], OSH_MOE_MAX_EXPERTS);
    out_width[0] = in_width[0];
    return OSH_OK;
}

static float routed_sigmoid(const osh_tensor *logits, int64_t at)
{
    return (float)(1 / (1 + osh_math_exp(-osh_tensor_at(logits, at))));
}

static float routed_row_weight(const osh_tensor *route, int64_t n, int64_t expert)
{
    int64_t E = osh_width(route);
    float w[OSH_MOE_MAX_EXPERTS], sum = 0;
    if (expert >= 0) return osh_round_to(routed_sigmoid(route, n * E + expert), route->dtype);
    osh_to_f32(w, osh_elem(route, n * E), route->dtype, E);
    for (int64_t e = 0; e < E; e++) sum += w[e];
    return sum;
}

/* ROWS: number of rows in a chunk of parallel work.
 * PIECE: number of elements that are converted to f32 at a time. */
enum { ROWS = 16, PIECE = 1024 };

static osh_status routed_scale_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    const osh_tensor *x = a->in[0];
    int64_t D = osh_width(x), end = osh_min64(osh_rows(x), (chunk + 1) * ROWS);
    float y[PIECE];
    (void)cx, (void)worker;
    for (int64_t n = chunk * ROWS; n < end; n++) {
        float by = routed_row_weight(a->in[1], n, ((const osh_routed_scale_attr *)a->attr)->expert);
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
    return osh_by_part(cx, a, osh_rows(a->in[0]), ROWS, routed_scale_chunk);
}

/* Computes dx = dy * weight, and the gradient of in[1]. droute[n, :] is the sum of dy x. dlogits[n,
 * e] is s (1 - s) times the sum of dy x, with s = sigmoid(logits[n, e]). */
static osh_status routed_scale_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), D = osh_width(a->in[0]), E = osh_width(a->in[1]);
    int64_t expert = ((const osh_routed_scale_attr *)a->attr)->expert;
    const float *dy = a->dout[0]->data;
    float *x = NULL; // own: [N, D]

    OSH_TRY(osh_f32_copy(cx, &x, a->in[0]));
    for (int64_t n = 0; n < N; n++) {
        double by = expert < 0 ? routed_row_weight(a->in[1], n, -1)
                               : routed_sigmoid(a->in[1], n * E + expert),
               sum = 0;
        for (int64_t i = n * D; i < (n + 1) * D; i++) {
            osh_grad_add(a->din[0], i, by * dy[i]);
            sum += (double)dy[i] * x[i];
        }
        if (expert >= 0) osh_grad_add(a->din[1], n * E + expert, sum * by * (1 - by));
        for (int64_t e = 0; e < E && expert < 0; e++) osh_grad_add(a->din[1], n * E + e, sum);
    }
done:
    osh_free(cx, x);
    return rc;
}

const osh_op osh_op_routed_scale = {
    .name = "routed_scale", .n_in = 2, .n_weights = 0, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_routed_scale_attr), .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CUDA] = OSH_CUDA_FN(osh_routed_scale_cuda)},
    .tol = 1e-12, .scratch = osh_elementwise_scratch,
    .grad.run = {[OSH_REF] = routed_scale_grad_ref,
                 [OSH_CUDA] = OSH_CUDA_GRAD(osh_routed_scale_grad_cuda)},
    .traits = OSH_OP_KEEPS_ZEROS,
};
