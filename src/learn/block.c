/* block.c - optimizes the codes of a block's Linears. Each step draws samples, runs them forward
 * and backward through the block, and changes the codes. */
#include "learn/block.h"

#include <string.h>

#include "base/rng.h"
#include "learn/learning.h"

/* Largest number of tokens in a batch; a sample with more tokens is a batch by itself. A test sets
 * a smaller number. */
#ifndef OSH_BLOCK_TOKENS
#define OSH_BLOCK_TOKENS 2048
#endif
enum { TOKENS = OSH_BLOCK_TOKENS };

static int64_t block_sample_tokens(const osh_dataset *d, int64_t s)
{
    return d->offsets[s + 1] - d->offsets[s];
}

static int64_t block_step_samples(const osh_block *b)
{
    return b->rule.samples < b->data->n ? b->rule.samples : b->data->n;
}

/* Copies the mask of sample s (osh_dataset.counted) to `to`. */
static void block_counted(uint8_t *to, const osh_dataset *d, int64_t s)
{
    size_t n = (size_t)block_sample_tokens(d, s);
    if (d->counted) memcpy(to, d->counted + d->offsets[s], n);
    else memset(to, 1, n);
}

int64_t osh_block_most_tokens(const osh_block *b)
{
    int64_t longest = 0, n = 0;
    for (int64_t s = 0; s < b->data->n; s++)
        if (block_sample_tokens(b->data, s) > longest) longest = block_sample_tokens(b->data, s);
    n = longest * block_step_samples(b);
    return n < TOKENS ? n : longest > TOKENS ? longest : TOKENS;
}

/* True if the samples of every step fit into one batch. */
static bool block_is_whole(const osh_block *b)
{
    int64_t longest = 0;
    for (int64_t s = 0; s < b->data->n; s++)
        if (block_sample_tokens(b->data, s) > longest) longest = block_sample_tokens(b->data, s);
    return block_step_samples(b) == 1 || block_step_samples(b) * longest <= TOKENS;
}

size_t osh_block_target_bytes(const osh_block *b)
{
    size_t most = 0;
    for (int k = 0; b->rule.share < 1 && k < b->n_in; k++)
        if (osh_value_bytes(b->g, b->in[k]) > most) most = osh_value_bytes(b->g, b->in[k]);
    for (int k = 0; k < b->n_out; k++)
        if (osh_value_bytes(b->g, b->out[k]) > most) most = osh_value_bytes(b->g, b->out[k]);
    return (size_t)osh_block_most_tokens(b) * most;
}

/* ---- allocation ---- */

void osh_learning_end(osh_ctx *cx, osh_learning *l)
{
    if (l->target) osh_device_free(l->b->w->device, l->target);
    if (l->sums) osh_device_free(l->b->w->device, l->sums);
    if (l->counted_there) osh_device_free(l->b->w->device, l->counted_there);
    for (int i = 0; l->of && i < l->b->n_learns; i++) osh_ada_learner_free(cx, l->of[i]);
    for (int v = 0; l->dv && v < l->b->g->n_values; v++) osh_tensor_free(cx, l->dv[v]);
    for (int i = 0; l->biases && i < l->b->n_learns; i++) osh_free(cx, l->biases[i].v.x);
    osh_free(cx, l->biases);
    osh_free(cx, l->of);
    osh_free(cx, l->which);
    osh_free(cx, l->wants);
    osh_free(cx, l->none);
    osh_free(cx, l->placed);
    osh_free(cx, l->dv);
    osh_free(cx, l->order);
    osh_free(cx, l->ids);
    osh_free(cx, l->counted);
    osh_free(cx, l->offsets);
}

