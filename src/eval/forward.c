/* forward.c - runs a whole model over a dataset, subgraph by subgraph. Inputs and outputs of
 * quantized Linears are rounded if their scheme asks for it. */
#include "eval/forward.h"
#include "graph/routed.h"

#include <string.h>

#include "graph/picked.h"
#include "match/cache.h"
#include "budget/cost.h"
#include "tensor/device.h"

osh_status osh_forward_round_input(osh_ctx *cx, osh_tensor **copy, bool *rounded,
                                   const osh_forward *f, int node, const osh_tensor *x)
{
    osh_status rc = OSH_OK;
    const osh_tensor *scale, *zero;
    const char *module = f->graph->modules[f->graph->nodes[node].module].name;
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
 * the length of the part of *name that names the module around the Linear; 0: no Linear reads the
 * output. */
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

/* Loads k_scale, v_scale, their zero points, and if present q_scale, of each attention. Stores the
 * scales in f->cache and the zero points in f->cache_zero, at the index of the value that the
 * attention reads. */
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

static osh_status linear_round_output(osh_ctx *cx, const osh_forward_rounding *a, int value,
                                      osh_tensor *x)
{
    const osh_graph *g = a->f->graph;
    const osh_tensor *scale, *zero;
    int node = g->values[value].producer;
    if (node < a->first || !osh_node_is(&g->nodes[node], OSH_OP_LINEAR)) return OSH_OK;
    const osh_q_args *args =
        osh_source_outputs(a->f->source, g->modules[g->nodes[node].module].name, &scale, &zero);
    return args ? osh_q_fake_quant_act(cx, x, args, scale, zero) : OSH_OK;
}

/* A hook that rounds outputs of Linears, and keys, values and queries that kv_cache_scheme or a
 * group for attention quantizes. */
static osh_status value_round(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                              const osh_batch *b)
{
    const osh_forward_rounding *a = user;
    osh_status rc = linear_round_output(cx, a, value, b->values[value]);
    (void)x;
    if (rc || !a->f->cache || !a->f->cache[value]) return rc;
    return osh_q_fake_quant_act(cx, b->values[value], osh_source_cache(a->f->source),
                                a->f->cache[value], a->f->cache_zero[value]);
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
                     "%s: transform_config rotates the output head, which is not run so here",
                     ck->config->path);
    OSH_TRY(osh_online_insert(cx, &f->online, f->graph, ck));
done:
    return rc;
}

