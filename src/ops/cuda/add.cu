/* add.cu - add: the sum in f32, one rounding.
 *
 *   in[0] a [N, D]     in[1] b [N, D]     out y [N, D]     y may be a or b */
#include "ops/cuda/zip.cuh"

#include <assert.h>

struct osh_cu_add_fn {
    __device__ float operator()(float a, float b) const { return a + b; }
};

osh_status osh_add_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;

    assert(a->in[0]->dtype == a->in[1]->dtype && a->in[0]->dtype == a->out[0]->dtype);
    OSH_CU_BY_DTYPE(a->out[0]->dtype, T, rc = osh_cu_zip<T>(cx, a, osh_cu_add_fn()));
    return rc;
}
