/* times.c - measures the times of the phases on each rank, and compares the ranks. */
#include "run/times.h"

/* seconds; a rank whose passes take less time than this is never called slow */
enum { LEAST_SECONDS = 2 };

void osh_time_begin(osh_rank_time *t, const osh_ranks *ranks)
{
    t->began = osh_now(), t->waited_before = osh_ranks_waited(ranks);
}

void osh_time_end(osh_rank_time *t, const osh_ranks *ranks, osh_phase phase)
{
    t->seconds[phase] += osh_now() - t->began;
    t->waited[phase] += osh_ranks_waited(ranks) - t->waited_before;
}

double osh_time_work(const osh_rank_time *t, osh_phase phase)
{
    double work = t->seconds[phase] - t->waited[phase];
    return work > 0 ? work : 0;
}

double osh_time_imbalance(const osh_rank_time *all, int n, osh_phase phase)
{
    double most = 0, sum = 0;
    for (int k = 0; k < n; k++) {
        double work = osh_time_work(&all[k], phase);
        if (work > most) most = work;
        sum += work;
    }
    return sum > 0 ? most * n / sum : 0;
}

static double time_passes(const osh_rank_time *t)
{
    return osh_time_work(t, OSH_PHASE_OBSERVE) + osh_time_work(t, OSH_PHASE_PROPAGATE);
}

static double time_speed(const osh_rank_time *t)
{
    double seconds = time_passes(t);
    return seconds > 0 ? (double)t->n_tokens / seconds : 0;
}

int osh_time_slowest(const osh_rank_time *all, int n, double *speed, double *usual)
{
    int slow = -1;
    osh_rank_time others = {.n_tokens = 0}; // sums over all ranks except the slowest
    for (int k = 0; k < n; k++)
        if (all[k].n_tokens && (slow < 0 || time_speed(&all[k]) < time_speed(&all[slow]))) slow = k;
    for (int k = 0; k < n; k++) {
        if (k == slow) continue;
        others.n_tokens += all[k].n_tokens;
        others.seconds[OSH_PHASE_OBSERVE] += time_passes(&all[k]);
    }
    if (slow < 0 || time_passes(&all[slow]) < LEAST_SECONDS) return -1;
    *speed = time_speed(&all[slow]), *usual = time_speed(&others);
    return *usual > 2 * *speed ? slow : -1;
}

static void times_log(osh_ctx *cx, osh_ranks *ranks, const osh_rank_time *all)
{
    int n = osh_ranks_n(ranks);
    int64_t sent = 0;
    double speed, usual;
    for (int k = 0; k < n; k++) sent += all[k].sent;
    osh_log(cx, OSH_LOG_INFO, "%lld bytes were sent between %d ranks", (long long)sent, n);
    for (osh_phase p = 0; p < OSH_N_PHASES; p++) {
        double most = 0, least = 0, waited = 0;
        for (int k = 0; k < n; k++) {
            double work = osh_time_work(&all[k], p);
            if (!k || work < least) least = work;
            if (work > most) most = work;
            waited += all[k].waited[p] / n;
        }
        if (most > 0)
            osh_log(cx, OSH_LOG_INFO,
                    "%s on %d ranks: %.3f s to %.3f s of work, imbalance %.2f, %.3f s of waiting",
                    osh_phase_name(p), n, least, most, osh_time_imbalance(all, n, p), waited);
    }
    int slow = osh_time_slowest(all, n, &speed, &usual);
    if (slow >= 0)
        osh_log(cx, OSH_LOG_WARN,
                "rank %d of %d on %s is slow: it runs %.0f tokens per second, the other ranks run "
                "%.0f and wait for it",
                slow, n, osh_ranks_at(ranks, slow)->node, speed, usual);
}

osh_status osh_times_gather(osh_ctx *cx, osh_ranks *ranks, osh_rank_time **all,
                            const osh_rank_time *mine)
{
    osh_status rc = OSH_OK;
    osh_rank_time now = *mine;
    if (!ranks) goto done;
    now.sent = osh_ranks_sent(ranks);
    osh_free(cx, *all), *all = NULL;
    OSH_NEW(cx, *all, osh_ranks_n(ranks));
    OSH_TRY(osh_ranks_gather(cx, ranks, *all, &now, sizeof now));
    if (!osh_ranks_me(ranks)) times_log(cx, ranks, *all);
done:
    return rc;
}
