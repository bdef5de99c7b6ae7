/* loading.c - loads the weights of a visit, and releases them after the visit.
 *
 * Weights are read from the checkpoint, or have been prefetched (prefetch.h). A weight that stays
 * dense is written to the output as soon as it is loaded. The weight of a solved Linear is read
 * from the output. */
#include "run/engine.h"

#include <string.h>

#include "match/lookup.h"
#include "plan/traversals.h"

static bool engine_has_solved(const void *user, const osh_range *r, const bool *values)
{
    const osh_engine *e = user;
    for (int i = r->l0; i < r->l1; i++) {
        const osh_linear *l = &e->p->match->linears[i];
        if (osh_wants(e->p->schedule, l) && (!values || values[l->input]) && !e->r->results[i].done)
            return false;
    }
    return true;
}

static bool engine_has_folded(const void *user, const osh_range *r)
{
    return osh_folds_known(((const osh_engine *)user)->p->schedule, r->first_subgraph,
                           r->n_subgraphs);
}

osh_visit_state osh_engine_state(const osh_engine *e)
{
    return (osh_visit_state){engine_has_solved, engine_has_folded, e};
}

/* True if the range has Linears that need statistics, and an earlier run has solved all of them.
 * (Without such Linears, the visit has no part that a run could skip.) */
static bool engine_was_solved(const osh_engine *e, const osh_range *r)
{
    bool any = false;
    for (int i = r->l0; i < r->l1; i++) any |= osh_wants(e->p->schedule, &e->p->match->linears[i]);
    return any && engine_has_solved(e, r, NULL);
}

/* Begins to prefetch the weights of the next visit's first load, if they are not in memory. */
static osh_status engine_read_ahead(osh_ctx *cx, osh_engine *e)
{
    osh_status rc = OSH_OK;
    const osh_visit_state done = osh_engine_state(e);
    osh_range next = osh_range_at(e->p->schedule, e->index + 1);
    osh_steps *steps = e->ahead; // view
    bool any = false;
    OSH_TRY(osh_visit_list(cx, steps, e->p->schedule, e->index + 1, &done));
    memset(e->next + next.w0, 0, (size_t)(next.w1 - next.w0) * sizeof *e->next);
    const osh_step *load = osh_steps_first(steps, OSH_STEP_LOAD);
    // The part with which the next visit begins. It is a later part if an earlier run has done the
    // first.
    osh_way begins = engine_was_solved(e, &next)             ? OSH_WAY_AGAIN
                     : next.fold && load && !load->fold ? OSH_WAY_FIRST
                                                        : OSH_WAY_AHEAD;
    if (load) osh_step_wants(e->next, e->p->schedule, osh_steps_range(steps), load);
    for (int i = next.w0; i < next.w1; i++) any |= e->next[i] &= !e->w->w[i];
    if (any)
        OSH_TRY(osh_prefetch_start(cx, &e->prefetch, e->p, e->next, e->index + 1, begins));
done:
    return rc;
}

/* True if a Linear that uses this weight must still be solved. */
static bool engine_waits_for_solve(const osh_engine *e, int weight)
{
    for (int i = osh_first_user(e->p->match, weight); i >= 0; i = osh_next_user(e->p->match, i))
        if (osh_wants(e->p->schedule, &e->p->match->linears[i]) && !e->r->results[i].done)
            return true;
    return false;
}

static bool weight_is_folded(const osh_budget *p, int weight)
{
    int64_t tensor = p->in->graph->weights[weight].tensor;
    return tensor >= 0 && osh_is_folded(p->rewrites, tensor);
}

/* Loads a weight to the GPU. Without a GPU, loads it to host memory. If the weight stays dense,
 * also writes it to the output, so that the checkpoint is read only once. */
static osh_status engine_load_weight(osh_ctx *cx, osh_engine *e, int weight, osh_way way)
{
    osh_status rc = OSH_OK;
    osh_weights *w = e->w;
    const osh_tensor *in_host;
    osh_mem_class old = osh_mem_use(cx, osh_plan_work_class(e->p->in));
    if (!w->w[weight]) {
        osh_places_aim(e->p, e->index, way, OSH_LAYOUT_WEIGHT, weight);
        rc = osh_weight_place(cx, w, e->p->in->graph, e->p->in->ck, weight);
    }
    osh_mem_use(cx, old);
    if (rc) goto done;
    // the loaded weight in host memory; NULL if an earlier step has loaded it to the GPU
    in_host = w->device ? w->host[weight] : w->w[weight];
    /* if factors are folded into the weight, it is copied to the output later */
    if (in_host && e->copy_at[weight] >= 0 && !weight_is_folded(e->p, weight))
        OSH_TRY(osh_emit_copy_from(cx, e->r->emitter, e->copy_at[weight], in_host->data));
done:
    return rc;
}

