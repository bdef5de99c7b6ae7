/* rows.c - rows of a data set of the Hub, a hundred at a time:
 *
 *   GET SERVER/splits?dataset=org/name                      which configurations and splits there are
 *   GET SERVER/rows?dataset=..&config=..&split=..&offset=0&length=100
 *       {"rows": [{"row_idx": 0, "row": {"text": "..."}, "truncated_cells": []}, ...], "num_rows_total": 7473}
 *
 * Each row becomes a line of a .jsonl, which the loader of data reads like any other. */
#include "hub/rows.h"

#include <stdio.h>
#include <string.h>

#include "base/at.h"
#include "text/json.h"
#include "text/split.h"

enum { PAGE_ROWS = 100, MAX_PAGE_BYTES = 256 << 20, MAX_NAMED = 12 };

typedef struct reader { // of one data set
    const osh_hub *hub;
    const osh_hub_rows *rows;
    osh_http *http; // own
    osh_http_reply r; // own: the last answer
    char *config, *split; // own: of the part of `splits` that is read
    int part;
    int64_t n_rows, n_bytes; // written
} reader;

/* "SERVER/what?dataset=..", and further parameters where there are. */
static osh_status rows_url(osh_ctx *cx, osh_buf *b, const reader *x, const char *what)
{
    osh_status rc = OSH_OK;
    osh_buf_clear(b);
    OSH_TRY(osh_buf_printf(cx, b, "%s/%s?dataset=", x->hub->endpoint, what));
    OSH_TRY(osh_http_encode(cx, b, x->rows->id, ""));
    if (x->config) OSH_TRY(osh_buf_printf(cx, b, "&config="));
    if (x->config) OSH_TRY(osh_http_encode(cx, b, x->config, ""));
done:
    return rc;
}

/* *too_big: the server cannot answer for so many rows. */
static osh_status ask_rows(osh_ctx *cx, reader *x, const char *url, bool *too_big)
{
    osh_status rc = OSH_OK;
    osh_http_request q = {.url = url, .max_body = MAX_PAGE_BYTES};
    bool elsewhere;
    *too_big = false;
    for (int tried = 0;; tried++) {
        OSH_TRY(osh_hub_follow(cx, x->http, &x->r, &elsewhere, x->hub, &q));
        if (x->r.status == 200) break;
        *too_big = osh_http_header_is(&x->r, "X-Error-Code", "TooBigContentError");
        if (*too_big) break;
        if (!osh_hub_passes(&x->r) || tried == (x->r.unreached ? 1 : OSH_HUB_RETRIES))
            OSH_TRY(osh_hub_refused(cx, x->hub, &x->r, x->rows->id));
        OSH_TRY(osh_hub_pause(cx, &x->r, tried, NULL));
    }
done:
    return rc;
}

/* The names of one key, each once: "main, socratic". */
static osh_status list_names(osh_ctx *cx, osh_buf *b, const cJSON *splits, const char *key, const char *config)
{
    osh_status rc = OSH_OK;
    const char *last = "";
    int n = 0;
    for (const cJSON *s = splits->child; s; s = s->next) {
        const char *of = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(s, "config"));
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(s, key));
        if (!name || !strcmp(name, last) || (config && (!of || strcmp(of, config)))) continue;
        if (n++ < MAX_NAMED) OSH_TRY(osh_buf_printf(cx, b, "%s%.80s", n > 1 ? ", " : "", name));
        last = name;
    }
    if (n > MAX_NAMED) OSH_TRY(osh_buf_printf(cx, b, " and %d more", n - MAX_NAMED));
done:
    return rc;
}

/* Which configuration is meant, and whether it has the split. */
static osh_status find_config(osh_ctx *cx, reader *x, const cJSON *splits)
{
    osh_status rc = OSH_OK;
    osh_buf names; // own
    const char *only = NULL, *id = x->rows->id;
    bool several = false, has_config = false, has_split = false;
    osh_buf_init(&names, 0);
    for (const cJSON *s = splits->child; s; s = s->next) {
        const char *config = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(s, "config"));
        const char *split = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(s, "split"));
        if (!config || !split) OSH_FAIL(cx, OSH_E_FORMAT, "%s: a list of splits without names", x->hub->endpoint);
        several |= only && strcmp(only, config);
        only = config;
        bool ours = !x->rows->config || !strcmp(config, x->rows->config);
        has_config |= ours, has_split |= ours && !strcmp(split, x->split);
    }
    if (!x->rows->config && several) {
        OSH_TRY(list_names(cx, &names, splits, "config", NULL));
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s has several configurations: want --dataset-config-name, one of %s", id,
                 names.data);
    }
    if (!has_config) {
        OSH_TRY(list_names(cx, &names, splits, "config", NULL));
        OSH_FAIL(cx, OSH_E_USAGE, "%s has no configuration '%s', but %s", id, x->rows->config ? x->rows->config : "",
                 names.data ? names.data : "none");
    }
    if (!has_split) {
        OSH_TRY(list_names(cx, &names, splits, "split", x->rows->config));
        OSH_FAIL(cx, OSH_E_USAGE, "%s has no split '%s': want --splits with one of %s", id, x->split,
                 names.data ? names.data : "none");
    }
    if (!(x->config = osh_strdup(cx, x->rows->config ? x->rows->config : only))) rc = OSH_E_NOMEM;
