/* act.cuh - activations in f32, and their derivatives (slope), for glu and act.
 *
 *   silu               x / (1 + e^-x)
 *   gelu               x/2 erfc(-x / sqrt 2)      1 + erf u = erfc(-u), which loses nothing far below zero
 *   gelu_pytorch_tanh  x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3)      x/2 (1 + tanh u) in another shape */
#ifndef OSH_ACT_CUH
#define OSH_ACT_CUH
#include "ops/cuda/kernel.cuh"

struct osh_cu_silu {
    __device__ float operator()(float x) const { return x / (1.0f + expf(-x)); }
    __device__ float slope(float x) const
    {
        float s = 1.0f / (1.0f + expf(-x));
        return s * (1.0f + x * (1.0f - s));
    }
};
struct osh_cu_gelu {
    __device__ float operator()(float x) const { return 0.5f * x * erfcf(x * -0.70710678118654752440f); }
    __device__ float slope(float x) const
    {
        return 0.5f * erfcf(x * -0.70710678118654752440f) + x * 0.39894228040143267794f * expf(-0.5f * x * x);
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
#endif
