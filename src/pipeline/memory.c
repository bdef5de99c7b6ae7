/* memory.c - counts the bytes of every step of a run before it is made, and chooses how it fits.
 *
 *   device = loaded weights + open Hessians + batch (values, scratch) or solver
 *   host   = base + device + resting values (tiers device and host) + packing buffers + prefetched weights
 *
 * In this order, until the budgets hold: prefetch goes, values rest in a colder tier, a subgraph's Hessians are shared
 * out over several observe passes, its groups of Linears are loaded one at a time. */
#include "pipeline/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/profile.h"
#include "pipeline/activations.h"
#include "pipeline/stats.h"

enum { READERS = 2 }; // the run and the one that reads ahead: a block each where they read past the page cache
enum { COPY_BYTES = 2 << 20, COPIES = 3 }; // chunks of the emitter, also when it reads the output again
enum { LISTS_BYTES = 1 << 20 };
/* What the run keeps beside visits: emitter, journal, results, report; lists for each of these. */
static int64_t small_bytes(const osh_plan *p)
{
    int64_t n = LISTS_BYTES + (int64_t)p->n_linears * 256 + p->n_out * 64;
    return n + (p->graph ? (int64_t)p->graph->n_values * 32 + (int64_t)p->graph->n_weights * 32 : 0);
}

/* What libraries take and osh_alloc does not see: once, and for each thread (OpenBLAS's packing buffers). */
enum { LIBRARY_BYTES = 6 << 20, THREAD_BYTES = 3 << 20 };

const char *osh_tier_name(osh_tier t)
{
    static const char *const names[] = {"device", "host", "disk"};
    return names[t];
}

typedef struct sim {
    const osh_plan *p;
    osh_tier tier;
    osh_visit *to;  // view: where the peaks of the present visit go
    int n_threads;
    int64_t batch_tokens; // of the largest batch
    int64_t lists;  // device: what statistics and a solve keep for each Linear and value
    int64_t frame;  // host: a sample of the widest value, compressed
    bool *loaded, *open, *stored; // own: weights, Hessians by value, values
    size_t *hook;   // own: [values] bytes that statistics take while they are fed
    bool *ever;     // own: weights that some visit loads
    int64_t weights, stats, values, solver, host; // live bytes; host: beside device and values
    bool began;     // the visit has loaded
} sim;

static osh_status sim_init(osh_ctx *cx, sim *s, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->graph;
    int64_t size = p->opt->batch_size > 0 ? p->opt->batch_size : 1;
    *s = (sim){.p = p, .n_threads = osh_threads(cx)};
    OSH_NEW(cx, s->loaded, g->n_weights);
    OSH_NEW(cx, s->ever, g->n_weights);
    OSH_NEW(cx, s->open, g->n_values);
    OSH_NEW(cx, s->stored, g->n_values);
    OSH_NEW(cx, s->hook, g->n_values);
    for (int64_t b = 0; b < p->data.n; b += size) {
        int64_t end = b + size < p->data.n ? b + size : p->data.n, n = p->data.offsets[end] - p->data.offsets[b];
        if (n > s->batch_tokens) s->batch_tokens = n;
    }
    size_t nl = (size_t)p->n_linears, nv = (size_t)g->n_values;
    s->lists = (int64_t)(osh_mem_gross(nl * sizeof(osh_linear_job)) + osh_mem_gross(nl * sizeof(int)) +
                         osh_mem_gross(nl * sizeof(osh_act_observer)) + osh_mem_gross(nv * sizeof(bool)) +
                         osh_mem_gross(nv * sizeof(void *)) + 8 * osh_mem_gross(256));
    if (p->opt->scratch_compression && !strcmp(p->opt->scratch_compression, "zstd"))
        s->frame = osh_acts_frame_bytes(g, &p->data);
done:
    return rc;
}

static void sim_deinit(osh_ctx *cx, sim *s)
{
    osh_free(cx, s->loaded);
    osh_free(cx, s->ever);
    osh_free(cx, s->open);
    osh_free(cx, s->stored);
    osh_free(cx, s->hook);
}

static void raise_to(int64_t *peak, int64_t now)
{
    if (now > *peak) *peak = now;
}

