/* solve.c - solves Linears: computes codes from complete statistics, and passes them to the
 * emitter, which writes them to the output. schedule/windows.h chooses the Linears that are solved
 * at the same time. */
#include <string.h>

#include "quant/observer.h"
#include "run/results.h"
#include "schedule/windows.h"

osh_status osh_run_emit(osh_ctx *cx, osh_run *r, const osh_stats *stats, int linear,
                        osh_linear_job *j)
{
    osh_status rc = OSH_OK;
    osh_tensor *scale = NULL, *zero = NULL; // own
    if (j->fallback && r->budget->in->opt->strict)
        OSH_FAIL(cx, OSH_E_NUMERIC, "%s: %s; --strict allows no fallback", j->name, j->fallback);
    // now the error `nmse` is relative to the weight before pruning
    j->nmse = j->removed + j->nmse * (1 - j->removed);
    if (stats) OSH_TRY(osh_ranges_input_params(cx, &scale, &zero, osh_stats_ranges(stats), linear));
    if (stats) OSH_TRY(osh_ranges_beside_params(cx, &j->cache, osh_stats_ranges(stats), linear));
    if (osh_ranks_me(r->ranks)) {
        OSH_TRY(osh_result_send(cx, r, linear, j, &scale, &zero));
        goto done;
    }
    OSH_TRY(osh_emit_linear(cx, r->emitter, linear, j, &scale, &zero));
    osh_run_record(cx, r, linear, j);
done:
    osh_tensor_free(cx, scale);
    osh_tensor_free(cx, zero);
    return rc;
}

typedef struct sink { // state of the callback that passes results of Linears to the emitter
    osh_run *r;
    const osh_solving *s;
    const osh_linear_job *jobs; // view
    const int *which;           // view: which[k] is the index of the Linear of jobs[k]
} sink;

/* Passes the result of a job to the emitter. Callback for the member `done` of osh_linear_job. */
static osh_status sink_take(osh_ctx *cx, osh_linear_job *j)
{
    osh_status rc = OSH_OK;
    const sink *k = j->user;
    int linear = k->which[j - k->jobs];
    OSH_TRY(osh_check_interrupt(cx));
    OSH_TRY(osh_run_emit(cx, k->r, k->s->stats, linear, j));
    if (k->s->in_memory) k->s->in_memory[linear] = true;
done:
    return rc;
}

osh_status osh_run_unweighted(osh_ctx *cx, const osh_linear_job *j)
{
    const osh_q_args *a = &j->scheme->weights;
    if (!osh_observer_weighs(a)) return OSH_OK;
    if (osh_observer_value(a, "strict") != 0)
        return osh_fail(cx, OSH_E_NUMERIC,
                        "%s: observer %s with strict: true, but its inputs were all 0", j->name,
                        a->observer);
    osh_log(cx, OSH_LOG_WARN,
            "%s: its inputs were all 0: observer %s gives all channels the same weight", j->name,
            a->observer);
    return OSH_OK;
}

static osh_status tensor_new_copy(osh_ctx *cx, osh_tensor **out, const osh_tensor *t)
{
    osh_status rc = osh_tensor_new_on(cx, out, (osh_where){t->device, OSH_LIFE_LONG}, t->dtype,
                                      t->ndim, t->shape);
    return rc ? rc : osh_tensor_copy(cx, *out, t);
}

/* pruned weights of a call, which are kept until the quantizer has read them */
typedef struct pruned {
    /* Pruned weight of each job. If a weight was pruned in place, the data of its element is
     * NULL. */
    osh_tensor *w;      // own [n]
    int n;
} pruned;

static void pruned_deinit(osh_ctx *cx, pruned *x)
{
    for (int k = 0; x->w && k < x->n; k++) osh_free(cx, x->w[k].data);
    osh_free(cx, x->w);
}

