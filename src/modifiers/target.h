/* target.h - computes the weight that GPTQ approximates. With target 'original', this weight is W
 * + W S and not W. X is the input of the Linear in the quantized model, and X0 is the input in the
 * original model. Apart from damping, the output of W + W S on X is closer to X0 W^T than the
 * output of any other weight (ops/gptq_shift.c). */
#ifndef OSH_TARGET_H
#define OSH_TARGET_H
#include "modifiers/modifier.h"

/* On entry d [I, I] is the statistic OSH_STAT_SHIFT. Overwrites d with S.
 * u [I, I]: factor of H, on the device of d.
 * perm [I], in host memory: index of the column at each position of the solving order. */
osh_status osh_target_shift(osh_ctx *cx, osh_tensor *d, const float *u, const int32_t *perm);
/* Allocates j->target and sets it to W + W S. W: weight of j. S: the matrix s. */
osh_status osh_target_new(osh_ctx *cx, osh_linear_job *j, const osh_tensor *s);
/* Frees j->target, which may be NULL. */
void osh_target_free(osh_ctx *cx, osh_linear_job *j);
static inline const osh_tensor *osh_target_of(const osh_linear_job *j)
{
    return j->target ? j->target : j->w;
}
/* Allocates j->params and sets them to the scales and zero points of j->target. */
osh_status osh_target_params(osh_ctx *cx, osh_linear_job *j, osh_arithmetic arithmetic);

/* The next three functions return upper bounds of bytes: the scratch of osh_target_shift, the size
 * of j->target, and the scratch of osh_target_new. If `device` is true, they count bytes in the
 * arena of the device, and otherwise host bytes. */
size_t osh_target_shift_bytes(int64_t I, int n_threads, bool device);
size_t osh_target_bytes(const osh_linear_job *j, bool device);
size_t osh_target_scratch(const osh_linear_job *j, int n_threads, bool device);
#endif
