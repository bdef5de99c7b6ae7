/* transform.c - reads and writes transform_config with the keys of compressed_tensors/transform
 * 0.19.0. */
#include "quant/transform.h"

#include <string.h>

#include "quant/scheme.h"
#include "text/json.h"

static const char *const places[] = {"input",         "output", "weight_input",
                                     "weight_output", "q_attn", "k_cache"};

const char *osh_q_place_name(osh_q_place at) { return places[at]; }

bool osh_q_transforms_act(const osh_q_transforms *t)
{
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < t->of[i].n; k++)
            if (osh_q_place_acts(t->of[i].apply[k].at)) return true;
    return false;
}

bool osh_q_is_matrix(const osh_q_transforms *t, const char *tensor)
{
    static const char tail[] = ".weight";
    const char *dot = strrchr(tensor, '.');
    if (!dot || strcmp(dot, tail)) return false;
    size_t n = (size_t)(dot - tensor);
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < t->of[i].n; k++) {
            const char *place = places[t->of[i].apply[k].at], *group = t->of[i].name;
            // length of the text ".group_place"
            size_t p = strlen(place), g = strlen(group), all = g + p + 2;
            const char *at = tensor + n - all;
            if (osh_q_place_acts(t->of[i].apply[k].at) && n > all && *at == '.' &&
                !memcmp(at + 1, group, g) && at[g + 1] == '_' && !memcmp(at + g + 2, place, p))
                return true;
        }
    return false;
}

static osh_status strs_dup(osh_ctx *cx, osh_strs *to, const osh_strs *from)
{
    osh_status rc = OSH_OK;
    OSH_NEW(cx, to->items, from->n);
    for (size_t i = 0; i < from->n; i++, to->n++)
        if (!(to->items[i] = osh_strdup(cx, from->items[i])))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a target");
done:
    return rc;
}

osh_status osh_q_transforms_add(osh_ctx *cx, osh_q_transforms *t, const char *name,
                                const char *type, int64_t block, bool f32)
{
    osh_status rc = OSH_OK;
    osh_q_transform *grown = osh_realloc(cx, t->of, (t->n + 1) * sizeof *grown);
    if (!grown) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", name);
    t->of = grown;
    grown[t->n] = (osh_q_transform){.block = block, .f32 = f32};
    osh_q_transform *one = &grown[t->n++];
    if (!(one->name = osh_strdup(cx, name)) || !(one->type = osh_strdup(cx, type)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", name);
done:
    return rc;
}

osh_status osh_q_apply_add(osh_ctx *cx, osh_q_transform *t, osh_q_place at, bool inverse,
                           const osh_strs *targets, const osh_strs *ignore)
{
    osh_status rc = OSH_OK;
    osh_q_apply *grown = osh_realloc(cx, t->apply, (t->n + 1) * sizeof *grown);
    if (!grown) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for %s", t->name);
    t->apply = grown;
    grown[t->n] = (osh_q_apply){.at = at, .inverse = inverse};
    osh_q_apply *one = &grown[t->n++];
    OSH_TRY(strs_dup(cx, &one->targets, targets));
    OSH_TRY(strs_dup(cx, &one->ignore, ignore));
done:
    return rc;
}

void osh_q_transforms_deinit(osh_ctx *cx, osh_q_transforms *t)
{
    for (size_t i = 0; i < t->n; i++) {
        osh_q_transform *one = &t->of[i];
        for (size_t k = 0; k < one->n; k++)
            osh_strs_deinit(cx, &one->apply[k].targets), osh_strs_deinit(cx, &one->apply[k].ignore);
        osh_free(cx, one->apply);
        osh_free(cx, one->name);
        osh_free(cx, one->type);
    }
    osh_free(cx, t->of);
    *t = (osh_q_transforms){0};
}

/* ---- reading ---- */

static osh_status read_names(osh_ctx *cx, osh_strs *out, const cJSON *list, const char *what,
                             const char *group)
{
    osh_status rc = OSH_OK;
    // a string is treated as a list of one name
    const cJSON *one = cJSON_IsArray(list) ? list->child : list;
    if (!list || cJSON_IsNull(list)) goto done;
    OSH_NEW(cx, out->items, cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 1);
    for (; one; one = cJSON_IsArray(list) ? one->next : NULL) {
        if (!cJSON_IsString(one))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: transform_config: a target of %s is not a string", what,
                     group);
        if (!(out->items[out->n] = osh_strdup(cx, one->valuestring)))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a target");
        out->n++;
    }
done:
    return rc;
}

static osh_status read_apply(osh_ctx *cx, osh_q_transform *t, const cJSON *o, const char *what)
{
    osh_status rc = OSH_OK;
    osh_strs targets = {0}, ignore = {0}; // own
    const char *at = NULL;
    bool inverse = false;
    int place = 0;
    OSH_TRY(osh_json_str_or(cx, &at, o, "location", "", what));
    while (place < OSH_N_PLACES && strcmp(at, places[place])) place++;
    if (place == OSH_N_PLACES)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: transform_config: %s has location '%s': want input, output, weight_input, "
                 "weight_output, q_attn or k_cache",
                 what, t->name, at);
    OSH_TRY(osh_json_bool_or(cx, &inverse, o, "inverse", false, what));
    OSH_TRY(
        read_names(cx, &targets, cJSON_GetObjectItemCaseSensitive(o, "targets"), what, t->name));
    OSH_TRY(read_names(cx, &ignore, cJSON_GetObjectItemCaseSensitive(o, "ignore"), what, t->name));
    OSH_TRY(osh_q_apply_add(cx, t, (osh_q_place)place, inverse, &targets, &ignore));
done:
    osh_strs_deinit(cx, &targets);
    osh_strs_deinit(cx, &ignore);
    return rc;
}

