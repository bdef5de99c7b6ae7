/* range.h - declares the range of a visit (the work on one subgraph): the subgraph's nodes,
 * Linears, values and weights. */
#ifndef OSH_RANGE_H
#define OSH_RANGE_H
#include "schedule/schedule.h"

/* The range of a visit: the nodes of its subgraph, or with the basic pipeline all nodes of the
 * graph. */
typedef struct osh_range {
    int first, n_nodes, first_subgraph, n_subgraphs;
    /* Indices of the values that the visit reads from the activation store (live_in) and writes to
     * the store (live_out). Views of the partition. */
    const int *live_in, *live_out;
    int n_live_in, n_live_out;
    bool observe, propagate, merged, same; // copies of these members of osh_pass (schedule.h)
    const char *name;                // view
    /* [l0, l1): indices of the Linears of the range.
     * [v0, v1), [w0, w1): smallest intervals that contain the indices of all values and weights of
     * the range. */
    int l0, l1, v0, v1, w0, w1;
    bool fold, block;                // copies of these members of osh_pass (schedule.h)
} osh_range;

/* Returns the index of the value from which the statistics of `value` are computed. If `same` is
 * true (see osh_pass) and the value has a counterpart in the original model, this is the
 * counterpart. Otherwise it is `value` itself. */
int osh_observed(const osh_graph *g, bool same, int value);
/* True if the current traversal computes the factors of fold f, and the subgraph of the fold is in
 * range r. */
bool osh_fold_inside(const osh_schedule *p, const osh_range *r, const osh_fold *f);
int osh_n_ranges(const osh_schedule *p);
osh_range osh_range_at(const osh_schedule *p, int index);
/* Returns the number of bytes of the range observers of all Linears in range r, with the
 * allocator's overhead. */
size_t osh_ranged_lists(const osh_schedule *p, const osh_range *r);
/* Returns the number of bytes of two statistics of the Linear's input: the Hessian and the shift.
 * Returns 0 if the Linear needs no Hessian. Also returns 0 if an earlier Linear of the subgraph has
 * the same input, because the Hessian then counts for the earlier Linear. */
int64_t osh_hessian_bytes(const osh_schedule *p, int linear);
/* Returns the sum of osh_hessian_bytes over the Linears of range r. *largest: set to the largest of
 * the summands; `largest` may be NULL. */
int64_t osh_range_hessians(const osh_schedule *p, const osh_range *r, int64_t *largest);
#endif
