/* forward.c - runs a whole model over a dataset, subgraph by subgraph. Inputs and outputs of
 * quantized Linears are rounded if their scheme asks for it. */
#include "eval/forward.h"

#include <string.h>

#include "budget/cost.h"
#include "match/cache.h"
#include "plan/exchange.h"
#include "schedule/visit.h"
#include "tensor/device.h"

/* Returns the name of the module that has the tensors of a Linear. Modules of the class
 * SharedLinear share a weight: the first module with this weight has the tensors. */
static const char *linear_holder(const osh_graph *g, int node)
{
    int holder = node;
    if (!strcmp(g->modules[g->nodes[node].module].cls, "SharedLinear"))
        for (int i = node; i-- > 0;)
            if (osh_node_is(&g->nodes[i], OSH_OP_LINEAR) &&
                g->nodes[i].w[0] == g->nodes[node].w[0]) holder = i;
    return g->modules[g->nodes[holder].module].name;
}

osh_status osh_forward_round_input(osh_ctx *cx, osh_tensor **copy, bool *rounded,
                                   const osh_forward *f, int node, const osh_tensor *x)
{
    osh_status rc = OSH_OK;
    const osh_tensor *scale, *zero;
    const char *module = linear_holder(f->graph, node);
    const osh_q_scheme *s = osh_source_scheme(f->source, module, &scale, &zero);
    *rounded = s && s->inputs.present;
    if (!*rounded) goto done;
    osh_tensor_free(cx, *copy), *copy = NULL;
    OSH_TRY(osh_tensor_new(cx, copy, x->dtype, x->ndim, x->shape));
    OSH_TRY(osh_tensor_copy(cx, *copy, x));
    OSH_TRY(osh_q_fake_quant_act(cx, *copy, &s->inputs, scale, zero));
done:
    if (rc) osh_note(cx, "rounding the input of %s", module);
    return rc;
}

bool osh_forward_rounds_inputs(const osh_forward *f)
{
    const osh_tensor *scale, *zero;
    bool any = false;
    for (int i = 0; i < f->graph->n_nodes && !any; i++) {
        const osh_node *n = &f->graph->nodes[i];
        if (!osh_node_is(n, OSH_OP_LINEAR)) continue;
        const osh_q_scheme *s =
            osh_source_scheme(f->source, f->graph->modules[n->module].name, &scale, &zero);
        any = s && s->inputs.present;
    }
    return any;
}

static osh_status linear_round_input(osh_ctx *cx, void *user, int node, const osh_tensor **x,
                                     const osh_batch *b)
{
    osh_forward_rounding *a = user;
    bool rounded = false;
    osh_status rc = osh_forward_round_input(cx, &a->copy, &rounded, a->f, node, *x);
    (void)b;
    if (!rc && rounded) *x = a->copy;
    return rc;
}

/* Finds the Linear that reads the output of an attention. *name: name of the Linear (view). Returns
 * the length of the part of *name that names the module around the Linear, or 0 if no Linear reads
 * the output. */
static size_t attention_module(const osh_graph *g, int attention, const char **name)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const osh_node *n = &g->nodes[i];
        if (osh_cache_attention(g, i) != attention) continue;
        const char *dot = strrchr(*name = g->modules[n->module].name, '.');
        return dot ? (size_t)(dot - *name) : 0;
    }
    return 0;
}

/* Loads k_scale and v_scale of each attention. Also loads q_scale if queries are quantized, and the
 * zero points if the scheme is not symmetric. Stores the scales in f->cache and the zero points in
 * f->cache_zero, at the index of the value that the attention reads. */
