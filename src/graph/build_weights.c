/* build_weights.c - finds the weights of a graph's nodes. A weight is a tensor of the checkpoint,
 * or a part of a tensor (parts.c). */
#include "graph/build.h"

#include <string.h>

/* True if the checkpoint has scales for the codes in <module>.weight. */
static bool has_scales(osh_ctx *cx, const osh_builder *b, const char *module)
{
    static const char *const leaves[] = {"weight_scale", "weight_scale_inv", "SCB",
                                         "weight.absmax"};
    bool yes = false;
    for (size_t i = 0; i < sizeof leaves / sizeof *leaves && !yes; i++) {
        char *name = osh_sprintf(cx, "%s.%s", module, leaves[i]);
        yes = name && osh_checkpoint_find(b->ck, name);
        osh_free(cx, name);
    }
    return yes;
}

/* True if the module is a quantized Linear of a compressed-tensors checkpoint. Such a Linear stores
 * its codes in the tensor `weight_packed`, or in a tensor `weight` with dtype I8, U8 or FP8. t: the
 * tensor `weight`, or NULL. */
static bool is_compressed(osh_ctx *cx, const osh_builder *b, const char *module,
                          const osh_ckpt_tensor *t)
{
    if (!b->ck->config->quantization_config) return false;
    if (t)
        return (t->e->dtype == OSH_I8 || t->e->dtype == OSH_FP8 || t->e->dtype == OSH_U8) &&
               has_scales(cx, b, module);
    char *name = osh_sprintf(cx, "%s.weight_packed", module);
    bool yes = name && osh_checkpoint_find(b->ck, name);
    osh_free(cx, name);
    return yes;
}

/* True if head and embedding share a weight according to config.json. If config.json lacks the key
 * tie_word_embeddings, they share it, because transformers 4 writes the key only if it is false. */
static bool config_ties(const osh_builder *b)
{
    return !b->ck->config->has_tie_word_embeddings || b->ck->config->tie_word_embeddings;
}

static osh_status weight_check_stored(osh_ctx *cx, const osh_ckpt_tensor *t, const char *name,
                                      const osh_wanted_weight *x)
{
    const osh_entry *e = t->e;
    const int64_t *shape = x->shape;
    int ndim = x->ndim;
    /* A tensor without dimensions has one element, so it matches the shape [1]. */
    bool same = e->ndim == ndim || (!e->ndim && ndim == 1 && shape[0] == 1);
    for (int i = 0; same && i < e->ndim; i++) same = e->shape[i] == shape[i];
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
    if (x->whole_numbers)
        return e->dtype == OSH_I32 || e->dtype == OSH_I64
                   ? OSH_OK
                   : osh_fail(cx, OSH_E_FORMAT, "tensor %s is %s, want I32 or I64", name,
                              osh_dtype_name(e->dtype));
    if (e->dtype != OSH_BF16 && e->dtype != OSH_F16 && e->dtype != OSH_F32)
        return osh_fail(cx, OSH_E_FORMAT, "tensor %s is %s, want BF16, F16 or F32", name,
                        osh_dtype_name(e->dtype));
    return OSH_OK;
}

/* Handles the error `rc` of a tensor that is missing, or that has a wrong shape or dtype. If
 * b->faults is not NULL, adds the message to this list and returns OSH_OK. Otherwise returns rc. */
static osh_status weight_fault(osh_ctx *cx, osh_builder *b, osh_status rc)
{
    if (rc != OSH_E_FORMAT || !b->faults) return rc;
    b->faults->n++;
    rc = osh_buf_line(cx, &b->faults->text, "wrong  %s", osh_error_text(cx));
    if (!rc) osh_error_clear(cx);
    return rc;
}

/* True if the module is the output head. Calibration needs no head, so the weight of the head may
 * be missing. Commands that need the weight call osh_graph_need_head. */
static bool module_is_head(osh_ctx *cx, const osh_builder *b, const char *module)
{
    const char *given = osh_build_text(b->scope.tpl->json, "head");
    char *head = given ? osh_build_wrapped_name(cx, b, given) : NULL; // own
    bool yes = head && !strcmp(head, module);
    osh_free(cx, head);
    return yes;
}

