/* loading.c - loads the weights of a visit, and releases them after the visit.
 *
 * Weights are read from the checkpoint, or have been prefetched. A weight that stays dense is
 * written to the output as soon as it is loaded. The weight of a solved Linear is read from the
 * output. The weights of the next visit are prefetched on one thread, as one item of a reader. More
 * threads would not be faster, because the file system also prefetches. */
#include "run/engine.h"

#include <string.h>

#include "base/ahead.h"
#include "match/lookup.h"
#include "plan/traversals.h"

/* ---- weights of the next visit ---- */

struct osh_prefetch {
    osh_read_ahead *reader;       // own
    const osh_graph *g;       // view
    const osh_checkpoint *ck; // view
    int w0, w1;               // the interval [w0, w1) contains the weights of the next visit
    bool *want;               // own [w1 - w0]: true for weights that are prefetched
    osh_weights *w; // own: the weights that were read (w->host), and their blocks on the GPU (w->w)
    /* GPU to which the weights are copied; NULL: they are only read to host memory. */
    osh_device *device;       // view
};

static osh_status prefetch_read(osh_ctx *cx, osh_prefetch *f, int i)
{
    osh_status rc = OSH_OK;
    const osh_tensor *h, *d = f->w->w[i];
    OSH_TRY(osh_weight_load(cx, &f->w->host[i], f->g, f->ck, i));
    h = f->w->host[i];
    if (d)
        OSH_TRY(f->device->type->put_ahead(cx, f->device, d->data, h->data, osh_tensor_bytes(h)));
done:
    return rc;
}

/* Reads all weights that f->want marks. Callback for the member `read` of osh_read_items. */
static osh_status prefetch_read_all(osh_ctx *cx, void *user, int item)
{
    osh_status rc = OSH_OK;
    osh_prefetch *f = user;
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    for (int i = f->w0; i < f->w1; i++) {
        if (osh_read_ahead_stops(cx, f->reader)) break;
        if (f->want[i - f->w0]) OSH_TRY(prefetch_read(cx, f, i));
    }
done:
    osh_mem_use(cx, old);
    return rc;
}

/* True if the weight may get a block on the GPU before visit number `visit` begins. For this, the
 * plan must have an address for the weight in the part OSH_WAY_AHEAD.
 * A resumed run may begin the visit with a later part, `begins`. For example, it begins with the
 * second pass (OSH_WAY_AGAIN) if all Linears of the visit are solved. If the plan also has an
 * address for the weight in the part `begins`, the result is false, because the visit itself loads
 * the weight there. */
static bool prefetch_has_place(const osh_budget *p, int visit, osh_way begins, int weight)
{
    const osh_layout_kind kind = OSH_LAYOUT_WEIGHT;
    if (!p->memory.places) return true;
    return osh_places_has(p, visit, OSH_WAY_AHEAD, kind, weight) &&
           (begins == OSH_WAY_AHEAD || !osh_places_has(p, visit, begins, kind, weight));
}

/* Allocates blocks on the GPU for all weights that are prefetched. If one block does not fit,
 * allocates none. The caller's thread allocates the blocks, because the addresses must be the same
 * in each run. */
static void prefetch_take_places(osh_ctx *cx, osh_prefetch *f, const osh_budget *p, int visit,
                                 osh_way begins)
{
    bool all = true;
    for (int i = f->w0; i < f->w1 && all; i++) {
        if (!f->want[i - f->w0] || !prefetch_has_place(p, visit, begins, i)) continue;
        osh_places_aim(p, visit, OSH_WAY_AHEAD, OSH_LAYOUT_WEIGHT, i);
        const osh_entry *e = osh_weight_entry(f->g, f->ck, i);
        all = !osh_tensor_new_on(cx, &f->w->w[i], (osh_where){f->device, OSH_LIFE_LONG}, e->dtype,
                                 e->ndim, e->shape);
    }
    if (all) return;
    osh_error_clear(cx); // this is no error, because the visit itself can load the weights
    for (int i = f->w0; i < f->w1; i++) osh_tensor_free(cx, f->w->w[i]), f->w->w[i] = NULL;
    f->device = NULL;
}

/* Begins to read weights for visit number `visit`. want [graph weights]: true for the weights to
 * read. begins: the part with which the visit begins, which is OSH_WAY_AHEAD except in a resumed
 * run that skips parts. The weights count as host memory until prefetch_take. p must outlive *out.
 * If the visit before `visit` has prefetch_device, this call also allocates blocks on the GPU, and
 * the thread copies the weights to these blocks. If the blocks do not fit, the weights are only
 * read to host memory. */
