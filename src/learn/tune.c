/* tune.c - tunes the codes, scales and norms of a quantized model to lower the KL divergence from
 * the original model. A row is one sample of the data. Hidden values are the inputs of the output
 * head. */
#include "learn/tune.h"

#include <math.h>
#include <string.h>

#include "graph/back.h"
#include "base/elementary.h"
#include "graph/picked.h"
#include "ops/kernel.h"

/* WARM: number of warmup steps, in which the learning rates rise.
 * HELD: one of every HELD rows is used for validation and not for learning. */
enum { WARM = 4, HELD = 8 };
/* Estimate of all small allocations, which tune_kept_bytes does not compute one by one. */
enum { SMALL_BYTES = 1 << 16 };
/* Largest |v - code| before the first step; v is the real number that is rounded to the code. */
#define FROM_CODE 0.4f

typedef enum { FIXED, LINEAR, NORM } role;

typedef struct learner { // the learning state of one weight
    role role;
    osh_tune_codes c;
    osh_tune_norm n;
    float *room;       // own: memory of all float arrays of `c` (role LINEAR) or of `n` (role NORM)
    int8_t *zero;      // own: zero points of `c`
    int8_t *start;     // own: codes before tuning
} learner;

struct osh_tune {
    const osh_graph *g;
    const osh_checkpoint *ck;
    const osh_dataset *data;
    osh_tune_rule rule;
    osh_weights *w;      // own
    learner *of;         // own [weights]
    /* wants: own [weights], true for tuned weights.
     * in: own [values], osh_back.in; all elements are false. */
    bool *wants, *in;
    osh_tensor **hidden; // own [rows]: hidden values of the original model
    /* Weight and bias (NULL: none) of the output head. Both are equal in the original and the
     * quantized model. */
    osh_tensor *head, *head_bias; // views
    int64_t n_train;     // number of rows for learning; all other rows are for validation
    osh_tensor **dv;     // own [values]: gradients during a backward pass
};

/* List of the arrays of osh_tune. An array has one element per weight, per value of the graph or
 * per row of the data (`of`). osh_tune_new allocates the arrays of the list, osh_tune_free frees
 * them, and osh_tune_bytes adds up their bytes. */
typedef enum { OF_WEIGHTS, OF_VALUES, OF_ROWS } whose;
static const struct { size_t at, each; whose of; } lists[] = {
    {offsetof(osh_tune, of), sizeof(learner), OF_WEIGHTS},
    {offsetof(osh_tune, wants), sizeof(bool), OF_WEIGHTS},
    {offsetof(osh_tune, in), sizeof(bool), OF_VALUES},
    {offsetof(osh_tune, dv), sizeof(osh_tensor *), OF_VALUES},
    {offsetof(osh_tune, hidden), sizeof(osh_tensor *), OF_ROWS},
};
enum { N_LISTS = sizeof lists / sizeof *lists };

static size_t tune_list_length(int list, const osh_graph *g, const osh_dataset *d)
{
    switch (lists[list].of) {
    case OF_WEIGHTS: return (size_t)g->n_weights;
    case OF_VALUES: return (size_t)g->n_values;
    case OF_ROWS: break;
    }
    return (size_t)d->n;
}

static osh_status tune_lists_new(osh_ctx *cx, osh_tune *t)
{
    for (int i = 0; i < N_LISTS; i++) {
        void *list = osh_calloc(cx, tune_list_length(i, t->g, t->data), lists[i].each);
        if (!list) return OSH_E_NOMEM;
        memcpy((char *)t + lists[i].at, &list, sizeof list);
    }
    return OSH_OK;
}

static void tune_lists_free(osh_ctx *cx, osh_tune *t)
{
    for (int i = 0; i < N_LISTS; i++) {
        void *list;
        memcpy(&list, (char *)t + lists[i].at, sizeof list);
        osh_free(cx, list);
    }
}

static size_t tune_lists_bytes(const osh_graph *g, const osh_dataset *d)
{
    size_t sum = 0;
    for (int i = 0; i < N_LISTS; i++)
        sum += osh_mem_gross(tune_list_length(i, g, d) * lists[i].each);
    return sum;
}