void osh_engine_drop_copies(osh_ctx *cx, osh_engine *e, const osh_range *r)
{
    if (!e->w->device) return;
    osh_emit_let_go(e->r->emitter);
    for (int i = r->w0; i < r->w1; i++)
        if (e->w->host[i] && !engine_waits_for_solve(e, i))
            osh_tensor_free(cx, e->w->host[i]), e->w->host[i] = NULL;
}

/* Reads the weight of a solved Linear from the output. With a GPU, reads it to host memory first,
 * and then copies it to the GPU. */
static osh_status engine_reload_linear(osh_ctx *cx, osh_engine *e, int linear)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = &e->p->match->linears[linear];
    osh_tensor *w = e->w->w[l->weight], *t = NULL; // own
    osh_tensor *bias =
        l->out.bias >= 0 ? e->w->w[e->p->in->graph->nodes[l->node].w[1]] : NULL; // view
    e->in_memory[linear] = true;
    if (!w->device) {
        OSH_TRY(osh_emit_reload(cx, e->r->emitter, linear, w, bias));
        goto done;
    }
    OSH_TRY(osh_tensor_new(cx, &t, w->dtype, w->ndim, w->shape));
    OSH_TRY(osh_emit_reload(cx, e->r->emitter, linear, t,
                            NULL)); // NULL: no bias is read, because no biases are learned on a GPU
    OSH_TRY(osh_tensor_copy(cx, w, t));
done:
    osh_tensor_free(cx, t);
    return rc;
}

/* If an earlier traversal has solved a Linear that uses this weight, reads the solved weight from
 * the output. */
static osh_status engine_load_as_left(osh_ctx *cx, osh_engine *e, int weight)
{
    osh_status rc = OSH_OK;
    for (int i = osh_first_user(e->p->match, weight); i >= 0; i = osh_next_user(e->p->match, i))
        if (osh_is_done_before(e->p->schedule, &e->p->match->linears[i]) && !e->in_memory[i])
            OSH_TRY(engine_reload_linear(cx, e, i));
done:
    return rc;
}

/* Without a GPU: reads those weights of e->next that are stored unchanged. engine_load_weight loads
 * the others. */
static osh_status engine_read_stored(osh_ctx *cx, osh_engine *e, const osh_range *r)
{
    osh_mem_class old = osh_mem_use(cx, osh_plan_work_class(e->p->in));
    osh_weight_set set = {e->next, r->w0, r->w1};
    osh_status rc =
        e->w->device ? OSH_OK : osh_weights_read(cx, e->w, e->p->in->graph, e->p->in->ck, &set);
    osh_mem_use(cx, old);
    return rc;
}

osh_status osh_engine_load(osh_ctx *cx, osh_engine *e, const osh_range *r, const osh_step *s)
{
    osh_status rc = OSH_OK;
    osh_scope scope = osh_profile_begin(cx, "load", r->name);
    // Weights are only prefetched for the first load of a visit. After that, e->prefetch is for the
    // next visit.
    if (!e->began) {
        OSH_TRY(osh_prefetch_take(cx, e->prefetch, e->w));
        osh_prefetch_free(cx, e->prefetch), e->prefetch = NULL;
    }
    memset(e->next + r->w0, 0, (size_t)(r->w1 - r->w0) * sizeof *e->next);
    osh_step_wants(e->next, e->p->schedule, r, s);
    OSH_TRY(engine_read_stored(cx, e, r));
    for (int i = r->w0; i < r->w1; i++) {
        OSH_TRY(osh_check_interrupt(cx));
        if (e->next[i]) OSH_TRY(engine_load_weight(cx, e, i, osh_way_of(s)));
        if (e->next[i]) OSH_TRY(engine_load_as_left(cx, e, i));
    }
    bool prefetch = e->p->schedule->visits[e->index].how.prefetch;
    if (!e->began && prefetch) OSH_TRY(engine_read_ahead(cx, e));
    e->began = true;
done:
    osh_profile_end(cx, scope);
    return rc;
}

osh_status osh_engine_reload(osh_ctx *cx, osh_engine *e, const osh_step *s)
{
    osh_status rc = OSH_OK;
    const osh_budget *p = e->p;
    if (!p->in->propagate_error) goto done;
    osh_span own = osh_linears_of_nodes(p->match, s->first, s->n);
    for (int i = own.first; i < own.end; i++) {
        const osh_linear *l = &p->match->linears[i];
        if (!osh_wants(e->p->schedule, l)) continue;
        if (e->in_memory[i] || !e->r->results[i].done || !osh_linear_propagates(p->match, l))
            continue;
        // NULL: the weight is not loaded, because no node of the visit reads the output of the
        // Linear
        if (e->w->w[l->weight]) OSH_TRY(engine_reload_linear(cx, e, i));
    }
done:
    return rc;
}

void osh_engine_release(osh_ctx *cx, osh_engine *e, const osh_step *s)
{
    osh_emit_let_go(e->r->emitter);
    osh_weights_release(cx, e->w, e->p->in->graph, s->first, s->n);
    osh_span own = osh_linears_of_nodes(e->p->match, s->first, s->n);
    for (int i = own.first; i < own.end; i++) e->in_memory[i] = false;
}
