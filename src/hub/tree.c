/* tree.c - what a repository holds, by the Hub's API; names and sizes come from a stranger and are checked here. */
#include <stdio.h>
#include <string.h>

#include "hub/pull.h"
#include "text/json.h"

enum { MAX_PAGE_BYTES = 64 << 20, MAX_PAGES = 1000, MAX_FILES = 100000 };
static const int64_t MAX_FILE_BYTES = (int64_t)1 << 50;

static bool is_hex(const char *s, size_t n)
{
    return strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

void osh_hub_tree_deinit(osh_ctx *cx, osh_hub_tree *t)
{
    for (size_t i = 0; i < t->n; i++) osh_free(cx, t->files[i].path);
    osh_free(cx, t->files);
    *t = (osh_hub_tree){0};
}

const osh_hub_file *osh_hub_tree_find(const osh_hub_tree *t, const char *path)
{
    for (size_t i = 0; i < t->n; i++)
        if (!strcmp(t->files[i].path, path)) return &t->files[i];
    return NULL;
}

static osh_status add_file(osh_ctx *cx, osh_hub_tree *t, const cJSON *o, const char *what)
{
    osh_status rc = OSH_OK;
    const char *path = NULL, *id = NULL;
    int64_t n_bytes = -1;
    OSH_TRY(osh_json_str_or(cx, &path, o, "path", "", what));
    if (!osh_hub_file_is_safe(path))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: '%.200s' is no name that a file may have", what, path);
    const cJSON *lfs = cJSON_GetObjectItemCaseSensitive(o, "lfs");
    bool large = cJSON_IsObject(lfs); // then the entry's own oid is that of a pointer
    OSH_TRY(osh_json_str_or(cx, &id, large ? lfs : o, "oid", "", what));
    OSH_TRY(osh_json_int(cx, &n_bytes, large ? lfs : o, "size", what));
    if (!is_hex(id, large ? 64 : 40) || n_bytes < 0 || n_bytes > MAX_FILE_BYTES)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %.200s has %lld bytes and the hash '%.80s', wanted one of %d hex digits", what,
                 path, (long long)n_bytes, id, large ? 64 : 40);
    if (t->n == MAX_FILES) OSH_FAIL(cx, OSH_E_FORMAT, "%s: more than %d files", what, MAX_FILES);
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 64;
        osh_hub_file *more = osh_realloc(cx, t->files, cap * sizeof *more);
        if (!more) OSH_TRY(OSH_E_NOMEM);
        t->files = more, t->cap = cap;
    }
    osh_hub_file *f = &t->files[t->n];
    *f = (osh_hub_file){.n_bytes = n_bytes};
    memcpy(f->etag, id, strlen(id));
    if (!(f->path = osh_strdup(cx, path))) OSH_TRY(OSH_E_NOMEM);
    t->n++;
done:
    return rc;
}

osh_status osh_hub_tree_read(osh_ctx *cx, osh_hub_tree *t, const char *text, size_t n, const char *what)
{
    osh_status rc = OSH_OK;
    cJSON *list = NULL; // own
    OSH_TRY(osh_json_parse(cx, &list, text, n, what, 0));
    if (!cJSON_IsArray(list)) OSH_FAIL(cx, OSH_E_FORMAT, "%s: wanted a list of files", what);
    for (const cJSON *o = list->child; o; o = o->next) {
        const char *type = NULL;
        if (!cJSON_IsObject(o)) OSH_FAIL(cx, OSH_E_FORMAT, "%s: wanted a list of files", what);
        OSH_TRY(osh_json_str_or(cx, &type, o, "type", "", what));
        if (!strcmp(type, "file")) OSH_TRY(add_file(cx, t, o, what));
    }
done:
    cJSON_Delete(list);
    return rc;
}

