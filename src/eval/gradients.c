/* gradients.c - measures the gradients of the loss at the outputs of all Linears.
 *
 *   forward     subgraph 0 ──h0──► 1 ──h1──► 2 ──h2──► head ──► loss    h0, h1, h2 stay
 *   backward               ◄─dh0── 1 ◄─dh1── 2 ◄─dh2── head
 *
 * The weights of one subgraph are in memory at a time, and samples run one by one. The weights of
 * the model are read twice. Only the values between subgraphs (h0, h1, h2) stay in memory; values
 * inside a subgraph are computed again. Samples are added in order, so the result does not depend
 * on threads. */
#include "eval/gradients.h"

#include <string.h>

#include "eval/forward.h"
#include "eval/sweep.h"
#include "graph/back.h"
#include "tensor/scalar.h"

struct osh_gradients {
    osh_plan *p;      // view
    osh_forward *f;   // own
    osh_dataset d;    // own
    osh_tensor ***dv; // own [samples][values]: gradients of the values
    /* Arrays of flags.
     * in [values]: true for the values that are inputs of the current subgraph and get gradients.
     * none [weights]: false for each weight.
     * seen [values]: true for the values at which gradients are measured. */
    bool *in, *none, *seen; // own
    osh_sweep sweep;        // own: progress
    osh_groups groups; // groups of the samples of d
    /* Sums of the squared gradients at each value of the current subgraph.
     * made: sums for the Linear that computes the value.
     * read: sums for the Linear that reads the value. */
    osh_stat **made, **read; // own [values]
    int64_t sample;   // index of the current sample
    int *linear_of;   // own [values]: index of the Linear that computes the value; -1: none
    /* Index of the Linear that reads the value and has gradients.inputs; -1: none. */
    int *reader_of;   // own [values]
    /* Index of the subgraph of the first Linear; the backward pass ends with this subgraph. */
    int stop;
};

static osh_status gradients_find_linears(osh_ctx *cx, osh_gradients *s)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = s->f->graph;
    OSH_NEW(cx, s->seen, g->n_values);
    OSH_NEW(cx, s->linear_of, g->n_values);
    OSH_NEW(cx, s->reader_of, g->n_values);
    memset(s->linear_of, 0xff, (size_t)g->n_values * sizeof *s->linear_of);
    memset(s->reader_of, 0xff, (size_t)g->n_values * sizeof *s->reader_of);
    int first = g->n_nodes;
    for (int i = 0; i < s->p->match.n_linears; i++) {
        int node = s->p->match.linears[i].node, v = g->nodes[node].out[0];
        s->seen[v] = true, s->linear_of[v] = i;
        if (s->p->match.linears[i].gradients.inputs)
            s->seen[s->p->match.linears[i].input] = true,
            s->reader_of[s->p->match.linears[i].input] = i;
        if (node < first) first = node;
    }
    while (s->stop + 1 < s->f->parts->n && s->f->parts->parts[s->stop + 1].first <= first)
        s->stop++;
done:
    return rc;
}

osh_status osh_gradients_open(osh_ctx *cx, osh_gradients **out, osh_plan *p)
{
    osh_status rc = OSH_OK;
    osh_gradients *s = NULL; // own
    OSH_NEW(cx, s, 1);
    s->p = p;
    OSH_TRY(osh_forward_open(cx, &s->f, p->in.opt->model, p->in.opt->adapter,
                             p->in.opt->models_dir));
    OSH_TRY(osh_graph_need_head(cx, s->f->graph, osh_source_checkpoint(s->f->source),
                                "a choice of bits by predictions"));
    OSH_TRY(osh_dataset_head(cx, &s->d, &p->in.data, OSH_GRADIENTS_SAMPLES, OSH_GRADIENTS_LENGTH));
    s->groups = osh_groups_of(s->d.n, p->in.opt->sum_groups);
    const osh_graph *g = s->f->graph;
    OSH_NEW(cx, s->made, g->n_values);
    OSH_NEW(cx, s->read, g->n_values);
    OSH_NEW(cx, s->in, g->n_values);
    OSH_NEW(cx, s->none, g->n_weights);
    OSH_TRY(gradients_find_linears(cx, s));
    for (int i = 0; i < s->f->parts->n; i++)
        for (int k = 0; k < s->f->parts->parts[i].n_live_in; k++)
            OSH_TRY(osh_forward_keep(cx, s->f, s->f->parts->parts[i].live_in[k]));
    OSH_NEW(cx, s->dv, OSH_GRADIENTS_SAMPLES);
    for (int64_t b = 0; b < s->d.n; b++) OSH_NEW(cx, s->dv[b], g->n_values);
    *out = s, s = NULL; // passes ownership
done:
    osh_gradients_close(cx, s);
    return rc;
}

