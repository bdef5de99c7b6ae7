/* narrow.h - values as F16, where --calib-cache disk_f16 asks for that. */
#ifndef OSH_NARROW_H
#define OSH_NARROW_H
#include "tensor/tensor.h"

/* x rounded to nearest even, own; what F16 has no number for fails naming token and channel. */
osh_status osh_narrow(osh_ctx *cx, osh_tensor **out, const osh_tensor *x);
#endif