osh_status osh_learning_lists_new(osh_ctx *cx, osh_learning *l)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = l->b->g;
    OSH_NEW(cx, l->wants, g->n_weights);
    OSH_NEW(cx, l->which, g->n_weights);
    OSH_NEW(cx, l->none, g->n_values);
    OSH_NEW(cx, l->placed, g->n_weights);
    for (int w = 0; w < g->n_weights; w++) l->which[w] = -1;
    for (int i = 0; i < l->b->n_learns; i++) {
        int w = l->b->learns[i].weight;
        l->wants[w] = true, l->which[w] = i;
        l->placed[w] =
            l->b->data && block_is_whole(l->b) && osh_ada_learner_places(&l->b->learns[i].args);
        if (l->b->learns[i].bias_rate <= 0) continue;
        w = l->b->learns[i].bias;
        l->wants[w] = true, l->which[w] = i;
    }
done:
    return rc;
}

static osh_status bias_new(osh_ctx *cx, osh_learning *l, int i)
{
    osh_status rc = OSH_OK;
    const osh_tensor *t = l->b->w->w[l->b->learns[i].bias];
    int64_t n = osh_tensor_numel(t);
    osh_ada_vector *v = &l->biases[i].v;
    OSH_NEW(cx, v->x, OSH_BIAS_ARRAYS * n);
    v->n = n, v->grad = v->x + n, v->mean = v->x + 2 * n, v->square = v->x + 3 * n,
    l->biases[i].first = v->x + 4 * n, l->biases[i].room = v->x + 5 * n;
    OSH_TRY(osh_tensor_get(cx, l->biases[i].room, t, 0, osh_tensor_bytes(t)));
    osh_to_f32(v->x, l->biases[i].room, t->dtype, n);
    memcpy(l->biases[i].first, v->x, (size_t)n * sizeof *v->x);
done:
    return rc;
}

/* Writes the learned or the original bias of Linear i to b->w. */
static osh_status bias_show(osh_ctx *cx, const osh_learning *l, int i, bool learned)
{
    const osh_block_bias *x = &l->biases[i];
    osh_tensor *t = x->v.x ? l->b->w->w[l->b->learns[i].bias] : NULL;
    if (!t) return OSH_OK;
    osh_from_f32(x->room, t->dtype, learned ? x->v.x : x->first, x->v.n);
    return osh_tensor_put(cx, t, 0, x->room, osh_tensor_bytes(t));
}

static osh_status learning_buffers_new(osh_ctx *cx, osh_learning *l)
{
    osh_status rc = OSH_OK;
    const osh_block *b = l->b;
    osh_device *d = b->w->device;
    size_t tokens = (size_t)osh_block_most_tokens(b), sums = tokens * sizeof *l->sums;
    if (!d) goto done;
    if (!(l->target = osh_device_alloc(cx, d, osh_block_target_bytes(b), OSH_LIFE_SHORT)) ||
        !(l->sums = osh_device_alloc(cx, d, sums, OSH_LIFE_SHORT)))
        OSH_TRY(OSH_E_NOMEM);
    if (b->data->counted &&
        !(l->counted_there = osh_device_alloc(cx, d, tokens, OSH_LIFE_SHORT)))
        OSH_TRY(OSH_E_NOMEM);
done:
    return rc;
}

static osh_status learning_begin(osh_ctx *cx, osh_learning *l)
{
    osh_status rc = OSH_OK;
    osh_block *b = l->b;
    OSH_TRY(osh_learning_lists_new(cx, l));
    OSH_NEW(cx, l->of, b->n_learns);
    OSH_NEW(cx, l->biases, b->n_learns);
    OSH_NEW(cx, l->dv, b->g->n_values);
    OSH_NEW(cx, l->order, b->data->n);
    OSH_NEW(cx, l->ids, osh_block_most_tokens(b));
    OSH_NEW(cx, l->counted, osh_block_most_tokens(b));
    OSH_NEW(cx, l->offsets, block_step_samples(b) + 1);
    // l->next is at the end of l->order, so the first draw shuffles the samples
    l->next = b->data->n;
    for (int i = 0; i < b->n_learns; i++) {
        osh_block_weight *w = &b->learns[i];
        OSH_TRY(osh_ada_learner_new(cx, &l->of[i], &w->args, b->w->device));
        OSH_TRY(osh_ada_learner_step(cx, l->of[i], -1, b->w->w[w->weight]));
        if (w->bias_rate > 0) OSH_TRY(bias_new(cx, l, i));
    }
    OSH_TRY(learning_buffers_new(cx, l));
done:
    return rc;
}

