/* target.h - computes the target of a solve whose reference is the original model. With inputs X of
 * the quantized model and X0 of the original one, the target is not W but W + W S, whose output on
 * X is closest to X0 W^T (ops/gptq_shift.c). */
#ifndef OSH_TARGET_H
#define OSH_TARGET_H
#include "modifiers/modifier.h"

/* Converts d (OSH_STAT_SHIFT) to S, in place. u [I, I] is on the device of d, perm in host
 * memory. */
osh_status osh_target_shift(osh_ctx *cx, osh_tensor *d, const float *u, const int32_t *perm);
/* Computes j->target from S and j's weight. */
osh_status osh_target_new(osh_ctx *cx, osh_linear_job *j, const osh_tensor *s);
void osh_target_free(osh_ctx *cx, osh_linear_job *j);
static inline const osh_tensor *osh_target_of(const osh_linear_job *j)
{
    return j->target ? j->target : j->w;
}
/* Computes the scales and zero points of j->target. */
osh_status osh_target_params(osh_ctx *cx, osh_linear_job *j, osh_arithmetic arithmetic);

/* Return upper bounds in host bytes, or with `device` in bytes of its arena: the scratch of
 * osh_target_shift; j->target; the scratch to compute j->target. */
size_t osh_target_shift_bytes(int64_t I, int n_threads, bool device);
size_t osh_target_bytes(const osh_linear_job *j, bool device);
size_t osh_target_scratch(const osh_linear_job *j, int n_threads, bool device);
#endif
