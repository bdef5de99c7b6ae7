/* times.h - declares the times that the phases of a divided job take on each rank. */
#ifndef OSH_TIMES_H
#define OSH_TIMES_H
#include "budget/cost.h"
#include "ranks/ranks.h"

typedef struct osh_rank_time { // one rank
    double seconds[OSH_N_PHASES]; // seconds of each phase, including waits
    /* part of `seconds` in which the rank waited for transfers and other ranks */
    double waited[OSH_N_PHASES];
    int64_t n_tokens;             // number of tokens that the rank has run in passes
    int64_t sent;                 // bytes that the rank has sent
    /* times (osh_now and osh_ranks_waited) at which the current phase began */
    double began, waited_before;
} osh_rank_time;

/* Records the start of a phase on this rank. */
void osh_time_begin(osh_rank_time *t, const osh_ranks *ranks);
/* Adds the seconds and the waits since osh_time_begin to the phase. */
void osh_time_end(osh_rank_time *t, const osh_ranks *ranks, osh_phase phase);
/* Returns the work of a rank in a phase: the seconds of the phase, minus the seconds of waits. */
double osh_time_work(const osh_rank_time *t, osh_phase phase);
/* Returns the largest work of any rank in the phase, divided by the mean of all ranks. Returns 0 if
 * no rank has worked. */
double osh_time_imbalance(const osh_rank_time *all, int n, osh_phase phase);
/* Returns the slowest rank, which has run the fewest tokens per second in its passes. *speed: set
 * to this number of tokens per second. *usual: set to the speed of the other ranks together, which
 * is the sum of their tokens divided by the sum of their seconds. Returns -1 if *speed is at least
 * half of *usual, or if the passes of the slowest rank took less than two seconds. */
int osh_time_slowest(const osh_rank_time *all, int n, double *speed, double *usual);
/* Collects the times of all ranks on rank 0. All ranks call this function. On rank 0, sets *all
 * (own) to these times, and frees the old *all. Logs the times, and warns about a slow rank. */
osh_status osh_times_gather(osh_ctx *cx, osh_ranks *ranks, osh_rank_time **all,
                            const osh_rank_time *mine);
#endif