void osh_gradients_close(osh_ctx *cx, osh_gradients *s)
{
    if (!s) return;
    for (int v = 0; s->made && s->read && v < s->f->graph->n_values; v++)
        osh_stat_free(cx, s->made[v]), osh_stat_free(cx, s->read[v]);
    osh_free(cx, s->made);
    osh_free(cx, s->read);
    for (int b = 0; s->dv && b < OSH_GRADIENTS_SAMPLES; b++) {
        for (int v = 0; s->dv[b] && v < s->f->graph->n_values; v++)
            osh_tensor_free(cx, s->dv[b][v]);
        osh_free(cx, s->dv[b]);
    }
    osh_free(cx, s->dv);
    osh_forward_close(cx, s->f);
    osh_dataset_deinit(cx, &s->d);
    osh_sweep_close(cx, &s->sweep);
    osh_free(cx, s->in);
    osh_free(cx, s->none);
    osh_free(cx, s->seen);
    osh_free(cx, s->linear_of);
    osh_free(cx, s->reader_of);
    osh_free(cx, s);
}

/* Computes dL/dh of sample `at`; h is the input of the head. */
static osh_status head_gradient(osh_ctx *cx, osh_gradients *s, int64_t at)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = s->f->graph;
    const osh_batch *b = s->f->batches[at];
    // `targets` and `ones` are own; `dh` is a view
    osh_tensor *targets = NULL, *ones = NULL, **dh = &s->dv[at][g->hidden];
    osh_vocab_attr rules = osh_forward_rules(s->f, NULL);
    OSH_TRY(osh_next_tokens(cx, &targets, &s->d, at, 1));
    OSH_TRY(osh_tensor_new(cx, &ones, OSH_F32, 1, &b->n_tokens));
    for (int64_t i = 0; i < b->n_tokens; i++) ((float *)ones->data)[i] = 1;
    OSH_TRY(osh_tensor_new(cx, dh, OSH_F32, 2, b->values[g->hidden]->shape));
    OSH_TRY(osh_tensor_zero(cx, *dh));
    osh_grad_args a = {.in = {b->values[g->hidden], s->f->head, targets},
                       .dout = {ones},
                       .din = {*dh},
                       .attr = &rules,
                       .seqs = &b->seqs};
    OSH_TRY(osh_op_grad(cx, &osh_op_nll, &a));
done:
    osh_tensor_free(cx, targets);
    osh_tensor_free(cx, ones);
    return rc;
}

/* Adds the squares of the elements of dv (gradients of the loss) to the statistic *to. Makes the
 * statistic at the first sample. */
static osh_status squares_add(osh_ctx *cx, osh_stat **to, const osh_gradients *s,
                              const osh_tensor *dv)
{
    osh_status rc = OSH_OK;
    const osh_where host = {NULL, OSH_LIFE_LONG};
    osh_seqs one = {1, (int64_t[]){0, dv->shape[0]}};
    osh_op_args a = {.in = {dv}, .seqs = &one};
    if (!*to) {
        OSH_TRY(osh_stat_new(cx, to, &osh_stat_squares, s->groups, dv->shape[1], host));
        OSH_TRY(osh_stat_new_part(cx, *to, host));
    }
    OSH_TRY(osh_stat_feed(cx, *to, &a, s->sample));
done:
    return rc;
}

