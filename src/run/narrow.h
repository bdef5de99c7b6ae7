/* narrow.h - rounds activations to F16 for --calib-cache disk_f16. */
#ifndef OSH_NARROW_H
#define OSH_NARROW_H
#include "tensor/tensor.h"

/* Makes *out (own), a copy of x in F16. Rounds to nearest with ties to even. If an element is not
 * finite in F16, fails with its token and its channel. */
osh_status osh_narrow(osh_ctx *cx, osh_tensor **out, const osh_tensor *x);
#endif
