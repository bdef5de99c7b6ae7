/* cached.h - what a kv_cache_scheme sees: the ranges of keys and values, sample by sample, of each attention whose
 * scales a Linear has beside it; and static output_activations: of what it makes. */
#ifndef OSH_CACHED_H
#define OSH_CACHED_H
#include "plan/plan.h"

typedef struct osh_cached osh_cached; // of the Linears of some subgraphs
osh_status osh_cached_new(osh_ctx *cx, osh_cached **out, const osh_plan *p);
void osh_cached_free(osh_ctx *cx, osh_cached *c);
osh_status osh_cached_want(osh_ctx *cx, osh_cached *c, int linear); // its attention is observed, and what it makes
/* Nothing where no cache reads the value. again: the second look at it. */
osh_status osh_cached_feed(osh_ctx *cx, osh_cached *c, int value, const osh_tensor *x, const osh_seqs *seqs,
                           bool again);
/* The same of the value as what a Linear makes. */
osh_status osh_cached_feed_output(osh_ctx *cx, osh_cached *c, int value, const osh_tensor *x, const osh_seqs *seqs);
void osh_cached_drop(osh_ctx *cx, osh_cached *c, int linear); // the memory of what it saw
/* All of a Linear: osh_linear_job.cache. own; NULL: it has none. */
osh_status osh_cached_params(osh_ctx *cx, void **out, const osh_cached *c, int linear);
#endif
