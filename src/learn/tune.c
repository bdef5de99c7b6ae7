/* tune.c - makes the state of tuning: which weights of a quantized model are tuned, and from which
 * values they start. tune_steps.c changes them. */
#include "learn/tune_state.h"

#include <string.h>

#include "graph/back.h"
#include "graph/picked.h"

/* One of every HELD rows is used for validation and not for learning. */
enum { HELD = 8 };
/* Estimated bytes of the small allocations. tune_kept_bytes does not compute them one by one. */
enum { SMALL_BYTES = 1 << 16 };
/* Largest |v - code| before the first step; v is the real number that is rounded to the code. */
#define FROM_CODE 0.4f

/* List of the arrays of osh_tune. An array has one element per weight, per value of the graph or
 * per row of the data (`of`). osh_tune_new allocates the arrays of the list, osh_tune_free frees
 * them, and osh_tune_bytes adds up their bytes. */
typedef enum { OF_WEIGHTS, OF_VALUES, OF_ROWS } whose;
static const struct { size_t at, each; whose of; } lists[] = {
    {offsetof(osh_tune, of), sizeof(osh_tune_learner), OF_WEIGHTS},
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
 * osh_tune_take allocate arrays of these lengths, and osh_tune_bytes counts the bytes of these
 * arrays. */
typedef struct learner_room { int64_t floats, zeros, start; } learner_room;

static int64_t tune_norm_floats(int64_t n) { return 5 * n; }

static learner_room tune_codes_room(int64_t O, int64_t I, int64_t G, bool zero)
{
    return (learner_room){4 * O * I + 4 * O * G, zero ? O * G : 0, O * I};
}

static osh_status learner_room_new(osh_ctx *cx, osh_tune_learner *l, const learner_room *r)
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
    const osh_tune_learner *l = NULL; // l is used only for sizeof, and never dereferenced
    return osh_mem_gross((size_t)r->floats * sizeof *l->room) +
           (r->zeros ? osh_mem_gross((size_t)r->zeros * sizeof *l->zero) : 0) +
           (r->start ? osh_mem_gross((size_t)r->start * sizeof *l->start) : 0);
}

/* Makes the learner of the weight of a norm. Does nothing if the learner exists already: an earlier
 * node may have the same weight. */
static osh_status tune_take_norm(osh_ctx *cx, osh_tune *t, int weight, float offset)
{
    osh_status rc = OSH_OK;
    osh_tune_learner *l = &t->of[weight];
    osh_tensor *w = t->w->w[weight];
    int64_t n = osh_tensor_numel(w);
    // the learner exists, because an earlier node has the same weight
    if (l->role != OSH_TUNE_FIXED) goto done;
    OSH_TRY(learner_room_new(cx, l, &(learner_room){.floats = tune_norm_floats(n)}));
    float *r = l->room;
    l->n = (osh_tune_norm){r, r + n, r + 2 * n, r + 3 * n, r + 4 * n, offset, n, w};
    osh_to_f32(l->n.w0, w->data, w->dtype, n);
    l->role = OSH_TUNE_NORM, t->wants[weight] = true;
done:
    return rc;
}

osh_status osh_tune_take(osh_ctx *cx, osh_tune *t, int weight, const osh_q_args *q,
                         const int8_t *codes, const osh_qparams *params)
{
    osh_status rc = OSH_OK;
    osh_tune_learner *l = &t->of[weight];
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
    l->role = OSH_TUNE_LINEAR, t->wants[weight] = true;
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
        rc = osh_tune_forward(cx, &b, t, i, keep);
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

void osh_tune_codes_of(const osh_tune *t, int weight, int8_t *codes, osh_qparams *params)
{
    const osh_tune_codes *c = &t->of[weight].c;
    for (int64_t i = 0; i < c->O * c->I; i++) codes[i] = osh_tune_code(c, i);
    for (int64_t i = 0; i < c->O * c->G; i++) osh_q_scale_put(params, i, osh_tune_scale(c, i));
}

const osh_tensor *osh_tune_norm_of(const osh_tune *t, int weight)
{
    return t->of[weight].role == OSH_TUNE_NORM ? t->of[weight].n.w : NULL;
}

/* ---- memory ---- */

/* Returns how many bytes are allocated from osh_tune_new to osh_tune_free. The allocator's overhead
 * is included. */
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
    OSH_TRY(osh_tune_row_bytes(cx, &m->row, g, wants, most));
    m->kept = tune_kept_bytes(g, ck, data, wants, loaded, n_scales);
done:
    osh_free(cx, loaded);
    osh_free(cx, wants);
    osh_free(cx, linear);
    return rc;
}
