/* bytes.h - what statistics take (run/stats.h collects them). */
#ifndef OSH_BYTES_H
#define OSH_BYTES_H
#include "plan/plan.h"

/* The sums of a value of I channels, each a tensor of this shape (its data NULL): the run makes them, the plan counts
 * them. */
typedef enum { OSH_SUM_HESSIAN, OSH_SUM_SHIFT, OSH_SUM_SQUARES } osh_sum;
osh_tensor osh_sum_shape(osh_sum sum, int64_t I);
int64_t osh_sum_bytes(osh_sum sum, int64_t I); // gross
int64_t osh_stats_bytes(const osh_plan *p, int subgraph); // of its Hessians and shifts
int64_t osh_stats_device_bytes(const osh_plan *p, int value, bool hessian, bool range); // in a device's arena
#endif
