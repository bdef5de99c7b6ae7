/* build.c - a template and a config.json become a graph; every weight is found and its shape and
 * dtype checked on the way.
 *
 * A template entry is one of
 *   {"name", "class"}                             a module that runs nothing itself
 *   {"name", "class", "op", "in", "out", ...}     a module that is an op
 *   {"of", "op", "in", "out", ...}                an op inside a module that was named before
 *                                                 ("": the layer, or what is repeated)
 *   {"name", "class", "repeat", "nodes"}          a module that is there many times, as the layer
 *                                                 is: "{e}" in its name is its number
 *   {"if", "nodes", "else"}                       one list of entries, or the other
 * with "weight": dims, "bias": a bool or its config key, "attr": {field: expression, or config key
 * of a string} and "tied": the module whose weight serves where the checkpoint has none of this
 * name. Inside a layer, and inside what is repeated, names are relative. An output that has the name
 * of a value from outside replaces it for what follows; so the residual stream is one name. */
#include "base/map.h"
#include "graph/rope_freq.h"
#include "graph/template.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LAYERS = 65536, MAX_MODULES = 1 << 21 };

typedef struct binding {
    const char *name; // view of the template
    int value;
} binding;

typedef struct builder {
    osh_graph *g;
    const osh_checkpoint *ck;
    osh_scope scope;
    osh_map *modules, *weights; // own: name -> index
    binding *bound;             // own
    int n_bound;
    const char *prefix;   // "model.layers.3." or "" or "model.layers.3.mlp.experts.7."
    int64_t max_position; // max_position_embeddings
} builder;

/* Room for one more behind n items: NULL where there is no memory. Arrays grow at powers of two. */
static void *grown(osh_ctx *cx, void *p, int n, size_t size)
{
    if (n > 0 && (n & (n - 1))) return p;
    return osh_realloc(cx, p, (size_t)(n > 0 ? 2 * n : 1) * size);
}

static const char *text_of(const cJSON *entry, const char *key)
{
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(entry, key);
    return cJSON_IsString(o) ? o->valuestring : NULL;
}

static osh_status add_module(osh_ctx *cx, builder *b, int *index, const char *name, const char *cls)
{
    osh_status rc = OSH_OK;
    osh_graph *g = b->g;
    int64_t parent = -1;
    osh_module *m = NULL; // view
    if (g->n_modules >= MAX_MODULES) // one may be cheap to build: do not fill memory with them
        return osh_fail(cx, OSH_E_FORMAT, "%s: more than %d modules", b->scope.tpl->name, MAX_MODULES);
    m = grown(cx, g->modules, g->n_modules, sizeof *m);
    if (!m) return OSH_E_NOMEM;
    g->modules = m;
    m += g->n_modules;
    *m = (osh_module){.parent = -1, .node = -1};
    if (osh_map_get(b->modules, name, strlen(name), &parent))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: module %s twice", b->scope.tpl->name, name);
    for (size_t n = strlen(name); n > 0 && m->parent < 0; n--)
        if (name[n] == '.' && osh_map_get(b->modules, name, n, &parent)) m->parent = (int)parent;
    m->name = osh_strdup(cx, name);
    m->cls = m->name ? osh_strdup(cx, cls) : NULL;
    if (!m->cls) {
        osh_free(cx, m->name);
        return OSH_E_NOMEM;
    }
    *index = g->n_modules++; // counted: the graph frees it from here on
    OSH_TRY(osh_map_put(cx, b->modules, name, strlen(name), *index));
done:
    return rc;
}

static osh_status add_value(osh_ctx *cx, builder *b, int *index, const char *name, int64_t width,
                            int producer)
{
    osh_graph *g = b->g;
    osh_value *v = grown(cx, g->values, g->n_values, sizeof *v);
    if (!v) return OSH_E_NOMEM;
    g->values = v;
    v += g->n_values;
    *v = (osh_value){.width = width, .producer = producer, .first_use = -1, .last_use = -1, .original = -1,
                      .quantized = -1};
    v->name = osh_sprintf(cx, "%s%s", b->prefix, name);
    if (!v->name) return OSH_E_NOMEM;
    *index = g->n_values++;
    return OSH_OK;
}

