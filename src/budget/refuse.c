/* refuse.c - refuses budgets that cannot be kept. The message names the budget and the smallest
 * possible budget. With --sequential-targets Linear, a job may need less memory, but has another
 * result. The message then also names the budget for this option. */
#include <stdio.h>
#include <string.h>

#include "graph/device_peaks.h"
#include "math/isa.h"
#include "budget/memory.h"
#include "budget/memory_rest.h"
#include "budget/refuse.h"
#include "schedule/range.h"
#include "tensor/scalar.h"

/* Computes the smallest budgets of the job with --sequential-targets Linear. Sets them to -1 if the
 * job cannot use this option. */
static osh_status least_of_linears(osh_ctx *cx, osh_peaks *out, const osh_budget *p,
                                   const osh_peaks *outside)
{
    osh_status rc = OSH_OK;
    char linear[] = "Linear", *items[] = {linear};
    const osh_strs targets = {items, 1};
    /* These structs are copies. Their members are views, except the lists marked `own` below. */
    osh_matching match = *p->match;
    osh_rewrites rewrites = *p->rewrites;
    osh_schedule schedule = *p->schedule;
    osh_budget other = *p;
    match.linears = NULL, match.readers = NULL, match.users = NULL;           // own
    rewrites.match = &match, rewrites.n_inherits = 0;
    schedule.match = &match, schedule.rewrites = &rewrites;
    schedule.parts = NULL, schedule.passes = NULL, schedule.visits = NULL;    // own
    schedule.looks = p->in->on_device ? OSH_LOOK_AGAIN : OSH_LOOK_RAM;
    other.match = &match, other.rewrites = &rewrites, other.schedule = &schedule;
    other.memory = (osh_memory){0};
    *out = (osh_peaks){.device = -1, .host = -1};
    /* Scales of keys and values need all nodes of an attention in one subgraph (match/cache.c). So
     * a job with such scales cannot be cut into single Linears. */
    if (p->in->pipeline != OSH_PIPELINE_SEQUENTIAL || p->match->cache.present) goto done;
    for (int i = 0; i < p->match->n_linears; i++)
        /* A job that learns codes by block would learn other codes if it were cut, so it stays
         * whole. */
        if (p->match->linears[i].wants & OSH_STAT_BLOCK) goto done;
    OSH_NEW(cx, match.linears, match.n_linears);
    memcpy(match.linears, p->match->linears, (size_t)match.n_linears * sizeof *match.linears);
    OSH_TRY(osh_plan_cut(cx, &schedule, &match, &rewrites, &targets, 1));
    schedule.n_visits = osh_n_ranges(&schedule);
    OSH_NEW(cx, schedule.visits, schedule.n_visits);
    OSH_TRY(osh_memory_least(cx, &other));
    const osh_memory *m = &other.memory;
    *out = (osh_peaks){.device = osh_max64(m->least.device, outside->device),
                        .host = osh_max64(m->least.host, outside->host) + p->memory.base_bytes +
                                OSH_ISA_NOISE_BYTES};
done:
    osh_partition_free(cx, schedule.parts);
    osh_free(cx, schedule.passes);
    osh_free(cx, schedule.visits);
    osh_free(cx, match.linears);
    osh_free(cx, match.readers);
    osh_free(cx, match.users);
    osh_device_peaks_free(cx, other.memory.peaks);
    return rc;
}

/* True if a Hessian has a second block for partial sums, which is as large as the Hessian
 * (ops/stat.h). There is no such block with --sum-groups 1. */
static bool has_grouped_hessians(const osh_budget *p)
{
    bool any = false;
    for (int i = 0; i < p->match->n_linears; i++)
        any |= (osh_wants(p->schedule, &p->match->linears[i]) & OSH_STAT_HESSIAN) != 0;
    return any && osh_stat_is_grouped(&osh_stat_hessian, &p->in->groups);
}

/* Returns a text for messages that names a way to reduce the smallest budget, or "". `tunes`: true
 * if tuning decides the smallest budget. */
