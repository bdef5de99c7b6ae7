/* loading.c - weights of a visit: read, or taken from what was read ahead; written where they stay dense; those of the
 * output where they are solved; gone behind the visit. */
#include "run/engine.h"

#include <string.h>

#include "plan/lookup.h"
#include "plan/traversals.h"

bool osh_engine_solved(const void *user, const osh_range *r, const bool *values)
{
    const osh_engine *e = user;
    for (int i = r->l0; i < r->l1; i++) {
        const osh_linear *l = &e->p->linears[i];
        if (l->wants && (!values || values[l->input]) && !e->r->results[i].done) return false;
    }
    return true;
}

bool osh_engine_folded(const void *user, const osh_range *r)
{
    return osh_folds_known(((const osh_engine *)user)->p, r->first_subgraph, r->n_subgraphs);
}

typedef struct look { // at the first load of a visit
    const osh_engine *e;
    bool *want, seen;
} look;

static osh_status look_load(osh_ctx *cx, void *user, const osh_range *r, const osh_step *s, const bool *values)
{
    look *l = user;
    (void)cx;
    if (!l->seen) osh_step_wants(l->want, l->e->p, r, s, values);
    l->seen = true;
    return OSH_OK;
}

static bool look_solved(const void *user, const osh_range *r, const bool *values)
{
    return osh_engine_solved(((const look *)user)->e, r, values);
}

static bool look_folded(const void *user, const osh_range *r)
{
    return osh_engine_folded(((const look *)user)->e, r);
}

static osh_status read_ahead(osh_ctx *cx, osh_engine *e)
{
    osh_status rc = OSH_OK;
    look l = {.e = e, .want = e->next};
    osh_visitor v = {.load = look_load, .solved = look_solved, .folded = look_folded, .user = &l};
    bool any = false;
    osh_range next = osh_range_at(e->p, e->index + 1);
    memset(e->next + next.w0, 0, (size_t)(next.w1 - next.w0) * sizeof *e->next);
    OSH_TRY(osh_visit_walk(cx, e->p, e->index + 1, &v));
    for (int i = next.w0; i < next.w1; i++) any |= e->next[i] &= !e->w->w[i];
    if (any)
        OSH_TRY(osh_prefetch_start(cx, &e->prefetch, e->p, e->next, e->index + 1, osh_engine_solved(e, &next, NULL)));
done:
    return rc;
}

static bool waits_for_solve(const osh_engine *e, int weight)
{
    for (int i = osh_first_user(e->p, weight); i >= 0; i = osh_next_user(e->p, i))
        if (e->p->linears[i].wants && !e->r->results[i].done) return true;
    return false;
}

static bool is_folded(const osh_plan *p, int weight)
{
    int64_t tensor = p->graph->weights[weight].tensor;
    return tensor >= 0 && osh_is_folded(p, tensor);
}

/* One weight to where it is used. What stays dense is written from here: no byte of it is read twice. */
static osh_status load_one(osh_ctx *cx, osh_engine *e, int weight, osh_way way)
{
    osh_status rc = OSH_OK;
    osh_weights *w = e->w;
    const osh_tensor *in_host;
    osh_mem_class old = osh_mem_use(cx, osh_plan_work_class(e->p));
    if (!w->w[weight]) {
        osh_places_aim(e->p, e->index, way, OSH_LAYOUT_WEIGHT, weight);
        rc = osh_weight_place(cx, w, e->p->graph, e->p->ck, weight);
    }
    osh_mem_use(cx, old);
    if (rc) goto done;
    in_host = w->device ? w->host[weight] : w->w[weight]; // NULL: it was, in an earlier load
    if (in_host && e->copy_at[weight] >= 0 && !is_folded(e->p, weight)) // that one is copied when it is changed
        OSH_TRY(osh_emit_copy_from(cx, e->r->emitter, e->copy_at[weight], in_host->data));
done:
    return rc;
}

/* What the output has, or soon has, of the weights in host memory goes, but for what a solve reads. */
void osh_engine_drop_copies(osh_ctx *cx, osh_engine *e, const osh_range *r)
{
    if (!e->w->device) return;
    osh_emit_let_go(e->r->emitter);
    for (int i = r->w0; i < r->w1; i++)
        if (e->w->host[i] && !waits_for_solve(e, i)) osh_tensor_free(cx, e->w->host[i]), e->w->host[i] = NULL;
}