/* Prunes the weights of the x->n jobs before they are quantized. Does not change the Hessian h. */
static osh_status pruned_fill(osh_ctx *cx, const osh_inputs *in, pruned *x, const osh_linear *lead,
                              osh_linear_job *jobs, osh_tensor *h)
{
    osh_status rc = OSH_OK;
    int n = x->n;
    const osh_modifier *m = &in->recipe->modifiers[lead->prune.modifier];
    osh_status (*done)(osh_ctx *cx, osh_linear_job *j) = jobs->done;
    osh_tensor *copy = NULL; // own
    OSH_NEW(cx, x->w, n);
    if (h && (m->type->solver->wants(m, lead->scheme) & OSH_STAT_HESSIAN))
        OSH_TRY(tensor_new_copy(cx, &copy, h));
    for (int k = 0; k < n; k++) jobs[k].done = NULL;
    OSH_TRY(m->type->solver->compress(cx, m, jobs, n, copy, in->data.n));
    bool exact = osh_modifier_prune_rule(m, lead->prune.sparsity).exact;
    for (int k = 0; k < n; k++) {
        osh_linear_job *j = &jobs[k];
        if (exact) j->removed = j->nmse;
        if (j->fallback && in->opt->strict)
            OSH_FAIL(cx, OSH_E_NUMERIC, "%s: %s; --strict allows no fallback", j->name,
                     j->fallback);
        if (j->fallback) osh_log(cx, OSH_LOG_WARN, "%s: %s", j->name, j->fallback);
        if (j->keep_w) {
            x->w[k] = *j->w, x->w[k].data = j->codes;
            j->w = &x->w[k];
        } else {
            osh_free(cx, j->codes);
        }
        j->codes = NULL, j->packed = false, j->fallback = NULL, j->pruned = true, j->done = done;
    }
done:
    osh_tensor_free(cx, copy);
    return rc;
}

/* Completes a job whose weight is kept without quantization. Only the scales of an attention are
 * written for it. */
static osh_status job_keep_weight(osh_ctx *cx, osh_linear_job *j)
{
    osh_status rc = OSH_OK;
    j->objective = j->nearest = -1;
    if (!(j->codes = osh_alloc(cx, osh_tensor_bytes(j->w))))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", j->name);
    memcpy(j->codes, j->w->data, osh_tensor_bytes(j->w));
    j->packed = true;
    OSH_TRY(osh_linear_job_done(cx, j));
done:
    return rc;
}

/* True if no token was routed to the Linear's expert. For a Hessian on the host, tests whether its
 * diagonal is 0. For a Hessian on a device, tests whether any rows were added to it. */
static bool expert_is_starved(const osh_inputs *in, const osh_linear *l, const osh_tensor *h,
                              const osh_stats *stats)
{
    if (!in->by_route || !h || !osh_is_by_route(in->graph, l->input)) return false;
    if (h->device) return osh_stats_is_empty(stats, l->input);
    const float *x = h->data;
    for (int64_t i = 0; i < h->shape[0]; i++)
        if (x[i * h->shape[1] + i] != 0) return false;
    return true;
}

static osh_status expert_round_starved(osh_ctx *cx, const osh_inputs *in, const osh_linear *lead,
                                       osh_linear_job *jobs, int n)
{
    for (int k = 0; k < n; k++)
        jobs[k].fallback = "no token is routed to this expert: rounded to nearest";
    return osh_modifier_round(cx, &in->recipe->modifiers[lead->modifier], jobs, n);
}

typedef struct group { // the Linears of one call (schedule/windows.h), and what their solve needs
    const osh_call *call; // view
    const osh_schedule *p; // view
    const osh_linear *lead; // view: first Linear of the call
    /* views: Hessian (h, OSH_SUM_HESSIAN) and shift (d, OSH_SUM_SHIFT) of the input */
    osh_tensor *h, *d;
    /* Copies of h and d, which the solve overwrites. NULL: the solve overwrites h and d, because no
     * later call needs them. */
    osh_tensor *copy[2];  // own
    float *importance;    // own
    pruned x;             // own
    sink to;
} group;

_Static_assert(sizeof(group) <= OSH_CALL_WAITING, "the plan counts OSH_CALL_WAITING bytes");

static void group_deinit(osh_ctx *cx, group *g)
{
    for (int k = 0; k < 2; k++) osh_tensor_free(cx, g->copy[k]);
    for (int k = 0; g->call && k < g->call->n; k++) osh_linear_job_deinit(cx, &g->call->jobs[k]);
    pruned_deinit(cx, &g->x);
    osh_free(cx, g->importance);
    *g = (group){0};
}

