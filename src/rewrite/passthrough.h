/* passthrough.h - values that take the range of another value (--calib-passthrough): an op that
 * hands a range on (osh_op.passes) made them from it. A static input, or a cache with one scale for
 * all heads, takes the range of the source. The source is observed in the same subgraph; if it is
 * not there, the value itself is observed. */
#ifndef OSH_PASSTHROUGH_H
#define OSH_PASSTHROUGH_H
#include "rewrite/rewrites.h"

typedef struct osh_inherit { // a range that is taken from another value
    int linear;
    int k;           // below OSH_RANGED
    int value, from; // value: not observed; from: observed instead
} osh_inherit;
/* Linears must have their subgraphs. */
osh_status osh_plan_passthrough(osh_ctx *cx, osh_rewrites *p, osh_matching *match,
                                const osh_partition *parts);
#endif