static osh_status bind(osh_ctx *cx, builder *b, const char *name, int value)
{
    for (int i = 0; i < b->n_bound; i++)
        if (strcmp(b->bound[i].name, name) == 0) {
            b->bound[i].value = value;
            return OSH_OK;
        }
    binding *p = grown(cx, b->bound, b->n_bound, sizeof *p);
    if (!p) return OSH_E_NOMEM;
    b->bound = p;
    p[b->n_bound++] = (binding){name, value};
    return OSH_OK;
}

/* ---- weights ---- */

/* A Linear of a compressed-tensors checkpoint: its numbers stand in other tensors, or in weight
 * under another dtype. */
static bool is_compressed(osh_ctx *cx, const builder *b, const char *module,
                          const osh_ckpt_tensor *t)
{
    if (!b->ck->config->quantization_config) return false;
    if (t) return t->e->dtype == OSH_I8 || t->e->dtype == OSH_FP8 || t->e->dtype == OSH_U8;
    char *name = osh_sprintf(cx, "%s.weight_packed", module);
    bool yes = name && osh_checkpoint_find(b->ck, name);
    osh_free(cx, name);
    return yes;
}

static bool
ties(const builder *b) // transformers 4 left the key out of config.json where it was true
{
    return !b->ck->config->has_tie_word_embeddings || b->ck->config->tie_word_embeddings;
}

static osh_status check_weight(osh_ctx *cx, const osh_ckpt_tensor *t, const char *name, int ndim,
                               const int64_t *shape)
{
    const osh_st_entry *e = t->e;
    bool same = e->ndim == ndim;
    for (int i = 0; same && i < ndim; i++) same = e->shape[i] == shape[i];
    if (!same) {
        long long want0 = shape[0], want1 = ndim > 1 ? shape[1] : 0;
        long long found0 = e->ndim > 0 ? e->shape[0] : 0, found1 = e->ndim > 1 ? e->shape[1] : 0;
        if (ndim == 1)
            return osh_fail(
                cx, OSH_E_FORMAT,
                "tensor %s has %d dimensions, shape [%lld, %lld...], config.json wants [%lld]",
                name, e->ndim, found0, found1, want0);
        return osh_fail(
            cx, OSH_E_FORMAT,
            "tensor %s has %d dimensions, shape [%lld, %lld...], config.json wants [%lld, %lld]",
            name, e->ndim, found0, found1, want0, want1);
    }
    if (e->dtype != OSH_BF16 && e->dtype != OSH_F16 && e->dtype != OSH_F32)
        return osh_fail(cx, OSH_E_FORMAT, "tensor %s is %s, want BF16, F16 or F32", name,
                        osh_dtype_name(e->dtype));
    return OSH_OK;
}

/* The weight <module>.<leaf>, or that of the tied module where the checkpoint has none. */
static osh_status add_weight(osh_ctx *cx, builder *b, int *index, const char *module,
                             const char *leaf, const char *tied, int ndim, const int64_t *shape)
{
    osh_status rc = OSH_OK;
    osh_graph *g = b->g;
    int64_t known = 0;
    char *name = osh_sprintf(cx, "%s.%s", module, leaf); // own
    char *other = NULL;                                  // own
    if (!name) return OSH_E_NOMEM;
    const osh_ckpt_tensor *t = osh_checkpoint_find(b->ck, name);
    bool compressed = strcmp(leaf, "weight") == 0 && is_compressed(cx, b, module, t);
    if (!t && !compressed && tied && ties(b)) {
        other = osh_sprintf(cx, "%s.%s", tied, leaf);
        if (!other) {
            rc = OSH_E_NOMEM;
            goto done;
        }
        t = osh_checkpoint_find(b->ck, other);
        if (t) osh_free(cx, name), name = other, other = NULL;
    }
    if (!t && !compressed)
        OSH_FAIL(cx, OSH_E_FORMAT, "tensor %s is missing in %s", name, b->ck->dir);
    if (!compressed) OSH_TRY(check_weight(cx, t, name, ndim, shape));
    if (osh_map_get(b->weights, name, strlen(name), &known)) {
        *index = (int)known; // a tied pair is one weight
        goto done;
    }
    osh_weight *w = grown(cx, g->weights, g->n_weights, sizeof *w);
    if (!w) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    g->weights = w;
    w += g->n_weights;
    *w = (osh_weight){.name = name,
                      .ndim = ndim,
                      .tensor = t ? t - b->ck->tensors : -1,
                      .compressed = compressed};
    memcpy(w->shape, shape, (size_t)ndim * sizeof *shape);
    *index = g->n_weights++, name = NULL; // give
    OSH_TRY(osh_map_put(cx, b->weights, w->name, strlen(w->name), *index));
done:
    osh_free(cx, name);
    osh_free(cx, other);
    return rc;
}

