/* graph.c - makes and frees graphs, and answers questions about them. build.c builds a graph from
 * the template of its architecture. */
#include "graph/graph.h"

#include "base/buf.h"
#include "graph/template.h"
#include "graph/templates.h"

#include <string.h>

static osh_status graph_make(osh_ctx *cx, osh_graph **out, osh_graph_faults *faults,
                             const osh_checkpoint *ck, const char *models_dir, bool by_route)
{
    osh_status rc = OSH_OK;
    osh_hf_config own = {0}; // own: a copy of ck->config that uses the records of models_dir
    osh_checkpoint with_own = *ck;
    const osh_hf_config *config = ck->config;
    osh_template *tpl = NULL, *around = NULL; // own
    const cJSON *wraps;                       // view

    if (models_dir) {
        OSH_TRY(osh_templates_check(cx, models_dir));
        OSH_TRY(osh_hf_config_in(cx, &own, config, models_dir));
        config = with_own.config = &own, ck = &with_own;
    }
    if (!config->architecture)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s names no architecture", config->path);
    OSH_TRY(osh_template_find(cx, &tpl, config->architecture, models_dir));
    if (!tpl)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: architecture %.200s is not known; oneshot help models lists the known ones",
                 config->path, config->architecture);
    wraps = cJSON_GetObjectItemCaseSensitive(tpl->json, "wraps");
    if (wraps) {
        around = tpl, tpl = NULL;
        if (!config->text_architecture)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: no template serves the model_type of text_config",
                     config->path);
        OSH_TRY(osh_template_find(cx, &tpl, config->text_architecture, models_dir));
        if (!tpl)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: no template of %s", config->path,
                     config->text_architecture);
        tpl->wrap = wraps;
    }
    tpl->by_route = by_route;
    OSH_TRY(osh_graph_from_template(cx, out, ck, tpl, faults));
done:
    osh_template_free(cx, around);
    osh_template_free(cx, tpl);
    osh_hf_config_drop(cx, &own);
    return rc;
}

osh_status osh_graph_is_stacked(osh_ctx *cx, bool *yes, const osh_checkpoint *ck,
                                const char *models_dir)
{
    osh_template *tpl = NULL; // own
    const char *text = ck->config->text_architecture;
    osh_status rc = text ? osh_template_find(cx, &tpl, text, models_dir) : OSH_OK;
    *yes = tpl && cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(tpl->json, "stacked"));
    osh_template_free(cx, tpl);
    return rc;
}

osh_status osh_graph_new(osh_ctx *cx, osh_graph **out, const osh_checkpoint *ck,
                         const char *models_dir)
{
    return graph_make(cx, out, NULL, ck, models_dir, false);
}

osh_status osh_graph_new_from(osh_ctx *cx, osh_graph **out, const osh_checkpoint *ck,
                              const char *text, size_t n)
{
    osh_template *tpl = NULL; // own
    osh_status rc = osh_template_parse(cx, &tpl, "the built-in template", text, n);
    if (!rc) rc = osh_graph_from_template(cx, out, ck, tpl, NULL);
    osh_template_free(cx, tpl);
    return rc;
}

osh_status osh_graph_new_by_route(osh_ctx *cx, osh_graph **out, const osh_checkpoint *ck,
                                  const char *models_dir)
{
    return graph_make(cx, out, NULL, ck, models_dir, true);
}

osh_status osh_graph_check(osh_ctx *cx, osh_graph **out, osh_graph_faults *faults,
                           const osh_checkpoint *ck, const char *models_dir)
{
    return graph_make(cx, out, faults, ck, models_dir, false);
}

void osh_graph_free(osh_ctx *cx, osh_graph *g)
{
    if (!g) return;
    for (int i = 0; i < g->n_modules; i++) {
        osh_free(cx, g->modules[i].name);
        osh_free(cx, g->modules[i].cls);
    }
    for (int i = 0; i < g->n_values; i++) osh_free(cx, g->values[i].name);
    for (int i = 0; i < g->n_weights; i++)
        osh_free(cx, g->weights[i].name), osh_free(cx, g->weights[i].part),
            osh_free(cx, g->weights[i].shards);
    for (int i = 0; i < g->n_nodes; i++) {
        const osh_node *n = &g->nodes[i];
        if (n->original) continue;
        if (n->attr && n->op->attrs) osh_fields_deinit(cx, n->op->attrs, n->attr);
        osh_free(cx, n->attr);
    }
    osh_free(cx, g->modules);
    osh_free(cx, g->values);
    osh_free(cx, g->weights);
    osh_free(cx, g->nodes);
    osh_free(cx, g->layer_class);
    osh_free(cx, g->joined);
    osh_free(cx, g->inner);
    osh_free(cx, g->outer);
    osh_free(cx, g->loaded);
    osh_free(cx, g);
}

