/* hf_config.c - reads config.json of transformers 4 and 5 into one form.
 *
 * An absent key has the default of the config class in transformers. The record of the model_type
 * has these defaults (model_types.h). Families without a record have the defaults of
 * PretrainedConfig in transformers 4, where tie_word_embeddings is true. The member
 * has_tie_word_embeddings is true if the file has the key tie_word_embeddings at the top level or
 * in text_config. */
#include "io/hf_config.h"
#include "base/file.h"
#include "io/hf_quant.h"
#include "io/hf_rope.h"
#include "io/model_types.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CONFIG_BYTES = 16 << 20 };

static const cJSON *hf_member(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, key) : NULL;
    return v && !cJSON_IsNull(v) ? v : NULL;
}

/* Reads the dtype. "dtype" has precedence over "torch_dtype", as in transformers 5. */
static osh_status take_dtype(osh_ctx *cx, osh_hf_config *c)
{
    const cJSON *json =
        hf_member(c->json, "dtype") || hf_member(c->json, "torch_dtype") ? c->json : c->model;
    const char *key = hf_member(json, "dtype") ? "dtype" : "torch_dtype", *name = NULL;
    osh_status rc = OSH_OK;

    c->dtype = OSH_DTYPE_NONE;
    OSH_TRY(osh_json_str_or(cx, &name, json, key, NULL, c->path));
    if (!name) goto done;
    c->dtype = osh_dtype_of_name(name);
    if (c->dtype == OSH_DTYPE_NONE)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: unknown %s '%.60s'", c->path, key, name);
done:
    return rc;
}

static osh_status take_architecture(osh_ctx *cx, osh_hf_config *c)
{
    const cJSON *list = hf_member(c->json, "architectures");

    if (!list) return OSH_OK;
    if (!cJSON_IsArray(list) || (list->child && !cJSON_IsString(list->child)))
        return osh_fail(cx, OSH_E_FORMAT, "%s: architectures is not a list of names", c->path);
    c->architecture = list->child ? list->child->valuestring : NULL;
    return OSH_OK;
}

bool osh_hf_config_has_flag(const osh_hf_config *c, const char *flag)
{
    return cJSON_IsTrue(hf_member(c->text_type, flag));
}

bool osh_hf_config_has_conv1d(const osh_hf_config *c)
{
    return osh_hf_config_has_flag(c, "conv1d");
}

/* Reads tie_word_embeddings, which config.json can have for the whole model and for the text model.
 * The family decides which of the two values transformers reads. This function sets the result to
 * true if at least one of them is true. */
static osh_status take_ties(osh_ctx *cx, osh_hf_config *c)
{
    osh_status rc = OSH_OK;
    static const char key[] = "tie_word_embeddings";
    bool inside = c->model != c->json, inner = false;
    /* Without a template, the default is that of transformers 4, unless the type's record has
     * another default. */
    const cJSON *tied = hf_member(c->type, "tied");
    bool dflt = tied ? cJSON_IsTrue(tied) : !inside && !hf_member(c->type, "text");
    OSH_TRY(osh_json_bool_or(cx, &c->tie_word_embeddings, c->json, key, dflt, c->path));
    if (inside) OSH_TRY(osh_json_bool_or(cx, &inner, c->model, key, false, c->path));
    c->tie_word_embeddings |= inner;
    c->has_tie_word_embeddings = hf_member(c->json, key) || hf_member(c->model, key);
done:
    return rc;
}

