/* stats.h - collects the statistics that modifiers want, once per value. Linears that read the same
 * value share its Hessian. */
#ifndef OSH_STATS_H
#define OSH_STATS_H
#include "budget/bytes.h"
#include "plan/plan.h"
#include "run/ranges.h"
#include "store/activations.h"

typedef struct osh_stats osh_stats; // for the Linears of some subgraphs
/* values: collects only statistics of these inputs; NULL: of all inputs. */
osh_status osh_stats_new(osh_ctx *cx, osh_stats **out, const osh_plan *p, int first_subgraph,
                         int n_subgraphs, const bool *values);
void osh_stats_free(osh_ctx *cx, osh_stats *s);
const bool *osh_stats_wanted(const osh_stats *s); // view: [graph values]
/* Opens a store for values that are looked at twice and kept in between (schedule/looks.h), with
 * the samples of `beside`. dir: directory of its files, if it is on the disk. Call it before values
 * are fed. */
osh_status osh_stats_keep(osh_ctx *cx, osh_stats *s, const osh_acts *beside, const char *dir);
/* Says that the values fed from now on are a first look only (osh_step.first_look). */
void osh_stats_first_look(osh_stats *s, bool first);
/* An exec hook: user is the osh_stats. */
osh_status osh_stats_feed(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                          const osh_batch *b);
/* Completes the statistics after all samples were fed: takes the second look at kept values, and
 * reads the ranges from the device. */
osh_status osh_stats_collect(osh_ctx *cx, osh_stats *s);
osh_tensor *osh_stats_sum(const osh_stats *s, int value, osh_sum sum); // view; NULL: none
/* Returns the weight of each channel of a value in *out, own: its mean square over the mean of all
 * channels. NULL: not wanted, or all values are 0. */
osh_status osh_stats_importance(osh_ctx *cx, float **out, const osh_stats *s, int value);
/* Frees the sums and ranges of a value. */
void osh_stats_drop(osh_ctx *cx, osh_stats *s, int value);
const osh_ranges *osh_stats_ranges(const osh_stats *s); // view
#endif
