/* modules.c - lists the modules to which schemes can be assigned. If the architecture is known, the
 * modules are those of the graph. Otherwise, the names of the tensors decide. */
#include "match/modules.h"

#include "base/map.h"
#include "base/name.h"
#include "graph/heads.h"
#include "graph/kind.h"
#include "quant/source.h"

void osh_modules_deinit(osh_ctx *cx, osh_plan_modules *cs)
{
    for (int64_t i = 0; i < cs->n; i++) osh_free(cx, cs->c[i].name), osh_free(cx, cs->c[i].loaded);
    osh_free(cx, cs->c);
}

/* Adds a module with the first n bytes of `name` as its name. It gets the class, the tensor and the
 * graph module of `as`. */
static osh_status plan_modules_add(osh_ctx *cx, osh_plan_modules *cs, const char *name, size_t n,
                                   osh_plan_module as)
{
    osh_status rc = OSH_OK;
    osh_plan_module *c = &cs->c[cs->n];
    c->name = osh_sprintf(cx, "%.*s", (int)n, name);
    if (!c->name) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the name of %s", name);
    c->cls = as.cls, c->tensor = as.tensor, c->module = as.module, c->scheme = c->pruner = -1;
    cs->n++;
done:
    return rc;
}

/* True if the tensor is a matrix of floats and its name is M.weight. Sets *n to the length of the
 * module's name M. */
static bool weight_is_module(const osh_entry *e, size_t *n)
{
    *n = strlen(e->name);
    if (e->ndim != 2 || !osh_ends_with(e->name, *n, ".weight")) return false;
    if (e->dtype != OSH_BF16 && e->dtype != OSH_F16 && e->dtype != OSH_F32) return false;
    *n -= strlen(".weight");
    return true;
}

/* Fails if the tensor looks like the weight of a Linear but has integer codes that no
 * quantization_config explains. Checks nothing if --only is given and the source has a
 * quantization_config, because such a source keeps its codes. */
static osh_status check_no_codes(osh_ctx *cx, const osh_kinds *kinds, const osh_matching *p,
                                 const osh_ckpt_tensor *t)
{
    osh_status rc = OSH_OK;
    if (p->in->only && p->in->ck->config->quantization_config) return rc;
    const osh_entry *e = t->e;
    const char *why;
    size_t n = osh_before_tail(e->name, ".weight");
    bool codes = e->dtype == OSH_I8 || e->dtype == OSH_U8 || e->dtype == OSH_I32 ||
                 e->dtype == OSH_FP8 || e->dtype == OSH_FP8_E5M2;
    if (!codes || t->shard < 0 || e->ndim != 2 || !n) goto done;
    if (osh_kind_of(kinds, e->name, n, e->shape[0], e->shape[1], &why) == OSH_KIND_LINEAR)
        OSH_FAIL(
            cx, OSH_E_UNSUPPORTED,
            "%s is %s, and the model has no quantization_config for its codes: want BF16, F16 or "
            "F32",
            e->name, osh_dtype_name(e->dtype));
done:
    return rc;
}

osh_other_names osh_modules_other_names(const osh_hf_config *c)
{
    return (osh_other_names){cJSON_GetObjectItemCaseSensitive(c->type, "tower_entries"),
                             cJSON_GetObjectItemCaseSensitive(c->type, "dense_entries")};
}

/* Returns the reason why a module that is not in the template is never quantized, or NULL if there
 * is no such reason. */
static const char *unknown_reason(const osh_matching *p, osh_kind kind, const char *why)
{
    if (kind == OSH_KIND_CONV1D) return why;
    if (!p->in->graph->wrapped || kind != OSH_KIND_LINEAR)
        return "not in the architecture's template";
    if (osh_modules_other_names(p->in->ck->config).tower)
        return "in a tower whose modules have other names in transformers";
    return NULL;
}

/* Adds the modules of the source that are not in the architecture's template, such as MTP heads
 * (multi-token prediction). The weights of these modules are copied. The modules must be in the
 * ignore list, so that no loader looks for quantized weights. */
static osh_status modules_add_unknown(osh_ctx *cx, osh_plan_modules *cs, const osh_matching *p)
{
    osh_status rc = OSH_OK;
    osh_map *known = NULL; // own
    osh_kinds kinds;
    osh_kinds_init(&kinds, p->in->ck);
    OSH_TRY(osh_map_new(cx, &known, (size_t)cs->n));
    for (int64_t i = 0; i < cs->n; i++)
        OSH_TRY(osh_map_put(cx, known, cs->c[i].name, strlen(cs->c[i].name), i));
    for (int64_t i = 0; i < p->in->ck->n_tensors; i++) {
        const osh_entry *e = p->in->ck->tensors[i].e;
        int64_t at;
        const char *why;
        size_t n;
        OSH_TRY(check_no_codes(cx, &kinds, p, &p->in->ck->tensors[i]));
        if (!weight_is_module(e, &n) || osh_map_get(known, e->name, n, &at)) continue;
        if (p->transforms && osh_q_is_matrix(p->transforms, e->name)) continue;
        osh_kind kind = osh_kind_of(&kinds, e->name, n, e->shape[0], e->shape[1], &why);
        bool table = kind == OSH_KIND_EMBEDDING || kind == OSH_KIND_POSITIONS;
        if (kind == OSH_KIND_NORM) continue;
        OSH_TRY(plan_modules_add(
            cx, cs, e->name, n,
            (osh_plan_module){.cls = table ? "Embedding" : "Linear", .tensor = i, .module = -1}));
        osh_plan_module *c = &cs->c[cs->n - 1];
        c->why = unknown_reason(p, kind, why);
        c->never = c->why, c->unseen = !c->never;
    }
done:
    osh_map_free(cx, known);
    return rc;
}

