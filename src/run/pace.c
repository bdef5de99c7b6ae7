/* pace.c - estimates the time that a run still needs.
 *
 *   eta = sum over phases of left * (spent + prior all_spent / all_finished) / (finished + prior)
 *
 * left, finished: work of a phase; spent: seconds; prior = trusted (left + finished); all_: sum
 * over all phases. The formula assumes that the work left in a phase is done at the speed of that
 * phase so far. For a phase with little finished work, the formula mixes this speed with the speed
 * of all phases together. */
#include "run/pace.h"

#include <string.h>

static const double window_s = 5;   // tokens per second are measured over this number of seconds
static const double trusted = 0.02; // finished fraction of a phase at which the speeds of the phase
                                    // and of all phases have equal weights

osh_status osh_pace_init(osh_ctx *cx, osh_pace *pace, const osh_budget *p)
{
    *pace = (osh_pace){.subgraph = -1};
    return osh_cost_new(cx, &pace->cost, &pace->n, p);
}

void osh_pace_deinit(osh_ctx *cx, osh_pace *pace)
{
    osh_free(cx, pace->cost);
    pace->cost = NULL;
}

static bool phase_is_pass(osh_phase p)
{
    return p == OSH_PHASE_OBSERVE || p == OSH_PHASE_PROPAGATE;
}

void osh_pace_begin(osh_pace *pace, osh_phase phase, int subgraph, double share, double now)
{
    int at = subgraph < 0 ? pace->n - 1 : subgraph;
    osh_pace_end(pace, now);
    if (at != pace->subgraph) {
        memset(pace->at, 0, sizeof pace->at);
        memset(pace->behind, 0, sizeof pace->behind);
        for (int s = at + 1; pace->cost && s < pace->n; s++)
            for (int k = 0; k < OSH_N_PHASES; k++) pace->behind[k] += pace->cost[s].work[k];
    }
    pace->phase = phase, pace->subgraph = at, pace->share = share, pace->fraction = 0;
    pace->inside = true, pace->entered = now, pace->begun = pace->ended > 0 ? pace->ended : now;
    if (phase_is_pass(phase)) {
        bool brief =
            pace->n_ring < 2 && pace->pass_clock > 0; // true if the previous pass was too short to
                                                      // measure, so that the mean speed of all
                                                      // passes is used
        pace->tokens_per_s =
            brief ? (double)pace->tokens / pace->pass_clock : osh_pace_tokens_per_s(pace);
        pace->n_ring = 0;
    }
    for (int k = 0; share >= 1 && k < (int)phase; k++) pace->at[k] = 1;
    if (share >= 1) pace->at[phase] = 0;
}

void osh_pace_step(osh_pace *pace, double fraction, int64_t n_tokens, double now)
{
    enum { N = sizeof pace->ring / sizeof *pace->ring };
    if (!pace->inside) return;
    pace->fraction = fraction < 1 ? fraction : 1;
    if (!phase_is_pass(pace->phase)) return;
    pace->tokens += n_tokens;
    double clock = pace->pass_clock + now - pace->entered;
    if (pace->n_ring && clock - pace->ring[pace->n_ring - 1].clock < window_s / N) return;
    int drop = 0; // number of oldest entries to remove from the ring; the newest entry that is
                  // older than the window is kept
    while (drop + 1 < pace->n_ring && pace->ring[drop + 1].clock < clock - window_s) drop++;
    if (pace->n_ring - drop == N) drop++;
    memmove(pace->ring, pace->ring + drop, (size_t)(pace->n_ring - drop) * sizeof *pace->ring);
    pace->n_ring -= drop;
    pace->ring[pace->n_ring].clock = clock, pace->ring[pace->n_ring++].tokens = pace->tokens;
}

void osh_pace_end(osh_pace *pace, double now)
{
    if (!pace->inside || !pace->cost) return;
    pace->spent[pace->phase] += now - pace->begun;
    pace->finished[pace->phase] += pace->share * pace->cost[pace->subgraph].work[pace->phase];
    pace->at[pace->phase] += pace->share;
    if (phase_is_pass(pace->phase)) pace->pass_clock += now - pace->entered;
    pace->inside = false, pace->ended = now;
}

double osh_pace_eta(const osh_pace *pace, double now)
{
    double spent[OSH_N_PHASES], finished[OSH_N_PHASES], at[OSH_N_PHASES], all_spent = 0,
                                                                          all_finished = 0, eta = 0;
    if (!pace->cost || pace->subgraph < 0) return 0;
    const double *work = pace->cost[pace->subgraph].work;
    memcpy(spent, pace->spent, sizeof spent);
    memcpy(finished, pace->finished, sizeof finished);
    memcpy(at, pace->at, sizeof at);
    if (pace->inside) {
        spent[pace->phase] += now - pace->begun;
        finished[pace->phase] += work[pace->phase] * pace->share * pace->fraction;
        at[pace->phase] += pace->share * pace->fraction;
    }
    for (int k = 0; k < OSH_N_PHASES; k++) all_spent += spent[k], all_finished += finished[k];
    if (all_finished <= 0) return 0;
    for (int k = 0; k < OSH_N_PHASES; k++) {
        double left = pace->behind[k] + (at[k] < 1 ? work[k] * (1 - at[k]) : 0);
        if (left <= 0) continue;
        double prior = trusted * (left + finished[k]);
        eta += left * (spent[k] + prior * all_spent / all_finished) / (finished[k] + prior);
    }
    return eta;
}

double osh_pace_tokens_per_s(const osh_pace *pace)
{
    if (pace->n_ring < 2) return pace->tokens_per_s;
    double t = pace->ring[pace->n_ring - 1].clock - pace->ring[0].clock;
    return t > 0 ? (double)(pace->ring[pace->n_ring - 1].tokens - pace->ring[0].tokens) / t : 0;
}
