/* act.cuh - defines the activations of the ops glu and act in f32, and their derivatives (slope).
 *
 *   silu               x / (1 + e^-x)
 *   gelu               x/2 erfc(-x / sqrt 2)
 *   gelu_pytorch_tanh  x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3)
 *
 * erfc(-u) equals 1 + erf u, but has no cancellation if u is far below zero. x / (1 + e^-2u) equals
 * x/2 (1 + tanh u). */
#ifndef OSH_ACT_CUH
#define OSH_ACT_CUH
#include "ops/cuda/op.cuh"

#include <string.h>

struct osh_cu_silu {
    __device__ float operator()(float x) const { return x / (1.0f + expf(-x)); }
    __device__ float slope(float x) const
    {
        float s = 1.0f / (1.0f + expf(-x));
        return s * (1.0f + x * (1.0f - s));
    }
};
struct osh_cu_gelu {
    __device__ float operator()(float x) const
    {
        return 0.5f * x * erfcf(x * -0.70710678118654752440f);
    }
    __device__ float slope(float x) const
    {
        return 0.5f * erfcf(x * -0.70710678118654752440f) +
               x * 0.39894228040143267794f * expf(-0.5f * x * x);
    }
};
struct osh_cu_gelu_tanh {
    __device__ float operator()(float x) const
    {
        return x / (1.0f + expf((x + x * x * x * 0.044715f) * -1.59576912160573071176f));
    }
    __device__ float slope(float x) const
    {
        float s = 1.0f / (1.0f + expf((x + x * x * x * 0.044715f) * -1.59576912160573071176f));
        return s + x * s * (1.0f - s) * 1.59576912160573071176f * (1.0f + 3 * 0.044715f * x * x);
    }
};

/* Returns act(x), rounded to T, times `up`. x is the gate. x and `up` are f32 numbers that are
 * values of T. The caller rounds the result. PAIR tells routed.cuh that the function has two
 * arguments. */
template <class T, class F> struct osh_cu_glu_fn {
    static constexpr bool PAIR = true;
    F act;
    __device__ float operator()(float x, float up) const { return osh_cu_round<T>(act(x)) * up; }
};

struct osh_cu_clamped_fn {
    static constexpr bool PAIR = true;
    float limit, alpha, plus;
    __device__ float operator()(float x, float up) const
    {
        float g = fminf(x, limit), u = fminf(fmaxf(up, -limit), limit);
        return (u + plus) * (g / (1 + expf(-alpha * g)));
    }
};

/* Calls `call` with a function object, and returns the status of this call. at->act and at->limit
 * choose the function object. */
template <class T, class CALL> static osh_status osh_cu_with_glu(const osh_glu_attr *at, CALL call)
{
    if (at->limit > 0)
        return call(osh_cu_clamped_fn{(float)at->limit, (float)at->alpha, (float)at->plus});
    if (!strcmp(at->act, "gelu")) return call(osh_cu_glu_fn<T, osh_cu_gelu>());
    if (osh_act_is_tanh(at->act)) return call(osh_cu_glu_fn<T, osh_cu_gelu_tanh>());
    return call(osh_cu_glu_fn<T, osh_cu_silu>());
}
#endif