/* Reads the default values of the rope from the record of a family. */
static osh_rope_defaults rope_defaults(const cJSON *type)
{
    osh_rope_defaults d = {.keys = hf_member(type, "keys")};
    const struct { const char *key; double *to; } numbers[] = {
        {"rope_theta", &d.theta}, {"partial_rotary_factor", &d.partial_rotary_factor},
        {"sliding_rope_theta", &d.sliding_theta}, {"proportional_rope", &d.proportional},
        {"attention_factor", &d.attention_factor}};
    const struct { const char *key; int64_t *to; } lengths[] = {
        {"max_position_embeddings", &d.max_position_embeddings},
        {"original_max_position_embeddings", &d.original_max_position_embeddings}};
    const struct { const char *key; bool *to; } flags[] = {
        {"longrope", &d.longrope}, {"rope_required", &d.required}, {"rope_alpha", &d.alpha},
        {"partial_without_rope", &d.whole}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const cJSON *v = hf_member(type, numbers[i].key);
        if (cJSON_IsNumber(v)) *numbers[i].to = v->valuedouble;
    }
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const cJSON *v = hf_member(type, lengths[i].key);
        if (cJSON_IsNumber(v)) *lengths[i].to = (int64_t)v->valuedouble; // checked by model_types.c
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        *flags[i].to = cJSON_IsTrue(hf_member(type, flags[i].key));
    return d;
}

/* Finds the text model and the records of the model types, and reads the members that depend on the
 * records. */
static osh_status take_types(osh_ctx *cx, osh_hf_config *c, const char *models_dir)
{
    osh_status rc = OSH_OK;
    const char *type = osh_hf_config_str(c, "model_type");
    OSH_TRY(osh_model_type_find(cx, &c->type, type, c->architecture, models_dir));
    const char *at = cJSON_GetStringValue(hf_member(c->type, "text_config"));
    const cJSON *text = osh_json_inner(c->json, at ? at : "text_config");
    c->model = cJSON_IsObject(text) ? text : c->json;
    type = cJSON_GetStringValue(hf_member(c->model, "model_type"));
    OSH_TRY(osh_model_type_find(cx, &c->text_type, type, c->architecture, models_dir));
    c->text_architecture = cJSON_GetStringValue(hf_member(c->text_type, "text"));
    OSH_TRY(take_ties(cx, c));
    osh_rope rope[2];
    osh_rope_defaults defaults = rope_defaults(c->text_type);
    OSH_TRY(osh_hf_rope_read(cx, rope, &c->rope_unknown, c->model, &defaults));
    c->rope = rope[0], c->rope_sliding = rope[1];
done:
    return rc;
}

static osh_status take_all(osh_ctx *cx, osh_hf_config *c)
{
    osh_status rc = OSH_OK;
    OSH_TRY(take_architecture(cx, c));
    OSH_TRY(take_types(cx, c, NULL));
    OSH_TRY(take_dtype(cx, c));
    OSH_TRY(osh_hf_quant_read(cx, c));
done:
    return rc;
}

osh_status osh_hf_config_in(osh_ctx *cx, osh_hf_config *out, const osh_hf_config *c,
                            const char *models_dir)
{
    *out = *c;
    out->type = out->text_type = NULL, out->rope_unknown = NULL;
    return take_types(cx, out, models_dir);
}

void osh_hf_config_drop(osh_ctx *cx, osh_hf_config *out)
{
    cJSON_Delete(out->type);
    cJSON_Delete(out->text_type);
    osh_free(cx, out->rope_unknown);
}

osh_status osh_hf_config_open(osh_ctx *cx, osh_hf_config **out, const char *dir)
{
    osh_status rc = OSH_OK;
    osh_hf_config *c = NULL; // own

    OSH_NEW(cx, c, 1);
    c->path = osh_path_join(cx, dir, "config.json");
    if (!c->path) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    OSH_TRY(osh_file_read_all(cx, &c->text, &c->n_text, c->path, MAX_CONFIG_BYTES));
    OSH_TRY(osh_json_parse(cx, &c->json, c->text, c->n_text, c->path, OSH_JSON_NAN));
    if (!cJSON_IsObject(c->json)) OSH_FAIL(cx, OSH_E_FORMAT, "%s: is not a JSON object", c->path);
    OSH_TRY(take_all(cx, c));
    *out = c, c = NULL; // give
done:
    osh_hf_config_close(cx, c);
    return rc;
}

