/* json_walk.c - reads JSON text value by value; a file is read in pieces of 64 KiB. */
#include "text/json_walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16, MOST_KEY = 4096 };

static osh_status walk_more(osh_ctx *cx, void *user, size_t used, const char **text, size_t *n,
                            bool *end)
{
    osh_status rc = OSH_OK;
    osh_json_walk *w = user;
    OSH_TRY(osh_check_interrupt(cx));
    memmove(w->piece, w->piece + used, w->n -= used);
    int64_t left = osh_file_bytes(w->file) - w->at;
    size_t room = PIECE - w->n, next = left < (int64_t)room ? (size_t)left : room;
    OSH_TRY(osh_file_pread(cx, w->file, w->piece + w->n, next, w->at));
    w->n += next, w->at += (int64_t)next;
    *text = w->piece, *n = w->n, *end = w->at == osh_file_bytes(w->file);
done:
    return rc;
}

osh_status osh_json_walk_file(osh_ctx *cx, osh_json_walk *w, osh_file *file, const char *what)
{
    osh_status rc = OSH_OK;
    *w = (osh_json_walk){.file = file};
    w->s = (osh_json_scan){.cx = cx, .what = what, .more = walk_more, .more_user = w};
    osh_buf_init(&w->key, MOST_KEY);
    OSH_NEW(cx, w->piece, PIECE);
    OSH_TRY(osh_json_scan_begin(&w->s));
done:
    return rc;
}

osh_status osh_json_walk_text(osh_ctx *cx, osh_json_walk *w, const char *text, size_t n,
                              const char *what)
{
    *w = (osh_json_walk){.s = {.cx = cx, .what = what, .text = text, .n = n}};
    osh_buf_init(&w->key, MOST_KEY);
    return osh_json_scan_begin(&w->s);
}

void osh_json_walk_deinit(osh_ctx *cx, osh_json_walk *w)
{
    osh_free(cx, w->piece);
    osh_buf_deinit(cx, &w->key);
    *w = (osh_json_walk){0};
}

int osh_json_walk_peek(osh_json_walk *w)
{
    osh_json_scan_space(&w->s);
    return osh_json_scan_peek(&w->s);
}

static osh_status walk_fail(osh_json_walk *w, const char *problem)
{
    return osh_json_scan_fail(&w->s, w->s.base + w->s.at, problem);
}

static const char *walk_kind(int c)
{
    switch (c) {
    case '{':
        return "an object";
    case '[':
        return "an array";
    case '"':
        return "a string";
    case 't':
    case 'f':
        return "a boolean";
    case 'n':
        return "null";
    case -1:
        return "the end of the text";
    default:
        return c == '-' || (c >= '0' && c <= '9') ? "a number" : "no JSON value";
    }
}

static osh_status walk_fail_kind(osh_json_walk *w, const char *name, const char *wanted)
{
    if (w->s.failed) return w->s.failed;
    return osh_fail(w->s.cx, OSH_E_FORMAT, "%s: '%s' is %s, wanted %s", w->s.what, name,
                    walk_kind(osh_json_walk_peek(w)), wanted);
}

/* Reads the opening bracket of an object or array. If the closing bracket follows, reads that too
 * and sets *empty. */
static osh_status walk_list_begin(osh_json_walk *w, char opener, char closer, bool *empty)
{
    *empty = false;
    if (osh_json_walk_peek(w) != opener)
        return walk_fail(w, opener == '{' ? "found no object, wanted one"
                                          : "found no array, wanted one");
    if (++w->depth > OSH_JSON_MAX_DEPTH) return walk_fail(w, "nested more than 256 deep");
    w->s.at++;
    *empty = osh_json_walk_peek(w) == closer;
    if (*empty) w->s.at++, w->depth--;
    return OSH_OK;
}

/* Reads the comma before another value, or the closing bracket. Sets *over to true if it was the
 * bracket. */
static osh_status walk_list_next(osh_json_walk *w, char closer, bool *over)
{
    int c = osh_json_walk_peek(w);
    *over = c == closer;
    if (c != ',' && c != closer)
        return walk_fail(w, closer == '}' ? "found no ',' or '}' in an object"
                                          : "found no ',' or ']' in an array");
    w->s.at++;
    w->depth -= *over;
    return OSH_OK;
}