/* ---- samples ---- */

/* Draws the samples of the next step. Sets *first to the index of the first drawn sample in
 * l->order. Shuffles l->order if fewer samples remain than a step needs. */
static void learning_draw(osh_learning *l, int64_t *first)
{
    int64_t all = l->b->data->n, n = block_step_samples(l->b);
    if (l->next + n > all) {
        for (int64_t i = 0; i < all; i++) l->order[i] = i;
        for (int64_t i = all - 1; i > 0; i--) {
            int64_t k = (int64_t)(osh_rng_u64(l->b->rule.seed, (uint64_t)l->drawn, (uint64_t)i) %
                                  (uint64_t)(i + 1));
            int64_t old = l->order[i];
            l->order[i] = l->order[k], l->order[k] = old;
        }
        l->next = 0, l->drawn++;
    }
    *first = l->next, l->next += n;
}

/* Returns the value whose rows osh_block.rows copies for k. */
static int learning_value_of(const osh_block *b, int k)
{
    int last = b->n_in + b->n_out;
    return k < b->n_in ? b->in[k] : k < last ? b->out[k - b->n_in] : b->in[k - last];
}

/* Gathers rows in the tensor `to`: the rows of kind k (osh_block.rows) of n samples. The samples
 * are order[first] to order[first + n - 1]. l->offsets contains the first row of each sample. */
static osh_status learning_gather_to(osh_ctx *cx, const osh_tensor *to, const osh_learning *l,
                                     int k, int64_t first, int64_t n)
{
    osh_status rc = OSH_OK;
    const osh_block *b = l->b;
    size_t row = osh_value_bytes(b->g, learning_value_of(b, k));
    for (int64_t i = 0; i < n; i++) {
        int64_t of[2] = {l->offsets[i + 1] - l->offsets[i], to->shape[1]};
        osh_tensor part =
            osh_tensor_view(to->dtype, 2, of, (char *)to->data + (size_t)l->offsets[i] * row);
        part.device = to->device;
        OSH_TRY(b->rows(cx, b->user, k, l->order[first + i], &part));
    }
done:
    return rc;
}

/* Makes a new tensor and gathers rows in it. The caller owns *out. */
static osh_status learning_gather(osh_ctx *cx, osh_tensor **out, const osh_learning *l, int k,
                                  int64_t first, int64_t n)
{
    osh_status rc = OSH_OK;
    const osh_block *b = l->b;
    const osh_value *v = &b->g->values[learning_value_of(b, k)];
    OSH_TRY(osh_tensor_new_on(cx, out, (osh_where){b->w->device, OSH_LIFE_SHORT}, v->dtype, 2,
                              (int64_t[]){l->offsets[n], v->width}));
    OSH_TRY(learning_gather_to(cx, *out, l, k, first, n));
done:
    return rc;
}

/* Replaces random elements of input k of the batch by the same elements of the original model's
 * input (rule.share). Does nothing if only the loss is computed (l->judging). */
