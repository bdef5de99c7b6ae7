/* tune_steps.c - changes the tuned weights step by step to lower the KL divergence from the
 * original model. */
#include "learn/tune_state.h"

#include <math.h>
#include <string.h>

#include "base/elementary.h"
#include "graph/back.h"
#include "graph/picked.h"
#include "ops/kernel.h"

enum { WARM = 4 }; // number of warmup steps, in which the learning rates rise

osh_status osh_tune_forward(osh_ctx *cx, osh_batch **b, osh_tune *t, int64_t row,
                            const bool *keep)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_batch_new_on(cx, b, t->device, t->g,
                             &(osh_batch_rows){t->data->ids, t->data->offsets + row, 1}));
    (*b)->first_sample = row;
    OSH_TRY(
        osh_exec_run(cx, &(osh_exec_span){t->g, 0, t->g->head, NULL, keep}, t->w, *b, NULL, true));
done:
    return rc;
}

/* Returns an array (view). Its element i is 1 if the loss counts the prediction of token i + 1 at
 * token i of the row. Returns NULL if all predictions except the last count. */
static const uint8_t *tune_counted(const osh_dataset *d, int64_t row)
{
    return d->counted ? d->counted + d->offsets[row] + 1 : NULL;
}

/* Returns the number of predictions of the row that count in the loss. The prediction at the last
 * token does not count, because no token follows. */
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

/* Sets *view to the hidden values of the original model for a row. With a device, copies them to
 * t->teacher first. */
static osh_status tune_teacher(osh_ctx *cx, osh_tensor *view, const osh_tune *t, int64_t row)
{
    const osh_tensor *x = t->hidden[row];
    *view = osh_tensor_view(x->dtype, x->ndim, x->shape, t->device ? t->teacher->data : x->data);
    view->device = t->device;
    return t->device ? osh_tensor_copy(cx, view, x) : OSH_OK;
}

/* Adds the KL divergences of the counted predictions of batch b to *sum. teacher: hidden values of
 * the original model. */
static osh_status tune_row_loss(osh_ctx *cx, double *sum, const osh_tune *t, const osh_batch *b,
                                const osh_tensor *teacher)
{
    osh_vocab_attr rules = {{t->g->logits, t->g->logits}, {t->head_bias, t->head_bias}};
    osh_op_args a = {.in = {b->values[t->g->hidden], t->head, teacher, t->head},
                     .attr = &rules, .seqs = &b->seqs};
    return osh_kl_sum(cx, sum, &a, b->n_tokens - 1, tune_counted(t->data, b->first_sample));
}

/* The next two functions give shapes of tensors of the backward pass over n tokens. Both the
 * allocation and osh_tune_row_bytes use them. tune_parts_shape: weights of the tokens in the loss.
 * tune_grad_shape: gradient of the hidden values. */
static osh_tensor tune_parts_shape(int64_t n)
{
    return (osh_tensor){.dtype = OSH_F32, .ndim = 1, .shape = {n}};
}

static osh_tensor tune_grad_shape(const osh_graph *g, int64_t n)
{
    return (osh_tensor){.dtype = OSH_F32, .ndim = 2, .shape = {n, g->values[g->hidden].width}};
}

static osh_status shaped_new(osh_ctx *cx, osh_tensor **out, osh_device *d, osh_tensor shape)
{
    return osh_tensor_new_on(cx, out, (osh_where){d, OSH_LIFE_SHORT}, shape.dtype, shape.ndim,
                             shape.shape);
}

static size_t shaped_bytes(osh_tensor shape) { return osh_tensor_gross(osh_tensor_bytes(&shape)); }

static size_t shaped_arena_bytes(osh_tensor shape)
{
    return osh_arena_gross(osh_tensor_bytes(&shape));
}

/* Makes the weights of the tokens of batch b in the loss: `part` for each counted prediction, and
 * otherwise 0. The caller owns *out. */
static osh_status tune_parts_new(osh_ctx *cx, osh_tensor **out, const osh_tune *t,
                                 const osh_batch *b, float part)
{
    osh_status rc = OSH_OK;
    osh_tensor *parts = NULL; // own: in host memory
    int64_t n = b->n_tokens;
    const uint8_t *counted = tune_counted(t->data, b->first_sample);
    OSH_TRY(shaped_new(cx, &parts, NULL, tune_parts_shape(n)));
    for (int64_t i = 0; i < n; i++)
        ((float *)parts->data)[i] = i + 1 < n && (!counted || counted[i]) ? part : 0;
    if (t->device) {
        OSH_TRY(shaped_new(cx, out, t->device, tune_parts_shape(n)));
        OSH_TRY(osh_tensor_copy(cx, *out, parts));
    } else {
        *out = parts, parts = NULL; // give
    }
done:
    osh_tensor_free(cx, parts);
    return rc;
}

/* Computes a gradient with respect to the hidden values. It is the gradient of a weighted sum of
 * the row's KL divergences. A divergence has the weight `part` if its prediction is counted, and
 * otherwise the weight 0. teacher: hidden values of the original model. */