/* ---- attributes ---- */

static osh_status set_number(osh_ctx *cx, const osh_op *op, void *attr, const char *name, double x)
{
    char text[32];
    const osh_field *f = osh_field_find(op->attrs, name);
    if (!f) return osh_fail(cx, OSH_E_FORMAT, "op %s has no attribute %s", op->name, name);
    if (f->type == OSH_F_BOOL)
        snprintf(text, sizeof text, "%s", x != 0 ? "true" : "false");
    else
        snprintf(text, sizeof text, "%.17g", x);
    osh_status rc = osh_field_set(cx, f, attr, text);
    return rc == OSH_E_USAGE ? OSH_E_FORMAT : rc; // the file's fault, not the command line's
}

/* The template's "attr" by the op's field table: a string field takes its text from the config key
 * named. */
static osh_status set_attrs(osh_ctx *cx, const builder *b, const osh_op *op, void *attr,
                            const cJSON *given)
{
    osh_status rc = OSH_OK;
    const cJSON *a;
    cJSON_ArrayForEach(a, given)
    {
        const osh_field *f = osh_field_find(op->attrs, a->string);
        if (f && f->type == OSH_F_STR) {
            const char *text = NULL;
            if (!cJSON_IsString(a))
                OSH_FAIL(cx, OSH_E_FORMAT, "attribute %s is not a config key", a->string);
            OSH_TRY(osh_scope_str(cx, &text, &b->scope, a->valuestring));
            rc = osh_field_set(cx, f, attr, text);
            if (rc) osh_note(cx, "reading %s of %s", a->valuestring, b->scope.config->path);
            if (rc == OSH_E_USAGE) rc = OSH_E_UNSUPPORTED; // the file's fault, not the command line's
        } else {
            double x = 0;
            OSH_TRY(osh_scope_num(cx, &x, &b->scope, a));
            rc = set_number(cx, op, attr, a->string, x);
        }
        if (rc) goto done;
    }
done:
    return rc;
}

/* What the template need not repeat: sizes that the weight's shape says. */
static osh_status derive_attrs(osh_ctx *cx, const osh_op *op, void *attr, int ndim,
                               const int64_t *shape, bool bias)
{
    osh_status rc = OSH_OK;
    static const struct {
        const char *name;
        int dim;
    } sizes[] = {{"out_features", 0}, {"vocab_size", 0}, {"hidden_size", 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].dim < ndim && osh_field_find(op->attrs, sizes[i].name))
            OSH_TRY(set_number(cx, op, attr, sizes[i].name, (double)shape[sizes[i].dim]));
    if (osh_field_find(op->attrs, "bias")) OSH_TRY(set_number(cx, op, attr, "bias", bias));
done:
    return rc;
}