typedef struct forward_what { // views
    const char *model, *adapter, *models_dir;
    const char *text; // [n], template of the graph; NULL: the template of the architecture
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
    OSH_TRY(osh_partition_new(cx, &f->parts, f->graph, NULL, 0, 1));
    if (osh_source_cache(f->source)) OSH_TRY(cache_load(cx, f));
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

void osh_forward_choose(const osh_forward *f, int index, bool *run, bool *keep)
{
    const osh_graph *g = f->graph;
    const osh_subgraph *s = &f->parts->parts[index];
    memset(keep, 0, (size_t)g->n_values * sizeof *keep);
    for (int i = 0; i < s->n_live_out; i++) keep[s->live_out[i]] = true;
    if (index == f->parts->n - 1) keep[g->hidden] = true;
    for (int v = 0; f->stay && v < g->n_values; v++) keep[v] |= f->stay[v];
    osh_exec_needed(run, g, s->first, s->n_nodes, keep);
}

/* Sets routed [n_nodes] to true for nodes of experts that run only on the rows of their tokens.
 * Chooses no node if f->stay is set, because kept values need all tokens, or if the output of such
 * a Linear is rounded, because the rounding reads all tokens. */
static void forward_choose_routed(const osh_forward *f, const osh_subgraph *s, const bool *run,
                                  bool *routed)
{
    const osh_graph *g = f->graph;
    bool all = f->stay != NULL;
    const osh_tensor *scale, *zero;
    osh_routed_choose(routed, g, s->first, s->n_nodes, run);
    for (int i = 0; i < s->n_nodes && !all; i++) {
        const osh_node *n = &g->nodes[s->first + i];
        all = routed[i] && osh_source_outputs(f->source, g->modules[n->module].name, &scale, &zero);
    }
    if (all) memset(routed, 0, (size_t)s->n_nodes * sizeof *routed);
}

osh_status osh_forward_walk(osh_ctx *cx, const osh_forward *f, osh_forward_visit *visit, void *user)
{
    osh_status rc = OSH_OK;
    osh_forward_part p = {0}; // own: the lists to which `p` points
    OSH_NEW(cx, p.run, f->graph->n_nodes);
    OSH_NEW(cx, p.keep, f->graph->n_values);
    OSH_NEW(cx, p.routed, f->graph->n_nodes);
    for (; p.index < f->parts->n; p.index++) {
        p.s = &f->parts->parts[p.index];
        osh_forward_choose(f, p.index, p.run, p.keep);
        forward_choose_routed(f, p.s, p.run, p.routed);
        OSH_TRY(visit(cx, user, &p));
    }
done:
    osh_free(cx, p.run);
    osh_free(cx, p.keep);
    osh_free(cx, p.routed);
    return rc;
}

osh_exec_span osh_forward_span(const osh_forward *f, const osh_forward_part *p)
{
    return (osh_exec_span){f->graph, p->s->first, p->s->n_nodes, p->run,
                           p->keep,  {0, 0},      p->routed};
}

typedef struct priced { // state of osh_forward_walk when it adds up the work of a pass
    const osh_forward *f;
    const osh_dataset *d;
    double sum;
} priced;

static osh_status forward_count_work(osh_ctx *cx, void *user, const osh_forward_part *p)
{
    priced *w = user;
    (void)cx;
    osh_exec_span span = osh_forward_span(w->f, p);
    w->sum += osh_cost_of_nodes(&span, w->d);
    return OSH_OK;
}

osh_status osh_forward_work(osh_ctx *cx, double *sum, const osh_forward *f, const osh_dataset *d,
                            bool with_head)
{
    priced w = {f, d, with_head ? osh_cost_of_head(f->graph, d) : 0};
    osh_status rc = osh_forward_walk(cx, f, forward_count_work, &w);
    *sum = w.sum;
    return rc;
}

typedef struct running { // state of osh_forward_walk when it runs the model
    osh_forward *f;              // view
    const osh_dataset *d;        // view
    osh_forward_rounding aq;
    /* Callbacks that round activations; NULL: activations are not rounded. */
    const osh_exec_hooks *hooks; // view
    osh_progress *pr;            // view
} running;

void osh_forward_rate(osh_progress *pr, double tokens, double begun)
{
    double seconds = osh_now() - begun;
    pr->tokens_per_s = pr->work_total > 0 && seconds > 0
                           ? tokens * pr->work_done / pr->work_total / seconds
                           : 0;
}

static osh_status forward_run_part(osh_ctx *cx, void *user, const osh_forward_part *p)
{
    osh_status rc = OSH_OK;
    running *k = user;
    osh_forward *f = k->f;
    const osh_graph *g = f->graph;
    const osh_subgraph *s = p->s;
    osh_progress *pr = k->pr;
    osh_weights *w = NULL; // own
    osh_exec_span span = osh_forward_span(f, p);
    double work = osh_cost_of_nodes(&span, k->d);
    double tokens = 0;
    for (int64_t b = 0; b < f->n_batches; b++) tokens += (double)f->batches[b]->n_tokens;
    k->aq.first = s->first;
    OSH_TRY(osh_weights_new(cx, &w, g));
    for (int i = 0; i < s->n_nodes; i++)
        if (p->run[i])
            OSH_TRY(osh_weights_load(cx, w, g, osh_source_checkpoint(f->source), s->first + i, 1));
    osh_ranks_phase(f->ranks, "forward", s->name);
    pr->step++, pr->name = s->name, pr->phase = "forward", pr->total = f->n_batches;
    for (int64_t b = 0; b < f->n_batches; b++) {
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(osh_ranks_hear(cx, f->ranks));
        OSH_TRY(osh_exec_run(cx, &span, w, f->batches[b], k->hooks, true));
        pr->done = b + 1, pr->work_done += work * (double)f->batches[b]->n_tokens / tokens;
        osh_forward_rate(pr, tokens, f->begun);
        osh_progress_show(cx, pr);
    }
    pr->finished = true;
    osh_progress_show(cx, pr);
    pr->finished = false;
done:
    osh_weights_free(cx, w);
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
    if (!n) goto done; // there are more ranks than batches
    for (int64_t b = 0; b < n; b++) {
        int64_t first = osh_deal_item(f->ranks, b) * size,
                count = d->n - first < size ? d->n - first : size;
        OSH_TRY(osh_batch_new(cx, &f->batches[b], g, f->ids ? f->ids : d->ids, d->offsets + first,
                              count));
        f->batches[b]->first_sample = first;
        f->n_batches = b + 1;
    }
    if (quantize_activations && osh_forward_may_round(f)) k.hooks = &hooks;
    OSH_TRY(osh_forward_walk(cx, f, forward_run_part, &k));
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

int64_t osh_forward_values_bytes(const osh_forward *f, const osh_dataset *d, int64_t n,
                                 int64_t size, int v, int64_t *most)
{
    const osh_graph *g = f->graph;
    int64_t sum = 0, n_batches = osh_forward_n_batches(f, n, size),
            each = (int64_t)(osh_mem_gross(sizeof(osh_batch)) + osh_batch_lists(g, size + 1));
    for (int64_t b = 0; b < n_batches; b++) {
        int64_t first = osh_deal_item(f->ranks, b) * size,
                end = first + size < n ? first + size : n,
                tokens = d->offsets[end] - d->offsets[first];
        size_t row = v < 0 ? sizeof(int32_t) : osh_value_bytes(g, v);
        sum += (int64_t)osh_tensor_gross((size_t)tokens * row) + (v < 0 ? each : 0);
        if (tokens > *most) *most = tokens;
    }
    return sum;
}

int64_t osh_forward_weight_bytes(const osh_forward *f, const osh_subgraph *s, const bool *run,
                                 int64_t *width)
{
    const osh_graph *g = f->graph;
    int64_t sum = 0;
    for (int i = 0; i < s->n_nodes; i++) {
        const osh_node *n = &g->nodes[s->first + i];
        for (int k = 0; run[i] && k < n->op->n_weights; k++)
            if (n->w[k] >= 0 && !osh_is_picked(g, n, k))
                sum += (int64_t)osh_weight_bytes(g, osh_source_checkpoint(f->source), n->w[k]);
        if (run[i] && n->op->n_weights && n->in[0] >= 0 && g->values[n->in[0]].width > *width)
            *width = g->values[n->in[0]].width;
    }
    return sum;
}

typedef struct counting { // state of osh_forward_walk when it counts the memory of forward_run_part
    const osh_forward *f;
    const osh_dataset *d;
    /* n: number of samples of `d` that run.
     * size: number of samples of a batch. */
    int64_t n, size;
    /* Maxima so far.
     * most: number of tokens of a batch.
     * width: width of the widest input of a node with weights. */
    int64_t most, width;
    /* Bytes.
     * base: batches without values.
     * reading: scratch for reading a weight.
     * before: inputs of the current subgraph. */
    int64_t base, reading, before;
    bool *in;             // own [graph values]: true for inputs of the current subgraph
    osh_forward_memory *m;
} counting;

static osh_status forward_count_part(osh_ctx *cx, void *user, const osh_forward_part *p)
{
    osh_status rc = OSH_OK;
    counting *c = user;
    const osh_graph *g = c->f->graph;
    const osh_subgraph *s = p->s;
    int64_t after = 0;
    memset(c->in, 0, (size_t)g->n_values * sizeof *c->in);
    for (int k = 0; k < s->n_live_in; k++) c->in[s->live_in[k]] = true;
    for (int v = 0; v < g->n_values; v++)
        if (p->keep[v] && v != g->input_ids)
            after += osh_forward_values_bytes(c->f, c->d, c->n, c->size, v, &c->most);
    int64_t weights = osh_forward_weight_bytes(c->f, s, p->run, &c->width);
    int64_t now = c->before > after ? c->before : after;
    osh_exec_batch whole = {.n_tokens = c->most, .n_threads = osh_threads(cx)};
    size_t passing = 0;
    osh_exec_span span = osh_forward_span(c->f, p);
    OSH_TRY(osh_exec_peak(cx, &passing, NULL, &span, &(osh_exec_brought){.in = c->in}, &whole));
    now += (int64_t)passing;
    if (osh_source_n_quantized(c->f->source)) // adds the bytes of the copy of a rounded input
        now += (int64_t)osh_mem_gross((size_t)(c->most * c->width) * osh_dtype_bytes(g->dtype));
    if (now < c->before + c->reading) now = c->before + c->reading;
    if (c->base + weights + now > c->m->peak) c->m->peak = c->base + weights + now;
    c->before = after;
done:
    return rc;
}

int64_t osh_forward_head_bytes(const osh_forward *f)
{
    const osh_graph *g = f->graph;
    const osh_checkpoint *ck = osh_source_checkpoint(f->source);
    const osh_weight *w = osh_graph_head(g), *bias = osh_graph_head_bias(g);
    return (int64_t)(osh_weight_bytes(g, ck, (int)(w - g->weights)) +
                     (bias ? osh_weight_bytes(g, ck, (int)(bias - g->weights)) : 0));
}

osh_status osh_forward_bytes(osh_ctx *cx, osh_forward_memory *m, const osh_forward *f,
                             const osh_dataset *d, int64_t n, int64_t batch_size)
{
    osh_status rc = OSH_OK;
    counting c = {.f = f, .d = d, .n = n, .size = batch_size > 0 ? batch_size : 1, .m = m}; // own
    c.reading = (int64_t)osh_source_scratch(f->source);
    c.base = osh_forward_values_bytes(f, d, n, c.size, -1, &c.most);
    c.base += (int64_t)osh_mem_gross((size_t)osh_forward_n_batches(f, n, c.size) * sizeof(void *));
    m->peak = 0;
    OSH_NEW(cx, c.in, f->graph->n_values);
    OSH_TRY(osh_forward_walk(cx, f, forward_count_part, &c));
    m->left = c.base + c.before + osh_forward_head_bytes(f);
    if (m->left + c.reading > m->peak) m->peak = m->left + c.reading;
done:
    osh_free(cx, c.in);
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
    osh_free(cx, f->stay);
    for (int v = 0; f->cache && v < f->graph->n_values; v++) osh_tensor_free(cx, f->cache[v]);
    for (int v = 0; f->cache_zero && v < f->graph->n_values; v++)
        osh_tensor_free(cx, f->cache_zero[v]);
    osh_free(cx, f->cache);
    osh_free(cx, f->cache_zero);
    osh_partition_free(cx, f->parts);
    osh_graph_free(cx, f->graph);
    osh_online_deinit(cx, &f->online);
    osh_source_close(cx, f->source);
    osh_free(cx, f);
}
