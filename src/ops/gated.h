/* gated.h - act(x gate^T) * (x up^T) in one step, with the bytes that ops linear, linear and glu make of x.
 * A block of both products becomes a block of the result in the first cache: no product is a tensor. */
#ifndef OSH_GATED_H
#define OSH_GATED_H
#include "ops/op.h"

typedef struct osh_gated {
    const osh_tensor *x, *w[2], *bias[2]; // [N, I]; [F, I], [F] or NULL: of the gate, of up
    osh_tensor *out;                      // [N, F]
    const osh_glu_attr *glu;
} osh_gated;

/* There is a kernel for values of dt with I channels on the host. It reads BF16 only. */
bool osh_gated_takes(osh_dtype dt, int64_t I, const osh_glu_attr *glu);
/* *finite: all of out is, and so is all of both products. If it is not, out holds anything. */
osh_status osh_gated_run(osh_ctx *cx, bool *finite, const osh_gated *g);
size_t osh_gated_scratch(int64_t I, int64_t F, int n_threads); // gross, an upper bound
#endif
