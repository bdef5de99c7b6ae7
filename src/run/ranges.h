/* ranges.h - observes the ranges (smallest and largest element) of values that need static scales
 * (osh_linear.ranged). These are inputs and outputs of Linears, and keys, values and queries.
 * First, the range of each sample is collected (osh_stat_sample_ranges). When all samples are
 * complete, the observer is updated with their ranges in the order of the samples. Two-pass
 * observers read each sample twice. Linears that read the same value share a range if their
 * observers have the same settings. */
#ifndef OSH_RUN_RANGES_H
#define OSH_RUN_RANGES_H
#include "schedule/visit.h"
#include "budget/budget.h"
#include "ranks/ranks.h"

typedef struct osh_ranges osh_ranges; // observed ranges of the Linears of some subgraphs
/* Makes an empty list, with memory for the ranges of all Linears in r. `p` must outlive the list.
 * The caller frees *out with osh_ranges_free. */
osh_status osh_ranges_new(osh_ctx *cx, osh_ranges **out, const osh_budget *p, const osh_range *r);
void osh_ranges_free(osh_ctx *cx, osh_ranges *r);
/* Begins to observe all ranges that a Linear needs. */
osh_status osh_ranges_want(osh_ctx *cx, osh_ranges *r, int linear);
/* True if any range of the value is observed. */
bool osh_ranges_has(const osh_ranges *r, int value);
/* osh_ranges_on_gpu: true if a GPU must compute ranges of samples of the value
 * (osh_ranges_feed_minmax). osh_ranges_on_host: true if observers of the value read rows in host
 * memory (osh_ranges_feed). */
bool osh_ranges_on_gpu(const osh_ranges *r, int value);
bool osh_ranges_on_host(const osh_ranges *r, int value);
/* Argument of osh_ranges_feed, which adds samples of a value. If the value is in the memory of a
 * GPU, the samples that observers on the host read are copied, one at a time.
 * first_sample: number of the first of these samples.
 * once: true if one-pass observers are also updated.
 * again: true in the second pass of two-pass observers. */
typedef struct osh_looking {
    bool once, again;
    int64_t first_sample;
} osh_looking;
osh_status osh_ranges_feed(osh_ctx *cx, osh_ranges *r, int value, const osh_tensor *x,
                           const osh_seqs *seqs, osh_looking look);
/* With a GPU: updates the observers of a value with all n samples. minmax [2, n]: smallest and
 * largest element of the value in each sample. If the smallest is larger than the largest, the
 * sample has no tokens. */
void osh_ranges_feed_minmax(osh_ranges *r, int value, const float *minmax, int64_t n);
/* Copies sample k of x from a GPU to *out (own), in host memory. */
osh_status osh_ranges_copy_sample(osh_ctx *cx, osh_tensor **out, const osh_tensor *x,
                                  const osh_seqs *seqs, int64_t k);
/* Exchanges the ranges of samples between the ranks, so that each rank has those of all samples.
 * Does nothing if `ranks` is NULL. */
osh_status osh_ranges_merge(osh_ctx *cx, osh_ranges *r, osh_ranks *ranks);
/* Updates all observers with the ranges of the samples. Must be called after all samples were
 * added. */
osh_status osh_ranges_finish(osh_ctx *cx, osh_ranges *r);
/* Frees the observers of all ranges of a Linear, even if other Linears share these ranges. */
void osh_ranges_drop(osh_ctx *cx, osh_ranges *r, int linear);
/* Sets *scale and *zero (own) to the scale and the zero point of a Linear's static input, or to
 * NULL if the Linear has no static input. */
osh_status osh_ranges_input_params(osh_ctx *cx, osh_tensor **scale, osh_tensor **zero,
                                   const osh_ranges *r, int linear);
/* Makes *out (own), which becomes the member `cache` of the Linear's osh_linear_job. It has the
 * static scales and zero points of the Linear's output. If the Linear reads the output of an
 * attention with quantized keys and values, *out also has the scales and zero points of the keys
 * and values. *out is NULL if there are no such scales. */
osh_status osh_ranges_beside_params(osh_ctx *cx, void **out, const osh_ranges *r, int linear);
#endif
