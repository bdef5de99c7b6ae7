/* sequential.c - runs calibration subgraph by subgraph: all batches run through one subgraph before
 * the next one begins. schedule/visit.c lists the steps of a subgraph, and this file executes them.
 *
 *   load -> observe (only the nodes that the statistics need) -> solve, emit
 *        -> propagate through the changed weights -> release
 *
 * After each step, the activation store has exactly the values that later steps read. In the
 * pipeline `basic`, the whole graph is one subgraph. This pipeline loads all weights, collects all
 * statistics in one pass, and propagates no values. */
#include <string.h>

#include "graph/picked.h"
#include "plan/division.h"
#include "plan/exchange.h"
#include "output/stream.h"
#include "budget/memory_rest.h"
#include "run/engine.h"
#include "run/made_up.h"
#include "store/scratch.h"

/* Finds the output tensors that are unchanged copies of weights, and sets e->copy_at. */
static osh_status engine_find_copies(osh_ctx *cx, osh_engine *e)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = e->p;
    // own [source tensors]: index of the output tensor that is a copy of the source tensor; -1:
    // none
    int64_t *of = NULL;
    OSH_NEW(cx, of, p->in->ck->n_tensors);
    for (int64_t i = 0; i < p->in->ck->n_tensors; i++) of[i] = -1;
    for (int64_t i = p->manifest->n_out - 1; i >= 0; i--)
        if (p->manifest->out_info[i].source >= 0) of[p->manifest->out_info[i].source] = i;
    OSH_NEW(cx, e->copy_at, p->in->graph->n_weights);
    for (int w = 0; w < p->in->graph->n_weights; w++) {
        int64_t tensor = p->in->graph->weights[w].tensor;
        e->copy_at[w] = tensor < 0 || p->in->graph->weights[w].part ? -1 : of[tensor];
    }
done:
    osh_free(cx, of);
    return rc;
}

/* Finds the batches that this rank runs, and sets e->mine. */
static osh_status engine_find_batches(osh_ctx *cx, osh_engine *e)
{
    osh_status rc = OSH_OK;
    const osh_schedule *s = e->p->schedule;
    OSH_NEW(cx, e->mine, s->n_batches);
    for (int64_t k = 0; k < s->n_batches; k++)
        if (osh_divide_sample(&e->p->in->groups, e->r->ranks, s->batch_at[k]))
            e->mine[e->n_mine++] = k;
done:
    return rc;
}

/* Sets e->dir, the directory of the activation store's files. Each rank has a directory of its
 * own. */
static osh_status engine_find_dir(osh_ctx *cx, osh_engine *e)
{
    osh_status rc = OSH_OK;
    char *dir = NULL; // own
    OSH_TRY(osh_scratch_dir(cx, &dir, e->p->in->opt->scratch_dir, osh_emit_dir(e->r->emitter)));
    if (e->r->ranks) OSH_TRY(osh_scratch_dir_of_rank(cx, &e->dir, dir, osh_ranks_me(e->r->ranks)));
    else e->dir = dir, dir = NULL;
done:
    osh_free(cx, dir);
    return rc;
}

