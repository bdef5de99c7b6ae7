/* target.h - what a solve comes close to where the original model is compared with: of inputs X of the quantized model
 * and X0 of the original one not W, but W + W S, which on X gives what is closest to X0 W^T (ops/gptq_shift.c). */
#ifndef OSH_TARGET_H
#define OSH_TARGET_H
#include "modifiers/modifier.h"

/* d, D of OSH_STAT_SHIFT, becomes S; u [I, I] lies where d does, perm in host memory. */
osh_status osh_target_shift(osh_ctx *cx, osh_tensor *d, const float *u, const int32_t *perm);
/* Makes j->target of S and j's weight. */
osh_status osh_target_new(osh_ctx *cx, osh_linear_job *j, const osh_tensor *s);
void osh_target_free(osh_ctx *cx, osh_linear_job *j);
static inline const osh_tensor *osh_target_of(const osh_linear_job *j) { return j->target ? j->target : j->w; }
/* Scales and zero points of j->target. */
osh_status osh_target_params(osh_ctx *cx, osh_linear_job *j, osh_arithmetic arithmetic);

/* Upper bounds. Host bytes, or with `device` those of its arena: of osh_target_shift; of j->target; of making it beside
 * that. */
size_t osh_target_shift_bytes(int64_t I, int n_threads, bool device);
size_t osh_target_bytes(const osh_linear_job *j, bool device);
size_t osh_target_scratch(const osh_linear_job *j, int n_threads, bool device);
#endif
