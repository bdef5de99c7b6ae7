/* range.h - the range of a visit: its nodes, Linears, values and weights, and the weights that a
 * step loads. */
#ifndef OSH_RANGE_H
#define OSH_RANGE_H
#include "schedule/schedule.h"

typedef struct osh_range { // nodes of a visit: a subgraph, or (pipeline basic) the whole graph
    int first, n_nodes, first_subgraph, n_subgraphs;
    const int *live_in, *live_out; // views of the partition
    int n_live_in, n_live_out;
    bool observe, propagate, merged, same; // see osh_pass
    const char *name;                // view
    int l0, l1, v0, v1, w0, w1;      // [l0, l1) are the Linears of the range; [v0, v1) and [w0, w1)
                                     // contain its values and weights
    bool fold, block;                // see osh_pass
} osh_range;

typedef struct osh_step { // arrays by value of the graph, or by node from `first` on
    int first, n;
    const bool *run;     // [nodes] true for nodes that run; NULL: none
    const bool *in;      // true for values that the step gets from the store, and for the token ids
    const bool *out;     // true for values that are put in the store
    const bool *consume; // part of `in`: the store may free a row after the batch that has read it
    bool observe;        // true: the step adds to the open statistics
    bool first_look;     // true: the step is the first look of the observers that look at values
                         // twice (looks.h); it adds to no other statistic
    bool again;          // true: this is the second pass, through the solved weights
    bool fold;           // true: this is the fold pass, which adds to the statistics for factors
    const bool *routed;  // true for nodes that run only on the rows routed to their expert
                         // (graph/routed.h); NULL: none
} osh_step;

/* Returns the value from which statistics of `value` are computed. same: osh_pass.same of the
 * subgraph. */
int osh_observed(const osh_graph *g, bool same, int value);
/* True if the factors of the fold are computed in this traversal, in this range. */
bool osh_fold_inside(const osh_schedule *p, const osh_range *r, const osh_fold *f);
int osh_n_ranges(const osh_schedule *p);
osh_range osh_range_at(const osh_schedule *p, int index);
size_t osh_ranged_lists(const osh_schedule *p, const osh_range *r); // gross bytes of the statistics
                                                                    // of ranges of the Linears in r

/* Sets want[w] to true for the weights that a step loads: the weights of nodes that run, and of
 * unsolved Linears that read one of `values` (NULL: none). */
void osh_step_wants(bool *want, const osh_schedule *p, const osh_range *r, const osh_step *s,
                    const bool *values);
#endif
