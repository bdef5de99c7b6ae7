/* build.c - builds a graph from a template and a config.json. It finds every weight and checks its
 * shape and dtype.
 *
 * A template entry is one of
 *   {"name", "class"}                            a module without an op of its own
 *   {"name", "class", "op", "in", "out", ...}    a module that is an op
 *   {"of", "op", "in", "out", ...}               an op of the module "of", which an earlier
 *                                                entry names; if "of" is "", an op of the layer
 *                                                or repeated module itself
 *   {"name", "class", "repeat", "nodes"}         a repeated module, such as an expert; its
 *                                                number replaces "{e}" in the name
 *   {"if", "nodes", "else"}                      the entries "nodes" if "if" is true, otherwise
 *                                                the entries "else"
 *   {"if", "refuse"}                             fails with the message "refuse" if "if" is true
 * with these keys:
 *   "weight"   shape of the weight: a list of dims
 *   "bias"     true if the module has a bias: true, false or a config key
 *   "attr"     attributes of the op: {name: expression}, or {name: config key} for a string
 *   "tied"     the module whose weight is used if the checkpoint has no weight of this module
 *   "tensors"  the name of the module in the checkpoint; or a list of names relative to the layer:
 *              the first name with a weight in the checkpoint is used
 *   "leaves"   the names of weight and bias in the checkpoint, after the module's name
 *   "part"     the larger tensors that contain weight and bias (parts.c). If the checkpoint has
 *              tensors of the module's own, they are used, and the module's class is Linear
 * In a layer or a repeated module, names are relative to the layer or module.
 * An output may have the name of an existing value. In later entries, the name then means the new
 * value. So all values of the residual stream can have one name. */
#include "graph/build.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LAYERS = 65536 };

static osh_status build_entries(osh_ctx *cx, osh_builder *b, const cJSON *entries);
static osh_status build_entry(osh_ctx *cx, osh_builder *b, const cJSON *entry);

/* Evaluates the key "if" of a template entry. Sets *entries to the list that the entry selects for
 * this config.json, or to NULL if it selects none. Fails if it selects "refuse". */
static osh_status entry_choose(osh_ctx *cx, osh_builder *b, const cJSON **entries,
                               const cJSON *entry)
{
    double on = 0;
    osh_status rc =
        osh_scope_num(cx, &on, &b->scope, cJSON_GetObjectItemCaseSensitive(entry, "if"));
    const char *refused = osh_build_text(entry, "refuse");
    if (rc) return rc;
    if (on != 0 && refused)
        return osh_fail(cx, OSH_E_UNSUPPORTED, "%s: %s", b->scope.config->path, refused);
    *entries = cJSON_GetObjectItemCaseSensitive(entry, on != 0 ? "nodes" : "else");
    return OSH_OK;
}

/* Sets *first to the first template entry that has no key "if", or to NULL if there is none. Also
 * searches the lists that entries with "if" select. */
static osh_status entry_find_first(osh_ctx *cx, osh_builder *b, const cJSON **first,
                                   const cJSON *entries)
{
    osh_status rc = OSH_OK;
    const cJSON *n, *chosen;
    *first = NULL;
    cJSON_ArrayForEach(n, entries) {
        chosen = NULL;
        if (!cJSON_GetObjectItemCaseSensitive(n, "if")) *first = n;
        else OSH_TRY(entry_choose(cx, b, &chosen, n));
        if (chosen) OSH_TRY(entry_find_first(cx, b, first, chosen));
        if (*first) break;
    }
done:
    return rc;
}

/* Adds a routed_rows node before an expert (a repeated module with a moe_combine node). The output
 * of the routed_rows node has zeros in the rows that are not routed to the expert. The output gets
 * the name of the expert's first input, so the nodes of the expert read it. Sets *whole to this
 * name and to the value that the name meant before. */
