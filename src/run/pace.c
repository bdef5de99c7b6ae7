/* pace.c - estimates the time that a run still needs.
 *
 *   eta = sum over phases of left * (spent + prior * all_spent / all_finished) / (finished + prior)
 *   prior = trusted * (left + finished)
 *
 * For each phase, `left` is the work that remains, `finished` is the work that is done, and `spent`
 * are the seconds that this work took. all_spent and all_finished are sums over all phases. The
 * formula assumes that a phase continues at its speed so far. If little work of the phase is
 * finished, this speed is mixed with the speed of all phases together. */
#include "run/pace.h"

#include <string.h>

/* The formula mixes the speed of the phase with the speed of all phases together. When this
 * fraction of the phase is finished, both speeds have equal weights. */
static const double trusted = 0.02;

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

void osh_pace_begin(osh_pace *pace, osh_phase phase, int subgraph, double share, double now)
{
    int at = subgraph < 0 ? pace->n - 1 : subgraph;
    osh_pace_end(pace, now);
    if (at != pace->subgraph) {
        memset(pace->at, 0, sizeof pace->at);
        memset(pace->after, 0, sizeof pace->after);
        for (int s = at + 1; pace->cost && s < pace->n; s++)
            for (int k = 0; k < OSH_N_PHASES; k++) pace->after[k] += pace->cost[s].work[k];
    }
    pace->phase = phase, pace->subgraph = at, pace->share = share, pace->fraction = 0;
    pace->inside = true, pace->begun = pace->ended > 0 ? pace->ended : now;
    for (int k = 0; share >= 1 && k < (int)phase; k++) pace->at[k] = 1;
    if (share >= 1) pace->at[phase] = 0;
}

void osh_pace_step(osh_pace *pace, double fraction)
{
    if (pace->inside) pace->fraction = fraction < 1 ? fraction : 1;
}

void osh_pace_end(osh_pace *pace, double now)
{
    if (!pace->inside || !pace->cost) return;
    pace->spent[pace->phase] += now - pace->begun;
    pace->finished[pace->phase] += pace->share * pace->cost[pace->subgraph].work[pace->phase];
    pace->at[pace->phase] += pace->share;
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
        double left = pace->after[k] + (at[k] < 1 ? work[k] * (1 - at[k]) : 0);
        if (left <= 0) continue;
        double prior = trusted * (left + finished[k]);
        eta += left * (spent[k] + prior * all_spent / all_finished) / (finished[k] + prior);
    }
    return eta;
}

double osh_pace_work(const osh_pace *pace)
{
    double work = 0;
    for (int s = 0; pace->cost && s < pace->n; s++)
        for (int k = 0; k < OSH_N_PHASES; k++) work += pace->cost[s].work[k];
    return work;
}
