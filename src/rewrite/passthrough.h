/* passthrough.h - finds values that use the range of an earlier value (--calib-passthrough). The
 * range is the smallest and the largest element. The earlier value is called the source. An op that
 * keeps ranges (OSH_OP_PASSES) must compute the value from its source. Static inputs of Linears may
 * use the range of their source. So may keys and values of attention if all heads have the same
 * scale. The source must be observed in the same subgraph. Otherwise the value itself is
 * observed. */
#ifndef OSH_PASSTHROUGH_H
#define OSH_PASSTHROUGH_H
#include "rewrite/rewrites.h"

typedef struct osh_inherit { // a Linear's value, which uses the range of an earlier value
    int linear;
    int k;           // index of the value among the Linear's observed values, below OSH_RANGED
    int value, from; // indices in the graph; `from` is observed instead of `value`
} osh_inherit;
/* Sets p->inherits, and the indices `ranged` of the Linears. Must be called after Linears are
 * assigned to subgraphs. */
osh_status osh_plan_passthrough(osh_ctx *cx, osh_rewrites *p, osh_matching *match,
                                const osh_partition *parts);
#endif
