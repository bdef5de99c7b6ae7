/* rotate_grad.cu - computes the gradient of rotate: dx += dy M^T, or dx += dy M if the attribute
 * `transposed` is true. The rotation of dy is computed by rotate.cu, in scratch. */
#include "ops/cuda/add.cuh"

osh_status osh_rotate_grad_cuda(osh_ctx *cx, const osh_grad_args *a)
{
    osh_status rc = OSH_OK;
    osh_rotate_attr at = *static_cast<const osh_rotate_attr *>(a->attr);
    const osh_tensor *dy = a->dout[0];
    osh_device *d = dy->device;
    int64_t n = osh_tensor_numel(dy), shape[2] = {osh_rows(dy), osh_width(dy)};
    osh_op_args turn = {};
    osh_tensor to;
    float *dx = NULL; // own [N, D]

    if (!n || !a->din[0]) return OSH_OK;
    dx = static_cast<float *>(osh_device_alloc(cx, d, (size_t)n * sizeof(float), OSH_LIFE_SHORT));
    if (!dx) OSH_TRY(OSH_E_NOMEM);
    to = osh_tensor_view(OSH_F32, 2, shape, dx), to.device = d;
    at.transposed = !at.transposed;
    turn.in[0] = dy, turn.in[1] = a->in[1], turn.out[0] = &to, turn.attr = &at;
    OSH_TRY(osh_rotate_cuda(cx, &turn));
    OSH_TRY(osh_cu_add(cx, d, static_cast<float *>(a->din[0]->data), dx, n, 1));
done:
    osh_device_free(d, dx);
    return rc;
}