bool osh_tune_can(const osh_q_args *q)
{
    return q->present && q->type == OSH_Q_INT &&
           (q->strategy == OSH_Q_GROUP || q->strategy == OSH_Q_CHANNEL);
}

int64_t osh_tune_held(const osh_dataset *d) { return d->n < 2 ? 0 : d->n < HELD ? 1 : d->n / HELD; }

/* ---- tuned weights ---- */

static bool tune_is_norm(const osh_node *n, int k) { return k == 0 && osh_node_is(n, OSH_OP_NORM); }

void osh_tune_norms(bool *wants, const osh_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; i != g->head && k < g->nodes[i].op->n_weights; k++)
            if (g->nodes[i].w[k] >= 0 && tune_is_norm(&g->nodes[i], k))
                wants[g->nodes[i].w[k]] = true;
}

osh_status osh_tune_check(osh_ctx *cx, const osh_graph *g, const bool *linear)
{
    osh_status rc = OSH_OK;
    bool *wants = NULL, *in = NULL; // own
    OSH_NEW(cx, wants, g->n_weights);
    OSH_NEW(cx, in, g->n_values);
    memcpy(wants, linear, (size_t)g->n_weights * sizeof *wants);
    osh_tune_norms(wants, g);
    OSH_TRY(osh_back_check(cx, &(osh_back){.g = g, .n = g->head, .weights = wants, .in = in}));
done:
    osh_free(cx, in);
    osh_free(cx, wants);
    return rc;
}

/* Lengths of the arrays `room`, `zero` and `start` of a learner, in elements. osh_tune_new and
 * osh_tune_take allocate arrays of these lengths, and osh_tune_bytes computes their bytes. */
typedef struct learner_room { int64_t floats, zeros, start; } learner_room;

static int64_t tune_norm_floats(int64_t n) { return 5 * n; }

static learner_room tune_codes_room(int64_t O, int64_t I, int64_t G, bool zero)
{
    return (learner_room){4 * O * I + 4 * O * G, zero ? O * G : 0, O * I};
}

static osh_status learner_room_new(osh_ctx *cx, learner *l, const learner_room *r)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, l->room, r->floats);
    if (r->zeros) OSH_NEW(cx, l->zero, r->zeros);
    if (r->start) OSH_NEW(cx, l->start, r->start);
done:
    return rc;
}

static size_t learner_room_bytes(const learner_room *r)
{
    const learner *l = NULL; // l is used only for sizeof, and never dereferenced
    return osh_mem_gross((size_t)r->floats * sizeof *l->room) +
           (r->zeros ? osh_mem_gross((size_t)r->zeros * sizeof *l->zero) : 0) +
           (r->start ? osh_mem_gross((size_t)r->start * sizeof *l->start) : 0);
}

/* Makes the learner of the weight of a norm. Does nothing if the learner exists already: an earlier
 * node may have the same weight. */
static osh_status tune_take_norm(osh_ctx *cx, osh_tune *t, int weight, float offset)
{
    osh_status rc = OSH_OK;
    learner *l = &t->of[weight];
    osh_tensor *w = t->w->w[weight];
    int64_t n = osh_tensor_numel(w);
    // the learner exists, because an earlier node has the same weight
    if (l->role != FIXED) goto done;
    OSH_TRY(learner_room_new(cx, l, &(learner_room){.floats = tune_norm_floats(n)}));
    float *r = l->room;
    l->n = (osh_tune_norm){r, r + n, r + 2 * n, r + 3 * n, r + 4 * n, offset, n, w};
    osh_to_f32(l->n.w0, w->data, w->dtype, n);
    l->role = NORM, t->wants[weight] = true;
done:
    return rc;
}

