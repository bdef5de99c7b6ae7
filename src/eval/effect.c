/* effect.c - measures how the rounding of each unit (Linears that must get the same scheme) changes
 * the predictions, in one pass through the model.
 *
 *   subgraph 0     clean ──┬─────────────► clean ──┬─────────► clean ──► scores
 *   units in subgraph 0    ├─ q k v rounded ──────────────────► ...  ──► KL from the clean scores
 *                          └─ o rounded ──────────────────────► ...
 *   subgraph 1                                     └─ ...
 *
 * "clean" are the values of the unchanged model. The weights of a subgraph are read once for the
 * clean values and for the values of all units in earlier subgraphs. They are read once more for
 * each unit in the subgraph. */
#include "eval/effect.h"

#include <string.h>

#include "budget/cost.h"
#include "eval/forward.h"
#include "eval/sweep.h"
#include "modifiers/modifier.h"
#include "quant/observer.h"

typedef struct stream { // the batches of a model in which only one unit is rounded
    osh_batch *batch[OSH_EFFECT_SAMPLES]; // own; NULL until the subgraph of the unit has run
} stream;

struct osh_effect {
    const osh_plan *p;  // view
    const int *unit_of; // view
    int n_units;        // unit u belongs to rank u modulo the number of ranks
    osh_ranks *ranks;   // view: the ranks that divide the units; NULL: this process has all units
    osh_forward *f;     // own
    /* Node and weight of each Linear in f->graph. The plan's graph has other indices if each expert
     * is calibrated only on the tokens that are routed to it. node < 0: f->graph does not have the
     * Linear. */
    struct place { int node, weight; } *at; // own [Linears of the plan]
    osh_dataset d;      // own: first tokens of the first samples
    stream clean;
    stream *of;         // own [units]: a stream for each unit
};

/* Finds the Linears of the plan in f->graph. Both graphs have the same modules. */
static osh_status effect_find_linears(osh_ctx *cx, osh_effect *e)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = e->f->graph, *planned = e->p->in.graph;
    int *module_of = NULL; // own [nodes of the plan's graph]: index of the module; -1: none
    OSH_NEW(cx, module_of, planned->n_nodes);
    memset(module_of, 0xff, (size_t)planned->n_nodes * sizeof *module_of);
    for (int m = 0; m < planned->n_modules; m++)
        if (planned->modules[m].node >= 0) module_of[planned->modules[m].node] = m;
    OSH_NEW(cx, e->at, e->p->match.n_linears);
    for (int i = 0; i < e->p->match.n_linears; i++) {
        const osh_linear *l = &e->p->match.linears[i];
        int m = l->node < 0 ? -1 : module_of[l->node];
        e->at[i] = (struct place){-1, -1};
        if (m < 0) continue;
        if (m >= g->n_modules || strcmp(g->modules[m].name, planned->modules[m].name))
            OSH_FAIL(cx, OSH_E_INTERNAL, "%s: the measured model has other modules", l->name);
        e->at[i] = (struct place){g->modules[m].node, g->nodes[g->modules[m].node].w[0]};
    }
done:
    osh_free(cx, module_of);
    return rc;
}

osh_status osh_effect_open(osh_ctx *cx, osh_effect **out, const osh_plan *p, const int *unit_of,
                           int n_units)
{
    osh_status rc = OSH_OK;
    osh_effect *e = NULL; // own
    OSH_NEW(cx, e, 1);
    e->p = p, e->unit_of = unit_of, e->n_units = n_units, e->ranks = p->in.opt->ranks;
    OSH_TRY(osh_forward_open(cx, &e->f, p->in.opt->model, p->in.opt->adapter,
                             p->in.opt->models_dir));
    OSH_TRY(osh_graph_need_head(cx, e->f->graph, osh_source_checkpoint(e->f->source),
                                "a choice of bits by predictions"));
    OSH_TRY(effect_find_linears(cx, e));
    OSH_TRY(osh_dataset_head(cx, &e->d, &p->in.data, OSH_EFFECT_SAMPLES, OSH_EFFECT_LENGTH));
    OSH_NEW(cx, e->of, n_units);
    *out = e, e = NULL; // passes ownership
done:
    osh_effect_close(cx, e);
    return rc;
}

