/* solve.c - solves Linears: computes codes from complete statistics, and passes the codes to the
 * emitter, which writes them. One call of a modifier solves all Linears that have the same input
 * and modifiers (schedule/calls.h). */
#include <stdlib.h>
#include <string.h>

#include "schedule/calls.h"
#include "quant/observer.h"
#include "run/results.h"

osh_status osh_run_emit(osh_ctx *cx, osh_run *r, const osh_stats *stats, int linear,
                        osh_linear_job *j)
{
    osh_status rc = OSH_OK;
    osh_tensor *scale = NULL, *zero = NULL; // own
    if (j->fallback && r->budget->in->opt->strict)
        OSH_FAIL(cx, OSH_E_NUMERIC, "%s: %s; --strict allows no fallback", j->name, j->fallback);
    // makes the error relative to the weight before pruning
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

typedef struct sink { // passes the results of a group of Linears to the emitter
    osh_run *r;
    const osh_solving *s;
    const osh_linear_job *jobs; // view
    const int *which;           // view: index of the Linear of each job
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

static bool linear_has_result(const void *user, int linear)
{
    return ((const osh_run *)user)->results[linear].done;
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
            "%s: its inputs were all 0: observer %s lets its channels weigh the same", j->name,
            a->observer);
    return OSH_OK;
}

static osh_status tensor_new_copy(osh_ctx *cx, osh_tensor **out, const osh_tensor *t)
{
    osh_status rc = osh_tensor_new_on(cx, out, (osh_where){t->device, OSH_LIFE_LONG}, t->dtype,
                                      t->ndim, t->shape);
    return rc ? rc : osh_tensor_copy(cx, *out, t);
}

typedef struct pruned { // pruned weights, which are kept until the quantizer has read them
    osh_tensor *w;      // own [n]: pruned weight of each job; data is NULL if the weight was pruned
                        // in place
    int n;
} pruned;

static void pruned_deinit(osh_ctx *cx, pruned *x)
{
    for (int k = 0; x->w && k < x->n; k++) osh_free(cx, x->w[k].data);
    osh_free(cx, x->w);
}

/* Prunes the weights of the x->n jobs before they are quantized. The Hessian h is not changed. */
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

/* Completes a job without quantization: the weight is kept, and only the scales of an attention are
 * written. */
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

/* True if no token was routed to the Linear's expert: the diagonal of the Hessian is 0. */
static bool expert_is_starved(const osh_inputs *in, const osh_linear *l, const osh_tensor *h)
{
    if (!in->by_route || !h || !osh_is_by_route(in->graph, l->input)) return false;
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

typedef struct group { // group: the Linears that one call of a modifier solves together
    osh_call call;        // own
    int first;            // index of the first Linear of the group
    osh_tensor *h, *d;    // views: Hessian (OSH_SUM_HESSIAN) and shift (OSH_SUM_SHIFT) of the input
    osh_tensor *copy[2];  // own: copies of h and d, which a solve overwrites; NULL: no later group
                          // needs h and d
    float *importance;    // own
    pruned x;             // own
    sink to;
} group;

static void solve_group_deinit(osh_ctx *cx, group *g)
{
    for (int k = 0; k < 2; k++) osh_tensor_free(cx, g->copy[k]);
    for (int k = 0; g->call.jobs && k < g->call.n; k++) osh_linear_job_deinit(cx, &g->call.jobs[k]);
    pruned_deinit(cx, &g->x);
    osh_call_free(cx, &g->call);
    osh_free(cx, g->importance);
    *g = (group){0};
}

/* Makes the group of the Linears that the modifier solves together with linears[first]. The caller
 * frees it with solve_group_deinit, also after a failure. */
static osh_status solve_group_init(osh_ctx *cx, group *g, osh_run *r, const osh_solving *s,
                                   int first)
{
    osh_status rc = OSH_OK;
    osh_stats *stats = s->stats;
    osh_weights *w = s->w;
    const osh_budget *p = r->budget;
    const osh_linear *lead = &p->match->linears[first];
    const osh_tensor *peaks = osh_stats_sum(stats, lead->input, OSH_SUM_PEAKS); // view
    const osh_tensor *care_in =
        p->match->linears[osh_first_reader(p->match, lead->input)].gradients.inputs;
    *g = (group){.call = {.p = p->schedule,
                          .of = osh_linears_of(p->schedule, s->first, s->n),
                          .done = linear_has_result,
                          .user = r,
                          .on_gpu = w->device != NULL},
                 .first = first,
                 .h = osh_stats_sum(stats, lead->input, OSH_SUM_HESSIAN),
                 .d = osh_stats_sum(stats, lead->input, OSH_SUM_SHIFT),
                 .to = {.r = r, .s = s}};
    OSH_TRY(osh_call_find(cx, &g->call, first));
    int n = g->call.n, *which = g->call.which;
    for (int k = 0; k < n; k++) {
        const osh_linear *l = &p->match->linears[which[k]];
        osh_linear_job *j = &g->call.jobs[k];
        j->w = w->device ? w->host[l->weight] : w->w[l->weight];
        j->device_w = w->device ? w->w[l->weight] : NULL;
        j->shift = g->d, j->keep_w = !s->in_memory, j->done = sink_take, j->user = &g->to;
        j->care = l->gradients.outputs ? l->gradients.outputs->data : NULL,
        j->care_in = care_in ? care_in->data : NULL;
        j->n_tokens = osh_dataset_n_counted(&p->in->data, 0, p->in->data.n),
        j->peaks = peaks ? *(const double *)peaks->data : 0;
        j->apart = s->apart && !w->device;
    }
    g->to.jobs = g->call.jobs, g->to.which = which, g->x.n = n;
    OSH_TRY(osh_globals_find(cx, osh_emit_globals(r->emitter), which, n));
    OSH_TRY(osh_stats_importance(cx, &g->importance, stats, lead->input));
    for (int k = 0; k < n; k++) g->call.jobs[k].params.importance = g->importance;
    for (int k = 0; k < n && !g->importance && !lead->kept; k++)
        OSH_TRY(osh_run_unweighted(cx, &g->call.jobs[k]));
    for (int k = 0; k < n; k++)
        g->call.jobs[k].params.global = osh_globals_of(osh_emit_globals(r->emitter), which[k]);
done:
    return rc;
}

static osh_status solve_group_compress(osh_ctx *cx, group *g)
{
    osh_status rc = OSH_OK;
    const osh_schedule *p = g->call.p;
    const osh_linear *lead = &p->match->linears[g->first];
    const osh_modifier *m = &p->in->recipe->modifiers[lead->modifier];
    osh_linear_job *jobs = g->call.jobs;
    int n = g->call.n;
    if (expert_is_starved(p->in, lead, g->h) && lead->scheme_index >= 0 &&
        lead->prune.modifier < 0) {
        OSH_TRY(expert_round_starved(cx, p->in, lead, jobs, n));
        goto done;
    }
    if (lead->prune.modifier >= 0) OSH_TRY(pruned_fill(cx, p->in, &g->x, lead, jobs, g->h));
    if (g->h && g->call.others) OSH_TRY(tensor_new_copy(cx, &g->copy[0], g->h));
    if (g->d && g->call.others) OSH_TRY(tensor_new_copy(cx, &g->copy[1], g->d));
    for (int k = 0; g->copy[1] && k < n; k++) jobs[k].shift = g->copy[1];
    osh_tensor *h = g->copy[0] ? g->copy[0] : g->h;
    OSH_TRY(m->type->solver->compress(cx, m, jobs, n, h, p->in->data.n));
done:
    return rc;
}

/* Frees the group, and the statistics and host copies of weights that no later call needs. */
static void solve_group_close(osh_ctx *cx, group *g)
{
    const osh_schedule *p = g->call.p;
    const osh_weights *w = g->to.s->w;
    if (!g->call.others) osh_stats_drop(cx, g->to.s->stats, p->match->linears[g->first].input);
    for (int k = 0; k < g->call.n && w->device; k++) {
        osh_tensor **host = &w->host[p->match->linears[g->call.which[k]].weight];
        osh_tensor_free(cx, *host), *host = NULL;
    }
    solve_group_deinit(cx, g);
}

static osh_status solve_group_run(osh_ctx *cx, group *g)
{
    osh_status rc = OSH_OK;
    if (g->call.p->match->linears[g->first].kept) {
        for (int k = 0; k < g->call.n; k++) OSH_TRY(job_keep_weight(cx, &g->call.jobs[k]));
        solve_group_deinit(cx, g);
        goto done;
    }
    OSH_TRY(solve_group_compress(cx, g));
    solve_group_close(cx, g);
done:
    return rc;
}

static void solve_group_move(group *to, group *from)
{
    *to = *from, *from = (group){0};
    for (int k = 0; k < to->call.n; k++) to->call.jobs[k].user = &to->to;
}

_Static_assert(sizeof(group) <= OSH_CALL_WAITING, "the plan counts OSH_CALL_WAITING bytes");

/* Groups that wait to be solved in parallel: one on each thread, or all in one call on the GPU. */
typedef struct window {
    group *of;            // own [most]: groups; the first n wait to be solved
    int n, most;
    int64_t all, largest; // weights of all waiting groups, and of the largest one
    bool on_gpu;
} window;

static osh_status solve_window_chunk(osh_ctx *cx, void *user, int64_t k, int worker)
{
    const window *w = user;
    (void)worker;
    return solve_group_compress(cx, &w->of[k]);
}

static osh_status solve_window_take(osh_ctx *cx, void *user, int64_t k)
{
    osh_status rc = OSH_OK;
    group *g = &((const window *)user)->of[k];
    for (int i = 0; i < g->call.n; i++) OSH_TRY(sink_take(cx, &g->call.jobs[i]));
    solve_group_close(cx, g);
done:
    return rc;
}

/* Solves all waiting groups in one call on the GPU. */
static osh_status solve_window_gather(osh_ctx *cx, window *w)
{
    osh_status rc = OSH_OK;
    osh_job_group groups[OSH_GROUPS_AT_ONCE]; // views of the groups
    const osh_schedule *p = w->of->call.p;
    const osh_modifier *m = &p->in->recipe->modifiers[p->match->linears[w->of->first].modifier];
    for (int k = 0; k < w->n; k++)
        groups[k] = (osh_job_group){w->of[k].call.jobs, w->of[k].call.n, w->of[k].h};
    OSH_TRY(m->type->solver->compress_groups(cx, m, groups, w->n, p->in->data.n));
    for (int k = 0; k < w->n; k++) solve_group_close(cx, &w->of[k]);
done:
    w->n = 0;
    return rc;
}

/* Solves all waiting groups. budget/simulate_solve.c predicts the memory for this. */
static osh_status solve_window_run(osh_ctx *cx, window *w)
{
    osh_status rc = OSH_OK;
    bool many = !w->on_gpu && osh_jobs_are_many(w->all, w->largest, osh_threads(cx));
    if (w->on_gpu && w->n > 1) return solve_window_gather(cx, w);
    for (int k = 0; k < w->n && !many; k++) OSH_TRY(solve_group_run(cx, &w->of[k]));
    if (many) {
        for (int k = 0; k < w->n; k++)
            for (int i = 0; i < w->of[k].call.n; i++) w->of[k].call.jobs[i].done = NULL;
        OSH_TRY(osh_parallel_apart(cx, w->n, w->most,
                                   &(osh_apart){solve_window_chunk, solve_window_take, w}));
    }
    w->n = 0, w->all = w->largest = 0;
done:
    return rc;
}

static bool solve_window_has(const window *w, int linear)
{
    for (int k = 0; k < w->n; k++)
        for (int i = 0; i < w->of[k].call.n; i++)
            if (w->of[k].call.which[i] == linear) return true;
    return false;
}

/* With a GPU: adds group g to the waiting groups. If the waiting groups are not similar to g,
 * solves the waiting groups first. */
static osh_status solve_window_join(osh_ctx *cx, window *w, group *g)
{
    osh_status rc = OSH_OK;
    const osh_call *lead = &w->of->call;
    if (w->n && (lead->n != g->call.n || !osh_jobs_are_alike(lead->jobs, g->call.jobs, lead->n))) {
        OSH_TRY(solve_window_run(cx, w));
        solve_group_move(w->of, g);
    }
    if (++w->n == w->most) OSH_TRY(solve_window_run(cx, w));
done:
    return rc;
}

/* Makes the group of linears[first]. If the group may be solved together with others, adds it to
 * the waiting groups. Otherwise solves the waiting groups, and then this group. */
static osh_status solve_window_add(osh_ctx *cx, window *w, osh_run *r, const osh_solving *s,
                                   int first)
{
    osh_status rc = OSH_OK;
    group *g = &w->of[w->n];
    OSH_TRY(solve_group_init(cx, g, r, s, first));
    if (w->most > 1 && osh_call_gathers(&g->call, first)) return solve_window_join(cx, w, g);
    bool many = w->on_gpu || osh_jobs_at_once(g->call.jobs, g->call.n, osh_threads(cx)) >
                                 1; // true if the group is solved alone, because it runs on the
                                    // GPU or uses several threads
    if (w->most > 1 && !many && osh_call_is_apart(&g->call, first)) {
        int64_t weights = osh_call_weights(&g->call);
        if (w->n && !osh_calls_alike(weights, w->largest)) {
            OSH_TRY(solve_window_run(cx, w));
            solve_group_move(&w->of[0], g);
        }
        w->all += weights, w->largest = weights > w->largest ? weights : w->largest;
        if (++w->n == w->most) OSH_TRY(solve_window_run(cx, w));
        goto done;
    }
    OSH_TRY(solve_window_run(cx, w));
    OSH_TRY(solve_group_run(cx, g));
done:
    return rc;
}

osh_status osh_run_solve(osh_ctx *cx, osh_run *r, const osh_solving *s)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = r->budget;
    const bool *wanted = osh_stats_wanted(s->stats);
    double work = 0, all = 0;
    bool *todo = NULL; // own [linears]: Linears that are to be solved, also by other ranks
    window w = {.most = 1, .on_gpu = s->w->device};
    if (s->apart)
        w.most = w.on_gpu              ? OSH_GROUPS_AT_ONCE
                 : osh_threads(cx) > 1 ? osh_jobs_waiting(osh_threads(cx))
                                       : 1;
    OSH_NEW(cx, w.of, w.most);
    OSH_NEW(cx, todo, p->match->n_linears);
    // the results of earlier subgraphs are then written, so a kill loses the solves of only one
    // subgraph
    OSH_TRY(osh_emit_wait(cx, r->emitter));
    osh_span own = osh_linears_of(p->schedule, s->first, s->n);
    for (int i = own.first; i < own.end; i++) {
        const osh_linear *l = &p->match->linears[i];
        if (!osh_wants(r->budget->schedule, l) || !wanted[l->input]) continue;
        all += osh_cost_of_linear(p, i);
        r->learning |= osh_modifier_learns(&p->in->recipe->modifiers[l->modifier]);
    }
    double share =
        all / r->pace.cost[s->first].work[OSH_PHASE_SOLVE]; // share: fraction of the phase; below 1
                                                            // if the visit has rounds or segments
    osh_scope scope =
        osh_run_begin_part(cx, r, OSH_PHASE_SOLVE, s->first, share > 0.9999 ? 1 : share);
    for (int i = own.first; i < own.end; i++) {
        const osh_linear *l = &p->match->linears[i];
        if (!osh_wants(r->budget->schedule, l) || !wanted[l->input]) continue;
        work += osh_cost_of_linear(p, i);
        todo[i] = !r->results[i].done;
        if (osh_stats_owner(s->stats, l->input) != osh_ranks_me(r->ranks)) continue;
        if (r->results[i].done || solve_window_has(&w, i)) continue;
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(osh_results_take(cx, r));
        r->progress.name = l->name;
        osh_run_step(cx, r, (work - osh_cost_of_linear(p, i)) / all);
        bool block = osh_wants(r->budget->schedule, l) & OSH_STAT_BLOCK;
        // learning a block reads solved weights, so waiting groups are solved first
        if (block) OSH_TRY(solve_window_run(cx, &w));
        if (block) OSH_TRY(osh_run_block(cx, r, s));
        else OSH_TRY(solve_window_add(cx, &w, r, s, i));
    }
    OSH_TRY(solve_window_run(cx, &w));
    OSH_TRY(osh_results_finish(cx, r, todo));
    osh_run_end(cx, r, scope);
done:
    osh_free(cx, todo);
    for (int k = 0; w.of && k < w.most; k++) solve_group_deinit(cx, &w.of[k]);
    osh_free(cx, w.of);
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
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_DEVICE);
    int64_t bad = osh_find_nonfinite((*w)->data, (*w)->dtype, osh_tensor_numel(*w));
    if (bad >= 0)
        OSH_FAIL(cx, OSH_E_NUMERIC, "%s holds a value that is not finite at row %ld, column %ld",
                 p->in->ck->tensors[l->tensor].e->name, (long)(bad / l->I), (long)(bad % l->I));
    OSH_TRY(osh_globals_find(cx, osh_emit_globals(r->emitter), &linear, 1));
    job.params.global = osh_globals_of(osh_emit_globals(r->emitter), linear);
    if (l->prune.modifier >= 0) OSH_TRY(pruned_fill(cx, p->in, &x, l, &job, NULL));
    OSH_TRY(m->type->solver->compress(cx, m, &job, 1, NULL, 0));
    osh_tensor_free(cx, *w), *w = NULL; // the weight is freed, because packing needs only the codes
    OSH_TRY(osh_run_emit(cx, r, NULL, linear, &job));
done:
    osh_mem_use(cx, old);
    pruned_deinit(cx, &x);
    osh_linear_job_deinit(cx, &job);
    return rc;
}