osh_status osh_tune_take(osh_ctx *cx, osh_tune *t, int weight, const osh_q_args *q,
                         const int8_t *codes, const osh_qparams *params)
{
    osh_status rc = OSH_OK;
    learner *l = &t->of[weight];
    osh_tensor *w = t->w->w[weight];
    int64_t O = w->shape[0], I = w->shape[1], G = osh_tensor_numel(params->scale) / O;
    float top = (float)(1 << (q->bits - 1));
    learner_room room = tune_codes_room(O, I, G, params->zero != NULL);
    OSH_TRY(learner_room_new(cx, l, &room));
    float *r = l->room, *s = r + 4 * O * I;
    l->c = (osh_tune_codes){.v = r,
                            .mean = r + O * I,
                            .square = r + 2 * O * I,
                            .grad = r + 3 * O * I,
                            .s0 = s,
                            .d = s + O * G,
                            .d_mean = s + 2 * O * G,
                            .d_square = s + 3 * O * G,
                            .O = O,
                            .I = I,
                            .G = G,
                            .lo = -top,
                            .hi = top - 1,
                            .w = w};
    memcpy(l->start, codes, (size_t)(O * I));
    if (params->zero) {
        memcpy(l->zero, params->zero->data, (size_t)(O * G));
        l->c.zero = l->zero;
    }
    osh_to_f32(l->c.s0, params->scale->data, params->scale->dtype, O * G);
    osh_to_f32(l->c.v, w->data, w->dtype, O * I);
    for (int64_t i = 0; i < O * I; i++) {
        int64_t k = i / (I / G);
        float c = codes[i], u = l->c.v[i] / l->c.s0[k] + (l->zero ? (float)l->zero[k] : 0) - c;
        l->c.v[i] = c + (u > FROM_CODE ? FROM_CODE : u < -FROM_CODE ? -FROM_CODE : u == u ? u : 0);
    }
    if (w->dtype != params->scale->dtype)
        OSH_FAIL(cx, OSH_E_INTERNAL, "%s and its scales have two dtypes",
                 t->g->weights[weight].name);
    OSH_TRY(osh_tune_codes_step(cx, &l->c, NULL));
    l->role = LINEAR, t->wants[weight] = true;
done:
    return rc;
}

/* ---- rows ---- */

/* Runs a row forward through the model, up to the output head. keep [values]: true for values that
 * remain in the batch *b. If `keep` is NULL, all values remain. */
static osh_status tune_forward(osh_ctx *cx, osh_batch **b, osh_tune *t, int64_t row,
                               const bool *keep)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_batch_new(cx, b, t->g, t->data->ids, t->data->offsets + row, 1));
    (*b)->first_sample = row;
    OSH_TRY(
        osh_exec_run(cx, &(osh_exec_span){t->g, 0, t->g->head, NULL, keep}, t->w, *b, NULL, true));
done:
    return rc;
}

/* Sets t->hidden[i] to the hidden values of row i, for all rows. t->w must contain the weights of
 * the original model. */
static osh_status tune_teach(osh_ctx *cx, osh_tune *t)
{
    osh_status rc = OSH_OK;
    bool *keep = NULL; // own
    OSH_NEW(cx, keep, t->g->n_values);
    keep[t->g->hidden] = true;
    for (int64_t i = 0; i < t->data->n; i++) {
        osh_batch *b = NULL; // own
        OSH_TRY(osh_check_interrupt(cx));
        rc = tune_forward(cx, &b, t, i, keep);
        if (!rc) t->hidden[i] = b->values[t->g->hidden], b->values[t->g->hidden] = NULL;
        osh_batch_free(cx, b);
        if (rc) goto done;
    }
done:
    osh_free(cx, keep);
    return rc;
}

osh_status osh_tune_new(osh_ctx *cx, osh_tune **out, const osh_graph *g, const osh_checkpoint *ck,
                        const osh_dataset *data, const osh_tune_rule *rule)
{
    osh_status rc = OSH_OK;
    osh_tune *t = NULL; // own
    OSH_NEW(cx, t, 1);
    *t = (osh_tune){.g = g,
                    .ck = ck,
                    .data = data,
                    .rule = *rule,
                    .n_train = data->n - osh_tune_held(data)};
    OSH_TRY(tune_lists_new(cx, t));
    OSH_TRY(osh_weights_new(cx, &t->w, g));
    OSH_TRY(osh_weights_load(cx, t->w, g, ck, 0, g->n_nodes));
    t->head = t->w->w[g->nodes[g->head].w[0]];
    if (osh_graph_head_bias(g)) t->head_bias = t->w->w[g->nodes[g->head].w[1]];
    OSH_TRY(tune_teach(cx, t));
    for (int i = 0; i < g->head; i++)
        for (int k = 0; k < g->nodes[i].op->n_weights; k++)
            if (g->nodes[i].w[k] >= 0 && tune_is_norm(&g->nodes[i], k))
                OSH_TRY(tune_take_norm(cx, t, g->nodes[i].w[k],
                                       (float)osh_node_norm(&g->nodes[i]).offset));
    *out = t, t = NULL; // passes ownership
done:
    osh_tune_free(cx, t);
    return rc;
}

