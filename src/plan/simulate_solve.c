/* simulate_solve.c - what the solves of a simulated visit take: the calls of osh_run_solve, with nothing solved. */
#include <string.h>

#include "plan/blocks.h"
#include "plan/bytes.h"
#include "plan/cache.h"
#include "plan/calls.h"
#include "plan/simulate.h"

/* Bytes of the buffers that a Linear is packed into. */
int64_t osh_memory_pack_bytes(const osh_plan *p, const osh_linear *l)
{
    int64_t n = 0;
    for (int k = 0; k < l->n_out; k++) {
        const osh_st_entry *e = &p->out[l->first_out + k];
        n += (int64_t)osh_mem_gross((size_t)(e->end - e->begin));
    }
    return n;
}

/* What comes before a quantizer: all that is pruned waits for it, and the Hessian stays for those behind it. */
static int64_t prune_bytes(const osh_plan *p, osh_linear_job *jobs, int n, const osh_linear *lead, int n_threads,
                           int64_t *kept)
{
    const osh_modifier *m = &p->recipe->modifiers[lead->pruner];
    osh_status (*done)(osh_ctx *cx, osh_linear_job *j) = jobs->done;
    bool copy = m->type->wants(m, lead->scheme) & OSH_STAT_HESSIAN;
    for (int k = 0; k < n; k++) jobs[k].done = NULL;
    int64_t work = (int64_t)m->type->needs(m, jobs, n, n_threads, NULL);
    *kept = (int64_t)osh_mem_gross((size_t)n * sizeof(osh_tensor));
    for (int k = 0; k < n; k++) {
        jobs[k].done = done;
        if (jobs[k].keep_w) *kept += (int64_t)osh_mem_gross(osh_tensor_bytes(jobs[k].w));
    }
    return work + (copy ? osh_sum_bytes(OSH_SUM_HESSIAN, lead->I) : 0);
}

/* device: of its arena; NULL: everything is host memory. */
int64_t osh_memory_compress_bytes(const osh_plan *p, osh_linear_job *jobs, int n, const osh_linear *lead, int n_threads,
                                  size_t *device)
{
    const osh_modifier *m = &p->recipe->modifiers[lead->modifier];
    if (lead->kept) return (int64_t)osh_job_result_bytes(jobs);
    int64_t work = (int64_t)m->type->needs(m, jobs, n, n_threads, device), kept = 0;
    if (lead->pruner < 0) return work;
    int64_t before = prune_bytes(p, jobs, n, lead, n_threads, &kept);
    return before > work + kept ? before : work + kept;
}

typedef struct group { // of Linears that are solved in one call
    osh_call call;        // own
    osh_tensor *w;        // own [linears of the range]; shapes only
    osh_tensor shift;     // the same
    bool *done;           // own [linears of the range]
} group;

static bool is_done(const void *user, int linear)
{
    const group *g = user;
    return g->done[linear - g->call.of.first];
}

