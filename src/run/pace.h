/* pace.h - measures the speed of a run, and estimates the time to go from it. */
#ifndef OSH_PACE_H
#define OSH_PACE_H
#include "budget/cost.h"
#include "plan/plan.h"

/* The position of a run and the speed of each phase so far. All work before the present phase in
 * the order of the run counts as over, no matter if this run did it, an earlier run did it, or it
 * was skipped. */
typedef struct osh_pace {
    osh_cost *cost; // own [n]
    int n;
    double behind[OSH_N_PHASES];   // work of the subgraphs after the present one
    double at[OSH_N_PHASES];       // finished share of each phase of the present subgraph
    double spent[OSH_N_PHASES];    // seconds
    double finished[OSH_N_PHASES]; // work that was done in these seconds
    osh_phase phase;               // the present one
    int subgraph;                  // -1: not begun
    bool inside;
    double begun, ended; // osh_now; time between two phases (loading) counts to the second one
    double entered;      // osh_now at the begin of the phase, without the time before it
    double share, fraction;          // begun share of the phase; finished fraction of this share
    double pass_clock;               // seconds inside passes
    struct { double clock; int64_t tokens; } ring[32]; // last steps of the present pass
    int n_ring;
    int64_t tokens;      // in all passes so far
    double tokens_per_s; // in the previous pass
} osh_pace;
osh_status osh_pace_init(osh_ctx *cx, osh_pace *pace, const osh_plan *p);
void osh_pace_deinit(osh_ctx *cx, osh_pace *pace);
/* Begins a phase. now: osh_now(). subgraph < 0: the phase belongs to none. share 1: the whole
 * phase; all phases before it are over. share < 1: a part of the phase; parts may come in any
 * order. */
void osh_pace_begin(osh_pace *pace, osh_phase phase, int subgraph, double share, double now);
/* fraction: finished part of the begun share. n_tokens: tokens since the last step. */
void osh_pace_step(osh_pace *pace, double fraction, int64_t n_tokens, double now);
void osh_pace_end(osh_pace *pace, double now);
/* Returns the seconds to go; <= 0: not known yet, or the run is at its end. */
double osh_pace_eta(const osh_pace *pace, double now);
/* Returns the speed over the last 5 seconds of the pass; 0: not known. */
double osh_pace_tokens_per_s(const osh_pace *pace);
#endif