void osh_tune_free(osh_ctx *cx, osh_tune *t)
{
    if (!t) return;
    for (int i = 0; t->of && i < t->g->n_weights; i++)
        osh_free(cx, t->of[i].room), osh_free(cx, t->of[i].zero), osh_free(cx, t->of[i].start);
    for (int64_t i = 0; t->hidden && i < t->data->n; i++) osh_tensor_free(cx, t->hidden[i]);
    for (int v = 0; t->dv && v < t->g->n_values; v++) osh_tensor_free(cx, t->dv[v]);
    osh_weights_free(cx, t->w);
    tune_lists_free(cx, t);
    osh_free(cx, t);
}

/* Returns an array (view). Its element i is 1 if the loss counts the prediction of token i + 1 at
 * token i of the row. Returns NULL if all predictions except the last count. */
static const uint8_t *tune_counted(const osh_dataset *d, int64_t row)
{
    return d->counted ? d->counted + d->offsets[row] + 1 : NULL;
}

/* Returns how many predictions of the row the loss counts. The prediction at the last token does
 * not count, because no token follows. */
static int64_t tune_n_counted(const osh_dataset *d, int64_t row)
{
    const uint8_t *counted = tune_counted(d, row);
    int64_t all = d->offsets[row + 1] - d->offsets[row] - 1, n = 0;
    for (int64_t i = 0; counted && i < all; i++) n += counted[i];
    return counted ? n : all;
}

bool osh_tune_can_judge(const osh_dataset *d)
{
    int64_t n = 0;
    for (int64_t row = d->n - osh_tune_held(d); row < d->n; row++) n += tune_n_counted(d, row);
    return n > 0;
}

/* Adds the KL divergences of the counted predictions of batch b to *sum. */
static osh_status tune_row_loss(osh_ctx *cx, double *sum, const osh_tune *t, const osh_batch *b,
                                int64_t row)
{
    osh_vocab_attr rules = {{t->g->logits, t->g->logits}, {t->head_bias, t->head_bias}};
    osh_op_args a = {.in = {b->values[t->g->hidden], t->head, t->hidden[row], t->head},
                     .attr = &rules, .seqs = &b->seqs};
    return osh_kl_sum(cx, sum, &a, b->n_tokens - 1, tune_counted(t->data, row));
}

/* The next two functions give shapes of tensors of the backward pass over n tokens. Both the
 * allocation and osh_tune_bytes use them. tune_parts_shape: weights of the tokens in the loss.
 * tune_grad_shape: gradient of the hidden values. */
static osh_tensor tune_parts_shape(int64_t n)
{
    return (osh_tensor){.dtype = OSH_F32, .ndim = 1, .shape = {n}};
}

static osh_tensor tune_grad_shape(const osh_graph *g, int64_t n)
{
    return (osh_tensor){.dtype = OSH_F32, .ndim = 2, .shape = {n, g->values[g->hidden].width}};
}

static osh_status shaped_new(osh_ctx *cx, osh_tensor **out, osh_tensor shape)
{
    return osh_tensor_new(cx, out, shape.dtype, shape.ndim, shape.shape);
}

static size_t shaped_bytes(osh_tensor shape) { return osh_tensor_gross(osh_tensor_bytes(&shape)); }

/* Computes a gradient with respect to the hidden values. It is the gradient of a weighted sum of
 * the row's KL divergences. A divergence has the weight `part` if its prediction is counted, and
 * otherwise the weight 0. */