osh_status osh_build_weight(osh_ctx *cx, osh_builder *b, int *index, const osh_wanted_weight *x)
{
    osh_status rc = OSH_OK;
    osh_graph *g = b->g;
    int64_t known = 0;
    /* The module name is empty if the model has no prefix, and then no dot is before the leaf. */
    char *name = osh_sprintf(cx, "%s%s%s", x->module, *x->module ? "." : "", x->leaf); // own
    char *other = NULL;                                  // own
    if (!name) return OSH_E_NOMEM;
    const osh_ckpt_tensor *t = osh_checkpoint_find(b->ck, name);
    bool compressed = strcmp(x->leaf, "weight") == 0 && is_compressed(cx, b, x->module, t);
    if (!t && !compressed && x->tied && config_ties(b)) {
        char *whole = osh_build_wrapped_name(cx, b, x->tied); // own
        other = whole ? osh_sprintf(cx, "%s.%s", whole, x->leaf) : NULL;
        osh_free(cx, whole);
        if (!other) {
            rc = OSH_E_NOMEM;
            goto done;
        }
        t = osh_checkpoint_find(b->ck, other);
        if (t) osh_free(cx, name), name = other, other = NULL;
    }
    bool headless = !t && !compressed && !b->faults && module_is_head(cx, b, x->module);
    b->g->headless |= headless;
    if (!t && !compressed && !headless)
        OSH_TRY(weight_fault(
            cx, b, osh_fail(cx, OSH_E_FORMAT, "tensor %s is missing in %s", name, b->ck->dir)));
    if (t && !compressed)
        OSH_TRY(weight_fault(cx, b, weight_check_stored(cx, t, name, x)));
    if (osh_map_get(b->weights, name, strlen(name), &known)) {
        *index = (int)known; // tied modules share one weight of the graph
        goto done;
    }
    osh_weight *w = osh_build_grown(cx, g->weights, g->n_weights, sizeof *w);
    if (!w) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    g->weights = w;
    w += g->n_weights;
    *w = (osh_weight){.name = name,
                      .ndim = x->ndim,
                      .dtype = t ? t->e->dtype : OSH_DTYPE_NONE,
                      .tensor = t ? t - b->ck->tensors : -1,
                      .by_rows = t && t->shard >= 0 && x->ndim == 2 ? t->e->dtype : OSH_DTYPE_NONE,
                      .compressed = compressed};
    memcpy(w->shape, x->shape, (size_t)x->ndim * sizeof *x->shape);
    *index = g->n_weights++, name = NULL; // give
    OSH_TRY(osh_map_put(cx, b->weights, w->name, strlen(w->name), *index));
done:
    osh_free(cx, name);
    osh_free(cx, other);
    return rc;
}

/* True if the checkpoint has the weight of the module, dense or quantized. */
static bool has_weight(osh_ctx *cx, const osh_builder *b, const char *module)
{
    char *own = osh_sprintf(cx, "%s.weight", module); // own
    const osh_ckpt_tensor *t = own ? osh_checkpoint_find(b->ck, own) : NULL;
    osh_free(cx, own);
    return t || is_compressed(cx, b, module, t);
}

bool osh_build_is_apart(osh_ctx *cx, const osh_builder *b, const char *module, const cJSON *json)
{
    const char *given = osh_build_text(json, "weight");
    char *whole = given ? osh_sprintf(cx, "%s%s", b->layer, given) : NULL; // own
    bool yes = whole && !osh_checkpoint_find(b->ck, whole) && has_weight(cx, b, module);
    osh_free(cx, whole);
    return yes;
}

bool osh_build_layer_is_apart(osh_ctx *cx, const osh_builder *b)
{
    const char *given = osh_build_text(b->scope.tpl->json, "apart");
    char *module = given ? osh_sprintf(cx, "%s%s", b->layer, given) : NULL; // own
    bool yes = module && has_weight(cx, b, module);
    osh_free(cx, module);
    return yes;
}

osh_status osh_build_part(osh_ctx *cx, osh_builder *b, int *index, const cJSON *json, int k,
                          const osh_weight *shape)
{
    osh_status rc = OSH_OK;
    osh_graph *g = b->g;
    int64_t known = 0;
    const char *given = osh_build_text(json, k ? "bias" : "weight");
    char *tensor = osh_sprintf(cx, "%s%s", b->layer, given ? given : ""); // own
    osh_weight *w = osh_build_grown(cx, g->weights, g->n_weights, sizeof *w);
    /* The weight is counted even if it is incomplete, so that osh_graph_free frees its members. */
    if (w) g->weights = w, w += g->n_weights, *w = *shape, g->n_weights++;
    if (!w || !tensor) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a weight");
    if (!given) OSH_FAIL(cx, OSH_E_FORMAT, "\"part\" has no %s", k ? "bias" : "weight");
    OSH_TRY(weight_fault(cx, b, osh_part_new(cx, w, &b->scope, b->ck, tensor, json)));
    *index = g->n_weights - 1;
    if (osh_map_get(b->weights, w->name, strlen(w->name), &known))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s is the weight of two modules", b->scope.tpl->name,
                 w->name);
    OSH_TRY(osh_map_put(cx, b->weights, w->name, strlen(w->name), *index));
