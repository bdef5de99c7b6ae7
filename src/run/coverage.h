/* coverage.h - counts the tokens of the calibration data that routers send to each expert. */
#ifndef OSH_COVERAGE_H
#define OSH_COVERAGE_H
#include "budget/budget.h"
#include "ranks/ranks.h"

typedef struct osh_router_tokens { // numbers of tokens that one router sends to its experts
    int node, value;
    int64_t n_experts;
    osh_stat *count;             // own: statistic osh_stat_routes
    const int64_t *tokens;       // view [n_experts]: data of `count`
    /* n_samples: number of the first sample that is not counted yet.
     * n_tokens: number of tokens that are counted so far. */
    int64_t n_samples, n_tokens;
} osh_router_tokens;
typedef struct osh_coverage {
    osh_router_tokens *routers; // own
    int n;
    /* If the value is the output of a router: index of this router in `routers`. Otherwise -1. */
    int *router;         // own [graph values]
} osh_coverage;
/* Makes the counters *out (own). Sets *out to NULL if the graph has no router. */
osh_status osh_coverage_new(osh_ctx *cx, osh_coverage **out, const osh_budget *p);
/* Frees the counters. Accepts NULL. */
void osh_coverage_free(osh_ctx *cx, osh_coverage *c);
/* If `value` is the output of a router, counts the tokens of a batch. x [N, E]: the output for N
 * tokens and E experts, on the host or on the GPU. The caller passes the batches in order. Ignores
 * a batch that is counted already. Does nothing if c is NULL. */
osh_status osh_coverage_feed(osh_ctx *cx, osh_coverage *c, int value, const osh_tensor *x,
                             const osh_batch *b);
/* Sums the counts over all ranks. Does nothing if `ranks` is NULL. */
osh_status osh_coverage_merge(osh_ctx *cx, osh_coverage *c, osh_ranks *ranks);
#endif
