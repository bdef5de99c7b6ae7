/* simulate_solve.c - counts the bytes of the solves in a simulated visit. It repeats the steps of
 * osh_run_solve without solving. A call is a set of Linears with one input that one call of a
 * modifier solves together. */
#include <string.h>

#include "schedule/blocks.h"
#include "budget/bytes.h"
#include "budget/learning_bytes.h"
#include "budget/simulate_bytes.h"
#include "budget/simulate_solve.h"
#include "budget/simulate_weights.h"
#include "match/cache.h"
#include "schedule/calls.h"

/* Returns the bytes of the buffers for the packed tensors of a Linear. */
int64_t osh_memory_pack_bytes(const osh_budget *p, const osh_linear *l)
{
    int64_t n = 0;
    for (int k = 0; k < l->out.n; k++) {
        const osh_st_entry *e = &p->manifest->out[l->out.first + k];
        n += (int64_t)osh_mem_gross((size_t)(e->end - e->begin));
    }
    return n;
}

/* Returns the bytes that pruning before a quantizer needs. *kept: bytes of the results of all
 * pruned Linears, which exist until the quantizer has read them. A copy of the Hessian is included,
 * because the quantizer needs the original. */
static int64_t sim_prune_bytes(const osh_budget *p, osh_linear_job *jobs, int n,
                               const osh_linear *lead, int n_threads, int64_t *kept)
{
    const osh_modifier *m = &p->in->recipe->modifiers[lead->prune.modifier];
    osh_status (*done)(osh_ctx *cx, osh_linear_job *j) = jobs->done;
    bool copy = m->type->solver->wants(m, lead->scheme) & OSH_STAT_HESSIAN;
    for (int k = 0; k < n; k++) jobs[k].done = NULL;
    int64_t work = (int64_t)m->type->solver->needs(m, jobs, n, n_threads, NULL);
    *kept = (int64_t)osh_mem_gross((size_t)n * sizeof(osh_tensor));
    for (int k = 0; k < n; k++) {
        jobs[k].done = done;
        if (jobs[k].keep_w) *kept += (int64_t)osh_mem_gross(osh_tensor_bytes(jobs[k].w));
    }
    return work + (copy ? osh_sum_bytes(OSH_SUM_HESSIAN, lead->I) : 0);
}

/* *device: set to the bytes in the GPU's memory; NULL: all bytes are in host memory. */
int64_t osh_memory_compress_bytes(const osh_budget *p, osh_linear_job *jobs, int n,
                                  const osh_linear *lead, int n_threads, size_t *device)
{
    const osh_modifier *m = &p->in->recipe->modifiers[lead->modifier];
    if (lead->kept) return (int64_t)osh_job_result_bytes(jobs);
    int64_t work = (int64_t)m->type->solver->needs(m, jobs, n, n_threads, device), kept = 0;
    if (lead->prune.modifier < 0) return work;
    int64_t before = sim_prune_bytes(p, jobs, n, lead, n_threads, &kept);
    return before > work + kept ? before : work + kept;
}

typedef struct group { // the Linears of one call
    osh_call call;        // own
    osh_tensor *w;        // own [linears of the range]: shapes of weights, without data
    osh_tensor shift;     // shape of the shift, without data
    bool *done;           // own [linears of the range]: true if the Linear is in an earlier call
} group;

static bool group_is_done(const void *user, int linear)
{
    const group *g = user;
    return g->done[linear - g->call.of.first];
}

static osh_status group_init(osh_ctx *cx, group *g, const osh_sim *s, const osh_range *r)
{
    osh_status rc = OSH_OK;
    *g = (group){.call = {.p = s->p->schedule,
                          .of = {r->l0, r->l1},
                          .done = group_is_done,
                          .user = g,
                          .on_gpu = s->gpu != NULL}};
    OSH_NEW(cx, g->w, r->l1 - r->l0);
    OSH_NEW(cx, g->done, r->l1 - r->l0);
done:
    return rc;
}

static void group_deinit(osh_ctx *cx, group *g)
{
    osh_free(cx, g->w);
    osh_free(cx, g->done);
    osh_call_free(cx, &g->call);
}

/* A result callback that does nothing. If a callback is set, the modifier assumes that the caller
 * takes each result at once, so only one result is in memory. */
static osh_status sim_take(osh_ctx *cx, osh_linear_job *j) { return OSH_OK; }

/* Finds the Linears that are solved together with linears[first]. Sets *pack to the bytes of the
 * largest packed result among them. */