/* Makes the group *g for the call, and sets the weights and the statistics in the jobs of the call.
 * The caller must free *g with group_deinit, even after a failure. */
static osh_status group_init(osh_ctx *cx, group *g, osh_run *r, const osh_solving *s,
                             const osh_call *call)
{
    osh_status rc = OSH_OK;
    osh_stats *stats = s->stats;
    osh_weights *w = s->w;
    const osh_budget *p = r->budget;
    const osh_linear *lead = &p->match->linears[call->which[0]];
    const osh_tensor *peaks = osh_stats_sum(stats, lead->input, OSH_SUM_PEAKS); // view
    const osh_tensor *care_in =
        p->match->linears[osh_first_reader(p->match, lead->input)].gradients.inputs;
    int n = call->n, *which = call->which;
    *g = (group){.call = call,
                 .p = p->schedule,
                 .lead = lead,
                 .h = osh_stats_sum(stats, lead->input, OSH_SUM_HESSIAN),
                 .d = osh_stats_sum(stats, lead->input, OSH_SUM_SHIFT),
                 .x.n = n,
                 .to = {.r = r, .s = s, .jobs = call->jobs, .which = which}};
    for (int k = 0; k < n; k++) {
        const osh_linear *l = &p->match->linears[which[k]];
        osh_linear_job *j = &call->jobs[k];
        j->w = w->device ? w->host[l->weight] : w->w[l->weight];
        j->device_w = w->device ? w->w[l->weight] : NULL;
        j->shift = g->d, j->keep_w = !s->in_memory, j->done = sink_take, j->user = &g->to;
        j->care = l->gradients.outputs ? l->gradients.outputs->data : NULL,
        j->care_in = care_in ? care_in->data : NULL;
        j->n_tokens = osh_dataset_n_counted(&p->in->data, 0, p->in->data.n),
        j->peaks = peaks ? *(const double *)peaks->data : 0;
    }
    OSH_TRY(osh_globals_find(cx, osh_emit_globals(r->emitter), which, n));
    OSH_TRY(osh_stats_importance(cx, &g->importance, stats, lead->input));
    for (int k = 0; k < n; k++) call->jobs[k].params.importance = g->importance;
    for (int k = 0; k < n && !g->importance && !lead->kept; k++)
        OSH_TRY(osh_run_unweighted(cx, &call->jobs[k]));
    for (int k = 0; k < n; k++)
        call->jobs[k].params.global = osh_globals_of(osh_emit_globals(r->emitter), which[k]);
done:
    return rc;
}

static osh_status group_compress(osh_ctx *cx, group *g)
{
    osh_status rc = OSH_OK;
    const osh_schedule *p = g->p;
    const osh_modifier *m = &p->in->recipe->modifiers[g->lead->modifier];
    osh_linear_job *jobs = g->call->jobs;
    int n = g->call->n;
    if (g->lead->prune.modifier >= 0) OSH_TRY(pruned_fill(cx, p->in, &g->x, g->lead, jobs, g->h));
    if (expert_is_starved(p->in, g->lead, g->h, g->to.s->stats) && g->lead->scheme_index >= 0) {
        OSH_TRY(expert_round_starved(cx, p->in, g->lead, jobs, n));
        goto done;
    }
    if (g->h && g->call->others) OSH_TRY(tensor_new_copy(cx, &g->copy[0], g->h));
    if (g->d && g->call->others) OSH_TRY(tensor_new_copy(cx, &g->copy[1], g->d));
    for (int k = 0; g->copy[1] && k < n; k++) jobs[k].shift = g->copy[1];
    osh_tensor *h = g->copy[0] ? g->copy[0] : g->h;
    OSH_TRY(m->type->solver->compress(cx, m, jobs, n, h, p->in->data.n));
done:
    return rc;
}

/* Frees the group. Also frees statistics and host copies of weights if no later call needs them. */
static void group_close(osh_ctx *cx, group *g)
{
    const osh_weights *w = g->to.s->w;
    if (!g->call->others) osh_stats_drop(cx, g->to.s->stats, g->lead->input);
    for (int k = 0; k < g->call->n && w->device; k++) {
        osh_tensor **host = &w->host[g->p->match->linears[g->call->which[k]].weight];
        osh_tensor_free(cx, *host), *host = NULL;
    }
    group_deinit(cx, g);
}