static osh_status learning_mix(osh_ctx *cx, const osh_learning *l, const osh_batch *batch, int k,
                               int64_t first)
{
    osh_status rc = OSH_OK;
    const osh_block *b = l->b;
    // x: view of the input values of the batch. x0: the same values of the original model.
    osh_tensor *x = batch->values[b->in[k]], *own = NULL, *x0 = NULL, there;
    osh_mix_attr at = {.share = b->rule.share, .samples = l->order + first};
    if (l->judging || at.share >= 1 || !b->differs || !b->differs[k]) goto done;
    at.key = osh_mix_key(b->rule.seed, (uint64_t)k, (uint64_t)l->step);
    if (batch->device) {
        there = osh_tensor_view(x->dtype, 2, x->shape, l->target);
        there.device = batch->device, x0 = &there;
        OSH_TRY(learning_gather_to(cx, x0, l, b->n_in + b->n_out + k, first, batch->seqs.n));
    } else {
        OSH_TRY(learning_gather(cx, &own, l, b->n_in + b->n_out + k, first, batch->seqs.n));
        x0 = own;
    }
    osh_op_args a = {.in = {x, x0}, .out = {x}, .attr = &at, .seqs = &batch->seqs};
    OSH_TRY(osh_op_run(cx, &osh_op_mix, &a));
done:
    osh_tensor_free(cx, own);
    return rc;
}

/* Makes a batch of samples order[first], order[first + 1], ... and their input values. The batch
 * has at least one sample and ends before order[end]. It ends earlier if the next sample would give
 * the batch more than TOKENS tokens. */
static osh_status learning_batch_new(osh_ctx *cx, osh_batch **out, osh_learning *l, int64_t first,
                                     int64_t end)
{
    osh_status rc = OSH_OK;
    const osh_block *b = l->b;
    int64_t n = 0;
    l->offsets[0] = 0;
    while (first + n < end) {
        int64_t s = l->order[first + n], more = block_sample_tokens(b->data, s);
        if (n && l->offsets[n] + more > TOKENS) break;
        memcpy(l->ids + l->offsets[n], b->data->ids + b->data->offsets[s],
               (size_t)more * sizeof *l->ids);
        block_counted(l->counted + l->offsets[n], b->data, s);
        l->offsets[n + 1] = l->offsets[n] + more;
        n++;
    }
    OSH_TRY(osh_batch_new_on(cx, out, b->w->device, b->g,
                             &(osh_batch_rows){l->ids, l->offsets, n}));
    (*out)->first_sample = l->order[first];
    for (int k = 0; k < b->n_in; k++) {
        if (b->in[k] == b->g->input_ids) continue;
        OSH_TRY(learning_gather(cx, &(*out)->values[b->in[k]], l, k, first, n));
        OSH_TRY(learning_mix(cx, l, *out, k, first));
    }
done:
    return rc;
}

/* ---- steps ---- */

/* Arguments for computing dy, the gradient of the loss with respect to a compared value y. */
typedef struct slope {
    const osh_tensor *y, *y0;
    float *dy;
    double *sums; // own [rows]
    const uint8_t *counted; // view [rows]
    double by;
} slope;

static osh_status slope_row(osh_ctx *cx, void *user, int64_t row, int worker)
{
    const slope *s = user;
    int64_t n = s->y->shape[1];
    size_t at = (size_t)(row * n) * osh_dtype_bytes(s->y->dtype);
    float y[256], y0[256], *dy = s->dy + row * n;
    double sum = 0;
    (void)cx, (void)worker;
    s->sums[row] = 0;
    if (!s->counted[row]) {
        memset(dy, 0, (size_t)n * sizeof *dy);
        return OSH_OK;
    }
    for (int64_t c = 0; c < n; c += 256) {
        int64_t m = n - c < 256 ? n - c : 256;
        size_t off = at + (size_t)c * osh_dtype_bytes(s->y->dtype);
        osh_to_f32(y, (const char *)s->y->data + off, s->y->dtype, m);
        osh_to_f32(y0, (const char *)s->y0->data + off, s->y0->dtype, m);
        for (int64_t i = 0; i < m; i++) {
            float e = y[i] - y0[i];
            sum += (double)e * e;
            dy[c + i] = (float)(s->by * e);
        }
    }
    s->sums[row] = sum;
    return OSH_OK;
}

