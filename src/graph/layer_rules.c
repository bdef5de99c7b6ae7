/* layer_rules.c - evaluates the rules by which a template chooses layers. These rules are the rows
 * "flags", "window" and "sparse" of the template. */
#include "graph/template.h"

#include <math.h>
#include <string.h>


static const char *text_of(const cJSON *item)
{
    return cJSON_IsString(item) ? item->valuestring : "";
}

static bool is_word(const cJSON *is, const char *text)
{
    const cJSON *w;
    if (cJSON_IsString(is)) return !strcmp(is->valuestring, text);
    cJSON_ArrayForEach(w, is)
        if (cJSON_IsString(w) && !strcmp(w->valuestring, text)) return true;
    return false;
}

/* Sets *yes to true if the list `key` of config.json contains the number `layer`. A list that is
 * absent or null counts as empty. */
static osh_status layer_is_listed(osh_ctx *cx, bool *yes, const osh_scope *s, const char *key,
                                  double layer)
{
    const cJSON *list = osh_scope_member(s, key), *item;
    *yes = false;
    if (!list || cJSON_IsNull(list)) return OSH_OK;
    if (!cJSON_IsArray(list))
        return osh_fail(cx, OSH_E_FORMAT, "%s: %s is not a list, want a list of numbers of layers",
                        s->config->path, key);
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsNumber(item))
            return osh_fail(cx, OSH_E_FORMAT,
                            "%s: %s has an item that is not a number, want numbers of layers",
                            s->config->path, key);
        *yes |= item->valuedouble == layer;
    }
    return OSH_OK;
}

/* Evaluates a row {"count", "is", "before"} or {"find", "is", "number"} of a template. The value of
 * "count" or "find" is a key of config.json, whose value is a list of words. The value of "is" is a
 * word, or a list of words. A hit is an item of the list in config.json that equals one of these
 * words. With "count", *out is the number of hits before item `before`. With "find", *out is the
 * index of hit `number`, counted from 0. */
osh_status osh_scope_words(osh_ctx *cx, double *out, const osh_scope *s, const cJSON *row,
                           int depth)
{
    osh_status rc = OSH_OK;
    const cJSON *count = cJSON_GetObjectItemCaseSensitive(row, "count"),
                *is = cJSON_GetObjectItemCaseSensitive(row, "is"), *item;
    const char *key = text_of(count ? count : cJSON_GetObjectItemCaseSensitive(row, "find"));
    const cJSON *list = osh_scope_member(s, key);
    double limit = 0, at = 0, found = 0;
    OSH_TRY(osh_scope_num_at(
        cx, &limit, s, cJSON_GetObjectItemCaseSensitive(row, count ? "before" : "number"), depth));
    if (!cJSON_IsArray(list))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: %s is not a list, want a word for each layer",
                 s->config->path, key);
    cJSON_ArrayForEach(item, list)
    {
        bool hit = is_word(is, text_of(item));
        if (count ? at >= limit : hit && found == limit) break;
        found += hit, at++;
    }
    if (!count && !item)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s has only %g words of this kind, want more than %g",
                 s->config->path, key, found, limit);
    *out = count ? found : at;
done:
    return rc;
}

/* Evaluates `expr`, which must be a number of layers. Fails if the result is not a whole number of
 * at least 1. */
static osh_status layers_at(osh_ctx *cx, double *out, const osh_scope *s, const cJSON *expr,
                            int depth)
{
    osh_status rc = osh_scope_num_at(cx, out, s, expr, depth);
    if (!rc && !(*out >= 1 && *out <= OSH_TEMPLATE_MOST && *out == floor(*out)))
        rc = osh_fail(cx, OSH_E_FORMAT, "%s: a flag of every %g layers, want a whole number from 1",
                      s->config->path, *out);
    return rc;
}

/* Evaluates a row of "flags" for the layer with number `layer`, counted from 0. The row is one of
 *   {"from"}                the flag is true if layer >= from
 *   {"in", "first"}         true if the list `in` of config.json contains layer + first; without
 *                           "first", true if it contains layer
 *   {"period", "offset"}    true if layer - offset is a multiple of period
 *   {"list", "is", ...}     true if the layer's item in the list of config.json is the word `is` or
 *                           in the list `is`; without "is", true if the item is not 0. If
 *                           config.json has a word instead of the list, the word is the item of
 *                           every layer
 * If config.json does not have the list that "list" names, other keys of the row decide:
 *   "else"                  value of the flag
 *   "every"                 true if layer + 1 is not a multiple of `every`
 *   "pattern", "letter"     `pattern` is a key of config.json whose word has one letter for each
 *                           layer; true if the letter of the layer is `letter` */
