/* coverage.h - counts the tokens of the calibration data that the routers of a mixture send to each
 * expert. The counts describe the data. */
#ifndef OSH_COVERAGE_H
#define OSH_COVERAGE_H
#include "budget/budget.h"

typedef struct osh_router_tokens { // counts of one router
    int node, value;
    int64_t n_experts;
    osh_stat *count;             // own: osh_stat_routes
    const int64_t *tokens;       // view: data of `count` [n_experts]
    int64_t n_samples, n_tokens; // samples and tokens counted so far
} osh_router_tokens;
typedef struct osh_coverage {
    osh_router_tokens *routers; // own
    int n;
    int *router;         // own [graph values]: index in routers; -1: the value is no route
} osh_coverage;
/* Makes the counters. *out is NULL if the graph has no router. */
osh_status osh_coverage_new(osh_ctx *cx, osh_coverage **out, const osh_budget *p);
void osh_coverage_free(osh_ctx *cx, osh_coverage *c);
/* Counts the tokens of a batch if `value` is a route; x [N, E] is on the host or on the GPU.
 * Batches must be passed in order; a batch that was already counted is ignored. Does nothing if c
 * is NULL. */
osh_status osh_coverage_feed(osh_ctx *cx, osh_coverage *c, int value, const osh_tensor *x,
                             const osh_batch *b);
#endif