static osh_status engine_begin(osh_ctx *cx, osh_engine *e)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = e->p;
    const char *pin = p->in->opt->pin_memory;
    OSH_TRY(engine_find_dir(cx, e));
    OSH_TRY(osh_weights_new(cx, &e->w, p->in->graph));
    e->w->device = p->in->device, e->w->rows = p->in->ck;
    if (p->in->device) e->missed = osh_arena_missed(p->in->device->arena);
    OSH_TRY(osh_acts_new(
        cx, &e->acts, p->in->graph, &p->in->data,
        &(osh_acts_place){p->memory.tier, e->dir, osh_scratch_is_packed(p->in->opt)}));
    osh_acts_of_run(e->acts, osh_emit_run(e->r->emitter));
    if (pin && !strcmp(pin, "false")) osh_acts_unpinned(e->acts);
    OSH_TRY(osh_acts_use(cx, e->acts, p->in->device));
    if (p->memory.by_gpu) osh_acts_by_gpu(e->acts);
    OSH_TRY(osh_acts_read_ahead(cx, e->acts, p->memory.n_loaders, p->memory.n_ahead));
    osh_acts_keep(e->acts,
                  p->schedule->batch_at[osh_memory_kept(p, p->memory.tier)]);
    e->r->acts = e->acts;
    if (osh_plan_by_sample(p->schedule, osh_threads(cx)))
        OSH_TRY(osh_lanes_new(cx, &e->lanes, p->in->graph));
    OSH_NEW(cx, e->in_memory, p->match->n_linears);
    OSH_NEW(cx, e->next, p->in->graph->n_weights);
    OSH_TRY(osh_steps_new(cx, &e->steps, p->in->graph));
    if (p->in->opt->prefetch) OSH_TRY(osh_steps_new(cx, &e->ahead, p->in->graph));
    OSH_TRY(engine_find_copies(cx, e));
    OSH_TRY(engine_find_batches(cx, e));
done:
    return rc;
}

static void engine_end(osh_ctx *cx, osh_engine *e, bool keep_files)
{
    size_t missed = e->p->in->device ? osh_arena_missed(e->p->in->device->arena) - e->missed : 0;
    if (missed && osh_device_detour(e->p->in->device, OSH_DETOUR_ELSEWHERE, (int64_t)missed))
        osh_log(cx, OSH_LOG_INFO, "%zu blocks of GPU memory were not at their planned addresses",
                missed);
    osh_emit_let_go(e->r->emitter);
    osh_prefetch_free(cx, e->prefetch);
    osh_steps_free(cx, e->steps);
    osh_steps_free(cx, e->ahead);
    osh_stats_free(cx, e->stats);
    osh_folding_free(cx, e->folding);
    osh_acts_free(cx, e->acts, keep_files);
    e->r->acts = NULL;
    osh_weights_free(cx, e->w);
    osh_lanes_free(cx, e->lanes);
    osh_batch_free(cx, e->batch);
    osh_free(cx, e->in_memory);
    osh_free(cx, e->next);
    osh_free(cx, e->copy_at);
    osh_free(cx, e->mine);
    osh_free(cx, e->dir);
}

static osh_status engine_open(osh_ctx *cx, osh_engine *e, const osh_range *r, const bool *values)
{
    osh_mem_class old = osh_mem_use(cx, osh_plan_work_class(e->p->in));
    osh_status rc = osh_stats_new(cx, &e->stats, e->p, r->first_subgraph, r->n_subgraphs, values);
    if (!rc) rc = osh_stats_divide(cx, e->stats, e->r->ranks);
    if (!rc) rc = osh_stats_keep(cx, e->stats, e->acts, e->dir);
    osh_mem_use(cx, old);
    return rc;
}

/* ---- passes over the batches ---- */

/* Returns the number of the visit in the run. The visits of all traversals are numbered one after
 * the other. */
static int64_t visit_number(const osh_budget *p, int visit)
{
    return (int64_t)p->schedule->traversal * osh_n_ranges(p->schedule) + visit;
}

/* Returns a number (for osh_acts_stage) that identifies the visit and the pass in which a value is
 * stored. `last`: true if the stored value is final, so that later visits read it. */
static uint64_t visit_stage(const osh_budget *p, int visit, bool last)
{
    return (uint64_t)visit_number(p, visit) * 2 + last;
}

static osh_status engine_store(osh_ctx *cx, osh_engine *e, const osh_step *s, int value, int64_t k,
                               osh_batch *b)
{
    const osh_budget *p = e->p;
    // True if the stored value is final. Values of the original model are computed only once.
    bool last = e->last || p->in->graph->values[value].quantized >= 0;
    osh_acts_stage(e->acts, visit_stage(p, e->index, last));
    osh_places_aim(p, e->index, osh_way_of(s), OSH_LAYOUT_ROWS,
                   value * p->schedule->n_batches + k);
    osh_status rc = osh_acts_put(cx, e->acts, value, b->first_sample, b->seqs.n, &b->values[value]);
    // cancels the planned address, in case osh_acts_put did not use it
    osh_places_aim_off(p);
    return rc;
}

