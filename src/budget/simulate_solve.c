/* simulate_solve.c - counts the bytes of the solves in a simulated visit, window by window. A
 * window is a set of calls that are solved at the same time (schedule/windows.h). */

#include "budget/bytes.h"
#include "budget/sim.h"
#include "budget/simulate.h"
#include "match/cache.h"
#include "match/lookup.h"
#include "quant/observer.h"
#include "schedule/blocks.h"
#include "schedule/windows.h"

int64_t osh_memory_pack_bytes(const osh_budget *p, const osh_linear *l)
{
    int64_t n = 0;
    for (int k = 0; k < l->out.n; k++) {
        const osh_entry *e = &p->manifest->out[l->out.first + k];
        n += (int64_t)osh_mem_gross((size_t)(e->end - e->begin));
    }
    return n;
}

/* Returns the number of bytes that pruning needs before quantizing. This includes a copy of the
 * Hessian if the pruner uses it, because the quantizer needs the unchanged Hessian. *kept: set to
 * the bytes of the pruned weights, which exist until the quantizer has read them. *device: set to
 * the bytes in the GPU's memory; NULL: all bytes are in host memory. */
static int64_t sim_prune_bytes(const osh_budget *p, const osh_job_group *g, const osh_linear *lead,
                               int n_threads, int64_t *kept, size_t *device)
{
    osh_linear_job *jobs = g->jobs;
    int n = g->n;
    const osh_modifier *m = &p->in->recipe->modifiers[lead->prune.modifier];
    osh_status (*done)(osh_ctx *cx, osh_linear_job *j) = jobs->done;
    bool copy = m->type->solver->wants(m, lead->scheme) & OSH_STAT_HESSIAN;
    for (int k = 0; k < n; k++) jobs[k].done = NULL;
    int64_t list = (int64_t)osh_mem_gross((size_t)n * sizeof(osh_tensor)),
            work = list + (int64_t)m->type->solver->needs(m, jobs, n, n_threads, device);
    *kept = list;
    for (int k = 0; k < n; k++) {
        jobs[k].done = done;
        if (jobs[k].keep_w) *kept += (int64_t)osh_mem_gross(osh_tensor_bytes(jobs[k].w));
    }
    if (!copy) return work;
    if (!device) return work + osh_sum_bytes(OSH_SUM_HESSIAN, lead->I);
    *device += osh_arena_gross((size_t)(lead->I * lead->I) * sizeof(float));
    return work + (int64_t)osh_mem_gross(sizeof(osh_tensor));
}

int64_t osh_memory_compress_bytes(const osh_budget *p, osh_linear_job *jobs, int n,
                                  const osh_linear *lead, int n_threads, size_t *device)
{
    const osh_modifier *m = &p->in->recipe->modifiers[lead->modifier];
    if (lead->kept && device) *device = 0;
    if (lead->kept) return (int64_t)osh_job_result_bytes(jobs);
    int64_t work = (int64_t)m->type->solver->needs(m, jobs, n, n_threads, device), kept = 0;
    if (lead->prune.modifier < 0) return work;
    size_t pruning = 0;
    int64_t before = sim_prune_bytes(p, &(osh_job_group){jobs, n, NULL}, lead, n_threads, &kept,
                                     device ? &pruning : NULL);
    if (device && pruning > *device) *device = pruning;
    return before > work + kept ? before : work + kept;
}

void osh_sim_drop_copy(osh_sim *s, int weight)
{
    if (!s->weights.kept[weight]) return;
    s->weights.kept[weight] = false;
    s->weights.copies -= (int64_t)osh_weight_bytes(s->p->in->graph, s->p->in->ck, weight);
}

/* Frees the copies of weights in host memory, except those that a later solve needs. The run does
 * the same in osh_engine_drop_copies (run/loading.c). */
