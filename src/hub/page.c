/* page.c - reads a page of rows that the Hub's datasets server sent, and writes the rows as lines
 * of JSON:
 *
 *   {"rows": [{"row_idx": 0, "row": {"text": "..."}, "truncated_cells": []}, ...],
 *    "num_rows_total": 7473}
 *
 * A row may be long, so no row is stored in memory. The text of a row is read once to check it, and
 * a second time to write the line. */
#include <stdio.h>
#include <string.h>

#include "hub/rows.h"

enum { MAX_TEXT = 4096 };

typedef struct reading {
    osh_hub_page *page;
    const osh_hub_rows *rows;
    osh_json_put_fn put;
    void *user;
    /* A sum of flags. 1: the item has the key "row"; 2: it has the key "row_idx"; 4: it has the key
     * "truncated_cells"; 8: the first message of the conversation was read. */
    unsigned seen;
    /* Each of the two members is -1 until its key is found.
     * row_at: offset of the row in the page.
     * number: value of row_idx. */
    int64_t row_at, number;
    bool cut, no_object;
    const char *column; // name of the column to find
    int64_t column_at;  // offset of the column's value in the row; -1: not found
    /* About the first message of the conversation.
     * role: true if the key "role" exists.
     * system: true if its value is "system". */
    bool role, system;
} reading;

static osh_status page_key_twice(osh_ctx *cx, const char *key)
{
    return osh_fail(cx, OSH_E_FORMAT, "the key '%s' occurs twice in one object", key);
}

static osh_status count_cell(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    (void)cx, (void)key;
    ((reading *)user)->cut = true;
    return osh_json_walk_skip(w);
}

static osh_status item_member(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    osh_status rc = OSH_OK;
    reading *r = user;
    unsigned bit = !strcmp(key, "row")               ? 1
                   : !strcmp(key, "row_idx")         ? 2
                   : !strcmp(key, "truncated_cells") ? 4
                                                     : 0;
    if (r->seen & bit) return page_key_twice(cx, key);
    r->seen |= bit;
    int c = osh_json_walk_peek(w);
    if (bit == 2) return osh_json_walk_count(w, &r->number, "row_idx");
    if (bit == 4 && c == '[') return osh_json_walk_items(w, count_cell, r);
    if (bit == 1) r->row_at = osh_json_walk_place(w), r->no_object = c != '{';
    OSH_TRY(osh_json_walk_skip(w));
done:
    return rc;
}

static osh_status column_member(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    osh_status rc = OSH_OK;
    reading *r = user;
    if (!strcmp(key, r->column)) {
        if (r->column_at >= 0) OSH_TRY(page_key_twice(cx, key));
        r->column_at = osh_json_walk_place(w);
    }
    OSH_TRY(osh_json_walk_skip(w));
done:
    return rc;
}

/* Moves w to the value of a column of the row. *first is the first character of the value, or -1 if
 * the row does not have the column. */
static osh_status row_find_column(reading *r, osh_json_walk *w, const char *column, int *first)
{
    osh_status rc = OSH_OK;
    r->column = column, r->column_at = -1, *first = -1;
    osh_json_walk_seek(w, r->row_at);
    OSH_TRY(osh_json_walk_members(w, column_member, r));
    if (r->column_at < 0) goto done;
    osh_json_walk_seek(w, r->column_at);
    *first = osh_json_walk_peek(w);
done:
    return rc;
}

/* Writes {"text": "..."}. The text is made from the template rows->text and the row. For example,
 * in the template "Question: {question}\nAnswer: {answer}", the values of the columns `question`
 * and `answer` replace the names in braces. */
static osh_status row_put_text(osh_ctx *cx, reading *r, osh_json_walk *w)
{
    osh_status rc = OSH_OK;
    OSH_TRY(r->put(cx, r->user, "{\"text\":\"", 9));
    for (const char *text = r->rows->text; *text;) {
        size_t plain = strcspn(text, "{");
        int first;
        char key[80];
        OSH_TRY(osh_json_put_inside(cx, r->put, r->user, text, plain));
        text += plain;
        if (!*text) break;
        int n = (int)strcspn(text + 1, "}");
        snprintf(key, sizeof key, "%.*s", n, text + 1);
        OSH_TRY(row_find_column(r, w, key, &first));
        if (first != '"')
            OSH_FAIL(cx, OSH_E_FORMAT, "row %lld: the column '%s' holds no string",
                     (long long)r->number, key);
        OSH_TRY(osh_json_walk_inside(w, r->put, r->user));
        text += n + 2;
    }
    OSH_TRY(r->put(cx, r->user, "\"}", 2));
done:
    return rc;
}

static osh_status role_member(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    osh_status rc = OSH_OK;
    reading *r = user;
    osh_buf text; // own
    osh_buf_init(&text, MAX_TEXT);
    if (strcmp(key, "role") || r->role || osh_json_walk_peek(w) != '"') {
        rc = osh_json_walk_skip(w);
        goto done;
    }
    OSH_TRY(osh_json_walk_string(w, &text, "role"));
    r->role = true, r->system = text.data && !strcmp(text.data, "system");
done:
    osh_buf_deinit(cx, &text);
    return rc;
}