osh_status osh_scope_flag(osh_ctx *cx, double *out, const osh_scope *s, const cJSON *row,
                          int depth)
{
    osh_status rc = OSH_OK;
    const cJSON *key = cJSON_GetObjectItemCaseSensitive(row, "list"), *list, *item;
    const cJSON *is = cJSON_GetObjectItemCaseSensitive(row, "is"),
                *other = cJSON_GetObjectItemCaseSensitive(row, "else"),
                *from = cJSON_GetObjectItemCaseSensitive(row, "from"),
                *period = cJSON_GetObjectItemCaseSensitive(row, "period"),
                *numbered = cJSON_GetObjectItemCaseSensitive(row, "first");
    const cJSON *pattern = osh_scope_member(
        s, text_of(cJSON_GetObjectItemCaseSensitive(row, "pattern")));
    double every = 0;
    const cJSON *in = cJSON_GetObjectItemCaseSensitive(row, "in");
    if (cJSON_IsString(in)) {
        bool yes = false;
        double first = 0;
        if (numbered) OSH_TRY(osh_scope_num_at(cx, &first, s, numbered, depth));
        OSH_TRY(layer_is_listed(cx, &yes, s, in->valuestring, (double)s->layer + first));
        *out = yes;
        goto done;
    }
    if (from) {
        OSH_TRY(osh_scope_num_at(cx, &every, s, from, depth));
        *out = (double)s->layer >= every;
        goto done;
    }
    if (period) {
        double offset = 0;
        OSH_TRY(layers_at(cx, &every, s, period, depth));
        OSH_TRY(osh_scope_num_at(cx, &offset, s, cJSON_GetObjectItemCaseSensitive(row, "offset"),
                                 depth));
        *out = fmod((double)s->layer - offset, every) == 0;
        goto done;
    }
    if (!cJSON_IsString(key))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: a flag without \"list\"", s->tpl->name);
    list = osh_scope_member(s, key->valuestring);
    if (is && cJSON_IsBool(list)) { // a bool is never equal to a word
        *out = 0;
        goto done;
    }
    /* an empty list counts as an absent list */
    if (list && !cJSON_IsNull(list) && !(cJSON_IsArray(list) && !list->child)) {
        item = cJSON_IsArray(list) ? cJSON_GetArrayItem(list, (int)s->layer)
                                   : cJSON_IsString(list) ? list : NULL;
        if (is && !cJSON_IsString(item))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s[%lld] is not a word", s->config->path,
                     key->valuestring, (long long)s->layer);
        *out = is && is_word(is, item->valuestring);
        if (is) goto done;
        if (!cJSON_IsNumber(item) && !cJSON_IsBool(item))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s[%lld] is not a number", s->config->path,
                     key->valuestring, (long long)s->layer);
        *out = cJSON_IsNumber(item) ? item->valuedouble != 0 : cJSON_IsTrue(item);
        goto done;
    }
    if (cJSON_IsString(pattern)) {
        const char *letter = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "letter"));
        if (!letter || (size_t)s->layer >= strlen(pattern->valuestring))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s has no letter for layer %lld", s->config->path,
                     pattern->string, (long long)s->layer);
        *out = pattern->valuestring[s->layer] == *letter;
        goto done;
    }
    if (other) {
        OSH_TRY(osh_scope_num_at(cx, out, s, other, depth));
        goto done;
    }
    OSH_TRY(layers_at(cx, &every, s, cJSON_GetObjectItemCaseSensitive(row, "every"), depth));
    *out = (s->layer + 1) % (int64_t)every != 0;
done:
    return rc;
}

/* Sets *yes to true if the layer has sliding attention. Its item in the list layer_types of
 * config.json decides. If config.json has no layer_types, the keys of `row` decide. With the key
 * "from" (max_window_layers), layer `from` and all later layers have sliding attention. With the
 * key "every", a layer has sliding attention if layer + 1 is not a multiple of `every`. */