/* device, host: what is there beside weights, Hessians and resting values. */
static void note(sim *s, int64_t device, int64_t host, int64_t values)
{
    bool disk = s->tier == OSH_TIER_DISK;
    int64_t dev = s->lists + s->weights + s->stats + device + (s->tier == OSH_TIER_DEVICE ? values : 0);
    raise_to(&s->to->weight_bytes, s->weights);
    raise_to(&s->to->stats_bytes, s->stats);
    raise_to(&s->to->live_bytes, values);
    raise_to(&s->to->device_peak, dev);
    raise_to(&s->to->host_peak, dev + host + (s->tier == OSH_TIER_HOST ? values : 0));
    if (disk) raise_to(&s->to->host_peak, dev + host + s->frame);
    if (disk) raise_to(&s->to->scratch_peak, values);
}

static int64_t value_rest(const sim *s, int v)
{
    return v == s->p->graph->input_ids ? 0 : osh_acts_bytes(s->p->graph, &s->p->data, s->tier, v);
}

static osh_status sim_open(osh_ctx *cx, void *user, const osh_range *r, const bool *values)
{
    sim *s = user;
    (void)cx;
    for (int i = 0; i < s->p->n_linears; i++) {
        const osh_linear *l = &s->p->linears[i];
        bool mine = l->subgraph >= r->first_subgraph && l->subgraph < r->first_subgraph + r->n_subgraphs;
        if (!mine || !l->wants || !values[l->input] || !(l->wants & OSH_STAT_HESSIAN) || s->open[l->input]) continue;
        int64_t width[OSH_OP_MAX_IN] = {l->I};
        s->open[l->input] = true;
        s->stats += osh_stats_hessian_bytes(l->I);
        s->hook[l->input] = osh_op_find("hessian_accum")->scratch(NULL, width, 0, s->batch_tokens, s->n_threads);
    }
    note(s, 0, 0, s->values);
    return OSH_OK;
}

static void sim_load_one(sim *s, int w)
{
    if (w < 0 || s->loaded[w]) return;
    const osh_st_entry *e = s->p->ck->tensors[s->p->graph->weights[w].tensor].e;
    int64_t n = (int64_t)osh_weight_bytes(s->p->graph, s->p->ck, w);
    s->loaded[w] = s->ever[w] = true;
    s->weights += n;
    if (!s->began) s->to->first_load += n;
    s->to->read_bytes += e->end - e->begin;
}

static osh_status sim_load(osh_ctx *cx, void *user, const osh_range *r, const osh_step *st, const bool *values)
{
    sim *s = user;
    const osh_graph *g = s->p->graph;
    (void)cx;
    for (int i = st->first; i < st->first + st->n; i++)
        for (int k = 0; st->run[i - st->first] && k < g->nodes[i].op->n_weights; k++) sim_load_one(s, g->nodes[i].w[k]);
    for (int i = 0; values && i < s->p->n_linears; i++) {
        const osh_linear *l = &s->p->linears[i];
        bool mine = l->subgraph >= r->first_subgraph && l->subgraph < r->first_subgraph + r->n_subgraphs;
        if (mine && l->wants && values[l->input]) sim_load_one(s, l->weight);
    }
    s->began = true;
    note(s, 0, 0, s->values);
    return OSH_OK;
}

static osh_status sim_pass(osh_ctx *cx, void *user, const osh_range *r, const osh_step *st)
{
    sim *s = user;
    const osh_graph *g = s->p->graph;
    size_t left = 0;
    int64_t out = 0, taken = 0, n = s->p->data.n > 0 ? s->p->data.n : 1;
    int64_t size = s->p->opt->batch_size > 0 ? s->p->opt->batch_size : 1;
    (void)cx, (void)r;
    int64_t ids = (int64_t)osh_mem_gross((size_t)s->batch_tokens * sizeof(int32_t));
    const size_t *hook = st->observe ? s->hook : NULL;
    int64_t exec = ids + (int64_t)osh_exec_peak(g, st->first, st->n, st->run, st->in, st->out, hook, s->batch_tokens,
                                                s->n_threads, &left);
    for (int v = 0; v < g->n_values; v++) {
        if (st->out[v] && !s->stored[v]) out += value_rest(s, v), s->stored[v] = true;
        if (st->consume[v] && s->stored[v] && s->tier != OSH_TIER_DISK) taken += value_rest(s, v), s->stored[v] = false;
    }
    /* Rows come and go batch by batch: the first batch sees nothing of the new ones, the last all but its own. */
    int64_t share = size < n ? size : n, new = (out + n - 1) / n * share, old = (taken + n - 1) / n * share;
    int64_t early = s->values, late = s->values + out - taken - new + old;
    note(s, exec, 0, early > late ? early : late);
    note(s, (int64_t)left, 0, (early > late ? early : late) + new);
    s->values += out - taken;
    note(s, 0, 0, s->values);
    return OSH_OK;
}

