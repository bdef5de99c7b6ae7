/* glu.cu - glu: act(gate) in f32, rounded to the dtype of gate, times up, rounded again.
 *
 *   in[0] gate [N, F]     in[1] up [N, F]     out y [N, F]     y may be gate or up */
#include "ops/cuda/act.cuh"
#include "ops/cuda/zip.cuh"

#include <assert.h>
#include <string.h>

template <class T, class F> struct osh_cu_glu_fn {
    F act;
    __device__ float operator()(float x, float up) const { return osh_cu_round<T>(act(x)) * up; }
};

template <class T> static osh_status glu(osh_ctx *cx, const osh_op_args *a)
{
    const char *act = static_cast<const osh_glu_attr *>(a->attr)->act;

    if (!strcmp(act, "gelu")) return osh_cu_zip<T>(cx, a, osh_cu_glu_fn<T, osh_cu_gelu>());
    if (!strcmp(act, "gelu_pytorch_tanh")) return osh_cu_zip<T>(cx, a, osh_cu_glu_fn<T, osh_cu_gelu_tanh>());
    return osh_cu_zip<T>(cx, a, osh_cu_glu_fn<T, osh_cu_silu>());
}

osh_status osh_glu_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;

    assert(a->in[0]->dtype == a->in[1]->dtype && a->in[0]->dtype == a->out[0]->dtype);
    OSH_CU_BY_DTYPE(a->out[0]->dtype, T, rc = glu<T>(cx, a));
    return rc;
}