static void sim_drop_copies(osh_sim *s)
{
    for (int w = s->r->w0; s->gpu && w < s->r->w1; w++) {
        bool waits = !s->weights.kept[w];
        for (int i = osh_first_user(s->p->match, w); i >= 0 && !waits;
             i = osh_next_user(s->p->match, i))
            waits = osh_wants(s->p->schedule, &s->p->match->linears[i]) && !s->solved[i];
        if (!waits) osh_sim_drop_copy(s, w);
    }
}

/* For each Linear of the range that reads one of `values`: marks the Linear as solved, and frees
 * its range observers. */
static void sim_close(osh_sim *s, const osh_range *r, const bool *values)
{
    for (int i = r->l0; i < r->l1; i++) {
        const osh_linear *l = &s->p->match->linears[i];
        if (!osh_wants(s->p->schedule, l) || !values[l->input]) continue;
        if (s->stats.counts[i])
            *osh_sim_histograms(s) -= (int64_t)osh_ranged_counts(s->p->match, i);
        s->stats.counts[i] = false;
        s->solved[i] = true;
        osh_sim_drop_copy(s, l->weight);
        for (int k = 0; k < OSH_RANGED; k++)
            if (l->ranged[k] >= 0) osh_layout_give(s->gpu, OSH_LAYOUT_RANGE, l->ranged[k]);
    }
    s->stats.bytes -= osh_sim_measured_bytes(s, r, values);
}

static void sim_close_sums(osh_sim *s, const osh_linear *l)
{
    for (osh_sum k = 0; k < OSH_N_SUMS; k++) {
        if (!s->stats.open[k][l->input]) continue;
        s->stats.open[k][l->input] = false;
        s->stats.bytes -= osh_sim_sum_bytes(s, k, l);
        if (osh_sums[k].on_gpu) osh_layout_give(s->gpu, osh_sums[k].layout, l->input);
    }
}

/* Simulates the end of the last group of samples. The partial sums (member `part` of osh_stat) are
 * then added to the sums and freed. */
static void sim_merge_groups(osh_sim *s, const osh_range *r)
{
    for (int v = r->v0; s->gpu && v < r->v1; v++)
        for (osh_sum k = 0; k < OSH_N_SUMS; k++)
            if (s->stats.open[k][v] && osh_sums[k].on_gpu)
                osh_layout_give(s->gpu, osh_sums[k].part, v);
    s->stats.bytes -= s->stats.parts, s->stats.parts = 0;
}

/* Raises the peaks of the visit for Linears that are solved in parallel. osh_sim_note counts most
 * bytes itself. device, host: the other bytes. */
static void sim_note_apart(osh_sim *s, int64_t device, int64_t host)
{
    s->peak = &s->to->apart;
    osh_sim_note(s, device, host);
    s->peak = &s->to->peak;
}

/* This callback for results does nothing. A modifier with a callback assumes that the caller takes
 * each result at once, so that only one result is in memory. */
static osh_status sim_take(osh_ctx *cx, osh_linear_job *j) { return OSH_OK; }

typedef struct solving { // a call (schedule/windows.h), and the bytes that solving it needs
    const osh_call *call;   // view
    const osh_linear *lead; // view: first Linear of the call
    /* Numbers of bytes. They are host bytes with a GPU, and device bytes without a GPU.
     * work: bytes that the whole call needs.
     * pack: bytes that packing one result needs.
     * copy: bytes of copies of Hessian and shift; 0 if no later call reads the same value.
     * results: bytes of the results of the whole call. */
    int64_t work, pack, copy, results;
    size_t on_gpu;    // bytes of GPU memory
    osh_tensor shift; // shape of the shift, without data
} solving;

/* Prepares the jobs of the call c, and sets all members of *x except `work` and `on_gpu`. `keep`:
 * true if the weights in memory must stay unchanged. */