done:
    osh_buf_deinit(cx, &names);
    return rc;
}

static osh_status ask_splits(osh_ctx *cx, reader *x)
{
    osh_status rc = OSH_OK;
    cJSON *json = NULL; // own
    osh_buf url;        // own
    bool too_big;
    osh_buf_init(&url, 0);
    OSH_TRY(rows_url(cx, &url, x, "splits"));
    OSH_TRY(ask_rows(cx, x, url.data, &too_big));
    OSH_TRY(osh_json_parse(cx, &json, x->r.body.data ? x->r.body.data : "", x->r.body.len, url.data, 0));
    const cJSON *splits = cJSON_GetObjectItemCaseSensitive(json, "splits");
    if (!cJSON_IsArray(splits)) OSH_FAIL(cx, OSH_E_FORMAT, "%s: has no list of splits", url.data);
    OSH_TRY(find_config(cx, x, splits));
done:
    cJSON_Delete(json);
    osh_buf_deinit(cx, &url);
    return rc;
}

/* "Question: {question}\nAnswer: {answer}" of the row. */
static osh_status fill_text(osh_ctx *cx, osh_buf *b, const char *text, const cJSON *row, int64_t number)
{
    osh_status rc = OSH_OK;
    while (*text) {
        size_t plain = strcspn(text, "{");
        OSH_TRY(osh_buf_append(cx, b, text, plain));
        text += plain;
        if (!*text) break;
        char key[80];
        int n = (int)strcspn(text + 1, "}");
        snprintf(key, sizeof key, "%.*s", n, text + 1);
        const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, key));
        if (!value) OSH_FAIL(cx, OSH_E_FORMAT, "row %lld: the column '%s' holds no string", (long long)number, key);
        OSH_TRY(osh_buf_append(cx, b, value, strlen(value)));
        text += n + 2;
    }
done:
    return rc;
}

/* {"messages": [...]} of the row, as LLM Compressor's preprocessing leaves it. */
static osh_status chat_row(osh_ctx *cx, cJSON **out, const osh_hub_rows *rows, const cJSON *row, int64_t number)
{
    osh_status rc = OSH_OK;
    cJSON *list = cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(row, rows->chat), true); // own
    cJSON *object = cJSON_CreateObject(), *system = NULL;                                  // own
    if (!cJSON_IsArray(list) || !cJSON_GetArraySize(list))
        OSH_FAIL(cx, OSH_E_FORMAT, "row %lld: the column '%s' holds no conversation", (long long)number, rows->chat);
    const char *role = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(list->child, "role"));
    if (rows->system_first && role && strcmp(role, "system")) {
        system = cJSON_CreateObject();
        bool made = system && cJSON_AddStringToObject(system, "role", "system") &&
                    cJSON_AddStringToObject(system, "content", "");
        if (!made || !cJSON_InsertItemInArray(list, 0, system)) OSH_FAIL(cx, OSH_E_NOMEM, "cannot allocate a row");
        system = NULL; // given
    }
    if (!object || !cJSON_AddItemToObject(object, rows->chat, list)) OSH_FAIL(cx, OSH_E_NOMEM, "cannot allocate a row");
    list = NULL; // given
    *out = object, object = NULL;
done:
    cJSON_Delete(system);
    cJSON_Delete(list);
    cJSON_Delete(object);
    return rc;
}

/* {"text": "..."} of the row. */
static osh_status text_row(osh_ctx *cx, cJSON **out, const osh_hub_rows *rows, const cJSON *row, int64_t number)
{
    osh_status rc = OSH_OK;
    cJSON *object = cJSON_CreateObject(); // own
    osh_buf text;                         // own
    osh_buf_init(&text, 0);
    OSH_TRY(fill_text(cx, &text, rows->text, row, number));
    if (!object || !cJSON_AddStringToObject(object, "text", text.data ? text.data : ""))
        OSH_FAIL(cx, OSH_E_NOMEM, "cannot allocate a row");
    *out = object, object = NULL;
done:
    cJSON_Delete(object);
    osh_buf_deinit(cx, &text);
    return rc;
}