static osh_status fill_attr(osh_ctx *cx, const builder *b, osh_node *node, const cJSON *entry,
                            int ndim, const int64_t *shape, bool bias)
{
    osh_status rc = OSH_OK;
    const osh_op *op = node->op;
    const cJSON *given = cJSON_GetObjectItemCaseSensitive(entry, "attr");
    if (!op->attr_bytes) goto done;
    node->attr = osh_calloc(cx, 1, op->attr_bytes);
    if (!node->attr) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    if (strcmp(op->name, "rope") == 0) { // its numbers come from config.json's rope parameters
        const osh_hf_config *c = b->ck->config;
        int64_t head_dim = 0;
        if (c->rope_unknown)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: rope type %s", c->path, c->rope_unknown);
        OSH_TRY(osh_scope_int(cx, &head_dim, &b->scope,
                              cJSON_GetObjectItemCaseSensitive(given, "head_dim"), 1));
        OSH_TRY(osh_rope_attr_fill(cx, node->attr, &c->rope, head_dim, b->max_position,
                                   b->scope.config->path));
        goto done;
    }
    if (!op->attrs) OSH_FAIL(cx, OSH_E_FORMAT, "op %s is not for templates", op->name);
    OSH_TRY(osh_fields_default(cx, op->attrs, node->attr));
    OSH_TRY(set_attrs(cx, b, op, node->attr, given));
    OSH_TRY(derive_attrs(cx, op, node->attr, ndim, shape, bias));
done:
    return rc;
}

/* ---- nodes ---- */

static osh_status wire_inputs(osh_ctx *cx, builder *b, osh_node *node, int64_t *width,
                              const cJSON *in)
{
    int n = cJSON_IsArray(in) ? cJSON_GetArraySize(in) : 0;
    if (n != node->op->n_in)
        return osh_fail(cx, OSH_E_FORMAT, "op %s wants %d inputs, found %d", node->op->name,
                        node->op->n_in, n);
    for (int k = 0; k < n; k++) {
        const cJSON *name = cJSON_GetArrayItem(in, k);
        int found = -1;
        for (int i = 0; i < b->n_bound && cJSON_IsString(name); i++)
            if (strcmp(b->bound[i].name, name->valuestring) == 0) found = b->bound[i].value;
        if (found < 0)
            return osh_fail(cx, OSH_E_FORMAT, "input %d is no value that exists here", k);
        node->in[k] = found;
        width[k] = b->g->values[found].width;
    }
    return OSH_OK;
}

static osh_status read_shape(osh_ctx *cx, const builder *b, int *ndim, int64_t *shape, bool *bias,
                             const cJSON *entry)
{
    osh_status rc = OSH_OK;
    const cJSON *dims = cJSON_GetObjectItemCaseSensitive(entry, "weight"),
                *flag = cJSON_GetObjectItemCaseSensitive(entry, "bias");
    double on = 0;
    *ndim = cJSON_IsArray(dims) ? cJSON_GetArraySize(dims) : 0;
    if (dims && (*ndim < 1 || *ndim > 2))
        OSH_FAIL(cx, OSH_E_FORMAT, "\"weight\" is not a list of one or two dims");
    for (int i = 0; i < *ndim; i++)
        OSH_TRY(osh_scope_int(cx, &shape[i], &b->scope, cJSON_GetArrayItem(dims, i), 1));
    if (flag) OSH_TRY(osh_scope_num(cx, &on, &b->scope, flag));
    *bias = on != 0;
done:
    return rc;
}

static osh_status wire_weights(osh_ctx *cx, builder *b, osh_node *node, const cJSON *entry,
                               const int64_t *in_width, int64_t *out_width, int ndim,
                               const int64_t *shape)
{
    osh_status rc = OSH_OK;
    const osh_op *op = node->op;
    int64_t want[OSH_OP_MAX_IN][2] = {{0}};
    int want_ndim[OSH_OP_MAX_IN] = {0};
    const char *module = b->g->modules[node->module].name;
    OSH_TRY(op->infer(cx, out_width, want, want_ndim, in_width, node->attr));
    if (op->n_weights > 0 &&
        (ndim != want_ndim[0] || memcmp(shape, want[0], (size_t)ndim * sizeof *shape) != 0))
        OSH_FAIL(cx, OSH_E_FORMAT, "the weight's dims are not those that op %s wants", op->name);
    for (int k = 0; k < op->n_weights && k < 2; k++)
        if (want_ndim[k])
            OSH_TRY(add_weight(cx, b, &node->w[k], module, k ? "bias" : "weight",
                               text_of(entry, "tied"), want_ndim[k], want[k]));
done:
    return rc;
}

