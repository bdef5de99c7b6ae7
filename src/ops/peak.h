/* peak.h - what the processor does at most with the products that the kernels use, to hold a run against. */
#ifndef OSH_PEAK_H
#define OSH_PEAK_H
#include "ops/op.h"

/* Floating-point operations a second of all threads together: each multiplies square matrices of its own, for about
 * this long each, in F32 on OpenBLAS or, where that is faster, by tiles (math/tile.h), or in BF16 by pairs
 * (math/pairs.h). BF16 without such instructions: OSH_E_UNSUPPORTED without a message, as products of bf16 are then
 * made in f32. */
osh_status osh_peak_product(osh_ctx *cx, double *flops_per_s, osh_dtype dtype, double seconds);
/* The same of causal attention, as a run calls it: on all threads one sample of 512 tokens of BF16, 9 heads of 64 on 3
 * (SmolLM2-135M). What is hidden is not counted. */
osh_status osh_peak_attention(osh_ctx *cx, double *flops_per_s, double seconds);
/* Bytes a second of all threads together: read, and copied (counted once, though it is read and written). */
osh_status osh_peak_memory(osh_ctx *cx, double *read_per_s, double *copy_per_s, double seconds);
#endif
