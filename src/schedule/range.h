/* range.h - the range of a visit: its nodes, Linears, values and weights. */
#ifndef OSH_RANGE_H
#define OSH_RANGE_H
#include "schedule/schedule.h"

/* Range of a visit (the work on one subgraph): the nodes of the subgraph, or the whole graph if the
 * pipeline is basic. */
typedef struct osh_range {
    int first, n_nodes, first_subgraph, n_subgraphs;
    /* Views of the partition: indices of the values that the range reads from and writes to the
     * store. */
    const int *live_in, *live_out;
    int n_live_in, n_live_out;
    bool observe, propagate, merged, same; // same meaning as in osh_pass (schedule.h)
    const char *name;                // view
    /* [l0, l1): Linears of the range; [v0, v1), [w0, w1): smallest intervals with all values and
     * weights of the range. */
    int l0, l1, v0, v1, w0, w1;
    bool fold, block;                // same meaning as in osh_pass (schedule.h)
} osh_range;

/* Returns the index of the value from which the statistics of `value` are computed: the
 * corresponding value of the original model if `same` and the graph has it, else `value`. same:
 * member `same` of the subgraph's osh_pass. */
int osh_observed(const osh_graph *g, bool same, int value);
/* True if this traversal computes the factors of the fold in range r. */
bool osh_fold_inside(const osh_schedule *p, const osh_range *r, const osh_fold *f);
int osh_n_ranges(const osh_schedule *p);
osh_range osh_range_at(const osh_schedule *p, int index);
/* Returns the bytes, with the allocator's overhead, of the range observers of all Linears in r. */
size_t osh_ranged_lists(const osh_schedule *p, const osh_range *r);
/* Returns the bytes of the Hessian and of the shift of the Linear's input. Returns 0 if the Linear
 * needs no Hessian, or if an earlier Linear of the subgraph has the same input. */
int64_t osh_hessian_bytes(const osh_schedule *p, int linear);
/* Returns the sum of osh_hessian_bytes over the range. *largest: the largest term; may be
 * NULL. */
int64_t osh_range_hessians(const osh_schedule *p, const osh_range *r, int64_t *largest);
#endif
