/* pace.h - measures the speed of a run and estimates the time that it still needs. */
#ifndef OSH_PACE_H
#define OSH_PACE_H
#include "budget/cost.h"
#include "budget/budget.h"

/* The position of a run, and the time spent in each phase. All work before the current phase counts
 * as finished, also work that an earlier run has done or that was skipped. */
typedef struct osh_pace {
    osh_cost *cost; // own [n]
    int n;
    double behind[OSH_N_PHASES];   // sum of the work of the subgraphs after the current one
    double at[OSH_N_PHASES];       // finished fraction of each phase of the current subgraph
    double spent[OSH_N_PHASES];    // seconds spent in each phase
    double finished[OSH_N_PHASES]; // work that was done in the seconds of `spent`
    osh_phase phase;               // the current phase
    int subgraph;                  // the current subgraph; -1: none yet
    bool inside;
    /* osh_now at the beginning and at the end of a phase. The time for loading between two phases
     * belongs to the second phase. */
    double begun, ended;
    /* share: fraction of the phase that osh_pace_begin has begun. fraction: finished fraction of
     * `share`. */
    double share, fraction;
} osh_pace;
osh_status osh_pace_init(osh_ctx *cx, osh_pace *pace, const osh_budget *p);
void osh_pace_deinit(osh_ctx *cx, osh_pace *pace);
/* Begins a phase. `now` is osh_now(). If subgraph < 0, the phase belongs to no subgraph. If `share`
 * is 1, the whole phase begins, and all earlier phases of the subgraph are finished. If share < 1,
 * only this fraction of the phase begins, and other phases may run before the phase continues. */
void osh_pace_begin(osh_pace *pace, osh_phase phase, int subgraph, double share, double now);
/* Records a step. fraction: finished fraction of the share that was given to osh_pace_begin. */
void osh_pace_step(osh_pace *pace, double fraction);
void osh_pace_end(osh_pace *pace, double now);
/* Returns the estimated seconds that the run still needs; <= 0: not known, or the run is at its
 * end. */
double osh_pace_eta(const osh_pace *pace, double now);
double osh_pace_work(const osh_pace *pace); // returns the sum of the work of all phases
#endif