static osh_status tune_hidden_grad(osh_ctx *cx, osh_tune *t, const osh_batch *b,
                                   const osh_tensor *teacher, float part)
{
    osh_status rc = OSH_OK;
    osh_tensor *parts = NULL; // own
    int h = t->g->hidden;
    osh_vocab_attr rules = {{t->g->logits, t->g->logits}, {t->head_bias, t->head_bias}};
    OSH_TRY(shaped_new(cx, &t->dv[h], t->device, tune_grad_shape(t->g, b->n_tokens)));
    OSH_TRY(osh_tensor_zero(cx, t->dv[h]));
    OSH_TRY(tune_parts_new(cx, &parts, t, b, part));
    osh_grad_args a = {.in = {b->values[h], t->head, (osh_tensor *)teacher, t->head},
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
    osh_tune_learner *l = &((osh_tune *)user)->of[weight];
    return osh_tune_add(cx, l->role == OSH_TUNE_LINEAR ? l->c.grad : l->n.grad, dw);
}

/* Runs a row forward and backward, and adds the gradients of the tuned weights to their learners.
 * The loss of each token is multiplied by `part`. If `loss` is not NULL, adds the KL divergences of
 * the row to *loss. */
static osh_status tune_learn_row(osh_ctx *cx, osh_tune *t, int64_t row, float part, double *loss)
{
    osh_status rc = OSH_OK;
    osh_batch *b = NULL; // own
    osh_tensor teacher;
    osh_back k = {.g = t->g,
                  .n = t->g->head,
                  .weights = t->wants,
                  .in = t->in,
                  .on_device = t->device != NULL,
                  .rough = true,
                  .weight = tune_add_grad,
                  .user = t};
    OSH_TRY(osh_tune_forward(cx, &b, t, row, NULL));
    OSH_TRY(tune_teacher(cx, &teacher, t, row));
    if (loss) OSH_TRY(tune_row_loss(cx, loss, t, b, &teacher));
    OSH_TRY(tune_hidden_grad(cx, t, b, &teacher, part));
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
        const osh_tune_learner *l = &t->of[i];
        OSH_TRY(osh_check_interrupt(cx));
        if (l->role == OSH_TUNE_LINEAR) OSH_TRY(osh_tune_codes_step(cx, &l->c, &s));
        if (l->role == OSH_TUNE_NORM) OSH_TRY(osh_tune_norm_step(cx, &l->n, &s));
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
        osh_tensor teacher;
        rc = osh_tune_forward(cx, &b, t, i, keep);
        if (!rc) rc = tune_teacher(cx, &teacher, t, i);
        if (!rc) rc = tune_row_loss(cx, &sum, t, b, &teacher);
        osh_batch_free(cx, b);
        if (rc) goto done;
        n += tune_n_counted(t->data, i);
    }
    *mean = n ? sum / (double)n : 0;
done:
    osh_free(cx, keep);
    return rc;
}

/* Counts the codes, and those that differ from the codes before tuning. */
static osh_status tune_count_changed(osh_ctx *cx, osh_tune_result *r, const osh_tune *t)
{
    osh_status rc = OSH_OK;
    for (int i = 0; i < t->g->n_weights; i++) {
        const osh_tune_learner *l = &t->of[i];
        osh_tune_codes c;
        float *own = NULL; // own
        if (l->role != OSH_TUNE_LINEAR) continue;
        rc = osh_tune_here(cx, &c, &own, l);
        for (int64_t k = 0; !rc && k < c.O * c.I; k++)
            r->n_codes++, r->n_changed += osh_tune_code(&c, k) != l->start[k];
        osh_free(cx, own);
        if (rc) goto done;
    }
done:
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
    OSH_TRY(tune_count_changed(cx, r, t));
done:
    return rc;
}

/* ---- memory ---- */

static size_t tune_larger(size_t a, size_t b) { return a > b ? a : b; }

typedef struct tune_marks { // flags of values and nodes, for the predictions of passes; all own
    bool *none;   // [values] all false
    bool *leaves; // [values] true only for the hidden values
    bool *all;    // [values] all true
    bool *run;    // [nodes] all true
} tune_marks;

static osh_status tune_marks_init(osh_ctx *cx, tune_marks *m, const osh_graph *g)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, m->none, g->n_values);
    OSH_NEW(cx, m->leaves, g->n_values);
    OSH_NEW(cx, m->all, g->n_values);
    OSH_NEW(cx, m->run, g->n_nodes);
    memset(m->all, true, (size_t)g->n_values);
    memset(m->run, true, (size_t)g->n_nodes);
    m->leaves[g->hidden] = true;
done:
    return rc;
}

static void tune_marks_deinit(osh_ctx *cx, tune_marks *m)
{
    osh_free(cx, m->run);
    osh_free(cx, m->all);
    osh_free(cx, m->leaves);
    osh_free(cx, m->none);
}

