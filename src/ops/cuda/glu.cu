/* glu.cu - glu: act(gate) in f32, rounded to the dtype of gate, times up, rounded again.
 *
 * Clamped (glu.c): all of it in f32, rounded once.
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

struct osh_cu_clamped_fn {
    float limit, alpha;
    __device__ float operator()(float x, float up) const
    {
        float g = fminf(x, limit), u = fminf(fmaxf(up, -limit), limit);
        return (u + 1) * (g / (1 + expf(-alpha * g)));
    }
};

template <class T> static osh_status glu(osh_ctx *cx, const osh_op_args *a)
{
    const osh_glu_attr *at = static_cast<const osh_glu_attr *>(a->attr);
    const char *act = at->act;

    if (at->limit > 0) return osh_cu_zip<T>(cx, a, osh_cu_clamped_fn{(float)at->limit, (float)at->alpha});
    if (!strcmp(act, "gelu")) return osh_cu_zip<T>(cx, a, osh_cu_glu_fn<T, osh_cu_gelu>());
    if (osh_act_is_tanh(act)) return osh_cu_zip<T>(cx, a, osh_cu_glu_fn<T, osh_cu_gelu_tanh>());
    return osh_cu_zip<T>(cx, a, osh_cu_glu_fn<T, osh_cu_silu>());
}

osh_status osh_glu_cuda(osh_ctx *cx, const osh_op_args *a)
{
    osh_status rc = OSH_OK;

    assert(a->in[0]->dtype == a->in[1]->dtype && a->in[0]->dtype == a->out[0]->dtype);
    OSH_CU_BY_DTYPE(a->out[0]->dtype, T, rc = glu<T>(cx, a));
    return rc;
}
