/* attention.cuh - defines device functions that attention.cu and attention_grad.cu share: the sink
 * of a head, and the first key that a query sees. */
#ifndef OSH_ATTENTION_CUH
#define OSH_ATTENTION_CUH
#include "ops/cuda/op.cuh"

typedef struct sink_weights {
    const void *w; // sinks in GPU memory, [heads]; NULL: the op has no sinks; view
    osh_dtype dtype;
} sink_weights;

template <class T> static __device__ inline float sink_of(const sink_weights &s, int64_t head)
{
    float f = 0;
    if (s.dtype == OSH_F64) f = osh_cu_load(static_cast<const double *>(s.w)[head]);
    else if (s.dtype == OSH_F32) f = static_cast<const float *>(s.w)[head];
    else if (s.dtype == OSH_BF16) f = osh_cu_load(static_cast<const osh_bf16_t *>(s.w)[head]);
    else f = osh_cu_load(static_cast<const osh_f16_t *>(s.w)[head]);
    return osh_cu_round<T>(f);
}

/* Returns the first key that query i sees, like osh_first_key (ops/op.h), which kernels cannot
 * call. */
static __device__ inline int64_t first_key(const osh_attention_attr &at, int64_t i)
{
    int64_t window = at.sliding_window, first = window && i >= window ? i - window + 1 : 0;
    int64_t chunk = at.chunk ? i - i % at.chunk : 0;
    return first > chunk ? first : chunk;
}
#endif