static osh_status add_line(osh_ctx *cx, osh_buf *to, const osh_hub_rows *rows, const cJSON *row, int64_t number)
{
    osh_status rc = OSH_OK;
    char *line = NULL;  // own: of cJSON
    cJSON *made = NULL; // own
    if (rows->text) OSH_TRY(text_row(cx, &made, rows, row, number));
    else if (rows->chat) OSH_TRY(chat_row(cx, &made, rows, row, number));
    if (!(line = cJSON_PrintUnformatted(made ? made : row))) OSH_FAIL(cx, OSH_E_NOMEM, "cannot allocate a row");
    OSH_TRY(osh_buf_append(cx, to, line, strlen(line)));
    OSH_TRY(osh_buf_append(cx, to, "\n", 1));
done:
    cJSON_free(line);
    cJSON_Delete(made);
    return rc;
}

osh_status osh_hub_rows_read(osh_ctx *cx, osh_buf *to, int64_t *n, const osh_hub_page *page, const osh_hub_rows *rows)
{
    osh_status rc = OSH_OK;
    int64_t first = page->first;
    cJSON *json = NULL; // own
    *n = 0;
    OSH_TRY(osh_json_parse(cx, &json, page->text, page->n, "rows", 0));
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "rows");
    if (!cJSON_IsArray(list)) OSH_FAIL(cx, OSH_E_FORMAT, "wanted a list of rows");
    for (const cJSON *o = list->child; o; o = o->next, ++*n) {
        int64_t number = -1;
        const cJSON *row = cJSON_GetObjectItemCaseSensitive(o, "row");
        const cJSON *cut = cJSON_GetObjectItemCaseSensitive(o, "truncated_cells");
        if (!cJSON_IsObject(row)) OSH_FAIL(cx, OSH_E_FORMAT, "row %lld is no object", (long long)(first + *n));
        OSH_TRY(osh_json_int(cx, &number, o, "row_idx", "rows"));
        if (number != first + *n)
            OSH_FAIL(cx, OSH_E_FORMAT, "asked for row %lld, got row %lld", (long long)(first + *n), (long long)number);
        if (cJSON_GetArraySize(cut)) OSH_FAIL(cx, OSH_E_FORMAT, "row %lld is cut off by the server", (long long)number);
        OSH_TRY(add_line(cx, to, rows, row, number));
    }
done:
    cJSON_Delete(json);
    return rc;
}

/* Rows [offset, offset + *length) into the reply; *length becomes smaller where the server cannot. */
static osh_status ask_page(osh_ctx *cx, reader *x, int64_t offset, int64_t *length)
{
    osh_status rc = OSH_OK;
    osh_buf url; // own
    bool too_big = true;
    osh_buf_init(&url, 0);
    while (too_big) {
        OSH_TRY(rows_url(cx, &url, x, "rows"));
        OSH_TRY(osh_buf_printf(cx, &url, "&split="));
        OSH_TRY(osh_http_encode(cx, &url, x->split, ""));
        OSH_TRY(osh_buf_printf(cx, &url, "&offset=%lld&length=%lld", (long long)offset, (long long)*length));
        OSH_TRY(ask_rows(cx, x, url.data, &too_big));
        if (too_big && *length == 1) OSH_TRY(osh_hub_refused(cx, x->hub, &x->r, x->rows->id));
        if (too_big) *length /= 2;
    }
done:
    osh_buf_deinit(cx, &url);
    return rc;
}

/* Rows of the split that are meant: the server counts them where that decides. */
static osh_status find_range(osh_ctx *cx, reader *x, int64_t *first, int64_t *end)
{
    osh_status rc = OSH_OK;
    cJSON *json = NULL; // own
    int64_t total = INT64_MAX, one = 1;
    bool wants = false, partial = false;
    OSH_TRY(osh_split_check(cx, &wants, x->rows->splits));
    if (wants) {
        OSH_TRY(ask_page(cx, x, 0, &one));
        OSH_TRY(osh_json_parse(cx, &json, x->r.body.data ? x->r.body.data : "", x->r.body.len, "rows", 0));
        OSH_TRY(osh_json_int(cx, &total, json, "num_rows_total", "rows"));
        OSH_TRY(osh_json_bool_or(cx, &partial, json, "partial", false, "rows"));
        if (partial)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: the server has a part of the rows only: want --splits '%s[:N]'",
                     x->rows->id, x->split);
    }
    osh_split_rows(first, end, x->rows->splits, x->part, total);
    int64_t left = x->rows->most - x->n_rows;
    if (x->rows->most && *end - *first > left) *end = *first + left;
done:
    cJSON_Delete(json);
    return rc;
}

