/* rows.c - downloads rows of a data set of the Hub, a hundred at a time:
 *
 *   GET SERVER/splits?dataset=org/name                      lists configurations and splits
 *   GET SERVER/rows?dataset=..&config=..&split=..&offset=0&length=100
 *                                                           a page (page.c)
 *
 * Each row becomes a line of a .jsonl file, which is then read like a .jsonl file of the user. */
#include "hub/rows.h"

#include <string.h>

#include "base/at.h"
#include "data/split.h"

enum {
    PAGE_ROWS = 100,
    MAX_PAGE_BYTES = 256 << 20,
    MAX_NAMED = 12,
    MAX_TEXT = 4096,
    LINE_BYTES = 64 << 10
};

typedef struct reader { // state while the rows of one data set are downloaded
    const osh_hub *hub;
    const osh_hub_rows *rows;
    osh_http *http; // own
    osh_http_reply r; // own: last answer of the server
    char *config, *split; // own: configuration and split of the current part of rows->splits
    int part;
    int64_t n_rows, n_bytes; // number of rows and number of bytes written so far
    osh_file *out;           // own
    char *lines;             // own [LINE_BYTES]: buffer of bytes to write
    size_t n_lines;
} reader;

/* Sets b to "SERVER/what?dataset=..", with the configuration if it is known. */
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

/* Makes a request, with repeated attempts. *too_big is true if the answer would be too large for
 * the server. */
static osh_status rows_ask(osh_ctx *cx, reader *x, const char *url, bool *too_big)
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

typedef struct splits { // state while the server's list of splits is read
    const reader *x;
    /* Configuration and split of the current item, and of the previous item. */
    osh_buf config, split, last_config, last_split; // own
    /* configs: text of names, such as "main, socratic".
     * names: split names of the configuration. */
    osh_buf configs, names; // own
    int n_configs, n_names;
    bool has_list, several, has_config, has_split;
} splits;

/* Appends a name to a text of names. Does nothing if the name is equal to the previous one. */
static osh_status splits_add_name(osh_ctx *cx, osh_buf *list, int *n, osh_buf *last,
                                  const osh_buf *name)
{
    osh_status rc = OSH_OK;
    if (last->data && !strcmp(last->data, name->data)) goto done;
    osh_buf_clear(last);
    OSH_TRY(osh_buf_append(cx, last, name->data, name->len));
    if (++*n <= MAX_NAMED)
        OSH_TRY(osh_buf_printf(cx, list, "%s%.80s", *n > 1 ? ", " : "", name->data));
done:
    return rc;
}

static osh_status split_member(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    (void)cx;
    splits *s = user;
    if (!strcmp(key, "config")) return osh_json_walk_string(w, &s->config, "config");
    return strcmp(key, "split") ? osh_json_walk_skip(w)
                                : osh_json_walk_string(w, &s->split, "split");
}

static osh_status split_item(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    osh_status rc = OSH_OK;
    splits *s = user;
    const char *wanted = s->x->rows->config;
    (void)key;
    osh_buf_clear(&s->config), osh_buf_clear(&s->split);
    if (osh_json_walk_peek(w) == '{')
        OSH_TRY(osh_json_walk_members(w, split_member, s));
    else
        OSH_TRY(osh_json_walk_skip(w));
    if (!s->config.len || !s->split.len)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: a list of splits without names", s->x->hub->endpoint);
    s->several |= s->last_config.len && strcmp(s->last_config.data, s->config.data);
    bool ours = !wanted || !strcmp(s->config.data, wanted);
    s->has_config |= ours, s->has_split |= ours && !strcmp(s->split.data, s->x->split);
    OSH_TRY(splits_add_name(cx, &s->configs, &s->n_configs, &s->last_config, &s->config));
    if (ours) OSH_TRY(splits_add_name(cx, &s->names, &s->n_names, &s->last_split, &s->split));
done:
    return rc;
}