static osh_status add_node(osh_ctx *cx, builder *b, int module, const char *op_name,
                           const cJSON *entry)
{
    osh_status rc = OSH_OK;
    osh_graph *g = b->g;
    int64_t in_width[OSH_OP_MAX_IN] = {0}, out_width[OSH_OP_MAX_OUT] = {0}, shape[2] = {0};
    const char *out = text_of(entry, "out");
    int ndim = 0, index = g->n_nodes, value = -1;
    bool bias = false;
    osh_node *node = grown(cx, g->nodes, index, sizeof *node);
    if (!node) return OSH_E_NOMEM;
    g->nodes = node;
    node += index;
    *node = (osh_node){.op = osh_op_find(op_name), .module = module};
    for (int i = 0; i < OSH_OP_MAX_IN; i++) node->in[i] = node->w[i] = -1;
    for (int i = 0; i < OSH_OP_MAX_OUT; i++) node->out[i] = -1;
    if (!node->op || !node->op->infer) OSH_FAIL(cx, OSH_E_FORMAT, "no op %s", op_name);
    if (!out || node->op->n_out != 1)
        OSH_FAIL(cx, OSH_E_FORMAT, "\"out\" of op %s is not one name", op_name);
    g->n_nodes++; // counted: the graph frees its attr from here on
    OSH_TRY(wire_inputs(cx, b, node, in_width, cJSON_GetObjectItemCaseSensitive(entry, "in")));
    OSH_TRY(read_shape(cx, b, &ndim, shape, &bias, entry));
    OSH_TRY(fill_attr(cx, b, node, entry, ndim, shape, bias));
    OSH_TRY(wire_weights(cx, b, node, entry, in_width, out_width, ndim, shape));
    OSH_TRY(add_value(cx, b, &value, out, out_width[0], index));
    node->out[0] = value;
    OSH_TRY(bind(cx, b, out, value));
done:
    return rc;
}

static osh_status add_entries(osh_ctx *cx, builder *b, const cJSON *entries);

/* The i-th of a module that is there many times: its name with the number in the place of `hole`, and what is in it. */
static osh_status add_instance(osh_ctx *cx, builder *b, const cJSON *entry, const char *hole, int64_t i)
{
    osh_status rc = OSH_OK;
    const char *pattern = text_of(entry, "name"), *cls = text_of(entry, "class"), *outer_prefix = b->prefix;
    const char *at = pattern ? strstr(pattern, hole) : NULL;
    char *name = NULL, *prefix = NULL; // own
    int outer = b->n_bound, module = -1;
    if (!at || !cls) OSH_FAIL(cx, OSH_E_FORMAT, "%s: what is repeated needs a name with %s, class and nodes",
                              b->scope.tpl->name, hole);
    name = osh_sprintf(cx, "%s%.*s%lld%s", b->prefix, (int)(at - pattern), pattern, (long long)i, at + strlen(hole));
    prefix = name ? osh_sprintf(cx, "%s.", name) : NULL;
    if (!prefix) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    OSH_TRY(add_module(cx, b, &module, name, cls));
    b->prefix = prefix;
    OSH_TRY(add_entries(cx, b, cJSON_GetObjectItemCaseSensitive(entry, "nodes")));
    b->n_bound = outer; // names of the module end here; what it rebound stays
done:
    b->prefix = outer_prefix;
    osh_free(cx, name);
    osh_free(cx, prefix);
    return rc;
}

static osh_status add_repeated(osh_ctx *cx, builder *b, const cJSON *entry)
{
    osh_status rc = OSH_OK;
    int64_t n = 0, outer = b->scope.e;
    OSH_TRY(osh_scope_int(cx, &n, &b->scope, cJSON_GetObjectItemCaseSensitive(entry, "repeat"), 0));
    for (int64_t e = 0; e < n; e++) {
        b->scope.e = e;
        OSH_TRY(add_instance(cx, b, entry, "{e}", e));
    }
    b->scope.e = outer;
done:
    return rc;
}

