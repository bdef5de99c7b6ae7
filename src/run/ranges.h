/* ranges.h - observes the ranges of values that need static scales (osh_linear.ranged): inputs and
 * outputs of Linears, keys, values and queries. First the range of each sample is collected
 * (osh_stat_sample_ranges). When the ranges of all samples are complete, the observer is updated
 * with the ranges in the order of the samples. Two-pass observers read each sample twice. Linears
 * that read the same value share a range if their observers have the same settings. */
#ifndef OSH_RUN_RANGES_H
#define OSH_RUN_RANGES_H
#include "schedule/visit.h"
#include "budget/budget.h"
#include "ranks/ranks.h"

typedef struct osh_ranges osh_ranges; // observed ranges of the Linears of some subgraphs
osh_status osh_ranges_new(osh_ctx *cx, osh_ranges **out, const osh_budget *p, const osh_range *r);
void osh_ranges_free(osh_ctx *cx, osh_ranges *r);
/* Begins to observe all ranges of a Linear. */
osh_status osh_ranges_want(osh_ctx *cx, osh_ranges *r, int linear);
/* True if a range of the value is observed. */
bool osh_ranges_has(const osh_ranges *r, int value);
/* Adds samples of a value, beginning with sample look.first_sample. once: true if one-pass
 * observers are also updated.
 * again: true in the second pass of two-pass observers. */
typedef struct osh_looking {
    bool once, again;
    int64_t first_sample;
} osh_looking;
osh_status osh_ranges_feed(osh_ctx *cx, osh_ranges *r, int value, const osh_tensor *x,
                           const osh_seqs *seqs, osh_looking look);
/* With a GPU: updates the observers of a value. minmax [2, n]: smallest and largest value of all n
 * samples; smallest > largest: a sample without tokens. */
void osh_ranges_feed_minmax(osh_ranges *r, int value, const float *minmax, int64_t n);
/* Gives all ranks the ranges of the samples that other ranks have added. If `ranks` is NULL, does
 * nothing. */
osh_status osh_ranges_merge(osh_ctx *cx, osh_ranges *r, osh_ranks *ranks);
/* Updates all observers with the ranges of the samples. Called after all samples were added. */
osh_status osh_ranges_finish(osh_ctx *cx, osh_ranges *r);
/* Frees the observers of a Linear's ranges, even if other Linears share them. */
void osh_ranges_drop(osh_ctx *cx, osh_ranges *r, int linear);
/* Computes scale and zero point (own) of a Linear's static input. Sets both to NULL if the Linear
 * has no static input. */
osh_status osh_ranges_input_params(osh_ctx *cx, osh_tensor **scale, osh_tensor **zero,
                                   const osh_ranges *r, int linear);
/* Makes the member `cache` of the Linear's osh_linear_job. This member has the static scales and
 * zero points of the Linear's output. If the Linear computes queries, keys or values, the member
 * also has the scales and zero points of the KV cache. Sets *out (own) to the member, or to NULL if
 * there are no such scales. */
osh_status osh_ranges_beside_params(osh_ctx *cx, void **out, const osh_ranges *r, int linear);
#endif