static osh_status splits_member(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    splits *s = user;
    if (strcmp(key, "splits") || osh_json_walk_peek(w) != '[') return osh_json_walk_skip(w);
    if (s->has_list) return osh_fail(cx, OSH_E_FORMAT, "%s: has two lists of splits", w->s.what);
    s->has_list = true;
    return osh_json_walk_items(w, split_item, s);
}

/* Sets x->config to the requested configuration, or to the only one if none is requested. Fails if
 * there is no such configuration, or if it lacks the split x->split. The message lists the names
 * that exist. */
static osh_status splits_find_config(osh_ctx *cx, reader *x, splits *s)
{
    osh_status rc = OSH_OK;
    const char *id = x->rows->id, *wanted = x->rows->config;
    if (s->n_configs > MAX_NAMED)
        OSH_TRY(osh_buf_printf(cx, &s->configs, " and %d more", s->n_configs - MAX_NAMED));
    if (s->n_names > MAX_NAMED)
        OSH_TRY(osh_buf_printf(cx, &s->names, " and %d more", s->n_names - MAX_NAMED));
    const char *configs = s->configs.data ? s->configs.data : "none",
               *names = s->names.data ? s->names.data : "none";
    if (!wanted && s->several)
        OSH_FAIL(cx, OSH_E_USAGE,
                 "%s has several configurations: want --dataset-config-name, one of %s", id,
                 configs);
    if (!s->has_config)
        OSH_FAIL(cx, OSH_E_USAGE, "%s has no configuration '%s', want one of %s", id,
                 wanted ? wanted : "", configs);
    if (!s->has_split)
        OSH_FAIL(cx, OSH_E_USAGE, "%s has no split '%s': want --splits with one of %s", id,
                 x->split, names);
    if (!(x->config = osh_strdup(cx, wanted ? wanted : s->last_config.data))) rc = OSH_E_NOMEM;
done:
    return rc;
}

/* Asks the server for the list of splits and finds the requested configuration in the list. */
static osh_status rows_ask_splits(osh_ctx *cx, reader *x)
{
    osh_status rc = OSH_OK;
    osh_json_walk w = {0}; // own
    splits s = {.x = x};   // own
    osh_buf url;           // own
    osh_buf *const texts[] = {&s.config,     &s.split,   &s.last_config,
                              &s.last_split, &s.configs, &s.names};
    bool too_big;
    osh_buf_init(&url, 0);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) osh_buf_init(texts[i], MAX_TEXT);
    OSH_TRY(rows_url(cx, &url, x, "splits"));
    OSH_TRY(rows_ask(cx, x, url.data, &too_big));
    OSH_TRY(osh_hub_walk(cx, &w, &x->r, url.data));
    if (osh_json_walk_peek(&w) == '{')
        OSH_TRY(osh_json_walk_members(&w, splits_member, &s));
    else
        OSH_TRY(osh_json_walk_skip(&w));
    OSH_TRY(osh_json_walk_end(&w));
    if (!s.has_list) OSH_FAIL(cx, OSH_E_FORMAT, "%s: has no list of splits", url.data);
    OSH_TRY(splits_find_config(cx, x, &s));
done:
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) osh_buf_deinit(cx, texts[i]);
    osh_json_walk_deinit(cx, &w);
    osh_buf_deinit(cx, &url);
    return rc;
}

/* Asks the server for rows [offset, offset + *length). Halves *length while the answer would be too
 * large for the server. */
static osh_status rows_ask_page(osh_ctx *cx, reader *x, int64_t offset, int64_t *length)
{
    osh_status rc = OSH_OK;
    osh_buf url; // own
    bool too_big = true;
    osh_buf_init(&url, 0);
    while (too_big) {
        OSH_TRY(rows_url(cx, &url, x, "rows"));
        OSH_TRY(osh_buf_printf(cx, &url, "&split="));
        OSH_TRY(osh_http_encode(cx, &url, x->split, ""));
        OSH_TRY(osh_buf_printf(cx, &url, "&offset=%lld&length=%lld", (long long)offset,
                               (long long)*length));
        OSH_TRY(rows_ask(cx, x, url.data, &too_big));
        if (too_big && *length == 1) OSH_TRY(osh_hub_refused(cx, x->hub, &x->r, x->rows->id));
        if (too_big) *length /= 2;
    }
done:
    osh_buf_deinit(cx, &url);
    return rc;
}