/* All pages into the file. */
static osh_status write_rows(osh_ctx *cx, osh_file *out, reader *x, int64_t first, int64_t end)
{
    osh_status rc = OSH_OK;
    osh_buf lines; // own
    int64_t at = first, n = 1, page = PAGE_ROWS;
    osh_buf_init(&lines, 0);
    for (; at < end && n; at += n) {
        int64_t length = end - at < page ? end - at : page, asked = length;
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(ask_page(cx, x, at, &length));
        if (length < asked) page = length;
        osh_buf_clear(&lines);
        osh_hub_page got = {x->r.body.data ? x->r.body.data : "", x->r.body.len, at};
        OSH_TRY(osh_hub_rows_read(cx, &lines, &n, &got, x->rows));
        if (n > length) OSH_FAIL(cx, OSH_E_FORMAT, "asked for %lld rows, got %lld", (long long)length, (long long)n);
        if (lines.len) OSH_TRY(osh_file_pwrite(cx, out, lines.data, lines.len, x->n_bytes));
        x->n_bytes += (int64_t)lines.len, x->n_rows += n;
        bool known = end != INT64_MAX; // else: to the end of the split, wherever that is
        osh_progress_show(cx, &(osh_progress){
            .step = 1, .n_steps = 1, .name = x->rows->id, .phase = "rows", .done = at + n - first,
            .total = known ? end - first : at + n - first, .work_done = (double)(at + n - first),
            .work_total = known ? (double)(end - first) : 0, .error = -1});
    }
done:
    osh_buf_deinit(cx, &lines);
    return rc;
}

/* Which state of the data set this was: the server has no way to ask for one. */
static osh_status write_revision(osh_ctx *cx, osh_at *dir, const char *name, const reader *x)
{
    osh_status rc = OSH_OK;
    size_t n;
    const char *revision = osh_http_header(&x->r, "X-Revision", &n);
    char *to = osh_sprintf(cx, "%s.revision", name); // own
    if (!to) OSH_TRY(OSH_E_NOMEM);
    if (n) OSH_TRY(osh_at_write(cx, dir, to, dir, revision, n));
done:
    osh_free(cx, to);
    return rc;
}

/* Rows of one part of a sum, behind those of the parts before it. */
static osh_status write_part(osh_ctx *cx, osh_file *out, reader *x, const char *part, size_t n)
{
    osh_status rc = OSH_OK;
    int64_t first = 0, end = 0;
    const char *slice = memchr(part, '[', n);
    osh_free(cx, x->split), osh_free(cx, x->config), x->config = NULL;
    if (!(x->split = osh_sprintf(cx, "%.*s", (int)(slice ? slice - part : (ptrdiff_t)n), part))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(ask_splits(cx, x));
    OSH_TRY(find_range(cx, x, &first, &end));
    OSH_TRY(write_rows(cx, out, x, first, end));
done:
    return rc;
}

osh_status osh_hub_rows_get(osh_ctx *cx, const char *path, const osh_hub *hub, const osh_hub_rows *rows)
{
    osh_status rc = OSH_OK;
    osh_hub server = *hub; // view: of all that is asked here
    reader x = {.hub = &server, .rows = rows};
    osh_file *out = NULL; // own
    osh_at *dir = NULL;   // own
    char *made = NULL, *below = NULL; // own
    bool whole = false;
    size_t n;
    const char *part, *name = strrchr(path, '/') + 1, *under = path + strlen(hub->home) + 1;
    server.endpoint = hub->rows;
    if (!(below = osh_sprintf(cx, "%.*s", (int)(name - 1 - under), under))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_http_open(cx, &x.http, hub, NULL));
    OSH_TRY(osh_at_open(cx, &dir, hub->home, below));
    OSH_TRY(osh_at_create(cx, &out, &made, dir, "new-"));
    for (; (!rows->most || x.n_rows < rows->most) && (part = osh_split_part(rows->splits, x.part, &n)); x.part++)
        OSH_TRY(write_part(cx, out, &x, part, n));
    if (!x.n_rows) OSH_FAIL(cx, OSH_E_USAGE, "splits '%s' has no row", rows->splits);
    OSH_TRY(osh_file_sync(cx, out));
    OSH_TRY(write_revision(cx, dir, name, &x));
    OSH_TRY(osh_at_rename(cx, out, dir, made, dir, name));
    whole = true;
done:
    if (rc) osh_note(cx, "asking %s for rows of %s", hub->rows, rows->id);
    if (made && !whole) osh_at_remove(cx, dir, made);
    osh_file_close(cx, out);
    osh_at_close(cx, dir);
    osh_http_reply_deinit(cx, &x.r);
    osh_http_close(cx, x.http);
    osh_free(cx, x.config);
    osh_free(cx, x.split);
    osh_free(cx, below);
    osh_free(cx, made);
    return rc;
}