static osh_status tune_hidden_grad(osh_ctx *cx, osh_tune *t, const osh_batch *b, int64_t row,
                                   float part)
{
    osh_status rc = OSH_OK;
    osh_tensor *parts = NULL; // own
    int64_t n = b->n_tokens, h = t->g->hidden;
    osh_vocab_attr rules = {{t->g->logits, t->g->logits}, {t->head_bias, t->head_bias}};
    OSH_TRY(shaped_new(cx, &parts, tune_parts_shape(n)));
    const uint8_t *counted = tune_counted(t->data, row);
    for (int64_t i = 0; i < n; i++)
        ((float *)parts->data)[i] = i + 1 < n && (!counted || counted[i]) ? part : 0;
    OSH_TRY(shaped_new(cx, &t->dv[h], tune_grad_shape(t->g, n)));
    memset(t->dv[h]->data, 0, osh_tensor_bytes(t->dv[h]));
    osh_grad_args a = {.in = {b->values[h], t->head, t->hidden[row], t->head},
                       .dout = {parts},
                       .din = {t->dv[h]},
                       .attr = &rules,
                       .seqs = &b->seqs,
                       .rough = true};
    OSH_TRY(osh_op_grad(cx, &osh_op_kl, &a));
done:
    osh_tensor_free(cx, parts);
    return rc;
}

static osh_status tune_add_grad(osh_ctx *cx, void *user, int weight, const osh_tensor *dw)
{
    learner *l = &((osh_tune *)user)->of[weight];
    return osh_tune_add(cx, l->role == LINEAR ? l->c.grad : l->n.grad, dw);
}

/* Runs a row forward and backward, and adds the gradients of the tuned weights to their learners.
 * The loss of each token is multiplied by `part`. If `loss` is not NULL, adds the KL divergences of
 * the row to *loss. */
static osh_status tune_learn_row(osh_ctx *cx, osh_tune *t, int64_t row, float part, double *loss)
{
    osh_status rc = OSH_OK;
    osh_batch *b = NULL; // own
    osh_back k = {.g = t->g,
                  .n = t->g->head,
                  .weights = t->wants,
                  .in = t->in,
                  .rough = true,
                  .weight = tune_add_grad,
                  .user = t};
    OSH_TRY(tune_forward(cx, &b, t, row, NULL));
    if (loss) OSH_TRY(tune_row_loss(cx, loss, t, b, row));
    OSH_TRY(tune_hidden_grad(cx, t, b, row, part));
    OSH_TRY(osh_back_run(cx, &k, t->w, b, t->dv));
done:
    osh_batch_free(cx, b);
    return rc;
}

/* ---- steps ---- */

static double tune_rate_part(int64_t at, int64_t n)
{
    if (at < WARM) return (double)(at + 1) / WARM;
    return 0.05 + 0.95 * (1 + osh_math_cos_pi((double)(at - WARM) / (double)(n - WARM))) / 2;
}

/* Changes all tuned weights in step number `at`. */
static osh_status tune_move(osh_ctx *cx, osh_tune *t, int64_t at)
{
    osh_status rc = OSH_OK;
    double part = tune_rate_part(at, t->rule.steps);
    osh_tune_step s = {at + 1, (float)(part * t->rule.code_rate), (float)(part * t->rule.rate)};
    for (int i = 0; i < t->g->n_weights; i++) {
        const learner *l = &t->of[i];
        OSH_TRY(osh_check_interrupt(cx));
        if (l->role == LINEAR) OSH_TRY(osh_tune_codes_step(cx, &l->c, &s));
        if (l->role == NORM) OSH_TRY(osh_tune_norm_step(cx, &l->n, &s));
    }
done:
    return rc;
}

/* Does step number `at`. If `loss` is not NULL, sets *loss to the mean KL divergence per prediction
 * over the rows of the step. *loss is computed before the weights change. */