static osh_status engine_ask(osh_ctx *cx, osh_engine *e, const osh_step *s, int64_t k)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = e->p;
    int64_t first = p->schedule->batch_at[k], n = p->schedule->batch_at[k + 1] - first;
    for (int v = osh_next_set(s->in, e->v0, e->v1); v < e->v1;
         v = osh_next_set(s->in, v + 1, e->v1))
        if (v != p->in->graph->input_ids) OSH_TRY(osh_acts_ask(cx, e->acts, v, first, n));
done:
    return rc;
}

/* Asks the activation store to prefetch the batches that follow the i-th batch of this rank.
 * Requests each batch only once. */
static osh_status engine_ask_next(osh_ctx *cx, osh_engine *e, const osh_step *s, int64_t i)
{
    osh_status rc = OSH_OK;
    int64_t ahead = osh_acts_ahead(e->acts);
    for (int64_t b = i ? i + ahead : 1; ahead && b <= i + ahead && b < e->n_mine; b++)
        OSH_TRY(engine_ask(cx, e, s, e->mine[b]));
done:
    return rc;
}

/* Hook of graph/exec.h for values: adds a value to the statistics and to the counts of experts. */
static osh_status engine_feed(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                              const osh_batch *b)
{
    osh_engine *e = user;
    osh_status rc = osh_coverage_feed(cx, e->r->coverage, value, x, b);
    if (rc) return rc;
    if (e->step->fold) return osh_folding_feed(cx, e->folding, value, x, b);
    return e->step->observe ? osh_stats_feed(cx, e->stats, value, x, b) : OSH_OK;
}

/* Fills e->batch with samples [first, first + n). Reuses the memory of the previous batch. */
static osh_status engine_begin_batch(osh_ctx *cx, osh_engine *e, int64_t first, int64_t n)
{
    const osh_budget *p = e->p;
    osh_batch_rows rows = {p->in->data.ids, p->in->data.offsets + first, n};
    osh_status rc = e->batch ? osh_batch_again(cx, e->batch, p->in->graph, &rows,
                                               (osh_exec_values){e->v0, e->v1})
                             : osh_batch_new_on(cx, &e->batch, p->in->device, p->in->graph, &rows);
    if (!rc) e->batch->first_sample = first;
    return rc;
}

/* Runs the i-th batch of this rank. */
static osh_status engine_run_batch(osh_ctx *cx, osh_engine *e, const osh_step *s, int64_t i)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = e->p;
    int64_t k = e->mine[i];
    int64_t first = p->schedule->batch_at[k], n = p->schedule->batch_at[k + 1] - first;
    const osh_graph *g = p->in->graph;
    int begin = e->v0, end = e->v1;
    bool collects = s->observe || s->fold;
    osh_exec_hooks hooks = {.value = collects || e->r->coverage ? engine_feed : NULL, .user = e};
    hooks.lanes = e->lanes;
    if (collects) hooks.seen = p->schedule->seen;
    osh_exec_span span = {g, s->first, s->n, s->run, s->out, {0, 0}, collects ? NULL : s->routed};
    if (!p->in->device) span.of = (osh_exec_values){begin, end}, span.joins = !p->schedule->apart;
    OSH_TRY(engine_begin_batch(cx, e, first, n));
    osh_batch *b = e->batch;
    for (int v = osh_next_set(s->in, begin, end); v < end;
         v = osh_next_set(s->in, v + 1, end)) {
        if (v == g->input_ids) continue;
        OSH_TRY(osh_acts_get(cx, &b->values[v], e->acts, &(osh_acts_rows){v, first, n},
                             s->consume[v], p->in->device));
    }
    OSH_TRY(engine_ask_next(cx, e, s, i));
    e->step = s;
    if (s->observe) osh_stats_first_look(e->stats, s->first_look);
    OSH_TRY(osh_exec_run(cx, &span, e->w, b, &hooks, true));
    for (int v = osh_next_set(s->consume, begin, end); v < end;
         v = osh_next_set(s->consume, v + 1, end))
        /* the store may now use the memory of these rows for the outputs */
        osh_acts_forget(cx, e->acts, v, first, n);
    for (int v = osh_next_set(s->out, begin, end); v < end;
         v = osh_next_set(s->out, v + 1, end))
        OSH_TRY(engine_store(cx, e, s, v, k, b));
