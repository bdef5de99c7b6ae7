/* padding.c - decides which sizes of MLPs grow (--indivisible pad), and which tensors get zeros.
 *
 *   x ──► gate_proj  rows F..F' are 0 ──┐
 *   x ──► up_proj    rows F..F' are 0 ──┴─ act, product ──► down_proj  columns F..F' are 0 ──► y
 *
 * F is the old size, and F' the new size. The added rows compute additional elements, which only
 * the added columns of down_proj multiply. These columns are 0, so y does not change, whatever the
 * activation function is. This argument needs ops between the Linears that compute element by
 * element. A norm, a convolution or an attention would mix elements.
 *
 * A size is the value of a key of config.json. To find the weights that depend on a key, the graph
 * is built a second time with twice this size. Weights whose shapes differ between the two graphs
 * depend on the key. A graph with the new sizes gives the new shapes. */
#include "match/padding.h"

#include <ctype.h>
#include <string.h>

#include "base/map.h"
#include "base/name.h"
#include "match/parallel.h"
#include "quant/padding.h"
#include "tensor/scalar.h"

static const char *const keys[] = {
    "intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size",
    "shared_intermediate_size", "moe_shared_expert_intermediate_size", "expert_ffn_hidden_size",
    "ffn_hidden_size", "ffn_dim", "n_inner", "prefix_dense_intermediate_size",
    "intermediate_size_mlp",
};
enum { N_KEYS = sizeof keys / sizeof *keys };
#define MOST ((int64_t)1 << 40) // largest size that is accepted

typedef struct sizing {
    osh_inputs *in;         // view
    osh_matching trial;     // own: Linears of the source with their schemes, before sizes grow
    osh_graph *graph, *grown; // own: graphs of the model with its old and with its new sizes
    int *weight_of;         // own [Linears]: index of the weight in `graph`; -1: none
    // own [Linears]: index (in `keys`) of the size that sets the number of columns; -1: none
    int *key_of;
    /* own [values]: number of equal parts of the value, each of which grows; 0: not set, counts as
     * 1 */
    int64_t *parts;
    osh_padded *of;         // own [weights]: zeros that the weight gets; `tensor` -1: no zeros
    /* size: value of the key in config.json; 0: the key is absent. unit: number that must divide
     * the new size. */
    int64_t size[N_KEYS], unit[N_KEYS];
    const char *key;        // view: key of a size that grows, for messages; NULL: none
} sizing;

/* ---- sizes ---- */

static osh_status sizing_build(osh_ctx *cx, osh_graph **out, const sizing *s)
{
    osh_graph_faults faults = {0}; // own
    osh_buf_init(&faults.text, 0);
    osh_status rc =
        osh_graph_check(cx, out, &faults, s->in->ck, s->in->opt->models_dir);
    osh_buf_deinit(cx, &faults.text);
    return rc;
}

/* Sets weight_of. A weight of s->graph belongs to a Linear if it has the name of the Linear's
 * weight. */
static osh_status sizing_find_weights(osh_ctx *cx, sizing *s)
{
    osh_status rc = OSH_OK;
    osh_map *names = NULL; // own
    const osh_graph *g = s->graph;
    OSH_TRY(osh_map_new_views(cx, &names, (size_t)g->n_weights + 1));
    for (int w = 0; w < g->n_weights; w++)
        OSH_TRY(osh_map_put(cx, names, g->weights[w].name, strlen(g->weights[w].name), w));
    OSH_NEW(cx, s->weight_of, s->trial.n_linears + 1);
    OSH_NEW(cx, s->key_of, s->trial.n_linears + 1);
    for (int i = 0; i < s->trial.n_linears; i++) {
        int64_t at = -1;
        const char *name = s->in->ck->tensors[s->trial.linears[i].tensor].e->name;
        if (!osh_map_get(names, name, strlen(name), &at)) at = -1;
        s->weight_of[i] = (int)at, s->key_of[i] = -1;
    }
done:
    osh_map_free(cx, names);
    return rc;
}

/* Returns the least common multiple of a and b, or 0 if it is larger than MOST. */
static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t common = osh_gcd64(a, b);
    return a / common > MOST / b ? 0 : a / common * b;
}