static bool unit_is_here(const osh_effect *e, int unit)
{
    return osh_deal_owner(e->ranks, unit) == osh_ranks_me(e->ranks);
}

static void stream_free(osh_ctx *cx, stream *s)
{
    for (int b = 0; b < OSH_EFFECT_SAMPLES; b++)
        osh_batch_free(cx, s->batch[b]), s->batch[b] = NULL;
}

void osh_effect_close(osh_ctx *cx, osh_effect *e)
{
    if (!e) return;
    stream_free(cx, &e->clean);
    for (int u = 0; e->of && u < e->n_units; u++) stream_free(cx, &e->of[u]);
    osh_forward_close(cx, e->f);
    osh_dataset_deinit(cx, &e->d);
    osh_free(cx, e->of);
    osh_free(cx, e->at);
    osh_free(cx, e);
}

/* Makes the batches of a stream, with copies of the values of `from`. If `from` is NULL, the
 * batches have only tokens. */
static osh_status stream_new(osh_ctx *cx, stream *s, const osh_effect *e, const stream *from)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = e->f->graph;
    for (int64_t b = 0; b < e->d.n; b++) {
        OSH_TRY(osh_batch_new(cx, &s->batch[b], g, e->d.ids, e->d.offsets + b, 1));
        for (int v = 0; from && v < g->n_values; v++) {
            const osh_tensor *t = from->batch[b]->values[v];
            if (!t || s->batch[b]->values[v]) continue;
            OSH_TRY(osh_tensor_new(cx, &s->batch[b]->values[v], t->dtype, t->ndim, t->shape));
            OSH_TRY(osh_tensor_copy(cx, s->batch[b]->values[v], t));
        }
    }
done:
    return rc;
}

static osh_status stream_run(osh_ctx *cx, const osh_effect *e, const stream *s,
                             const osh_forward_part *p)
{
    osh_status rc = OSH_OK;
    osh_exec_span span = osh_forward_span(p);
    for (int64_t b = 0; b < e->d.n; b++) {
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(osh_exec_run(cx, &span, p->w, s->batch[b], NULL, true));
    }
done:
    return rc;
}

/* Rounds w with the scheme of the Linear, but to OSH_EFFECT_BITS bits. */
static osh_status effect_round_weight(osh_ctx *cx, const osh_plan *p, const osh_linear *l,
                                      osh_tensor *w)
{
    osh_status rc = OSH_OK;
    osh_q_args a = l->scheme->weights;
    osh_qparams params = {.global = 0}; // own
    void *codes = NULL;                 // own
    a.bits = OSH_EFFECT_BITS;
    osh_q_observer_plain(&a);
    OSH_TRY(osh_q_weight_params(cx, &params, w, &a, p->in.arithmetic, l->name));
    if (!(codes = osh_alloc(cx, (size_t)osh_tensor_numel(w))))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for codes");
    OSH_TRY(osh_q_encode(cx, codes, w, &params, &a, p->in.arithmetic));
    OSH_TRY(osh_q_decode(cx, w, codes, &params, &a));
done:
    osh_free(cx, codes);
    osh_qparams_deinit(cx, &params);
    return rc;
}

/* Returns true if the Linear with index i of the plan is in the subgraph and is not the head. */
static bool linear_is_within(const osh_effect *e, int i, int subgraph)
{
    const osh_subgraph *s = &e->f->parts->parts[subgraph];
    int node = e->at[i].node;
    return node >= s->first && node < s->first + s->n_nodes && node != e->f->graph->head;
}

/* Makes the stream of a unit (the batches of the model in which only this unit is rounded). Rounds
 * the weights of the unit, runs the clean values through the subgraph, and loads the original
 * weights again. */