static osh_status check_group(osh_ctx *cx, const osh_q_transform *t, const cJSON *group,
                              const char *what)
{
    osh_status rc = OSH_OK;
    bool randomize = false;
    OSH_TRY(osh_json_bool_or(cx, &randomize, group, "randomize", false, what));
    if (randomize || (strcmp(t->type, "hadamard") && strcmp(t->type, "random-hadamard")))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: transform_config: %s acts while the model runs with a matrix of type '%s'%s: "
                 "want hadamard or random-hadamard, randomize false",
                 what, t->name, t->type, randomize ? " that is randomized" : "");
    for (size_t k = 0; k < t->n; k++)
        if (osh_q_place_attends(t->apply[k].at) && !t->block)
            OSH_FAIL(cx, OSH_E_FORMAT,
                     "%s: transform_config: %s has no head_dim: rotations of attention want one",
                     what, t->name);
    if (t->block < 0)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: transform_config: head_dim %lld", what,
                 (long long)t->block);
done:
    return rc;
}

static void drop_last(osh_ctx *cx, osh_q_transforms *t)
{
    osh_q_transforms last = {.of = osh_calloc(cx, 1, sizeof *last.of), .n = 1};
    if (!last.of) return; // memory is exhausted; the group remains in t, but it has no effect
    last.of[0] = t->of[--t->n];
    osh_q_transforms_deinit(cx, &last);
}