done:
    return rc;
}

/* Runs the batches of this rank that belong to round number `round`, beginning with the batch of
 * index *i in e->mine. In a round, each rank runs one group of samples. Without ranks, all batches
 * belong to one round. */
static osh_status engine_run_round(osh_ctx *cx, osh_engine *e, const osh_step *s, int64_t *i,
                                   int64_t round)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = e->p;
    osh_progress *pr = &e->r->progress;
    int64_t n_ranks = osh_ranks_n(e->r->ranks);
    for (; *i < e->n_mine; ++*i) {
        int64_t k = e->mine[*i], group = osh_group_at(&p->in->groups, p->schedule->batch_at[k]);
        if (e->r->ranks && group / n_ranks > round) break;
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(osh_ranks_hear(cx, e->r->ranks));
        osh_mem_class old = osh_mem_use(cx, osh_plan_work_class(p->in));
        rc = engine_run_batch(cx, e, s, *i);
        osh_mem_use(cx, old);
        if (rc) goto done;
        e->r->mine.n_tokens += osh_batch_tokens(p->schedule, k);
        pr->done = p->schedule->batch_at[k + 1];
        osh_run_step(cx, e->r, (double)pr->done / (double)pr->total);
    }
done:
    return rc;
}

static osh_status engine_pass(osh_ctx *cx, osh_engine *e, const osh_range *r, const osh_step *s)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = e->p;
    osh_progress *pr = &e->r->progress;
    osh_visited now = {e->index, s, s->observe ? osh_stats_wanted(e->stats) : NULL};
    double share = 1;
    OSH_TRY(osh_cost_share(cx, &share, p, e->r->pace.cost, &now));
    osh_scope scope = osh_run_begin_part(
        cx, e->r, s->again ? OSH_PHASE_PROPAGATE : OSH_PHASE_OBSERVE, e->index, share);
    pr->done = 0, pr->total = p->in->data.n;
    e->last = s->again || (r->merged && !s->fold);
    if (p->schedule->visits[e->index].how.values_ahead || p->memory.n_loaders)
        OSH_TRY(osh_acts_open(cx, e->acts, s->in, s->out, p->schedule->batch_tokens));
    int64_t i = 0, n_rounds = osh_exchange_rounds(&p->in->groups, e->r->ranks);
    for (int64_t round = 0; round < n_rounds; round++) {
        OSH_TRY(engine_run_round(cx, e, s, &i, round));
        if (s->observe) OSH_TRY(osh_stats_exchange(cx, e->stats, round));
        if (s->fold) OSH_TRY(osh_folding_exchange(cx, e->folding, round));
    }
    if (e->batch) // a rank without samples has made no batch
        osh_batch_clear(cx, e->batch, p->in->graph, (osh_exec_values){e->v0, e->v1});
    OSH_TRY(osh_acts_close(cx, e->acts));
    osh_run_end(cx, e->r, scope);
done:
    if (rc) osh_note(cx, "%s pass over %s", pr->phase, r->name);
    return rc;
}