osh_status osh_json_walk_members(osh_json_walk *w, osh_json_walk_fn member, void *user)
{
    osh_status rc = OSH_OK;
    bool over;
    OSH_TRY(walk_list_begin(w, '{', '}', &over));
    while (!over) {
        osh_buf_clear(&w->key);
        rc = osh_json_scan_key_to(&w->s, &w->key);
        if (rc && !w->s.failed) osh_note(w->s.cx, "reading a key of %s", w->s.what);
        OSH_TRY(rc);
        OSH_TRY(member(w->s.cx, user, w, w->key.data ? w->key.data : ""));
        OSH_TRY(walk_list_next(w, '}', &over));
    }
done:
    return rc;
}

osh_status osh_json_walk_items(osh_json_walk *w, osh_json_walk_fn item, void *user)
{
    osh_status rc = OSH_OK;
    bool over;
    OSH_TRY(walk_list_begin(w, '[', ']', &over));
    while (!over) {
        OSH_TRY(item(w->s.cx, user, w, NULL));
        OSH_TRY(walk_list_next(w, ']', &over));
    }
done:
    return rc;
}

osh_status osh_json_walk_skip(osh_json_walk *w)
{
    return osh_json_scan_value(&w->s);
}

osh_status osh_json_walk_string(osh_json_walk *w, osh_buf *to, const char *name)
{
    osh_buf_clear(to);
    if (osh_json_walk_peek(w) != '"') return walk_fail_kind(w, name, "a string");
    osh_status rc = osh_json_scan_string_to(&w->s, to);
    if (rc && to->max_bytes) osh_note(w->s.cx, "reading '%s' of %s", name, w->s.what);
    return rc;
}

osh_status osh_json_walk_count(osh_json_walk *w, int64_t *out, const char *name)
{
    osh_status rc = OSH_OK;
    char text[OSH_JSON_MAX_NUMBER + 1];
    int c = osh_json_walk_peek(w);
    if (c != '-' && (c < '0' || c > '9'))
        OSH_TRY(walk_fail_kind(w, name, "a whole number from 0 to 2^53"));
    OSH_TRY(osh_json_scan_number(&w->s, text));
    bool whole = strspn(text, "0123456789") == strlen(text) && strlen(text) <= 16;
    long long v = whole ? atoll(text) : -1;
    if (v < 0 || v > (1LL << 53))
        OSH_FAIL(w->s.cx, OSH_E_FORMAT, "%s: '%s' is %s, wanted a whole number from 0 to 2^53",
                 w->s.what, name, text);
    *out = v;
done:
    return rc;
}

osh_status osh_json_walk_bool(osh_json_walk *w, bool *out, const char *name)
{
    int c = osh_json_walk_peek(w);
    if (c != 't' && c != 'f') return walk_fail_kind(w, name, "true or false");
    *out = c == 't';
    return osh_json_scan_value(&w->s);
}

typedef struct copying {
    osh_json_put_fn put;
    void *user;
} copying;

