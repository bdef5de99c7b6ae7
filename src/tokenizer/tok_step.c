/* tok_step.c - loads lists of normalizers and pre-tokenizers by type, flattens sequences, and runs
 * the steps. */
#include "tokenizer/tok_charsmap.h"
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
        return osh_fail(cx, OSH_E_FORMAT, "%s: a string \"%s\" is wanted", what, key);
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

osh_status osh_tok_steps_run(osh_ctx *cx, const osh_tok_steps *steps, osh_tok_work *w)
{
    osh_status rc = OSH_OK;

    for (size_t i = 0; i < steps->n; i++) OSH_TRY(steps->items[i].run(cx, &steps->items[i], w));
done:
    return rc;
}

osh_status osh_tok_map_pieces(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w,
                              osh_tok_map_fn fn)
{
    osh_status rc = OSH_OK;
    osh_tok_text *in = w->cur, *out = w->next;

    out->n = out->n_pieces = 0;
    for (size_t i = 0; i < in->n_pieces; i++) {
        osh_tok_piece p = in->pieces[i];
        size_t at = out->n;
        const char *s = in->s + p.at;
        if (p.id < 0) OSH_TRY(fn(cx, st, out, s, p.len, &p));
        p.at = (uint32_t)at, p.len = (uint32_t)(out->n - at);
        if (p.id >= 0 || p.len) // empty pieces are dropped, as in PreTokenizedString::split
            OSH_TRY(osh_tok_piece_add(cx, out, p));
    }
    w->cur = out;
    w->next = in;
done:
    return rc;
}
