/* memory.c - chooses, before a run, the settings with which the run keeps its budgets. simulate.c
 * counts the bytes that the run needs with these settings.
 *
 * If a run does not fit in its budgets, the following changes are tried in this order:
 * - the weights of the next subgraph are not prefetched;
 * - values are stored in a slower tier (on the disk for as few batches as possible);
 * - the Hessians of a subgraph are distributed over several passes (rounds);
 * - the subgraph runs in segments: its groups of Linears are loaded one at a time. */
#include "budget/bands.h"
#include "budget/gpus.h"
#include "budget/layout.h"
#include "budget/memory.h"
#include "budget/memory_rest.h"
#include "budget/refuse.h"
#include "budget/simulate.h"

#include <stdlib.h>
#include <string.h>

#include "ranks/ranks.h"
#include "base/file.h"
#include "graph/device_peaks.h"
#include "math/isa.h"
#include "schedule/looks.h"
#include "store/loaders.h"
#include "tensor/scalar.h"

/* If the source has at least this number of bytes and is read only once, reads of it bypass the
 * page cache. */
#define DIRECT_SOURCE (1ll << 26)
/* Reserve of the arena, which is the block of GPU memory from which the program allocates. Without
 * a device budget, the arena gets 1/ARENA_SPARE more bytes than predicted, and at least LEAST_SPARE
 * more bytes. */
enum { ARENA_SPARE = 16, LEAST_SPARE = 32 << 20 };

/* ---- choice of the tier of values, and of osh_phases (the steps of a visit) ---- */

/* True if the peaks of the visit fit in the budget b, with `more_host` bytes added to the host peak
 * of the visit. */
static bool visit_fits(const osh_visit *v, const osh_peaks *b, int64_t more_host)
{
    osh_peaks need = v->peak;
    need.host += more_host;
    return peaks_fit(&need, b);
}

static bool visits_fit(const osh_schedule *s, const osh_peaks *b)
{
    for (int i = 0; i < s->n_visits; i++)
        if (!visit_fits(&s->visits[i], b, 0)) return false;
    return true;
}

/* True if weights of the next visit may be prefetched during visit i. For this, visit i must have a
 * pass that collects statistics. A visit that only propagates may end before the reads end, so its
 * peak would not be known. */
static bool reads_long(const osh_budget *p, int i)
{
    return p->in->opt->prefetch && osh_range_at(p->schedule, i).observe;
}

/* True if every visit fits in the budget b, together with the weights that it may prefetch for the
 * next visit. */
static bool visits_fit_ahead(const osh_budget *p, const osh_peaks *b)
{
    const osh_schedule *s = p->schedule;
    for (int i = 0; i < s->n_visits; i++) {
        int64_t more = i + 1 < s->n_visits && reads_long(p, i) ? s->visits[i + 1].first_load : 0;
        if (!visit_fits(&s->visits[i], b, more)) return false;
    }
    return true;
}

/* Largest number of rounds (passes that each collect some of the Hessians). If more rounds were
 * needed, segments would take less time. */
enum { MOST_ROUNDS = 8 };

/* Sets the phases of visit i (osh_phases), so that its Hessians are distributed over `rounds`
 * passes. If `rounds` is above MOST_ROUNDS, the visit runs in segments instead, one group of
 * Linears at a time. There are no segments if ranges of keys, values or outputs are observed. */
static void take_phases(osh_budget *p, int i, int rounds)
{
    osh_phases *v = &p->schedule->visits[i].how;
    osh_range r = osh_range_at(p->schedule, i);
    if (r.block) rounds = 1; // the Linears of a block learn together, so they cannot be divided
    if ((p->match->cache.present || p->match->outputs) && rounds > MOST_ROUNDS)
        rounds = MOST_ROUNDS;
    int64_t largest, sum = osh_range_hessians(p->schedule, &r, &largest);
    bool shared = rounds > 1 && rounds <= MOST_ROUNDS && sum > largest && !r.merged;
    v->round_bytes = shared ? (sum + rounds - 1) / rounds : 0;
    if (v->round_bytes && v->round_bytes < largest) v->round_bytes = largest;
    v->n_rounds = v->round_bytes ? rounds : 1;
    v->segments = rounds > MOST_ROUNDS;
}

/* Chooses other phases (osh_phases) for the visits that do not fit in the budget b. Most visits are
 * similar. So in each attempt, all visits that do not fit get the same phases. */