/* A hook that gets the gradients dv of the loss at a value. It adds the squares of dv to two
 * statistics. One belongs to the Linear that computes the value, the other to the Linear that reads
 * the value. */
static osh_status gradients_value(osh_ctx *cx, void *user, int value, const osh_tensor *dv)
{
    osh_status rc = OSH_OK;
    const osh_gradients *s = user;
    int made = s->linear_of[value], read = s->reader_of[value];
    if (made >= 0 && s->p->match.linears[made].gradients.outputs)
        OSH_TRY(squares_add(cx, &s->made[value], s, dv));
    if (read >= 0 && s->p->match.linears[read].gradients.inputs)
        OSH_TRY(squares_add(cx, &s->read[value], s, dv));
done:
    return rc;
}

/* Adds a complete statistic to the gradients of a Linear, and frees the statistic. */
static osh_status squares_take(osh_ctx *cx, osh_tensor *gradients, osh_stat **from)
{
    osh_status rc = OSH_OK;
    if (!*from) goto done;
    OSH_TRY(osh_stat_finish(cx, *from));
    const double *sum = (*from)->all->data;
    double *to = gradients->data;
    for (int64_t i = 0; i < gradients->shape[0]; i++) to[i] += sum[i];
    osh_stat_free(cx, *from), *from = NULL;
done:
    return rc;
}

/* Adds the complete statistics of a subgraph to the gradients of the Linears. */
static osh_status gradients_take(osh_ctx *cx, const osh_gradients *s)
{
    osh_status rc = OSH_OK;
    for (int v = 0; v < s->f->graph->n_values; v++) {
        int made = s->linear_of[v], read = s->reader_of[v];
        if (made >= 0)
            OSH_TRY(squares_take(cx, s->p->match.linears[made].gradients.outputs, &s->made[v]));
        if (read >= 0)
            OSH_TRY(squares_take(cx, s->p->match.linears[read].gradients.inputs, &s->read[v]));
    }
done:
    return rc;
}

/* Returns the arguments of the backward pass through a subgraph. Gradients of the subgraph's inputs
 * are computed only if an earlier subgraph has a Linear. */
static osh_back subgraph_back(const osh_gradients *s, const osh_forward_part *p)
{
    const osh_subgraph *sub = p->s;
    memset(s->in, 0, (size_t)s->f->graph->n_values * sizeof *s->in);
    for (int k = 0; p->index > s->stop && k < sub->n_live_in; k++)
        s->in[sub->live_in[k]] = sub->live_in[k] != s->f->graph->input_ids;
    return (osh_back){.g = s->f->graph,
                      .first = sub->first,
                      .n = sub->n_nodes,
                      .run = p->run,
                      .weights = s->none,
                      .in = s->in,
                      .seen = s->seen,
                      .value = gradients_value,
                      .user = (void *)s};
}

/* Runs a subgraph forward and backward, sample by sample. */
static osh_status gradients_pass(osh_ctx *cx, void *user, osh_forward_part *p)
{
    osh_status rc = OSH_OK;
    osh_gradients *s = user;
    osh_back k = subgraph_back(s, p);
    const osh_exec_span span = {k.g, k.first, k.n, p->run, NULL}; // keeps all values
    for (int64_t b = 0; b < s->d.n; b++) {
        OSH_TRY(osh_check_interrupt(cx));
        s->sample = b;
        OSH_TRY(osh_exec_run(cx, &span, p->w, s->f->batches[b], NULL, true));
        OSH_TRY(osh_back_run(cx, &k, p->w, s->f->batches[b], s->dv[b]));
    }
    OSH_TRY(gradients_take(cx, s));
done:
    return rc;
}