static osh_status prefetch_start(osh_ctx *cx, osh_prefetch **out, const osh_budget *p,
                                 const bool *want, int visit, osh_way begins)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    osh_device *device = p->schedule->visits[visit - 1].how.prefetch_device ? p->in->device : NULL;
    osh_prefetch *f = NULL; // own
    OSH_NEW(cx, f, 1);
    f->g = g, f->ck = p->in->ck, f->device = device;
    osh_range r = osh_range_at(p->schedule, visit);
    f->w0 = r.w0, f->w1 = r.w1;
    OSH_NEW(cx, f->want, r.w1 - r.w0);
    memcpy(f->want, want + r.w0, (size_t)(r.w1 - r.w0) * sizeof *want);
    OSH_TRY(osh_weights_new(cx, &f->w, g));
    if (device) prefetch_take_places(cx, f, p, visit, begins);
    OSH_TRY(osh_device_type_of(f->device)->follow(cx, f->device));
    OSH_TRY(osh_read_ahead_start(cx, &f->reader,
                                 &(osh_read_items){prefetch_read_all, f, 1, .ahead = true}));
    *out = f, f = NULL;
done:
    osh_prefetch_free(cx, f);
    return rc;
}

/* Waits for the prefetch thread. Passes ownership of the weights to `w`, except of weights that `w`
 * already has. Without a GPU, the memory class of the weights becomes OSH_MEM_DEVICE. With a GPU,
 * the weights become the host copies of `w` (w->host), and `w` also gets the blocks of the weights
 * on the GPU. If the thread failed, fails with its error. f may be NULL. */
static osh_status prefetch_take(osh_ctx *cx, osh_prefetch *f, osh_weights *w)
{
    osh_status rc = OSH_OK;
    if (!f) goto done;
    OSH_TRY(osh_read_ahead_wait(cx, f->reader));
    OSH_TRY(osh_device_type_of(f->device)->fence(cx, f->device));
    for (int i = f->w0; i < f->w1; i++) {
        osh_tensor **from = &f->w->host[i], **to = w->device ? &w->host[i] : &w->w[i];
        if (!*from || w->w[i] || *to) continue;
        *to = *from, *from = NULL; // passes ownership
        w->w[i] = w->device ? f->w->w[i] : *to, f->w->w[i] = NULL; // passes ownership
        if (w->device) continue;
        osh_mem_move(cx, w->w[i]->data, OSH_MEM_DEVICE);
        osh_mem_move(cx, w->w[i], OSH_MEM_DEVICE);
    }
done:
    return rc;
}

void osh_prefetch_free(osh_ctx *cx, osh_prefetch *f)
{
    if (!f) return;
    osh_read_ahead_free(cx, f->reader);
    osh_weights_free(cx, f->w);
    osh_free(cx, f->want);
    osh_free(cx, f);
}

/* ---- weights of the current visit ---- */

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
    // the part with which the next visit begins (an earlier run may have done the parts before it)
    osh_way begins = engine_was_solved(e, &next)             ? OSH_WAY_AGAIN
                     : next.fold && load && !load->fold ? OSH_WAY_FIRST
                                                        : OSH_WAY_AHEAD;
    if (load) osh_step_wants(e->next, e->p->schedule, osh_steps_range(steps), load);
    for (int i = next.w0; i < next.w1; i++) any |= e->next[i] &= !e->w->w[i];
    if (any)
        OSH_TRY(prefetch_start(cx, &e->prefetch, e->p, e->next, e->index + 1, begins));
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
    osh_tensor *w = e->w->w[l->weight]; // view
    osh_tensor *t = NULL, *b = NULL;    // own: the weight and the bias in host memory
    osh_tensor *bias =
        l->out.bias >= 0 ? e->w->w[e->p->in->graph->nodes[l->node].w[1]] : NULL; // view
    e->in_memory[linear] = true;
    if (!w->device) {
        OSH_TRY(osh_emit_reload(cx, e->r->emitter, linear, w, bias));
        goto done;
    }
    OSH_TRY(osh_tensor_new(cx, &t, w->dtype, w->ndim, w->shape));
    if (bias) OSH_TRY(osh_tensor_new(cx, &b, bias->dtype, bias->ndim, bias->shape));
    OSH_TRY(osh_emit_reload(cx, e->r->emitter, linear, t, b));
    OSH_TRY(osh_tensor_copy(cx, w, t));
    if (bias) OSH_TRY(osh_tensor_copy(cx, bias, b));
done:
    osh_tensor_free(cx, t);
    osh_tensor_free(cx, b);
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

/* Without a GPU: reads those weights marked in e->next that are stored unchanged.
 * engine_load_weight loads the other marked weights. */
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
        OSH_TRY(prefetch_take(cx, e->prefetch, e->w));
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
