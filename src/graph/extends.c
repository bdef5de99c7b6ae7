/* extends.c - makes a template from the template of another architecture.
 *
 *   {"architectures": ["NewForCausalLM"], "extends": "LlamaForCausalLM",
 *    "class": ["Llama", "New"],                      prefix of class names: old, new
 *    "renames": [["mlp", "feed_forward"]],           parts of names between dots: old, new
 *    "entries": {"self_attn.o_proj": {"bias": true},  members that replace those of an entry
 *                "self_attn.q_norm": null,            removes the entry
 *                "rope qr": [...]},                   entries that replace the entry
 *    "defaults": {"rms_norm_eps": 1e-5}}
 *
 * A key of "entries" is the new name of an entry (after "renames"). For an entry without a name,
 * the key is its op and its output. The members of "defaults", "nulls", "dims" and "flags" are
 * added to those of the other template. All other members of the file replace the members of the
 * other template. A null removes a member. */
#include "graph/extends.h"

#include <string.h>

static const char *const merged[] = {"defaults", "nulls", "dims", "flags", "wrapped_defaults"};
static const char *const own[] = {"extends", "class", "renames", "entries"};

static bool is_among(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

static const cJSON *member(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

/* Replaces the bytes [head, tail) of the string `item` by the text `to`. */
static osh_status text_splice(osh_ctx *cx, cJSON *item, size_t head, const char *to, size_t tail)
{
    osh_status rc = OSH_OK;
    char *text = osh_sprintf(cx, "%.*s%s%s", (int)head, item->valuestring, to,
                             item->valuestring + tail); // own
    if (!text) return OSH_E_NOMEM;
    if (!cJSON_SetValuestring(item, text))
        rc = osh_fail(cx, OSH_E_NOMEM, "no memory for a template");
    osh_free(cx, text);
    return rc;
}

/* Replaces the first occurrence of `from` in the name `item` by `to`. An occurrence must begin at a
 * dot or at the beginning of the name. It must end at a dot or at the end of the name. */
static osh_status name_replace(osh_ctx *cx, cJSON *item, const char *from, const char *to)
{
    size_t n = strlen(from);
    for (const char *at = item->valuestring; (at = strstr(at, from)); at++)
        if ((at == item->valuestring || at[-1] == '.') && (!at[n] || at[n] == '.')) {
            size_t head = (size_t)(at - item->valuestring);
            size_t tail = head + n;
            // If `to` is empty, one dot is removed, too: the dot after `from`, or else the dot
            // before it.
            if (!*to && at[n] == '.') tail++;
            else if (!*to && head) head--;
            return text_splice(cx, item, head, to, tail);
        }
    return OSH_OK;
}

/* Applies the "renames" of the template `child` to a name. */
static osh_status text_rename(osh_ctx *cx, cJSON *item, const cJSON *child)
{
    osh_status rc = OSH_OK;
    const cJSON *pair;
    cJSON_ArrayForEach(pair, member(child, "renames")) {
        const char *from = cJSON_GetStringValue(cJSON_GetArrayItem(pair, 0)),
                   *to = cJSON_GetStringValue(cJSON_GetArrayItem(pair, 1));
        if (from && *from && to) OSH_TRY(name_replace(cx, item, from, to));
    }
done:
    return rc;
}

/* Applies "renames" and "class" of the template `child` to one member of an entry. The member
 * "tensors" may be a list of names. No other member is a list that contains names. */
static osh_status member_rename(osh_ctx *cx, cJSON *m, const cJSON *child)
{
    static const char *const names[] = {"name", "of", "tied", "tensors", "head", "weight", "bias"};
    osh_status rc = OSH_OK;
    const cJSON *cls = member(child, "class");
    const char *from = cJSON_GetStringValue(cJSON_GetArrayItem(cls, 0)),
               *to = cJSON_GetStringValue(cJSON_GetArrayItem(cls, 1));
    cJSON *item;
    if (cJSON_IsArray(m) && !strcmp(m->string, "tensors")) {
        cJSON_ArrayForEach(item, m)
            if (cJSON_IsString(item)) OSH_TRY(text_rename(cx, item, child));
        goto done;
    }
    if (!cJSON_IsString(m)) goto done;
    if (!strcmp(m->string, "class") && from && to && !strncmp(m->valuestring, from, strlen(from)))
        OSH_TRY(text_splice(cx, m, 0, to, strlen(from)));
    if (is_among(m->string, names, sizeof names / sizeof *names))
        OSH_TRY(text_rename(cx, m, child));
done:
    return rc;
}

/* Applies "renames" and "class" of the template `child` to all entries in `json`, at any depth. */
static osh_status entries_rename(osh_ctx *cx, cJSON *json, const cJSON *child)
{
    osh_status rc = OSH_OK;
    cJSON *m;
    cJSON_ArrayForEach(m, json) {
        if (m->string) OSH_TRY(member_rename(cx, m, child));
        if (m->child) OSH_TRY(entries_rename(cx, m, child));
    }
done:
    return rc;
}

/* True if `key`, a key of "entries", names the entry. */
static bool entry_is(const cJSON *entry, const char *key)
{
    const char *name = cJSON_GetStringValue(member(entry, "name")),
               *op = cJSON_GetStringValue(member(entry, "op")),
               *out = cJSON_GetStringValue(member(entry, "out"));
    size_t n = op ? strlen(op) : 0;
    if (name) return !strcmp(name, key);
    return op && out && !strncmp(key, op, n) && key[n] == ' ' && !strcmp(key + n + 1, out);
}

/* Copies the member m to the object `to`, where it replaces a member with the same name. If m is
 * null, only removes the member with this name. */
static osh_status member_copy(osh_ctx *cx, cJSON *to, const cJSON *m)
{
    cJSON_DeleteItemFromObjectCaseSensitive(to, m->string);
    if (cJSON_IsNull(m)) return OSH_OK;
    cJSON *copy = cJSON_Duplicate(m, true); // own
    if (copy && cJSON_AddItemToObject(to, m->string, copy)) return OSH_OK;
    cJSON_Delete(copy);
    return osh_fail(cx, OSH_E_NOMEM, "no memory for a template");
}

static osh_status members_copy(osh_ctx *cx, cJSON *to, const cJSON *from)
{
    osh_status rc = OSH_OK;
    const cJSON *m;
    cJSON_ArrayForEach(m, from) OSH_TRY(member_copy(cx, to, m));
done:
    return rc;
}

/* Replaces item `at` of the list by copies of the entries. Sets *next to the index after the
 * copies.
 * The copies are first appended to the list. Then the items after `at` move to the end one by one.
 * (cJSON_InsertItemInArray of some releases of cJSON cannot insert in the middle of a list.) */
static osh_status entry_replace(osh_ctx *cx, cJSON *list, int at, const cJSON *entries, int *next)
{
    const cJSON *e;
    int after = cJSON_GetArraySize(list) - at - 1;
    cJSON_DeleteItemFromArray(list, at);
    cJSON_ArrayForEach(e, entries) {
        cJSON *copy = cJSON_Duplicate(e, true);
        if (!copy || !cJSON_AddItemToArray(list, copy)) {
            cJSON_Delete(copy);
            return osh_fail(cx, OSH_E_NOMEM, "no memory for a template");
        }
    }
    while (after-- > 0) cJSON_AddItemToArray(list, cJSON_DetachItemFromArray(list, at));
    *next = at + cJSON_GetArraySize(entries);
    return OSH_OK;
}

/* Applies one row of "entries" to all entries in `json`, at any depth. Adds to *found the number of
 * entries that the row names. */
static osh_status entry_edit(osh_ctx *cx, cJSON *json, const cJSON *row, int *found)
{
    osh_status rc = OSH_OK;
    for (int i = 0; i < cJSON_GetArraySize(json);) {
        cJSON *item = cJSON_GetArrayItem(json, i);
        int next = i + 1;
        if (cJSON_IsArray(json) && entry_is(item, row->string)) {
            ++*found;
            if (cJSON_IsObject(row)) OSH_TRY(members_copy(cx, item, row));
            else OSH_TRY(entry_replace(cx, json, i, row, &next));
        } else if (item->child) {
            OSH_TRY(entry_edit(cx, item, row, found));
        }
        i = next;
    }
done:
    return rc;
}

osh_status osh_template_extend(osh_ctx *cx, const cJSON *child, cJSON *base,
                               const char *name)
{
    osh_status rc = OSH_OK;
    const cJSON *m, *row, *entries = member(child, "entries");
    if (entries && !cJSON_IsObject(entries))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: \"entries\" is not an object", name);
    OSH_TRY(entries_rename(cx, base, child));
    cJSON_ArrayForEach(row, entries) {
        int found = 0;
        if (!cJSON_IsObject(row) && !cJSON_IsArray(row) && !cJSON_IsNull(row))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: entries.%s is not an object, a list or null", name,
                     row->string);
        OSH_TRY(entry_edit(cx, base, row, &found));
        if (!found)
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: the template that it extends has no entry '%s'", name,
                     row->string);
    }
    cJSON_ArrayForEach(m, child) {
        bool merge = is_among(m->string, merged, sizeof merged / sizeof *merged);
        cJSON *old = cJSON_GetObjectItemCaseSensitive(base, m->string);
        if (is_among(m->string, own, sizeof own / sizeof *own)) continue;
        if (merge && cJSON_IsObject(old) && cJSON_IsObject(m)) OSH_TRY(members_copy(cx, old, m));
        else OSH_TRY(member_copy(cx, base, m));
    }
done:
    return rc;
}