/* Reads the role of the first message of the conversation, and skips the other messages. */
static osh_status message_item(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    (void)cx, (void)key;
    reading *r = user;
    bool first = !(r->seen & 8);
    r->seen |= 8;
    if (first && osh_json_walk_peek(w) == '{') return osh_json_walk_members(w, role_member, r);
    return osh_json_walk_skip(w);
}

typedef struct opening { // state of opening_put, which replaces the first byte of a value by `text`
    reading *r;
    const char *text; // text to write; NULL: `text` is already written
} opening;

static osh_status opening_put(osh_ctx *cx, void *user, const char *s, size_t n)
{
    osh_status rc = OSH_OK;
    opening *o = user;
    if (o->text && n) {
        OSH_TRY(o->r->put(cx, o->r->user, o->text, strlen(o->text)));
        o->text = NULL, s++, n--;
    }
    if (n) OSH_TRY(o->r->put(cx, o->r->user, s, n));
done:
    return rc;
}

/* Writes the conversation of the row as {column: [...]}, in the form that LLM Compressor's
 * preprocessing makes. */
static osh_status row_put_chat(osh_ctx *cx, reading *r, osh_json_walk *w)
{
    osh_status rc = OSH_OK;
    const char *column = r->rows->chat;
    int first;
    r->role = r->system = false;
    OSH_TRY(row_find_column(r, w, column, &first));
    if (first == '[') OSH_TRY(osh_json_walk_items(w, message_item, r));
    if (first != '[' || !(r->seen & 8))
        OSH_FAIL(cx, OSH_E_FORMAT, "row %lld: the column '%s' holds no conversation",
                 (long long)r->number, column);
    bool add = r->rows->system_first && r->role && !r->system;
    OSH_TRY(r->put(cx, r->user, "{\"", 2));
    OSH_TRY(r->put(cx, r->user, column, strlen(column)));
    OSH_TRY(r->put(cx, r->user, "\":", 2));
    osh_json_walk_seek(w, r->column_at);
    opening o = {r, add ? "[{\"role\":\"system\",\"content\":\"\"}," : "["};
    OSH_TRY(osh_json_walk_copy(w, opening_put, &o));
    OSH_TRY(r->put(cx, r->user, "}", 1));
done:
    return rc;
}

static osh_status row_item(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    osh_status rc = OSH_OK;
    reading *r = user;
    osh_hub_page *page = r->page;
    long long wanted = page->first + page->n;
    (void)key;
    r->seen = 0, r->row_at = r->number = -1, r->cut = false, r->no_object = true;
    if (osh_json_walk_peek(w) != '{')
        OSH_FAIL(cx, OSH_E_FORMAT, "row %lld is not an object", wanted);
    OSH_TRY(osh_json_walk_members(w, item_member, r));
    if (r->no_object) OSH_FAIL(cx, OSH_E_FORMAT, "row %lld is not an object", wanted);
    if (r->number < 0) OSH_FAIL(cx, OSH_E_FORMAT, "row %lld has no 'row_idx'", wanted);
    if (r->number != wanted)
        OSH_FAIL(cx, OSH_E_FORMAT, "asked for row %lld, got row %lld", wanted,
                 (long long)r->number);
    if (r->cut) OSH_FAIL(cx, OSH_E_FORMAT, "row %lld is cut off by the server", wanted);
    page->n++;
    if (!r->rows) goto done;
    int64_t end = osh_json_walk_place(w);
    if (r->rows->text)
        OSH_TRY(row_put_text(cx, r, w));
    else if (r->rows->chat)
        OSH_TRY(row_put_chat(cx, r, w));
    else {
        osh_json_walk_seek(w, r->row_at);
        OSH_TRY(osh_json_walk_copy(w, r->put, r->user));
    }
    OSH_TRY(r->put(cx, r->user, "\n", 1));
    osh_json_walk_seek(w, end);
done:
    return rc;
}

static osh_status page_member(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    osh_status rc = OSH_OK;
    reading *r = user;
    static const char *const keys[] = {"rows", "num_rows_total", "partial"};
    unsigned i = 0;
    while (i < 3 && strcmp(key, keys[i])) i++;
    int c = osh_json_walk_peek(w);
    if (i == 3 || c == 'n') return osh_json_walk_skip(w);
    if (i == 0 && c != '[') OSH_FAIL(cx, OSH_E_FORMAT, "wanted a list of rows");
    if (i == 0 && r->page->n >= 0) OSH_TRY(page_key_twice(cx, key));
    if (i == 1) return osh_json_walk_count(w, &r->page->n_total, keys[i]);
    if (i == 2) return osh_json_walk_bool(w, &r->page->partial, keys[i]);
    r->page->n = 0;
    OSH_TRY(osh_json_walk_items(w, row_item, r));
done:
    return rc;
}

osh_status osh_hub_page_read(osh_ctx *cx, osh_hub_page *page, osh_json_walk *w,
                             const osh_hub_rows *rows, osh_json_put_fn put, void *user)
{
    osh_status rc = OSH_OK;
    reading r = {.page = page, .rows = rows, .put = put, .user = user};
    page->n = page->n_total = -1, page->partial = false;
    if (osh_json_walk_peek(w) == '{') OSH_TRY(osh_json_walk_members(w, page_member, &r));
    if (page->n < 0) OSH_FAIL(cx, OSH_E_FORMAT, "wanted a list of rows");
    OSH_TRY(osh_json_walk_end(w));
done:
    return rc;
}
