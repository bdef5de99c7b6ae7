/* stats.h - the statistics that modifiers asked for, each collected once per value: Linears that
 * read the same value share its Hessian. */
#ifndef OSH_STATS_H
#define OSH_STATS_H
#include "plan/bytes.h"
#include "run/ranges.h"
#include "store/activations.h"

typedef struct osh_stats osh_stats; // of the Linears of some subgraphs
/* values: only those of these inputs; NULL: of all */
osh_status osh_stats_new(osh_ctx *cx, osh_stats **out, const osh_plan *p, int first_subgraph, int n_subgraphs,
                         const bool *values);
void osh_stats_free(osh_ctx *cx, osh_stats *s);
const bool *osh_stats_wanted(const osh_stats *s); // [graph values]
/* Where what is looked at twice is kept (plan/looks.h): beside these values, on the disk in dir; before it is fed. */
osh_status osh_stats_keep(osh_ctx *cx, osh_stats *s, const osh_acts *beside, const char *dir);
void osh_stats_first_look(osh_stats *s, bool first); // osh_step.first_look, of what is fed now
/* An exec hook: user is the osh_stats. */
osh_status osh_stats_feed(osh_ctx *cx, void *user, int value, const osh_tensor *x, const osh_batch *b);
/* All samples are fed: what a device has of ranges comes here, and what is kept is looked at again. */
osh_status osh_stats_collect(osh_ctx *cx, osh_stats *s);
osh_tensor *osh_stats_sum(const osh_stats *s, int value, osh_sum sum); // view; NULL: none
/* What channels of a value weigh: their mean squares over the mean of all. own; NULL: not wanted, or all are 0. */
osh_status osh_stats_importance(osh_ctx *cx, float **out, const osh_stats *s, int value);
void osh_stats_drop(osh_ctx *cx, osh_stats *s, int value); // the memory of its sums and ranges
const osh_ranges *osh_stats_ranges(const osh_stats *s); // view
#endif
