/* trials.c - caches the peaks that simulations have computed. */
#include "budget/trials.h"

#include <string.h>

enum { MOST_BYTES = 1 << 20 }; // limit of the cache in bytes; a plan runs about 30 simulations

/* Settings on which the result of a simulation depends. The result also depends on the phases of
 * the visits (osh_phases). */
typedef struct settings {
    int64_t tier, looks, looks_f16, n_loaders, n_ahead, n_kept, solve_limit, batch_size, n_batches;
} settings;

typedef struct trial {
    settings of;
    osh_visit *visits; // own: [n_visits]
} trial;

struct osh_trials {
    trial *all; // own [room]: the first n elements are used
    size_t n, room;
};

static settings trial_settings(const osh_budget *p, osh_tier tier)
{
    const osh_memory *m = &p->memory;
    return (settings){tier,      p->schedule->looks,       m->looks_f16,  m->n_loaders, m->n_ahead,
                      m->n_kept, m->solve_limit, p->schedule->batch_size, p->schedule->n_batches};
}

static bool phases_same(const osh_phases *x, const osh_phases *y)
{
    return x->segments == y->segments && x->round_bytes == y->round_bytes &&
           x->n_rounds == y->n_rounds && x->prefetch == y->prefetch &&
           x->prefetch_device == y->prefetch_device && x->values_ahead == y->values_ahead &&
           x->apart == y->apart;
}

void osh_trials_find(bool *found, const osh_trials *t, osh_budget *p, osh_tier tier)
{
    settings now = trial_settings(p, tier);
    osh_schedule *s = p->schedule;
    *found = false;
    for (size_t k = 0; t && !*found && k < t->n; k++) {
        // memcmp can compare the structs, because they have no padding
        bool same = !memcmp(&t->all[k].of, &now, sizeof now);
        for (int i = 0; same && i < s->n_visits; i++)
            same = phases_same(&t->all[k].visits[i].how, &s->visits[i].how);
        if (same) memcpy(s->visits, t->all[k].visits, (size_t)s->n_visits * sizeof *s->visits);
        *found = same;
    }
}

osh_status osh_trials_add(osh_ctx *cx, osh_trials **t, const osh_budget *p, osh_tier tier)
{
    osh_status rc = OSH_OK;
    const osh_schedule *s = p->schedule;
    if (!*t) OSH_NEW(cx, *t, 1);
    osh_trials *l = *t;
    if ((l->n + 1) * (size_t)s->n_visits * sizeof *s->visits > MOST_BYTES) goto done;
    if (l->n == l->room) {
        trial *more = osh_realloc(cx, l->all, (2 * l->room + 16) * sizeof *more);
        if (!more) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the trials of a plan");
        l->all = more, l->room = 2 * l->room + 16;
    }
    trial *now = &l->all[l->n];
    *now = (trial){.of = trial_settings(p, tier)};
    OSH_NEW(cx, now->visits, s->n_visits);
    memcpy(now->visits, s->visits, (size_t)s->n_visits * sizeof *s->visits);
    l->n++;
done:
    return rc;
}

void osh_trials_free(osh_ctx *cx, osh_trials *t)
{
    if (!t) return;
    for (size_t k = 0; k < t->n; k++) osh_free(cx, t->all[k].visits);
    osh_free(cx, t->all);
    osh_free(cx, t);
}
