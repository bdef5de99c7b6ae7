/* narrow.h - rounds activations to F16 for --calib-cache disk_f16. */
#ifndef OSH_NARROW_H
#define OSH_NARROW_H
#include "tensor/tensor.h"

/* Rounds x to F16, to nearest with ties to even. *out: own. Fails and names token and channel if a
 * value is not finite in F16. */
osh_status osh_narrow(osh_ctx *cx, osh_tensor **out, const osh_tensor *x);
#endif