/* Bytes of the buffers that a Linear is packed into. */
static int64_t pack_bytes(const osh_plan *p, const osh_linear *l)
{
    int64_t n = 0;
    for (int k = 0; k < l->n_out; k++) {
        const osh_st_entry *e = &p->out[l->first_out + k];
        n += (int64_t)osh_mem_gross((size_t)(e->end - e->begin));
    }
    return n;
}

static size_t compress_bytes(const osh_plan *p, const osh_linear_job *jobs, int n, int modifier, int n_threads)
{
    const osh_modifier *m = &p->recipe->modifiers[modifier];
    return m->type->needs(m, jobs, n, n_threads);
}

typedef struct group { // of Linears that are solved in one call
    osh_linear_job *jobs; // own [linears]
    osh_tensor *w;        // own [linears]; shapes only
    bool *done;           // own [linears]
} group;

static osh_status group_init(osh_ctx *cx, group *g, const osh_plan *p)
{
    osh_status rc = OSH_OK;
    *g = (group){0};
    OSH_NEW(cx, g->jobs, p->n_linears);
    OSH_NEW(cx, g->w, p->n_linears);
    OSH_NEW(cx, g->done, p->n_linears);
done:
    return rc;
}

static void group_deinit(osh_ctx *cx, group *g)
{
    osh_free(cx, g->jobs);
    osh_free(cx, g->w);
    osh_free(cx, g->done);
}

static void group_add(group *g, int *n, const osh_linear *l)
{
    g->w[*n] = osh_tensor_view(l->dtype, 2, (int64_t[]){l->O, l->I}, NULL);
    g->jobs[*n] = (osh_linear_job){.name = l->name, .scheme = l->scheme, .w = &g->w[*n]};
    (*n)++;
}

/* As osh_run_solve: Linears with one input and one modifier in one call, packed behind each other. */
static osh_status sim_solve(osh_ctx *cx, void *user, const osh_range *r, const bool *values, bool keep)
{
    osh_status rc = OSH_OK;
    sim *s = user;
    const osh_plan *p = s->p;
    group g; // own
    (void)keep;
    OSH_TRY(group_init(cx, &g, p));
    for (int i = 0; i < p->n_linears; i++) {
        const osh_linear *lead = &p->linears[i];
        int n = 0, others = 0;
        int64_t pack = 0, kept = 0;
        bool mine = lead->subgraph >= r->first_subgraph && lead->subgraph < r->first_subgraph + r->n_subgraphs;
        if (!mine || !lead->wants || !values[lead->input] || g.done[i]) continue;
        for (int k = i; k < p->n_linears; k++) {
            const osh_linear *l = &p->linears[k];
            if (l->subgraph < r->first_subgraph || l->subgraph >= r->first_subgraph + r->n_subgraphs) continue;
            if (l->input != lead->input || g.done[k]) continue;
            others += l->modifier != lead->modifier;
            if (l->modifier != lead->modifier) continue;
            g.done[k] = true;
            group_add(&g, &n, l);
            raise_to(&pack, pack_bytes(p, l));
        }
        bool hessian = s->open[lead->input];
        int64_t h = hessian ? osh_stats_hessian_bytes(lead->I) : 0;
        int64_t work = (int64_t)compress_bytes(p, g.jobs, n, lead->modifier, s->n_threads);
        note(s, work + (others ? h : 0), 0, s->values);
        for (int k = 0; k < n; k++) kept += (int64_t)osh_job_result_bytes(&g.jobs[k]);
        if (!others && hessian) s->stats -= h, s->open[lead->input] = false, s->hook[lead->input] = 0;
        note(s, kept, pack, s->values);
    }
done:
    group_deinit(cx, &g);
    return rc;
}

