/* build_nodes.c - adds the module, the value and the node of a template entry to a graph. */
#include "graph/build.h"

#include <string.h>

enum { MAX_MODULES = 1 << 21 };

osh_status osh_build_module(osh_ctx *cx, osh_builder *b, int *index, const char *name,
                            const char *cls)
{
    osh_status rc = OSH_OK;
    osh_graph *g = b->g;
    int64_t parent = -1;
    /* Even a short template can describe a very large number of modules. This limit protects the
     * memory. */
    osh_module *m = NULL;
    if (g->n_modules >= MAX_MODULES)
        return osh_fail(cx, OSH_E_FORMAT, "%s: more than %d modules", b->scope.tpl->name,
                        MAX_MODULES);
    m = osh_build_grown(cx, g->modules, g->n_modules, sizeof *m);
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
    // The module is counted even if it is incomplete, so that osh_graph_free frees its members.
    *index = g->n_modules++;
    OSH_TRY(osh_map_put(cx, b->modules, name, strlen(name), *index));
done:
    return rc;
}

osh_status osh_build_value(osh_ctx *cx, osh_builder *b, int *index, const char *name,
                            int64_t width, int producer)
{
    osh_graph *g = b->g;
    osh_value *v = osh_build_grown(cx, g->values, g->n_values, sizeof *v);
    if (!v) return OSH_E_NOMEM;
    g->values = v;
    v += g->n_values;
    bool f32 = producer >= 0 && osh_node_is(&g->nodes[producer], OSH_OP_F32_OUT);
    *v = (osh_value){.width = width, .dtype = f32 ? OSH_F32 : g->dtype, .producer = producer,
                     .first_use = -1, .last_use = -1, .original = -1, .quantized = -1};
    v->name = osh_sprintf(cx, "%s%s", b->prefix, name);
    if (!v->name) return OSH_E_NOMEM;
    *index = g->n_values++;
    return OSH_OK;
}

osh_status osh_build_bind(osh_ctx *cx, osh_builder *b, const char *name, int value)
{
    for (int i = 0; i < b->n_bound; i++)
        if (strcmp(b->bound[i].name, name) == 0) {
            b->bound[i].value = value;
            return OSH_OK;
        }
    osh_binding *p = osh_build_grown(cx, b->bound, b->n_bound, sizeof *p);
    if (!p) return OSH_E_NOMEM;
    b->bound = p;
    p[b->n_bound++] = (osh_binding){name, value};
    return OSH_OK;
}

static osh_status wire_inputs(osh_ctx *cx, osh_builder *b, osh_node *node, int64_t *width,
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
            return osh_fail(cx, OSH_E_FORMAT, "input %d is not the name of an earlier value", k);
        if (b->g->values[found].dtype == OSH_F32 && b->g->dtype != OSH_F32 &&
            !(node->op->f32_in >> k & 1))
            return osh_fail(cx, OSH_E_FORMAT, "input %d, %s, is F32: op %s wants %s there", k,
                            name->valuestring, node->op->name, osh_dtype_name(b->g->dtype));
        node->in[k] = found;
        width[k] = b->g->values[found].width;
    }
    return OSH_OK;
}

static osh_status read_shape(osh_ctx *cx, const osh_builder *b, osh_entry_shape *w,
                             const cJSON *entry)
{
    osh_status rc = OSH_OK;
    const cJSON *dims = cJSON_GetObjectItemCaseSensitive(entry, "weight"),
                *flag = cJSON_GetObjectItemCaseSensitive(entry, "bias");
    double on = 0;
    w->ndim = cJSON_IsArray(dims) ? cJSON_GetArraySize(dims) : 0;
    if (dims && (w->ndim < 1 || w->ndim > 2))
        OSH_FAIL(cx, OSH_E_FORMAT, "\"weight\" is not a list of one or two dims");
    for (int i = 0; i < w->ndim; i++)
        OSH_TRY(osh_scope_int(cx, &w->dims[i], &b->scope, cJSON_GetArrayItem(dims, i), 1));
    if (flag) OSH_TRY(osh_scope_num(cx, &on, &b->scope, flag));
    w->bias = on != 0;
done:
    return rc;
}

/* Returns the leaf that weight k of a module has in the checkpoint. The leaf is item k of the list
 * "leaves", or by default "weight" (k = 0) or "bias" (k = 1). */
static const char *weight_leaf(const cJSON *leaves, int k)
{
    const cJSON *given = cJSON_GetArrayItem(leaves, k);
    /* an op without the key "leaves" has at most two weights */
    return cJSON_IsString(given) ? given->valuestring : k ? "bias" : "weight";
}

typedef struct widths { // widths (elements per token) of the values that a node reads and makes
    int64_t in[OSH_OP_MAX_IN], out[OSH_OP_MAX_OUT];
} widths;

/* Sets *name (own) to the name that the module of a template entry has in the checkpoint. */
static osh_status module_tensors(osh_ctx *cx, osh_builder *b, char **name, const osh_node *node,
                                 const cJSON *entry)
{
    osh_status rc = OSH_OK;
    const cJSON *given = cJSON_GetObjectItemCaseSensitive(entry, "tensors"), *one;
    char *weight = NULL; // own
    cJSON_ArrayForEach(one, given) {
        const char *text = cJSON_GetStringValue(one);
        osh_free(cx, *name), *name = text ? osh_build_full_name(cx, b, text) : NULL;
        weight = *name ? osh_sprintf(cx, "%s.weight", *name) : NULL;
        if (text && !weight) OSH_TRY(OSH_E_NOMEM);
        bool there = weight && osh_checkpoint_find(b->ck, weight);
        osh_free(cx, weight), weight = NULL;
        if (there) goto done;
    }
    osh_free(cx, *name), *name = NULL;
    if (cJSON_IsString(given)) {
        OSH_TRY(osh_build_filled(cx, b, name, given->valuestring));
    } else if (!(*name = osh_strdup(cx, b->g->modules[node->module].name))) {
        OSH_TRY(OSH_E_NOMEM);
    }
done:
    return rc;
}