osh_status osh_gradients_run(osh_ctx *cx, osh_gradients *s, osh_progress *pr)
{
    osh_status rc = OSH_OK;
    const osh_partition *parts = s->f->parts;
    osh_sweep *sweep = &s->sweep;
    for (int i = 0; i < s->p->match.n_linears; i++) {
        OSH_TRY(osh_tensor_zero(cx, s->p->match.linears[i].gradients.outputs));
        if (s->p->match.linears[i].gradients.inputs)
            OSH_TRY(osh_tensor_zero(cx, s->p->match.linears[i].gradients.inputs));
    }
    pr->n_steps = 2 * parts->n - s->stop;
    OSH_TRY(osh_sweep_open(cx, sweep, pr, s->f, &s->d));
    /* Each subgraph runs forward once. Subgraph `stop` and all later ones also run forward a second
     * time, and backward. A backward pass takes about twice as long as a forward pass. */
    for (int i = s->stop; i < parts->n; i++) sweep->times[i] = 4;
    osh_sweep_begin(sweep, 0);
    s->f->begun = sweep->begun;
    OSH_TRY(osh_forward_run(cx, s->f, &s->d, 1, false, pr));
    for (int64_t b = 0; b < s->d.n; b++) OSH_TRY(head_gradient(cx, s, b));
    osh_tensor_free(cx, s->f->head), s->f->head = NULL;
    pr->phase = "gradients", sweep->done = pr->work_done;
    for (int i = parts->n - 1; i >= s->stop; i--) {
        sweep->times[i] = 3;
        OSH_TRY(osh_sweep_visit(cx, sweep, s->f, i, pr->step + 1,
                                &(osh_forward_visitor){gradients_pass, s, true}));
    }
    for (int i = 0; i < s->p->match.n_linears; i++) {
        osh_linear *l = &s->p->match.linears[i];
        double *c = l->gradients.outputs->data,
               *in = l->gradients.inputs ? l->gradients.inputs->data : NULL;
        for (int64_t o = 0; o < l->O; o++) c[o] /= (double)s->d.offsets[s->d.n];
        for (int64_t k = 0; in && k < l->I; k++) in[k] /= (double)s->d.offsets[s->d.n];
    }
done:
    return rc;
}

/* ---- memory ---- */

/* Returns the number of bytes of the gradients of value v for all samples. */
static int64_t gradient_bytes(const osh_gradients *s, int v)
{
    int64_t sum = 0, each = s->f->graph->values[v].width * (int64_t)sizeof(float);
    for (int64_t b = 0; b < s->d.n; b++)
        sum += (int64_t)osh_tensor_gross((size_t)((s->d.offsets[b + 1] - s->d.offsets[b]) * each));
    return sum;
}

/* Returns the number of bytes of the statistics that a subgraph needs. */
static int64_t squares_bytes(const osh_gradients *s, const osh_subgraph *sub)
{
    const osh_graph *g = s->f->graph;
    size_t sum = 0;
    for (int v = 0; v < g->n_values; v++) {
        int producer = g->values[v].producer;
        bool here = producer >= sub->first && producer < sub->first + sub->n_nodes;
        for (int k = 0; k < sub->n_live_in; k++) here |= sub->live_in[k] == v;
        int n = here * ((s->linear_of[v] >= 0) + (s->reader_of[v] >= 0));
        sum += (size_t)n * osh_stat_bytes(&osh_stat_squares, &s->groups, g->values[v].width);
    }
    return (int64_t)sum;
}

/* Returns the number of bytes that the head needs for one sample. Logits and their gradients are
 * computed in tiles. */
static int64_t head_bytes(osh_ctx *cx, const osh_gradients *s, int64_t n_tokens)
{
    const osh_graph *g = s->f->graph;
    int64_t D = g->values[g->hidden].width, width[4] = {D, D, D, D};
    size_t lists = 2 * osh_tensor_gross((size_t)n_tokens * sizeof(float));
    return (int64_t)(lists + 8 * osh_mem_gross(0) +
                     osh_op_grad_scratch(&osh_op_nll, NULL, width, g->n_vocab, n_tokens,
                                         osh_threads(cx)));
}