static osh_status cache_load(osh_ctx *cx, osh_forward *f)
{
    osh_status rc = OSH_OK;
    const osh_q_args *a = osh_source_cache(f->source);
    char *leaf = NULL; // own
    OSH_NEW(cx, f->cache, f->graph->n_values);
    OSH_NEW(cx, f->cache_zero, f->graph->n_values);
    for (int i = 0; i < f->graph->n_nodes; i++) {
        const osh_node *n = &f->graph->nodes[i];
        const char *name = "";
        if (!osh_node_is(n, OSH_OP_ATTENDS)) continue;
        size_t len = attention_module(f->graph, i, &name);
        const osh_attention_attr *at = n->attr;
        int ndim = a->strategy == OSH_Q_ATTN_HEAD ? 3 : 1;
        for (int k = 0; k < 3 * (2 - a->symmetric); k++) {
            int from = k % 3; // inputs 0, 1, 2 of an attention: queries, keys, values
            osh_tensor **to = (k < 3 ? f->cache : f->cache_zero) + n->in[from];
            if ((!from && !osh_source_queries(f->source)) || *to) continue;
            osh_free(cx, leaf);
            if (!(leaf = osh_sprintf(cx, "%.*s.%c_%s", (int)len, name, "qkv"[from],
                                     k < 3 ? "scale" : "zero_point")))
                OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a scale's name");
            OSH_TRY(osh_checkpoint_load(cx, to, osh_source_checkpoint(f->source), leaf, ndim,
                                        (int64_t[]){
                                            ndim == 1 ? 1 : from ? at->n_kv_heads : at->n_heads,
                                            1, 1}));
        }
    }
done:
    osh_free(cx, leaf);
    return rc;
}

/* Returns the rule by which the output of a Linear is rounded, or NULL if it is not rounded. Sets
 * *scale and *zero. */
static const osh_q_args *output_rule(const osh_forward *f, int value, const osh_tensor **scale,
                                     const osh_tensor **zero)
{
    int node = f->graph->values[value].producer;
    if (node < 0 || !osh_node_is(&f->graph->nodes[node], OSH_OP_LINEAR)) return NULL;
    return osh_source_outputs(f->source, linear_holder(f->graph, node), scale, zero);
}

bool osh_forward_rounds_value(const osh_forward *f, int value)
{
    const osh_tensor *scale, *zero;
    return (f->cache && f->cache[value]) || output_rule(f, value, &scale, &zero);
}

static osh_status value_round_on_host(osh_ctx *cx, const osh_forward *f, int value, bool made,
                                      osh_tensor *x)
{
    const osh_tensor *scale, *zero;
    const osh_q_args *args = made ? output_rule(f, value, &scale, &zero) : NULL;
    osh_status rc = args ? osh_q_fake_quant_act(cx, x, args, scale, zero) : OSH_OK;
    if (rc || !f->cache || !f->cache[value]) return rc;
    return osh_q_fake_quant_act(cx, x, osh_source_cache(f->source), f->cache[value],
                                f->cache_zero[value]);
}

osh_status osh_forward_round_value(osh_ctx *cx, osh_forward_rounding *a, int value, osh_tensor *x)
{
    osh_status rc = OSH_OK;
    bool made = a->f->graph->values[value].producer >= a->first;
    if (!osh_forward_rounds_value(a->f, value)) goto done;
    if (!x->device) {
        rc = value_round_on_host(cx, a->f, value, made, x);
        goto done;
    }
    osh_tensor_free(cx, a->copy), a->copy = NULL;
    OSH_TRY(osh_tensor_new(cx, &a->copy, x->dtype, x->ndim, x->shape));
    OSH_TRY(osh_tensor_copy(cx, a->copy, x));
    OSH_TRY(value_round_on_host(cx, a->f, value, made, a->copy));
    OSH_TRY(osh_tensor_copy(cx, x, a->copy));
done:
    return rc;
}

/* A hook that rounds outputs of Linears. It also rounds keys, values and queries of attention, if
 * kv_cache_scheme or a config group quantizes them. */
static osh_status value_round(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                              const osh_batch *b)
{
    (void)x;
    return osh_forward_round_value(cx, user, value, b->values[value]);
}

osh_exec_hooks osh_forward_hooks(osh_forward_rounding *r)
{
    return (osh_exec_hooks){.linear_input = linear_round_input, .value = value_round, .user = r};
}

bool osh_forward_may_round(const osh_forward *f)
{
    return osh_source_n_quantized(f->source) > 0 || f->cache;
}

