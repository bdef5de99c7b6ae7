/* passthrough.h - finds values that use the range of another value (--calib-passthrough), because
 * an op that keeps ranges (osh_op.passes) computes them from it. A static input, or a cache with
 * one scale for all heads, uses the range of this source. The source is observed in the same
 * subgraph; if it is in another subgraph, the value itself is observed. */
#ifndef OSH_PASSTHROUGH_H
#define OSH_PASSTHROUGH_H
#include "rewrite/rewrites.h"

typedef struct osh_inherit { // a range that is taken from another value
    int linear;
    int k;           // index below OSH_RANGED
    int value, from; // value: not observed; from: observed instead of it
} osh_inherit;
/* Requires that Linears have their subgraphs. */
osh_status osh_plan_passthrough(osh_ctx *cx, osh_rewrites *p, osh_matching *match,
                                const osh_partition *parts);
#endif
