/* config_parse.c - reads the quantization_config of a checkpoint, with the rules of
 * compressed_tensors/quantization/quant_config.py. */
#include "quant/scheme_impl.h"

#include <stdio.h>
#include <string.h>

void osh_q_config_free(osh_ctx *cx, osh_q_config *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n; i++) osh_q_scheme_deinit(cx, &c->schemes[i]);
    for (size_t i = 0; i < c->ignore.n; i++) osh_free(cx, c->ignore.items[i]);
    osh_free(cx, c->ignore.items);
    osh_q_transforms_deinit(cx, &c->transforms);
    osh_free(cx, c->schemes);
    osh_free(cx, c);
}

static osh_status parse_strs(osh_ctx *cx, osh_strs *out, const cJSON *list, const char *what,
                             const char *key)
{
    osh_status rc = OSH_OK;
    const cJSON *e = NULL; // view

    if (!list || cJSON_IsNull(list)) return OSH_OK;
    if (!cJSON_IsArray(list)) OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s is not a list", what, key);
    OSH_NEW(cx, out->items, cJSON_GetArraySize(list));
    cJSON_ArrayForEach(e, list)
    {
        if (!cJSON_IsString(e))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s holds something that is not a string", what, key);
        char *s = osh_strdup(cx, e->valuestring);
        if (!s) OSH_FAIL(cx, OSH_E_NOMEM, "copying %s", key);
        out->items[out->n++] = s;
    }
done:
    return rc;
}

/* Returns a JSON value as the text that osh_q_args_set reads, or NULL for null. `buf` is the memory
 * for the text of a number. */
static const char *json_text_of(const cJSON *v, char *buf, size_t cap)
{
    if (cJSON_IsString(v)) return v->valuestring;
    if (cJSON_IsBool(v)) return cJSON_IsTrue(v) ? "true" : "false";
    if (cJSON_IsNumber(v))
        snprintf(buf, cap, "%.17g", v->valuedouble);
    else if (cJSON_IsArray(v) && cJSON_GetArraySize(v) == 2 && cJSON_IsNumber(v->child) &&
             cJSON_IsNumber(v->child->next))
        snprintf(buf, cap, "%.17gx%.17g", v->child->valuedouble, v->child->next->valuedouble);
    else if (cJSON_IsNull(v))
        return NULL;
    else
        snprintf(buf, cap, "%s", cJSON_IsObject(v) ? "{...}" : "[...]");
    return buf;
}

static osh_status parse_args(osh_ctx *cx, osh_q_args *a, const cJSON *o, const char *where)
{
    osh_status rc = OSH_OK;
    const cJSON *v = NULL; // view
    char buf[64];

    if (!o || cJSON_IsNull(o)) return OSH_OK;
    if (!cJSON_IsObject(o)) OSH_FAIL(cx, OSH_E_FORMAT, "%s is not an object", where);
    osh_q_args_init(a);
    cJSON_ArrayForEach(v, o)
    {
        if (!strcmp(v->string, "observer_kwargs"))
            continue; // observer_kwargs has no effect in a finished checkpoint
        OSH_TRY(osh_q_args_set(cx, a, v->string, json_text_of(v, buf, sizeof buf), where));
    }
done:
    return rc;
}

static osh_status parse_scheme(osh_ctx *cx, osh_q_scheme *s, const cJSON *o, const char *top_format,
                               const char *what)
{
    osh_status rc = OSH_OK;
    const cJSON *v = NULL; // view
    const char *format = NULL;
    char where[160], name[208];

    snprintf(where, sizeof where, "%s: config_groups.%s", what, o->string);
    s->group_name = osh_strdup(cx, o->string);
    if (!s->group_name) OSH_FAIL(cx, OSH_E_NOMEM, "copying %s", where);
    // a config group may be an array, as in {"FP8": ["Linear"]}: the key is the name of a preset,
    // and the array lists its targets
    if (cJSON_IsArray(o)) {
        OSH_TRY(osh_q_preset(cx, s, o->string));
        OSH_TRY(parse_strs(cx, &s->targets, o, where, "targets"));
    } else if (!cJSON_IsObject(o))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has the wrong type, want an object or a list of targets",
                 where);
    else
        cJSON_ArrayForEach(v, o)
        {
            snprintf(name, sizeof name, "%s.%s", where, v->string);
            if (!strcmp(v->string, "targets"))
                OSH_TRY(parse_strs(cx, &s->targets, v, where, "targets"));
            else if (!strcmp(v->string, "weights"))
                OSH_TRY(parse_args(cx, &s->weights, v, name));
            else if (!strcmp(v->string, "input_activations"))
                OSH_TRY(parse_args(cx, &s->inputs, v, name));
            else if (!strcmp(v->string, "output_activations"))
                OSH_TRY(parse_args(cx, &s->outputs, v, name));
            else if (!strcmp(v->string, "format"))
                OSH_TRY(osh_json_str_or(cx, &format, o, "format", NULL, where));
            else
                OSH_FAIL(cx, OSH_E_FORMAT, "%s: unknown key '%s'", where, v->string);
        }
    if (!s->targets.n) OSH_FAIL(cx, OSH_E_FORMAT, "%s has no targets", where);
    if (!s->weights.present && !s->inputs.present)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: a group without weights is not supported yet", where);
    if (!format && top_format && strcmp(top_format, "mixed-precision")) format = top_format;
    if (format && strlen(format) >= sizeof s->format)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: unknown format '%s'", where, format);
    if (format) snprintf(s->format, sizeof s->format, "%s", format);
    OSH_TRY(osh_q_scheme_check_stored(cx, s, where));