static osh_status add_choice(osh_ctx *cx, builder *b, const cJSON *entry)
{
    double on = 0;
    osh_status rc = osh_scope_num(cx, &on, &b->scope, cJSON_GetObjectItemCaseSensitive(entry, "if"));
    if (rc) return rc;
    return add_entries(cx, b, cJSON_GetObjectItemCaseSensitive(entry, on != 0 ? "nodes" : "else"));
}

static osh_status add_entry(osh_ctx *cx, builder *b, const cJSON *entry)
{
    osh_status rc = OSH_OK;
    const char *name = text_of(entry, "name"), *of = text_of(entry, "of"),
               *op = text_of(entry, "op"), *cls = text_of(entry, "class");
    const char *leaf = name ? name : of;
    char *full = NULL; // own
    int module = -1;
    int64_t found = -1;
    if (cJSON_GetObjectItemCaseSensitive(entry, "if")) return add_choice(cx, b, entry);
    if (cJSON_GetObjectItemCaseSensitive(entry, "repeat")) return add_repeated(cx, b, entry);
    if (!leaf || (name && !cls) || (!name && !op))
        OSH_FAIL(cx, OSH_E_FORMAT, "an entry needs name and class, or of and op");
    full = osh_sprintf(cx, "%s%s", b->prefix, leaf);
    if (!full) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    if (name)
        OSH_TRY(add_module(cx, b, &module, full, cls));
    else {
        size_t n = strlen(full);
        if (n && full[n - 1] == '.') n--; // "of": "" is the layer itself
        if (!osh_map_get(b->modules, full, n, &found))
            OSH_FAIL(cx, OSH_E_FORMAT, "no module of that name stands before");
        module = (int)found;
    }
    if (op) {
        OSH_TRY(add_node(cx, b, module, op, entry));
        if (name) b->g->modules[module].node = b->g->n_nodes - 1;
    }
done:
    if (rc && rc != OSH_E_NOMEM)
        osh_note(cx, "building %s of %s", full ? full : "an entry", b->scope.tpl->name);
    osh_free(cx, full);
    return rc;
}

static osh_status add_entries(osh_ctx *cx, builder *b, const cJSON *entries)
{
    osh_status rc = OSH_OK;
    const cJSON *e;
    cJSON_ArrayForEach(e, entries) OSH_TRY(add_entry(cx, b, e));
done:
    return rc;
}

static osh_status add_layers(osh_ctx *cx, builder *b, const cJSON *layer)
{
    osh_status rc = OSH_OK;
    const char *cls = text_of(layer, "class");
    if (!cls)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: \"layer\" needs name, class, repeat and nodes",
                 b->scope.tpl->name);
    OSH_TRY(osh_scope_int(cx, &b->g->n_layers, &b->scope,
                          cJSON_GetObjectItemCaseSensitive(layer, "repeat"), 1));
    if (b->g->n_layers > MAX_LAYERS) // a layer may be cheap to build: do not fill memory with them
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %lld layers, want %d at most", b->scope.config->path,
                 (long long)b->g->n_layers, MAX_LAYERS);
    b->g->layer_class = osh_strdup(cx, cls);
    if (!b->g->layer_class) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    for (int64_t i = 0; i < b->g->n_layers; i++) {
        OSH_TRY(osh_scope_window(cx, &b->scope.window, &b->scope, i));
        OSH_TRY(osh_scope_sparse(cx, &b->scope.sparse, &b->scope, i));
        OSH_TRY(add_instance(cx, b, layer, "{i}", i));
    }
done:
    return rc;
}

/* ---- the whole ---- */

