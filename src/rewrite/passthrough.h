/* passthrough.h - finds values that use the range of another value, their source
 * (--calib-passthrough). An op that keeps ranges (OSH_OP_PASSES) must compute the value from its
 * source. A static input may use the range of its source, and so may keys and values with one scale
 * for all heads. The source must be observed in the same subgraph. Otherwise the value itself is
 * observed. */
#ifndef OSH_PASSTHROUGH_H
#define OSH_PASSTHROUGH_H
#include "rewrite/rewrites.h"

typedef struct osh_inherit { // a value that uses the range of another value
    int linear;
    int k;           // index of the Linear's observed value, below OSH_RANGED
    int value, from; // graph values: `from` is observed instead of `value`
} osh_inherit;
/* Sets p->inherits, and the observed values of the Linears. Must be called after Linears are
 * assigned to subgraphs. */
osh_status osh_plan_passthrough(osh_ctx *cx, osh_rewrites *p, osh_matching *match,
                                const osh_partition *parts);
#endif