static void solving_init(solving *x, const osh_sim *s, const osh_call *c, bool keep)
{
    const osh_linear *lead = &s->p->match->linears[c->which[0]];
    *x = (solving){.call = c, .lead = lead,
                   .shift = osh_tensor_view(OSH_F32, 2, (int64_t[]){lead->I, lead->I}, NULL)};
    for (int k = 0; k < c->n; k++) {
        const osh_linear *l = &s->p->match->linears[c->which[k]];
        osh_linear_job *j = &c->jobs[k];
        j->shift = l->shift ? &x->shift : NULL, j->keep_w = keep, j->done = sim_take;
        j->pruned = l->prune.modifier >= 0;
        x->results += (int64_t)osh_job_result_bytes(j);
        if (l->scheme_index >= 0) max_into(&x->pack, osh_memory_pack_bytes(s->p, l));
    }
    for (osh_sum k = OSH_SUM_HESSIAN; c->others && k <= OSH_SUM_SHIFT; k++)
        if (s->stats.open[k][lead->input]) x->copy += osh_sim_sum_bytes(s, k, lead);
}

/* Returns how many bytes of GPU memory may be used to solve the call x. */
static size_t sim_solve_room(const osh_sim *s, const solving *x)
{
    int64_t there = osh_layout_extent(s->gpu) + x->copy,
            limit = s->p->memory.solve_limit;
    return limit > there ? (size_t)(limit - there) : 0;
}

static osh_linear_job block_job(const osh_linear *l, osh_tensor *w)
{
    *w = osh_tensor_view(l->dtype, 2, (int64_t[]){l->O, l->I}, NULL);
    return (osh_linear_job){.name = l->name, .scheme = l->scheme, .w = w};
}

/* Sets *n_bytes to the host bytes that are needed to learn the codes of the block in range `r`.
 * They are for the learner (learn/block.h), and for the results of all Linears of the block, which
 * are kept until the block is finished. Sets *on_gpu to the needed bytes of GPU memory. */
static osh_status sim_block_bytes(osh_ctx *cx, int64_t *n_bytes, size_t *on_gpu,
                                  const osh_budget *p, const osh_range *r)
{
    osh_status rc = OSH_OK;
    osh_block_of o; // own
    size_t learn = 0, kept = 0, most = 0;
    OSH_TRY(osh_block_init(cx, &o, p->schedule, r));
    OSH_TRY(osh_block_bytes(cx, &learn, on_gpu, &o.b));
    for (int k = 0; k < o.b.n_learns; k++) {
        const osh_linear *l = &p->match->linears[o.linears[k]];
        osh_tensor w;
        osh_linear_job j = block_job(l, &w);
        size_t scales = osh_job_params_bytes(&j) + osh_job_search_bytes(&j);
        if (osh_observer_weighs(&l->scheme->weights))
            scales += osh_mem_gross((size_t)l->I * sizeof(float)); // importance of each channel
        size_t one =
            osh_job_finish_bytes(&j, osh_threads(cx)) + (size_t)osh_memory_pack_bytes(p, l);
        if (!p->in->on_device) kept += osh_tensor_gross(osh_tensor_bytes(&w));
        kept += osh_job_result_bytes(&j) +
                2 * osh_mem_gross((size_t)l->O * (size_t)l->I /
                                      (size_t)osh_q_scale_cols(&l->scheme->weights, l->I) *
                                      sizeof(float) +
                                  (size_t)l->O * sizeof(float));
        if (l->out.bias >= 0) kept += osh_mem_gross((size_t)l->O * osh_dtype_bytes(l->dtype));
        if (scales > most) most = scales;
        if (one > most) most = one;
    }
    size_t points = (size_t)osh_ada_points(o.b.rule.steps, o.b.rule.period) * sizeof(double);
    *n_bytes = (int64_t)(kept + (learn > most ? learn : most) + osh_mem_gross(points) +
                         osh_mem_gross((size_t)o.b.n_learns * sizeof(osh_linear_job)) +
                         2 * osh_mem_gross((size_t)o.b.n_learns * sizeof(osh_block_weight)) +
                         2 * osh_mem_gross((size_t)p->in->graph->n_values * sizeof(int)) +
                         osh_mem_gross((size_t)r->n_nodes) +
                         osh_mem_gross((size_t)p->in->graph->n_values * sizeof(bool)));
done:
    osh_block_deinit(cx, &o);
    return rc;
}