static osh_status memory_choose_phases(osh_ctx *cx, osh_budget *p, const osh_peaks *b)
{
    osh_status rc = OSH_OK;
    for (int rounds = 2; rounds <= MOST_ROUNDS + 1 && !visits_fit(p->schedule, b); rounds++) {
        for (int i = 0; i < p->schedule->n_visits; i++)
            if (!visit_fits(&p->schedule->visits[i], b, 0)) take_phases(p, i, rounds);
        OSH_TRY(osh_memory_simulate(cx, p, NULL));
    }
done:
    return rc;
}

/* Simulates the run with the phases that take_phases derives from `rounds`. All visits get the same
 * phases. */
static osh_status simulate_equal(osh_ctx *cx, osh_budget *p, osh_tier tier, int rounds)
{
    p->memory.tier = tier;
    for (int i = 0; i < p->schedule->n_visits; i++) take_phases(p, i, rounds);
    return osh_memory_simulate(cx, p, NULL);
}

static bool asks_f16(const osh_budget *p)
{
    return p->in->opt->calib_cache && !strcmp(p->in->opt->calib_cache, "disk_f16");
}

/* Settings that --mem-opt-level and --calib-cache allow. */
typedef struct allowed {
    osh_tier first, last; // fastest and slowest tier of values
    /* First and last way in which two-pass observers get values for their second pass
     * (schedule/looks.h). If the run has no such observer, both are the same way. */
    osh_look first_look, last_look;
} allowed;

static allowed memory_allowed(const osh_budget *p)
{
    const char *level = p->in->opt->mem_opt_level;
    bool asked = level && *level >= '0' && *level <= '2';
    allowed a = {OSH_TIER_DEVICE, OSH_TIER_DISK, OSH_LOOK_RAM, OSH_LOOK_AGAIN};
    if (asked) a.first = a.last = (osh_tier)(*level - '0');
    osh_looks_allowed(&a.first_look, &a.last_look, p->in->opt->calib_cache, p->in->on_device);
    if (!osh_looks_twice(p->schedule)) a.first_look = a.last_look;
    return a;
}

/* Chooses phases of the visits so that the run keeps the budget b. Sets *fit to true on success. On
 * a GPU, the phases of one visit change the gaps between the blocks of all visits, so a choice can
 * miss the budget. The last attempts use the same phases for all visits. */
static osh_status try_phases(osh_ctx *cx, osh_budget *p, const osh_peaks *b, bool *fit)
{
    osh_status rc = OSH_OK;
    OSH_TRY(memory_choose_phases(cx, p, b));
    for (int rounds = MOST_ROUNDS + 1; rounds && !visits_fit(p->schedule, b);
         rounds = rounds > MOST_ROUNDS ? MOST_ROUNDS : 0)
        OSH_TRY(simulate_equal(cx, p, p->memory.tier, rounds));
    *fit = visits_fit(p->schedule, b);
done:
    return rc;
}

/* Corrects *least, the predicted smallest budget. On entry, *least is the largest of the visits'
 * smallest peaks (device bytes if `device` is true, else host bytes). If phases can be chosen so
 * that no visit exceeds *least, *least does not change. Otherwise sets *least to `same`, the
 * smallest peak of a run in which all visits have the same phases. */
static osh_status least_settle(osh_ctx *cx, osh_budget *p, osh_tier tier, int64_t *least,
                               int64_t same, bool device)
{
    osh_status rc = OSH_OK;
    osh_peaks b = {INT64_MAX, INT64_MAX, INT64_MAX};
    *(device ? &b.device : &b.host) = *least;
    bool fit;
    if (*least == same) goto done;
    OSH_TRY(simulate_equal(cx, p, tier, 1));
    OSH_TRY(try_phases(cx, p, &b, &fit));
    if (!fit) *least = same;
done:
    return rc;
}

static osh_peaks peaks_lower(const osh_peaks *a, const osh_peaks *b)
{
    return (osh_peaks){osh_min64(a->device, b->device), osh_min64(a->host, b->host),
                       osh_min64(a->scratch, b->scratch)};
}

/* Tries rounds and segments (take_phases), with values in the slowest tier. Segments need the least
 * memory for weights and Hessians. But values are stored between the segments, so a run in rounds
 * may need less memory in total. */