typedef struct masks { // sets of values of a subgraph
    /* in: true for inputs.
     * leaves: true for outputs.
     * all: true for all values. */
    bool *in, *leaves, *all; // own [values]
} masks;

/* Sets *sum to the bytes that a subgraph needs: its weights, one sample's forward and backward
 * pass, the statistics, and the gradients that are stored between subgraphs. The caller has called
 * osh_forward_bytes, which counts the weights. */
static osh_status subgraph_bytes(osh_ctx *cx, int64_t *sum, const osh_gradients *s, int subgraph,
                                 const masks *m, int64_t n_tokens)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = s->f->graph;
    const osh_subgraph *sub = &s->f->parts->parts[subgraph];
    osh_forward_part p;
    OSH_TRY(osh_forward_at(cx, &p, s->f, subgraph));
    osh_back k = subgraph_back(s, &p);
    int64_t waiting = 0, reading = (int64_t)osh_source_scratch(s->f->source);
    size_t back = 0, forth = 0;
    for (int v = 0; v < g->n_values; v++) {
        m->in[v] = m->leaves[v] = false;
        for (int i = 0; i < sub->n_live_in; i++) m->in[v] |= sub->live_in[i] == v;
        for (int i = 0; i < sub->n_live_out; i++)
            m->leaves[v] |= sub->live_out[i] == v && v != g->input_ids &&
                            g->values[v].last_use >= sub->first + sub->n_nodes;
        m->leaves[v] |= subgraph == s->f->parts->n - 1 && v == g->hidden;
        if (m->leaves[v]) waiting += gradient_bytes(s, v);
    }
    OSH_TRY(osh_back_peak(cx, &back, &k, m->leaves, n_tokens, osh_threads(cx)));
    osh_exec_batch whole = {.n_tokens = n_tokens, .n_threads = osh_threads(cx)};
    OSH_TRY(osh_exec_peak(cx, &forth, NULL,
                          &(osh_exec_span){g, sub->first, sub->n_nodes, p.run, m->all},
                          &(osh_exec_brought){.in = m->in}, &whole));
    int64_t work = osh_max64((int64_t)(back > forth ? back : forth), reading);
    *sum = s->f->plain->schedule.visits[subgraph].weight_bytes + waiting + work +
           squares_bytes(s, sub);
done:
    return rc;
}

osh_status osh_gradients_bytes(osh_ctx *cx, int64_t *peak, const osh_gradients *s)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = s->f->graph;
    masks m = {0}; // own
    osh_forward_memory forward;
    int64_t most = 0, sum = 0;
    OSH_NEW(cx, m.in, g->n_values);
    OSH_NEW(cx, m.leaves, g->n_values);
    OSH_NEW(cx, m.all, g->n_values);
    memset(m.all, true, (size_t)g->n_values);
    for (int64_t b = 0; b < s->d.n; b++)
        most = osh_max64(most, s->d.offsets[b + 1] - s->d.offsets[b]);
    OSH_TRY(osh_forward_bytes(cx, &forward, s->f, &s->d, s->d.n, 1));
    int64_t left = forward.left;
    *peak = osh_max64(forward.peak,
                         left + gradient_bytes(s, g->hidden) + head_bytes(cx, s, most));
    left -= osh_forward_head_bytes(s->f);
    for (int i = s->f->parts->n - 1; i >= s->stop; i--) {
        const osh_subgraph *sub = &s->f->parts->parts[i];
        OSH_TRY(subgraph_bytes(cx, &sum, s, i, &m, most));
        *peak = osh_max64(*peak, left + sum);
        for (int v = 0; v < g->n_values; v++) // frees the values that this subgraph computes
            if (m.leaves[v] && g->values[v].producer >= sub->first)
                left -= osh_forward_values_bytes(s->f, &s->d, s->d.n, 1, v);
    }
done:
    osh_free(cx, m.in);
    osh_free(cx, m.leaves);
    osh_free(cx, m.all);
    return rc;
}