/* Sets x->work and x->on_gpu. All Linears of a block learn together, so they all count for the
 * first call of the block. */
static osh_status solving_count(osh_ctx *cx, solving *x, const osh_sim *s, bool first_of_block)
{
    osh_status rc = OSH_OK;
    // At first, x->on_gpu is the limit of GPU memory. osh_memory_compress_bytes replaces it by the
    // bytes of GPU memory that the call needs.
    x->on_gpu = sim_solve_room(s, x);
    if (!(x->lead->wants & OSH_STAT_BLOCK)) {
        x->work = osh_memory_compress_bytes(s->p, x->call->jobs, x->call->n, x->lead, s->n_threads,
                                            s->gpu ? &x->on_gpu : NULL);
    } else {
        x->on_gpu = 0;
        if (first_of_block) OSH_TRY(sim_block_bytes(cx, &x->work, &x->on_gpu, s->p, s->r));
    }
    // counts two arrays: a copy of the sum, and the importance of each channel, which is computed
    // from this copy
    if (s->gpu && osh_sum_wanted(OSH_SUM_SQUARES, x->lead))
        x->work += (int64_t)(osh_mem_gross((size_t)x->lead->I * sizeof(float)) +
                             osh_mem_gross((size_t)x->lead->I * sizeof(double)));
done:
    return rc;
}

/* Counts the memory for packing a result of the call x. The Cholesky factor of the Hessian still
 * exists at that time. On the host, one result exists at a time. On a GPU, the results of the whole
 * call exist at the same time. Their bytes are a part of x->work, so at most x->work bytes are
 * counted for the results. */
static void sim_note_packing(osh_sim *s, const solving *x)
{
    int64_t most = 0, order = 4 * (int64_t)osh_mem_gross((size_t)x->lead->I * 4);
    for (int k = 0; k < x->call->n; k++)
        max_into(&most, (int64_t)osh_job_result_bytes(&x->call->jobs[k]));
    if (s->gpu)
        osh_sim_note(s, x->copy, (x->results < x->work ? x->results : x->work) + order + x->pack);
    else osh_sim_note(s, most + order + x->copy, x->pack);
}

/* Counts the bytes of a call that is solved alone. Then frees the statistics that no later call
 * needs. */
static osh_status sim_solve_call(osh_ctx *cx, osh_sim *s, solving *x, bool first_of_block)
{
    osh_status rc = OSH_OK;
    const osh_matching *match = s->p->match;
    osh_linear_job *jobs = x->call->jobs;
    // many small Linears of a call may be solved in parallel, one on each thread
    if (jobs->apart && osh_jobs_at_once(jobs, x->call->n, s->n_threads) > 1) {
        OSH_TRY(solving_count(cx, x, s, first_of_block));
        sim_note_apart(s, x->work + x->pack + x->copy, 0);
    }
    jobs->apart = false;
    OSH_TRY(solving_count(cx, x, s, first_of_block));
    if (s->gpu) osh_sim_note(s, (int64_t)x->on_gpu + x->copy, x->work);
    else osh_sim_note(s, x->work + x->copy, 0);
    sim_note_packing(s, x);
    if (x->call->others) goto done;
    *osh_sim_hook(s, x->lead->input) = 0;
    for (int of = osh_first_reader(match, x->lead->input); of >= 0; of = osh_next_reader(match, of))
        for (int k = 0; k < OSH_RANGED; k++)
            if (match->linears[of].ranged[k] >= 0)
                *osh_sim_hook(s, match->linears[of].ranged[k]) = 0;
    sim_close_sums(s, x->lead);
done:
    return rc;
}

