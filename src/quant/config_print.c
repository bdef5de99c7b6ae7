/* config_print.c - prints the JSON text of quantization_config as LLM Compressor prints it after
 * calibration (compressed-tensors 0.19.0). The text has every key, also keys with the value null.
 * osh_json_print sorts the keys at every level, also group names ("group_10" before "group_2"). The
 * text is indented by two more levels, because it is a value at depth 1 of config.json. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/format.h"
#include "quant/observer.h"
#include "quant/scheme.h"

/* Adds `item` to the object `to` under `key`, and takes ownership of `item`. Returns false if
 * `item` is NULL (out of memory) or cannot be added, so that callers can chain calls with &&. */
static bool config_add(cJSON *to, const char *key, cJSON *item)
{
    if (item && cJSON_AddItemToObject(to, key, item)) return true;
    cJSON_Delete(item);
    return false;
}

static bool config_add_str(cJSON *to, const char *key, const char *s)
{
    return config_add(to, key, s && *s ? cJSON_CreateString(s) : cJSON_CreateNull());
}

static bool config_add_number(cJSON *to, const char *key, int64_t v, bool is_null)
{
    return config_add(to, key, is_null ? cJSON_CreateNull() : cJSON_CreateNumber((double)v));
}

static cJSON *string_list(const char *const *items, size_t n)
{
    /* cJSON_CreateStringArray fails if items is NULL */
    return n ? cJSON_CreateStringArray(items, (int)n) : cJSON_CreateArray();
}

static cJSON *block_object(const osh_q_args *a)
{
    if (!a->block[0]) return cJSON_CreateNull();
    return cJSON_CreateIntArray((const int[]){(int)a->block[0], (int)a->block[1]}, 2);
}

static int kwarg_by_name(const void *a, const void *b)
{
    return strcmp(((const osh_q_kwarg *)a)->name, ((const osh_q_kwarg *)b)->name);
}

static cJSON *kwarg_number(const osh_q_kwarg *k)
{
    char text[40];
    if (k->kind == OSH_Q_KWARG_BOOL) return cJSON_CreateBool(k->value != 0);
    if (k->kind == OSH_Q_KWARG_INT || k->value != floor(k->value))
        return cJSON_CreateNumber(k->value);
    snprintf(text, sizeof text, "%.1f", k->value); // prints 100 as 100.0
    return cJSON_CreateRaw(text);
}

static cJSON *kwargs_object(const osh_q_args *a)
{
    cJSON *o = cJSON_CreateObject();
    osh_q_kwarg sorted[OSH_Q_KWARGS];
    memcpy(sorted, a->kwargs, sizeof sorted);
    qsort(sorted, (size_t)a->n_kwargs, sizeof *sorted, kwarg_by_name);
    for (int i = 0; o && i < a->n_kwargs; i++)
        if (!config_add(o, sorted[i].name, kwarg_number(&sorted[i]))) {
            cJSON_Delete(o);
            return NULL;
        }
    return o;
}

static cJSON *args_object(const osh_q_args *given, bool is_weight)
{
    static const char *const strategies[] = {"tensor", "channel",      "group",     "block",
                                             "token",  "tensor_group", "attn_head", NULL};
    static const char *const scales[] = {NULL, "torch.float8_e4m3fn", "torch.uint8"};
    static const char *const orders[] = {NULL, "static", "weight"};
    osh_q_args a = *given;
    if (!a.present) return cJSON_CreateNull();

    osh_q_observer_default(&a, is_weight);
    cJSON *o = cJSON_CreateObject();
    if (o && config_add_str(o, "actorder", orders[a.actorder]) &&
        config_add(o, "block_structure", block_object(&a)) &&
        config_add(o, "dynamic",
                   a.dynamic == OSH_Q_LOCAL ? cJSON_CreateString("local")
                                            : cJSON_CreateBool(a.dynamic == OSH_Q_DYNAMIC)) &&
        config_add_number(o, "group_size", a.group_size, !a.group_size) &&
        config_add_number(o, "num_bits", a.bits, false) &&
        config_add_str(o, "observer", a.observer) &&
        config_add(o, "observer_kwargs", kwargs_object(&a)) &&
        config_add_str(o, "scale_dtype", scales[a.scale_dtype]) &&
        config_add_str(o, "strategy", strategies[a.strategy]) &&
        config_add(o, "symmetric", cJSON_CreateBool(a.symmetric)) &&
        config_add_str(o, "type", a.type == OSH_Q_INT ? "int" : "float") &&
        config_add_str(o, "zp_dtype", a.symmetric ? NULL : "torch.int8"))
        return o;
    cJSON_Delete(o);
    return NULL;
}

/* Returns a copy of a config group of a quantized source. Adds the key `format` if the group does
 * not have it. Returns NULL if memory is exhausted. */
static cJSON *group_again(const cJSON *raw, const char *format)
{
    cJSON *o = cJSON_Duplicate(raw, 1);
    if (!o || cJSON_IsString(cJSON_GetObjectItemCaseSensitive(o, "format"))) return o;
    cJSON_DeleteItemFromObjectCaseSensitive(o, "format");
    if (config_add_str(o, "format", format)) return o;
    cJSON_Delete(o);
    return NULL;
}

