/* pace.h - measures the speed of a run, and estimates the time that the run still needs. */
#ifndef OSH_PACE_H
#define OSH_PACE_H
#include "budget/cost.h"
#include "budget/budget.h"

/* The position of a run, and the time that it spent in each phase. All work before the current
 * phase counts as finished, even if an earlier run has done it, or if it was skipped. */
typedef struct osh_pace {
    osh_cost *cost; // own [n]
    int n;
    double after[OSH_N_PHASES];    // work of the subgraphs after the current one, for each phase
    double at[OSH_N_PHASES];       // finished fraction of each phase, in the current subgraph
    double spent[OSH_N_PHASES];    // seconds that this process has spent in each phase
    double finished[OSH_N_PHASES]; // work that this process has done in each phase
    osh_phase phase;               // the current phase
    int subgraph;                  // index of the current subgraph; -1: none yet
    bool inside;
    /* Times (osh_now) at which a phase began and ended. If weights are loaded between two phases,
     * this time counts for the second phase. */
    double begun, ended;
    /* share: fraction of the phase that osh_pace_begin has begun. fraction: finished fraction of
     * this share. */
    double share, fraction;
} osh_pace;
/* Computes the estimated work of all phases. The caller calls osh_pace_deinit. */
osh_status osh_pace_init(osh_ctx *cx, osh_pace *pace, const osh_budget *p);
void osh_pace_deinit(osh_ctx *cx, osh_pace *pace);
/* Begins a phase. subgraph: index of the phase's subgraph; < 0: the phase belongs to no subgraph.
 * now: osh_now(). If `share` is 1, the whole phase begins, and all earlier phases of the subgraph
 * are finished. If `share` is less than 1, only this fraction of the phase begins. The rest of the
 * phase may follow after other phases. */
void osh_pace_begin(osh_pace *pace, osh_phase phase, int subgraph, double share, double now);
/* Records the progress of the current phase. fraction: finished fraction of the work that
 * osh_pace_begin has begun. */
void osh_pace_step(osh_pace *pace, double fraction);
/* Ends the current phase at time `now`. */
void osh_pace_end(osh_pace *pace, double now);
/* Returns the estimated seconds that the run still needs. A number <= 0 means that the seconds are
 * not known, or that the run is at its end. */
double osh_pace_eta(const osh_pace *pace, double now);
double osh_pace_work(const osh_pace *pace); // returns the sum of the work of all phases of the run
#endif
