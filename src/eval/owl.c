/* owl.c - implements OWL: measures the outliers of each decoder layer, and chooses the layer's
 * sparsity from them (Yin et al., "Outlier Weighed Layerwise Sparsity (OWL): A Missing Secret Sauce
 * for Pruning LLMs to High Sparsity", arXiv 2310.05175), as
 * llmcompressor/modifiers/pruning/sparsegpt/sgpt_base.py defines it. Each weight W_ij of a Linear W
 * [O, I] gets a score s_ij. The outliers of a layer are its weights with large scores:
 *
 *   a_j = sum over samples of sqrt(sum over the sample's tokens of x_j^2)
 *   s_ij = |W_ij| a_j
 *   D = the fraction of the layer's scores that are larger than owl_m times their mean
 *   d = 2 owl_lmbda (D - min D) / (max D - min D)
 *   sparsity of the layer = sparsity + mean(d) - d
 *
 * i is an output channel of W, j an input channel, x the input. min, max and mean of D and d are
 * over the layers. All values are those of the original model.
 *
 * One pass runs all samples, subgraph by subgraph. It collects a_j of the inputs of Linears. After
 * the pass over a subgraph, the program computes the scores of the subgraph's layers twice: first
 * for their mean, and then to count the outliers. */
#include "eval/measure.h"

#include <math.h>
#include <string.h>

#include "modifiers/prune.h"
#include "plan/exchange.h"

typedef struct owl_measure {
    osh_measuring m;        // own: statistic v is a_j of value v, summed over samples
    const osh_owl *owl;     // view
    /* Index of the decoder layer that contains the Linear; -1: the node is no Linear, or in no
     * layer. */
    int *layer_of; // own [nodes]
    osh_layer_share *layers; // own [n]: name (a view of the graph) and sparsity of each layer
    double *outliers;       // own [n]: D
    int n;
    // own [width of the widest value]
    float *row;  // one row in F32
    double *now; // sums of squares over the tokens of the current sample
} owl_measure;

/* Lists the decoder layers, and finds the layer of each Linear. */
static osh_status owl_find_layers(osh_ctx *cx, owl_measure *m)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = m->m.f->graph;
    int *number = NULL; // own [modules]: index of the decoder layer; -1: no layer
    OSH_NEW(cx, number, g->n_modules);
    OSH_NEW(cx, m->layers, g->n_modules);
    OSH_NEW(cx, m->outliers, g->n_modules);
    for (int i = 0; i < g->n_modules; i++) {
        number[i] = -1;
        if (!g->layer_class || strcmp(g->modules[i].cls, g->layer_class)) continue;
        number[i] = m->n, m->layers[m->n++].layer = g->modules[i].name;
    }
    if (!m->n)
        OSH_FAIL(
            cx, OSH_E_UNSUPPORTED,
            "sparsity_profile owl: %s has no decoder layers, so it cannot set a sparsity for each",
            m->m.p->in.ck->dir);
    for (int i = 0; i < g->n_nodes; i++) {
        int at = g->nodes[i].module;
        while (at >= 0 && number[at] < 0) at = g->modules[at].parent;
        m->layer_of[i] = at >= 0 && osh_node_is(&g->nodes[i], OSH_OP_LINEAR) ? number[at] : -1;
    }
done:
    osh_free(cx, number);
    return rc;
}

static void owl_close(osh_ctx *cx, osh_measuring *state)
{
    owl_measure *m = (owl_measure *)state;
    if (!m) return;
    osh_measuring_close(cx, &m->m);
    osh_free(cx, m->layer_of);
    osh_free(cx, m->layers);
    osh_free(cx, m->outliers);
    osh_free(cx, m->row);
    osh_free(cx, m->now);
    osh_free(cx, m);
}

/* Makes the steps of the model collect the norms of the inputs of Linears in decoder layers. */
static osh_status owl_ask(osh_ctx *cx, owl_measure *m)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = m->m.f->graph;
    const osh_partition *parts = m->m.f->parts;
    osh_measured *to = NULL; // own until osh_measuring_ask
    int *last = NULL; // own [graph values]: number of the last subgraph that collects the norms
    OSH_NEW(cx, last, g->n_values);
    OSH_NEW(cx, to, g->n_nodes);
    for (int i = 0; i < g->n_nodes; i++) to[i].value = -1;
    for (int k = 0; k < parts->n; k++)
        for (int i = parts->parts[k].first; i < parts->parts[k].first + parts->parts[k].n_nodes;
             i++) {
            if (m->layer_of[i] < 0) continue;
            int v = to[i].value = g->nodes[i].in[0];
            int64_t n = g->values[v].width;
            if (last[v] == k + 1) continue;
            last[v] = k + 1;
            to[i].bytes = (int64_t)osh_stat_bytes(&osh_stat_sums, &m->m.p->in.groups, n);
        }
    OSH_TRY(osh_measuring_ask(cx, &m->m, to, false, g->n_values));
