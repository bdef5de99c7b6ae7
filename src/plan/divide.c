/* divide.c - decides which work of a plan is divided among ranks (division.h). */
#include "plan/division.h"

#include "match/cache.h"
#include "quant/observer.h"
#include "schedule/schedule.h"

/* True if an observer of activations needs more than the smallest and the largest element of each
 * sample. The samples then cannot be divided among ranks. */
static bool observers_count(const osh_plan *p)
{
    for (int i = 0; i < p->match.n_linears; i++) {
        const osh_linear *l = &p->match.linears[i];
        for (int k = 0; k < OSH_RANGED; k++) {
            if (l->ranged[k] < 0) continue;
            const osh_q_args *a = osh_ranged_args(&p->match, l, k);
            if (osh_observer_counts(a) || osh_observer_twice(a)) return true;
        }
    }
    return false;
}

static bool blocks_learn(const osh_plan *p)
{
    for (int i = 0; i < p->match.n_linears; i++)
        if (osh_wants(&p->schedule, &p->match.linears[i]) & OSH_STAT_BLOCK) return true;
    return false;
}

/* Returns the reason why a run with calibration does not divide its samples among ranks. Returns
 * NULL if it divides them. */
static const char *samples_not(const osh_plan *p)
{
    if (p->in.groups.n < 2) return "all samples are one group; --sum-groups makes more";
    if (blocks_learn(p)) return "learning from the output of a layer is not divided";
    if (observers_count(p)) return "observers with histograms or two passes are not divided";
    return NULL;
}

osh_division osh_divide(const osh_plan *p)
{
    osh_division d = {OSH_DIVIDE_FILES, NULL};
    if (p->in.pipeline != OSH_PIPELINE_DATAFREE) {
        d.kind = OSH_DIVIDE_SAMPLES, d.not = samples_not(p);
    } else if (p->manifest.n_shards < 2) {
        d.not = "the output has one file, and a file has one writer; a smaller --max-shard-size "
                "makes more files";
    }
    if (d.not) d.kind = OSH_DIVIDE_NOTHING;
    return d;
}

const char *osh_division_text(const osh_division *d)
{
    switch (d->kind) {
    case OSH_DIVIDE_FILES: return "the files of the output are divided";
    case OSH_DIVIDE_SAMPLES: return "samples and solves are divided; rank 0 does all other work";
    case OSH_DIVIDE_NOTHING: break;
    }
    return "rank 0 does all work: ";
}