osh_status osh_memory_least(osh_ctx *cx, osh_budget *p)
{
    osh_status rc = OSH_OK;
    osh_schedule *s = p->schedule;
    osh_memory *m = &p->memory;
    /* own [n_visits]: smallest peaks of each visit in the simulations so far */
    osh_peaks *least = NULL;
    osh_tier coldest = memory_allowed(p).last;
    // smallest peaks of the run so far, if all visits have the same phases
    osh_peaks same = {INT64_MAX, INT64_MAX, INT64_MAX};
    m->solve_limit = 0;
    OSH_NEW(cx, least, s->n_visits);
    for (int rounds = 1; rounds <= MOST_ROUNDS + 1; rounds += rounds == 1 ? MOST_ROUNDS - 1 : 1) {
        osh_peaks most = {0};
        OSH_TRY(simulate_equal(cx, p, coldest, rounds));
        for (int i = 0; i < s->n_visits; i++) {
            const osh_peaks *now = &s->visits[i].peak;
            peaks_max_into(&most, now);
            least[i] = rounds == 1 ? *now : peaks_lower(now, &least[i]);
        }
        same = peaks_lower(&same, &most);
    }
    for (int i = 0; i < s->n_visits; i++) peaks_max_into(&m->least, &least[i]);
    OSH_TRY(least_settle(cx, p, coldest, &m->least.device, same.device, true));
    OSH_TRY(least_settle(cx, p, coldest, &m->least.host, same.host, false));
done:
    osh_free(cx, least);
    return rc;
}

/* Chooses the visits that copy values between host memory and GPU during computation. The blocks
 * for these copies exist only during a pass, so they do not change the addresses of blocks in other
 * visits. */
static osh_status memory_choose_ways(osh_ctx *cx, osh_budget *p, const osh_peaks *b)
{
    osh_status rc = OSH_OK;
    osh_schedule *s = p->schedule;
    osh_memory *m = &p->memory;
    if (m->tier != OSH_TIER_HOST || !p->in->opt->prefetch || s->n_batches < 2) goto done;
    for (int i = 0; i < s->n_visits; i++) s->visits[i].how.values_ahead = true;
    OSH_TRY(osh_memory_simulate(cx, p, NULL));
    for (int i = 0; i < s->n_visits; i++)
        s->visits[i].how.values_ahead = visit_fits(&s->visits[i], b, 0);
    if (!visits_fit(s, b)) OSH_TRY(osh_memory_simulate(cx, p, NULL));
done:
    return rc;
}

/* Some visits prefetch weights of the next visit. Chooses which of these visits copy the weights to
 * the GPU. */
static osh_status memory_choose_ahead(osh_ctx *cx, osh_budget *p, const osh_peaks *b)
{
    osh_status rc = OSH_OK;
    osh_schedule *s = p->schedule;
    // Number of attempts. An attempt fails if the new blocks of one visit move blocks of another
    // visit.
    enum { TRIES = 4 };
    for (int i = 0; i < s->n_visits; i++)
        s->visits[i].how.prefetch_device = s->visits[i].how.prefetch;
    for (int k = 0; k < TRIES; k++) {
        OSH_TRY(osh_memory_simulate(cx, p, NULL));
        if (visits_fit(s, b)) goto done;
        for (int i = 0; i < s->n_visits; i++)
            if (k + 2 >= TRIES || !visit_fits(&s->visits[i], b, 0))
                s->visits[i].how.prefetch_device = false;
    }
done:
    return rc;
}

/* Chooses the number of threads that prefetch values from the disk: the largest number whose
 * buffers fit in memory together with the prefetched weights. */
static osh_status memory_choose_loaders(osh_ctx *cx, osh_budget *p, const osh_peaks *b)
{
    osh_status rc = OSH_OK;
    osh_memory *m = &p->memory;
    bool looks = p->schedule->looks == OSH_LOOK_DISK && osh_looks_twice(p->schedule);
    if (!p->in->opt->prefetch || (m->tier != OSH_TIER_DISK && !looks)) goto done;
    for (m->n_loaders = (int)p->in->opt->num_workers; m->n_loaders; m->n_loaders /= 2) {
        m->n_ahead = osh_loaders_ahead(m->n_loaders, p->in->data.n, p->schedule->n_batches);
        if (!m->n_ahead && !looks) continue;
        OSH_TRY(osh_memory_simulate(cx, p, NULL));
        if (visits_fit_ahead(p, b)) goto done;
    }
    m->n_ahead = 0;
    OSH_TRY(osh_memory_simulate(cx, p, NULL));
done:
    return rc;
}

/* For tier disk: chooses the largest number of batches whose values fit in memory, so that these
 * values are not written to the disk. */