/* Returns the number that must divide the columns of Linear i. Returns 1 if neither its weight nor
 * its input has groups. */
static int64_t linear_unit(const sizing *s, int i)
{
    const osh_linear *l = &s->trial.linears[i];
    const osh_q_args *a = &l->scheme->weights;
    int64_t n = osh_parallel_parts(s->in->opt, l->name), unit = 1;
    if (l->scheme_index < 0 || !a->present) return 1;
    if (osh_q_in_groups(a)) unit = a->group_size;
    if (a->strategy == OSH_Q_BLOCK && n > 1) unit = a->block[1];
    if (osh_q_in_groups(&l->scheme->inputs))
        unit = common_multiple(unit, l->scheme->inputs.group_size);
    return unit > 1 && unit <= MOST / n ? unit * n : 1;
}

/* Finds the Linears whose columns double if the size with key number k doubles, and sets their
 * key_of. Also sets the number that must divide this size (s->unit). */
static osh_status key_try(osh_ctx *cx, sizing *s, int k)
{
    osh_status rc = OSH_OK;
    osh_graph *doubled = NULL; // own
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(s->in->ck->config->model, keys[k]);
    s->unit[k] = 1;
    if (!cJSON_IsNumber(v) || v->valuedouble < 1 || v->valuedouble > (double)MOST) goto done;
    s->size[k] = (int64_t)v->valuedouble;
    OSH_TRY(osh_hf_config_set_size(cx, s->in->ck->config, keys[k], 2 * s->size[k]));
    rc = sizing_build(cx, &doubled, s);
    if (rc == OSH_E_NOMEM || rc == OSH_E_INTERRUPTED) goto done;
    if (rc) rc = OSH_OK, osh_error_clear(cx); // no error: a template may refuse the doubled size
    OSH_TRY(osh_hf_config_set_size(cx, s->in->ck->config, keys[k], s->size[k]));
    if (!doubled || doubled->n_weights != s->graph->n_weights) goto done;
    for (int i = 0; i < s->trial.n_linears; i++) {
        int64_t I = s->trial.linears[i].I, unit = linear_unit(s, i), n;
        int w = s->weight_of[i];
        if (w < 0 || s->key_of[i] >= 0 || doubled->weights[w].shape[1] != 2 * I ||
            I % s->size[k])
            continue;
        s->key_of[i] = k;
        // if the size grows by 1, the columns of the Linear grow by I / size
        n = common_multiple(unit, I / s->size[k]) / (I / s->size[k]);
        s->unit[k] = s->unit[k] && n ? common_multiple(s->unit[k], n) : 0;
    }
done:
    osh_graph_free(cx, doubled);
    return rc;
}

/* Changes the sizes in the config that must grow, and sets s->key. s->key stays NULL if no size
 * must grow. */
static osh_status sizing_change(osh_ctx *cx, sizing *s)
{
    osh_status rc = OSH_OK;
    for (int k = 0; k < N_KEYS; k++) {
        int64_t n = s->size[k], unit = s->unit[k];
        if (!n || !unit || n % unit == 0 || n > MOST - unit) continue;
        n = (n + unit - 1) / unit * unit;
        OSH_TRY(osh_hf_config_set_size(cx, s->in->ck->config, keys[k], n));
        s->key = keys[k];
    }
done:
    return rc;
}

/* ---- tensors ---- */

static osh_status sizing_refuse(osh_ctx *cx, const sizing *s, const char *what, const char *why)
{
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "--indivisible pad: %s cannot grow, because %s %s: want --indivisible dense, "
                    "or the modules in ignore",
                    s->key, what, why);
}

static bool value_grows(const sizing *s, int v)
{
    return v >= 0 && s->graph->values[v].width != s->grown->values[v].width;
}

static bool weight_grows(const sizing *s, int w)
{
    const osh_weight *a = &s->graph->weights[w], *b = &s->grown->weights[w];
    return a->shape[0] != b->shape[0] || (a->ndim > 1 && a->shape[1] != b->shape[1]);
}

static const char *node_name(const sizing *s, const osh_node *n)
{
    return s->graph->modules[n->module].name;
}