/* Compares output k of the batch with its target in host memory. */
static osh_status compare_here(osh_ctx *cx, const osh_learning *l, const osh_batch *batch, int k,
                               int64_t first, slope *s)
{
    osh_status rc = OSH_OK;
    osh_tensor *y0 = NULL; // own
    OSH_TRY(learning_gather(cx, &y0, l, l->b->n_in + k, first, batch->seqs.n));
    s->y0 = y0, s->dy = l->dv[l->b->out[k]]->data;
    OSH_TRY(osh_parallel_for(cx, batch->n_tokens, slope_row, s));
done:
    osh_tensor_free(cx, y0);
    return rc;
}

/* Compares output k of the batch with its target on a device. */
static osh_status compare_there(osh_ctx *cx, const osh_learning *l, const osh_batch *batch, int k,
                                int64_t first, const slope *s)
{
    osh_status rc = OSH_OK;
    osh_device *d = batch->device;
    osh_tensor y0 = osh_tensor_view(s->y->dtype, 2, s->y->shape, l->target);
    y0.device = d;
    OSH_TRY(learning_gather_to(cx, &y0, l, l->b->n_in + k, first, batch->seqs.n));
    OSH_TRY(osh_ada_there_compare(cx, &(osh_ada_compared){s->y, &y0, s->by, l->dv[l->b->out[k]],
                                                          l->sums, l->counted_there}));
    OSH_TRY(d->type->get(cx, d, s->sums, l->sums, (size_t)batch->n_tokens * sizeof *l->sums));
done:
    return rc;
}

/* Sets l->dv[v] to the gradient of the loss with respect to v, for each compared value v. Adds the
 * loss of the batch to *loss. `elements` is the number by which the sum of squared errors is
 * divided (learning_loss_divisor). */
static osh_status learning_compare(osh_ctx *cx, osh_learning *l, const osh_batch *batch,
                                   int64_t first, double elements, double *loss)
{
    osh_status rc = OSH_OK;
    const osh_block *b = l->b;
    osh_device *d = batch->device;
    slope s = {.by = elements > 0 ? 2 / elements : 0, .counted = l->counted};
    OSH_NEW(cx, s.sums, batch->n_tokens);
    if (l->counted_there)
        OSH_TRY(d->type->put(cx, d, l->counted_there, l->counted, (size_t)batch->n_tokens));
    for (int k = 0; k < b->n_out; k++) {
        int v = b->out[k];
        s.y = batch->values[v];
        OSH_TRY(osh_tensor_new_on(cx, &l->dv[v], (osh_where){d, OSH_LIFE_SHORT}, OSH_F32, 2,
                                  s.y->shape));
        OSH_TRY(d ? compare_there(cx, l, batch, k, first, &s)
                  : compare_here(cx, l, batch, k, first, &s));
        for (int64_t i = 0; elements > 0 && i < batch->n_tokens; i++)
            *loss += s.sums[i] / elements;
    }
done:
    osh_free(cx, s.sums);
    return rc;
}

static osh_status learning_add_grad(osh_ctx *cx, void *user, int weight, const osh_tensor *dw)
{
    osh_learning *l = user;
    int i = l->which[weight];
    if (weight == l->b->learns[i].weight) return osh_ada_learner_add(cx, l->of[i], dw);
    const osh_block_bias *x = &l->biases[i];
    osh_status rc = osh_tensor_get(cx, x->room, dw, 0, osh_tensor_bytes(dw));
    for (int64_t k = 0; !rc && k < x->v.n; k++) x->v.grad[k] += x->room[k];
    return rc;
}

static osh_tensor *learning_place_grad(void *user, int weight)
{
    const osh_learning *l = user;
    return osh_ada_learner_place(l->of[l->which[weight]]);
}

