/* visit.h - the steps of a visit, in which a subgraph is observed, solved and run. The run executes
 * the steps; the plan counts the bytes that they need. Both use the same walk.
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
 * the first pass through a subgraph, while the weights are still the original ones. In all
 * such passes but the last, only the nodes that statistics need run; in the last pass all run. A
 * value that is the same in both models is stored once. Until a Linear is solved, both models
 * compute the same results from such a value, so only the nodes of the original model run. If an
 * earlier run has solved all Linears of a subgraph, the nodes of the original model run before the
 * weights are replaced by those of the output.
 *
 * The bytes of the output do not depend on the steps: each statistic is collected from the same
 * values in the same order. */
#ifndef OSH_VISIT_H
#define OSH_VISIT_H
#include "schedule/range.h"

/* Lists of values for osh_visit_walk. Each list has an entry for every value of the model and is
 * therefore long, so all visits of a run reuse the same lists. */
typedef struct osh_visit_lists osh_visit_lists;
osh_status osh_visit_lists_new(osh_ctx *cx, osh_visit_lists **out, const osh_graph *g);
void osh_visit_lists_free(osh_ctx *cx, osh_visit_lists *l);

typedef struct osh_visitor { // callbacks; a step whose callback is NULL is skipped
    /* Begins the statistics of the inputs for which `values` is true. */
    osh_status (*open)(osh_ctx *cx, void *user, const osh_range *r, const bool *values);
    /* Loads the weights that osh_step_wants marks. */
    osh_status (*load)(osh_ctx *cx, void *user, const osh_range *r, const osh_step *s,
                       const bool *values);
    osh_status (*pass)(osh_ctx *cx, void *user, const osh_range *r, const osh_step *s);
    /* Solves the Linears whose statistics `open` has begun, and ends these statistics. `keep`: the
     * weights in memory must stay unchanged. */
    osh_status (*solve)(osh_ctx *cx, void *user, const osh_range *r, const bool *values, bool keep);
    /* Reads the quantized weights of the solved Linears in nodes [first, first + n) from the
     * output, and replaces the original weights in memory. */
    osh_status (*reload)(osh_ctx *cx, void *user, const osh_range *r, int first, int n);
    osh_status (*release)(osh_ctx *cx, void *user, int first, int n);
    /* Removes all values from the store for which `keep` is false. */
    osh_status (*drop)(osh_ctx *cx, void *user, const bool *keep);
    /* True if all Linears of the range that read one of `values` (NULL: all Linears of the range)
     * are solved. A callback NULL means that no Linear is solved. */
    bool (*solved)(const void *user, const osh_range *r, const bool *values);
    void *user;
    osh_visit_lists *lists; // view: lists to be used; NULL: osh_visit_walk allocates lists
    /* fold_open begins the statistics for the factors of the range. fold computes the factors,
     * folds them into the weights in memory, and ends the statistics. folded returns true if an
     * earlier run has computed the factors; a callback NULL means false. */
    osh_status (*fold_open)(osh_ctx *cx, void *user, const osh_range *r);
    osh_status (*fold)(osh_ctx *cx, void *user, const osh_range *r);
    bool (*folded)(const void *user, const osh_range *r);
} osh_visitor;
/* Walks through the steps of the visit of range `index` and calls the visitor for each. */
osh_status osh_visit_walk(osh_ctx *cx, const osh_schedule *p, int index, const osh_visitor *v);
#endif
