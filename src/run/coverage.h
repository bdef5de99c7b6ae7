/* coverage.h - counts the tokens of the calibration data that routers send to each expert. */
#ifndef OSH_COVERAGE_H
#define OSH_COVERAGE_H
#include "budget/budget.h"
#include "ranks/ranks.h"

typedef struct osh_router_tokens { // the number of tokens that one router sends to each expert
    int node, value;
    int64_t n_experts;
    osh_stat *count;             // own: statistic osh_stat_routes
    const int64_t *tokens;       // view [n_experts]: data of `count`
    /* n_samples: 1 + number of the last counted sample.
     * n_tokens: tokens counted so far. */
    int64_t n_samples, n_tokens;
} osh_router_tokens;
typedef struct osh_coverage {
    osh_router_tokens *routers; // own
    int n;
    /* Index in `routers` of the router that computes the value; -1: none. */
    int *router;         // own [graph values]
} osh_coverage;
/* Makes the counters. *out (own) is NULL if the graph has no router. */
osh_status osh_coverage_new(osh_ctx *cx, osh_coverage **out, const osh_budget *p);
void osh_coverage_free(osh_ctx *cx, osh_coverage *c);
/* Counts the tokens of a batch if `value` is the output of a router. x [N, E] is on the host or on
 * the GPU. The caller passes batches in order. A batch that was counted before is ignored. Does
 * nothing if c is NULL. */
osh_status osh_coverage_feed(osh_ctx *cx, osh_coverage *c, int value, const osh_tensor *x,
                             const osh_batch *b);
/* Adds the counts of all ranks. If `ranks` is NULL, does nothing. */
osh_status osh_coverage_merge(osh_ctx *cx, osh_coverage *c, osh_ranks *ranks);
#endif
