/* zeros.c - makes zeros in the shape of x. They are the initial value of a sum over experts.
 *
 *   in[0] x [N, D], not read     out [N, D]
 *
 * Shapes: N tokens of the batch, D elements per token. */
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/kernel.h"
#include "tensor/device.h"

static osh_status run(osh_ctx *cx, const osh_op_args *a) { return osh_tensor_zero(cx, a->out[0]); }

/* Adds nothing, because the output does not depend on x. */
static osh_status zeros_grad_ref(osh_ctx *cx, const osh_grad_args *a)
{
    return (void)cx, (void)a, OSH_OK;
}

const osh_op osh_op_zeros = {
    .name = "zeros", .n_in = 1, .n_weights = 0, .n_out = 1, .each_token = true,
    .attrs = NULL, .attr_bytes = 0, .infer = osh_infer_same,
    .run = {[OSH_REF] = run, [OSH_CUDA] = OSH_CUDA_FN(run)},
    .tol = 0, .scratch = osh_elementwise_scratch,
    .grad.run = {[OSH_REF] = zeros_grad_ref, [OSH_CUDA] = zeros_grad_ref},
    .traits = OSH_OP_ZEROS,
};
