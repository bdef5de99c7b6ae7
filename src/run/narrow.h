/* narrow.h - rounds values to F16 for --calib-cache disk_f16. */
#ifndef OSH_NARROW_H
#define OSH_NARROW_H
#include "tensor/tensor.h"

/* Rounds x to the nearest F16 values, ties to even. *out: own. A value that is not finite in F16 is
 * an error with its token and channel. */
osh_status osh_narrow(osh_ctx *cx, osh_tensor **out, const osh_tensor *x);
#endif
