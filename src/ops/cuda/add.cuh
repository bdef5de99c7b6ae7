/* add.cuh - adds gradients (elementwise_grad.cu). */
#ifndef OSH_ADD_CUH
#define OSH_ADD_CUH
#include "ops/cuda/pack.cuh"

/* Adds `by` times from [n] to `to` [n]. Both are in the memory of d. Does nothing if n is 0. */
osh_status osh_cu_add(osh_ctx *cx, osh_device *d, float *to, const float *from, int64_t n,
                      float by);
#endif