/* Reading a solved weight back: its packed tensors and its codes. */
static osh_status sim_reload(osh_ctx *cx, void *user, const osh_range *r, int first, int n)
{
    sim *s = user;
    const osh_visit *v = s->to;
    (void)cx;
    for (int i = 0; i < s->p->n_linears; i++) {
        const osh_linear *l = &s->p->linears[i];
        bool mine = l->subgraph >= r->first_subgraph && l->subgraph < r->first_subgraph + r->n_subgraphs;
        if (!mine || !l->wants || l->node < first || l->node >= first + n) continue;
        if (!v->segments && !v->round_bytes) continue; // memory has it
        note(s, 0, pack_bytes(s->p, l) + (int64_t)osh_mem_gross((size_t)(l->O * l->I)), s->values);
    }
    return OSH_OK;
}

static osh_status sim_release(osh_ctx *cx, void *user, int first, int n)
{
    sim *s = user;
    const osh_graph *g = s->p->graph;
    (void)cx;
    for (int i = first; i < first + n; i++)
        for (int k = 0; k < g->nodes[i].op->n_weights; k++) {
            int w = g->nodes[i].w[k];
            if (w < 0 || !s->loaded[w]) continue;
            s->loaded[w] = false;
            s->weights -= (int64_t)osh_weight_bytes(g, s->p->ck, w);
        }
    return OSH_OK;
}

static osh_status sim_drop(osh_ctx *cx, void *user, const bool *keep)
{
    sim *s = user;
    (void)cx;
    for (int v = 0; v < s->p->graph->n_values; v++) {
        if (!s->stored[v] || keep[v]) continue;
        s->stored[v] = false;
        s->values -= value_rest(s, v);
    }
    return OSH_OK;
}

static void drop_dead(sim *s, const osh_range *r)
{
    for (int v = 0; v < s->p->graph->n_values; v++) {
        bool after = false;
        for (int i = 0; i < r->n_live_out; i++) after |= r->live_out[i] == v;
        if (!s->stored[v] || after) continue;
        s->stored[v] = false;
        s->values -= value_rest(s, v);
    }
}

/* All visits, as p->memory.visits and the tier say; fills in their figures. */
static osh_status simulate(osh_ctx *cx, osh_plan *p, osh_tier tier, bool *ever)
{
    osh_status rc = OSH_OK;
    osh_memory *m = &p->memory;
    sim s; // own
    osh_visitor v = {.open = sim_open, .load = sim_load, .pass = sim_pass, .solve = sim_solve, .reload = sim_reload,
                     .release = sim_release, .drop = sim_drop, .user = &s};
    OSH_TRY(sim_init(cx, &s, p));
    s.tier = tier;
    for (int i = 0; i < m->n_visits; i++) {
        osh_visit old = m->visits[i];
        osh_range r = osh_range_at(p, i);
        m->visits[i] = (osh_visit){.segments = old.segments, .round_bytes = old.round_bytes, .n_rounds = old.n_rounds};
        s.to = &m->visits[i], s.began = false;
        OSH_TRY(osh_visit_walk(cx, p, i, &v));
        drop_dead(&s, &r);
    }
    if (ever) memcpy(ever, s.ever, (size_t)p->graph->n_weights * sizeof *ever);
done:
    sim_deinit(cx, &s);
    return rc;
}

/* ---- what runs outside of visits ---- */

/* Linears that are rounded without data, one after the other; ahead: while the next one is read and the one before is
 * written. */