/* "EP/api/models/org/name", then parts that are encoded whole. */
static osh_status api_url(osh_ctx *cx, char **out, const osh_hub *hub, const osh_hub_name *name, const char *verb,
                          const char *revision)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    OSH_TRY(osh_buf_printf(cx, &b, "%s/api/%s/%s/%s/", hub->endpoint,
                           name->kind == OSH_HUB_DATASET ? "datasets" : "models", name->id, verb));
    OSH_TRY(osh_http_encode(cx, &b, revision, ""));
    osh_free(cx, *out);
    if (!(*out = osh_strdup(cx, b.data))) rc = OSH_E_NOMEM;
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static osh_status find_commit(osh_ctx *cx, char commit[41], osh_http *http, const osh_hub *hub,
                              const osh_hub_name *name)
{
    osh_status rc = OSH_OK;
    osh_http_reply r = {0};                            // own
    char *url = NULL, *what = NULL; // own
    cJSON *json = NULL;             // own
    const char *sha = NULL;
    if (osh_hub_is_commit(name->revision)) {
        memcpy(commit, name->revision, 41);
        goto done;
    }
    if (!(what = osh_sprintf(cx, "%s@%s", name->id, name->revision))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(api_url(cx, &url, hub, name, "revision", name->revision));
    OSH_TRY(osh_hub_ask(cx, http, &r, hub, &(osh_http_request){.url = url, .max_body = MAX_PAGE_BYTES}, what));
    OSH_TRY(osh_json_parse(cx, &json, r.body.data ? r.body.data : "", r.body.len, url, 0));
    OSH_TRY(osh_json_str_or(cx, &sha, json, "sha", "", url));
    if (!osh_hub_is_commit(sha))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: has no commit of 40 hex digits in its answer, which a Hub has", url);
    memcpy(commit, sha, 41);
done:
    cJSON_Delete(json);
    osh_http_reply_deinit(cx, &r);
    osh_free(cx, what);
    osh_free(cx, url);
    return rc;
}

/* Of `Link: <address>; rel="next"` the address. own; NULL: there is none */
static osh_status next_page(osh_ctx *cx, char **out, const osh_http_reply *r, const osh_hub *hub)
{
    osh_status rc = OSH_OK;
    size_t n;
    const char *s = osh_http_header(r, "Link", &n), *end = n ? memchr(s, '>', n) : NULL;
    char *line = NULL; // own
    osh_free(cx, *out), *out = NULL;
    if (!end || *s != '<') goto done;
    if (!(line = osh_sprintf(cx, "%.*s", (int)n, s))) OSH_TRY(OSH_E_NOMEM);
    if (!strstr(line + (end - s), "rel=\"next\"")) goto done;
    if (!(*out = osh_sprintf(cx, "%.*s", (int)(end - s - 1), line + 1))) OSH_TRY(OSH_E_NOMEM);
    if (!osh_http_is_url(*out) || !osh_http_same_host(*out, hub->endpoint))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: the list of files goes on at '%.200s'", hub->endpoint, *out);
done:
    osh_free(cx, line);
    return rc;
}

osh_status osh_hub_tree_get(osh_ctx *cx, osh_hub_tree *out, osh_http *http, const osh_hub *hub,
                            const osh_hub_name *name)
{
    osh_status rc = OSH_OK;
    osh_http_reply r = {0}; // own
    char *url = NULL, *next = NULL; // own
    *out = (osh_hub_tree){0};
    OSH_TRY(find_commit(cx, out->commit, http, hub, name));
    OSH_TRY(api_url(cx, &url, hub, name, "tree", out->commit));
    if (!(next = osh_sprintf(cx, "%s?recursive=true", url))) OSH_TRY(OSH_E_NOMEM);
    for (int page = 0; next; page++) {
        if (page == MAX_PAGES) OSH_FAIL(cx, OSH_E_FORMAT, "%s: more than %d pages of files", url, MAX_PAGES);
        OSH_TRY(osh_hub_ask(cx, http, &r, hub, &(osh_http_request){.url = next, .max_body = MAX_PAGE_BYTES}, name->id));
        OSH_TRY(osh_hub_tree_read(cx, out, r.body.data ? r.body.data : "", r.body.len, url));
        OSH_TRY(next_page(cx, &next, &r, hub));
    }
done:
    osh_http_reply_deinit(cx, &r);
    osh_free(cx, next);
    osh_free(cx, url);
    return rc;
}

bool osh_hub_is_side_file(const char *path)
{
    static const char *const tails[] = {".json", ".jinja", ".model", ".tiktoken", ".py"};
    static const char *const names[] = {"merges.txt", "vocab.txt", "README.md"};
    const char *dir = "additional_chat_templates/";
    const char *name = !strncmp(path, dir, strlen(dir)) ? path + strlen(dir) : path;
    size_t n = strlen(name);
    if (strchr(name, '/')) return false;
    if (name != path) return n > 6 && !strcmp(name + n - 6, ".jinja");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return true;
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        size_t k = strlen(tails[i]);
        if (n > k && !strcmp(name + n - k, tails[i])) return true;
    }
    return !strncmp(name, "LICENSE", 7);
}