/* Computes the range of rows [*first, *end) of the current part of rows->splits. If the range
 * depends on the size of the split, asks the server for this size. */
static osh_status rows_find_range(osh_ctx *cx, reader *x, int64_t *first, int64_t *end)
{
    osh_status rc = OSH_OK;
    osh_json_walk w = {0}; // own
    osh_hub_page page = {.n_total = INT64_MAX};
    int64_t one = 1;
    bool wants = false;
    OSH_TRY(osh_split_check(cx, &wants, x->rows->splits));
    if (wants) {
        OSH_TRY(rows_ask_page(cx, x, 0, &one));
        OSH_TRY(osh_hub_walk(cx, &w, &x->r, "rows"));
        OSH_TRY(osh_hub_page_read(cx, &page, &w, NULL, NULL, NULL));
        if (page.n_total < 0)
            OSH_FAIL(cx, OSH_E_FORMAT, "the answer has no 'num_rows_total', wanted a whole number");
        if (page.partial)
            OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                     "%s: the server has only a part of the rows: want --splits '%s[:N]'",
                     x->rows->id, x->split);
    }
    osh_split_rows(first, end, x->rows->splits, x->part, page.n_total);
    int64_t left = x->rows->most - x->n_rows;
    if (x->rows->most && *end - *first > left) *end = *first + left;
done:
    osh_json_walk_deinit(cx, &w);
    return rc;
}

/* Appends the buffered bytes to the file. */
static osh_status lines_flush(osh_ctx *cx, reader *x)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_file_pwrite(cx, x->out, x->lines, x->n_lines, x->n_bytes));
    x->n_bytes += (int64_t)x->n_lines, x->n_lines = 0;
done:
    return rc;
}

/* Appends bytes to the buffer, and writes the buffer to the file when the buffer is full. */
static osh_status lines_put(osh_ctx *cx, void *user, const char *s, size_t n)
{
    osh_status rc = OSH_OK;
    reader *x = user;
    while (n) {
        if (x->n_lines == LINE_BYTES) OSH_TRY(lines_flush(cx, x));
        size_t k = LINE_BYTES - x->n_lines < n ? LINE_BYTES - x->n_lines : n;
        memcpy(x->lines + x->n_lines, s, k);
        x->n_lines += k, s += k, n -= k;
    }
done:
    return rc;
}

/* Downloads and writes rows [at, at + *length) of the split. The server may send fewer rows. Sets
 * *n to the number of rows that were written. */
static osh_status rows_write_page(osh_ctx *cx, reader *x, int64_t at, int64_t *length, int64_t *n)
{
    osh_status rc = OSH_OK;
    osh_json_walk w = {0}; // own
    osh_hub_page page = {.first = at};
    OSH_TRY(rows_ask_page(cx, x, at, length));
    OSH_TRY(osh_hub_walk(cx, &w, &x->r, "rows"));
    OSH_TRY(osh_hub_page_read(cx, &page, &w, x->rows, lines_put, x));
    if (page.n > *length)
        OSH_FAIL(cx, OSH_E_FORMAT, "asked for %lld rows, got %lld", (long long)*length,
                 (long long)page.n);
    OSH_TRY(lines_flush(cx, x));
    x->n_rows += *n = page.n;
done:
    osh_json_walk_deinit(cx, &w);
    return rc;
}

/* Downloads and writes rows [first, end) of the split, page by page. */
static osh_status rows_write_all(osh_ctx *cx, reader *x, int64_t first, int64_t end)
{
    osh_status rc = OSH_OK;
    int64_t at = first, n = 1, page = PAGE_ROWS;
    for (; at < end && n; at += n) {
        int64_t length = end - at < page ? end - at : page, asked = length;
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(rows_write_page(cx, x, at, &length, &n));
        if (length < asked) page = length;
        bool known = end != INT64_MAX; // false: the number of rows in the split is unknown
        osh_progress_show(cx, &(osh_progress){
            .step = 1, .n_steps = 1, .name = x->rows->id, .phase = "rows", .done = at + n - first,
            .total = known ? end - first : at + n - first, .work_done = (double)(at + n - first),
            .work_total = known ? (double)(end - first) : 0, .error = -1});
    }
done:
    return rc;
}

