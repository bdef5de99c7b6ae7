/* json.c - parses JSON text to a cJSON tree. It first checks the syntax, the nesting, NUL bytes and
 * duplicate keys.
 *
 * cJSON keeps numbers as doubles, so integers are exact up to 2^53; the integer getters refuse
 * larger ones. */
#include "text/json.h"
#include "base/file.h"
#include "base/map.h"
#include "text/json_scan.h"
#include <math.h>
#include <string.h>

#define EXACT_INT 9007199254740992.0 // 2^53

enum { FEW_KEYS = 16 }; // up to this many keys, comparing all pairs is faster than hashing

static osh_status json_fail_twice(osh_ctx *cx, const char *key, const char *what)
{
    return osh_fail(cx, OSH_E_FORMAT, "%s: the key '%s' occurs twice in one object", what, key);
}

static osh_status keys_check_pairs(osh_ctx *cx, const cJSON *o, const char *what)
{
    for (const cJSON *a = o->child; a; a = a->next)
        for (const cJSON *b = a->next; b; b = b->next)
            if (!strcmp(a->string, b->string)) return json_fail_twice(cx, a->string, what);
    return OSH_OK;
}

static osh_status keys_check_hashed(osh_ctx *cx, const cJSON *o, size_t n, const char *what)
{
    osh_status rc = OSH_OK;
    osh_map *seen = NULL; // own

    OSH_TRY(osh_map_new(cx, &seen, n));
    for (const cJSON *a = o->child; a; a = a->next) {
        int64_t unused = 0;
        size_t len = strlen(a->string);
        if (osh_map_get(seen, a->string, len, &unused)) {
            rc = json_fail_twice(cx, a->string, what);
            goto done;
        }
        OSH_TRY(osh_map_put(cx, seen, a->string, len, 1));
    }
done:
    osh_map_free(cx, seen);
    return rc;
}

/* Fails if a key occurs twice in an object. The recursion is as deep as the nesting, which the scan
 * (json_scan.h) has limited. */
static osh_status json_check_keys(osh_ctx *cx, const cJSON *o, const char *what)
{
    osh_status rc = OSH_OK;
    size_t n = 0;

    for (const cJSON *c = o->child; c; c = c->next) {
        n++;
        if (c->child) OSH_TRY(json_check_keys(cx, c, what));
    }
    if (cJSON_IsObject(o) && n > 1)
        rc = n <= FEW_KEYS ? keys_check_pairs(cx, o, what) : keys_check_hashed(cx, o, n, what);
done:
    return rc;
}

/* Returns a copy of the text that cJSON can read (own). Each NUL in a string becomes C0 80, which
 * cJSON treats as two plain bytes; NaN and Infinity become 1e999. The text must have passed the
 * scan of json_scan.h. */
static char *json_encode(osh_ctx *cx, const char *text, size_t *n)
{
    size_t k = 0;
    bool in_string = false;
    char *out = osh_alloc(cx, *n * 2 + 1); // a NUL becomes two bytes, NaN (3 bytes) becomes five

    if (!out) return NULL;
    for (size_t i = 0; i < *n; i++) {
        // only strings have escapes, so a backslash is inside a string
        bool escaped = text[i] == '\\';
        if (text[i] == '"') in_string = !in_string;
        if (text[i] == 0 || (escaped && !strncmp(text + i + 1, "u0000", 5))) {
            out[k++] = (char)0xc0;
            out[k++] = (char)0x80;
            if (escaped) i += 5;
        } else if (!in_string && (text[i] == 'N' || text[i] == 'I')) {
            memcpy(out + k, "1e999", 5);
            k += 5;
            i += strlen(text[i] == 'N' ? "NaN" : "Infinity") - 1;
        } else {
            out[k++] = text[i];
            if (escaped) out[k++] = text[++i];
        }
    }
    out[k] = 0;
    *n = k;
    return out;
}

osh_status osh_json_parse(osh_ctx *cx, cJSON **out, const char *text, size_t n, const char *what,
                          int flags)
{
    osh_status rc = OSH_OK;
    osh_json_scan s = {.cx = cx, .what = what, .text = text, .n = n};
    char *copy = NULL;  // own
    cJSON *tree = NULL; // own

    s.allow_nul = (flags & OSH_JSON_NUL) != 0;
    s.allow_nan = (flags & OSH_JSON_NAN) != 0;
    OSH_TRY(osh_json_scan_begin(&s));
    OSH_TRY(osh_json_scan_value(&s));
    OSH_TRY(osh_json_scan_end(&s));
    if (s.has_nul || s.has_nan) {
        copy = json_encode(cx, text, &n);
        if (!copy) {
            rc = OSH_E_NOMEM;
            goto done;
        }
    }
    tree = cJSON_ParseWithLength(copy ? copy : text, n);
    if (!tree) OSH_FAIL(cx, OSH_E_NOMEM, "%s: cannot allocate the JSON tree", what);
    OSH_TRY(json_check_keys(cx, tree, what));
    *out = tree, tree = NULL; // give
done:
    osh_free(cx, copy);
    cJSON_Delete(tree);
    return rc;
}