static osh_status group_init(osh_ctx *cx, group *g, const osh_sim *s, const osh_range *r)
{
    osh_status rc = OSH_OK;
    *g = (group){.call = {.p = s->p, .of = {r->l0, r->l1}, .done = is_done, .user = g, .on_card = s->card != NULL}};
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

static osh_status sim_take(osh_ctx *cx, osh_linear_job *j) { return OSH_OK; } // results do not stay

/* Those that are solved with linears[first]; *pack: the largest of their packed results. */
static osh_status group_find(osh_ctx *cx, group *g, int first, const osh_sim *s, bool keep, int64_t *pack)
{
    osh_status rc = OSH_OK;
    *pack = 0;
    OSH_TRY(osh_call_find(cx, &g->call, first));
    for (int k = 0; k < g->call.n; k++) {
        const osh_linear *l = &s->p->linears[g->call.which[k]];
        osh_linear_job *j = &g->call.jobs[k];
        g->w[k] = osh_tensor_view(l->dtype, 2, (int64_t[]){l->O, l->I}, NULL);
        g->shift = osh_tensor_view(OSH_F32, 2, (int64_t[]){l->I, l->I}, NULL);
        j->w = &g->w[k], j->shift = l->shift ? &g->shift : NULL, j->keep_w = keep, j->done = sim_take;
        if (l->scheme_index >= 0) max_into(pack, osh_memory_pack_bytes(s->p, l));
    }
    for (int k = 0; k < g->call.n; k++) g->done[g->call.which[k] - g->call.of.first] = true;
done:
    return rc;
}

/* The Linears of these values are solved; what a card has of their ranges goes. */
static void sim_close(osh_sim *s, const osh_range *r, const bool *values)
{
    for (int i = r->l0; i < r->l1; i++) {
        const osh_linear *l = &s->p->linears[i];
        if (!l->wants || !values[l->input]) continue;
        if (s->counts[i]) s->counts[i] = false, s->stats -= (int64_t)osh_ranged_counts(s->p, i);
        s->solved[i] = true;
        osh_sim_drop_copy(s, l->weight);
        if (s->card) osh_layout_give(s->card, OSH_LAYOUT_RANGE, l->input);
    }
}

static void close_sums(osh_sim *s, const osh_linear *l)
{
    for (osh_sum k = 0; k < OSH_N_SUMS; k++) {
        if (!s->open[k][l->input]) continue;
        s->open[k][l->input] = false;
        s->stats -= osh_sim_sum_bytes(s, k, l);
        if (s->card && osh_sums[k].on_card) osh_layout_give(s->card, osh_sums[k].layout, l->input);
    }
}

/* Of what a solve destroys, where another one needs it, too. */
static int64_t copied_bytes(const osh_sim *s, const osh_linear *l)
{
    int64_t n = 0;
    for (osh_sum k = OSH_SUM_HESSIAN; k <= OSH_SUM_SHIFT; k++)
        if (s->open[k][l->input]) n += osh_sim_sum_bytes(s, k, l);
    return n;
}

typedef struct solving { // bytes of a call
    int64_t work, pack, copy; // all that it takes; to pack a result; of a copy of the Hessian
    size_t room;              // of a card, where it may take it
} solving;

/* A job is packed while the factor is there: its own result, or on a card those of its call (more than all that a solve
 * takes they cannot be). */
static void note_packing(osh_sim *s, const group *g, int n, const osh_linear *lead, const solving *x)
{
    int64_t most = 0, all = 0, order = 4 * (int64_t)osh_mem_gross((size_t)lead->I * 4);
    for (int k = 0; k < n; k++) {
        int64_t one = (int64_t)osh_job_result_bytes(&g->call.jobs[k]);
        max_into(&most, one);
        all += one;
    }
    if (s->card) osh_sim_note(s, x->copy, (all < x->work ? all : x->work) + order + x->pack, s->values);
    else osh_sim_note(s, most + order + x->copy, x->pack, s->values);
}

static int first_of_block(const osh_plan *p, const osh_range *r) // where all of it is solved; -1: none
{
    for (int i = r->l0; i < r->l1; i++)
        if (p->linears[i].wants & OSH_STAT_BLOCK) return i;
    return -1;
}

/* Calls that are solved beside each other, or on a card together; bytes. */
typedef struct window {
    int like; // on a card: the first Linear of those that were counted last; -1: none were
    int n;
    int64_t all, largest;                // weights of all, and of the largest
    int64_t stats;                       // live when the first one began
    int64_t results, run, most_run, pack; // of all; beside the results, and of the one that takes most; of one
} window;

/* To the visit's figures for solving so: bytes beside what the simulation has. */
static void note_apart(osh_sim *s, int64_t device, int64_t host)
{
    osh_visit *to = s->to, most = *to;
    most.device_peak = most.apart_device, most.host_peak = most.apart_host;
    s->to = &most;
    osh_sim_note(s, device, host, s->values);
    s->to = to;
    to->apart_device = most.device_peak, to->apart_host = most.host_peak;
}

static void window_close(osh_sim *s, window *w)
{
    int64_t run = w->most_run * s->n_threads < w->run ? w->most_run * s->n_threads : w->run;
    if (w->n && osh_jobs_are_many(w->all, w->largest, s->n_threads))
        note_apart(s, w->results + run + w->pack + (int64_t)osh_apart_bytes(osh_jobs_waiting(s->n_threads)) +
                   w->stats - s->stats, 0);
    *w = (window){.like = -1};
}

static bool looks_like(const osh_linear *a, const osh_linear *b)
{
    return a->O == b->O && a->I == b->I && a->dtype == b->dtype && a->scheme == b->scheme && a->modifier == b->modifier;
}

static int readers_of(const osh_plan *p, const osh_range *r, int input)
{
    int n = 0;
    for (int of = osh_first_reader(p, input); of >= 0 && of < r->l1; of = osh_next_reader(p, of))
        n += of >= r->l0 && p->linears[of].wants;
    return n;
}

/* Inputs of the range with as many Linears, of which one is like this one, as far as a card's call goes. */
static int count_alike(const osh_sim *s, const osh_range *r, const bool *values, const osh_linear *lead)
{
    const osh_plan *p = s->p;
    int n = 0, readers = readers_of(p, r, lead->input);
    for (int i = r->l0; i < r->l1 && n < OSH_GROUPS_AT_ONCE; i++) {
        const osh_linear *l = &p->linears[i];
        if (!l->wants || !values[l->input] || !looks_like(l, lead)) continue;
        int of = osh_first_reader(p, l->input); // of several Linears of one input it is the first like this one
        while (of < r->l0 || (of < i && !looks_like(&p->linears[of], lead))) of = osh_next_reader(p, of);
        n += of == i && readers_of(p, r, l->input) == readers;
    }
    return n;
}

/* Of a card, once for all that are alike, when the first of them is solved: a run that goes on from an earlier one has
 * others of them in one call, and no more. */
static void window_gather(osh_sim *s, window *w, const osh_range *r, const bool *values, const group *g,
                          const solving *x)
{
    const osh_plan *p = s->p;
    int first = g->call.which[0];
    const osh_linear *lead = &p->linears[first];
    const osh_modifier *m = &p->recipe->modifiers[lead->modifier];
    if (!p->memory.solve_limit || !osh_call_gathers(&g->call, first)) return; // not for the smallest budget
    if (w->like >= 0 && looks_like(&p->linears[w->like], lead)) return;
    int n = count_alike(s, r, values, lead);
    w->like = first;
    if (n < 2) return;
    size_t on_card = x->room;
    int64_t work = (int64_t)m->type->needs_groups(m, &(osh_job_group){g->call.jobs, g->call.n, NULL}, n, s->n_threads,
                                                  &on_card);
    size_t waiting = osh_call_bytes(g->call.n) + OSH_CALL_WAITING + osh_mem_gross((size_t)lead->I * sizeof(float));
    note_apart(s, (int64_t)on_card, work + x->pack + n * (int64_t)waiting); // with what weighs its channels
}

/* A call, found and not yet closed: with those before it, or by itself with its jobs beside each other. */
static void window_add(osh_sim *s, window *w, group *g, int first, int64_t pack)
{
    const osh_plan *p = s->p;
    const osh_linear *lead = &p->linears[first];
    int n = g->call.n;
    if (lead->wants & OSH_STAT_BLOCK) window_close(s, w);
    if (s->n_threads == 1 || (lead->wants & OSH_STAT_BLOCK)) return;
    g->call.jobs->apart = true;
    bool many = osh_jobs_at_once(g->call.jobs, n, s->n_threads) > 1;
    if (many) {
        int64_t copy = g->call.others ? copied_bytes(s, lead) : 0;
        note_apart(s, osh_memory_compress_bytes(p, g->call.jobs, n, lead, s->n_threads, NULL) + pack + copy, 0);
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
    if (!w->n++) w->stats = s->stats;
    w->all += weights, w->results += results, w->run += run;
    max_into(&w->largest, weights), max_into(&w->most_run, run), max_into(&w->pack, pack);
    if (w->n == osh_jobs_waiting(s->n_threads)) window_close(s, w); // as the run does
}

osh_status osh_sim_solve(osh_ctx *cx, void *user, const osh_range *r, const bool *values, bool keep)
{
    osh_status rc = OSH_OK;
    osh_sim *s = user;
    const osh_plan *p = s->p;
    group g; // own
    window w = {.like = -1};
    osh_sim_look(s);
    OSH_TRY(group_init(cx, &g, s, r));
    osh_sim_drop_copies(s);
    int first = first_of_block(p, r);
    for (int i = r->l0; i < r->l1; i++) {
        const osh_linear *lead = &p->linears[i];
        int64_t pack;
        if (!lead->wants || !values[lead->input] || g.done[i - r->l0]) continue;
        OSH_TRY(group_find(cx, &g, i, s, keep, &pack));
        int n = g.call.n, others = g.call.others;
        int64_t h = copied_bytes(s, lead);
        int64_t there = s->card ? osh_layout_extent(s->card) + (others ? h : 0) : 0, limit = p->memory.solve_limit;
        size_t room = limit > there ? (size_t)(limit - there) : 0, on_card = room; // what is taken of it
        int64_t work = 0;
        if (!(lead->wants & OSH_STAT_BLOCK))
            work = osh_memory_compress_bytes(p, g.call.jobs, n, lead, s->n_threads, s->card ? &on_card : NULL);
        else if (i == first) OSH_TRY(osh_block_peak(cx, &work, p, r));
        if (s->card) osh_sim_note(s, (int64_t)on_card + (others ? h : 0), work, s->values);
        else osh_sim_note(s, work + (others ? h : 0), 0, s->values);
        solving bytes = {work, pack, others ? h : 0, room};
        note_packing(s, &g, n, lead, &bytes);
        if (s->card) window_gather(s, &w, r, values, &g, &bytes);
        else window_add(s, &w, &g, i, pack);
        if (others) continue;
        *osh_sim_hook(s, lead->input) = 0;
        for (int of = osh_first_reader(p, lead->input); of >= 0; of = osh_next_reader(p, of))
            for (int k = 0; k < OSH_RANGED; k++)
                if (p->linears[of].ranged[k] >= 0) *osh_sim_hook(s, p->linears[of].ranged[k]) = 0;
        close_sums(s, lead);
        if (w.n == osh_jobs_waiting(s->n_threads)) window_close(s, &w);
    }
    window_close(s, &w);
    sim_close(s, r, values);
done:
    group_deinit(cx, &g);
    return rc;
}
