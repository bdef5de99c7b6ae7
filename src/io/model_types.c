/* model_types.c - finds the record of a model_type among those that the build embeds, and in the
 * files of a directory. */
#include "io/model_types.h"

#include <string.h>

#include "base/file.h"
#include "base/name.h"

enum { MAX_MODEL_BYTES = 1 << 20 };
#define MAX_NUMBER 1e15 // largest number in a record; an int64_t can hold it

static osh_status type_find_embedded(osh_ctx *cx, cJSON **out, const char *type,
                                     const char *architecture)
{
    for (size_t i = 0; i < osh_n_embedded_types; i++) {
        const osh_embedded_type *t = &osh_embedded_types[i];
        if (type ? !strcmp(t->name, type) : architecture && !strcmp(t->architecture, architecture))
            return osh_json_parse(cx, out, t->text, t->n, t->name, 0);
    }
    return OSH_OK;
}

static const cJSON *type_member(const cJSON *o, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(o, key);
}

static bool record_is_flag(const char *key)
{
    static const char *const keys[] = {"tied", "longrope", "rope_required", "rope_alpha",
                                       "partial_without_rope", "conv1d", "split_experts",
                                       "split_for_vllm", "joint_experts", "experts_for_vllm",
                                       "expert_modules", "experts_without_input_scales"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i])) return true;
    return false;
}

static bool record_is_number(const char *key)
{
    static const char *const keys[] = {"max_position_embeddings",
                                       "original_max_position_embeddings", "rope_theta",
                                       "partial_rotary_factor", "sliding_rope_theta",
                                       "proportional_rope", "attention_factor"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i])) return true;
    return false;
}

static bool is_list_of_texts(const cJSON *list)
{
    const cJSON *v;
    if (!cJSON_IsArray(list)) return false;
    cJSON_ArrayForEach(v, list)
        if (!cJSON_IsString(v)) return false;
    return true;
}

/* Returns NULL if `list` is an allowed value of the key "fusions". Otherwise, returns a description
 * of the allowed values. */
static const char *fusions_fault(const cJSON *list)
{
    static const char wanted[] =
        "a list of objects with \"parts\" (1 to 6 texts), \"fused\", \"class\", \"in\" (texts) and "
        "\"enough\" (1 to the number of parts)";
    const cJSON *row, *m;
    if (!cJSON_IsArray(list)) return wanted;
    cJSON_ArrayForEach(row, list) {
        const cJSON *parts = type_member(row, "parts");
        int n = cJSON_GetArraySize(parts);
        if (!is_list_of_texts(parts) || n < 1 || n > OSH_FUSION_PARTS) return wanted;
        cJSON_ArrayForEach(m, row) {
            bool text = !strcmp(m->string, "fused") || !strcmp(m->string, "class") ||
                        !strcmp(m->string, "in");
            bool fits = !strcmp(m->string, "enough") && cJSON_IsNumber(m) && m->valueint >= 1 &&
                        m->valueint <= n;
            if (m != parts && !fits && !(text && cJSON_IsString(m))) return wanted;
        }
    }
    return NULL;
}

/* Returns NULL if `m`, a member of a record, has an allowed value. Otherwise, returns a description
 * of the allowed values. */
static const char *record_fault(const cJSON *m)
{
    const cJSON *v;
    const char *key = m->string;
    if (record_is_flag(key)) return cJSON_IsBool(m) ? NULL : "true or false";
    if (record_is_number(key))
        return cJSON_IsNumber(m) && m->valuedouble > 0 && m->valuedouble <= MAX_NUMBER
                   ? NULL
                   : "a number above 0, at most 1e15";
    if (!strcmp(key, "text") || !strcmp(key, "head") || !strcmp(key, "text_config") ||
        !strcmp(key, "doubt"))
        return cJSON_IsString(m) ? NULL : "a text";
    if (!strcmp(key, "tower_entries") || !strcmp(key, "dense_entries"))
        return is_list_of_texts(m) ? NULL : "a list of texts";
    if (!strcmp(key, "fusions")) return fusions_fault(m);
    bool keys = !strcmp(key, "keys"), towers = !strcmp(key, "towers");
    if (!keys && !towers) return "absent: no such key is known";
    if (!cJSON_IsObject(m)) return "an object";
    cJSON_ArrayForEach(v, m) {
        if (keys && !cJSON_IsString(v)) return "an object of texts";
        if (towers && !is_list_of_texts(v)) return "an object of lists of texts";
    }
    return NULL;
}

