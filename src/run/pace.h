/* pace.h - how fast a run is, and from that the time to go. */
#ifndef OSH_PACE_H
#define OSH_PACE_H
#include "plan/cost.h"

/* Where a run is, how fast each phase has been, and so when it will end. What lies before the present phase in the
 * order of the run is over, whether it was done here, resumed or skipped. */
typedef struct osh_pace {
    osh_cost *cost; // own [n]
    int n;
    double behind[OSH_N_PHASES];   // work of the subgraphs behind the present one
    double at[OSH_N_PHASES];       // share of each phase of the present subgraph that is over
    double spent[OSH_N_PHASES];    // seconds
    double finished[OSH_N_PHASES]; // work that took them
    osh_phase phase;               // the present one
    int subgraph;                  // -1: not begun
    bool inside;
    double begun, ended; // osh_now; what lies between two phases (loading) counts to the second
    double entered;      // osh_now, without that
    double share, fraction;          // of the phase that is done now; of that, what is done
    double pass_clock;               // seconds inside passes
    struct { double clock; int64_t tokens; } ring[32]; // tokens by pass_clock, lately, in the present pass
    int n_ring;
    int64_t tokens;      // through the passes
    double tokens_per_s; // of the pass before
} osh_pace;
osh_status osh_pace_init(osh_ctx *cx, osh_pace *pace, const osh_plan *p);
void osh_pace_deinit(osh_ctx *cx, osh_pace *pace);
/* now: osh_now(). subgraph < 0: none. share 1: the whole phase, and those before it are over; less: a part of it, in
 * any order. */
void osh_pace_begin(osh_pace *pace, osh_phase phase, int subgraph, double share, double now);
/* fraction of what was begun that is done; n_tokens went through since the last step. */
void osh_pace_step(osh_pace *pace, double fraction, int64_t n_tokens, double now);
void osh_pace_end(osh_pace *pace, double now);
double osh_pace_eta(const osh_pace *pace, double now); // seconds; <= 0: not known yet, or the end
double osh_pace_tokens_per_s(const osh_pace *pace); // over the last 5 seconds of the pass; 0: not known
#endif