static osh_status memory_choose_kept(osh_ctx *cx, osh_budget *p, const osh_peaks *b)
{
    osh_status rc = OSH_OK;
    osh_memory *m = &p->memory;
    int64_t fits_with = 0, too_many = p->schedule->n_batches;
    while (too_many - fits_with > 1) {
        m->n_kept = (fits_with + too_many) / 2;
        OSH_TRY(osh_memory_simulate(cx, p, NULL));
        if (visits_fit_ahead(p, b)) fits_with = m->n_kept;
        else too_many = m->n_kept;
    }
    m->n_kept = fits_with;
    OSH_TRY(osh_memory_simulate(cx, p, NULL));
done:
    return rc;
}

/* Decides if visit i solves several small Linears at the same time: in parallel on the host, or
 * together on a GPU. The condition is that the results of these Linears fit in memory. */
static void memory_choose_apart(osh_schedule *s, int i, const osh_peaks *b)
{
    osh_visit *v = &s->visits[i], all = *v;
    if (!v->apart.host) return;
    peaks_max_into(&all.peak, &v->apart);
    all.how.apart = visit_fits(&all, b, v->how.prefetch ? s->visits[i + 1].first_load : 0);
    if (all.how.apart) *v = all;
}

/* Chooses the fastest tier of values with which the run keeps the budget b, if each subgraph runs
 * as a whole. Sets *fit to true if there is such a tier, otherwise to false. */
static osh_status memory_choose_whole(osh_ctx *cx, osh_budget *p, const osh_peaks *b, bool *fit)
{
    osh_status rc = OSH_OK;
    osh_schedule *s = p->schedule;
    const allowed a = memory_allowed(p);
    for (osh_tier t = a.first; t <= a.last; t++)
        for (s->looks = a.first_look;; s->looks++) {
            OSH_TRY(simulate_equal(cx, p, t, 1));
            *fit = visits_fit(s, b);
            if (*fit) goto done;
            if (s->looks == a.last_look) break;
        }
done:
    return rc;
}

/* Does nothing if a flag sets the batch size, or if there is no other batch size to try. Otherwise
 * tries batches of several samples, with values in the fastest tier that is allowed. If the run
 * then fits in the budget b, chooses these batches and sets *fit to true. If not, chooses batches
 * of one sample and sets *fit to false. */
static osh_status memory_choose_batch(osh_ctx *cx, osh_budget *p, const osh_peaks *b, bool *fit)
{
    osh_status rc = OSH_OK;
    int64_t size = osh_plan_batch_size(cx, p->schedule);
    if (size == p->schedule->batch_size) goto done;
    OSH_TRY(osh_plan_batches(cx, p->schedule, size));
    OSH_TRY(simulate_equal(cx, p, memory_allowed(p).first, 1));
    *fit = visits_fit_ahead(p, b);
    if (!*fit) OSH_TRY(osh_plan_batches(cx, p->schedule, 1));
done:
    return rc;
}

static osh_status memory_choose(osh_ctx *cx, osh_budget *p, const osh_peaks *b)
{
    osh_status rc = OSH_OK;
    osh_schedule *s = p->schedule;
    osh_memory *m = &p->memory;
    const allowed a = memory_allowed(p);
    bool fit = false;
    s->looks = a.last_look;
    m->n_kept = m->n_ahead = m->n_loaders = 0;
    OSH_TRY(osh_memory_least(cx, p));
    m->solve_limit = b->device;
    s->looks = a.first_look;
    OSH_TRY(memory_choose_batch(cx, p, b, &fit));
    if (!fit) OSH_TRY(memory_choose_whole(cx, p, b, &fit));
    bool kept = fit && m->tier == OSH_TIER_DISK && a.first != OSH_TIER_DISK && !p->in->on_device;
    if (!fit) OSH_TRY(try_phases(cx, p, b, &fit));
    OSH_TRY(memory_choose_loaders(cx, p, b));
    if (kept) OSH_TRY(memory_choose_kept(cx, p, b));
    for (int i = 0; i + 1 < s->n_visits; i++) {
        int64_t more = s->visits[i + 1].first_load;
        s->visits[i].how.prefetch = more && reads_long(p, i) && visit_fits(&s->visits[i], b, more);
    }
    if (p->in->on_device) OSH_TRY(memory_choose_ways(cx, p, b));
    if (p->in->on_device) OSH_TRY(memory_choose_ahead(cx, p, b));
    for (int i = 0; i < s->n_visits; i++) memory_choose_apart(s, i, b);
done:
    return rc;
}