static osh_status group_find(osh_ctx *cx, group *g, int first, const osh_sim *s, bool keep,
                             int64_t *pack)
{
    osh_status rc = OSH_OK;
    *pack = 0;
    OSH_TRY(osh_call_find(cx, &g->call, first));
    for (int k = 0; k < g->call.n; k++) {
        const osh_linear *l = &s->p->match->linears[g->call.which[k]];
        osh_linear_job *j = &g->call.jobs[k];
        g->w[k] = osh_tensor_view(l->dtype, 2, (int64_t[]){l->O, l->I}, NULL);
        g->shift = osh_tensor_view(OSH_F32, 2, (int64_t[]){l->I, l->I}, NULL);
        j->w = &g->w[k], j->shift = l->shift ? &g->shift : NULL, j->keep_w = keep,
        j->done = sim_take;
        if (l->scheme_index >= 0) max_into(pack, osh_memory_pack_bytes(s->p, l));
    }
    for (int k = 0; k < g->call.n; k++) g->done[g->call.which[k] - g->call.of.first] = true;
done:
    return rc;
}

/* Marks the Linears that read these values as solved, and frees their ranges on the GPU. */
static void sim_close(osh_sim *s, const osh_range *r, const bool *values)
{
    for (int i = r->l0; i < r->l1; i++) {
        const osh_linear *l = &s->p->match->linears[i];
        if (!osh_wants(s->p->schedule, l) || !values[l->input]) continue;
        if (s->stats.counts[i]) s->stats.bytes -= (int64_t)osh_ranged_counts(s->p->match, i);
        s->stats.counts[i] = false;
        s->solved[i] = true;
        osh_sim_drop_copy(s, l->weight);
        if (s->gpu) osh_layout_give(s->gpu, OSH_LAYOUT_RANGE, l->input);
    }
}

static void sim_close_sums(osh_sim *s, const osh_linear *l)
{
    for (osh_sum k = 0; k < OSH_N_SUMS; k++) {
        if (!s->stats.open[k][l->input]) continue;
        s->stats.open[k][l->input] = false;
        s->stats.bytes -= osh_sim_sum_bytes(s, k, l);
        if (s->gpu && osh_sums[k].on_gpu) osh_layout_give(s->gpu, osh_sums[k].layout, l->input);
    }
}

/* Simulates adding the last group of samples to each sum: frees the partial sums (member `part` of
 * osh_stat). */
static void sim_merge_groups(osh_sim *s, const osh_range *r)
{
    for (int v = r->v0; s->gpu && v < r->v1; v++)
        for (osh_sum k = 0; k < OSH_N_SUMS; k++)
            if (s->stats.open[k][v] && osh_sums[k].on_gpu)
                osh_layout_give(s->gpu, osh_sums[k].part, v);
    s->stats.bytes -= s->stats.parts, s->stats.parts = 0;
}

/* Returns the bytes of the Hessian and shift, which a solve overwrites. They are copied if a later
 * solve needs them. */
static int64_t sim_copied_bytes(const osh_sim *s, const osh_linear *l)
{
    int64_t n = 0;
    for (osh_sum k = OSH_SUM_HESSIAN; k <= OSH_SUM_SHIFT; k++)
        if (s->stats.open[k][l->input]) n += osh_sim_sum_bytes(s, k, l);
    return n;
}

typedef struct solving { // bytes for solving the Linears of one call
    int64_t work, pack, copy; // work: for the whole call; pack: for packing one result; copy: for
                              // copies of Hessian and shift
    size_t room;              // bytes of GPU memory that the call may use
} solving;

/* Counts the packing of a result while the Cholesky factor of the Hessian exists. On the host one
 * result exists at that time. On a GPU the results of the whole call exist, at most x->work
 * bytes. */
static void sim_note_packing(osh_sim *s, const group *g, int n, const osh_linear *lead,
                             const solving *x)
{
    int64_t most = 0, all = 0, order = 4 * (int64_t)osh_mem_gross((size_t)lead->I * 4);
    for (int k = 0; k < n; k++) {
        int64_t one = (int64_t)osh_job_result_bytes(&g->call.jobs[k]);
        max_into(&most, one);
        all += one;
    }
    if (s->gpu)
        osh_sim_note(s, x->copy, (all < x->work ? all : x->work) + order + x->pack,
                     s->values.bytes);
    else osh_sim_note(s, most + order + x->copy, x->pack, s->values.bytes);
}

/* Returns the index of the first Linear of a block that learns as a whole (OSH_STAT_BLOCK). All
 * Linears of the block are solved together with this Linear. -1: the range has no such block. */
static int range_first_of_block(const osh_budget *p, const osh_range *r)
{
    for (int i = r->l0; i < r->l1; i++)
        if (p->match->linears[i].wants & OSH_STAT_BLOCK) return i;
    return -1;
}

