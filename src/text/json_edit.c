/* json_edit.c - sets, adds or removes one member in the text of a JSON object. All other
 * bytes are copied unchanged.
 *
 *   { "a": 1, "b": [2], "c": 3 }
 *     |    ^^      a member is the bytes from its key's quote to the end of its value
 *     +-- a new member gets the white space between '{' and the first key as indentation */
#include "base/buf.h"
#include "text/json.h"
#include "text/json_scan.h"
#include <string.h>

typedef struct member {
    /* Offsets of the key's first quote, the value's first byte, and the end of the value. */
    size_t key, value, end;
} member;

typedef struct layout {
    size_t open, close; // offsets of the object's braces in the text
    member first, last; // first.key is 0 if the object has no members
    member found;       // member with the wanted key; found.key is 0 if there is no such member
    size_t before;      // end of the member before `found`; 0: `found` is the first
    const char *text;   // view [n]
    size_t n;
} layout;

/* Sets *same to true if the key in the text, with its escapes decoded, equals `key`. */
static osh_status key_is(osh_json_scan *s, bool *same, size_t start, size_t end, const char *key)
{
    cJSON *v = cJSON_ParseWithLength(s->text + start, end - start); // own

    if (!v) return osh_fail(s->cx, OSH_E_NOMEM, "%s: cannot allocate a key", s->what);
    *same = !strcmp(v->valuestring, key);
    cJSON_Delete(v);
    return OSH_OK;
}

static osh_status layout_read_member(osh_json_scan *s, layout *l, const char *key)
{
    osh_status rc = OSH_OK;
    bool same = false;
    member m = {.key = s->at};

    OSH_TRY(osh_json_scan_string(s));
    OSH_TRY(key_is(s, &same, m.key, s->at, key));
    osh_json_scan_space(s);
    s->at++; // skips the ':', which the scan of the whole text has checked
    osh_json_scan_space(s);
    m.value = s->at;
    OSH_TRY(osh_json_scan_value(s));
    m.end = s->at;
    if (same) {
        if (l->found.key)
            OSH_FAIL(s->cx, OSH_E_FORMAT, "%s: the key '%s' occurs twice", s->what, key);
        l->found = m;
        l->before = l->last.end;
    }
    if (!l->first.key) l->first = m;
    l->last = m;
done:
    return rc;
}

static osh_status layout_read(osh_ctx *cx, layout *l, const char *text, size_t n, const char *key,
                              const char *what)
{
    osh_status rc = OSH_OK;
    osh_json_scan s = {.cx = cx, .what = what, .text = text, .n = n, .allow_nan = true};

    OSH_TRY(osh_json_scan_begin(&s));
    osh_json_scan_space(&s);
    l->open = s.at;
    if (s.at == n || text[s.at] != '{')
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: holds no JSON object", what);
    OSH_TRY(osh_json_scan_value(&s));
    l->close = s.at - 1;
    OSH_TRY(osh_json_scan_end(&s));
    // each round reads one member: s.at is after '{' or after a ','
    for (s.at = l->open + 1;; s.at++) {
        osh_json_scan_space(&s);
        if (s.at == l->close) break;
        OSH_TRY(layout_read_member(&s, l, key));
        osh_json_scan_space(&s);
        if (s.at == l->close) break;
    }
done:
    return rc;
}

static osh_status member_put_key(osh_ctx *cx, osh_buf *b, const char *key)
{
    osh_status rc = OSH_OK;
    char *quoted = NULL;                        // own
    cJSON *k = cJSON_CreateStringReference(key); // own

    if (!k) OSH_FAIL(cx, OSH_E_NOMEM, "cannot allocate a key");
    OSH_TRY(osh_json_print(cx, &quoted, k, 1));
    OSH_TRY(osh_buf_append(cx, b, quoted, strlen(quoted)));
    OSH_TRY(osh_buf_append(cx, b, ": ", 2));
done:
    osh_free(cx, quoted);
    cJSON_Delete(k);
    return rc;
}

/* Adds a member after the last member, indented like the first. In an object without members, the
 * new member gets a line of its own. */
