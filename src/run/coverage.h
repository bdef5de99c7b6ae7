/* coverage.h - how many tokens of the calibration data the routers of a mixture send to each expert. Every expert is
 * calibrated on all tokens; this says what the data is like. */
#ifndef OSH_COVERAGE_H
#define OSH_COVERAGE_H
#include "plan/plan.h"

typedef struct osh_router_tokens { // of one router
    int node, value;
    int64_t n_experts, *tokens; // own [n_experts]
    int64_t n_samples, n_tokens; // that were counted
} osh_router_tokens;
typedef struct osh_coverage {
    osh_router_tokens *routers; // own
    int n;
    int *router;         // own [graph values]; -1: the value is no route
    char room[1 << 16];  // rows that a card holds pass through here
} osh_coverage;
/* *out NULL: there is no router. */
osh_status osh_coverage_new(osh_ctx *cx, osh_coverage **out, const osh_plan *p);
void osh_coverage_free(osh_ctx *cx, osh_coverage *c);
/* A route [N, E] of a batch, on the host or a card. Batches come in their order; those that came before are not counted
 * again. c NULL: nothing is done. */
osh_status osh_coverage_feed(osh_ctx *cx, osh_coverage *c, int value, const osh_tensor *x, const osh_batch *b);
#endif