/* Calls (sets of Linears with one input) that are solved in parallel on the host, or together on a
 * GPU. `all` and `largest` are numbers of weights; the other int64_t are bytes. */
typedef struct window {
    int like; // with a GPU: index of the first Linear of the calls that were counted last; -1: none
    int n;
    int64_t all, largest;                // all: weights of all calls; largest: weights of the
                                         // largest call
    int64_t stats;                       // statistics at the time of the first call
    int64_t results, run, most_run, pack; // results: of all calls; run: other memory of all calls;
                                          // most_run: other memory of the largest call; pack: for
                                          // packing one result
} window;

/* Raises the peaks of the visit for solving in parallel (apart_device, apart_host). device, host:
 * bytes besides those that the simulation has counted. */
static void sim_note_apart(osh_sim *s, int64_t device, int64_t host)
{
    osh_visit *to = s->to, most = *to;
    most.device_peak = most.apart_device, most.host_peak = most.apart_host;
    s->to = &most;
    osh_sim_note(s, device, host, s->values.bytes);
    s->to = to;
    to->apart_device = most.device_peak, to->apart_host = most.host_peak;
}

static void window_close(osh_sim *s, window *w)
{
    int64_t run = w->most_run * s->n_threads < w->run ? w->most_run * s->n_threads : w->run;
    if (w->n && osh_jobs_are_many(w->all, w->largest, s->n_threads))
        sim_note_apart(s, w->results + run + w->pack +
                          (int64_t)osh_apart_bytes(osh_jobs_waiting(s->n_threads)) +
                          w->stats - s->stats.bytes, 0);
    *w = (window){.like = -1};
}

static bool linears_are_alike(const osh_linear *a, const osh_linear *b)
{
    return a->O == b->O && a->I == b->I && a->dtype == b->dtype && a->scheme == b->scheme &&
           a->modifier == b->modifier;
}

static int count_readers(const osh_budget *p, const osh_range *r, int input)
{
    int n = 0;
    for (int of = osh_first_reader(p->match, input); of >= 0 && of < r->l1;
         of = osh_next_reader(p->match, of))
        n += of >= r->l0 && osh_wants(p->schedule, &p->match->linears[of]);
    return n;
}

/* Returns the number of inputs in the range that as many Linears read as the input of `lead`, one
 * of them similar to `lead`; at most OSH_GROUPS_AT_ONCE. */
static int window_count_alike(const osh_sim *s, const osh_range *r, const bool *values,
                              const osh_linear *lead)
{
    const osh_budget *p = s->p;
    int n = 0, readers = count_readers(p, r, lead->input);
    for (int i = r->l0; i < r->l1 && n < OSH_GROUPS_AT_ONCE; i++) {
        const osh_linear *l = &p->match->linears[i];
        if (!osh_wants(s->p->schedule, l) || !values[l->input] || !linears_are_alike(l, lead))
            continue;
        /* Counts an input only at the first Linear that reads the input and is similar to
         * `lead`. */
        int of = osh_first_reader(p->match, l->input);
        while (of < r->l0 || (of < i && !linears_are_alike(&p->match->linears[of], lead)))
            of = osh_next_reader(p->match, of);
        n += of == i && count_readers(p, r, l->input) == readers;
    }
    return n;
}

/* Counts the bytes of the calls that a GPU solves together. Similar calls are counted once, at the
 * first of them. A resumed run may solve other calls together, but not more. */
static void window_gather(osh_sim *s, window *w, const osh_range *r, const bool *values,
                          const group *g, const solving *x)
{
    const osh_budget *p = s->p;
    int first = g->call.which[0];
    const osh_linear *lead = &p->match->linears[first];
    const osh_modifier *m = &p->in->recipe->modifiers[lead->modifier];
    /* With solve_limit 0, which gives the smallest budget, no calls are solved together. */
    if (!p->memory.solve_limit || !osh_call_gathers(&g->call, first)) return;
    if (w->like >= 0 && linears_are_alike(&p->match->linears[w->like], lead)) return;
    int n = window_count_alike(s, r, values, lead);
    w->like = first;
    if (n < 2) return;
    size_t on_gpu = x->room;
    int64_t work = (int64_t)m->type->solver->needs_groups(
        m, &(osh_job_group){g->call.jobs, g->call.n, NULL}, n, s->n_threads, &on_gpu);
    /* Each waiting call keeps the importance of each channel. */
    size_t waiting = osh_call_bytes(g->call.n) + OSH_CALL_WAITING +
                     osh_mem_gross((size_t)lead->I * sizeof(float));
    sim_note_apart(s, (int64_t)on_gpu, work + x->pack + n * (int64_t)waiting);
}