static osh_status engine_solve(osh_ctx *cx, osh_engine *e, const osh_range *r, bool keep)
{
    osh_status rc = OSH_OK;
    osh_mem_class old = osh_mem_use(cx, osh_plan_work_class(e->p->in));
    osh_engine_drop_copies(cx, e, r);
    rc = osh_stats_collect(cx, e->stats);
    osh_solving s = {.first = r->first_subgraph,
                     .n = r->n_subgraphs,
                     .stats = e->stats,
                     .w = e->w,
                     .in_memory = keep ? NULL : e->in_memory,
                     .apart = e->p->schedule->visits[e->index].how.apart};
    if (!rc) rc = osh_run_solve(cx, e->r, &s);
    osh_mem_use(cx, old);
    /* Another rank may have solved a Linear, so each rank must read the solved weights from the
     * output. */
    for (int i = r->l0; e->r->ranks && i < r->l1; i++) e->in_memory[i] = false;
    // drops the copies of weights that other ranks have solved
    if (!rc && e->r->ranks) osh_engine_drop_copies(cx, e, r);
    osh_stats_free(cx, e->stats), e->stats = NULL;
    e->r->progress.name = r->name;
    return rc;
}

static osh_status engine_fold_open(osh_ctx *cx, osh_engine *e, const osh_range *r)
{
    osh_mem_class old = osh_mem_use(cx, osh_plan_work_class(e->p->in));
    osh_status rc = osh_folding_new(cx, &e->folding, e->p, r);
    if (!rc) rc = osh_folding_divide(cx, e->folding, e->r->ranks);
    osh_mem_use(cx, old);
    return rc;
}

static osh_status engine_fold(osh_ctx *cx, osh_engine *e, const osh_range *r)
{
    osh_mem_class old = osh_mem_use(cx, osh_plan_work_class(e->p->in));
    osh_status rc = osh_run_fold(cx, e->r, e->folding, e->w);
    osh_mem_use(cx, old);
    osh_folding_free(cx, e->folding), e->folding = NULL;
    if (rc) osh_note(cx, "folding factors into %s", r->name);
    return rc;
}

/* Drops the values v of the visit for which keep[v - v0] is false. The interval [v0, v1) contains
 * all values in the store. */
static void engine_drop_but(osh_ctx *cx, osh_engine *e, const bool *keep)
{
    for (int v = e->v0; v < e->v1; v++)
        if (!keep[v - e->v0]) osh_acts_drop(cx, e->acts, v);
}

/* Executes one step of the visit whose range is r. */
static osh_status engine_step(osh_ctx *cx, osh_engine *e, const osh_range *r, const osh_step *s)
{
    switch (s->kind) {
    case OSH_STEP_OPEN: return engine_open(cx, e, r, s->values);
    case OSH_STEP_LOAD: return osh_engine_load(cx, e, r, s);
    case OSH_STEP_PASS: return engine_pass(cx, e, r, s);
    case OSH_STEP_SOLVE: return engine_solve(cx, e, r, s->keep);
    case OSH_STEP_RELOAD: return osh_engine_reload(cx, e, s);
    case OSH_STEP_RELEASE: osh_engine_release(cx, e, s); return OSH_OK;
    case OSH_STEP_DROP: engine_drop_but(cx, e, s->values + e->v0); return OSH_OK;
    case OSH_STEP_FOLD_OPEN: return engine_fold_open(cx, e, r);
    case OSH_STEP_FOLD: return engine_fold(cx, e, r);
    case OSH_N_STEP_KINDS: break;
    }
    return OSH_OK;
}

/* Executes the steps of visit e->index. */
static osh_status engine_visit(osh_ctx *cx, osh_engine *e)
{
    osh_status rc = OSH_OK;
    const osh_visit_state done = osh_engine_state(e);
    OSH_TRY(osh_visit_list(cx, e->steps, e->p->schedule, e->index, &done));
    for (int k = 0; k < osh_steps_n(e->steps); k++)
        OSH_TRY(engine_step(cx, e, osh_steps_range(e->steps), osh_steps_at(e->steps, k)));
done:
    return rc;
}

/* ---- all visits ---- */

/* Copies the embedding tables to the output. The run itself reads only some of their rows. The copy
 * reads all rows, so it also detects whether a source file was changed. */