/* Appends the text of a string to the copy. Only the necessary escapes of JSON remain. */
static osh_status walk_copy_plain(osh_ctx *cx, void *user, const char *s, size_t n)
{
    osh_status rc = OSH_OK;
    static const char marks[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const copying *c = user;
    for (size_t i = 0, from = 0; i <= n; i++) {
        unsigned char byte = i < n ? (unsigned char)s[i] : ' ';
        bool escaped = byte < ' ' || byte == '"' || byte == '\\';
        if (i < n && !escaped) continue;
        if (i > from) OSH_TRY(c->put(cx, c->user, s + from, i - from));
        from = i + 1;
        if (!escaped) continue;
        const char *at = byte ? strchr(marks, byte) : NULL;
        char text[8];
        int k = at ? snprintf(text, sizeof text, "\\%c", letters[at - marks])
                   : snprintf(text, sizeof text, "\\u%04x", byte);
        OSH_TRY(c->put(cx, c->user, text, (size_t)k));
    }
done:
    return rc;
}

osh_status osh_json_put_inside(osh_ctx *cx, osh_json_put_fn put, void *user, const char *s,
                               size_t n)
{
    return walk_copy_plain(cx, &(copying){put, user}, s, n);
}

osh_status osh_json_walk_inside(osh_json_walk *w, osh_json_put_fn put, void *user)
{
    copying c = {put, user};
    w->s.take = walk_copy_plain, w->s.take_user = &c;
    osh_status rc = osh_json_scan_string(&w->s);
    w->s.take = NULL, w->s.take_user = NULL;
    return rc;
}

static osh_status walk_copy_string(osh_json_walk *w, const copying *c)
{
    osh_status rc = OSH_OK;
    OSH_TRY(c->put(w->s.cx, c->user, "\"", 1));
    OSH_TRY(osh_json_walk_inside(w, c->put, c->user));
    OSH_TRY(c->put(w->s.cx, c->user, "\"", 1));
done:
    return rc;
}

static osh_status walk_copy_value(osh_json_walk *w, const copying *c);

/* Copies an object or array. The recursion is as deep as the nesting, which walk_list_begin
 * limits. */
static osh_status walk_copy_list(osh_json_walk *w, const copying *c, bool object)
{
    osh_status rc = OSH_OK;
    bool over;
    OSH_TRY(walk_list_begin(w, object ? '{' : '[', object ? '}' : ']', &over));
    OSH_TRY(c->put(w->s.cx, c->user, object ? "{" : "[", 1));
    for (bool first = true; !over; first = false) {
        if (!first) OSH_TRY(c->put(w->s.cx, c->user, ",", 1));
        if (object) {
            if (osh_json_walk_peek(w) != '"')
                OSH_TRY(walk_fail(w, "found no quoted key in an object"));
            OSH_TRY(walk_copy_string(w, c));
            if (osh_json_walk_peek(w) != ':') OSH_TRY(walk_fail(w, "found no ':' after a key"));
            w->s.at++;
            OSH_TRY(c->put(w->s.cx, c->user, ":", 1));
        }
        OSH_TRY(walk_copy_value(w, c));
        OSH_TRY(walk_list_next(w, object ? '}' : ']', &over));
    }
    OSH_TRY(c->put(w->s.cx, c->user, object ? "}" : "]", 1));
done:
    return rc;
}

static osh_status walk_copy_value(osh_json_walk *w, const copying *c)
{
    osh_status rc = OSH_OK;
    char text[OSH_JSON_MAX_NUMBER + 1];
    int first = osh_json_walk_peek(w);
    if (first == '{' || first == '[') return walk_copy_list(w, c, first == '{');
    if (first == '"') return walk_copy_string(w, c);
    if (first == '-' || (first >= '0' && first <= '9')) {
        OSH_TRY(osh_json_scan_number(&w->s, text));
    } else {
        OSH_TRY(osh_json_scan_value(&w->s)); // reads true, false or null, or fails
        strcpy(text, first == 't' ? "true" : first == 'f' ? "false" : "null");
    }
    OSH_TRY(c->put(w->s.cx, c->user, text, strlen(text)));
done:
    return rc;
}

osh_status osh_json_walk_copy(osh_json_walk *w, osh_json_put_fn put, void *user)
{
    copying c = {put, user};
    return walk_copy_value(w, &c);
}

osh_status osh_json_walk_end(osh_json_walk *w)
{
    return osh_json_scan_end(&w->s);
}

int64_t osh_json_walk_place(osh_json_walk *w)
{
    osh_json_walk_peek(w);
    return (int64_t)(w->s.base + w->s.at);
}

void osh_json_walk_seek(osh_json_walk *w, int64_t place)
{
    if (place >= (int64_t)w->s.base && place <= (int64_t)(w->s.base + w->s.n)) {
        w->s.at = (size_t)place - w->s.base;
        return;
    }
    /* The position is outside the piece, so the next bytes are read from the file. */
    w->at = place, w->n = 0;
    w->s.base = (size_t)place, w->s.text = w->piece, w->s.n = w->s.at = 0, w->s.ended = false;
}