static void round_peaks(const osh_plan *p, int threads, bool ahead, int64_t *device, int64_t *host)
{
    int64_t before = 0, now = 0; // weight and work of the one before, and of this one
    int64_t written = 0, was = 0; // what waits to be written of them
    for (int i = 0; i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        if (p->pipeline != OSH_PIPELINE_DATAFREE && l->wants) continue;
        const osh_st_entry *e = p->ck->tensors[l->tensor].e;
        osh_tensor w = osh_tensor_view(l->dtype, 2, (int64_t[]){l->O, l->I}, NULL);
        osh_linear_job job = {.name = l->name, .scheme = l->scheme, .w = &w};
        int64_t weight = (int64_t)osh_mem_gross((size_t)(e->end - e->begin)) + (int64_t)osh_mem_gross(sizeof w);
        now = weight + (int64_t)compress_bytes(p, &job, 1, l->modifier, threads);
        if (ahead) raise_to(device, before + weight), raise_to(host, before + weight + was);
        raise_to(device, now);
        was = written, written = (int64_t)osh_job_result_bytes(&job) + pack_bytes(p, l);
        raise_to(host, now + (ahead ? was : 0));
        raise_to(host, written);
        before = now;
    }
}

static void count_io(const osh_plan *p, osh_memory *m, bool *seen)
{
    for (int i = 0; i < p->n_linears; i++) {
        const osh_st_entry *e = p->ck->tensors[p->linears[i].tensor].e;
        if (p->pipeline == OSH_PIPELINE_DATAFREE || !p->linears[i].wants) m->read_bytes += e->end - e->begin;
    }
    for (int64_t i = 0; i < p->n_out; i++) {
        m->write_bytes += p->out[i].end - p->out[i].begin;
        int64_t from = p->out_info[i].source;
        if (from < 0) continue;
        if (!seen[from]) m->read_bytes += p->out[i].end - p->out[i].begin;
        seen[from] = false; // a second copy of a tensor reads it again
    }
    for (int s = 0; s < p->n_shards; s++) m->write_bytes += (int64_t)p->shards[s].header_bytes;
    m->reread_bytes = p->total_bytes;
}

/* least: without reading ahead. */
static osh_status rest(osh_ctx *cx, osh_plan *p, const bool *ever, const osh_budget *b, osh_budget *least)
{
    osh_status rc = OSH_OK;
    osh_memory *m = &p->memory;
    int threads = osh_threads(cx);
    bool *seen = NULL; // own: tensors of the source that a visit loads: copied from there
    OSH_NEW(cx, seen, p->ck->n_tensors);
    for (int w = 0; ever && w < p->graph->n_weights; w++)
        if (ever[w] && p->graph->weights[w].tensor >= 0) seen[p->graph->weights[w].tensor] = true;
    *least = (osh_budget){.host = COPIES * (int64_t)osh_mem_gross(COPY_BYTES)};
    osh_budget more = *least;
    round_peaks(p, threads, false, &least->device, &least->host);
    round_peaks(p, threads, true, &more.device, &more.host);
    m->read_ahead = p->opt->prefetch && (!b->host_given || more.host <= b->host) &&
                    (!b->device_given || more.device <= b->device);
    m->host_peak = m->read_ahead ? more.host : least->host;
    m->device_peak = m->read_ahead ? more.device : least->device;
    count_io(p, m, seen);
done:
    osh_free(cx, seen);
    return rc;
}

/* ---- the choice ---- */

static bool fits(const osh_visit *v, const osh_budget *b, int64_t more_host)
{
    return (!b->device_given || v->device_peak <= b->device) &&
           (!b->host_given || v->host_peak + more_host <= b->host) &&
           (!b->scratch_given || v->scratch_peak <= b->scratch);
}

static bool all_fit(const osh_memory *m, const osh_budget *b)
{
    for (int i = 0; i < m->n_visits; i++)
        if (!fits(&m->visits[i], b, 0)) return false;
    return true;
}

static int64_t hessians_of(const osh_plan *p, const osh_range *r, int64_t *largest)
{
    int64_t sum = 0;
    *largest = 0;
    for (int i = 0; i < p->n_linears; i++) {
        const osh_linear *l = &p->linears[i];
        bool mine = l->subgraph >= r->first_subgraph && l->subgraph < r->first_subgraph + r->n_subgraphs;
        bool again = i > 0 && p->linears[i - 1].input == l->input; // Linears with one input stand together
        if (!mine || !(l->wants & OSH_STAT_HESSIAN) || again) continue;
        sum += l->I * l->I * 4;
        raise_to(largest, l->I * l->I * 4);
    }
    return sum;
}