static osh_status unit_fork(osh_ctx *cx, osh_effect *e, int unit, osh_forward_part *part)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = e->p;
    osh_weights *w = part->w; // view
    OSH_TRY(stream_new(cx, &e->of[unit], e, &e->clean));
    for (int i = 0; i < p->match.n_linears; i++)
        if (e->unit_of[i] == unit && linear_is_within(e, i, part->index) && w->w[e->at[i].weight])
            OSH_TRY(effect_round_weight(cx, p, &p->match.linears[i], w->w[e->at[i].weight]));
    OSH_TRY(stream_run(cx, e, &e->of[unit], part));
    for (int i = 0; i < p->match.n_linears; i++) {
        if (e->unit_of[i] != unit || e->at[i].weight < 0) continue;
        osh_tensor **t = &w->w[e->at[i].weight];
        osh_tensor_free(cx, *t), *t = NULL;
    }
    OSH_TRY(osh_forward_load(cx, part));
done:
    return rc;
}

static osh_status effect_pass(osh_ctx *cx, void *user, osh_forward_part *p)
{
    osh_status rc = OSH_OK;
    osh_effect *e = user;
    OSH_TRY(osh_ranks_hear(cx, e->ranks));
    for (int u = 0; u < e->n_units; u++)
        if (e->of[u].batch[0]) OSH_TRY(stream_run(cx, e, &e->of[u], p));
    for (int i = 0; i < e->p->match.n_linears; i++) {
        int u = e->unit_of[i];
        if (linear_is_within(e, i, p->index) && !e->of[u].batch[0] &&
            unit_is_here(e, u))
            OSH_TRY(unit_fork(cx, e, u, p));
    }
    OSH_TRY(stream_run(cx, e, &e->clean, p));
done:
    return rc;
}

/* Sets *sum to the KL divergence, summed over tokens. The divergence compares the predictions of
 * stream s through `head` with those of the clean stream through the model's head. */
static osh_status effect_score(osh_ctx *cx, double *sum, const osh_effect *e, const stream *s,
                               const osh_tensor *head)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = e->f->graph;
    osh_vocab_attr rules = osh_forward_rules(e->f, NULL);
    *sum = 0;
    for (int64_t b = 0; b < e->d.n; b++) {
        const osh_batch *x = s->batch[b];
        osh_op_args a = {
            .in = {x->values[g->hidden], head, e->clean.batch[b]->values[g->hidden], e->f->head},
            .attr = &rules,
            .seqs = &x->seqs};
        OSH_TRY(osh_kl_sum(cx, sum, &a, x->n_tokens, NULL));
    }
done:
    return rc;
}

/* Sets *sum to the KL divergence of the model in which only the head is rounded. *sum is 0 if the
 * unit does not contain the head. The head runs after all subgraphs, so no stream has a rounded
 * head. */
static osh_status effect_score_head(osh_ctx *cx, double *sum, const osh_effect *e, int unit)
{
    osh_status rc = OSH_OK;
    const osh_plan *p = e->p;
    osh_tensor *w = NULL; // own
    *sum = 0;
    for (int i = 0; i < p->match.n_linears; i++) {
        if (e->unit_of[i] != unit || e->at[i].node != e->f->graph->head) continue;
        OSH_TRY(osh_tensor_new(cx, &w, e->f->head->dtype, 2, e->f->head->shape));
        OSH_TRY(osh_tensor_copy(cx, w, e->f->head));
        OSH_TRY(effect_round_weight(cx, p, &p->match.linears[i], w));
        OSH_TRY(effect_score(cx, sum, e, &e->clean, w));
    }
done:
    osh_tensor_free(cx, w);
    return rc;
}

/* Gives rank 0 the effects of all units. */
static osh_status effect_gather(osh_ctx *cx, const osh_effect *e, double *effect)
{
    osh_status rc = OSH_OK;
    double *all = NULL; // own [ranks, units]
    if (!e->ranks) goto done;
    OSH_NEW(cx, all, (int64_t)osh_ranks_n(e->ranks) * e->n_units);
    OSH_TRY(osh_ranks_gather(cx, e->ranks, all, effect, (size_t)e->n_units * sizeof *effect));
    for (int u = 0; u < e->n_units && !osh_ranks_me(e->ranks); u++)
        effect[u] = all[(int64_t)osh_deal_owner(e->ranks, u) * e->n_units + u];
done:
    osh_free(cx, all);
    return rc;
}