osh_status osh_model_types_check(osh_ctx *cx, const cJSON *json, const char *name)
{
    osh_status rc = OSH_OK;
    const cJSON *types = type_member(json, "model_types"), *record, *m;
    if (types && !cJSON_IsObject(types))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: \"model_types\" is not an object", name);
    cJSON_ArrayForEach(record, types) {
        if (!cJSON_IsObject(record))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: model_types.%s is not an object", name, record->string);
        cJSON_ArrayForEach(m, record) {
            const char *fault = record_fault(m);
            if (fault)
                OSH_FAIL(cx, OSH_E_FORMAT, "%s: want model_types.%s.%s to be %s", name,
                         record->string, m->string, fault);
        }
    }
done:
    return rc;
}

/* Sets *out (own) to a copy of the first record in the template `json` that fits the type or the
 * architecture. Adds the key "text" to the copy. Does not change *out if no record fits. */
static osh_status type_take(osh_ctx *cx, cJSON **out, const cJSON *json, const char *type,
                            const char *architecture, const char *path)
{
    osh_status rc = OSH_OK;
    const cJSON *types = type_member(json, "model_types"), *record, *found = NULL;
    const char *first =
        type_member(json, "wraps")
            ? NULL
            : cJSON_GetStringValue(cJSON_GetArrayItem(type_member(json, "architectures"), 0));
    cJSON *copy = NULL; // own
    if (!cJSON_IsObject(json)) goto done;
    OSH_TRY(osh_model_types_check(cx, json, path));
    cJSON_ArrayForEach(record, types) {
        const char *own = cJSON_GetStringValue(type_member(record, "text"));
        const char *served = first && own ? own : first;
        bool is = type ? !strcmp(record->string, type)
                       : architecture && served && !strcmp(served, architecture);
        if (is && !found) found = record;
    }
    if (!found) goto done;
    if (!(copy = cJSON_Duplicate(found, true))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", path);
    if (!type_member(copy, "text") && first && !cJSON_AddStringToObject(copy, "text", first))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", path);
    *out = copy, copy = NULL; // give
done:
    cJSON_Delete(copy);
    return rc;
}

static osh_status type_find_in(osh_ctx *cx, cJSON **out, const char *type, const char *architecture,
                               const char *dir)
{
    osh_status rc = OSH_OK;
    char **names = NULL, *path = NULL; // own
    cJSON *json = NULL;                // own
    size_t n = 0;
    OSH_TRY(osh_dir_list(cx, &names, &n, dir));
    for (size_t i = 0; i < n && !*out; i++) {
        if (!osh_ends_with(names[i], strlen(names[i]), ".json")) continue;
        if (!(path = osh_path_join(cx, dir, names[i]))) {
            rc = OSH_E_NOMEM;
            goto done;
        }
        OSH_TRY(osh_json_read(cx, &json, path, MAX_MODEL_BYTES, 0));
        OSH_TRY(type_take(cx, out, json, type, architecture, path));
        cJSON_Delete(json), json = NULL;
        osh_free(cx, path), path = NULL;
    }
done:
    cJSON_Delete(json);
    osh_free(cx, path);
    osh_strings_free(cx, names, n);
    return rc;
}

osh_status osh_model_type_find(osh_ctx *cx, cJSON **out, const char *type, const char *architecture,
                               const char *models_dir)
{
    osh_status rc = OSH_OK;
    *out = NULL;
    if (models_dir) OSH_TRY(type_find_in(cx, out, type, architecture, models_dir));
    if (!*out) OSH_TRY(type_find_embedded(cx, out, type, architecture));
done:
    return rc;
}
