/* tok_step.c - loads lists of normalizers and pre-tokenizers by type, flattens sequences, and loads
 * the patterns of the steps: literal strings and regexes. */
#include "tokenizer/tok_charsmap.h"
#include "tokenizer/tok_pattern.h"
#include <string.h>

osh_status osh_tok_string(osh_ctx *cx, char **out, size_t *n, const char *s)
{
    osh_status rc = OSH_OK;
    size_t len = strlen(s), k = 0, step = 0;
    uint32_t cp = 0;
    char *p = osh_alloc(cx, len + 1); // own

    if (!p) return OSH_E_NOMEM;
    for (size_t i = 0; i < len; i += step) {
        bool nul = (unsigned char)s[i] == 0xC0 && (unsigned char)s[i + 1] == 0x80;
        step = nul ? 2 : osh_utf8_decode(s + i, len - i, &cp);
        if (!step) OSH_FAIL(cx, OSH_E_FORMAT, "'%.80s' of a tokenizer.json is not UTF-8", s);
        memcpy(p + k, nul ? "" : s + i, nul ? 1 : step);
        k += nul ? 1 : step;
    }
    p[k] = 0;
    *out = p, p = NULL; // give
    *n = k;
done:
    osh_free(cx, p);
    return rc;
}

osh_status osh_tok_member(osh_ctx *cx, char **out, size_t *n, const cJSON *o, const char *key,
                          const char *what)
{
    const cJSON *s = cJSON_GetObjectItemCaseSensitive(o, key);

    if (!cJSON_IsString(s))
        return osh_fail(cx, OSH_E_FORMAT, "%s: \"%s\" is missing or not a string", what, key);
    return osh_tok_string(cx, out, n, s->valuestring);
}

osh_status osh_tok_type(osh_ctx *cx, const char **type, const cJSON *o, const char *role,
                        const char *what)
{
    const cJSON *t = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, "type") : NULL;

    if (!cJSON_IsString(t))
        return osh_fail(cx, OSH_E_FORMAT, "%s: a %s without a \"type\"", what, role);
    *type = t->valuestring;
    return OSH_OK;
}

bool osh_tok_is_one_atom(const char *s)
{
    uint32_t cp;

    if (*s == '\\') {
        if (!s[1] || !strchr("sdnrt", s[1])) return false;
        s += 2;
    } else if (*s == '[') {
        size_t n = strcspn(s + 1, "[]\\&") + 1;
        if (s[n] != ']' || n == 1 || (n == 2 && s[1] == '^')) return false;
        s += n + 1;
    } else {
        size_t n = *s && !strchr("^$.|?*+(){}", *s) ? osh_utf8_decode(s, strlen(s), &cp) : 0;
        if (!n) return false;
        s += n;
    }
    if (*s == '+') return !s[1];
    if (*s != '{') return !*s;
    if (s[1] < '1' || s[1] > '3') return false;
    s += 2;
    s += *s == ',';
    s += strspn(s, "0123456789");
    return s[0] == '}' && !s[1];
}

osh_status osh_tok_pattern_load(osh_ctx *cx, osh_tok_pattern *p, const cJSON *o, const char *what)
{
    const cJSON *re = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, "Regex") : NULL;
    const cJSON *lit = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, "String") : NULL;

    if (cJSON_IsString(re)) return osh_tok_pattern_regex(cx, p, re->valuestring, what);
    if (!cJSON_IsString(lit) || !*lit->valuestring)
        return osh_fail(cx, OSH_E_FORMAT,
                        "%s: a pattern has the wrong kind, want a \"Regex\" or a non-empty "
                        "\"String\"",
                        what);
    p->local = true;
    return osh_tok_string(cx, &p->literal, &p->n_literal, lit->valuestring);
}

void osh_tok_pattern_deinit(osh_ctx *cx, osh_tok_pattern *p)
{
    osh_regex_free(cx, p->re);
    osh_free(cx, p->literal);
    memset(p, 0, sizeof *p);
}

static void step_deinit(osh_ctx *cx, osh_tok_step *st)
{
    osh_tok_pattern_deinit(cx, &st->pattern);
    osh_free(cx, st->content);
    osh_tok_charsmap_free(cx, st->charsmap);
}

void osh_tok_steps_deinit(osh_ctx *cx, osh_tok_steps *steps)
{
    for (size_t i = 0; i < steps->n; i++) step_deinit(cx, &steps->items[i]);
    osh_free(cx, steps->items);
    memset(steps, 0, sizeof *steps);
}

static osh_status steps_load_one(osh_ctx *cx, osh_tok_steps *steps, const cJSON *o,
                                 const char *type, const osh_tok_role *role, const char *what)
{
    const osh_tok_component *row = role->table;

    while (row->type && strcmp(row->type, type)) row++;
    if (!row->type)
        return osh_fail(cx, OSH_E_UNSUPPORTED, "%s: %s \"%s\" is not supported", what, role->name,
                        type);
    if (steps->n == steps->cap) {
        size_t cap = steps->cap * 2 + 4;
        osh_tok_step *p = osh_realloc(cx, steps->items, cap * sizeof *p);
        if (!p) return OSH_E_NOMEM;
        steps->items = p;
        steps->cap = cap;
    }
    osh_tok_step *st = &steps->items[steps->n++];
    *st = (osh_tok_step){.run = row->run, .index = steps->n - 1, .cuts = row->cuts};
    osh_status rc = row->load ? row->load(cx, st, o, what) : OSH_OK;
    if (rc) osh_note(cx, "loading %s \"%s\"", role->name, type);
    return rc;
}

static osh_status steps_load_nested(osh_ctx *cx, osh_tok_steps *steps, const cJSON *o,
                                    const osh_tok_role *role, const char *what, int depth)
{
    osh_status rc = OSH_OK;
    const char *type = NULL;

    OSH_TRY(osh_tok_type(cx, &type, o, role->name, what));
    if (strcmp(type, "Sequence")) {
        OSH_TRY(steps_load_one(cx, steps, o, type, role, what));
        goto done;
    }
    if (depth > 8) OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s sequences nest too deeply", what, role->name);
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, role->list_key), *item = NULL;
    if (!cJSON_IsArray(list))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: a %s Sequence without a list \"%s\"", what, role->name,
                 role->list_key);
    cJSON_ArrayForEach(item, list)
        OSH_TRY(steps_load_nested(cx, steps, item, role, what, depth + 1));
done:
    return rc;
}

osh_status osh_tok_steps_load(osh_ctx *cx, osh_tok_steps *steps, const cJSON *o,
                              const osh_tok_role *role, const char *what)
{
    if (!o || cJSON_IsNull(o)) return OSH_OK;
    return steps_load_nested(cx, steps, o, role, what, 0);
}