static osh_status add_route(osh_ctx *cx, osh_builder *b, const cJSON *nodes, osh_binding *whole)
{
    osh_status rc = OSH_OK;
    const cJSON *n, *first = NULL;
    const char *x = NULL, *route = NULL;
    char *text = NULL;   // own
    cJSON *entry = NULL; // own
    cJSON_ArrayForEach(n, nodes) {
        const char *name = osh_build_text(n, "op");
        const osh_op *op = name ? osh_op_find(name) : NULL;
        const cJSON *in = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(n, "in"), 2);
        if (op && osh_op_is(op, OSH_OP_COMBINES) && cJSON_IsString(in)) route = in->valuestring;
    }
    OSH_TRY(entry_find_first(cx, b, &first, nodes));
    const cJSON *in = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(first, "in"), 0);
    const char *name = first ? osh_build_text(first, "op") : NULL;
    const osh_op *op = name ? osh_op_find(name) : NULL;
    // an expert that is only a moe_combine node (the identity) needs no routed_rows node
    if (!route || !cJSON_IsString(in) || (op && osh_op_is(op, OSH_OP_COMBINES))) goto done;
    x = in->valuestring;
    for (int i = 0; i < b->n_bound; i++)
        if (!strcmp(b->bound[i].name, x)) *whole = b->bound[i];
    text = osh_sprintf(
        cx,
        "{\"of\": \"\", \"op\": \"routed_rows\", \"in\": [\"%s\", \"%s\"], \"out\": \"%s\", "
        "\"attr\": {\"expert\": \"e\"}}",
        x, route, x);
    if (!text) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_json_parse(cx, &entry, text, strlen(text), "routed_rows", 0));
    OSH_TRY(build_entry(cx, b, entry));
done:
    cJSON_Delete(entry);
    osh_free(cx, text);
    return rc;
}

/* Adds instance i of a repeated module, with the nodes of all template entries inside it. In the
 * name of the module, the number i replaces `hole` ("{i}" or "{e}"). */
static osh_status add_instance(osh_ctx *cx, osh_builder *b, const cJSON *entry, const char *hole,
                               int64_t i)
{
    osh_status rc = OSH_OK;
    const char *pattern = osh_build_text(entry, "name"), *outer_prefix = b->prefix;
    const char *cls = strcmp(hole, "{i}") ? osh_build_text(entry, "class") : b->g->layer_class;
    const char *at = pattern ? strstr(pattern, hole) : NULL;
    char *name = NULL, *prefix = NULL, *relative = NULL; // own
    int outer = b->n_bound, module = -1;
    osh_binding whole = {0};
    if (!at || !cls)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: a repeated module needs a name with %s, a class and nodes",
                 b->scope.tpl->name, hole);
    relative = osh_sprintf(cx, "%.*s%lld%s", (int)(at - pattern), pattern, (long long)i,
                           at + strlen(hole));
    name = relative ? osh_build_full_name(cx, b, relative) : NULL;
    prefix = name ? osh_sprintf(cx, "%s.", name) : NULL;
    if (!prefix) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    OSH_TRY(osh_build_module(cx, b, &module, name, cls));
    b->prefix = prefix;
    if (!strcmp(hole, "{i}")) b->layer = prefix, b->scope.apart = osh_build_layer_is_apart(cx, b);
    if (b->scope.tpl->by_route)
        OSH_TRY(add_route(cx, b, cJSON_GetObjectItemCaseSensitive(entry, "nodes"), &whole));
    OSH_TRY(build_entries(cx, b, cJSON_GetObjectItemCaseSensitive(entry, "nodes")));
    if (whole.name) OSH_TRY(osh_build_bind(cx, b, whole.name, whole.value));
    // Names that are new in the module are forgotten here. All other names keep the values that
    // they got in the module.
    b->n_bound = outer;
done:
    b->prefix = outer_prefix;
    if (!strcmp(hole, "{i}")) b->layer = "";
    osh_free(cx, relative);
    osh_free(cx, name);
    osh_free(cx, prefix);
    return rc;
}

static osh_status add_repeated(osh_ctx *cx, osh_builder *b, const cJSON *entry)
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

