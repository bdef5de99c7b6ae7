/* visit.h - makes the list of the steps of a visit, in which a subgraph is observed, solved and
 * run. The run executes the list, and the plan counts the bytes that its steps need. A visit has
 * one of three forms:
 *
 *   whole      load | observe | solve | reload | propagate | release
 *   rounds     load | (observe, solve) for each round of statistics | reload | propagate | release
 *   segments   for each group of Linears with one input:
 *                observe its input | load, solve | run | release
 *              then a second pass through the solved weights;
 *              values between groups are in the activation store
 *
 * If factors are folded into weights (rewrite/folds.h), a fold pass comes first: load | run the
 * nodes of layers with folds, and observe their outputs | fold. The later steps use the changed
 * weights.
 *
 * If the original model also runs (osh_graph_add_original), its nodes run in the passes that
 * collect statistics, because the weights in memory are still the original ones. The last of these
 * passes runs all nodes. The passes before it run only the nodes that their statistics need.
 * A value that is the same in the original and the quantized model is stored once. As long as no
 * Linear is solved, both models compute equal results from such a value, so only the nodes of the
 * original model run. If an earlier run has solved all Linears of a subgraph, the nodes of the
 * original model run before the solved weights are loaded.
 *
 * The bytes of the output do not depend on the steps: each statistic is collected from the same
 * values in the same order. */
#ifndef OSH_VISIT_H
#define OSH_VISIT_H
#include "schedule/steps.h"

/* results of an earlier run; if a callback is NULL, its result is false */
typedef struct osh_visit_state {
    /* Returns true if all Linears of the range that read one of `values` are solved. NULL stands
     * for all values. */
    bool (*solved)(const void *user, const osh_range *r, const bool *values);
    /* returns true if the factors of the range's folds are known */
    bool (*folded)(const void *user, const osh_range *r);
    const void *user;
} osh_visit_state;
/* Replaces the list `to` by the steps of visit number `index`. done: results of an earlier run;
 * NULL: there was none. */
osh_status osh_visit_list(osh_ctx *cx, osh_steps *to, const osh_schedule *p, int index,
                          const osh_visit_state *done);
#endif
