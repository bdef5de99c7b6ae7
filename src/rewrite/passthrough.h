/* passthrough.h - finds values that use the range of another value, their source
 * (--calib-passthrough): an op that keeps ranges (OSH_OP_PASSES) computes the value from the
 * source. A static input, or keys and values with one scale for all heads, may use the range of
 * their source. The source must be observed in the same subgraph; otherwise the value itself is
 * observed. */
#ifndef OSH_PASSTHROUGH_H
#define OSH_PASSTHROUGH_H
#include "rewrite/rewrites.h"

typedef struct osh_inherit { // a value that uses the range of another value
    int linear;
    int k;           // index of the Linear's range (0 <= k < OSH_RANGED)
    int value, from; // indices of graph values: `from` is observed instead of `value`
} osh_inherit;
/* Sets p->inherits, and the observed values of the Linears. Called after Linears are assigned to
 * subgraphs. */
osh_status osh_plan_passthrough(osh_ctx *cx, osh_rewrites *p, osh_matching *match,
                                const osh_partition *parts);
#endif