/* Of a Linear that is solved: from the output, through host memory. */
static osh_status reload_one(osh_ctx *cx, osh_engine *e, int linear)
{
    osh_status rc = OSH_OK;
    const osh_linear *l = &e->p->linears[linear];
    osh_tensor *w = e->w->w[l->weight], *t = NULL; // own
    osh_tensor *bias = l->bias >= 0 ? e->w->w[e->p->graph->nodes[l->node].w[1]] : NULL; // view
    e->in_memory[linear] = true;
    if (!w->device) {
        OSH_TRY(osh_emit_reload(cx, e->r->emitter, linear, w, bias));
        goto done;
    }
    OSH_TRY(osh_tensor_new(cx, &t, w->dtype, w->ndim, w->shape));
    OSH_TRY(osh_emit_reload(cx, e->r->emitter, linear, t, NULL)); // nothing with a bias learns on a card
    OSH_TRY(osh_tensor_copy(cx, w, t));
done:
    osh_tensor_free(cx, t);
    return rc;
}

/* As an earlier traversal left it. */
static osh_status load_as_left(osh_ctx *cx, osh_engine *e, int weight)
{
    osh_status rc = OSH_OK;
    for (int i = osh_first_user(e->p, weight); i >= 0; i = osh_next_user(e->p, i))
        if (osh_is_done_before(e->p, &e->p->linears[i]) && !e->in_memory[i]) OSH_TRY(reload_one(cx, e, i));
done:
    return rc;
}

typedef struct reading { // of the range's weights
    const osh_engine *e;
    int w0;
} reading;

/* What is there, or is made of stored bytes in other ways, is left to load_one. */
static osh_status read_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    const reading *j = user;
    const osh_engine *e = j->e;
    int i = j->w0 + (int)chunk;
    (void)worker;
    if (!e->next[i] || e->w->w[i] || e->w->host[i] || !osh_weight_is_stored(e->p->graph, e->p->ck, i)) return OSH_OK;
    return osh_weight_load(cx, &e->w->host[i], e->p->graph, e->p->ck, i);
}

/* On all threads: the pages that the system gives for a weight take as long as its bytes do. */
static osh_status read_stored(osh_ctx *cx, osh_engine *e, const osh_range *r)
{
    osh_mem_class old = osh_mem_use(cx, osh_plan_work_class(e->p));
    osh_status rc = e->w->device ? OSH_OK : osh_parallel_for(cx, r->w1 - r->w0, read_chunk, &(reading){e, r->w0});
    osh_mem_use(cx, old);
    return rc;
}

osh_status osh_engine_load(osh_ctx *cx, void *user, const osh_range *r, const osh_step *s, const bool *values)
{
    osh_status rc = OSH_OK;
    osh_engine *e = user;
    osh_scope scope = osh_profile_begin(cx, "load", r->name);
    if (!e->began) { // later, it is the next visit's
        OSH_TRY(osh_prefetch_take(cx, e->prefetch, e->w));
        osh_prefetch_free(cx, e->prefetch), e->prefetch = NULL;
    }
    memset(e->next + r->w0, 0, (size_t)(r->w1 - r->w0) * sizeof *e->next);
    osh_step_wants(e->next, e->p, r, s, values);
    OSH_TRY(read_stored(cx, e, r));
    for (int i = r->w0; i < r->w1; i++) {
        OSH_TRY(osh_check_interrupt(cx));
        if (e->next[i]) OSH_TRY(load_one(cx, e, i, osh_engine_way(s)));
        if (e->next[i]) OSH_TRY(load_as_left(cx, e, i));
    }
    if (!e->began && e->p->memory.visits[e->index].prefetch) OSH_TRY(read_ahead(cx, e));
    e->began = true;
done:
    osh_profile_end(cx, scope);
    return rc;
}

osh_status osh_engine_reload(osh_ctx *cx, void *user, const osh_range *r, int first, int n)
{
    osh_status rc = OSH_OK;
    osh_engine *e = user;
    const osh_plan *p = e->p;
    if (!p->propagate_error) goto done;
    osh_span own = osh_linears_of_nodes(p, first, n);
    for (int i = own.first; i < own.end; i++) {
        const osh_linear *l = &p->linears[i];
        if (!l->wants) continue;
        if (e->in_memory[i] || !e->r->results[i].done || !osh_linear_propagates(p, l)) continue;
        OSH_TRY(reload_one(cx, e, i));
    }
done:
    return rc;
}

osh_status osh_engine_release(osh_ctx *cx, void *user, int first, int n)
{
    osh_engine *e = user;
    osh_emit_let_go(e->r->emitter);
    osh_weights_release(cx, e->w, e->p->graph, first, n);
    osh_span own = osh_linears_of_nodes(e->p, first, n);
    for (int i = own.first; i < own.end; i++) e->in_memory[i] = false;
    return OSH_OK;
}
