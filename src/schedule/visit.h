/* visit.h - makes the list of the steps of a visit, in which a subgraph is observed, solved and
 * run. The run executes the list; the plan counts the bytes that its steps need.
 *
 *   whole      load | observe | solve | reload | propagate | release
 *   rounds     load | (observe, solve) for each round of statistics | reload | propagate | release
 *   segments   for each group of Linears with one input:
 *                observe its input | load, solve | run | release
 *              then a second pass through the solved weights;
 *              values between groups are in the activation store
 *
 * If factors are folded into weights (folds.h), a fold pass comes first: load | run the nodes that
 * the layers with folds need, and observe their outputs | fold. The later steps use the changed
 * weights.
 *
 * If the original model also runs (osh_graph_add_original), nodes of the original model run in
 * the first pass through a subgraph, while the weights are still the original ones. In all of these
 * passes except the last, only the nodes that are needed for statistics run; in the last pass all
 * nodes run. A value that is the same in both models is stored once. As long as no Linear is
 * solved, both models compute the same results from such a value, so only the nodes of the original
 * model run. If an earlier run has solved all Linears of a subgraph, the nodes of the original
 * model run before the weights are replaced by those of the output.
 *
 * The bytes of the output do not depend on the steps: each statistic is collected from the same
 * values in the same order. */
#ifndef OSH_VISIT_H
#define OSH_VISIT_H
#include "schedule/steps.h"

typedef struct osh_visit_state { // results of an earlier run; a callback NULL means: none
    /* True if all Linears of the range that read one of `values` (NULL: all Linears of the range)
     * are solved. */
    bool (*solved)(const void *user, const osh_range *r, const bool *values);
    bool (*folded)(const void *user, const osh_range *r); // true if the factors are computed
    const void *user;
} osh_visit_state;
/* Replaces the list by the steps of the visit of range `index`. done: NULL if no earlier run has
 * done anything. */
osh_status osh_visit_list(osh_ctx *cx, osh_steps *to, const osh_schedule *p, int index,
                          const osh_visit_state *done);
#endif