static osh_status group_run(osh_ctx *cx, group *g)
{
    osh_status rc = OSH_OK;
    if (g->lead->kept) {
        for (int k = 0; k < g->call->n; k++) OSH_TRY(job_keep_weight(cx, &g->call->jobs[k]));
        group_deinit(cx, g);
        goto done;
    }
    OSH_TRY(group_compress(cx, g));
    group_close(cx, g);
done:
    return rc;
}

static osh_status group_compress_chunk(osh_ctx *cx, void *user, int64_t k, int worker)
{
    (void)worker;
    return group_compress(cx, &((group *)user)[k]);
}

static osh_status group_take_chunk(osh_ctx *cx, void *user, int64_t k)
{
    osh_status rc = OSH_OK;
    group *g = &((group *)user)[k];
    for (int i = 0; i < g->call->n; i++) OSH_TRY(sink_take(cx, &g->call->jobs[i]));
    group_close(cx, g);
done:
    return rc;
}

/* Solves the Linears of n groups together on the GPU (compress_groups). */
static osh_status groups_gather(osh_ctx *cx, group *of, int n)
{
    osh_status rc = OSH_OK;
    osh_job_group groups[OSH_GROUPS_AT_ONCE]; // views of the members of `of`
    const osh_inputs *in = of->p->in;
    const osh_modifier *m = &in->recipe->modifiers[of->lead->modifier];
    for (int k = 0; k < n; k++)
        groups[k] = (osh_job_group){of[k].call->jobs, of[k].call->n, of[k].h};
    OSH_TRY(m->type->solver->compress_groups(cx, m, groups, n, in->data.n));
    for (int k = 0; k < n; k++) group_close(cx, &of[k]);
done:
    return rc;
}

/* Solves the calls of window w. `of` [w->n]: memory for their groups. */
static osh_status window_solve(osh_ctx *cx, const osh_windows *w, group *of, osh_run *r,
                               const osh_solving *s)
{
    osh_status rc = OSH_OK;
    if (w->kind == OSH_WINDOW_BLOCK) return osh_run_block(cx, r, s);
    for (int k = 0; k < w->n; k++) {
        OSH_TRY(group_init(cx, &of[k], r, s, &w->calls[k]));
        if (w->kind == OSH_WINDOW_ALONE) OSH_TRY(group_run(cx, &of[k]));
    }
    if (w->kind == OSH_WINDOW_GATHERED) OSH_TRY(groups_gather(cx, of, w->n));
    if (w->kind == OSH_WINDOW_APART) {
        for (int k = 0; k < w->n; k++)
            for (int i = 0; i < of[k].call->n; i++) of[k].call->jobs[i].done = NULL;
        OSH_TRY(osh_parallel_apart(cx, w->n, w->most,
                                   &(osh_apart){group_compress_chunk, group_take_chunk, of}));
    }
done:
    for (int k = 0; k < w->n; k++) group_deinit(cx, &of[k]);
    return rc;
}

typedef struct solving { osh_run *r; const osh_solving *s; } solving; // for osh_windows

static bool solving_done(const void *user, int linear)
{
    return ((const solving *)user)->r->results[linear].done;
}

static bool solving_mine(const void *user, int input)
{
    const solving *x = user;
    return osh_stats_owner(x->s->stats, input) == osh_ranks_me(x->r->ranks);
}