/* Writes the revision of the data set to a file next to the rows. A request cannot choose the
 * revision, but the answer names it. */
static osh_status rows_write_revision(osh_ctx *cx, osh_at *dir, const char *name, const reader *x)
{
    osh_status rc = OSH_OK;
    size_t n;
    const char *revision = osh_http_header(&x->r, "X-Revision", &n);
    char *to = osh_sprintf(cx, "%s.revision", name); // own
    if (!to) OSH_TRY(OSH_E_NOMEM);
    bool is_commit = n == 40 && strspn(revision, "0123456789abcdef") == n;
    if (is_commit) OSH_TRY(osh_at_write(cx, dir, to, dir, revision, n));
done:
    osh_free(cx, to);
    return rc;
}

/* Downloads the rows that one part of rows->splits selects, and appends them to the file. The part
 * is the n bytes at `part`, such as "train[:512]". */
static osh_status rows_write_part(osh_ctx *cx, reader *x, const char *part, size_t n)
{
    osh_status rc = OSH_OK;
    int64_t first = 0, end = 0;
    const char *slice = memchr(part, '[', n);
    osh_free(cx, x->split), osh_free(cx, x->config), x->config = NULL;
    if (!(x->split = osh_sprintf(cx, "%.*s", (int)(slice ? slice - part : (ptrdiff_t)n), part)))
        OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(rows_ask_splits(cx, x));
    OSH_TRY(rows_find_range(cx, x, &first, &end));
    OSH_TRY(rows_write_all(cx, x, first, end));
done:
    return rc;
}

osh_status osh_hub_rows_get(osh_ctx *cx, const char *path, const osh_hub *hub,
                            const osh_hub_rows *rows)
{
    osh_status rc = OSH_OK;
    osh_hub server = *hub; // views of the members of `hub`; the endpoint changes below
    reader x = {.hub = &server, .rows = rows};
    osh_at *dir = NULL;               // own
    char *made = NULL, *below = NULL; // own
    bool whole = false;
    size_t n;
    const char *part, *name = strrchr(path, '/') + 1, *under = path + strlen(hub->home) + 1;
    server.endpoint = hub->rows;
    if (!(below = osh_sprintf(cx, "%.*s", (int)(name - 1 - under), under))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_http_open(cx, &x.http, hub, NULL));
    OSH_TRY(osh_at_open(cx, &dir, hub->home, below));
    OSH_NEW(cx, x.lines, LINE_BYTES);
    OSH_TRY(osh_at_create(cx, &x.out, &made, dir, "new-"));
    for (; (!rows->most || x.n_rows < rows->most) &&
           (part = osh_split_part(rows->splits, x.part, &n));
         x.part++)
        OSH_TRY(rows_write_part(cx, &x, part, n));
    if (!x.n_rows) OSH_FAIL(cx, OSH_E_USAGE, "splits '%s' has no row", rows->splits);
    OSH_TRY(osh_file_sync(cx, x.out));
    OSH_TRY(rows_write_revision(cx, dir, name, &x));
    OSH_TRY(osh_at_rename(cx, x.out, dir, made, dir, name));
    whole = true;
done:
    if (rc) osh_note(cx, "asking %s for rows of %s", hub->rows, rows->id);
    if (made && !whole) osh_at_remove(cx, dir, made);
    osh_file_close(cx, x.out);
    osh_at_close(cx, dir);
    osh_http_reply_deinit(cx, &x.r);
    osh_http_close(cx, x.http);
    osh_free(cx, x.lines);
    osh_free(cx, x.config);
    osh_free(cx, x.split);
    osh_free(cx, below);
    osh_free(cx, made);
    return rc;
}