static osh_status engine_copy_tables(osh_ctx *cx, osh_engine *e)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = e->p->in->graph;
    bool *which = NULL; // own [n_out]: true for output tensors that are copies of tables
    osh_scope scope = osh_profile_begin(cx, "copy", "tables");
    OSH_NEW(cx, which, e->p->manifest->n_out);
    for (int i = 0; i < g->n_nodes; i++)
        if (osh_is_picked(g, &g->nodes[i], 0) && e->copy_at[g->nodes[i].w[0]] >= 0)
            which[e->copy_at[g->nodes[i].w[0]]] = true;
    OSH_TRY(osh_stream_copies(cx, e->r->emitter, which));
    for (int i = 0; i < g->n_nodes && !osh_ranks_me(e->r->ranks); i++) {
        if (!osh_is_picked(g, &g->nodes[i], 0)) continue;
        const osh_weight *w = &g->weights[g->nodes[i].w[0]];
        for (int64_t s = 0; s == 0 || s < w->n_shards; s++)
            OSH_TRY(osh_checkpoint_see(cx, e->p->in->ck, w->n_shards ? w->shards[s] : w->tensor));
    }
done:
    osh_profile_end(cx, scope);
    osh_free(cx, which);
    return rc;
}

/* True if a resumed run can use the stored values. For this, all of them must be on the disk. False
 * with several ranks, because the next run may have another number of ranks. */
static bool values_are_on_disk(const osh_engine *e)
{
    const osh_budget *p = e->p;
    return !e->r->ranks && p->memory.tier == OSH_TIER_DISK && !p->memory.n_kept;
}

/* Ends the current visit. Syncs the values that later visits read, writes the record of the
 * subgraph, and then drops all other values. did: true if the visit has solved a Linear or computed
 * factors. */
static osh_status visit_finish(osh_ctx *cx, osh_engine *e, bool did)
{
    osh_status rc = OSH_OK;
    osh_range r = osh_range_at(e->p->schedule, e->index);
    /* keep: own [v1 - v0], true for values that later visits read */
    bool disk = values_are_on_disk(e), *keep = NULL;
    OSH_NEW(cx, keep, r.v1 - r.v0);
    for (int i = 0; i < r.n_live_out; i++) {
        keep[r.live_out[i] - r.v0] = true;
        if (osh_acts_has(e->acts, r.live_out[i]))
            OSH_TRY(osh_acts_sync(cx, e->acts, r.live_out[i]));
    }
    OSH_TRY(osh_emit_check_source(cx, e->r->emitter, false));
    int64_t generation = disk && r.propagate ? visit_number(e->p, e->index) : -1;
    if (did || disk) OSH_TRY(osh_emit_subgraph(cx, e->r->emitter, e->index, generation));
    engine_drop_but(cx, e, keep);
done:
    osh_free(cx, keep);
    return rc;
}

/* Returns the index of the visit that computes the value. */
static int visit_of_value(const osh_budget *p, int value)
{
    int v = 0;
    while (v + 1 < osh_n_ranges(p->schedule) &&
           p->schedule->parts->parts[v + 1].first <= p->in->graph->values[value].producer)
        v++;
    return v;
}

/* Looks for the last visit of an earlier run, and for its stored values on the disk. Sets *start to
 * the next visit if all these values are complete, and otherwise to 0. */
static osh_status engine_take_up(osh_ctx *cx, osh_engine *e, int *start)
{
    osh_status rc = OSH_OK;
    int64_t generation = -1;
    int last = osh_emit_boundary(e->r->emitter, &generation);
    bool found = last >= 0 && last + 1 < osh_n_ranges(e->p->schedule) &&
                 values_are_on_disk(e) && generation == visit_number(e->p, last);
    *start = 0;
    if (!found) goto done;
    osh_range r = osh_range_at(e->p->schedule, last);
    for (int i = 0; i < r.n_live_out && found; i++) {
        int v = r.live_out[i];
        if (v == e->p->in->graph->input_ids) continue;
        OSH_TRY(osh_acts_adopt(cx, e->acts, v, visit_stage(e->p, visit_of_value(e->p, v), true),
                               &found));
    }
    if (found) *start = last + 1;
    osh_log(cx, OSH_LOG_INFO, "values after %s %s", r.name,
            found ? "are read from the disk"
                  : "are incomplete on the disk: starting from the tokens");
    for (int i = 0; i < r.n_live_out && !found; i++) osh_acts_drop(cx, e->acts, r.live_out[i]);
done:
    return rc;
}