/* Sets times [subgraphs] to the number of streams that run through each subgraph. The clean stream
 * runs through all subgraphs. The stream of a unit begins at the subgraph of the unit's first
 * Linear. */
static osh_status effect_count_streams(osh_ctx *cx, double *times, const osh_effect *e)
{
    osh_status rc = OSH_OK;
    bool *runs = NULL; // own [units]
    int n = 1;
    OSH_NEW(cx, runs, e->n_units);
    for (int i = 0; i < e->f->parts->n; i++) {
        for (int l = 0; l < e->p->match.n_linears; l++) {
            int u = e->unit_of[l];
            if (u < 0 || runs[u] || !linear_is_within(e, l, i)) continue;
            runs[u] = true, n++;
        }
        times[i] = n;
    }
done:
    osh_free(cx, runs);
    return rc;
}

osh_status osh_effect_run(osh_ctx *cx, osh_effect *e, double *effect, osh_progress *pr)
{
    osh_status rc = OSH_OK;
    osh_sweep sweep = {0}; // own
    OSH_TRY(stream_new(cx, &e->clean, e, NULL));
    pr->n_steps = e->f->parts->n + 1, pr->phase = "effects";
    OSH_TRY(osh_sweep_open(cx, &sweep, pr, e->f, &e->d));
    OSH_TRY(effect_count_streams(cx, sweep.times, e));
    double scores = 2 * osh_cost_of_head(e->f->graph, &e->d) * e->n_units;
    sweep.ranks = e->ranks;
    osh_sweep_begin(&sweep, scores);
    OSH_TRY(osh_sweep_walk(cx, &sweep, e->f, &(osh_forward_visitor){effect_pass, e, true}));
    pr->step = pr->n_steps, pr->name = "the scores";
    OSH_TRY(osh_forward_load_head(cx, &e->f->head, &e->f->head_bias, e->f));
    for (int u = 0; u < e->n_units; u++) {
        OSH_TRY(osh_check_interrupt(cx));
        if (!unit_is_here(e, u)) continue;
        if (e->of[u].batch[0]) OSH_TRY(effect_score(cx, &effect[u], e, &e->of[u], e->f->head));
        else OSH_TRY(effect_score_head(cx, &effect[u], e, u));
        effect[u] /= (double)e->d.offsets[e->d.n];
        pr->finished = u + 1 == e->n_units;
        osh_sweep_show(cx, &sweep, scores, u + 1, e->n_units);
    }
    pr->finished = false;
    OSH_TRY(effect_gather(cx, e, effect));
done:
    osh_sweep_close(cx, &sweep);
    return rc;
}

osh_status osh_effect_bytes(osh_ctx *cx, int64_t *peak, const osh_effect *e)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = e->f->graph;
    int64_t most = 0, D = g->values[g->hidden].width, width[4] = {D, D, D, D};
    osh_forward_memory m;
    int64_t head = osh_forward_head_bytes(e->f);
    OSH_TRY(osh_forward_bytes(cx, &m, e->f, &e->d, e->d.n, 1));
    for (int i = 0; i < e->p->match.n_linears; i++) {
        const osh_linear *l = &e->p->match.linears[i];
        bool last = e->at[i].node == g->head;
        int64_t n = l->O * l->I * (last ? 1 + (int64_t)osh_dtype_bytes(l->dtype) : 1);
        // upper bound for the bytes of scales and ranges: half a byte for each weight
        n += 2 * l->O * l->I / 4;
        most = n > most ? n : most;
    }
    int64_t scores = (int64_t)osh_mem_gross(
        osh_op_kl.scratch(NULL, width, g->n_vocab, OSH_EFFECT_LENGTH, osh_threads(cx)));
    int n_ranks = osh_ranks_n(e->ranks), n_here = (e->n_units + n_ranks - 1) / n_ranks;
    int64_t streams = (m.left - head) * (n_here + 1);
    *peak = streams + (m.peak > head + scores ? m.peak : head + scores) + most;
done:
    return rc;
}
