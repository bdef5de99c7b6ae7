/* gated.h - computes act(x gate^T) * (x up^T) in one step, with the bytes of the ops linear, linear
 * and glu. Blocks of the two products are turned into a block of the result in the first cache, so
 * the products are never tensors. */
#ifndef OSH_GATED_H
#define OSH_GATED_H
#include "ops/op.h"

typedef struct osh_gated {
    const osh_tensor *x, *w[2], *bias[2]; // x [N, I]; w [F, I]; bias [F] or NULL; index 0: gate, 1:
                                          // up
    osh_tensor *out;                      // [N, F]
    const osh_glu_attr *glu;
} osh_gated;

/* True if the CPU has a kernel for values of dt (BF16 only) with I channels and this glu. */
bool osh_gated_takes(osh_dtype dt, int64_t I, const osh_glu_attr *glu);
/* Sets *finite to true if all values of `out` and of both products are finite. If not, the values
 * of `out` are undefined. */
osh_status osh_gated_run(osh_ctx *cx, bool *finite, const osh_gated *g);
size_t osh_gated_scratch(int64_t I, int64_t F, int n_threads); // upper bound of the gross bytes
#endif