static osh_status engine_visit_all(osh_ctx *cx, osh_engine *e)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = e->p;
    osh_progress *pr = &e->r->progress;
    const osh_visit_state done = osh_engine_state(e);
    int n = osh_n_ranges(p->schedule), start;
    int all = p->schedule->n_traversals ? p->schedule->n_traversals * n : n;
    pr->n_steps = all + 1; // one more step, the sealing of the output
    OSH_TRY(engine_take_up(cx, e, &start));
    if (!osh_run_solved(e->r, 0, p->schedule->parts->n) ||
        !osh_folds_known(p->schedule, 0, p->schedule->parts->n))
        OSH_TRY(engine_copy_tables(cx, e));
    for (int i = start; i < n; i++) {
        osh_range r = osh_range_at(p->schedule, i);
        int left = p->schedule->parts->n - r.first_subgraph;
        if (osh_run_solved(e->r, r.first_subgraph, left) &&
            osh_folds_known(p->schedule, r.first_subgraph, left))
            break; // an earlier run has solved all Linears from this visit to the last
        if (!r.observe && !r.propagate && !r.fold) continue;
        bool did = !done.solved(e, &r, NULL) || !done.folded(e, &r);
        e->index = i, e->began = false, e->v0 = r.v0, e->v1 = r.v1;
        pr->step = visit_number(p, i) + 1, pr->name = r.name;
        osh_run_no_error(e->r);
        osh_run_entered(cx, e->r, r.name);
        OSH_TRY(engine_visit(cx, e));
        OSH_TRY(visit_finish(cx, e, did));
        osh_run_finished(cx, e->r, r.name);
    }
done:
    return rc;
}

/* ---- a single visit ---- */

osh_status osh_run_visit_alone(osh_ctx *cx, osh_run *r, int index)
{
    osh_status rc = OSH_OK;
    osh_range range = osh_range_at(r->budget->schedule, index);
    osh_engine e = {.r = r, .p = r->budget, .index = index, .v0 = range.v0, .v1 = range.v1};
    r->progress.n_steps = r->progress.step = 1, r->progress.name = range.name;
    osh_run_no_error(r);
    osh_run_entered(cx, r, range.name);
    OSH_TRY(engine_begin(cx, &e));
    OSH_TRY(osh_made_up(cx, e.acts, r->budget, &range));
    OSH_TRY(engine_visit(cx, &e));
    OSH_TRY(osh_emit_wait(cx, r->emitter));
    osh_run_finished(cx, r, range.name);
done:
    engine_end(cx, &e, false);
    return rc;
}

osh_status osh_run_calibrated(osh_ctx *cx, osh_run *r)
{
    osh_status rc = OSH_OK;
    osh_engine e = {.r = r, .p = r->budget};
    osh_coverage_free(cx, r->coverage); // drops the counts of the previous traversal
    OSH_TRY(osh_coverage_new(cx, &r->coverage, r->budget));
    OSH_TRY(engine_begin(cx, &e));
    OSH_TRY(engine_visit_all(cx, &e));
    OSH_TRY(osh_coverage_merge(cx, r->coverage, r->ranks));
    OSH_TRY(osh_times_gather(cx, r->ranks, &r->times, &r->mine));
done:
    engine_end(cx, &e, rc && !r->ranks);
    if (!rc) rc = osh_ranks_barrier(cx, r->ranks); // no rank has files of values after this barrier
    return rc;
}
