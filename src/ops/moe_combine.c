/* moe_combine.c - adds the output of one expert to the sum of the outputs of earlier experts.
 *
 *   in[0] sum [N, D]
 *   in[1] y [N, D]
 *   in[2] route [N, E]
 *   out [N, D]
 *
 * For rows with route[:, expert] != 0:
 *
 *   out = sum + y * route[:, expert]
 *   out = sum + y     with the attribute `plain` (Llama 4 multiplies the inputs of the experts)
 *
 * For all other rows out = sum.
 *
 * The product is rounded to the dtype of y, as in transformers' Qwen3MoeExperts. Its index_add_
 * adds in this dtype to a tensor of zeros, one expert after the other. If a token is not routed to
 * the expert, its row of y is ignored, even if the row has infinities. out may be the same tensor
 * as sum. Shapes: N tokens of the batch, D elements per token, E experts. */
#include <assert.h>
#include <string.h>

#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

/* ROWS: number of rows in a chunk of parallel work.
 * PIECE: number of elements that are converted to f32 at a time. */
enum { ROWS = 16, PIECE = 1024 };

static const osh_field attrs[] = {
    {"expert", OSH_F_INT, offsetof(osh_moe_combine_attr, expert), "0", 0, OSH_MOE_MAX_EXPERTS - 1,
     "column of route", NULL, NULL},
    {"plain", OSH_F_BOOL, offsetof(osh_moe_combine_attr, plain), "false", 0, 0, "the weight is 1",
     NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_moe_combine_attr *at = attr;
    (void)w_shape, (void)w_ndim;
    if (in_width[0] != in_width[1] || at->expert >= in_width[2])
        return osh_fail(cx, OSH_E_FORMAT,
                        "moe_combine: widths %lld and %lld, expert %lld of %lld: want equal "
                        "widths and an existing expert",
                        (long long)in_width[0], (long long)in_width[1], (long long)at->expert,
                        (long long)in_width[2]);
    out_width[0] = in_width[0];
    return OSH_OK;
}

static void combine_add_row(const osh_op_args *a, int64_t n, float weight)
{
    int64_t D = osh_width(a->in[0]);
    osh_dtype dt = a->in[0]->dtype;
    float sum[PIECE], y[PIECE];
    for (int64_t at = n * D, end = at + D, m; at < end; at += m) {
        m = osh_min64(PIECE, end - at);
        osh_to_f32(sum, osh_elem(a->in[0], at), dt, m);
        osh_to_f32(y, osh_elem(a->in[1], at), dt, m);
        for (int64_t i = 0; i < m; i++) y[i] *= weight;
        if (dt != OSH_F32)
            for (int64_t i = 0; i < m; i++) y[i] = osh_round_to(y[i], dt);
        for (int64_t i = 0; i < m; i++) sum[i] += y[i];
        osh_from_f32(osh_elem(a->out[0], at), dt, sum, m);
    }
}

static osh_status combine_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    const osh_moe_combine_attr *at = a->attr;
    int64_t E = osh_width(a->in[2]), D = osh_width(a->in[0]),
            end = osh_min64(osh_rows(a->in[0]), (chunk + 1) * ROWS);
    size_t row = (size_t)D * osh_dtype_bytes(a->in[0]->dtype);

    (void)cx, (void)worker;
    for (int64_t n = chunk * ROWS; n < end; n++) {
        float weight = osh_tensor_at(a->in[2], n * E + at->expert);
        if (weight != 0) combine_add_row(a, n, at->plain ? 1 : weight);
        else if (a->out[0] != a->in[0])
            memcpy(osh_elem(a->out[0], n * D), osh_elem(a->in[0], n * D), row);
    }
    return OSH_OK;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    assert(osh_width(a->in[0]) == osh_width(a->in[1]) &&
           osh_width(a->in[0]) == osh_width(a->out[0]));
    return osh_by_part(cx, a, osh_rows(a->in[0]), ROWS, combine_chunk);
}

/* Computes the gradients of a row:
 *   dsum = dout
 *   dy = dout * route
 *   droute = sum over the columns of dout * y
 * In rows with route = 0, dy and droute are 0. If `plain` is set, dy is dout and droute is 0. */
static osh_status moe_combine_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    int64_t N = osh_rows(a->in[0]), D = osh_width(a->in[0]), E = osh_width(a->in[2]);
    const osh_moe_combine_attr *at = a->attr;
    const float *dy = a->dout[0]->data;
    float *y = NULL, *route = NULL; // own, in f32: y [N, D]; route [N, E]

    OSH_TRY(osh_f32_copy(cx, &y, a->in[1]));
    OSH_TRY(osh_f32_copy(cx, &route, a->in[2]));
    for (int64_t n = 0; n < N; n++) {
        double weight = route[n * E + at->expert], sum = 0;
        for (int64_t i = n * D; i < (n + 1) * D; i++) {
            osh_grad_add(a->din[0], i, dy[i]);
            if (weight == 0) continue;
            osh_grad_add(a->din[1], i, at->plain ? dy[i] : dy[i] * weight);
            if (!at->plain) sum += (double)dy[i] * y[i];
        }
        osh_grad_add(a->din[2], n * E + at->expert, sum);
    }
done:
    osh_free(cx, route);
    osh_free(cx, y);
    return rc;
}

const osh_op osh_op_moe_combine = {
    .name = "moe_combine", .n_in = 3, .n_weights = 0, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_moe_combine_attr), .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CUDA] = OSH_CUDA_FN(osh_moe_combine_cuda)},
    .tol = 0, .scratch = osh_elementwise_scratch,
    .grad.run = {[OSH_REF] = moe_combine_grad_ref,
                 [OSH_CUDA] = OSH_CUDA_GRAD(osh_moe_combine_grad_cuda)},
    .masked = 1 << 1,
    .spreads = 1,
    .traits = OSH_OP_COMBINES | OSH_OP_IN_PLACE,
};
