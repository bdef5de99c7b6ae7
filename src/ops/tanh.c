/* tanh.c - y = tanh(x)
 *
 *   in[0] x [N, D]     out y [N, D]     y may overwrite x
 *
 * The result is computed in double and rounded once. Shapes: N tokens of the batch, D elements per
 * token. */
#include "base/elementary.h"
#include "ops/cpu/cpu.h"
#include "ops/kernel.h"

enum { PIECE = 1024 }; // number of elements in a chunk of parallel work

static osh_status tanh_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const osh_op_args *a = user;
    int64_t at = chunk * PIECE, n = osh_min64(PIECE, osh_tensor_numel(a->in[0]) - at);
    float x[PIECE];
    (void)cx, (void)worker;
    osh_to_f32(x, osh_elem(a->in[0], at), a->in[0]->dtype, n);
    for (int64_t i = 0; i < n; i++) {
        double e = osh_math_exp(x[i] < 0 ? 2.0 * x[i] : -2.0 * x[i]), y = (1 - e) / (1 + e);
        x[i] = (float)(x[i] < 0 ? -y : y);
    }
    osh_from_f32(osh_elem(a->out[0], at), a->out[0]->dtype, x, n);
    return OSH_OK;
}

static osh_status tanh_ref(osh_ctx *cx, const osh_op_args *a)
{
    return osh_by_part(cx, a, osh_tensor_numel(a->in[0]), PIECE, tanh_chunk);
}

static bool tanh_limits(const void *attr, int k)
{
    (void)attr, (void)k;
    return true;
}

const osh_op osh_op_tanh = {
    .name = "tanh", .n_in = 1, .n_out = 1, .infer = osh_infer_same, .each_token = true,
    .run = {[OSH_REF] = tanh_ref}, .tol = 0, .scratch = osh_elementwise_scratch,
    .traits = OSH_OP_HOST_ONLY,
    .limits = tanh_limits,
};