enum { MOST_ROUNDS = 8 }; // each is another forward pass: beyond it, segments are cheaper

/* A visit in so many rounds; beyond MOST_ROUNDS: in segments. */
static void take_phases(osh_plan *p, int i, int rounds)
{
    osh_visit *v = &p->memory.visits[i];
    osh_range r = osh_range_at(p, i);
    int64_t largest, sum = hessians_of(p, &r, &largest);
    bool shared = rounds > 1 && rounds <= MOST_ROUNDS && sum > largest && !r.merged;
    v->round_bytes = shared ? (sum + rounds - 1) / rounds : 0;
    if (v->round_bytes && v->round_bytes < largest) v->round_bytes = largest;
    v->n_rounds = v->round_bytes ? rounds : 1;
    v->segments = rounds > MOST_ROUNDS;
}

/* Phases for the visits that do not fit whole. Visits are alike, so all that do not fit take the next step together. */
static osh_status choose_phases(osh_ctx *cx, osh_plan *p, const osh_budget *b)
{
    osh_status rc = OSH_OK;
    osh_memory *m = &p->memory;
    for (int rounds = 2; rounds <= MOST_ROUNDS + 1 && !all_fit(m, b); rounds++) {
        for (int i = 0; i < m->n_visits; i++)
            if (!fits(&m->visits[i], b, 0)) take_phases(p, i, rounds);
        OSH_TRY(simulate(cx, p, m->tier, NULL));
    }
done:
    return rc;
}

static void summarize(osh_memory *m)
{
    m->highest = -1;
    for (int i = 0; i < m->n_visits; i++) {
        const osh_visit *v = &m->visits[i];
        raise_to(&m->device_peak, v->device_peak);
        raise_to(&m->scratch_peak, v->scratch_peak);
        if (v->host_peak > m->host_peak) m->host_peak = v->host_peak, m->highest = i;
        m->read_bytes += v->read_bytes;
    }
}

/* Those that --mem-opt-level leaves. */
static void tiers(const osh_plan *p, osh_tier *first, osh_tier *last)
{
    const char *level = p->opt->mem_opt_level;
    bool asked = level && *level >= '0' && *level <= '2';
    *first = asked ? (osh_tier)(*level - '0') : OSH_TIER_DEVICE;
    *last = asked ? *first : OSH_TIER_DISK;
}

static int64_t lower(int64_t a, int64_t b) { return a < b ? a : b; }

/* Segments need the fewest weights and Hessians, but the values between them rest. */
osh_status osh_memory_least(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_memory *m = &p->memory;
    osh_visit *least = NULL; // own: peaks
    osh_tier first, coldest;
    tiers(p, &first, &coldest);
    OSH_NEW(cx, least, m->n_visits);
    for (int rounds = 1; rounds <= MOST_ROUNDS + 1; rounds += rounds == 1 ? MOST_ROUNDS - 1 : 1) {
        for (int i = 0; i < m->n_visits; i++) take_phases(p, i, rounds);
        OSH_TRY(simulate(cx, p, coldest, NULL));
        for (int i = 0; i < m->n_visits; i++) {
            const osh_visit *v = &m->visits[i];
            least[i].device_peak = rounds == 1 ? v->device_peak : lower(v->device_peak, least[i].device_peak);
            least[i].host_peak = rounds == 1 ? v->host_peak : lower(v->host_peak, least[i].host_peak);
            least[i].scratch_peak = rounds == 1 ? v->scratch_peak : lower(v->scratch_peak, least[i].scratch_peak);
        }
    }
    for (int i = 0; i < m->n_visits; i++) {
        raise_to(&m->least_device, least[i].device_peak);
        raise_to(&m->least_host, least[i].host_peak);
        raise_to(&m->least_scratch, least[i].scratch_peak);
    }
done:
    osh_free(cx, least);
    return rc;
}