osh_status osh_q_transforms_parse(osh_ctx *cx, osh_q_transforms *t, const cJSON *transform_config,
                                  const char *what)
{
    osh_status rc = OSH_OK;
    const cJSON *group, *o;
    cJSON_ArrayForEach(group, cJSON_GetObjectItemCaseSensitive(transform_config, "config_groups")) {
        const char *type = NULL, *precision = NULL;
        int64_t block = 0;
        OSH_TRY(osh_json_str_or(cx, &type, group, "type", "", what));
        OSH_TRY(osh_json_str_or(cx, &precision, group, "precision", "", what));
        OSH_TRY(osh_json_int_or(cx, &block, group, "head_dim", 0, what));
        OSH_TRY(osh_q_transforms_add(cx, t, group->string, type, block,
                                     !strcmp(precision, "torch.float32")));
        osh_q_transform *one = &t->of[t->n - 1];
        bool acts = false;
        cJSON_ArrayForEach(o, cJSON_GetObjectItemCaseSensitive(group, "apply"))
            OSH_TRY(read_apply(cx, one, o, what));
        for (size_t k = 0; k < one->n; k++) acts |= osh_q_place_acts(one->apply[k].at);
        if (acts) OSH_TRY(check_group(cx, one, group, what));
        else drop_last(cx, t);
    }
done:
    return rc;
}

/* ---- writing ---- */

static bool transform_put(cJSON *to, const char *key, cJSON *item)
{
    if (item && cJSON_AddItemToObject(to, key, item)) return true;
    cJSON_Delete(item);
    return false;
}

static cJSON *target_list(const osh_strs *s)
{
    return s->n ? cJSON_CreateStringArray((const char *const *)s->items, (int)s->n)
                : cJSON_CreateArray();
}

static bool put_apply(cJSON *list, const osh_q_apply *a)
{
    cJSON *o = cJSON_CreateObject();
    if (!o || !cJSON_AddItemToArray(list, o)) {
        cJSON_Delete(o);
        return false;
    }
    return transform_put(o, "ignore", target_list(&a->ignore)) &&
           transform_put(o, "inverse", cJSON_CreateBool(a->inverse)) &&
           transform_put(o, "location", cJSON_CreateString(places[a->at])) &&
           transform_put(o, "targets", target_list(&a->targets));
}

static bool transform_put_group(cJSON *groups, const osh_q_transform *t)
{
    cJSON *o = cJSON_AddObjectToObject(groups, t->name),
          *list = o ? cJSON_AddArrayToObject(o, "apply") : NULL;
    bool ok = list != NULL;
    for (size_t k = 0; ok && k < t->n; k++) ok = put_apply(list, &t->apply[k]);
    return ok &&
           transform_put(o, "head_dim",
                         t->block ? cJSON_CreateNumber((double)t->block) : cJSON_CreateNull()) &&
           transform_put(o, "precision",
                         cJSON_CreateString(t->f32 ? "torch.float32" : "torch.float64")) &&
           transform_put(o, "randomize", cJSON_CreateFalse()) &&
           transform_put(o, "requires_grad", cJSON_CreateFalse()) &&
           transform_put(o, "type", cJSON_CreateString(t->type));
}

cJSON *osh_q_transforms_object(const osh_q_transforms *t)
{
    cJSON *o = cJSON_CreateObject(), *groups = NULL;
    bool ok = o && (!t->n || (groups = cJSON_AddObjectToObject(o, "config_groups")));
    for (size_t i = 0; ok && i < t->n; i++) ok = transform_put_group(groups, &t->of[i]);
    if (ok) return o;
    cJSON_Delete(o);
    return NULL;
}

osh_status osh_q_transforms_print(osh_ctx *cx, char **out, const osh_q_transforms *t)
{
    osh_status rc = OSH_OK;
    cJSON *root = cJSON_CreateObject(); // own
    if (!root || !transform_put(root, "quant_method", cJSON_CreateString("compressed-tensors")) ||
        !transform_put(root, "sparsity_config", cJSON_CreateObject()) ||
        !transform_put(root, "transform_config", osh_q_transforms_object(t)) ||
        !transform_put(root, "version", cJSON_CreateString(OSH_Q_VERSION)))
        OSH_FAIL(cx, OSH_E_NOMEM, "cannot build quantization_config");
    OSH_TRY(osh_json_print(cx, out, root, 2));
done:
    cJSON_Delete(root);
    return rc;
}
