/* peak.h - measures the highest rates of the processor with the products of the kernels. A run is
 * compared with them. */
#ifndef OSH_PEAK_H
#define OSH_PEAK_H
#include "ops/op.h"

/* Measures floating-point operations per second of all threads together. Each thread multiplies
 * square matrices of its own for about `seconds`. F32 uses OpenBLAS or tiles (math/tile.h),
 * whichever is faster; BF16 uses pairs (math/pairs.h). A processor without bf16 instructions
 * computes bf16 products in f32: OSH_E_UNSUPPORTED without a message for BF16. */
osh_status osh_peak_product(osh_ctx *cx, double *flops_per_s, osh_dtype dtype, double seconds);
/* Measures causal attention as a run calls it: one sample of 512 tokens on all threads, BF16, 9
 * heads of 64 on 3 kv heads (SmolLM2-135M). Operations on masked keys are not counted. */
osh_status osh_peak_attention(osh_ctx *cx, double *flops_per_s, double seconds);
/* Measures bytes per second of all threads together: read, and copied (a copied byte counts
 * once). */
osh_status osh_peak_memory(osh_ctx *cx, double *read_per_s, double *copy_per_s, double seconds);
#endif