done:
    return rc;
}

/* Fails if quantization_config has a key that this program does not support and that changes the
 * meaning of the stored tensors. */
static osh_status refuse_foreign(osh_ctx *cx, const cJSON *q, const char *what)
{
    osh_status rc = OSH_OK;
    const char *method = NULL, *status = NULL;
    const cJSON *sparse = cJSON_GetObjectItemCaseSensitive(q, "sparsity_config");     // view

    OSH_TRY(osh_json_str_or(cx, &method, q, "quant_method", "compressed-tensors", what));
    if (strcmp(method, "compressed-tensors"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: quant_method is '%s', want compressed-tensors", what,
                 method);
    OSH_TRY(osh_json_str_or(cx, &status, q, "quantization_status", "compressed", what));
    if (strcmp(status, "compressed"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: quantization_status is '%s', want compressed", what,
                 status);
    if (sparse && sparse->child) {
        const char *f = NULL;
        OSH_TRY(osh_json_str_or(cx, &f, sparse, "format", "dense", what));
        if (strcmp(f, "dense"))
            OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: sparsity_config of format %s is not supported",
                     what, f);
    }
done:
    return rc;
}

bool osh_q_config_queries(const osh_q_config *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (osh_q_of_attention(&c->schemes[i])) return true;
    return false;
}

osh_status osh_q_config_parse(osh_ctx *cx, osh_q_config **out, const cJSON *quantization_config,
                              const char *what)
{
    osh_status rc = OSH_OK;
    osh_q_config *c = NULL;                // own
    const cJSON *groups = NULL, *g = NULL; // view
    const char *format = NULL;

    if (!cJSON_IsObject(quantization_config))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: quantization_config is not an object", what);
    OSH_TRY(refuse_foreign(cx, quantization_config, what));
    OSH_NEW(cx, c, 1);
    OSH_TRY(osh_json_str_or(cx, &format, quantization_config, "format", NULL, what));
    if (format && strlen(format) >= sizeof c->format)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: unknown format '%s'", what, format);
    if (format) snprintf(c->format, sizeof c->format, "%s", format);
    OSH_TRY(parse_args(cx, &c->cache,
                       cJSON_GetObjectItemCaseSensitive(quantization_config, "kv_cache_scheme"),
                       "kv_cache_scheme"));
    OSH_TRY(osh_q_cache_check(cx, &c->cache, what));
    groups = cJSON_GetObjectItemCaseSensitive(quantization_config, "config_groups");
    OSH_TRY(osh_q_transforms_parse(
        cx, &c->transforms,
        cJSON_GetObjectItemCaseSensitive(quantization_config, "transform_config"), what));
    bool transforms_alone = !groups && c->transforms.n;
    if (!transforms_alone && (!cJSON_IsObject(groups) || (!groups->child && !c->cache.present)))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: quantization_config has no config_groups", what);
    OSH_NEW(cx, c->schemes, cJSON_GetArraySize(groups) + 1);
    cJSON_ArrayForEach(g, groups) OSH_TRY(parse_scheme(cx, &c->schemes[c->n++], g, format, what));
    OSH_TRY(parse_strs(cx, &c->ignore,
                       cJSON_GetObjectItemCaseSensitive(quantization_config, "ignore"), what,
                       "ignore"));
    *out = c, c = NULL; // give
done:
    osh_q_config_free(cx, c);
    return rc;
}