static osh_status forward_insert_rotations(osh_ctx *cx, osh_forward *f)
{
    osh_status rc = OSH_OK;
    const osh_checkpoint *ck = osh_source_checkpoint(f->source);
    OSH_TRY(osh_online_find(cx, &f->online, f->graph, ck, osh_source_transforms(f->source), NULL));
    for (int i = 0; i < f->online.n_turns; i++)
        if (f->online.turns[i].node == f->graph->head)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: transform_config rotates the output head, and this is not supported",
                     ck->config->path);
    OSH_TRY(osh_online_insert(cx, &f->online, f->graph, ck));
done:
    return rc;
}

/* ---- steps ---- */

osh_status osh_forward_keep(osh_ctx *cx, osh_forward *f, int value)
{
    osh_status rc = OSH_OK;
    for (int i = 0; i < f->parts->n; i++) {
        osh_subgraph *s = &f->parts->parts[i];
        bool has = f->graph->values[value].producer >= s->first + s->n_nodes; // not computed yet
        for (int k = 0; k < s->n_live_out && !has; k++) has = s->live_out[k] == value;
        if (has) continue;
        int *more = osh_realloc(cx, s->live_out, (size_t)(s->n_live_out + 1) * sizeof *more);
        if (!more) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the values of a pass");
        s->live_out = more, s->live_out[s->n_live_out++] = value;
    }
done:
    return rc;
}

static osh_status forward_plan(osh_ctx *cx, osh_forward *f)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_partition_new(cx, &f->parts, f->graph, NULL, 0, 1));
    OSH_TRY(osh_forward_keep(cx, f, f->graph->hidden));
    OSH_TRY(osh_plain_new(cx, &f->plain, f->graph, osh_source_checkpoint(f->source), f->parts));
    f->plain->schedule.rounds = osh_forward_may_round(f);
    f->plain->schedule.all_rows = osh_source_rounds_outputs(f->source);
    OSH_TRY(osh_steps_new(cx, &f->steps, f->graph));
    OSH_NEW(cx, f->keep, f->graph->n_values);
    OSH_NEW(cx, f->want, f->graph->n_weights);
done:
    return rc;
}

/* Makes the list of the steps of subgraph `index`, and initializes *p for this subgraph. */
static osh_status forward_list(osh_ctx *cx, osh_forward_part *p, const osh_forward *f, int index)
{
    *p = (osh_forward_part){.f = f, .index = index, .s = &f->parts->parts[index], .keep = f->keep};
    return osh_visit_list(cx, f->steps, &f->plain->schedule, index, NULL);
}

/* Sets p->run, p->routed and p->keep to the nodes and values of s, a LOAD or a PASS. */
static void part_take_step(osh_forward_part *p, const osh_step *s)
{
    const osh_graph *g = p->f->graph;
    const osh_range *r = osh_steps_range(p->f->steps);
    p->run = s->run, p->routed = s->routed;
    memset(p->keep, 0, (size_t)g->n_values * sizeof *p->keep);
    for (int i = 0; i < r->n_live_out; i++) {
        int v = r->live_out[i];
        p->keep[v] = s->out[v] || g->values[v].producer < r->first;
    }
    // the second pass reads the inputs again
    for (int i = 0; s->observe && r->propagate && !r->merged && i < r->n_live_in; i++)
        p->keep[r->live_in[i]] = true;
}

osh_status osh_forward_at(osh_ctx *cx, osh_forward_part *p, const osh_forward *f, int index)
{
    osh_status rc = forward_list(cx, p, f, index);
    if (!rc) part_take_step(p, osh_steps_first(f->steps, OSH_STEP_PASS));
    return rc;
}

osh_exec_span osh_forward_span(const osh_forward_part *p)
{
    return (osh_exec_span){p->f->graph, p->s->first, p->s->n_nodes, p->run, p->keep, {0, 0},
                           p->routed, !p->f->plain->schedule.apart};
}

osh_weight_set osh_forward_weights(const osh_forward_part *p)
{
    const osh_forward *f = p->f;
    const osh_range *r = osh_steps_range(f->steps);
    memset(f->want, 0, (size_t)f->graph->n_weights * sizeof *f->want);
    osh_step_wants(f->want, &f->plain->schedule, r,
                   &(osh_step){.first = p->s->first, .n = p->s->n_nodes, .run = p->run});
    return (osh_weight_set){f->want, r->w0, r->w1};
}

