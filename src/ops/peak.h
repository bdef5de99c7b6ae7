/* peak.h - measures the peak speeds of the processor, with the kernels of the ops for matrix
 * products. Reports compare the speed of a compression with these speeds. */
#ifndef OSH_PEAK_H
#define OSH_PEAK_H
#include "ops/op.h"

/* A measurement with `seconds` below this number only tests the command. It uses only a few MiB,
 * which may fit in a cache. A longer measurement uses hundreds of MiB of memory or of a file. */
#define OSH_PEAK_SHORT 0.1

/* Measures floating-point operations per second of all threads together. Each thread multiplies
 * its own square matrices for about `seconds`. For F32, uses OpenBLAS or tiles (math/tile.h),
 * whichever is faster. For BF16, uses pairs (math/pairs.h). A processor without BF16
 * instructions would compute BF16 products in f32, so the function then returns
 * OSH_E_UNSUPPORTED without a message. */
osh_status osh_peak_product(osh_ctx *cx, double *flops_per_s, osh_dtype dtype, double seconds);
/* Measures floating-point operations per second of causal attention on all threads, as during a
 * compression: one sample of 512 tokens, BF16, 9 heads of 64 elements on 3 kv heads (SmolLM2-135M).
 * Operations on masked keys are not counted. */
osh_status osh_peak_attention(osh_ctx *cx, double *flops_per_s, double seconds);
/* Measures floating-point operations per second of AMX tiles. Each thread multiplies one band of 32
 * rows by panels of 1 MiB. The band fits in the L1 cache, and a panel fits in the L2 cache. Without
 * AMX, returns OSH_E_UNSUPPORTED without a message.
 *
 * osh_peak_tiles and osh_peak_of_shape measure the processor time of each thread. This time depends
 * less on other processes of the machine than the elapsed time does. */
osh_status osh_peak_tiles(osh_ctx *cx, double *flops_per_s, double seconds);
/* Measures floating-point operations per second of one matrix product of BF16 pairs on each thread.
 * A compression computes the same products for a sample of 512 tokens.
 * LINEAR: a linear layer [O, I].
 * GATED: gate and up with their glu.
 * HESSIAN: the lower triangle of a Hessian of I columns.
 * Eight samples are used in turn, so that they are read from memory and not from a cache. On a
 * processor without BF16 instructions, the function returns OSH_E_UNSUPPORTED without a message. */
typedef enum { OSH_PEAK_LINEAR, OSH_PEAK_GATED, OSH_PEAK_HESSIAN } osh_peak_kind;
typedef struct osh_peak_shape {
    osh_peak_kind kind;
    int64_t I, O; // in_features; out_features (not used for a Hessian)
} osh_peak_shape;
osh_status osh_peak_of_shape(osh_ctx *cx, double *flops_per_s, const osh_peak_shape *s,
                             double seconds);
/* Measures bytes per second of all threads together, for reads and for copies. A copied byte counts
 * once. */
osh_status osh_peak_memory(osh_ctx *cx, double *read_per_s, double *copy_per_s, double seconds);
#endif
