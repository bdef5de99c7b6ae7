/* range.h - the range of a visit (the work on one subgraph): the nodes, Linears, values and weights
 * of the subgraph. */
#ifndef OSH_RANGE_H
#define OSH_RANGE_H
#include "schedule/schedule.h"

/* The range of a visit: the nodes of its subgraph, or the whole graph if the pipeline is basic. */
typedef struct osh_range {
    int first, n_nodes, first_subgraph, n_subgraphs;
    /* Indices of the values that the range reads from the activation store (live_in) and writes to
     * it (live_out). Views of the partition. */
    const int *live_in, *live_out;
    int n_live_in, n_live_out;
    bool observe, propagate, merged, same; // same meaning as in osh_pass (schedule.h)
    const char *name;                // view
    /* [l0, l1): Linears of the range.
     * [v0, v1), [w0, w1): smallest intervals with all values and with all weights of the range. */
    int l0, l1, v0, v1, w0, w1;
    bool fold, block;                // same meaning as in osh_pass (schedule.h)
} osh_range;

/* Returns the index of the value from which the statistics of `value` are computed. That is the
 * corresponding value of the original model if `same` is true and the graph has such a value, else
 * `value` itself. same: see osh_pass. */
int osh_observed(const osh_graph *g, bool same, int value);
/* True if this traversal computes the factors of fold f, and range r has the subgraph of the
 * fold. */
bool osh_fold_inside(const osh_schedule *p, const osh_range *r, const osh_fold *f);
int osh_n_ranges(const osh_schedule *p);
osh_range osh_range_at(const osh_schedule *p, int index);
/* Returns the bytes of the range observers of all Linears in r, with the allocator's overhead. */
size_t osh_ranged_lists(const osh_schedule *p, const osh_range *r);
/* Returns the bytes of the Hessian and of the shift of the Linear's input. Returns 0 if the Linear
 * needs no Hessian, or if an earlier Linear of the subgraph already counts the Hessian of the same
 * input. */
int64_t osh_hessian_bytes(const osh_schedule *p, int linear);
/* Returns the sum of osh_hessian_bytes over the Linears of the range. largest: set to the largest
 * of these numbers; may be NULL. */
int64_t osh_range_hessians(const osh_schedule *p, const osh_range *r, int64_t *largest);
#endif
