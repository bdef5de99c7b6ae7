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
/* The next two are by the processor time of each thread, so that other work on the machine shows less.
 * AMX: one band of 32 rows, which stays in the first cache, by panels of 1 MiB, which the second one holds, on each
 * thread. OSH_E_UNSUPPORTED without a message: there is no AMX. */
osh_status osh_peak_tiles(osh_ctx *cx, double *flops_per_s, double seconds);
/* A product of a job on BF16 pairs, as a run calls it for one sample of 512 tokens, on each thread: the linear layer
 * [O, I]; a gate, an up and their glu; the triangle of a Hessian of I columns. Eight samples are taken in turn.
 * OSH_E_UNSUPPORTED without a message: pairs are not multiplied. */
typedef enum { OSH_PEAK_LINEAR, OSH_PEAK_GATED, OSH_PEAK_HESSIAN } osh_peak_kind;
typedef struct osh_peak_shape {
    osh_peak_kind kind;
    int64_t I, O; // O: not of a Hessian
} osh_peak_shape;
osh_status osh_peak_of_shape(osh_ctx *cx, double *flops_per_s, const osh_peak_shape *s, double seconds);
/* Bytes a second of all threads together: read, and copied (counted once, though it is read and written). */
osh_status osh_peak_memory(osh_ctx *cx, double *read_per_s, double *copy_per_s, double seconds);
#endif