void osh_hf_config_close(osh_ctx *cx, osh_hf_config *c)
{
    if (!c) return;
    osh_hf_config_drop(cx, c);
    cJSON_Delete(c->json);
    cJSON_Delete(c->quantization_json);
    osh_free(cx, c->quantization_path);
    osh_free(cx, c->text);
    osh_free(cx, c->path);
    osh_free(cx, c);
}

osh_status osh_hf_config_num(osh_ctx *cx, double *out, bool *found, const osh_hf_config *c,
                             const char *key)
{
    const cJSON *v = hf_member(c->json, key);

    *found = v != NULL;
    *out = 0;
    if (!v) return OSH_OK;
    if (cJSON_IsBool(v)) {
        *out = cJSON_IsTrue(v) ? 1 : 0;
        return OSH_OK;
    }
    return osh_json_num_or(cx, out, c->json, key, 0, c->path);
}

const cJSON *osh_hf_config_member(const osh_hf_config *c, const char *name)
{
    const cJSON *v = osh_json_inner(c->model, name);
    const char *other = v ? NULL : cJSON_GetStringValue(
                                       hf_member(hf_member(c->text_type, "keys"), name));
    return other ? osh_json_inner(c->model, other) : v;
}

const char *osh_hf_config_str(const osh_hf_config *c, const char *key)
{
    const cJSON *v = hf_member(c->json, key);
    return v && cJSON_IsString(v) ? v->valuestring : NULL;
}

/* Sets a member of the JSON object in *text (own), and replaces *text by the result. */
static osh_status edit_again(osh_ctx *cx, char **text, osh_json_member m, const char *path)
{
    char *old = *text; // own
    *text = NULL;
    osh_status rc = osh_json_edit(cx, text, old, strlen(old), m, path);
    osh_free(cx, old);
    return rc;
}

/* Returns the key of config.json that has the text model's config. The result is a view. */
static const char *text_config_key(const osh_hf_config *c)
{
    const char *own = cJSON_GetStringValue(hf_member(c->type, "text_config"));
    return own && !strchr(own, '.') ? own : "text_config";
}

/* Removes quantization_config from the text model's config, if config.json has a separate object
 * for this model. If `untie` is true, sets tie_word_embeddings in this object to false. All other
 * bytes stay, because transformers distinguishes 1 from 1.0. */
static osh_status edit_text_config(osh_ctx *cx, char **text, const osh_hf_config *c, bool untie)
{
    osh_status rc = OSH_OK;
    const char *at = text_config_key(c);
    const cJSON *inner = hf_member(c->json, at);
    if (hf_member(inner, "quantization_config"))
        OSH_TRY(edit_again(cx, text, (osh_json_member){"quantization_config", NULL, at}, c->path));
    if (untie && cJSON_IsTrue(hf_member(inner, "tie_word_embeddings")))
        OSH_TRY(
            edit_again(cx, text, (osh_json_member){"tie_word_embeddings", "false", at}, c->path));
done:
    return rc;
}

/* Keys with which config.json can state the number of experts. */
static const char *const expert_keys[] = {"num_experts", "num_local_experts", "moe_num_experts",
                                          "n_routed_experts"};
enum { N_EXPERT_KEYS = sizeof expert_keys / sizeof *expert_keys };

osh_status osh_hf_config_set_experts(osh_ctx *cx, osh_hf_config *c, int64_t n_all, int64_t n)
{
    osh_status rc = OSH_OK;
    int n_set = 0;
    if (c->model != c->json)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: has its number of experts in text_config, want it at the top level",
                 c->path);
    for (int k = 0; k < N_EXPERT_KEYS; k++) {
        cJSON *v = cJSON_GetObjectItemCaseSensitive(c->json, expert_keys[k]);
        if (!cJSON_IsNumber(v) || v->valuedouble != (double)n_all) continue;
        cJSON_SetNumberValue(v, (double)n);
        n_set++;
    }
    if (!n_set)
        OSH_FAIL(
            cx, OSH_E_UNSUPPORTED,
            "%s: no key has the number of experts, %lld: want num_experts or num_local_experts",
            c->path, (long long)n_all);
    c->n_experts = n;
