/* routed_rows.c - makes the input of one expert: copies the rows that are routed to the expert, and
 * sets all other rows to zero.
 *
 *   in[0] x [N, D]     in[1] route [N, E]     out [N, D]
 *
 *   out = x for rows with route[:, expert] != 0, else 0
 *
 * A sum over the rows of out is a sum over the routed tokens, because rows of zeros add nothing.
 * Shapes: N tokens of the batch, D elements per token, E experts. */
#include <string.h>

#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"

static const osh_field attrs[] = {
    {"expert", OSH_F_INT, offsetof(osh_moe_combine_attr, expert), "0", 0, OSH_MOE_MAX_EXPERTS - 1,
     "column of route", NULL, NULL},
    {0},
};

static osh_status infer(osh_ctx *cx, int64_t *out_width, int64_t (*w_shape)[2], int *w_ndim,
                        const int64_t *in_width, const void *attr)
{
    const osh_moe_combine_attr *at = attr;
    (void)w_shape, (void)w_ndim;
    if (at->expert >= in_width[1])
        return osh_fail(cx, OSH_E_FORMAT,
                        "routed_rows: expert %lld of %lld: want an existing expert",
                        (long long)at->expert, (long long)in_width[1]);
    out_width[0] = in_width[0];
    return OSH_OK;
}

static bool is_routed(const osh_tensor *route, int64_t row, int64_t expert)
{
    return osh_tensor_at(route, row * osh_width(route) + expert) != 0;
}

static osh_status ref(osh_ctx *cx, const osh_op_args *a)
{
    int64_t D = osh_width(a->in[0]), expert = ((const osh_moe_combine_attr *)a->attr)->expert;
    size_t row = (size_t)D * osh_dtype_bytes(a->in[0]->dtype);
    (void)cx;
    for (int64_t n = 0; n < osh_rows(a->in[0]); n++) {
        if (!is_routed(a->in[1], n, expert)) memset(osh_elem(a->out[0], n * D), 0, row);
        else memcpy(osh_elem(a->out[0], n * D), osh_elem(a->in[0], n * D), row);
    }
    return OSH_OK;
}

/* Computes dx: dy for rows with route[:, expert] != 0, else 0. */
static osh_status routed_rows_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    int64_t D = osh_width(a->in[0]), expert = ((const osh_moe_combine_attr *)a->attr)->expert;
    const float *dy = a->dout[0]->data;
    (void)cx;
    for (int64_t i = 0; i < osh_tensor_numel(a->in[0]); i++)
        if (is_routed(a->in[1], i / D, expert)) osh_grad_add(a->din[0], i, dy[i]);
    return OSH_OK;
}

const osh_op osh_op_routed_rows = {
    .name = "routed_rows", .n_in = 2, .n_weights = 0, .n_out = 1, .each_token = true,
    .attrs = attrs, .attr_bytes = sizeof(osh_moe_combine_attr), .infer = infer,
    .run = {[OSH_REF] = ref, [OSH_CUDA] = OSH_CUDA_FN(osh_routed_rows_cuda)},
    .tol = 0, .scratch = osh_elementwise_scratch,
    .grad.run = {[OSH_REF] = routed_rows_grad_ref,
                 [OSH_CUDA] = OSH_CUDA_GRAD(osh_routed_rows_grad_cuda)},
    .traits = OSH_OP_PICKS_ROWS,
};