static osh_status choose_dtype(osh_ctx *cx, builder *b)
{
    osh_dtype dt = b->ck->config->dtype;
    for (int64_t i = 0; i < b->ck->n_tensors && dt == OSH_DTYPE_NONE; i++)
        if (osh_dtype_is_float(b->ck->tensors[i].e->dtype))
            dt = b->ck->tensors[i].e->dtype; // as transformers guesses
    if (dt != OSH_BF16 && dt != OSH_F16 && dt != OSH_F32)
        return osh_fail(cx, OSH_E_UNSUPPORTED,
                        "%s: the dtype is %s, want bfloat16, float16 or float32",
                        b->ck->config->path, dt == OSH_DTYPE_NONE ? "unknown" : osh_dtype_name(dt));
    b->g->dtype = dt;
    return OSH_OK;
}

static osh_status read_positions(osh_ctx *cx, builder *b)
{
    const osh_rope *rope = &b->ck->config->rope;
    double n = 0;
    osh_status rc = osh_scope_name(cx, &n, &b->scope, "max_position_embeddings");
    if (rc) return rc;
    if (!(n >= 1 && n <= 1e12 && n == floor(n)))
        return osh_fail(cx, OSH_E_FORMAT,
                        "%s: max_position_embeddings is %g, want a whole number of at least 1",
                        b->ck->config->path, n);
    b->max_position = (int64_t)n;
    b->g->max_positions = b->max_position;
    if (rope->type == OSH_ROPE_DYNAMIC && rope->factor > 1)
        b->g->max_positions = (int64_t)fmin(n * rope->factor, 1e15);
    return OSH_OK;
}

static osh_status find_head(osh_ctx *cx, builder *b)
{
    osh_graph *g = b->g;
    const char *name = text_of(b->scope.tpl->json, "head");
    int64_t module = -1;
    if (!name || !osh_map_get(b->modules, name, strlen(name), &module) ||
        g->modules[module].node < 0 ||
        strcmp(g->nodes[g->modules[module].node].op->name, "linear") != 0)
        return osh_fail(cx, OSH_E_FORMAT, "%s: \"head\" names no linear", b->scope.tpl->name);
    g->head = g->modules[module].node;
    g->hidden = g->nodes[g->head].in[0];
    g->n_vocab = g->values[g->nodes[g->head].out[0]].width;
    return OSH_OK;
}

static osh_status build(osh_ctx *cx, builder *b)
{
    osh_status rc = OSH_OK;
    const cJSON *json = b->scope.tpl->json;
    OSH_TRY(choose_dtype(cx, b));
    OSH_TRY(read_positions(cx, b));
    OSH_TRY(add_value(cx, b, &b->g->input_ids, "input_ids", 1, -1));
    b->g->values[b->g->input_ids].is_ids = true;
    OSH_TRY(bind(cx, b, "input_ids", b->g->input_ids));
    OSH_TRY(add_entries(cx, b, cJSON_GetObjectItemCaseSensitive(json, "before")));
    OSH_TRY(add_layers(cx, b, cJSON_GetObjectItemCaseSensitive(json, "layer")));
    b->scope.window = 0, b->scope.sparse = false;
    OSH_TRY(add_entries(cx, b, cJSON_GetObjectItemCaseSensitive(json, "after")));
    osh_graph_link_uses(b->g);
    OSH_TRY(find_head(cx, b));
done:
    return rc;
}

osh_status osh_graph_from_template(osh_ctx *cx, osh_graph **out, const osh_checkpoint *ck,
                                   const osh_template *tpl)
{
    osh_status rc = OSH_OK;
    builder b = {.ck = ck, .prefix = "", .scope = {.tpl = tpl, .config = ck->config}};

    OSH_NEW(cx, b.g, 1);
    OSH_TRY(osh_map_new(cx, &b.modules, 256));
    OSH_TRY(osh_map_new(cx, &b.weights, 256));
    OSH_TRY(build(cx, &b));
    *out = b.g, b.g = NULL; // give
done:
    osh_map_free(cx, b.modules);
    osh_map_free(cx, b.weights);
    osh_free(cx, b.bound);
    osh_graph_free(cx, b.g);
    return rc;
}
