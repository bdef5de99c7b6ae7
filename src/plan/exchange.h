/* exchange.h - merges statistics that several ranks (processes of one job) have collected from
 * different samples. All ranks call these functions at the same time, with the same arguments. If
 * `ranks` is NULL, there is only one process, and the functions do nothing. */
#ifndef OSH_EXCHANGE_H
#define OSH_EXCHANGE_H
#include "ops/stat.h"
#include "ranks/ranks.h"

/* In one round, each rank collects a sum. Adds these sums to the sum of the rank `owner`, in the
 * order of the groups of samples.
 * In round number `round`, rank k has collected group `round * (number of ranks) + k`. The function
 * needs as much memory as one row of the sum, or 1 MiB if a row is smaller. */
osh_status osh_exchange_groups(osh_ctx *cx, osh_ranks *ranks, osh_stat *t, int owner,
                               int64_t round);
/* Merges a statistic of all ranks, and sets *state to the result on all ranks. The result must not
 * depend on the order of merges (osh_stat_type.exact). */
osh_status osh_exchange_exact(osh_ctx *cx, osh_ranks *ranks, const osh_stat_type *t,
                              osh_tensor *state);
/* Returns the number of rounds. In each round, every rank runs one group of samples. */
int64_t osh_exchange_rounds(const osh_groups *g, const osh_ranks *ranks);
/* True if this rank runs the sample in round number `round`. */
bool osh_exchange_is_now(const osh_groups *g, const osh_ranks *ranks, int64_t sample,
                         int64_t round);
/* Sends rank 0's tensor `state` to all ranks. */
osh_status osh_exchange_give(osh_ctx *cx, osh_ranks *ranks, osh_tensor *state);
/* Sets *n on all ranks to the sum of the *n of all ranks. */
osh_status osh_exchange_count(osh_ctx *cx, osh_ranks *ranks, int64_t *n);
#endif