osh_status osh_forward_load(osh_ctx *cx, osh_forward_part *p)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->f->graph;
    const osh_checkpoint *ck = osh_source_checkpoint(p->f->source);
    osh_weight_set s = osh_forward_weights(p);
    if (!p->w) OSH_TRY(osh_weights_new(cx, &p->w, g));
    p->w->rows = ck;
    OSH_TRY(osh_weights_read(cx, p->w, g, ck, &s));
    for (int i = s.first; i < s.end; i++)
        if (s.want[i] && !p->w->w[i]) OSH_TRY(osh_weight_place(cx, p->w, g, ck, i));
done:
    return rc;
}

static osh_status forward_step(osh_ctx *cx, osh_forward_part *p, const osh_forward_visitor *v,
                               const osh_step *s)
{
    switch (s->kind) {
    case OSH_STEP_OPEN: return v->open ? v->open(cx, v->user, p, s->values) : OSH_OK;
    case OSH_STEP_LOAD:
        part_take_step(p, s);
        return v->loads ? osh_forward_load(cx, p) : OSH_OK;
    case OSH_STEP_PASS:
        part_take_step(p, s);
        return v->pass(cx, v->user, p);
    case OSH_STEP_SOLVE: return v->solve ? v->solve(cx, v->user, p) : OSH_OK;
    case OSH_STEP_RELEASE: osh_weights_free(cx, p->w), p->w = NULL; break;
    default: break; // a plain schedule has only steps of the kinds above
    }
    return OSH_OK;
}

osh_status osh_forward_visit(osh_ctx *cx, const osh_forward *f, int index,
                             const osh_forward_visitor *v)
{
    osh_status rc = OSH_OK;
    osh_forward_part p = {0}; // own: p.w
    OSH_TRY(forward_list(cx, &p, f, index));
    for (int k = 0; k < osh_steps_n(f->steps); k++)
        OSH_TRY(forward_step(cx, &p, v, osh_steps_at(f->steps, k)));
done:
    osh_weights_free(cx, p.w);
    return rc;
}

osh_status osh_forward_walk(osh_ctx *cx, const osh_forward *f, const osh_forward_visitor *v)
{
    osh_status rc = OSH_OK;
    for (int i = 0; i < f->parts->n && !rc; i++) rc = osh_forward_visit(cx, f, i, v);
    return rc;
}

/* ---- opening ---- */

typedef struct forward_what { // views
    const char *model, *adapter, *models_dir;
    /* n bytes of a template for the graph; NULL: the template of the architecture is used. */
    const char *text;
    size_t n;
} forward_what;

static osh_status forward_open(osh_ctx *cx, osh_forward **out, const forward_what *w)
{
    osh_status rc = OSH_OK;
    osh_forward *f = NULL; // own
    OSH_NEW(cx, f, 1);
    OSH_TRY(osh_source_open_merged(cx, &f->source, w->model, w->adapter));
    const osh_checkpoint *ck = osh_source_checkpoint(f->source);
    OSH_TRY(w->text ? osh_graph_new_from(cx, &f->graph, ck, w->text, w->n) :
                      osh_graph_new(cx, &f->graph, ck, w->models_dir));
    if (osh_source_transforms(f->source)) OSH_TRY(forward_insert_rotations(cx, f));
    if (osh_source_cache(f->source)) OSH_TRY(cache_load(cx, f));
    OSH_TRY(forward_plan(cx, f));
    *out = f, f = NULL; // passes ownership
done:
    osh_forward_close(cx, f);
    return rc;
}

osh_status osh_forward_open(osh_ctx *cx, osh_forward **out, const char *model,
                            const char *adapter, const char *models_dir)
{
    return forward_open(cx, out, &(forward_what){model, adapter, models_dir, NULL, 0});
}

osh_status osh_forward_open_by(osh_ctx *cx, osh_forward **out, const char *model, const char *text,
                               size_t n)
{
    return forward_open(cx, out, &(forward_what){model, NULL, NULL, text, n});
}

/* ---- running ---- */

