/* pace.h - measures the speed of a run and estimates the time that it still needs. */
#ifndef OSH_PACE_H
#define OSH_PACE_H
#include "budget/cost.h"
#include "budget/budget.h"

/* The position of a run and the speed of each phase so far. All work before the current phase
 * counts as finished, even if an earlier run has done it or it was skipped. */
typedef struct osh_pace {
    osh_cost *cost; // own [n]
    int n;
    double behind[OSH_N_PHASES];   // work of the subgraphs after the current one
    double at[OSH_N_PHASES];       // finished fraction of each phase of the current subgraph
    double spent[OSH_N_PHASES];    // seconds spent in each phase
    double finished[OSH_N_PHASES]; // work that was done in the seconds of `spent`
    osh_phase phase;               // the current phase
    int subgraph;                  // the current subgraph; -1: none yet
    bool inside;
    double begun, ended; // osh_now; the time between two phases (loading) counts for the second one
    double entered;      // osh_now at the beginning of the phase
    double share, fraction;          // share: part of the phase that was begun last; fraction:
                                     // finished part of this share
    double pass_clock;               // seconds spent inside passes
    struct { double clock; int64_t tokens; } ring[32]; // last steps of the current pass
    int n_ring;
    int64_t tokens;      // tokens of all passes so far
    double tokens_per_s; // speed of the previous pass
} osh_pace;
osh_status osh_pace_init(osh_ctx *cx, osh_pace *pace, const osh_budget *p);
void osh_pace_deinit(osh_ctx *cx, osh_pace *pace);
/* Begins a phase. `now` is osh_now(). subgraph < 0: the phase belongs to no subgraph. share 1: the
 * whole phase begins, and all earlier phases are finished. share < 1: a part of the phase begins;
 * parts may come in any order. */
void osh_pace_begin(osh_pace *pace, osh_phase phase, int subgraph, double share, double now);
/* Records a step. fraction: finished part of the share that has begun. n_tokens: tokens since the
 * last step. */
void osh_pace_step(osh_pace *pace, double fraction, int64_t n_tokens, double now);
void osh_pace_end(osh_pace *pace, double now);
/* Returns the seconds that the run still needs. <= 0: not known yet, or the run is at its end. */
double osh_pace_eta(const osh_pace *pace, double now);
/* Returns the speed over the last 5 seconds of the pass. 0: not known. */
double osh_pace_tokens_per_s(const osh_pace *pace);
#endif
