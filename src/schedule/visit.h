/* visit.h - the steps of a visit, in which a subgraph is observed, solved and run. The run takes
 * the steps; the plan counts the bytes that they take. Both use the same walk.
 *
 *   whole      load | observe | solve | reload | propagate | release
 *   rounds     load | (observe, solve) for each round of statistics | reload | propagate | release
 *   segments   for each group of Linears with one input:
 *                observe its input | load, solve | run | release
 *              then a second pass through the solved weights;
 *              values between groups are in the activation store
 *
 * If factors are folded into weights (folds.h), a fold pass comes first: load | run the nodes that
 * the giving layers need and observe their outputs | fold. The later steps see the changed weights.
 *
 * If the original model's values are carried (osh_graph_add_original), its nodes run in the first
 * pass through a subgraph, while the weights are the original ones: as far as statistics need them,
 * and in the last pass to the end. A value that is the same in both models is stored once. Until
 * something is solved both models compute the same from it, so only the original's nodes run. If an
 * earlier run has solved all of a subgraph, they run before the weights are replaced by those of
 * the output.
 *
 * The bytes of the output do not depend on the steps: each statistic is collected from the same
 * values in the same order. */
#ifndef OSH_VISIT_H
#define OSH_VISIT_H
#include "schedule/schedule.h"

typedef struct osh_range { // nodes of a visit: a subgraph, or (pipeline basic) the whole graph
    int first, n_nodes, first_subgraph, n_subgraphs;
    const int *live_in, *live_out; // view: of the partition
    int n_live_in, n_live_out;
    bool observe, propagate, merged, same; // see osh_pass
    const char *name;                // view
    int l0, l1, v0, v1, w0, w1;      // [l0, l1): its Linears; [v0, v1) and [w0, w1) contain its
                                     // values and weights
    bool fold, block;                // see osh_pass
} osh_range;
typedef struct osh_step osh_step;
/* Returns the value that statistics of `value` are made of. same: of the subgraph, see osh_pass. */
int osh_observed(const osh_graph *g, bool same, int value);
bool osh_fold_inside(const osh_range *r, const osh_fold *f); // true if the fold is in the range
/* Adds the weights of the Linears that take factors in the range, if the step is for factors: they
 * are loaded once for all passes. */
void osh_fold_wants(bool *want, const osh_schedule *p, const osh_range *r, const osh_step *s);
int osh_n_ranges(const osh_schedule *p);
osh_range osh_range_at(const osh_schedule *p, int index);
size_t osh_ranged_lists(const osh_schedule *p, const osh_range *r); // gross: ranges of its Linears

struct osh_step { // arrays by graph value or, from `first` on, by node
    int first, n;
    const bool *run;     // nodes; NULL: none
    const bool *in;      // values that come from the store (or are the token ids)
    const bool *out;     // values that are put in the store
    const bool *consume; // part of in: the store may free a row after the batch that read it
    bool observe;        // feeds the open statistics
    bool first_look;     // only feeds statistics that look twice, for the first time (looks.h)
    bool again;          // the second pass, through the solved weights
    bool fold;           // the fold pass: feeds the statistics for factors
    const bool *routed;  // nodes that run only on the rows routed to their expert (graph/routed.h);
                         // NULL: none
};

/* Sets want[w] for the weights that a step loads: of nodes that run, and of unsolved Linears that
 * read one of values (NULL: none). */
void osh_step_wants(bool *want, const osh_schedule *p, const osh_range *r, const osh_step *s,
                    const bool *values);

/* Marks of values for a walk, reused by the next walk: a model with many visits must not make lists
 * of the model's length for each. */
typedef struct osh_visit_lists osh_visit_lists;
osh_status osh_visit_lists_new(osh_ctx *cx, osh_visit_lists **out, const osh_graph *g);
void osh_visit_lists_free(osh_ctx *cx, osh_visit_lists *l);

typedef struct osh_visitor { // a member may be NULL: the step does nothing
    /* Opens the statistics of these input values. */
    osh_status (*open)(osh_ctx *cx, void *user, const osh_range *r, const bool *values);
    /* Loads the weights of osh_step_wants. */
    osh_status (*load)(osh_ctx *cx, void *user, const osh_range *r, const osh_step *s,
                       const bool *values);
    osh_status (*pass)(osh_ctx *cx, void *user, const osh_range *r, const osh_step *s);
    /* Solves the Linears of the open statistics, and closes the statistics. keep: the weights in
     * memory stay as they are. */
    osh_status (*solve)(osh_ctx *cx, void *user, const osh_range *r, const bool *values, bool keep);
    /* Replaces the original weights in memory of solved Linears among these nodes by those of the
     * output. */
    osh_status (*reload)(osh_ctx *cx, void *user, const osh_range *r, int first, int n);
    osh_status (*release)(osh_ctx *cx, void *user, int first, int n);
    /* Drops all values of the store except `keep`. */
    osh_status (*drop)(osh_ctx *cx, void *user, const bool *keep);
    /* True if all readers of one of values (NULL: all Linears of the range) are solved. NULL: none
     * is. */
    bool (*solved)(const void *user, const osh_range *r, const bool *values);
    void *user;
    osh_visit_lists *lists; // view; NULL: the walk makes its own
    /* fold_open opens the statistics for the range's factors. fold makes the factors, folds them
     * into the weights in memory and closes the statistics. folded: true if an earlier run did. If
     * NULL: no statistics, no fold, not folded. */
    osh_status (*fold_open)(osh_ctx *cx, void *user, const osh_range *r);
    osh_status (*fold)(osh_ctx *cx, void *user, const osh_range *r);
    bool (*folded)(const void *user, const osh_range *r);
} osh_visitor;
/* Walks through the steps of the visit of range `index` and calls the visitor for each. */
osh_status osh_visit_walk(osh_ctx *cx, const osh_schedule *p, int index, const osh_visitor *v);
#endif