static osh_status value_set_parts(osh_ctx *cx, sizing *s, const osh_node *n, int v, int64_t parts)
{
    if (!value_grows(s, v)) return OSH_OK;
    if (s->parts[v] && s->parts[v] != parts)
        return sizing_refuse(cx, s, node_name(s, n), "reads it in other parts than another op");
    s->parts[v] = parts;
    return OSH_OK;
}

/* Returns the number of equal parts of a slice node's input, if the output is exactly one of these
 * parts. Otherwise returns 0. */
static int64_t slice_parts(const sizing *s, int node)
{
    const osh_node *n = &s->graph->nodes[node];
    const osh_slice_attr *a = n->attr, *b = s->grown->nodes[node].attr;
    int64_t from = s->graph->values[n->in[0]].width, to = s->grown->values[n->in[0]].width;
    bool whole = a->period == 0 && b->period == 0 && !a->pad && !b->pad && a->width < b->width &&
                 from % a->width == 0 && a->first % a->width == 0 &&
                 to == from / a->width * b->width && b->first == a->first / a->width * b->width;
    return whole ? from / a->width : 0;
}

/* The output of the node consists of a known number of equal parts. Computes the number of equal
 * parts of each input. */
static osh_status node_take_parts(osh_ctx *cx, sizing *s, int node)
{
    osh_status rc = OSH_OK;
    const unsigned by_element =
        OSH_OP_GLU | OSH_OP_ACTIVATES | OSH_OP_ADDS | OSH_OP_SCALES;
    const osh_node *n = &s->graph->nodes[node];
    int64_t parts = 0;
    bool grows = value_grows(s, n->out[0]);
    for (int k = 0; k < n->op->n_in; k++) grows |= value_grows(s, n->in[k]);
    for (int k = 0; k < OSH_OP_MAX_IN; k++)
        if (n->w[k] >= 0 && weight_grows(s, n->w[k]) && !osh_node_is(n, OSH_OP_LINEAR))
            OSH_TRY(sizing_refuse(cx, s, node_name(s, n),
                                  "has a weight of this size, but is not a Linear"));
    if (!grows) goto done;
    if (osh_node_is(n, OSH_OP_LINEAR)) parts = 1;
    else if (osh_node_is(n, OSH_OP_PASSES) && n->attr) parts = slice_parts(s, node);
    else if (osh_node_is(n, by_element)) parts = s->parts[n->out[0]] ? s->parts[n->out[0]] : 1;
    if (!parts && osh_node_is(n, OSH_OP_PASSES) && n->attr)
        OSH_TRY(sizing_refuse(cx, s, node_name(s, n),
                              "takes columns that are not one of several equal parts of a row"));
    if (!parts)
        OSH_TRY(sizing_refuse(cx, s, node_name(s, n), "does not compute element by element"));
    for (int k = 0; k < n->op->n_in; k++)
        OSH_TRY(value_set_parts(cx, s, n, n->in[k], parts));
done:
    return rc;
}

static osh_status weight_set(osh_ctx *cx, sizing *s, int w, osh_padded of)
{
    const osh_weight *x = &s->graph->weights[w];
    osh_padded *known = &s->of[w];
    of.tensor = x->tensor;
    if (x->part || x->compressed || x->tensor < 0)
        return sizing_refuse(cx, s, x->name, "is a part of a larger tensor");
    if (known->tensor >= 0 && memcmp(known, &of, sizeof of))
        return sizing_refuse(cx, s, x->name, "is used in two ways");
    *known = of;
    return OSH_OK;
}

/* Decides which zeros the weight and the bias of a Linear node get. */
static osh_status linear_set(osh_ctx *cx, sizing *s, const osh_node *n)
{
    osh_status rc = OSH_OK;
    const osh_weight *from = &s->graph->weights[n->w[0]], *to = &s->grown->weights[n->w[0]];
    int64_t parts = s->parts[n->out[0]] ? s->parts[n->out[0]] : 1;
    const osh_grown rows = {from->shape[0] / parts, to->shape[0] / parts},
                    columns = {from->shape[1], to->shape[1]};
    if (weight_grows(s, n->w[0]))
        OSH_TRY(weight_set(cx, s, n->w[0], (osh_padded){.rows = rows, .columns = columns}));
    if (n->w[1] >= 0 && weight_grows(s, n->w[1]))
        OSH_TRY(weight_set(cx, s, n->w[1], (osh_padded){.rows = {1, 1}, .columns = rows}));
done:
    return rc;
}