static const char *refuse_hint(const osh_budget *p, bool tunes)
{
    if (tunes && p->in->on_device)
        return "; tuning needs this memory (tune: 0 disables it, --device cpu uses host memory)";
    if (tunes) return "; tuning needs this memory (tune: 0 disables it)";
    return has_grouped_hessians(p) ? "; --sum-groups 1 halves the bytes of Hessians" : "";
}

typedef struct too_small { // a budget that is too small
    bool host;          // true: --host-memory; false: --device-memory
    /* given: the budget.
     * least: the smallest possible budget.
     * of_linears: the smallest possible budget with --sequential-targets Linear; -1: none. */
    int64_t given, least, of_linears;
    const char *hint;   // from refuse_hint
} too_small;

static osh_status refuse_budget(osh_ctx *cx, const osh_budget *p, too_small b)
{
    const osh_options *o = p->in->opt;
    const char *option = b.host ? "host-memory" : "device-memory";
    char less[128] = "", others[160] = "";
    if (b.host && o->others_host > b.least)
        snprintf(others, sizeof others, ", because %s", o->others);
    if (b.host)
        b.least = osh_max64(b.least, o->others_host),
        b.of_linears = b.of_linears < 0 ? -1 : osh_max64(b.of_linears, o->others_host);
    if (b.of_linears >= 0 && mib_for(b.of_linears) < mib_for(b.least))
        snprintf(less, sizeof less, ", or --%s %.0fMiB with --sequential-targets Linear%s", option,
                 mib_for(b.of_linears),
                 o->sequential_targets_per_subgraph > 1 ? " --sequential-targets-per-subgraph 1"
                                                        : "");
    // the message has the given budget with two decimals if it is not a whole number of MiB
    int digits = b.given % (1 << 20) ? 2 : 0;
    return osh_fail(cx, OSH_E_USAGE, "--%s %.*fMiB is too small: want at least --%s %.0fMiB%s%s%s",
                    option, digits, (double)b.given / (1 << 20), option, mib_for(b.least), others,
                    less, b.hint);
}

bool osh_others_fit(const osh_options *o)
{
    return o->others_host - OSH_ISA_NOISE_BYTES <= o->host_memory;
}

osh_status osh_memory_refuse(osh_ctx *cx, const osh_budget *p, const osh_peaks *b,
                             const osh_peaks *outside)
{
    osh_status rc = OSH_OK;
    const osh_memory *m = &p->memory;
    const osh_options *o = p->in->opt;
    int64_t least_host = m->base_bytes + m->least.host + OSH_ISA_NOISE_BYTES;
    osh_peaks l, tuning;
    OSH_TRY(osh_tuning_bytes(cx, &tuning, p));
    const char *host_hint = refuse_hint(p, tuning.host > 0 && tuning.host >= m->least.host),
               *device_hint = refuse_hint(p, tuning.device > 0 && tuning.device >= m->least.device);
    OSH_TRY(least_of_linears(cx, &l, p, outside));
    if (m->least.host > b->host || (b->host < INT64_MAX && !osh_others_fit(o)))
        OSH_TRY(refuse_budget(cx, p, (too_small){true, o->host_memory, least_host, l.host,
                                                 host_hint}));
    if (m->least.device > b->device && !o->device_memory)
        OSH_FAIL(cx, OSH_E_USAGE, "the GPU has %.0fMiB for the run: want at least %.0fMiB%s",
                 mib_for(b->device), mib_for(m->least.device), device_hint);
    if (m->least.device > b->device)
        OSH_TRY(refuse_budget(cx, p, (too_small){false, o->device_memory, m->least.device, l.device,
                                                 device_hint}));
    if (m->peak.scratch > b->scratch)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--scratch-size %.0fMiB is too small: values between subgraphs take %.0fMiB",
                 mib_for(o->scratch_size), mib_for(m->peak.scratch));
    OSH_FAIL(cx, OSH_E_USAGE,
             "the budgets are too small together: want --host-memory %.0fMiB, --device-memory "
             "%.0fMiB and --scratch-size %.0fMiB",
             mib_for(osh_max64(least_host, o->others_host)), mib_for(m->least.device),
             mib_for(m->least.scratch));
done:
    return rc;
}
