/* weight.cuh - reads elements of stored weights of any dtype. */
#ifndef OSH_WEIGHT_CUH
#define OSH_WEIGHT_CUH
#include "ops/cuda/pack.cuh"

/* Returns element i of a stored weight, rounded to the compute dtype T. */
template <class T>
static __device__ inline float osh_cu_weight(const void *w, osh_dtype stored, int64_t i)
{
    float f = 0;
    if (stored == OSH_F64) f = osh_cu_load(static_cast<const double *>(w)[i]);
    else if (stored == OSH_F32) f = static_cast<const float *>(w)[i];
    else if (stored == OSH_BF16) f = osh_cu_load(static_cast<const osh_bf16_t *>(w)[i]);
    else f = osh_cu_load(static_cast<const osh_f16_t *>(w)[i]);
    return osh_cu_round<T>(f);
}
#endif