static osh_status choose(osh_ctx *cx, osh_plan *p, const osh_budget *b, bool *ever)
{
    osh_status rc = OSH_OK;
    osh_memory *m = &p->memory;
    osh_tier first, last;
    tiers(p, &first, &last);
    OSH_TRY(osh_memory_least(cx, p));
    for (osh_tier t = first; t <= last; t++) {
        m->tier = t;
        for (int i = 0; i < m->n_visits; i++) take_phases(p, i, 1);
        OSH_TRY(simulate(cx, p, m->tier, ever));
        if (all_fit(m, b)) break;
    }
    if (!all_fit(m, b)) OSH_TRY(choose_phases(cx, p, b));
    for (int i = 0; i + 1 < m->n_visits; i++) {
        int64_t more = m->visits[i + 1].first_load;
        bool long_enough = osh_range_at(p, i).observe; // a pass alone would leave the reader behind, and the peak open
        m->visits[i].prefetch = more && long_enough && p->opt->prefetch && fits(&m->visits[i], b, more);
    }
done:
    return rc;
}

osh_status osh_plan_memory(osh_ctx *cx, osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_memory *m = &p->memory;
    bool *ever = NULL; // own
    osh_mem_trim(cx); // what reading the data has left free is no part of the base
    int64_t anon = osh_mem_anon(), used = (int64_t)osh_mem_used(cx, OSH_MEM_HOST);
    m->uncounted = (anon > used ? anon - used : 0) + LIBRARY_BYTES + (int64_t)osh_threads(cx) * THREAD_BYTES;
    m->base_bytes = m->uncounted + used + small_bytes(p) + READERS * (int64_t)osh_mem_gross(OSH_DIRECT_BYTES + 4096);
    m->highest = -1;
    osh_budget b = {.device = p->opt->device_memory, .host = p->opt->host_memory - m->base_bytes,
                .scratch = p->opt->scratch_size, .device_given = p->opt->device_memory > 0,
                .host_given = p->opt->host_memory > 0, .scratch_given = p->opt->scratch_size > 0};
    if (p->graph) OSH_NEW(cx, ever, p->graph->n_weights);
    if (p->pipeline != OSH_PIPELINE_DATAFREE) {
        m->n_visits = osh_n_ranges(p);
        OSH_NEW(cx, m->visits, m->n_visits);
        OSH_TRY(choose(cx, p, &b, ever));
    }
    osh_budget outside;
    OSH_TRY(rest(cx, p, ever, &b, &outside));
    raise_to(&m->least_host, outside.host), raise_to(&m->least_device, outside.device);
    for (int i = 0; i + 1 < m->n_visits; i++)
        if (m->visits[i].prefetch) m->visits[i].host_peak += m->visits[i + 1].first_load;
    summarize(m);
    if ((b.device_given && m->device_peak > b.device) || (b.host_given && m->host_peak > b.host) ||
        (b.scratch_given && m->scratch_peak > b.scratch))
        OSH_TRY(osh_memory_refuse(cx, p, &b, &outside));
    m->host_peak += m->base_bytes, m->least_host += m->base_bytes;
done:
    osh_free(cx, ever);
    return rc;
}

void osh_memory_enforce(osh_ctx *cx, const osh_plan *p)
{
    const osh_memory *m = &p->memory;
    /* Who bounds memory shares a machine: a checkpoint that is read once is not to push out its page cache. */
    for (int s = 0; p->opt->host_memory > 0 && s < p->ck->n_shards; s++) osh_st_read_direct(p->ck->shards[s]);
    if (p->opt->device_memory > 0) osh_mem_limit(cx, OSH_MEM_DEVICE, (size_t)p->opt->device_memory);
    if (p->opt->host_memory > 0) osh_mem_limit(cx, OSH_MEM_HOST, (size_t)(p->opt->host_memory - m->uncounted));
}

size_t osh_memory_counted(const osh_plan *p)
{
    return (size_t)(p->memory.host_peak - p->memory.uncounted - LISTS_BYTES);
}

char *osh_scratch_dir(osh_ctx *cx, const osh_plan *p, const char *partial)
{
    if (!p->opt->scratch_dir) return osh_path_join(cx, partial, "scratch");
    uint64_t h = 1469598103934665603u; // FNV-1a: runs that share a scratch directory stay apart
    for (const char *c = p->opt->output ? p->opt->output : ""; *c; c++) h = (h ^ (unsigned char)*c) * 1099511628211u;
    return osh_sprintf(cx, "%s/oneshot-%016llx", p->opt->scratch_dir, (unsigned long long)h);
}
