/* gated.h - computes act(x gate^T) * (x up^T) in one step. This is the first part of a gated MLP.
 * The bytes are those of running three ops: linear (gate), linear (up) and glu. The two matrix
 * products are computed block by block in the L1 cache. Neither of them is stored as a whole. */
#ifndef OSH_GATED_H
#define OSH_GATED_H
#include "ops/op.h"

typedef struct osh_gated {
    /* x [N, I]; w [F, I]; bias [F], or NULL for no bias. w[0] and bias[0] belong to gate, w[1] and
     * bias[1] to up. N: tokens; I: input channels; F: intermediate_size. */
    const osh_tensor *x, *w[2], *bias[2];
    osh_tensor *out;                      // act(x gate^T) * (x up^T) [N, F]
    const osh_glu_attr *glu;
} osh_gated;

/* True if the CPU has a kernel for these arguments: the dtype dt (only BF16), I input channels, and
 * the activation and limit of `glu`. */
bool osh_gated_takes(osh_dtype dt, int64_t I, const osh_glu_attr *glu);
/* Computes g->out. Sets *finite to true if all values of `out` and of both matrix products are
 * finite. If *finite is false, the values of `out` are undefined. */
osh_status osh_gated_run(osh_ctx *cx, bool *finite, const osh_gated *g);
/* Returns an upper bound of the bytes of scratch, with the allocator's overhead. */
size_t osh_gated_scratch(int64_t I, int64_t F, int n_threads);
#endif