static osh_status tune_one_step(osh_ctx *cx, osh_tune *t, int64_t at, double *loss)
{
    osh_status rc = OSH_OK;
    int64_t first = at * t->rule.rows, n = 0;
    double sum = 0;
    for (int64_t i = first; i < first + t->rule.rows; i++)
        n += tune_n_counted(t->data, i % t->n_train);
    for (int64_t i = first; n && i < first + t->rule.rows; i++)
        OSH_TRY(tune_learn_row(cx, t, i % t->n_train, (float)(1 / (double)n), loss ? &sum : NULL));
    if (loss) *loss = n ? sum / (double)n : 0;
    OSH_TRY(tune_move(cx, t, at));
done:
    return rc;
}

/* Sets *mean to the mean KL divergence per token over the validation rows. */
static osh_status tune_look(osh_ctx *cx, osh_tune *t, double *mean)
{
    osh_status rc = OSH_OK;
    bool *keep = NULL; // own
    double sum = 0;
    int64_t n = 0;
    OSH_NEW(cx, keep, t->g->n_values);
    keep[t->g->hidden] = true;
    for (int64_t i = t->n_train; i < t->data->n; i++) {
        osh_batch *b = NULL; // own
        rc = tune_forward(cx, &b, t, i, keep);
        if (!rc) rc = tune_row_loss(cx, &sum, t, b, i);
        osh_batch_free(cx, b);
        if (rc) goto done;
        n += tune_n_counted(t->data, i);
    }
    *mean = n ? sum / (double)n : 0;
done:
    osh_free(cx, keep);
    return rc;
}

osh_status osh_tune_run(osh_ctx *cx, osh_tune *t, osh_tune_result *r,
                        void (*step)(osh_ctx *cx, void *user, int64_t t), void *user)
{
    osh_status rc = OSH_OK;
    OSH_TRY(tune_look(cx, t, &r->before));
    for (int64_t i = 0; i < t->rule.steps; i++) {
        if (step) step(cx, user, i);
        OSH_TRY(tune_one_step(cx, t, i, r->curve ? &r->curve[i] : NULL));
    }
    if (step) step(cx, user, t->rule.steps);
    OSH_TRY(tune_look(cx, t, &r->after));
    for (int i = 0; i < t->g->n_weights; i++) {
        const learner *l = &t->of[i];
        for (int64_t k = 0; l->role == LINEAR && k < l->c.O * l->c.I; k++)
            r->n_codes++, r->n_changed += osh_tune_code(&l->c, k) != l->start[k];
    }
done:
    return rc;
}

void osh_tune_codes_of(const osh_tune *t, int weight, int8_t *codes, osh_qparams *params)
{
    const osh_tune_codes *c = &t->of[weight].c;
    for (int64_t i = 0; i < c->O * c->I; i++) codes[i] = osh_tune_code(c, i);
    for (int64_t i = 0; i < c->O * c->G; i++) osh_q_scale_put(params, i, osh_tune_scale(c, i));
}

const osh_tensor *osh_tune_norm_of(const osh_tune *t, int weight)
{
    return t->of[weight].role == NORM ? t->of[weight].n.w : NULL;
}

/* ---- memory ---- */

/* Returns how many bytes, with the allocator's overhead, are allocated from osh_tune_new to
 * osh_tune_free. */
static size_t tune_kept_bytes(const osh_graph *g, const osh_checkpoint *ck, const osh_dataset *d,
                              const bool *wants, const bool *loaded, const int64_t *n_scales)
{
    size_t sum = osh_mem_gross(sizeof(osh_tune)) + tune_lists_bytes(g, d) + osh_weights_lists(g) +
                 SMALL_BYTES;
    for (int i = 0; i < g->n_weights; i++) {
        const osh_weight *w = &g->weights[i];
        int64_t O = w->shape[0], I = w->ndim > 1 ? w->shape[1] : 1;
        learner_room room = {.floats = tune_norm_floats(O * I)};
        if (n_scales[i]) room = tune_codes_room(O, I, n_scales[i] / O, true);
        if (n_scales[i] || wants[i]) sum += learner_room_bytes(&room);
        if (loaded[i]) sum += osh_weight_bytes(g, ck, i);
    }
    for (int64_t i = 0; i < d->n; i++)
        sum += osh_value_gross(g, g->hidden, d->offsets[i + 1] - d->offsets[i]);
    return sum;
}