done:
    osh_free(cx, tensor);
    return rc;
}

/* Returns the tensor with part s of the rows of a table, or NULL if the checkpoint does not have
 * this tensor. Sets *name (own) to the name of the tensor, or to NULL if out of memory. */
static const osh_ckpt_tensor *table_find(osh_ctx *cx, char **name, const osh_builder *b,
                                         const char *module, const char *leaf, int64_t s)
{
    const char *hole = strstr(leaf, "{s}");
    int n = hole ? (int)(hole - leaf) : (int)strlen(leaf);
    *name = osh_sprintf(cx, "%s.%.*s%lld%s", module, n, leaf, (long long)s,
                        hole ? hole + strlen("{s}") : "");
    return *name ? osh_checkpoint_find(b->ck, *name) : NULL;
}

/* Appends the rows of the tensor t to the table w. */
static osh_status table_add(osh_ctx *cx, const osh_builder *b, osh_weight *w, const char *name,
                            const osh_ckpt_tensor *t)
{
    int64_t rows = t->e->ndim == 2 ? t->e->shape[0] : 0, shape[2] = {rows, w->shape[1]};
    osh_status rc = weight_check_stored(cx, t, name, &(osh_wanted_weight){.ndim = 2,
                                                                          .shape = shape});
    if (rc) return rc;
    if (t->shard < 0 || (w->n_shards && t->e->dtype != w->dtype))
        return osh_fail(cx, OSH_E_FORMAT, "tensor %s: want dense rows of the dtype of %s", name,
                        w->name);
    if (w->shape[0] + rows > INT32_MAX)
        return osh_fail(cx, OSH_E_FORMAT, "tensor %s: the table has more than %d rows", name,
                        INT32_MAX);
    int64_t *grown = osh_build_grown(cx, w->shards, (int)w->n_shards, sizeof *grown);
    if (!grown) return OSH_E_NOMEM;
    w->shards = grown, w->shards[w->n_shards++] = t - b->ck->tensors;
    w->tensor = w->shards[0], w->dtype = w->by_rows = t->e->dtype, w->shape[0] += rows;
    return OSH_OK;
}

osh_status osh_build_table(osh_ctx *cx, osh_builder *b, int *index, const char *module,
                           const char *leaf, int64_t width)
{
    osh_status rc = OSH_OK;
    osh_graph *g = b->g;
    char *name = NULL; // own
    const osh_ckpt_tensor *t = table_find(cx, &name, b, module, leaf, 0);
    osh_weight *w = osh_build_grown(cx, g->weights, g->n_weights, sizeof *w);
    if (w) g->weights = w, w += g->n_weights;
    if (!w || !name) OSH_TRY(OSH_E_NOMEM);
    *w = (osh_weight){.ndim = 2, .dtype = OSH_DTYPE_NONE, .by_rows = OSH_DTYPE_NONE, .tensor = -1,
                      .shape = {0, width}};
    *index = g->n_weights++; // osh_graph_free also frees an incomplete weight
    w->name = osh_strdup(cx, name);
    if (!w->name) OSH_TRY(OSH_E_NOMEM);
    if (!t)
        OSH_TRY(weight_fault(
            cx, b, osh_fail(cx, OSH_E_FORMAT, "tensor %s is missing in %s", name, b->ck->dir)));
    for (int64_t s = 1; t; s++) {
        OSH_TRY(weight_fault(cx, b, table_add(cx, b, w, name, t)));
        osh_free(cx, name);
        t = table_find(cx, &name, b, module, leaf, s);
        if (!name) OSH_TRY(OSH_E_NOMEM);
    }
    OSH_TRY(osh_map_put(cx, b->weights, w->name, strlen(w->name), *index));
done:
    osh_free(cx, name);
    return rc;
}