osh_status osh_json_read(osh_ctx *cx, cJSON **out, const char *path, size_t max_bytes, int flags)
{
    osh_status rc = OSH_OK;
    char *text = NULL; // own
    size_t n = 0;

    OSH_TRY(osh_file_read_all(cx, &text, &n, path, max_bytes));
    OSH_TRY(osh_json_parse(cx, out, text, n, path, flags));
done:
    osh_free(cx, text);
    return rc;
}

static const char *json_kind_name(const cJSON *v)
{
    if (cJSON_IsNull(v)) return "null";
    if (cJSON_IsBool(v)) return "a boolean";
    if (cJSON_IsNumber(v)) return "a number";
    if (cJSON_IsString(v)) return "a string";
    return cJSON_IsArray(v) ? "an array" : "an object";
}

static osh_status json_fail_kind(osh_ctx *cx, const cJSON *v, const char *key, const char *wanted,
                            const char *what)
{
    return osh_fail(cx, OSH_E_FORMAT, "%s: '%s' is %s, wanted %s", what, key, json_kind_name(v),
                    wanted);
}

/* Returns the member `key` of the JSON object o, or NULL if the member is absent or null. */
static const cJSON *json_value_of(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, key) : NULL;
    return v && !cJSON_IsNull(v) ? v : NULL;
}

const cJSON *osh_json_inner(const cJSON *o, const char *name)
{
    for (const char *dot; o && (dot = strchr(name, '.')); name = dot + 1) {
        const cJSON *m = cJSON_IsObject(o) ? o->child : NULL;
        size_t n = (size_t)(dot - name);
        while (m && (strncmp(m->string, name, n) || m->string[n])) m = m->next;
        o = m;
    }
    return cJSON_GetObjectItemCaseSensitive(o, name);
}

osh_status osh_json_int_or(osh_ctx *cx, int64_t *out, const cJSON *o, const char *key, int64_t dflt,
                           const char *what)
{
    const cJSON *v = json_value_of(o, key);

    *out = dflt;
    if (!v) return OSH_OK;
    if (!cJSON_IsNumber(v)) return json_fail_kind(cx, v, key, "an integer", what);
    double d = v->valuedouble;
    if (d != floor(d) || fabs(d) > EXACT_INT)
        return osh_fail(cx, OSH_E_FORMAT, "%s: '%s' is %.17g, wanted an integer of at most 2^53",
                        what, key, d);
    *out = (int64_t)d;
    return OSH_OK;
}

osh_status osh_json_int(osh_ctx *cx, int64_t *out, const cJSON *o, const char *key,
                        const char *what)
{
    if (!cJSON_IsObject(o) || !cJSON_GetObjectItemCaseSensitive(o, key))
        return osh_fail(cx, OSH_E_FORMAT, "%s: has no '%s', wanted an integer", what, key);
    if (!json_value_of(o, key))
        return osh_fail(cx, OSH_E_FORMAT, "%s: '%s' is null, wanted an integer", what, key);
    return osh_json_int_or(cx, out, o, key, 0, what);
}

osh_status osh_json_num_or(osh_ctx *cx, double *out, const cJSON *o, const char *key, double dflt,
                           const char *what)
{
    const cJSON *v = json_value_of(o, key);

    *out = dflt;
    if (!v) return OSH_OK;
    if (!cJSON_IsNumber(v)) return json_fail_kind(cx, v, key, "a number", what);
    if (!isfinite(v->valuedouble))
        return osh_fail(cx, OSH_E_FORMAT, "%s: '%s' is not finite, or too large for a double", what,
                        key);
    *out = v->valuedouble;
    return OSH_OK;
}

osh_status osh_json_bool_or(osh_ctx *cx, bool *out, const cJSON *o, const char *key, bool dflt,
                            const char *what)
{
    const cJSON *v = json_value_of(o, key);

    *out = dflt;
    if (!v) return OSH_OK;
    if (!cJSON_IsBool(v)) return json_fail_kind(cx, v, key, "a boolean", what);
    *out = cJSON_IsTrue(v);
    return OSH_OK;
}

osh_status osh_json_str_or(osh_ctx *cx, const char **out, const cJSON *o, const char *key,
                           const char *dflt, const char *what)
{
    const cJSON *v = json_value_of(o, key);

    *out = dflt;
    if (!v) return OSH_OK;
    if (!cJSON_IsString(v)) return json_fail_kind(cx, v, key, "a string", what);
    *out = v->valuestring;
    return OSH_OK;
}