static osh_status add_choice(osh_ctx *cx, osh_builder *b, const cJSON *entry)
{
    const cJSON *entries = NULL;
    osh_status rc = entry_choose(cx, b, &entries, entry);
    return rc ? rc : build_entries(cx, b, entries);
}

static osh_status build_entry(osh_ctx *cx, osh_builder *b, const cJSON *entry)
{
    osh_status rc = OSH_OK;
    const char *name = osh_build_text(entry, "name"), *of = osh_build_text(entry, "of"),
               *op = osh_build_text(entry, "op"), *cls = osh_build_text(entry, "class");
    const char *leaf = name ? name : of;
    char *full = NULL, *filled = NULL; // own
    int module = -1;
    int64_t found = -1;
    if (cJSON_GetObjectItemCaseSensitive(entry, "if")) return add_choice(cx, b, entry);
    if (cJSON_GetObjectItemCaseSensitive(entry, "repeat")) return add_repeated(cx, b, entry);
    if (!leaf || (name && !cls) || (!name && !op))
        OSH_FAIL(cx, OSH_E_FORMAT, "an entry needs name and class, or of and op");
    OSH_TRY(osh_build_filled(cx, b, &filled, leaf));
    full = osh_build_full_name(cx, b, filled);
    if (!full) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    if (name)
        OSH_TRY(osh_build_module(cx, b, &module, full, cls));
    else {
        size_t n = strlen(full);
        if (n && full[n - 1] == '.') n--; // leaves out the dot at the end of a layer's prefix
        if (!osh_map_get(b->modules, full, n, &found))
            OSH_FAIL(cx, OSH_E_FORMAT, "no earlier entry defines a module of that name");
        module = (int)found;
    }
    if (op) {
        OSH_TRY(osh_build_node(cx, b, module, op, entry));
        if (name) b->g->modules[module].node = b->g->n_nodes - 1;
    }
done:
    if (rc && rc != OSH_E_NOMEM)
        osh_note(cx, "building %s of %s", full ? full : "an entry", b->scope.tpl->name);
    osh_free(cx, full);
    osh_free(cx, filled);
    return rc;
}

static osh_status build_entries(osh_ctx *cx, osh_builder *b, const cJSON *entries)
{
    osh_status rc = OSH_OK;
    const cJSON *e;
    cJSON_ArrayForEach(e, entries) OSH_TRY(build_entry(cx, b, e));
done:
    return rc;
}

static osh_status add_layers(osh_ctx *cx, osh_builder *b, const cJSON *layer)
{
    osh_status rc = OSH_OK;
    const char *around = osh_build_text(b->scope.tpl->wrap, "class");
    const char *cls = around ? around : osh_build_text(layer, "class");
    if (!cls)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: \"layer\" needs name, class, repeat and nodes",
                 b->scope.tpl->name);
    OSH_TRY(osh_scope_int(cx, &b->g->n_layers, &b->scope,
                          cJSON_GetObjectItemCaseSensitive(layer, "repeat"), 1));
    // Even a short template can describe a very large number of layers. This limit protects the
    // memory.
    if (b->g->n_layers > MAX_LAYERS)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %lld layers, want %d at most", b->scope.config->path,
                 (long long)b->g->n_layers, MAX_LAYERS);
    b->g->layer_class = osh_strdup(cx, cls);
    if (!b->g->layer_class) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    for (int64_t i = 0; i < b->g->n_layers; i++) {
        b->scope.layer = i;
        OSH_TRY(osh_scope_window(cx, &b->scope.window, &b->scope.sliding, &b->scope, i));
        OSH_TRY(osh_scope_sparse(cx, &b->scope.sparse, &b->scope, i));
        OSH_TRY(add_instance(cx, b, layer, "{i}", i));
    }
done:
    return rc;
}

/* ---- graph ---- */