done:
    osh_free(cx, last);
    return rc;
}

static osh_status owl_open(osh_ctx *cx, osh_measuring **out, osh_plan *p,
                           const osh_modifier *modifier)
{
    osh_status rc = OSH_OK;
    owl_measure *m = NULL; // own
    int64_t widest = 1;
    OSH_NEW(cx, m, 1);
    m->owl = modifier->type->pruner->owl(modifier);
    OSH_TRY(osh_measuring_open(cx, &m->m, &osh_measure_outliers, p));
    const osh_graph *g = m->m.f->graph;
    OSH_NEW(cx, m->layer_of, g->n_nodes);
    for (int v = 0; v < g->n_values; v++)
        if (g->values[v].width > widest) widest = g->values[v].width;
    OSH_NEW(cx, m->row, widest);
    OSH_NEW(cx, m->now, widest);
    OSH_TRY(owl_find_layers(cx, m));
    OSH_TRY(owl_ask(cx, m));
    *out = &m->m, m = NULL; // passes ownership
done:
    owl_close(cx, (osh_measuring *)m);
    return rc;
}

/* ---- measurement of a subgraph ---- */

static osh_status norms_add_sample(osh_ctx *cx, owl_measure *m, int value, const osh_tensor *x,
                                   int64_t sample)
{
    osh_status rc = OSH_OK;
    int64_t I = x->shape[1];
    osh_tensor *to; // view
    size_t row = (size_t)I * osh_dtype_bytes(x->dtype);
    memset(m->now, 0, (size_t)I * sizeof *m->now);
    const osh_dataset *d = &m->m.p->in.data;
    const uint8_t *counted = d->counted ? d->counted + d->offsets[sample] : NULL;
    for (int64_t t = 0; t < x->shape[0]; t++) {
        if (counted && !counted[t]) continue;
        osh_to_f32(m->row, (const char *)x->data + (size_t)t * row, x->dtype, I);
        for (int64_t i = 0; i < I; i++) m->now[i] += (double)m->row[i] * m->row[i];
    }
    OSH_TRY(osh_stat_at(cx, &to, m->m.of[value], sample));
    for (int64_t i = 0; i < I; i++) ((double *)to->data)[i] += sqrt(m->now[i]);
done:
    return rc;
}

static osh_status owl_value(osh_ctx *cx, void *user, int value, const osh_tensor *x,
                            const osh_batch *b)
{
    owl_measure *m = user;
    return m->m.of[value] ? norms_add_sample(cx, m, value, x, b->first_sample) : OSH_OK;
}

/* Returns how many scores s_ij of the Linear are above `limit`. If limit < 0, returns the sum of
 * all scores. */
static double linear_count_scores(owl_measure *m, const osh_node *n, const osh_tensor *w,
                                  double limit)
{
    const double *a = m->m.of[n->in[0]]->all->data;
    int64_t O = w->shape[0], I = w->shape[1];
    double sum = 0;
    for (int64_t o = 0; o < O; o++) {
        osh_to_f32(m->row, (const char *)w->data + (size_t)(o * I) * osh_dtype_bytes(w->dtype),
                   w->dtype, I);
        for (int64_t i = 0; i < I; i++) {
            double s = fabs((double)m->row[i]) * a[i];
            sum += limit < 0 ? s : s > limit;
        }
    }
    return sum;
}

/* Computes the outliers of a layer, if the subgraph runs Linears of the layer. */
static void layer_count_outliers(owl_measure *m, const osh_forward_part *p, int layer)
{
    const osh_graph *g = m->m.f->graph;
    const osh_subgraph *s = p->s;
    double sum = 0, above = 0, n = 0;
    for (int way = 0; way < 2; way++)
        for (int i = s->first; i < s->first + s->n_nodes; i++) {
            const osh_node *node = &g->nodes[i];
            const osh_tensor *x = node->w[0] >= 0 ? p->w->w[node->w[0]] : NULL;
            if (m->layer_of[i] != layer || !x || !m->m.of[node->in[0]]) continue;
            if (way) above += linear_count_scores(m, node, x, m->owl->m * sum / n);
            else
                sum += linear_count_scores(m, node, x, -1),
                    n += (double)(x->shape[0] * x->shape[1]);
        }
    if (n > 0) m->outliers[layer] = above / n;
}

