/* refuse.c - refuses budgets that cannot be kept: names the budget, the smallest sufficient one,
 * and a smaller one for smaller subgraphs (--sequential-targets Linear, which gives another
 * result). Also limits the context to the budgets of a plan. */
#include <stdio.h>
#include <string.h>

#include "graph/device_peaks.h"
#include "math/isa.h"
#include "plan/memory.h"
#include "plan/trials.h"

static double refuse_mib(int64_t n) { return (double)((n + (1 << 20) - 1) >> 20); }

static int64_t refuse_larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Computes the smallest budgets of the same job with Linears as targets; -1: the job has no such
 * cut. */
static osh_status least_of_linears(osh_ctx *cx, osh_budget *out, const osh_plan *p,
                                   const osh_budget *outside)
{
    osh_status rc = OSH_OK;
    const char *targets[] = {"Linear"};
    osh_plan other = *p; // view: but for the lists below
    other.parts = NULL, other.passes = NULL, other.linears = NULL; // own
    other.readers = NULL, other.users = NULL, other.n_inherits = 0; // own
    other.memory = (osh_memory){0};
    *out = (osh_budget){.device = -1, .host = -1, };
    /* cache.c wants the attention in one subgraph. */
    if (p->pipeline != OSH_PIPELINE_SEQUENTIAL || p->cache.present) goto done;
    for (int i = 0; i < p->n_linears; i++)
        /* Without blocks the codes would be others. */
        if (p->linears[i].wants & OSH_STAT_BLOCK) goto done;
    OSH_NEW(cx, other.linears, p->n_linears);
    memcpy(other.linears, p->linears, (size_t)p->n_linears * sizeof *p->linears);
    OSH_TRY(osh_plan_cut(cx, &other, targets, 1, 1));
    other.memory.n_visits = osh_n_ranges(&other);
    OSH_NEW(cx, other.memory.visits, other.memory.n_visits);
    OSH_TRY(osh_memory_least(cx, &other));
    const osh_memory *m = &other.memory;
    *out = (osh_budget){.device = refuse_larger(m->least_device, outside->device),
                        .host = refuse_larger(m->least_host, outside->host) + p->memory.base_bytes +
                                OSH_ISA_NOISE_BYTES};
done:
    osh_partition_free(cx, other.parts);
    osh_free(cx, other.passes);
    osh_free(cx, other.linears);
    osh_free(cx, other.readers);
    osh_free(cx, other.users);
    osh_free(cx, other.memory.visits);
    osh_device_peaks_free(cx, other.memory.peaks);
    osh_trials_free(cx, other.memory.trials);
    return rc;
}

/* True if Hessians have a second block, which --sum-groups 1 saves (ops/stat.h). */
static bool has_grouped_hessians(const osh_plan *p)
{
    bool any = false;
    for (int i = 0; i < p->n_linears; i++) any |= (p->linears[i].wants & OSH_STAT_HESSIAN) != 0;
    return any && osh_stat_is_grouped(&osh_stat_hessian, &p->groups);
}

static osh_status refuse_budget(osh_ctx *cx, const osh_plan *p, const char *option, int64_t given,
                                int64_t least, int64_t of_linears)
{
    const osh_options *o = p->opt;
    char less[128] = "", others[160] = "";
    bool host = !strcmp(option, "host-memory");
    if (host && o->others_host > least) snprintf(others, sizeof others, ", where %s", o->others);
    if (host)
        least = refuse_larger(least, o->others_host),
        of_linears = of_linears < 0 ? -1 : refuse_larger(of_linears, o->others_host);
    if (of_linears >= 0 && refuse_mib(of_linears) < refuse_mib(least))
        snprintf(less, sizeof less, ", or --%s %.0fMiB with --sequential-targets Linear%s", option,
                 refuse_mib(of_linears),
                 o->sequential_targets_per_subgraph > 1 ? " --sequential-targets-per-subgraph 1"
                                                        : "");
    int digits = given % (1 << 20) ? 2 : 0; // the budget as it was given, or near to it
    return osh_fail(cx, OSH_E_USAGE,
                    "--%s %.*fMiB cannot be held: the smallest that would do is --%s %.0fMiB%s%s%s",
                    option, digits, (double)given / (1 << 20), option, refuse_mib(least), others,
                    less,
                    has_grouped_hessians(p) ? "; --sum-groups 1 halves the bytes of Hessians" : "");
}

osh_status osh_memory_refuse(osh_ctx *cx, const osh_plan *p, const osh_budget *b,
                             const osh_budget *outside)
{
    osh_status rc = OSH_OK;
    const osh_memory *m = &p->memory;
    const osh_options *o = p->opt;
    int64_t least_host = m->base_bytes + m->least_host + OSH_ISA_NOISE_BYTES;
    osh_budget l;
    OSH_TRY(least_of_linears(cx, &l, p, outside));
    if (b->host_given && (m->least_host > b->host || o->others_host > o->host_memory))
        OSH_TRY(refuse_budget(cx, p, "host-memory", o->host_memory, least_host, l.host));
    if (b->device_given && m->least_device > b->device && !o->device_memory)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "the card has %.0fMiB to give: the smallest that would do is %.0fMiB",
                 refuse_mib(b->device), refuse_mib(m->least_device));
    if (b->device_given && m->least_device > b->device)
        OSH_TRY(refuse_budget(cx, p, "device-memory", o->device_memory, m->least_device, l.device));
    if (b->scratch_given && m->scratch_peak > b->scratch)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "--scratch-size %.0fMiB cannot be held: values between subgraphs take %.0fMiB",
                 refuse_mib(o->scratch_size), refuse_mib(m->scratch_peak));
    OSH_FAIL(cx, OSH_E_USAGE,
             "the budgets cannot be held together: want --host-memory %.0fMiB, --device-memory "
             "%.0fMiB and --scratch-size %.0fMiB",
             refuse_mib(refuse_larger(least_host, o->others_host)), refuse_mib(m->least_device),
             refuse_mib(m->least_scratch));
done:
    return rc;
}

void osh_memory_enforce(osh_ctx *cx, const osh_plan *p)
{
    const osh_memory *m = &p->memory;
    for (int s = 0; m->direct && s < p->ck->n_shards; s++) osh_st_read_direct(p->ck->shards[s]);
    if (p->opt->device_memory > 0 && !p->on_device)
        osh_mem_limit(cx, OSH_MEM_DEVICE, (size_t)p->opt->device_memory);
    if (p->opt->host_memory > 0)
        osh_mem_limit(cx, OSH_MEM_HOST, (size_t)(p->opt->host_memory - m->uncounted));
}

bool osh_memory_pins(const osh_options *o)
{
    return !o->pin_memory || strcmp(o->pin_memory, "false");
}
