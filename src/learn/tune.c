/* tune.c - makes the state of tuning: which weights of a quantized model are tuned, and from which
 * values they start. tune_steps.c changes the weights. */
#include "learn/tune_state.h"

#include <string.h>

#include "graph/back.h"
#include "graph/picked.h"

/* One of every HELD rows is used for validation and not for learning. */
enum { HELD = 8 };
/* Estimated bytes of the small allocations. tune_kept_count does not compute them one by one. */
enum { SMALL_BYTES = 1 << 16 };
/* List of the arrays of osh_tune. The member `of` says if an array has one element for each weight,
 * for each value of the graph or for each row of the data. osh_tune_new allocates the arrays of the
 * list, osh_tune_free frees them, and osh_tune_bytes adds up their bytes. */
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

osh_status osh_tune_check(osh_ctx *cx, const osh_graph *g, const bool *linear, bool on_device)
{
    osh_status rc = OSH_OK;
    bool *wants = NULL, *in = NULL; // own
    OSH_NEW(cx, wants, g->n_weights);
    OSH_NEW(cx, in, g->n_values);
    memcpy(wants, linear, (size_t)g->n_weights * sizeof *wants);
    osh_tune_norms(wants, g);
    osh_back k = {.g = g, .n = g->head, .weights = wants, .in = in, .on_device = on_device};
    OSH_TRY(osh_back_check(cx, &k));
done:
    osh_free(cx, in);
    osh_free(cx, wants);
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
        if (!rc && t->device) rc = osh_tune_fetch(cx, &t->hidden[i], b->values[t->g->hidden]);
        else if (!rc) t->hidden[i] = b->values[t->g->hidden], b->values[t->g->hidden] = NULL;
        osh_batch_free(cx, b);
        if (rc) goto done;
    }
done:
    osh_free(cx, keep);
    return rc;
}

static int64_t tune_longest(const osh_dataset *d)
{
    int64_t most = 0;
    for (int64_t i = 0; i < d->n; i++)
        if (d->offsets[i + 1] - d->offsets[i] > most) most = d->offsets[i + 1] - d->offsets[i];
    return most;
}

osh_status osh_tune_new(osh_ctx *cx, osh_tune **out, const osh_tune_model *m,
                        const osh_tune_rule *rule)
{
    osh_status rc = OSH_OK;
    osh_tune *t = NULL; // own
    const osh_graph *g = m->g;
    const osh_value *hidden = &g->values[g->hidden];
    OSH_NEW(cx, t, 1);
    *t = (osh_tune){.g = g,
                    .ck = m->ck,
                    .data = m->data,
                    .rule = *rule,
                    .device = m->device,
                    .n_train = m->data->n - osh_tune_held(m->data)};
    OSH_TRY(tune_lists_new(cx, t));
    OSH_TRY(osh_weights_new(cx, &t->w, g));
    t->w->device = t->device;
    OSH_TRY(osh_weights_load(cx, t->w, g, m->ck, 0, g->n_nodes));
    t->head = t->w->w[g->nodes[g->head].w[0]];
    if (osh_graph_head_bias(g)) t->head_bias = t->w->w[g->nodes[g->head].w[1]];
    if (t->device)
        OSH_TRY(osh_tensor_new_on(cx, &t->teacher, (osh_where){t->device, OSH_LIFE_LONG},
                                  hidden->dtype, 2,
                                  (int64_t[]){tune_longest(m->data), hidden->width}));
    OSH_TRY(tune_teach(cx, t));
    for (int i = 0; i < g->head; i++)
        for (int k = 0; k < g->nodes[i].op->n_weights; k++)
            if (g->nodes[i].w[k] >= 0 && tune_is_norm(&g->nodes[i], k))
                OSH_TRY(osh_tune_take_norm(cx, t, g->nodes[i].w[k],
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
        osh_tune_learner_deinit(cx, t->device, &t->of[i]);
    osh_tensor_free(cx, t->teacher);
    for (int64_t i = 0; t->hidden && i < t->data->n; i++) osh_tensor_free(cx, t->hidden[i]);
    for (int v = 0; t->dv && v < t->g->n_values; v++) osh_tensor_free(cx, t->dv[v]);
    osh_weights_free(cx, t->w);
    tune_lists_free(cx, t);
    osh_free(cx, t);
}

/* ---- memory ---- */

/* Adds the bytes that are allocated from osh_tune_new to osh_tune_free. The allocator's overhead is
 * included. Also sets m->copy. */
static void tune_kept_count(osh_tune_memory *m, const osh_tune_model *of, const bool *wants,
                            const bool *loaded, const int64_t *n_scales)
{
    const osh_graph *g = of->g;
    const osh_dataset *d = of->data;
    size_t row = (size_t)tune_longest(d) * osh_value_bytes(g, g->hidden);
    m->kept += osh_mem_gross(sizeof(osh_tune)) + tune_lists_bytes(g, d) + osh_weights_lists(g) +
               SMALL_BYTES;
    if (of->on_device) m->device_kept += osh_arena_gross(row);
    for (int i = 0; i < g->n_weights; i++) {
        const osh_weight *w = &g->weights[i];
        size_t bytes = loaded[i] ? osh_weight_bytes(g, of->ck, i) : 0, copy = bytes;
        if (n_scales[i] || wants[i])
            copy += osh_tune_learner_count(m, w, n_scales[i], of->on_device);
        if (!of->on_device) m->kept += bytes;
        else if (bytes) m->device_kept += osh_arena_gross(bytes);
        if (of->on_device && copy > m->copy) m->copy = copy;
    }
    for (int64_t i = 0; i < d->n; i++)
        m->kept += osh_value_gross(g, g->hidden, d->offsets[i + 1] - d->offsets[i]);
}

osh_status osh_tune_bytes(osh_ctx *cx, osh_tune_memory *memory, const osh_tune_model *m,
                          const int64_t *n_scales)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = m->g;
    bool *linear = NULL, *wants = NULL, *loaded = NULL; // own
    *memory = (osh_tune_memory){0};
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
    OSH_TRY(osh_tune_row_bytes(cx, memory, m, wants, tune_longest(m->data)));
    tune_kept_count(memory, m, wants, loaded, n_scales);
done:
    osh_free(cx, loaded);
    osh_free(cx, wants);
    osh_free(cx, linear);
    return rc;
}
