/* bytes.h - what statistics take (run/stats.h collects them). */
#ifndef OSH_BYTES_H
#define OSH_BYTES_H
#include "plan/plan.h"

int64_t osh_stats_bytes(const osh_plan *p, int subgraph); // of its Hessians and shifts
int64_t osh_stats_hessian_bytes(int64_t I); // of one of either, gross
int64_t osh_stats_device_bytes(const osh_plan *p, int value, bool hessian, bool range); // in a device's arena
#endif