static osh_status layer_slides(osh_ctx *cx, bool *yes, const osh_scope *s, const cJSON *row,
                               int64_t layer)
{
    osh_status rc = OSH_OK;
    const cJSON *key = cJSON_GetObjectItemCaseSensitive(row, "layers"),
                *from = cJSON_GetObjectItemCaseSensitive(row, "from"),
                *every = cJSON_GetObjectItemCaseSensitive(row, "every");
    const cJSON *types = cJSON_IsString(key)
                             ? osh_scope_member(s, key->valuestring)
                             : NULL;
    *yes = true;
    if (types && !cJSON_IsNull(types)) {
        const cJSON *type = cJSON_IsArray(types) ? cJSON_GetArrayItem(types, (int)layer) : NULL;
        const char *text = cJSON_IsString(type) ? type->valuestring : "";
        *yes = strcmp(text, "sliding_attention") == 0;
        if (!*yes && strcmp(text, "full_attention") != 0)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: %s[%lld] is '%s', want full_attention or sliding_attention",
                     s->config->path, key->valuestring, (long long)layer, text);
    } else if (from) {
        int64_t first = 0;
        OSH_TRY(osh_scope_int(cx, &first, s, from, 0));
        *yes = layer >= first;
    } else if (every) {
        int64_t step = 1;
        OSH_TRY(osh_scope_int(cx, &step, s, every, 1));
        *yes = (layer + 1) % step != 0;
    }
done:
    return rc;
}

osh_status osh_scope_window(osh_ctx *cx, int64_t *out, bool *sliding, const osh_scope *s,
                            int64_t layer)
{
    osh_status rc = OSH_OK;
    const cJSON *row = cJSON_GetObjectItemCaseSensitive(s->tpl->json, "window");
    const cJSON *when = cJSON_GetObjectItemCaseSensitive(row, "when");
    double on = 1;
    int64_t size = 0;
    bool slides = false;
    *out = 0, *sliding = false;
    if (!row) return OSH_OK;
    if (when) OSH_TRY(osh_scope_num(cx, &on, s, when));
    OSH_TRY(layer_slides(cx, &slides, s, row, layer));
    if (slides && on != 0)
        OSH_TRY(osh_scope_int(cx, &size, s, cJSON_GetObjectItemCaseSensitive(row, "size"), 0));
    *out = size, *sliding = slides && on != 0;
done:
    return rc;
}

osh_status osh_scope_sparse(osh_ctx *cx, bool *out, const osh_scope *s, int64_t layer)
{
    osh_status rc = OSH_OK;
    const cJSON *row = cJSON_GetObjectItemCaseSensitive(s->tpl->json, "sparse");
    const cJSON *when = cJSON_GetObjectItemCaseSensitive(row, "when"),
                *every = cJSON_GetObjectItemCaseSensitive(row, "every"),
                *from = cJSON_GetObjectItemCaseSensitive(row, "from"),
                *to = cJSON_GetObjectItemCaseSensitive(row, "to"),
                *except = cJSON_GetObjectItemCaseSensitive(row, "except"),
                *only = cJSON_GetObjectItemCaseSensitive(row, "only");
    double on = 1, last = -1;
    int64_t step = 1, first = 0;
    bool dense = false;
    *out = false;
    if (!row) return OSH_OK;
    if (when) OSH_TRY(osh_scope_num(cx, &on, s, when));
    if (every) OSH_TRY(osh_scope_int(cx, &step, s, every, 1));
    if (from) OSH_TRY(osh_scope_int(cx, &first, s, from, 0));
    if (to) OSH_TRY(osh_scope_num(cx, &last, s, to));
    if (cJSON_IsString(except))
        OSH_TRY(layer_is_listed(cx, &dense, s, except->valuestring, (double)layer));
    if (cJSON_IsString(only) &&
        cJSON_IsArray(osh_scope_member(s, only->valuestring))) {
        OSH_TRY(layer_is_listed(cx, out, s, only->valuestring, (double)layer));
        goto done;
    }
    *out = on > 0 && !dense && layer >= first && (last < 0 || (double)layer <= last) &&
           (layer + 1) % step == 0;
done:
    return rc;
}