static size_t tune_larger(size_t a, size_t b) { return a > b ? a : b; }

/* Sets *peak to the largest number of bytes that are allocated at a time while a row of n_tokens
 * tokens is run. The peak is in the forward pass (with all values), in the KL divergence and its
 * gradient, or in the backward pass. */
static osh_status tune_row_bytes(osh_ctx *cx, size_t *peak, const osh_graph *g, const bool *wants,
                                 int64_t n_tokens)
{
    osh_status rc = OSH_OK;
    // Each is own.
    // run [nodes]: true for all nodes.
    // none [values]: all elements are false.
    // leaves [values]: true only for the hidden values.
    // all [values]: all elements are true.
    bool *none = NULL, *leaves = NULL, *all = NULL, *run = NULL;
    const osh_op *kl = &osh_op_kl;
    int64_t D = g->values[g->hidden].width, width[4] = {D, D, D, D};
    size_t back = 0, forth = 0, values = 0, made = shaped_bytes(tune_grad_shape(g, n_tokens));
    OSH_NEW(cx, none, g->n_values);
    OSH_NEW(cx, leaves, g->n_values);
    OSH_NEW(cx, all, g->n_values);
    OSH_NEW(cx, run, g->n_nodes);
    memset(all, true, (size_t)g->n_values);
    memset(run, true, (size_t)g->n_nodes);
    leaves[g->hidden] = true;
    osh_back k = {.g = g, .n = g->head, .weights = wants, .in = none};
    OSH_TRY(osh_back_peak(cx, &back, &k, leaves, n_tokens, osh_threads(cx)));
    osh_exec_batch whole = {.n_tokens = n_tokens, .n_threads = osh_threads(cx)};
    OSH_TRY(osh_exec_peak(cx, &forth, &values, &(osh_exec_span){g, 0, g->head, run, all},
                          &(osh_exec_brought){.in = none}, &whole));
    forth += osh_batch_lists(g, n_tokens), values += osh_batch_lists(g, n_tokens);
    size_t score = osh_mem_gross(kl->scratch(NULL, width, g->n_vocab, n_tokens, osh_threads(cx)));
    made += shaped_bytes(tune_parts_shape(n_tokens)) + osh_kl_sum_lists(n_tokens);
    size_t grad = osh_op_grad_scratch(kl, NULL, width, g->n_vocab, n_tokens, osh_threads(cx)) +
                  8 * osh_mem_gross(0);
    *peak = tune_larger(tune_larger(back, forth), values + made + tune_larger(score, grad));
done:
    osh_free(cx, run);
    osh_free(cx, all);
    osh_free(cx, leaves);
    osh_free(cx, none);
    return rc;
}

osh_status osh_tune_bytes(osh_ctx *cx, osh_tune_memory *m, const osh_graph *g,
                          const osh_checkpoint *ck, const osh_dataset *data,
                          const int64_t *n_scales)
{
    osh_status rc = OSH_OK;
    bool *linear = NULL, *wants = NULL, *loaded = NULL; // own
    int64_t most = 0;
    OSH_NEW(cx, linear, g->n_weights);
    OSH_NEW(cx, wants, g->n_weights);
    OSH_NEW(cx, loaded, g->n_weights);
    for (int i = 0; i < g->n_weights; i++) linear[i] = n_scales[i] > 0;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].op->n_weights; k++)
            if (g->nodes[i].w[k] >= 0 && !osh_is_picked(g, &g->nodes[i], k))
                loaded[g->nodes[i].w[k]] = true;
    memcpy(wants, linear, (size_t)g->n_weights * sizeof *wants);
    osh_tune_norms(wants, g);
    for (int64_t i = 0; i < data->n; i++)
        if (data->offsets[i + 1] - data->offsets[i] > most)
            most = data->offsets[i + 1] - data->offsets[i];
    OSH_TRY(tune_row_bytes(cx, &m->row, g, wants, most));
    m->kept = tune_kept_bytes(g, ck, data, wants, loaded, n_scales);
done:
    osh_free(cx, loaded);
    osh_free(cx, wants);
    osh_free(cx, linear);
    return rc;
}
