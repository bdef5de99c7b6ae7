/* exchange.h - adds statistics that several ranks have collected, each from its own samples. All
 * ranks call these functions with the same arguments. ranks NULL: they do nothing. */
#ifndef OSH_EXCHANGE_H
#define OSH_EXCHANGE_H
#include "ops/stat.h"
#include "ranks/ranks.h"

/* Adds the sums of the groups of a round to the sum of the owner, in the order of the groups. Rank
 * k has collected group round * ranks + k. Needs 1 MiB of memory, or one row of the sum if that is
 * more. */
osh_status osh_exchange_groups(osh_ctx *cx, osh_ranks *ranks, osh_stat *t, int owner,
                               int64_t round);
/* Merges a statistic whose result does not depend on the order of merges (osh_stat_type.exact), and
 * sends the result to all ranks. */
osh_status osh_exchange_exact(osh_ctx *cx, osh_ranks *ranks, const osh_stat_type *t,
                              osh_tensor *state);
/* Returns the number of rounds in which the ranks run all groups: one group of each rank at a
 * time. */
int64_t osh_exchange_rounds(const osh_groups *g, const osh_ranks *ranks);
/* True if the sample belongs to this rank and to the round. */
bool osh_exchange_is_now(const osh_groups *g, const osh_ranks *ranks, int64_t sample,
                         int64_t round);
/* Sends the state of rank 0 to all ranks. */
osh_status osh_exchange_give(osh_ctx *cx, osh_ranks *ranks, osh_tensor *state);
/* Sets *n on all ranks to the sum of *n over all ranks. */
osh_status osh_exchange_count(osh_ctx *cx, osh_ranks *ranks, int64_t *n);
#endif