static osh_status choose_dtype(osh_ctx *cx, osh_builder *b)
{
    osh_dtype dt = b->ck->config->dtype;
    for (int64_t i = 0; i < b->ck->n_tensors && dt == OSH_DTYPE_NONE; i++)
        if (osh_dtype_is_float(b->ck->tensors[i].e->dtype))
            /* If config.json names no dtype, the compute dtype is the dtype of the first float
             * tensor, as in transformers. */
            dt = b->ck->tensors[i].e->dtype;
    if (dt != OSH_BF16 && dt != OSH_F16 && dt != OSH_F32)
        return osh_fail(cx, OSH_E_UNSUPPORTED,
                        "%s: the dtype is %s, want bfloat16, float16 or float32",
                        b->ck->config->path, dt == OSH_DTYPE_NONE ? "unknown" : osh_dtype_name(dt));
    b->g->dtype = dt;
    return OSH_OK;
}

/* `product` is a text such as "few*index_topk". Fails if a factor is not a whole number. */
static osh_status check_factors(osh_ctx *cx, osh_builder *b, const char *product)
{
    for (const char *at = strpbrk(product, "+-/") ? "" : product; *at;) {
        char name[64];
        double x = 0;
        size_t n = strcspn(at, "*");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        bool number = *name >= '0' && *name <= '9';
        osh_status rc = number ? OSH_OK : osh_scope_name(cx, &x, &b->scope, name);
        if (rc) return rc;
        if (x != floor(x))
            return osh_fail(cx, OSH_E_FORMAT, "%s: %s is %g, want a whole number of at least 1",
                            b->ck->config->path, name, x);
        at += n + (at[n] == '*');
    }
    return OSH_OK;
}

static osh_status read_positions(osh_ctx *cx, osh_builder *b)
{
    const osh_rope *rope = &b->ck->config->rope;
    double n = 0;
    osh_status rc = osh_scope_name(cx, &n, &b->scope, "max_position_embeddings");
    if (rc) return rc;
    if (!(n >= 1 && n <= 1e12 && n == floor(n)))
        return osh_fail(cx, OSH_E_FORMAT,
                        "%s: max_position_embeddings is %g, want a whole number of at least 1",
                        b->ck->config->path, n);
    b->scope.max_position = (int64_t)n;
    b->g->max_positions = b->scope.max_position;
    if (rope->type == OSH_ROPE_DYNAMIC && rope->factor > 1)
        b->g->max_positions = (int64_t)fmin(n * rope->factor, 1e15);
    const cJSON *longest = cJSON_GetObjectItemCaseSensitive(b->scope.tpl->json, "longest");
    if (!longest) return OSH_OK;
    int64_t most = 0;
    bool named = cJSON_IsString(longest);
    rc = osh_scope_int(cx, &most, &b->scope, longest, 1);
    if (!rc && named) rc = check_factors(cx, b, longest->valuestring);
    if (rc || most >= b->g->max_positions) return rc;
    b->g->max_positions = most;
    // A key with "max_position" in its name is not a limit of sparse attention. Its value is the
    // number of positions whose embedding is not scaled (Mistral 4).
    b->g->sparse_limit = named && !strstr(longest->valuestring, "max_position");
    return rc;
}

static osh_status find_head(osh_ctx *cx, osh_builder *b)
{
    osh_graph *g = b->g;
    const char *given = osh_build_text(b->scope.tpl->json, "head");
    char *name = given ? osh_build_wrapped_name(cx, b, given) : NULL; // own
    int64_t module = -1;
    if (given && !name) return OSH_E_NOMEM;
    bool found = name && osh_map_get(b->modules, name, strlen(name), &module);
    osh_free(cx, name);
    if (!found || g->modules[module].node < 0 ||
        !osh_node_is(&g->nodes[g->modules[module].node], OSH_OP_LINEAR))
        return osh_fail(cx, OSH_E_FORMAT, "%s: \"head\" names no linear", b->scope.tpl->name);
    g->head = g->modules[module].node;
    g->hidden = g->nodes[g->head].in[0];
    g->n_vocab = g->values[g->nodes[g->head].out[0]].width;
    return OSH_OK;
}

/* Reads the key "logits" of the template: {"divide": expression, "cap": expression}. An absent
 * expression counts as 0, which means no division or no cap. */
