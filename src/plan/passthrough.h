/* passthrough.h - values that are not observed: an op that hands a range on (osh_op.passes) made them of one that is,
 * and --calib-passthrough names it. A static input, or one scale for all heads of a cache, takes the range of the
 * source. The source is seen in the same subgraph; where it is not there, the value itself is. */
#ifndef OSH_PASSTHROUGH_H
#define OSH_PASSTHROUGH_H
#include "plan/plan.h"

typedef struct osh_inherit { // a range that is another value's
    int linear;
    int k;           // of OSH_RANGED
    int value, from; // not observed; observed in its place
} osh_inherit;
/* Linears are in their subgraphs. */
osh_status osh_plan_passthrough(osh_ctx *cx, osh_plan *p);
#endif