/* Begins to collect the norms of the values v for which values[v] is true. */
static osh_status owl_begin(osh_ctx *cx, void *user, osh_forward_part *p, const bool *values)
{
    osh_status rc = OSH_OK;
    owl_measure *m = user;
    const osh_graph *g = p->f->graph;
    for (int v = osh_next_set(values, 0, g->n_values); v < g->n_values;
         v = osh_next_set(values, v + 1, g->n_values))
        OSH_TRY(osh_measuring_begin(cx, &m->m, v, &osh_stat_sums, g->values[v].width));
done:
    return rc;
}

/* Measures the layers of a subgraph with the complete norms. */
static osh_status owl_solve(osh_ctx *cx, void *user, osh_forward_part *p)
{
    owl_measure *m = user;
    (void)cx;
    for (int l = 0; l < m->n && !osh_ranks_me(m->m.ranks); l++) layer_count_outliers(m, p, l);
    return OSH_OK;
}

/* ---- distribution of the sparsity ---- */

static osh_status owl_share_out(osh_ctx *cx, owl_measure *m)
{
    double least = INFINITY, most = 0, mean = 0;
    for (int l = 0; l < m->n; l++) {
        if (m->outliers[l] < least) least = m->outliers[l];
        if (m->outliers[l] > most) most = m->outliers[l];
    }
    // gives all layers the same sparsity if their fractions of outliers are equal
    for (int l = 0; l < m->n; l++) {
        m->layers[l].sparsity =
            most > least ? 2 * m->owl->lmbda * (m->outliers[l] - least) / (most - least) : 0;
        mean += m->layers[l].sparsity / m->n;
    }
    for (int l = 0; l < m->n; l++) {
        double s = m->layers[l].sparsity = m->owl->sparsity + mean - m->layers[l].sparsity;
        osh_log(cx, OSH_LOG_INFO, "%s: %.4f %% of the scores are outliers, sparsity %.4f",
                m->layers[l].layer, 100 * m->outliers[l], s);
        if (!(s >= 0 && s < 1))
            return osh_fail(
                cx, OSH_E_USAGE,
                "sparsity_profile owl: sparsity %g and owl_lmbda %g make %g of %s: want a smaller "
                "owl_lmbda",
                m->owl->sparsity, m->owl->lmbda, s, m->layers[l].layer);
    }
    return OSH_OK;
}

static osh_status owl_over(osh_ctx *cx, osh_measuring *state)
{
    osh_status rc = OSH_OK;
    owl_measure *m = (owl_measure *)state;
    OSH_TRY(osh_ranks_broadcast(cx, m->m.ranks, m->outliers, (size_t)m->n * sizeof *m->outliers,
                                0));
    OSH_TRY(owl_share_out(cx, m));
done:
    return rc;
}

static osh_status owl_print(osh_ctx *cx, char **value, char **said, const osh_measuring *state)
{
    osh_status rc = OSH_OK;
    const owl_measure *m = (const owl_measure *)state;
    const osh_layer_share *of = m->layers;
    double least = 1, most = 0;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    for (int l = 0; l < m->n; l++) {
        if (of[l].sparsity < least) least = of[l].sparsity;
        if (of[l].sparsity > most) most = of[l].sparsity;
        OSH_TRY(osh_buf_printf(cx, &b, "%s\"%s\": %.10g", l ? ", " : "{", of[l].layer,
                               of[l].sparsity));
    }
    *value = osh_sprintf(cx, "%s}", b.data);
    *said = osh_sprintf(cx, "sparsity: from %.4f to %.4f in %d layers\n", least, most, m->n);
    if (!*value || !*said) OSH_TRY(OSH_E_NOMEM);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static char *owl_plan(osh_ctx *cx, const osh_plan *p, double mb)
{
    (void)p;
    return osh_sprintf(cx,
                       "outliers of the layers are measured first, host memory %.1f MB, "
                       "predicted\nthe plan below assumes equal sparsities\n\n",
                       mb);
}

const osh_measurement osh_measure_outliers = {
    .key = "layer_sparsities", .what = "outliers", .open = owl_open, .close = owl_close,
    .begin = owl_begin, .value = owl_value, .solve = owl_solve, .over = owl_over,
    .print = owl_print, .plan = owl_plan,
};
