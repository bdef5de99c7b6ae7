/* stats.h - collects statistics of values for modifiers. Linears that read the same value share the
 * statistics of the value, such as the Hessian. */
#ifndef OSH_STATS_H
#define OSH_STATS_H
#include "budget/bytes.h"
#include "budget/budget.h"
#include "ranks/ranks.h"
#include "run/ranges.h"
#include "store/activations.h"

typedef struct osh_stats osh_stats; // statistics for the Linears of some subgraphs
/* Makes the statistics *out for the Linears of some subgraphs. values [graph values]: true for
 * inputs whose statistics are collected; NULL: all inputs. */
osh_status osh_stats_new(osh_ctx *cx, osh_stats **out, const osh_budget *p, int first_subgraph,
                         int n_subgraphs, const bool *values);
/* Frees the statistics. Accepts NULL. */
void osh_stats_free(osh_ctx *cx, osh_stats *s);
/* Returns a list (view [graph values]) that is true for inputs whose statistics are collected. */
const bool *osh_stats_wanted(const osh_stats *s);
/* Divides the statistics among ranks. Each rank adds only the samples of its own groups
 * (osh_divide_sample). The sums of a value go to the rank that solves the Linears that read the
 * value. Must be called before values are added. Does nothing if `ranks` is NULL. */
osh_status osh_stats_divide(osh_ctx *cx, osh_stats *s, osh_ranks *ranks);
/* Returns the rank that solves the Linears that read the value. This rank gets the sums of the
 * value. Returns 0 if statistics are not divided. */
int osh_stats_owner(const osh_stats *s, int value);
/* Merges the sums of one round between ranks. All ranks call it after each of them has added the
 * samples of one group. In round number `round`, rank k has added group number round * n + k; n is
 * the number of ranks. The sums are merged in the order of the groups. */
osh_status osh_stats_exchange(osh_ctx *cx, osh_stats *s, int64_t round);
/* If there are two-pass observers (schedule/looks.h), opens a store for their values. The new store
 * has the samples of the store `beside`. dir: directory for the files of the new store, if it is on
 * the disk. Must be called before values are added. */
osh_status osh_stats_keep(osh_ctx *cx, osh_stats *s, const osh_acts *beside, const char *dir);
/* If `first` is true, values that are added after this call go only to two-pass observers, for
 * their first pass (member `first_look` of osh_step). */
void osh_stats_first_look(osh_stats *s, bool first);
/* Adds a value of a batch to the statistics. This function is a hook of graph/exec.h. Its argument
 * `user` is an osh_stats. */
osh_status osh_stats_feed(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                          const osh_batch *b);
/* Completes the statistics after all samples were added. In this call, two-pass observers read
 * stored values a second time, and ranges are copied from the GPU. */
osh_status osh_stats_collect(osh_ctx *cx, osh_stats *s);
/* Returns the sum of kind `sum` for a value (view), or NULL if this sum is not collected. */
osh_tensor *osh_stats_sum(const osh_stats *s, int value, osh_sum sum);
/* True if no row was added to the sums of the value. Before osh_stats_collect, this covers only the
 * rows that this process has added. */
bool osh_stats_is_empty(const osh_stats *s, int value);
/* Computes the importance of each channel of a value: the mean square of the channel divided by the
 * mean square of all channels. Sets *out (own) to NULL if no observer needs the importance, or if
 * all elements are 0. */
osh_status osh_stats_importance(osh_ctx *cx, float **out, const osh_stats *s, int value);
/* Frees the sums and ranges of a value. */
void osh_stats_drop(osh_ctx *cx, osh_stats *s, int value);
const osh_ranges *osh_stats_ranges(const osh_stats *s); // returns a view
#endif
