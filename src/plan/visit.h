/* visit.h - the steps in which a subgraph is worked on. The walk is the same for the run, which takes the steps, and
 * for the plan, which counts the bytes that they would take.
 *
 *   whole      load | observe | solve | reload | propagate | release
 *   rounds     load | (observe, solve) for each round's share of the statistics | reload | propagate | release
 *   segments   for each group of Linears with one input: observe its input | load, solve | run | release
 *              then again through the solved weights, values between groups in the activation store
 *
 * Where factors are folded into weights (folds.h), a way through the subgraph for their sake comes before all of that:
 * load | run what the layers that give need, and see what they make | fold. What follows sees the changed weights.
 *
 * Where the original model's values are carried (osh_graph_add_original) its nodes run in the first way through a
 * subgraph, whose weights are the original ones: so far as statistics need, and in the last pass to the end. What is
 * the same in both comes in once, and until something is solved both make the same of it: the original's nodes alone
 * run. Where an earlier run has solved all of a subgraph, they run before the weights are those of the output.
 *
 * None of this shows in the bytes of the output: each statistic is collected from the same values in the same order. */
#ifndef OSH_VISIT_H
#define OSH_VISIT_H
#include "plan/plan.h"

typedef struct osh_range { // what is visited: a subgraph, or (pipeline basic) the whole graph
    int first, n_nodes, first_subgraph, n_subgraphs;
    const int *live_in, *live_out; // view: of the partition
    int n_live_in, n_live_out;
    bool observe, propagate, merged, same; // as osh_pass
    const char *name;                // view
    int l0, l1, v0, v1, w0, w1;      // [l0, l1) are its Linears; in the others lie its values and its weights
    bool fold, block;                // as osh_pass
} osh_range;
typedef struct osh_step osh_step;
/* The value that statistics of `value` are made of; same: of the subgraph, as osh_pass. */
int osh_observed(const osh_graph *g, bool same, int value);
bool osh_fold_inside(const osh_range *r, const osh_fold *f); // it is one of the range's
/* Weights of the Linears that take factors in the range, where the step is for their sake: loaded once for all ways. */
void osh_fold_wants(bool *want, const osh_plan *p, const osh_range *r, const osh_step *s);
int osh_n_ranges(const osh_plan *p);
osh_range osh_range_at(const osh_plan *p, int index);

struct osh_step { // all by graph value or, from first on, by node
    int first, n;
    const bool *run;     // nodes; NULL: none
    const bool *in;      // values that come from the store (or are the ids)
    const bool *out;     // values that go there
    const bool *consume; // of in: the store may let a row go behind the batch that read it
    bool observe;        // feeds the statistics that are open
    bool first_look;     // of these alone what looks at a value twice, for the first time (looks.h)
    bool again;          // the way through the solved weights
    bool fold;           // the way before all others: feeds what factors are made of
    const bool *routed;  // nodes that run on the rows alone that go to their expert (graph/routed.h); NULL: none
};

/* Adds the weights that a step loads, want [weights]: of nodes that run, and of the Linears that read one of values
 * (NULL: none) and are to be solved. */
void osh_step_wants(bool *want, const osh_plan *p, const osh_range *r, const osh_step *s, const bool *values);

/* What a walk marks values in, for walks one after the other: a model of many visits must not have lists as long as the
 * model made for each. */
typedef struct osh_visit_lists osh_visit_lists;
osh_status osh_visit_lists_new(osh_ctx *cx, osh_visit_lists **out, const osh_graph *g);
void osh_visit_lists_free(osh_ctx *cx, osh_visit_lists *l);

typedef struct osh_visitor { // a member may be NULL: nothing is done there
    /* Opens the statistics of these input values. */
    osh_status (*open)(osh_ctx *cx, void *user, const osh_range *r, const bool *values);
    /* Weights as osh_step_wants has them. */
    osh_status (*load)(osh_ctx *cx, void *user, const osh_range *r, const osh_step *s, const bool *values);
    osh_status (*pass)(osh_ctx *cx, void *user, const osh_range *r, const osh_step *s);
    /* Solves what the open statistics are for, and closes them. keep: the weights in memory stay as they are. */
    osh_status (*solve)(osh_ctx *cx, void *user, const osh_range *r, const bool *values, bool keep);
    /* Weights of solved Linears among these nodes, where memory has them as they were, become those of the output. */
    osh_status (*reload)(osh_ctx *cx, void *user, const osh_range *r, int first, int n);
    osh_status (*release)(osh_ctx *cx, void *user, int first, int n);
    /* The store drops every value but these. */
    osh_status (*drop)(osh_ctx *cx, void *user, const bool *keep);
    /* Nothing is left to solve of the Linears that read one of values (NULL: of all). NULL: of none. */
    bool (*solved)(const void *user, const osh_range *r, const bool *values);
    void *user;
    osh_visit_lists *lists; // view; NULL: a walk makes its own
    /* Opens what the factors of the range are made of; makes them, folds them into the weights in memory and closes it.
     * folded: an earlier run did. NULL: nothing, nothing, and none did. */
    osh_status (*fold_open)(osh_ctx *cx, void *user, const osh_range *r);
    osh_status (*fold)(osh_ctx *cx, void *user, const osh_range *r);
    bool (*folded)(const void *user, const osh_range *r);
} osh_visitor;
osh_status osh_visit_walk(osh_ctx *cx, const osh_plan *p, int index, const osh_visitor *v);
/* Batches whose values rest as the tensors that they were made as: with values in the memory that a run computes in. */
int64_t osh_memory_kept(const osh_plan *p, osh_tier tier);
#endif