static osh_status module_set_class(osh_ctx *cx, osh_builder *b, int module, const char *name)
{
    osh_module *m = &b->g->modules[module];
    char *cls = osh_strdup(cx, name); // own
    if (!cls) return OSH_E_NOMEM;
    osh_free(cx, m->cls);
    m->cls = cls; // give
    return OSH_OK;
}

/* Finds the weights of the node. Computes the widths x->out of its outputs from the widths x->in of
 * its inputs. */
static osh_status wire_weights(osh_ctx *cx, osh_builder *b, osh_node *node, const cJSON *entry,
                               widths *x, const osh_entry_shape *shape)
{
    osh_status rc = OSH_OK;
    const osh_op *op = node->op;
    int64_t want[OSH_OP_MAX_IN][2] = {{0}};
    int want_ndim[OSH_OP_MAX_IN] = {0};
    const cJSON *leaves = cJSON_GetObjectItemCaseSensitive(entry, "leaves"),
                *part = cJSON_GetObjectItemCaseSensitive(entry, "part");
    const char *tied = osh_build_text(entry, "tied");
    char *module = NULL; // own
    int n_earlier = b->g->n_weights;
    OSH_TRY(module_tensors(cx, b, &module, node, entry));
    bool expert = part && cJSON_GetObjectItemCaseSensitive(part, "at");
    if (expert && osh_build_is_apart(cx, b, module, part)) {
        part = NULL;
        // inference engines treat each expert as a Linear if its weight is a tensor of its own
        OSH_TRY(module_set_class(cx, b, node->module, "Linear"));
    }
    OSH_TRY(op->infer(cx, x->out, want, want_ndim, x->in, node->attr));
    // true if weight 0 is a table that may have any number of rows; infer gives such a table 0 rows
    bool table = want_ndim[0] && !want[0][0];
    if (op->n_weights > 0 && !table &&
        (shape->ndim != want_ndim[0] ||
         memcmp(shape->dims, want[0], (size_t)shape->ndim * sizeof *want[0]) != 0))
        OSH_FAIL(cx, OSH_E_FORMAT, "the weight's dims differ from the dims of op %s", op->name);
    for (int k = 0; k < op->n_weights; k++)
        if (!k && table)
            OSH_TRY(osh_build_table(cx, b, &node->w[0], module, weight_leaf(leaves, 0),
                                    want[0][1]));
        else if (want_ndim[k] && part)
            OSH_TRY(osh_build_part(cx, b, &node->w[k], part, k,
                             &(osh_weight){.ndim = want_ndim[k], .dtype = OSH_DTYPE_NONE,
                                           .shape = {want[k][0], want[k][1]}}));
        else if (want_ndim[k])
            OSH_TRY(osh_build_weight(cx, b, &node->w[k],
                                     &(osh_wanted_weight){.module = module,
                                                          .leaf = weight_leaf(leaves, k),
                                                          .tied = tied, .ndim = want_ndim[k],
                                                          .shape = want[k],
                                                          .whole_numbers =
                                                              op->whole_numbers >> k & 1}));
    // If a Linear uses the weight of an earlier module, its class is SharedLinear. Such a weight is
    // quantized once, with the earlier module.
    if (osh_build_text(entry, "name") && osh_op_is(op, OSH_OP_LINEAR) && node->w[0] >= 0 &&
        node->w[0] < n_earlier &&
        !strncmp(b->g->weights[node->w[0]].name, module, strlen(module)))
        OSH_TRY(module_set_class(cx, b, node->module, "SharedLinear"));
done:
    osh_free(cx, module);
    return rc;
}

osh_status osh_build_node(osh_ctx *cx, osh_builder *b, int module, const char *op_name,
                           const cJSON *entry)
{
    osh_status rc = OSH_OK;
    osh_graph *g = b->g;
    widths x = {0};
    const char *out = osh_build_text(entry, "out");
    int index = g->n_nodes, value = -1;
    osh_entry_shape shape = {0};
    osh_node *node = osh_build_grown(cx, g->nodes, index, sizeof *node);
    if (!node) return OSH_E_NOMEM;
    g->nodes = node;
    node += index;
    *node = (osh_node){.op = osh_op_find(op_name), .module = module};
    for (int i = 0; i < OSH_OP_MAX_IN; i++) node->in[i] = node->w[i] = -1;
    for (int i = 0; i < OSH_OP_MAX_OUT; i++) node->out[i] = -1;
    if (!node->op || !node->op->infer) OSH_FAIL(cx, OSH_E_FORMAT, "no op %s", op_name);
    if (!out || node->op->n_out != 1)
        OSH_FAIL(cx, OSH_E_FORMAT, "\"out\" of op %s is not one name", op_name);
    // The node is counted even if it is incomplete, so that osh_graph_free frees its attributes.
    g->n_nodes++;
    OSH_TRY(wire_inputs(cx, b, node, x.in, cJSON_GetObjectItemCaseSensitive(entry, "in")));
    OSH_TRY(read_shape(cx, b, &shape, entry));
    OSH_TRY(osh_scope_attr(cx, &node->attr, &b->scope, node->op, entry, &shape));
    OSH_TRY(wire_weights(cx, b, node, entry, &x, &shape));
    OSH_TRY(osh_build_value(cx, b, &value, out, x.out[0], index));
    node->out[0] = value;
    OSH_TRY(osh_build_bind(cx, b, out, value));
done:
    return rc;
}