osh_back osh_learning_back(const osh_learning *l)
{
    const osh_block *b = l->b;
    return (osh_back){.g = b->g,
                      .first = b->first,
                      .n = b->n,
                      .run = b->run,
                      .weights = l->wants,
                      .in = l->none,
                      .on_device = b->on_device,
                      .rough = true,
                      .weight = learning_add_grad,
                      .placed = l->placed,
                      .place = learning_place_grad,
                      .user = (void *)l};
}

static double block_out_width(const osh_block *b)
{
    double width = 0;
    for (int v = 0; v < b->n_out; v++) width += (double)b->g->values[b->out[v]].width;
    return width;
}

/* Returns the divisor for the sum of squared errors over samples [first, end) of `order`. If
 * rule.sum is true, this is the number of counted tokens. Otherwise it is the number of counted
 * elements. */
static double learning_loss_divisor(const osh_learning *l, int64_t first, int64_t end)
{
    double tokens = 0;
    for (int64_t i = first; i < end; i++)
        tokens += (double)osh_dataset_n_counted(l->b->data, l->order[i], l->order[i] + 1);
    return l->b->rule.sum ? tokens : tokens * block_out_width(l->b);
}

/* Computes the loss of samples [first, end) of `order`. If l->judging is false, also adds the
 * gradients of the optimized weights to their learners. */
static osh_status learning_look(osh_ctx *cx, osh_learning *l, int64_t first, int64_t end,
                                double *loss)
{
    osh_status rc = OSH_OK;
    const osh_block *b = l->b;
    osh_back k = osh_learning_back(l);
    osh_batch *batch = NULL; // own
    double elements = learning_loss_divisor(l, first, end);
    *loss = 0;
    while (first < end) {
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(learning_batch_new(cx, &batch, l, first, end));
        OSH_TRY(osh_exec_run(cx, &(osh_exec_span){b->g, b->first, b->n, b->run, NULL}, b->w, batch,
                             NULL, true));
        OSH_TRY(learning_compare(cx, l, batch, first, elements, loss));
        if (!l->judging) OSH_TRY(osh_back_run(cx, &k, b->w, batch, l->dv));
        for (int o = 0; l->judging && o < b->n_out; o++)
            osh_tensor_free(cx, l->dv[b->out[o]]), l->dv[b->out[o]] = NULL;
        first += batch->seqs.n;
        osh_batch_free(cx, batch), batch = NULL;
    }
done:
    osh_batch_free(cx, batch);
    return rc;
}

/* Computes the loss of all samples with the learned weights, or with weights rounded to nearest.
 * Overwrites l->order with the order of the samples in the data. */
static osh_status learning_judge(osh_ctx *cx, osh_learning *l, bool learned, double *loss)
{
    osh_status rc = OSH_OK;
    const osh_block *b = l->b;
    int64_t all = b->data->n, n = block_step_samples(b);
    double one, sum = 0;
    for (int i = 0; i < b->n_learns; i++) {
        OSH_TRY(osh_ada_learner_show(cx, l->of[i], learned, b->w->w[b->learns[i].weight]));
        OSH_TRY(bias_show(cx, l, i, learned));
    }
    for (int64_t i = 0; i < all; i++) l->order[i] = i;
    l->judging = true;
    for (int64_t first = 0; first < all; first += n) {
        int64_t end = first + n < all ? first + n : all;
        OSH_TRY(learning_look(cx, l, first, end, &one));
        sum += one * learning_loss_divisor(l, first, end);
    }
    *loss = sum / learning_loss_divisor(l, 0, all);
done:
    l->judging = false;
    return rc;
}

/* Prepares the first step. If the rule needs the loss with weights rounded to nearest, computes
 * this loss. If this loss is above rule.above, sets the learning rate to rule.rate. */