static osh_status member_add(osh_ctx *cx, osh_buf *b, const layout *l, const char *key,
                             const char *value)
{
    osh_status rc = OSH_OK;
    bool empty = !l->first.key;
    size_t at = empty ? l->open + 1 : l->last.end;
    size_t rest = empty ? l->close : l->last.end;

    OSH_TRY(osh_buf_append(cx, b, l->text, at));
    if (empty) {
        OSH_TRY(osh_buf_append(cx, b, "\n  ", 3));
    } else {
        size_t space = l->first.key - l->open - 1;
        OSH_TRY(osh_buf_append(cx, b, ",", 1));
        OSH_TRY(osh_buf_append(cx, b, l->text + l->open + 1, space));
        if (!space) OSH_TRY(osh_buf_append(cx, b, " ", 1));
    }
    OSH_TRY(member_put_key(cx, b, key));
    OSH_TRY(osh_buf_append(cx, b, value, strlen(value)));
    if (empty) OSH_TRY(osh_buf_append(cx, b, "\n", 1));
    OSH_TRY(osh_buf_append(cx, b, l->text + rest, l->n - rest));
done:
    return rc;
}

/* Removes a member. Also removes the comma and the space after the first member, or before any
 * other member. */
static osh_status member_cut(osh_ctx *cx, osh_buf *b, const layout *l, const char *text, size_t n,
                      const char *what)
{
    osh_status rc = OSH_OK;
    size_t from = l->before, to = l->found.end;

    if (!from) {
        osh_json_scan s = {.cx = cx, .what = what, .text = text, .n = n, .at = to};
        from = l->found.key;
        osh_json_scan_space(&s);
        if (text[s.at] == ',') {
            s.at++;
            osh_json_scan_space(&s);
            to = s.at;
        } else { // the object has no other member
            from = l->open + 1, to = l->close;
        }
    }
    OSH_TRY(osh_buf_append(cx, b, text, from));
    OSH_TRY(osh_buf_append(cx, b, text + to, n - to));
done:
    return rc;
}

static osh_status edit_within(osh_ctx *cx, char **out, const char *text, size_t n,
                              osh_json_member m, const char *what)
{
    osh_status rc = OSH_OK;
    layout l = {.text = text, .n = n};
    char *inner = NULL; // own
    osh_buf b;          // own
    osh_buf_init(&b, 0);
    OSH_TRY(layout_read(cx, &l, text, n, m.within, what));
    if (!l.found.key || text[l.found.value] != '{') {
        OSH_TRY(osh_buf_append(cx, &b, text, n));
    } else {
        size_t size = l.found.end - l.found.value;
        osh_json_member own = {m.key, m.value, NULL};
        OSH_TRY(osh_json_edit(cx, &inner, text + l.found.value, size, own, what));
        OSH_TRY(osh_buf_append(cx, &b, text, l.found.value));
        OSH_TRY(osh_buf_append(cx, &b, inner, strlen(inner)));
        OSH_TRY(osh_buf_append(cx, &b, text + l.found.end, n - l.found.end));
    }
    *out = b.data, b.data = NULL; // give
    osh_buf_init(&b, 0);
done:
    if (rc) osh_note(cx, "in '%s'", m.within);
    osh_free(cx, inner);
    osh_buf_deinit(cx, &b);
    return rc;
}

osh_status osh_json_edit(osh_ctx *cx, char **out, const char *text, size_t n, osh_json_member m,
                         const char *what)
{
    if (m.within) return edit_within(cx, out, text, n, m, what);
    osh_status rc = OSH_OK;
    const char *key = m.key, *value = m.value;
    layout l = {.text = text, .n = n};
    osh_buf b;

    osh_buf_init(&b, 0);
    OSH_TRY(layout_read(cx, &l, text, n, key, what));
    if (!value && !l.found.key) {
        OSH_TRY(osh_buf_append(cx, &b, text, n));
    } else if (!value) {
        OSH_TRY(member_cut(cx, &b, &l, text, n, what));
    } else if (!l.found.key) {
        OSH_TRY(member_add(cx, &b, &l, key, value));
    } else {
        OSH_TRY(osh_buf_append(cx, &b, text, l.found.value));
        OSH_TRY(osh_buf_append(cx, &b, value, strlen(value)));
        OSH_TRY(osh_buf_append(cx, &b, text + l.found.end, n - l.found.end));
    }
    *out = b.data, b.data = NULL; // give
    osh_buf_init(&b, 0);
done:
    if (rc) osh_note(cx, "setting '%s'", key);
    osh_buf_deinit(cx, &b);
    return rc;
}