void osh_graph_link_uses(osh_graph *g)
{
    for (int v = 0; v < g->n_values; v++) g->values[v].first_use = g->values[v].last_use = -1;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].op->n_in; k++) {
            osh_value *v = &g->values[g->nodes[i].in[k]];
            if (v->first_use < 0) v->first_use = i;
            v->last_use = i;
        }
}

bool osh_graph_knows(osh_ctx *cx, const char *architecture, const char *models_dir)
{
    osh_template *t = NULL; // own
    osh_status rc =
        architecture ? osh_template_find(cx, &t, architecture, models_dir) : OSH_OK;
    bool yes = t != NULL;
    osh_template_free(cx, t);
    /* the caller later calls osh_graph_new, which reports an error of a template file */
    if (rc) osh_error_clear(cx);
    return yes;
}

char *osh_graph_loaded_name(osh_ctx *cx, const osh_graph *g, const char *name)
{
    if (!g->loaded) return NULL;
    size_t inner = strlen(g->inner), outer = strlen(g->outer);
    const char *head = g->modules[g->nodes[g->head].module].name;
    if (outer && !strncmp(name, g->outer, outer) && strncmp(name, g->inner, inner))
        return osh_strdup(cx, name + outer);
    if (strncmp(name, g->inner, inner) || (!inner && !strcmp(name, head))) return NULL;
    return strcmp(g->inner, g->loaded) ? osh_sprintf(cx, "%s%s", g->loaded, name + inner) : NULL;
}

osh_status osh_graph_need_head(osh_ctx *cx, const osh_graph *g, const osh_checkpoint *ck,
                               const char *why)
{
    if (!g->headless) return OSH_OK;
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "%s has no %s.weight, and config.json does not tie it to the table of tokens: "
                    "want a model with an output head for %s",
                    ck->dir, g->modules[g->nodes[g->head].module].name, why);
}

int osh_graph_host_only(const osh_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (osh_node_is(&g->nodes[i], OSH_OP_HOST_ONLY)) return i;
    return -1;
}

bool osh_node_routes(const osh_node *n)
{
    return osh_node_is(n, OSH_OP_ROUTES);
}

int osh_graph_module(const osh_graph *g, const char *name)
{
    for (int i = 0; i < g->n_modules; i++)
        if (strcmp(g->modules[i].name, name) == 0) return i;
    return -1;
}

static osh_status dot_node(osh_ctx *cx, osh_buf *b, const osh_graph *g, int i)
{
    const osh_node *n = &g->nodes[i];
    return osh_buf_printf(cx, b, "    n%d [label=\"%s\\n%s\"];\n", i, g->modules[n->module].name,
                          n->op->name);
}

static osh_status dot_edges(osh_ctx *cx, osh_buf *b, const osh_graph *g)
{
    osh_status rc = OSH_OK;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].op->n_in; k++) {
            int v = g->nodes[i].in[k];
            if (v < 0) continue;
            int from = g->values[v].producer;
            if (from < 0)
                OSH_TRY(osh_buf_printf(cx, b, "  input -> n%d;\n", i));
            else
                OSH_TRY(osh_buf_printf(cx, b, "  n%d -> n%d [label=\"%lld\"];\n", from, i,
                                       (long long)g->values[v].width));
        }
done:
    return rc;
}

osh_status osh_graph_dot(osh_ctx *cx, char **out, const osh_graph *g, const osh_partition *p)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    osh_buf_init(&b, 0);
    OSH_TRY(osh_buf_printf(cx, &b,
                           "digraph model {\n  node [shape=box];\n  input [label=\"%s\"];\n",
                           g->values[g->input_ids].name));
    for (int s = 0; p && s < p->n; s++) {
        const osh_subgraph *part = &p->parts[s];
        OSH_TRY(osh_buf_printf(cx, &b, "  subgraph cluster_%d {\n    label=\"%d: %s\";\n", s, s,
                               part->name));
        for (int i = part->first; i < part->first + part->n_nodes; i++)
            OSH_TRY(dot_node(cx, &b, g, i));
        OSH_TRY(osh_buf_printf(cx, &b, "  }\n"));
    }
    for (int i = 0; !p && i < g->n_nodes; i++) OSH_TRY(dot_node(cx, &b, g, i));
    OSH_TRY(dot_edges(cx, &b, g));
    OSH_TRY(osh_buf_printf(cx, &b, "}\n"));
    *out = b.data, b.data = NULL; // give
done:
    osh_buf_deinit(cx, &b);
    return rc;
}