/* Adds a call to the window of calls that are solved in parallel. If the jobs of the call itself
 * run in parallel, counts the call alone. Called after group_find. */
static void window_add(osh_sim *s, window *w, group *g, int first, int64_t pack)
{
    const osh_budget *p = s->p;
    const osh_linear *lead = &p->match->linears[first];
    int n = g->call.n;
    if (lead->wants & OSH_STAT_BLOCK) window_close(s, w);
    if (s->n_threads == 1 || (lead->wants & OSH_STAT_BLOCK)) return;
    g->call.jobs->apart = true;
    bool many = osh_jobs_at_once(g->call.jobs, n, s->n_threads) > 1;
    if (many) {
        int64_t copy = g->call.others ? sim_copied_bytes(s, lead) : 0;
        sim_note_apart(s, osh_memory_compress_bytes(p, g->call.jobs, n, lead, s->n_threads, NULL) +
                          pack + copy, 0);
    }
    g->call.jobs->apart = false;
    if (many || !osh_call_is_apart(&g->call, first)) {
        window_close(s, w);
        return;
    }
    int64_t weights = osh_call_weights(&g->call), results = 0;
    if (w->n && !osh_calls_alike(weights, w->largest)) window_close(s, w);
    for (int k = 0; k < n; k++) {
        g->call.jobs[k].done = NULL;
        results += (int64_t)osh_job_result_bytes(&g->call.jobs[k]);
    }
    int64_t run = osh_memory_compress_bytes(p, g->call.jobs, n, lead, 1, NULL) - results;
    if (!w->n++) w->stats = s->stats.bytes;
    w->all += weights, w->results += results, w->run += run;
    max_into(&w->largest, weights), max_into(&w->most_run, run), max_into(&w->pack, pack);
    // the run also solves a window when it has this many calls
    if (w->n == osh_jobs_waiting(s->n_threads)) window_close(s, w);
}

osh_status osh_sim_solve(osh_ctx *cx, osh_sim *s, const osh_range *r, const osh_step *st)
{
    osh_status rc = OSH_OK;
    const bool *values = st->values;
    const osh_budget *p = s->p;
    group g; // own
    window w = {.like = -1};
    sim_merge_groups(s, r);
    osh_sim_look(s);
    OSH_TRY(group_init(cx, &g, s, r));
    osh_sim_drop_copies(s);
    int first = range_first_of_block(p, r);
    for (int i = r->l0; i < r->l1; i++) {
        const osh_linear *lead = &p->match->linears[i];
        int64_t pack;
        if (!osh_wants(s->p->schedule, lead) || !values[lead->input] || g.done[i - r->l0]) continue;
        OSH_TRY(group_find(cx, &g, i, s, st->keep, &pack));
        int n = g.call.n, others = g.call.others;
        int64_t h = sim_copied_bytes(s, lead);
        int64_t there = s->gpu ? osh_layout_extent(s->gpu) + (others ? h : 0) : 0,
                limit = p->memory.solve_limit;
        /* on_gpu: on entry the limit of GPU bytes; osh_memory_compress_bytes sets it to the bytes
         * used. */
        size_t room = limit > there ? (size_t)(limit - there) : 0, on_gpu = room;
        int64_t work = 0;
        if (!(lead->wants & OSH_STAT_BLOCK))
            work = osh_memory_compress_bytes(p, g.call.jobs, n, lead, s->n_threads,
                                             s->gpu ? &on_gpu : NULL);
        else if (i == first) OSH_TRY(osh_block_peak(cx, &work, p, r));
        if (s->gpu) osh_sim_note(s, (int64_t)on_gpu + (others ? h : 0), work, s->values.bytes);
        else osh_sim_note(s, work + (others ? h : 0), 0, s->values.bytes);
        solving bytes = {work, pack, others ? h : 0, room};
        sim_note_packing(s, &g, n, lead, &bytes);
        if (s->gpu) window_gather(s, &w, r, values, &g, &bytes);
        else window_add(s, &w, &g, i, pack);
        if (others) continue;
        *osh_sim_hook(s, lead->input) = 0;
        for (int of = osh_first_reader(p->match, lead->input); of >= 0;
             of = osh_next_reader(p->match, of))
            for (int k = 0; k < OSH_RANGED; k++)
                if (p->match->linears[of].ranged[k] >= 0)
                    *osh_sim_hook(s, p->match->linears[of].ranged[k]) = 0;
        sim_close_sums(s, lead);
        if (w.n == osh_jobs_waiting(s->n_threads)) window_close(s, &w);
    }
    window_close(s, &w);
    sim_close(s, r, values);
done:
    group_deinit(cx, &g);
    return rc;
}