/* Returns an upper bound of the host bytes of a row that is run on a device: lists of the batch and
 * of the passes, tensors without their data, and rows of tables. */
static size_t tune_row_lists(const osh_graph *g, int64_t n_tokens)
{
    size_t picked = 0;
    for (int i = 0; i < g->head; i++) {
        const osh_node *n = &g->nodes[i];
        if (!osh_is_picked(g, n, 0)) continue;
        size_t one = osh_picked_bytes(&g->weights[n->w[0]], n_tokens * osh_picked_each(g, n), true);
        picked = tune_larger(picked, one);
    }
    return picked + osh_mem_gross(sizeof(osh_batch)) + osh_batch_lists(g, n_tokens + 1) +
           2 * osh_mem_gross((size_t)g->n_values * sizeof(bool)) +
           2 * (size_t)g->head * osh_mem_gross(sizeof(osh_tensor)) +
           2 * osh_mem_gross((size_t)(n_tokens + 1) * sizeof(osh_tile)) +
           shaped_bytes(tune_parts_shape(n_tokens)) + osh_kl_sum_lists(n_tokens);
}

/* Sets m->row and m->device_row for a row that is run on a device. */
static osh_status tune_row_bytes_there(osh_ctx *cx, osh_tune_memory *m, const osh_back *k,
                                       const tune_marks *marks, int64_t n_tokens)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = k->g;
    const osh_op *kl = &osh_op_kl;
    int64_t D = g->values[g->hidden].width, width[4] = {D, D, D, D};
    osh_tensor head = {0};
    osh_vocab_attr attr = {{g->logits, g->logits}, {NULL, NULL}};
    size_t back = 0, forth = 0, values = 0;
    if (osh_graph_head_bias(g)) attr.bias[0] = attr.bias[1] = &head;
    OSH_TRY(osh_back_peak_on_device(cx, &back, k, marks->leaves, n_tokens));
    OSH_TRY(osh_exec_peak_on_device(cx, &forth, &values,
                                    &(osh_exec_span){g, 0, g->head, marks->run, marks->all},
                                    &(osh_exec_brought){.in = marks->none}, n_tokens));
    for (int i = 0; i < g->head; i++)
        if (osh_is_picked(g, &g->nodes[i], 0))
            values += osh_picked_arena_bytes(&g->weights[g->nodes[i].w[0]], n_tokens);
    size_t score = osh_kl_sum_arena_bytes(n_tokens) +
                   kl->arena_bytes(&attr, width, g->n_vocab, n_tokens, g->dtype),
           grad = shaped_arena_bytes(tune_grad_shape(g, n_tokens)) +
                  shaped_arena_bytes(tune_parts_shape(n_tokens)) +
                  kl->grad.arena_bytes(&attr, width, g->n_vocab, n_tokens, g->dtype);
    m->device_row = tune_larger(tune_larger(back, forth), values + tune_larger(score, grad));
    m->row = tune_row_lists(g, n_tokens);
done:
    return rc;
}

osh_status osh_tune_row_bytes(osh_ctx *cx, osh_tune_memory *m, const osh_tune_model *of,
                              const bool *wants, int64_t n_tokens)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = of->g;
    const osh_op *kl = &osh_op_kl;
    tune_marks marks = {0}; // own
    int64_t D = g->values[g->hidden].width, width[4] = {D, D, D, D};
    size_t back = 0, forth = 0, values = 0, made = shaped_bytes(tune_grad_shape(g, n_tokens));
    OSH_TRY(tune_marks_init(cx, &marks, g));
    osh_back k = {.g = g, .n = g->head, .weights = wants, .in = marks.none,
                  .on_device = of->on_device};
    if (of->on_device) {
        OSH_TRY(tune_row_bytes_there(cx, m, &k, &marks, n_tokens));
        goto done;
    }
    OSH_TRY(osh_back_peak(cx, &back, &k, marks.leaves, n_tokens, osh_threads(cx)));
    osh_exec_batch whole = {.n_tokens = n_tokens, .n_threads = osh_threads(cx)};
    OSH_TRY(osh_exec_peak(cx, &forth, &values,
                          &(osh_exec_span){g, 0, g->head, marks.run, marks.all},
                          &(osh_exec_brought){.in = marks.none}, &whole));
    forth += osh_batch_lists(g, n_tokens), values += osh_batch_lists(g, n_tokens);
    size_t score = osh_mem_gross(kl->scratch(NULL, width, g->n_vocab, n_tokens, osh_threads(cx)));
    made += shaped_bytes(tune_parts_shape(n_tokens)) + osh_kl_sum_lists(n_tokens);
    size_t grad = osh_op_grad_scratch(kl, NULL, width, g->n_vocab, n_tokens, osh_threads(cx)) +
                  8 * osh_mem_gross(0);
    m->row = tune_larger(tune_larger(back, forth), values + made + tune_larger(score, grad));
done:
    tune_marks_deinit(cx, &marks);
    return rc;
}