typedef struct priced { // state while the work of a pass is added up
    const osh_dataset *d; // view
    double sum;
} priced;

static osh_status forward_count_work(osh_ctx *cx, void *user, osh_forward_part *p)
{
    priced *w = user;
    (void)cx;
    osh_exec_span span = osh_forward_span(p);
    w->sum += osh_cost_of_nodes(&span, w->d);
    return OSH_OK;
}

osh_status osh_forward_work(osh_ctx *cx, double *sum, const osh_forward *f, const osh_dataset *d,
                            bool with_head)
{
    priced w = {d, with_head ? osh_cost_of_head(f->graph, d) : 0};
    osh_status rc = osh_forward_walk(cx, f, &(osh_forward_visitor){forward_count_work, &w, false});
    *sum = w.sum;
    return rc;
}

typedef struct running { // runs the model
    osh_forward *f;              // view
    const osh_dataset *d;        // view
    osh_forward_rounding aq;
    /* Callbacks that round activations; NULL: activations are not rounded. */
    const osh_exec_hooks *hooks; // view
    osh_progress *pr;            // view
    double work, tokens;         // work and tokens of the current pass
} running;

void osh_forward_rate(osh_progress *pr, double tokens, double begun)
{
    double seconds = osh_now() - begun;
    pr->tokens_per_s = pr->work_total > 0 && seconds > 0
                           ? tokens * pr->work_done / pr->work_total / seconds
                           : 0;
}

osh_status osh_forward_pass(osh_ctx *cx, const osh_forward_part *p, const osh_forward_batches *k)
{
    osh_status rc = OSH_OK;
    const osh_forward *f = p->f;
    osh_exec_span span = osh_forward_span(p);
    int64_t n_rounds = k->groups ? osh_exchange_rounds(k->groups, k->ranks) : 1;
    for (int64_t round = 0; round < n_rounds; round++) {
        for (int64_t b = 0; b < f->n_batches; b++) {
            int64_t first = f->batches[b]->first_sample;
            if (k->groups && !osh_exchange_is_now(k->groups, k->ranks, first, round)) continue;
            OSH_TRY(osh_check_interrupt(cx));
            OSH_TRY(osh_ranks_hear(cx, k->ranks));
            OSH_TRY(osh_exec_run(cx, &span, p->w, f->batches[b], k->hooks, true));
            k->done(cx, k->user, b);
        }
        if (k->merge) OSH_TRY(k->merge(cx, k->user, round));
    }
done:
    return rc;
}

static void running_show(osh_ctx *cx, void *user, int64_t b)
{
    running *k = user;
    osh_progress *pr = k->pr;
    pr->done = b + 1, pr->work_done += k->work * (double)k->f->batches[b]->n_tokens / k->tokens;
    osh_forward_rate(pr, k->tokens, k->f->begun);
    osh_progress_show(cx, pr);
}

static osh_status forward_run_part(osh_ctx *cx, void *user, osh_forward_part *p)
{
    osh_status rc = OSH_OK;
    running *k = user;
    osh_forward *f = k->f;
    osh_progress *pr = k->pr;
    osh_exec_span span = osh_forward_span(p);
    k->work = osh_cost_of_nodes(&span, k->d), k->tokens = 0;
    for (int64_t b = 0; b < f->n_batches; b++) k->tokens += (double)f->batches[b]->n_tokens;
    k->aq.first = p->s->first;
    osh_ranks_phase(f->ranks, "forward", p->s->name);
    pr->step++, pr->name = p->s->name, pr->phase = "forward", pr->total = f->n_batches;
    OSH_TRY(osh_forward_pass(cx, p, &(osh_forward_batches){.hooks = k->hooks, .ranks = f->ranks,
                                                           .done = running_show, .user = k}));
    pr->finished = true;
    osh_progress_show(cx, pr);
    pr->finished = false;
done:
    return rc;
}

int64_t osh_forward_n_batches(const osh_forward *f, int64_t n, int64_t size)
{
    return osh_deal_n(f->ranks, (n + size - 1) / size);
}