/* Finds the weights that get zeros. Fails if zeros would change the output of the model. */
static osh_status sizing_find_zeros(osh_ctx *cx, sizing *s)
{
    osh_status rc = OSH_OK;
    const osh_graph *a = s->graph, *b = s->grown;
    if (a->n_nodes != b->n_nodes || a->n_values != b->n_values || a->n_weights != b->n_weights)
        OSH_TRY(sizing_refuse(cx, s, "the graph", "has other ops with another size"));
    OSH_NEW(cx, s->parts, a->n_values);
    OSH_NEW(cx, s->of, a->n_weights + 1);
    for (int w = 0; w < a->n_weights; w++) s->of[w].tensor = -1;
    for (int i = a->n_nodes - 1; i >= 0; i--) OSH_TRY(node_take_parts(cx, s, i));
    for (int i = 0; i < a->n_nodes; i++)
        if (osh_node_is(&a->nodes[i], OSH_OP_LINEAR)) OSH_TRY(linear_set(cx, s, &a->nodes[i]));
done:
    return rc;
}

/* Returns the part of a tensor's name after the last number in it, such as "mlp.up_proj.weight". */
static const char *name_tail(const char *name)
{
    const char *tail = name;
    for (const char *at = name; *at; at++)
        if (*at == '.' && isdigit((unsigned char)at[1])) {
            const char *end = at + 1 + strspn(at + 1, "0123456789");
            if (*end == '.') tail = end + 1;
        }
    return tail;
}

/* True if the tensors `name` and `like` are in layers of the same list, such as "model.layers".
 * Also true if `name` is in a layer that predicts further tokens (mtp). Both kinds of layers have
 * the sizes of the decoder layers. */
static bool is_layer(const char *name, const char *like)
{
    const char *layer = strstr(like, "layers.");
    size_t n = layer ? (size_t)(layer + 7 - like) : 0;
    if (!strncmp(name, "mtp.", 4) || strstr(name, ".mtp.")) return true;
    return layer && !strncmp(name, like, n) && isdigit((unsigned char)name[n]);
}

static bool has_shape(const osh_entry *e, const osh_weight *w)
{
    return e->ndim == w->ndim && e->shape[0] == w->shape[0] &&
           (w->ndim < 2 || e->shape[1] == w->shape[1]);
}

/* Appends the zeros for tensors outside of the graph's layers. Such a tensor gets the zeros of a
 * weight of the graph with the same shape. The names of the tensor and of the weight must be the
 * same inside of their layers. */
static osh_status sizing_add_extra(osh_ctx *cx, const sizing *s, osh_padded *list, int64_t *n)
{
    osh_status rc = OSH_OK;
    osh_map *tails = NULL; // own
    bool *used = NULL;     // own [tensors]: true if the tensor is a weight of the graph
    int64_t w;
    OSH_NEW(cx, used, s->in->ck->n_tensors);
    OSH_TRY(osh_map_new_views(cx, &tails, 64));
    for (int i = 0; i < s->graph->n_weights; i++) {
        const char *tail = name_tail(s->graph->weights[i].name);
        if (s->graph->weights[i].tensor >= 0) used[s->graph->weights[i].tensor] = true;
        if (s->of[i].tensor >= 0 && !osh_map_get(tails, tail, strlen(tail), &w))
            OSH_TRY(osh_map_put(cx, tails, tail, strlen(tail), i));
    }
    for (int64_t t = 0; t < s->in->ck->n_tensors; t++) {
        const osh_entry *e = s->in->ck->tensors[t].e;
        const char *tail = name_tail(e->name);
        if (used[t] || !osh_map_get(tails, tail, strlen(tail), &w) ||
            !is_layer(e->name, s->graph->weights[w].name) ||
            !has_shape(e, &s->graph->weights[w]))
            continue;
        list[*n] = s->of[w];
        list[(*n)++].tensor = t;
    }
done:
    osh_map_free(cx, tails);
    osh_free(cx, used);
    return rc;
}