osh_status osh_run_solve(osh_ctx *cx, osh_run *r, const osh_solving *s)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = r->budget;
    const bool *wanted = osh_stats_wanted(s->stats);
    double work = 0, all = 0;
    /* own [linears]: true if the Linear is to be solved, by this or by another rank */
    bool *todo = NULL;
    group *groups = NULL; // own
    solving x = {r, s};
    osh_span of = osh_linears_of(p->schedule, s->first, s->n);
    osh_windows w = {.p = p->schedule, .of = of, .open = wanted, .done = solving_done,
                     .mine = solving_mine, .user = &x, .n_threads = osh_threads(cx),
                     .on_gpu = s->w->device, .apart = s->apart}; // own
    OSH_NEW(cx, todo, p->match->n_linears);
    // If the run is killed from here on, only the solves of one subgraph are lost, because all
    // earlier results are written.
    OSH_TRY(osh_emit_wait(cx, r->emitter));
    for (int i = of.first; i < of.end; i++) {
        const osh_linear *l = &p->match->linears[i];
        if (!osh_wants(p->schedule, l) || !wanted[l->input]) continue;
        todo[i] = !r->results[i].done;
        all += osh_cost_of_linear(p, i);
        r->learning |= osh_modifier_learns(&p->in->recipe->modifiers[l->modifier]);
    }
    double share =
        /* share: fraction of the phase; it is below 1 if the visit has rounds or segments */
        all / r->pace.cost[s->first].work[OSH_PHASE_SOLVE];
    osh_scope scope =
        osh_run_begin_part(cx, r, OSH_PHASE_SOLVE, s->first, share > 0.9999 ? 1 : share);
    for (int at = of.first;;) {
        OSH_TRY(osh_windows_next(cx, &w));
        if (!w.n) break;
        if (!groups) OSH_NEW(cx, groups, w.most);
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(osh_results_take(cx, r));
        for (; at < w.calls->which[0]; at++)
            if (osh_wants(p->schedule, &p->match->linears[at]) &&
                wanted[p->match->linears[at].input])
                work += osh_cost_of_linear(p, at);
        r->progress.name = p->match->linears[at].name;
        osh_run_step(cx, r, work / all);
        OSH_TRY(window_solve(cx, &w, groups, r, s));
    }
    OSH_TRY(osh_results_finish(cx, r, todo));
    osh_run_end(cx, r, scope);
done:
    osh_windows_deinit(cx, &w);
    osh_free(cx, todo);
    osh_free(cx, groups);
    r->learning = false;
    return rc;
}

bool osh_run_solved(const osh_run *r, int first, int n)
{
    osh_span own = osh_linears_of(r->budget->schedule, first, n);
    for (int i = own.first; i < own.end; i++)
        if (osh_wants(r->budget->schedule, &r->budget->match->linears[i]) && !r->results[i].done)
            return false;
    return true;
}

void osh_run_rounded(osh_ctx *cx, osh_run *r, int linear, double nmse)
{
    osh_run_record(cx, r, linear, &(osh_linear_job){.nmse = nmse, .objective = -1, .nearest = -1});
}

osh_status osh_run_round(osh_ctx *cx, osh_run *r, int linear, osh_tensor **w)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = r->budget;
    const osh_linear *l = &p->match->linears[linear];
    osh_modifier *m = &p->in->recipe->modifiers[l->modifier];
    osh_linear_job job = {
        .name = l->name, .scheme = l->scheme, .w = *w, .sparsity = l->prune.sparsity};
    pruned x = {.n = 1}; // own
    // the plan counts the search for global scales as host memory
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    OSH_TRY(osh_globals_find(cx, osh_emit_globals(r->emitter), &linear, 1));
    osh_mem_use(cx, OSH_MEM_DEVICE);
    int64_t bad = osh_find_nonfinite((*w)->data, (*w)->dtype, osh_tensor_numel(*w));
    if (bad >= 0)
        OSH_FAIL(cx, OSH_E_NUMERIC, "%s holds a value that is not finite at row %ld, column %ld",
                 p->in->ck->tensors[l->tensor].e->name, (long)(bad / l->I), (long)(bad % l->I));
    job.params.global = osh_globals_of(osh_emit_globals(r->emitter), linear);
    if (l->prune.modifier >= 0) OSH_TRY(pruned_fill(cx, p->in, &x, l, &job, NULL));
    OSH_TRY(m->type->solver->compress(cx, m, &job, 1, NULL, 0));
    osh_tensor_free(cx, *w), *w = NULL; // packing needs only the codes, so the weight is freed
    OSH_TRY(osh_run_emit(cx, r, NULL, linear, &job));
done:
    osh_mem_use(cx, old);
    pruned_deinit(cx, &x);
    osh_linear_job_deinit(cx, &job);
    return rc;
}