osh_status osh_forward_run(osh_ctx *cx, osh_forward *f, const osh_dataset *d, int64_t batch_size,
                           bool quantize_activations, osh_progress *pr)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = f->graph;
    running k = {.f = f, .d = d, .aq = {.f = f}, .pr = pr};
    osh_exec_hooks hooks = osh_forward_hooks(&k.aq);
    int64_t size = batch_size > 0 ? batch_size : 1, n = osh_forward_n_batches(f, d->n, size);
    if (f->begun <= 0) f->begun = osh_now();
    OSH_NEW(cx, f->batches, n);
    if (!n) goto done; // there are more ranks than batches, so this rank has no batch
    for (int64_t b = 0; b < n; b++) {
        int64_t first = osh_deal_item(f->ranks, b) * size,
                count = d->n - first < size ? d->n - first : size;
        OSH_TRY(osh_batch_new(cx, &f->batches[b], g, f->ids ? f->ids : d->ids, d->offsets + first,
                              count));
        f->batches[b]->first_sample = first;
        f->n_batches = b + 1;
    }
    if (quantize_activations && osh_forward_may_round(f)) k.hooks = &hooks;
    OSH_TRY(osh_forward_walk(cx, f, &(osh_forward_visitor){forward_run_part, &k, true}));
    OSH_TRY(osh_graph_need_head(cx, g, osh_source_checkpoint(f->source), "predictions"));
    OSH_TRY(osh_forward_load_head(cx, &f->head, &f->head_bias, f));
done:
    osh_tensor_free(cx, k.aq.copy);
    return rc;
}

osh_status osh_forward_load_head(osh_ctx *cx, osh_tensor **weight, osh_tensor **bias,
                                 const osh_forward *f)
{
    osh_status rc = OSH_OK;
    const osh_checkpoint *ck = osh_source_checkpoint(f->source);
    const osh_weight *w = osh_graph_head(f->graph), *b = osh_graph_head_bias(f->graph);
    OSH_TRY(osh_checkpoint_load(cx, weight, ck, w->name, w->ndim, w->shape));
    if (b) OSH_TRY(osh_checkpoint_load(cx, bias, ck, b->name, b->ndim, b->shape));
done:
    return rc;
}

osh_vocab_attr osh_forward_rules(const osh_forward *f, const osh_forward *ref)
{
    const osh_forward *r = ref ? ref : f;
    return (osh_vocab_attr){{f->graph->logits, r->graph->logits}, {f->head_bias, r->head_bias}};
}

osh_status osh_next_tokens(osh_ctx *cx, osh_tensor **out, const osh_dataset *d, int64_t first,
                           int64_t n)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_tensor_new(cx, out, OSH_I32, 1,
                           (int64_t[]){d->offsets[first + n] - d->offsets[first]}));
    int32_t *t = (*out)->data;
    for (int64_t s = first; s < first + n; s++)
        for (int64_t i = d->offsets[s]; i < d->offsets[s + 1]; i++)
            t[i - d->offsets[first]] = i + 1 < d->offsets[s + 1] ? d->ids[i + 1] : -1;
done:
    return rc;
}

void osh_forward_close(osh_ctx *cx, osh_forward *f)
{
    if (!f) return;
    for (int64_t b = 0; b < f->n_batches; b++) osh_batch_free(cx, f->batches[b]);
    osh_free(cx, f->batches);
    osh_tensor_free(cx, f->head);
    osh_tensor_free(cx, f->head_bias);
    osh_free(cx, f->ids);
    for (int v = 0; f->cache && v < f->graph->n_values; v++) osh_tensor_free(cx, f->cache[v]);
    for (int v = 0; f->cache_zero && v < f->graph->n_values; v++)
        osh_tensor_free(cx, f->cache_zero[v]);
    osh_free(cx, f->cache);
    osh_free(cx, f->cache_zero);
    osh_steps_free(cx, f->steps);
    osh_free(cx, f->keep);
    osh_free(cx, f->want);
    osh_plain_free(cx, f->plain);
    osh_partition_free(cx, f->parts);
    osh_graph_free(cx, f->graph);
    osh_online_deinit(cx, &f->online);
    osh_source_close(cx, f->source);
    osh_free(cx, f);
}
