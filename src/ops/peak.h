/* peak.h - measures the highest speeds of the processor with the products of the kernels. Reports
 * compare a run with them. */
#ifndef OSH_PEAK_H
#define OSH_PEAK_H
#include "ops/op.h"

/* Measures floating-point operations per second of all threads together. Each thread multiplies
 * square matrices of its own for about `seconds`. F32 uses OpenBLAS or tiles (math/tile.h),
 * whichever is faster; BF16 uses pairs (math/pairs.h). For BF16 on a processor without bf16
 * instructions, which computes these products in f32, returns OSH_E_UNSUPPORTED without a message.
 * */
osh_status osh_peak_product(osh_ctx *cx, double *flops_per_s, osh_dtype dtype, double seconds);
/* Measures causal attention as a run computes it: one sample of 512 tokens on all threads, BF16, 9
 * heads of 64 on 3 kv heads (SmolLM2-135M). Operations on masked keys are not counted. */
osh_status osh_peak_attention(osh_ctx *cx, double *flops_per_s, double seconds);
/* The next two count the processor time of each thread, so that other work on the machine shows
 * less.
 *
 * Measures AMX tiles: each thread multiplies one band of 32 rows, which stays in the first cache,
 * by panels of 1 MiB, which fit in the second cache. Without AMX it returns OSH_E_UNSUPPORTED
 * without a message. */
osh_status osh_peak_tiles(osh_ctx *cx, double *flops_per_s, double seconds);
/* Measures a product of a job on BF16 pairs, as a run computes it for one sample of 512 tokens, on
 * each thread: a linear layer [O, I]; a gate, an up and their glu; or the triangle of a Hessian of
 * I columns. Eight samples are used in turn. On a processor without pairs it returns
 * OSH_E_UNSUPPORTED without a message. */
typedef enum { OSH_PEAK_LINEAR, OSH_PEAK_GATED, OSH_PEAK_HESSIAN } osh_peak_kind;
typedef struct osh_peak_shape {
    osh_peak_kind kind;
    int64_t I, O; // O: not used for a Hessian
} osh_peak_shape;
osh_status osh_peak_of_shape(osh_ctx *cx, double *flops_per_s, const osh_peak_shape *s,
                             double seconds);
/* Measures bytes per second of all threads together, for reading and for copying. A copied byte
 * counts once. */
osh_status osh_peak_memory(osh_ctx *cx, double *read_per_s, double *copy_per_s, double seconds);
#endif