done:
    return rc;
}

static osh_status edit_experts(osh_ctx *cx, char **text, const osh_hf_config *c)
{
    osh_status rc = OSH_OK;
    char n[24];
    snprintf(n, sizeof n, "%lld", (long long)c->n_experts);
    for (int k = 0; c->n_experts && k < N_EXPERT_KEYS; k++) {
        const cJSON *v = hf_member(c->json, expert_keys[k]);
        if (cJSON_IsNumber(v) && v->valuedouble == (double)c->n_experts)
            OSH_TRY(edit_again(cx, text, (osh_json_member){expert_keys[k], n, NULL}, c->path));
    }
done:
    return rc;
}

osh_status osh_hf_config_set_size(osh_ctx *cx, osh_hf_config *c, const char *key, int64_t to)
{
    osh_status rc = OSH_OK;
    cJSON *v = cJSON_GetObjectItemCaseSensitive(c->model, key);
    int i = 0;
    if (!cJSON_IsNumber(v))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s is not a number", c->path, key);
    if (c->model != c->json && c->model != hf_member(c->json, text_config_key(c)))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: has %s in a nested object, want it at the top level or in %s", c->path, key,
                 text_config_key(c));
    while (i < c->n_sizes && strcmp(c->sizes[i].key, key)) i++;
    if (i == OSH_HF_SIZES)
        OSH_FAIL(cx, OSH_E_INTERNAL, "%s: more than %d changed sizes", c->path, OSH_HF_SIZES);
    if (i == c->n_sizes) c->sizes[c->n_sizes++] = (osh_hf_size){key, (int64_t)v->valuedouble, to};
    c->sizes[i].to = to;
    if (c->sizes[i].from == to) c->sizes[i] = c->sizes[--c->n_sizes];
    cJSON_SetNumberValue(v, (double)to);
done:
    return rc;
}

/* Changes the text model's config in *text: sets the sizes that osh_hf_config_set_size has
 * recorded. */
static osh_status edit_sizes(osh_ctx *cx, char **text, const osh_hf_config *c)
{
    osh_status rc = OSH_OK;
    const char *within = c->model == c->json ? NULL : text_config_key(c);
    char n[24];
    for (int i = 0; i < c->n_sizes; i++) {
        snprintf(n, sizeof n, "%lld", (long long)c->sizes[i].to);
        OSH_TRY(edit_again(cx, text, (osh_json_member){c->sizes[i].key, n, within}, c->path));
    }
done:
    return rc;
}

osh_status osh_hf_config_with_quantization(osh_ctx *cx, char **out, const osh_hf_config *c,
                                           const char *quantization_json, bool untie)
{
    osh_status rc = OSH_OK;
    char *text = NULL; // own

    OSH_TRY(osh_json_edit(cx, &text, c->text, c->n_text,
                          (osh_json_member){"quantization_config",
                                            *quantization_json ? quantization_json : NULL},
                          c->path));
    OSH_TRY(edit_again(cx, &text, (osh_json_member){"compression_config", NULL, NULL}, c->path));
    OSH_TRY(edit_text_config(cx, &text, c, untie));
    OSH_TRY(edit_experts(cx, &text, c));
    OSH_TRY(edit_sizes(cx, &text, c));
    if (untie)
        OSH_TRY(edit_again(cx, &text, (osh_json_member){"tie_word_embeddings", "false", NULL},
                           c->path));
    *out = text, text = NULL; // give
done:
    osh_free(cx, text);
    return rc;
}