/* True for a router. A router is no Linear and is never quantized. But get_vllm_module_type of
 * compressed-tensors treats it as a Linear, so routers must be in the ignore list. */
static bool is_router_module(const char *cls) { return strstr(cls, "Router") != NULL; }

/* Adds an output head that has no tensor, because loaders create a Linear for such a head. If the
 * head is tied (it shares the weight of the embedding) and a target names it, it may be quantized.
 * Otherwise the head is in the ignore list. */
static osh_status modules_add_missing_head(osh_ctx *cx, osh_plan_modules *cs, const osh_matching *p)
{
    osh_status rc = OSH_OK;
    osh_missing_head h;
    if (!osh_head_missing(&h, p->in->ck)) goto done;
    for (int64_t i = 0; i < cs->n; i++)
        if (cs->c[i].module >= 0 &&
            p->in->graph->modules[cs->c[i].module].node == p->in->graph->head)
            goto done; // the graph has a node for the tied head, so the list already has it
    OSH_TRY(plan_modules_add(cx, cs, h.name, strlen(h.name),
                (osh_plan_module){.cls = "Linear", .tensor = h.embedding, .module = -1}));
    osh_plan_module *c = &cs->c[cs->n - 1];
    c->absent = h.renamed;
    c->by_name = h.tied, c->never = !h.tied,
    c->why = h.tied ? "a head" : "a head that the source does not have";
done:
    return rc;
}

static osh_status modules_from_graph(osh_ctx *cx, osh_plan_modules *cs, const osh_matching *p)
{
    osh_status rc = OSH_OK;
    const osh_graph *g = p->in->graph;
    OSH_NEW(cx, cs->c, g->n_modules + p->in->ck->n_tensors + 1);
    for (int m = 0; m < g->n_modules; m++) {
        const osh_module *mod = &g->modules[m];
        bool router = is_router_module(mod->cls);
        if (mod->node < 0 ||
            (strcmp(mod->cls, "Linear") && strcmp(mod->cls, "Embedding") && !router))
            continue;
        // modules_add_missing_head adds an output head that has no tensor
        if (g->headless && mod->node == g->head) continue;
        int w = g->nodes[mod->node].w[0];
        OSH_TRY(plan_modules_add(cx, cs, mod->name, strlen(mod->name),
                                 (osh_plan_module){.cls = router ? "Linear" : mod->cls,
                                                   .tensor = g->weights[w].tensor, .module = m}));
        cs->c[cs->n - 1].loaded = osh_graph_loaded_name(cx, g, mod->name);
        if (router) cs->c[cs->n - 1].never = true, cs->c[cs->n - 1].why = "a router";
    }
    OSH_TRY(modules_add_unknown(cx, cs, p));
    OSH_TRY(modules_add_missing_head(cx, cs, p));
done:
    return rc;
}

/* Adds the module of a weight to the list, for a model without a graph. The kind of the module
 * follows from its name, its shape, and whether it has a bias (kind.c). */
static osh_status modules_add_named(osh_ctx *cx, osh_plan_modules *cs, const osh_kinds *kinds,
                                    const osh_entry *e, size_t n, int64_t tensor)
{
    osh_status rc = OSH_OK;
    const char *why = NULL;
    osh_kind kind = osh_kind_of(kinds, e->name, n, e->shape[0], e->shape[1], &why);
    bool table = kind == OSH_KIND_EMBEDDING || kind == OSH_KIND_POSITIONS;
    if (kind == OSH_KIND_NORM) goto done;
    OSH_TRY(plan_modules_add(
        cx, cs, e->name, n,
        (osh_plan_module){.cls = table ? "Embedding" : "Linear", .tensor = tensor, .module = -1}));
    osh_plan_module *c = &cs->c[cs->n - 1];
    c->why = why, c->by_name = kind != OSH_KIND_LINEAR, c->never = kind >= OSH_KIND_POSITIONS;
done:
    return rc;
}

static osh_status modules_from_names(osh_ctx *cx, osh_plan_modules *cs, const osh_matching *p)
{
    osh_status rc = OSH_OK;
    osh_kinds kinds;
    osh_kinds_init(&kinds, p->in->ck);
    OSH_NEW(cx, cs->c, p->in->ck->n_tensors + 1);
    for (int64_t i = 0; i < p->in->ck->n_tensors; i++) {
        size_t n;
        OSH_TRY(check_no_codes(cx, &kinds, p, &p->in->ck->tensors[i]));
        if (weight_is_module(p->in->ck->tensors[i].e, &n))
            OSH_TRY(modules_add_named(cx, cs, &kinds, p->in->ck->tensors[i].e, n, i));
    }
    OSH_TRY(modules_add_missing_head(cx, cs, p));
done:
    return rc;
}

osh_status osh_modules_list(osh_ctx *cx, osh_plan_modules *cs, const osh_matching *p)
{
    return p->in->graph ? modules_from_graph(cx, cs, p) : modules_from_names(cx, cs, p);
}