osh_status osh_q_args_print(osh_ctx *cx, char **out, const osh_q_args *a, bool is_weight)
{
    osh_status rc = OSH_OK;
    cJSON *o = args_object(a, is_weight);                // own
    char *text = o ? cJSON_PrintUnformatted(o) : NULL;   // JSON text; own, freed with cJSON_free
    if (!text || !(*out = osh_strdup(cx, text)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a scheme's arguments");
done:
    cJSON_free(text);
    cJSON_Delete(o);
    return rc;
}

static cJSON *group_object(const osh_q_scheme *s, const char *format)
{
    if (cJSON_IsObject(s->raw)) return group_again(s->raw, format);
    cJSON *o = cJSON_CreateObject();
    if (o && config_add_str(o, "format", format) &&
        config_add(o, "input_activations", args_object(&s->inputs, false)) &&
        config_add(o, "output_activations", args_object(&s->outputs, false)) &&
        config_add(o, "targets",
                   string_list((const char *const *)s->targets.items, s->targets.n)) &&
        config_add(o, "weights", args_object(&s->weights, true)))
        return o;
    cJSON_Delete(o);
    return NULL;
}

/* Returns the JSON object of kv_cache_scheme. If `a` names no observer, the value of `observer` is
 * null; in a config group of weights it would be the default observer. */
static cJSON *cache_object(const osh_q_args *a)
{
    cJSON *o = a ? args_object(a, false) : cJSON_CreateNull();
    if (o && a && !a->observer[0] &&
        !cJSON_ReplaceItemInObjectCaseSensitive(o, "observer", cJSON_CreateNull())) {
        cJSON_Delete(o);
        return NULL;
    }
    return o;
}

/* Returns the JSON object ExpertSparsityConfig (compressed-tensors 0.20), which has the number of
 * experts of each layer. */
static cJSON *experts_object(const osh_q_beside *b)
{
    cJSON *o = cJSON_CreateObject(), *counts = cJSON_CreateArray(); // own
    bool ok = o && counts && config_add_str(o, "method", "prune");
    for (int i = 0; ok && i < b->n_layers; i++) {
        cJSON *one = b->experts[i] < 0 ? cJSON_CreateNull() : cJSON_CreateNumber(b->experts[i]);
        ok = one && cJSON_AddItemToArray(counts, one);
        if (!ok) cJSON_Delete(one);
    }
    if (ok && config_add(o, "num_experts", counts)) return o;
    if (!ok) cJSON_Delete(counts);
    cJSON_Delete(o);
    return NULL;
}

osh_q_groups osh_q_groups_of(const osh_q_scheme *schemes, size_t n, const osh_strs *ignore)
{
    return (osh_q_groups){schemes, n, (const char *const *)ignore->items, ignore->n};
}

osh_status osh_q_config_print(osh_ctx *cx, char **out, const osh_q_groups *g, const char *format)
{
    return osh_q_config_print_with(cx, out, g, format, &(osh_q_beside){0});
}

osh_status osh_q_config_print_with(osh_ctx *cx, char **out, const osh_q_groups *g,
                                   const char *format, const osh_q_beside *beside)
{
    osh_status rc = OSH_OK;
    const osh_q_scheme *schemes = g->schemes;
    size_t n = g->n;
    cJSON *root = cJSON_CreateObject(), *groups = cJSON_CreateObject(); // own
    const char *top = n ? NULL : "dense", *version = OSH_Q_VERSION;
    bool ok = root && groups;

    for (size_t i = 0; ok && i < n; i++) {
        const osh_format *f = NULL; // storage format; view of a row of osh_formats
        char name[32];
        snprintf(name, sizeof name, "group_%zu", i);
        // the keys of the top level do not depend on config groups for attention
        if (osh_q_of_attention(&schemes[i])) {
            ok = config_add(groups, schemes[i].group_name ? schemes[i].group_name : name,
                            group_object(&schemes[i], "dense"));
            continue;
        }
        OSH_TRY(osh_format_infer(cx, &f, &schemes[i],
                                 schemes[i].group_name ? schemes[i].group_name : name));
        if (osh_q_is_fp6(&schemes[i].weights)) version = OSH_Q_VERSION_FP6;
        top = !top || !strcmp(top, f->name) ? f->name : "mixed-precision";
        ok = config_add(groups, schemes[i].group_name ? schemes[i].group_name : name,
                        group_object(&schemes[i], f->name));
    }
    ok = ok &&
         config_add_str(root, "format", format ? format : top ? top : "dense") &&
         config_add_str(root, "global_compression_ratio", NULL) &&
         config_add(root, "ignore", string_list(g->ignore, g->n_ignore)) &&
         config_add(root, "kv_cache_scheme", cache_object(beside->cache)) &&
         (!beside->experts || config_add(root, "moe_sparsity_config", experts_object(beside))) &&
         config_add_str(root, "quant_method", "compressed-tensors") &&
         config_add_str(root, "quantization_status", "compressed") &&
         config_add(root, "sparsity_config", cJSON_CreateObject()) &&
         config_add(root, "transform_config",
                    beside->transforms ? osh_q_transforms_object(beside->transforms)
                                       : cJSON_CreateObject()) &&
         config_add_str(root, "version", version) &&
         cJSON_AddItemToObject(root, "config_groups", groups);
    if (!ok) OSH_FAIL(cx, OSH_E_NOMEM, "cannot build quantization_config");
    groups = NULL; // give: to root
    OSH_TRY(osh_json_print(cx, out, root, 2));
done:
    cJSON_Delete(root);
    cJSON_Delete(groups);
    return rc;
}