static osh_status sizing_pad(osh_ctx *cx, sizing *s)
{
    osh_status rc = OSH_OK;
    osh_padded *list = NULL; // own
    int64_t n = 0;
    OSH_NEW(cx, list, s->graph->n_weights + s->in->ck->n_tensors);
    for (int w = 0; w < s->graph->n_weights; w++)
        if (s->of[w].tensor >= 0) list[n++] = s->of[w];
    OSH_TRY(sizing_add_extra(cx, s, list, &n));
    OSH_TRY(osh_source_pad(cx, s->in->source, list, n));
    OSH_TRY(osh_inputs_build_graph(cx, s->in));
done:
    osh_free(cx, list);
    return rc;
}

/* ---- sizes and tensors together ---- */

static bool any_indivisible(const sizing *s)
{
    bool any = false;
    for (int i = 0; i < s->trial.n_linears; i++)
        any |= s->trial.linears[i].I % linear_unit(s, i) != 0;
    return any;
}

static void sizing_deinit(osh_ctx *cx, sizing *s)
{
    osh_match_clear(cx, &s->trial);
    osh_graph_free(cx, s->graph);
    osh_graph_free(cx, s->grown);
    osh_free(cx, s->weight_of);
    osh_free(cx, s->key_of);
    osh_free(cx, s->parts);
    osh_free(cx, s->of);
}

osh_status osh_plan_padding(osh_ctx *cx, bool *padded, osh_inputs *in)
{
    osh_status rc = OSH_OK;
    sizing s = {.in = in, .trial.in = in}; // own
    *padded = false;
    if (osh_wants_survey(in->opt))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "--indivisible pad: --target-bits and --target-size measure the model without "
                 "zeros: want --indivisible dense, or a --scheme without a target");
    OSH_TRY(osh_match_trial(cx, &s.trial));
    /* without a graph, the matching fails with its own message */
    if (!in->graph || !any_indivisible(&s)) goto done;
    OSH_TRY(sizing_build(cx, &s.graph, &s));
    OSH_TRY(sizing_find_weights(cx, &s));
    for (int k = 0; k < N_KEYS; k++) OSH_TRY(key_try(cx, &s, k));
    OSH_TRY(sizing_change(cx, &s));
    if (!s.key) goto done;
    OSH_TRY(sizing_build(cx, &s.grown, &s));
    OSH_TRY(sizing_find_zeros(cx, &s));
    OSH_TRY(sizing_pad(cx, &s));
    *padded = true;
done:
    sizing_deinit(cx, &s);
    return rc;
}

osh_status osh_padding_print(osh_ctx *cx, osh_buf *b, const osh_inputs *in)
{
    osh_status rc = OSH_OK;
    const osh_hf_config *c = in->ck->config;
    for (int i = 0; i < c->n_sizes; i++)
        OSH_TRY(osh_buf_printf(cx, b, "%s%s %lld to %lld", i ? ", " : "", c->sizes[i].key,
                               (long long)c->sizes[i].from, (long long)c->sizes[i].to));
    OSH_TRY(osh_buf_printf(cx, b, ", zeros in %lld tensors",
                           (long long)osh_source_n_padded(in->source)));
done:
    return rc;
}

bool osh_padding_json(cJSON *o, const osh_inputs *in)
{
    const osh_hf_config *c = in->ck->config;
    if (!c || !c->n_sizes) return true;
    cJSON *p = cJSON_AddObjectToObject(o, "padding"), *list = NULL;
    bool ok = p && (list = cJSON_AddArrayToObject(p, "sizes"));
    for (int i = 0; ok && i < c->n_sizes; i++) {
        cJSON *one = cJSON_CreateObject();
        cJSON_AddItemToArray(list, one);
        ok = one && cJSON_AddStringToObject(one, "key", c->sizes[i].key) &&
             cJSON_AddNumberToObject(one, "from", (double)c->sizes[i].from) &&
             cJSON_AddNumberToObject(one, "to", (double)c->sizes[i].to);
    }
    return ok &&
           cJSON_AddNumberToObject(p, "tensors", (double)osh_source_n_padded(in->source));
}