/* The calls in the window `w` are solved in parallel, each on one thread. Counts their bytes. */
static void sim_note_window(osh_sim *s, const osh_windows *w, bool keep)
{
    int64_t results = 0, run = 0, most_run = 0, pack = 0;
    for (int k = 0; k < w->n; k++) {
        solving x;
        solving_init(&x, s, &w->calls[k], keep);
        for (int i = 0; i < x.call->n; i++) x.call->jobs[i].done = NULL;
        int64_t more =
            osh_memory_compress_bytes(s->p, x.call->jobs, x.call->n, x.lead, 1, NULL) - x.results;
        results += x.results, run += more;
        max_into(&most_run, more), max_into(&pack, x.pack);
    }
    if (run > most_run * s->n_threads) run = most_run * s->n_threads;
    sim_note_apart(s, results + run + pack + (int64_t)osh_apart_bytes(w->most), 0);
}

/* Counts the bytes of the calls in the window `w`. A GPU solves these calls together. A resumed run
 * may put other calls into a window, but not more calls. If the Hessian of a call cannot be
 * factored, the call is solved alone while the others wait. The count also covers this case. */
static osh_status sim_note_gathered(osh_ctx *cx, osh_sim *s, const osh_windows *w, bool keep)
{
    osh_status rc = OSH_OK;
    solving x;
    solving_init(&x, s, w->calls, keep);
    OSH_TRY(solving_count(cx, &x, s, false));
    const osh_modifier *m = &s->p->in->recipe->modifiers[x.lead->modifier];
    size_t on_gpu = sim_solve_room(s, &x),
           work = m->type->solver->needs_groups(
               m, &(osh_job_group){x.call->jobs, x.call->n, NULL}, w->n, s->n_threads, &on_gpu),
           // each call that waits keeps the importance of its channels
           waiting = OSH_CALL_WAITING + osh_mem_gross((size_t)x.lead->I * sizeof(float));
    sim_note_apart(s, (int64_t)(on_gpu > x.on_gpu ? on_gpu : x.on_gpu),
                   (int64_t)(work + (size_t)w->n * waiting) + x.pack);
done:
    return rc;
}

/* Counts the bytes of the windows. A window is a set of calls that a GPU may solve together. Must
 * be called before any solve is simulated, because the number of statistics in memory is largest
 * before the first solve. At that time the order of the calls is not known, because it depends on
 * the visit's member `apart`. */
static osh_status sim_gather(osh_ctx *cx, osh_sim *s, osh_windows w, bool keep)
{
    osh_status rc = OSH_OK;
    w.apart = true;
    for (;;) {
        OSH_TRY(osh_windows_next(cx, &w));
        if (!w.n) break;
        if (w.kind == OSH_WINDOW_GATHERED) OSH_TRY(sim_note_gathered(cx, s, &w, keep));
    }
done:
    osh_windows_deinit(cx, &w);
    return rc;
}

osh_status osh_sim_solve(osh_ctx *cx, osh_sim *s, const osh_range *r, const osh_step *st)
{
    osh_status rc = OSH_OK;
    bool first_of_block = true;
    // own
    osh_windows w = {.p = s->p->schedule, .of = {r->l0, r->l1}, .open = st->values,
                     .n_threads = s->n_threads, .on_gpu = s->gpu, .apart = !s->gpu};
    int64_t lists = (int64_t)osh_windows_bytes(r->l1 - r->l0, s->n_threads);
    s->stats.lists += lists;
    sim_merge_groups(s, r);
    osh_sim_look(s);
    sim_drop_copies(s);
    // solve_limit is 0 while the smallest budget is computed; calls are then not solved together
    if (s->gpu && s->p->memory.solve_limit) OSH_TRY(sim_gather(cx, s, w, st->keep));
    for (;;) {
        OSH_TRY(osh_windows_next(cx, &w));
        if (!w.n) break;
        if (w.kind == OSH_WINDOW_APART) sim_note_window(s, &w, st->keep);
        for (int k = 0; k < w.n; k++) {
            solving x;
            solving_init(&x, s, &w.calls[k], st->keep);
            OSH_TRY(sim_solve_call(cx, s, &x, first_of_block));
            first_of_block &= w.kind != OSH_WINDOW_BLOCK;
        }
    }
    sim_close(s, r, st->values);
    s->stats.lists -= lists;
done:
    osh_windows_deinit(cx, &w);
    return rc;
}