int64_t osh_memory_of_gpu(int64_t free_bytes)
{
    int64_t reserve = (int64_t)osh_device_kinds[OSH_GPU].reserve;
    return (free_bytes - reserve) / (ARENA_SPARE + 1) * ARENA_SPARE;
}

/* Sets the device budget b->device if the user does not give it. The budget follows from the memory
 * of this machine's GPU, or of the GPU model that --device-model names. */
static osh_status budget_of_gpu(osh_ctx *cx, osh_peaks *b, const osh_budget *p)
{
    osh_status rc = OSH_OK;
    size_t free_bytes = 0;
    int64_t taken = 0; // INT64_MAX minus the number of free bytes
    if (!p->in->on_device || b->device < INT64_MAX) goto done;
    if (p->in->gpu_model) {
        b->device = osh_memory_of_gpu(p->in->gpu_model->memory_bytes);
        goto done;
    }
    if (!osh_device_present(osh_plan_kind(p->in))) goto done;
    OSH_TRY(osh_plan_kind(p->in)->type->free_bytes(cx, &free_bytes, p->in->ordinal));
    // all ranks use the smallest GPU, so that they choose the same steps
    taken = INT64_MAX - (int64_t)free_bytes;
    OSH_TRY(osh_ranks_largest(cx, p->in->opt->ranks, &taken));
    b->device = osh_memory_of_gpu(INT64_MAX - taken);
done:
    return rc;
}

/* Decides whether the GPU itself reads values from the disk. This needs a block of the GPU's
 * memory, which must fit in the budget b. */
static void memory_choose_reader(osh_ctx *cx, osh_budget *p, const osh_peaks *b)
{
    osh_memory *m = &p->memory;
    const char *wish = p->in->opt->use_gds;
    int64_t n = (int64_t)osh_arena_gross(osh_plan_kind(p->in)->stage);
    bool asked = wish && !strcmp(wish, "true"), gpu = p->in->on_device && !p->in->gpu_model;
    m->by_gpu = gpu && m->tier == OSH_TIER_DISK && !osh_scratch_is_packed(p->in->opt) &&
                osh_plan_kind(p->in)->type->files->direct(cx, p->in->ordinal, wish,
                                                          m->peak.device + n <= b->device);
    /* If the GPU itself reads, no threads prefetch values. */
    if (m->by_gpu) m->peak.device += n, m->n_loaders = 0, m->n_ahead = 0;
    else if (asked && (!gpu || m->tier != OSH_TIER_DISK || osh_scratch_is_packed(p->in->opt)))
        osh_log(cx, OSH_LOG_WARN,
                "--use-gds true: a GPU reads values only from uncompressed scratch files on the "
                "disk; %s",
                !gpu                       ? "nothing runs on a GPU"
                : m->tier != OSH_TIER_DISK ? "here the values are in memory"
                                           : "--scratch-compression zstd compresses them");
}

static void memory_choose_f16(osh_ctx *cx, osh_budget *p)
{
    if (!p->in->graph || !asks_f16(p) || !osh_looks_twice(p->schedule)) return;
    p->memory.looks_f16 = p->in->graph->dtype == OSH_F32;
    if (!p->memory.looks_f16)
        osh_log(cx, OSH_LOG_WARN,
                "--calib-cache disk_f16: values of this model are %s and have two bytes each: they "
                "are not converted",
                osh_dtype_name(p->in->graph->dtype));
}

static int64_t budget_of_option(int64_t bytes, int64_t base)
{
    return bytes > 0 ? bytes - base : INT64_MAX;
}

/* Computes the peak of the run, m->peak. Raises the smallest budgets, m->least, to the memory that
 * is needed outside of visits. The peak and the budgets include two more numbers: the memory for
 * tuning, and the memory for reading source and data. These numbers also raise *outside, the
 * smallest peak outside of visits. */
static osh_status memory_sum_up(osh_ctx *cx, osh_budget *p, osh_peaks *outside)
{
    osh_status rc = OSH_OK;
    osh_memory *m = &p->memory;
    osh_schedule *s = p->schedule;
    osh_peaks tuning;
    OSH_TRY(osh_tuning_bytes(cx, &tuning, p));
    peaks_max_into(&m->peak, &tuning), peaks_max_into(outside, &tuning);
    max_into(&outside->host, m->load_bytes - m->base_bytes);
    peaks_max_into(&m->least, outside);
    for (int i = 0; i < s->n_visits; i++) {
        osh_visit *v = &s->visits[i];
        if (v->how.prefetch) v->peak.host += s->visits[i + 1].first_load;
        if (v->peak.host > m->peak.host) m->highest = i;
        peaks_max_into(&m->peak, &v->peak);
        m->read_bytes += v->read_bytes;
    }
    max_into(&m->peak.host, m->load_bytes - m->base_bytes);
done:
    return rc;
}