static osh_status read_logits(osh_ctx *cx, osh_builder *b)
{
    osh_status rc = OSH_OK;
    const cJSON *rule = cJSON_GetObjectItemCaseSensitive(b->scope.tpl->json, "logits"),
                *divide = cJSON_GetObjectItemCaseSensitive(rule, "divide"),
                *cap = cJSON_GetObjectItemCaseSensitive(rule, "cap");
    if (divide) OSH_TRY(osh_scope_num(cx, &b->g->logits.divide, &b->scope, divide));
    if (cap) OSH_TRY(osh_scope_num(cx, &b->g->logits.cap, &b->scope, cap));
    if (b->g->logits.divide < 0 || b->g->logits.cap < 0)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: logits are divided by %g and capped at %g, want no negative number",
                 b->scope.config->path, b->g->logits.divide, b->g->logits.cap);
done:
    return rc;
}

static osh_status graph_build(osh_ctx *cx, osh_builder *b)
{
    osh_status rc = OSH_OK;
    const cJSON *json = b->scope.tpl->json;
    OSH_TRY(osh_build_prefixes(cx, b));
    OSH_TRY(choose_dtype(cx, b));
    OSH_TRY(read_positions(cx, b));
    OSH_TRY(osh_build_value(cx, b, &b->g->input_ids, "input_ids", 1, -1));
    b->g->values[b->g->input_ids].dtype = OSH_I32;
    OSH_TRY(osh_build_bind(cx, b, "input_ids", b->g->input_ids));
    OSH_TRY(build_entries(cx, b, cJSON_GetObjectItemCaseSensitive(json, "before")));
    OSH_TRY(add_layers(cx, b, cJSON_GetObjectItemCaseSensitive(json, "layer")));
    b->scope.window = 0, b->scope.sparse = b->scope.sliding = false;
    OSH_TRY(build_entries(cx, b, cJSON_GetObjectItemCaseSensitive(json, "after")));
    osh_graph_link_uses(b->g);
    OSH_TRY(find_head(cx, b));
    OSH_TRY(read_logits(cx, b));
done:
    return rc;
}

/* Shrinks the allocation of a list to its n items. */
static void *list_fitted(osh_ctx *cx, osh_status *rc, void *list, int n, size_t size)
{
    if (*rc || !list || !n) return list;
    void *fit = osh_realloc(cx, list, (size_t)n * size);
    if (!fit) *rc = OSH_E_NOMEM;
    return fit ? fit : list;
}

static osh_status graph_fit_lists(osh_ctx *cx, osh_graph *g)
{
    osh_status rc = OSH_OK;
    g->modules = list_fitted(cx, &rc, g->modules, g->n_modules, sizeof *g->modules);
    g->values = list_fitted(cx, &rc, g->values, g->n_values, sizeof *g->values);
    g->nodes = list_fitted(cx, &rc, g->nodes, g->n_nodes, sizeof *g->nodes);
    g->weights = list_fitted(cx, &rc, g->weights, g->n_weights, sizeof *g->weights);
    return rc;
}

osh_status osh_graph_from_template(osh_ctx *cx, osh_graph **out, const osh_checkpoint *ck,
                                   const osh_template *tpl, osh_graph_faults *faults)
{
    osh_status rc = OSH_OK;
    osh_builder b = {.ck = ck, .prefix = "", .layer = "", .faults = faults,
                     .scope = {.tpl = tpl, .config = ck->config}};

    OSH_NEW(cx, b.g, 1);
    OSH_TRY(osh_map_new(cx, &b.modules, 256));
    OSH_TRY(osh_map_new(cx, &b.weights, 256));
    OSH_TRY(graph_build(cx, &b));
    OSH_TRY(graph_fit_lists(cx, b.g));
    *out = b.g, b.g = NULL; // give
done:
    osh_map_free(cx, b.modules);
    osh_map_free(cx, b.weights);
    osh_free(cx, b.bound);
    osh_free(cx, b.plain);
    osh_graph_free(cx, b.g);
    return rc;
}
