/* times.h - the time of each phase on each rank of a divided job. */
#ifndef OSH_TIMES_H
#define OSH_TIMES_H
#include "budget/cost.h"
#include "ranks/ranks.h"

typedef struct osh_rank_time { // one rank
    double seconds[OSH_N_PHASES]; // time of each phase, with the time in `waited`
    double waited[OSH_N_PHASES];  // part of `seconds`: waits for transfers and other ranks
    int64_t n_tokens;             // tokens of its passes
    int64_t sent;                 // bytes that the rank has sent
    double began, waited_before;  // osh_now and osh_ranks_waited when the current phase began
} osh_rank_time;

void osh_time_begin(osh_rank_time *t, const osh_ranks *ranks);
void osh_time_end(osh_rank_time *t, const osh_ranks *ranks, osh_phase phase);
/* Returns the work of the rank in a phase: the seconds of the phase without waits. */
double osh_time_work(const osh_rank_time *t, osh_phase phase);
/* Returns the largest work of a rank in the phase, divided by the mean; 0: no rank has worked. */
double osh_time_imbalance(const osh_rank_time *all, int n, osh_phase phase);
/* Returns the slowest rank: the rank with the fewest tokens per second in its passes. Sets *speed
 * to this number of tokens per second. Sets *usual to the speed of the other ranks together: the
 * sum of their tokens, divided by the sum of their seconds. Returns -1 if *speed is at least half
 * of *usual, or if the passes of the rank took less than two seconds. */
int osh_time_slowest(const osh_rank_time *all, int n, double *speed, double *usual);
/* All ranks call this function. On rank 0, sets *all (own) to the times of all ranks, and frees the
 * old *all. Logs the times, and warns of a slow rank. */
osh_status osh_times_gather(osh_ctx *cx, osh_ranks *ranks, osh_rank_time **all,
                            const osh_rank_time *mine);
#endif