/* Adds the bytes of optional blocks to base_bytes, if they fit in the host budget `b`. Then adds
 * base_bytes to the host peaks. */
static osh_status memory_add_base(osh_ctx *cx, osh_budget *p, int64_t b)
{
    osh_status rc = OSH_OK;
    osh_memory *m = &p->memory;
    if (p->schedule->n_visits && p->in->on_device)
        OSH_TRY(osh_memory_simulate(cx, p, &m->places));
    if (m->peak.host + (int64_t)osh_places_bytes(m->places) > b)
        osh_places_free(cx, m->places), m->places = NULL;
    /* A message recommends least.host for the user's next process. The base of that process may be
     * larger by OSH_ISA_NOISE_BYTES, so these bytes are added. */
    m->least.host += m->base_bytes + OSH_ISA_NOISE_BYTES;
    // true if the run may write an output tensor twice
    bool again = p->schedule->n_traversals || p->schedule->tune.steps;
    bool passes = p->in->pipeline != OSH_PIPELINE_DATAFREE;
    if (passes && p->in->opt->prefetch && b == INT64_MAX && !again)
        m->early = osh_early_bytes(p);
    /* The user may give least.host as the host budget. base_bytes then also includes the aligned
     * blocks for reading, so least.host must have room for them. It need not have room for the list
     * of planned addresses, which is optional. */
    m->least.host += osh_base_more(p);
    max_into(&m->least.host, p->in->opt->others_host);
    m->base_bytes += m->early + (int64_t)osh_places_bytes(m->places);
    m->peak.host += m->base_bytes;
    if (passes) max_into(&m->peak.host, p->in->opt->held_host);
done:
    return rc;
}

osh_status osh_plan_memory(osh_ctx *cx, osh_budget *p)
{
    osh_status rc = OSH_OK;
    osh_schedule *s = p->schedule;
    osh_memory *m = &p->memory;
    const osh_options *o = p->in->opt;
    m->highest = -1;
    memory_choose_f16(cx, p);
    OSH_TRY(osh_base_bytes(cx, p));
    osh_peaks outside, b = {budget_of_option(o->device_memory, 0),
                            budget_of_option(o->host_memory, m->base_bytes),
                            budget_of_option(o->scratch_size, 0)};
    OSH_TRY(budget_of_gpu(cx, &b, p));
    if (p->in->graph) OSH_NEW(cx, m->ever, p->in->graph->n_weights);
    if (p->in->pipeline != OSH_PIPELINE_DATAFREE) {
        s->n_visits = osh_n_ranges(s);
        OSH_NEW(cx, s->visits, s->n_visits);
        OSH_TRY(memory_choose(cx, p, &b));
    }
    OSH_TRY(osh_memory_rest(cx, p, &b, &outside));
    OSH_TRY(memory_sum_up(cx, p, &outside));
    if (!peaks_fit(&m->peak, &b) || (o->host_memory > 0 && !osh_others_fit(o)))
        OSH_TRY(osh_memory_refuse(cx, p, &b, &outside));
    OSH_TRY(memory_add_base(cx, p, b.host));
    memory_choose_reader(cx, p, &b);
    if (o->pin_memory && !strcmp(o->pin_memory, "true") && !p->in->on_device)
        osh_log(cx, OSH_LOG_WARN,
                "--pin-memory true: memory is page-locked for a GPU, and nothing runs on a GPU");
    /* Reads and writes bypass the page cache in two cases. If the run has a memory budget, it
     * probably shares the machine with other processes, whose files should stay in the page cache.
     * If the run reads a large checkpoint only once, the page cache does not help. */
    m->direct = o->host_memory > 0 ||
                (p->in->pipeline == OSH_PIPELINE_DATAFREE && m->read_bytes >= DIRECT_SOURCE);
done:
    osh_device_peaks_free(cx, m->peaks), m->peaks = NULL;
    osh_free(cx, m->ever), m->ever = NULL;
    return rc;
}

int64_t osh_memory_arena(const osh_budget *p)
{
    int64_t n = p->memory.peak.device,
            spare = n / ARENA_SPARE < LEAST_SPARE ? LEAST_SPARE : n / ARENA_SPARE;
    return p->in->opt->device_memory > 0 ? p->in->opt->device_memory : n + spare;
}
