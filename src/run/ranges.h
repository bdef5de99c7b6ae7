/* ranges.h - the ranges of values that static scales are made of (osh_linear.ranged): of what Linears read and make,
 * and of keys, values and queries. Each is followed sample by sample, or looked at twice. Linears that read one value
 * in the same way share its range. */
#ifndef OSH_RUN_RANGES_H
#define OSH_RUN_RANGES_H
#include "plan/visit.h"

typedef struct osh_ranges osh_ranges; // of the Linears of some subgraphs
osh_status osh_ranges_new(osh_ctx *cx, osh_ranges **out, const osh_plan *p, const osh_range *r);
void osh_ranges_free(osh_ctx *cx, osh_ranges *r);
osh_status osh_ranges_want(osh_ctx *cx, osh_ranges *r, int linear); // all of the Linear are followed
bool osh_ranges_has(const osh_ranges *r, int value); // it has one
/* Samples of a value. once: for those that look once, too; again: those that look twice do so. */
typedef struct osh_looking { bool once, again; } osh_looking;
osh_status osh_ranges_feed(osh_ctx *cx, osh_ranges *r, int value, const osh_tensor *x, const osh_seqs *seqs,
                           osh_looking look);
/* All samples of a value at once: minmax [n, 2], of one without tokens min > max. */
void osh_ranges_feed_minmax(osh_ranges *r, int value, const float *minmax, int64_t n);
void osh_ranges_drop(osh_ctx *cx, osh_ranges *r, int linear); // the memory of what is seen for it
/* Scale and zero point of a Linear's static input; both NULL where the scheme has none. own. */
osh_status osh_ranges_input_params(osh_ctx *cx, osh_tensor **scale, osh_tensor **zero, const osh_ranges *r, int linear);
/* osh_linear_job.cache, own; NULL: no other scales stand beside the Linear. */
osh_status osh_ranges_beside_params(osh_ctx *cx, void **out, const osh_ranges *r, int linear);
#endif