static osh_status learning_judge_nearest(osh_ctx *cx, osh_learning *l)
{
    osh_status rc = OSH_OK;
    osh_block *b = l->b;
    if (!b->rule.selective && b->rule.rate <= 0) return rc;
    OSH_TRY(learning_judge(cx, l, false, &b->nearest));
    bool above = b->nearest / (b->rule.sum ? block_out_width(b) : 1) > b->rule.above;
    for (int i = 0; i < b->n_learns; i++) {
        if (b->rule.rate > 0 && above) osh_ada_learner_rate(l->of[i], b->rule.rate);
        OSH_TRY(osh_ada_learner_step(cx, l->of[i], -1, b->w->w[b->learns[i].weight]));
    }
done:
    return rc;
}

/* Does step t. Sets *loss to the loss of the samples of the step, plus the rounding term of
 * AdaRound. Sets *watched to the number that decides about an early stop. This number is the
 * rounding term for AdaRound, and the loss for other methods. */
static osh_status learning_take_step(osh_ctx *cx, osh_learning *l, int64_t t, double *loss,
                                     double *watched)
{
    osh_status rc = OSH_OK;
    osh_block *b = l->b;
    int64_t first;
    double term = 0;
    learning_draw(l, &first);
    l->step = t;
    OSH_TRY(learning_look(cx, l, first, first + block_step_samples(b), loss));
    b->ended = *loss;
    if (!t) b->begun = *loss;
    for (int i = 0; i < b->n_learns; i++) {
        OSH_TRY(osh_ada_learner_step(cx, l->of[i], t, b->w->w[b->learns[i].weight]));
        term += osh_ada_learner_term(l->of[i], t);
        if (!l->biases[i].v.x) continue;
        osh_ada_vector_step(&l->biases[i].v, t, b->learns[i].bias_rate);
        OSH_TRY(bias_show(cx, l, i, true));
    }
    *watched = b->rule.kind == OSH_ADA_ROUND ? term : *loss;
    *loss += term;
    b->n_steps = t + 1;
done:
    return rc;
}

/* Decides whether the learned codes are kept. Writes the result (learned, or rounded to nearest) to
 * codes, scales, weights and biases. */
static osh_status learning_conclude(osh_ctx *cx, osh_learning *l)
{
    osh_status rc = OSH_OK;
    osh_block *b = l->b;
    b->kept = true;
    if (b->rule.selective) {
        OSH_TRY(learning_judge(cx, l, true, &b->learned));
        b->kept = b->learned < b->nearest;
    }
    b->diverged = b->n_steps > 1 && osh_ada_diverged(b->ended, b->begun);
    b->kept &= !b->diverged;
    for (int i = 0; i < b->n_learns; i++) {
        osh_tensor *w = b->w->w[b->learns[i].weight];
        if (b->kept) OSH_TRY(osh_ada_learner_end(cx, l->of[i], w));
        else OSH_TRY(osh_ada_learner_show(cx, l->of[i], false, w));
        OSH_TRY(bias_show(cx, l, i, b->kept));
    }
done:
    return rc;
}

osh_status osh_block_learn(osh_ctx *cx, osh_block *b)
{
    osh_status rc = OSH_OK;
    const osh_block_rule *u = &b->rule;
    osh_learning l = {.b = b}; // own
    osh_ada_watch watch = {0};
    double loss = 0, watched;
    bool over = false;
    OSH_TRY(learning_begin(cx, &l));
    OSH_TRY(learning_judge_nearest(cx, &l));
    for (int64_t t = 0; t < u->steps; t++) {
        if (!over) OSH_TRY(learning_take_step(cx, &l, t, &loss, &watched));
        if (b->curve && t % u->period == 0) b->curve[t / u->period] = loss;
        if (over) continue;
        over = u->window && (double)t >= u->warm * (double)u->steps &&
               osh_ada_is_over(&watch, watched, u->window);
        if (b->step) b->step(cx, b->user, over ? u->steps : t + 1);
    }
    OSH_TRY(learning_conclude(cx, &l));
done:
    osh_learning_end(cx, &l);
    return rc;
}
