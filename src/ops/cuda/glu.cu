/* glu.cu - glu: act(gate) in f32, rounded to the dtype of gate, times up, rounded again.
 *
 *   in[0] gate [N, F]     in[1] up [N, F]     out y [N, F]     y may be gate or up
 *
 *   silu               x / (1 + e^-x)
 *   gelu               x/2 erfc(-x / sqrt 2)      1 + erf u = erfc(-u), which loses nothing far below zero
 *   gelu_pytorch_tanh  x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3)      x/2 (1 + tanh u) in another shape */
#include "ops/cuda/zip.cuh"

#include <assert.h>
#include <string.h>

template <class T> struct osh_cu_silu_fn {
    __device__ float operator()(float x, float up) const { return osh_cu_round<T>(x / (1.0f + expf(-x))) * up; }
};
template <class T> struct osh_cu_gelu_fn {
    __device__ float operator()(float x, float up) const
    {
        return osh_cu_round<T>(0.5f * x * erfcf(x * -0.70710678118654752440f)) * up;
    }
};
template <class T> struct osh_cu_gelu_tanh_fn {
    __device__ float operator()(float x, float up) const
    {
        float e = expf((x + x * x * x * 0.044715f) * -1.59576912160573071176f);
        return osh_cu_round<T>(x / (1.0f + e)) * up;
    }
};

template <class T> static osh_status glu(osh_ctx *cx, const osh_op_args *a)
{
    const char *act = static_cast<const osh_glu_attr *>(a->attr)->act;

    if (!strcmp(act, "gelu")) return osh_cu_zip<T>(cx, a, osh_cu_gelu_fn<T>());
    if (!strcmp(act, "gelu_pytorch_tanh")) return osh_cu_zip<T>(cx, a, osh_cu_gelu_tanh_fn<T>());
    return osh_cu_zip<T>(cx, a, osh_cu_silu_fn<T>());
}

osh_status osh_glu_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;

    assert(a->in[0]->dtype == a->in[1]->dtype && a->in[0]->dtype == a->out[0]->dtype);
    OSH_CU_BY_DTYPE(a->out[0]->dtype, T, rc = glu<T>(cx, a));
    return rc;
}
