/* tree.c - gets the list of a repository's files from the Hub's API, and checks the names and sizes
 * that the server sends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hub/pull.h"

/* Limits of the answers: bytes of a page, number of pages, bytes of a text. */
enum { MAX_PAGE_BYTES = 64 << 20, MAX_PAGES = 1000, MAX_TEXT = 4096 };
/* Limits of the list in memory: number of files, and bytes of all names. */
enum { MAX_KEPT = 16384, MAX_NAME_BYTES = 2 << 20 };
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

typedef struct entry {                // an item of the server's list
    osh_buf type, path, oid, lfs_oid; // own
    int64_t n_bytes, n_lfs_bytes; // values of "size", and of "size" in the object "lfs"; -1: absent
    bool large; // true if the item has "lfs"; then `oid` and n_bytes describe only a pointer file
    unsigned seen; // bits of the keys that were read so far: one bit for each key
} entry;

typedef struct listing {
    osh_hub_tree *t;
    entry e;
} listing;

static osh_status tree_key_twice(osh_ctx *cx, const osh_json_walk *w, const char *key)
{
    return osh_fail(cx, OSH_E_FORMAT, "%s: the key '%s' occurs twice in one object", w->s.what,
                    key);
}

static osh_status lfs_member(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    entry *e = user;
    unsigned bit = !strcmp(key, "oid") ? 256 : !strcmp(key, "size") ? 512 : 0;
    if (e->seen & bit) return tree_key_twice(cx, w, key);
    e->seen |= bit;
    if (bit == 256) return osh_json_walk_string(w, &e->lfs_oid, "oid");
    return bit ? osh_json_walk_count(w, &e->n_lfs_bytes, "size") : osh_json_walk_skip(w);
}

static osh_status entry_member(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    static const char *const keys[] = {"type", "path", "oid", "size", "lfs"};
    entry *e = user;
    unsigned i = 0;
    while (i < 5 && strcmp(key, keys[i])) i++;
    if (i < 5 && e->seen & 1u << i) return tree_key_twice(cx, w, key);
    if (i < 5) e->seen |= 1u << i;
    if (i == 5 || osh_json_walk_peek(w) == 'n') return osh_json_walk_skip(w);
    if (i == 3) return osh_json_walk_count(w, &e->n_bytes, "size");
    if (i < 3)
        return osh_json_walk_string(w, i == 0 ? &e->type : i == 1 ? &e->path : &e->oid, keys[i]);
    e->large = true;
    return osh_json_walk_members(w, lfs_member, e);
}

/* True if a pull of a model may need the file. Only such files are added to the list. */
static bool file_is_kept(const char *path)
{
    const char *tail = ".safetensors";
    size_t n = strlen(path), k = strlen(tail);
    return osh_hub_is_side_file(path) || (n > k && !strcmp(path + n - k, tail));
}

static bool is_pickle(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && (!strcmp(path + n - 4, ".bin") || !strcmp(path + n - 4, ".pth"));
}

/* Appends a file to the list `t`. `e` describes the file. */
static osh_status file_keep(osh_ctx *cx, osh_hub_tree *t, const entry *e, const char *what)
{
    osh_status rc = OSH_OK;
    if (t->n == MAX_KEPT || t->n_name_bytes + e->path.len > MAX_NAME_BYTES)
        OSH_FAIL(
            cx, OSH_E_FORMAT,
            "%s: more than %zu files of a model, with names of %zu bytes: want at most %d, with %d",
            what, t->n, t->n_name_bytes, MAX_KEPT, MAX_NAME_BYTES);
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 64;
        osh_hub_file *more = osh_realloc(cx, t->files, cap * sizeof *more);
        if (!more) OSH_TRY(OSH_E_NOMEM);
        t->files = more, t->cap = cap;
    }
    osh_hub_file *f = &t->files[t->n];
    *f = (osh_hub_file){.n_bytes = e->large ? e->n_lfs_bytes : e->n_bytes};
    snprintf(f->etag, sizeof f->etag, "%s", e->large ? e->lfs_oid.data : e->oid.data);
    if (!(f->path = osh_strdup(cx, e->path.data))) OSH_TRY(OSH_E_NOMEM);
    t->n_name_bytes += e->path.len;
    t->n++;
done:
    return rc;
}

static const char *tree_buf_text(const osh_buf *b)
{
    return b->data ? b->data : "";
}

/* Reads and checks an item of the server's list. Appends the file to the list t if a pull may need
 * it. */
static osh_status tree_add_entry(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    osh_status rc = OSH_OK;
    listing *l = user;
    entry *e = &l->e;
    const char *what = w->s.what;
    (void)key;
    osh_buf_clear(&e->type), osh_buf_clear(&e->path), osh_buf_clear(&e->oid),
        osh_buf_clear(&e->lfs_oid);
    e->n_bytes = e->n_lfs_bytes = -1, e->large = false, e->seen = 0;
    if (osh_json_walk_peek(w) != '{')
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: wanted a list of files", what);
    OSH_TRY(osh_json_walk_members(w, entry_member, e));
    if (strcmp(tree_buf_text(&e->type), "file")) goto done;
    const char *path = tree_buf_text(&e->path),
               *id = tree_buf_text(e->large ? &e->lfs_oid : &e->oid);
    int64_t n_bytes = e->large ? e->n_lfs_bytes : e->n_bytes;
    int digits = e->large ? 64 : 40;
    if (!osh_hub_file_is_safe(path))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: '%.200s' is not a valid file name", what, path);
    if (n_bytes < 0) OSH_FAIL(cx, OSH_E_FORMAT, "%s: %.200s has no 'size', wanted one", what, path);
    if (!is_hex(id, (size_t)digits) || n_bytes > MAX_FILE_BYTES)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: %.200s has %lld bytes and the hash '%.80s', wanted one of %d hex digits and "
                 "at most 2^50 bytes",
                 what, path, (long long)n_bytes, id, digits);
    l->t->has_pickles |= is_pickle(path);
    if (file_is_kept(path)) OSH_TRY(file_keep(cx, l->t, e, what));
done:
    return rc;
}

osh_status osh_hub_tree_read(osh_ctx *cx, osh_hub_tree *t, osh_json_walk *w)
{
    osh_status rc = OSH_OK;
    listing l = {.t = t};
    osh_buf_init(&l.e.type, MAX_TEXT), osh_buf_init(&l.e.path, MAX_TEXT);
    osh_buf_init(&l.e.oid, MAX_TEXT), osh_buf_init(&l.e.lfs_oid, MAX_TEXT);
    if (osh_json_walk_peek(w) != '[')
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: wanted a list of files", w->s.what);
    OSH_TRY(osh_json_walk_items(w, tree_add_entry, &l));
    OSH_TRY(osh_json_walk_end(w));
done:
    osh_buf_deinit(cx, &l.e.type), osh_buf_deinit(cx, &l.e.path);
    osh_buf_deinit(cx, &l.e.oid), osh_buf_deinit(cx, &l.e.lfs_oid);
    return rc;
}

static int file_by_path(const void *a, const void *b)
{
    return strcmp(((const osh_hub_file *)a)->path, ((const osh_hub_file *)b)->path);
}

/* Sorts the files by path. Fails if two files have the same path. */
static osh_status tree_sort(osh_ctx *cx, osh_hub_tree *t, const char *what)
{
    osh_status rc = OSH_OK;
    if (t->n) qsort(t->files, t->n, sizeof *t->files, file_by_path);
    for (size_t i = 1; i < t->n; i++)
        if (!file_by_path(&t->files[i - 1], &t->files[i]))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: lists %.200s twice", what, t->files[i].path);
done:
    return rc;
}

/* Sets *out (own) to "ENDPOINT/api/models/org/name/verb/revision" with the revision encoded. */
static osh_status hub_api_url(osh_ctx *cx, char **out, const osh_hub *hub, const osh_hub_name *name,
                              const char *verb, const char *revision)
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

typedef struct sha {
    osh_buf text; // own
    bool seen;
} sha;

static osh_status sha_member(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    sha *s = user;
    if (strcmp(key, "sha") || osh_json_walk_peek(w) == 'n') return osh_json_walk_skip(w);
    if (s->seen) return tree_key_twice(cx, w, key);
    s->seen = true;
    return osh_json_walk_string(w, &s->text, "sha");
}

static osh_status tree_find_commit(osh_ctx *cx, char commit[41], osh_http *http, const osh_hub *hub,
                                   const osh_hub_name *name)
{
    osh_status rc = OSH_OK;
    osh_http_reply r = {0};         // own
    char *url = NULL, *what = NULL; // own
    osh_json_walk w = {0};          // own
    sha found = {0};                // own
    osh_buf_init(&found.text, MAX_TEXT);
    if (osh_hub_is_commit(name->revision)) {
        memcpy(commit, name->revision, 41);
        goto done;
    }
    if (!(what = osh_sprintf(cx, "%s@%s", name->id, name->revision))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(hub_api_url(cx, &url, hub, name, "revision", name->revision));
    OSH_TRY(osh_hub_ask(cx, http, &r, hub,
                        &(osh_http_request){.url = url, .max_body = MAX_PAGE_BYTES}, what));
    OSH_TRY(osh_hub_walk(cx, &w, &r, url));
    if (osh_json_walk_peek(&w) == '{')
        OSH_TRY(osh_json_walk_members(&w, sha_member, &found));
    else
        OSH_TRY(osh_json_walk_skip(&w));
    OSH_TRY(osh_json_walk_end(&w));
    if (!osh_hub_is_commit(tree_buf_text(&found.text)))
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: the answer has no commit of 40 hex digits, wanted the answer of a Hub", url);
    memcpy(commit, found.text.data, 41);
done:
    osh_json_walk_deinit(cx, &w);
    osh_buf_deinit(cx, &found.text);
    osh_http_reply_deinit(cx, &r);
    osh_free(cx, what);
    osh_free(cx, url);
    return rc;
}

/* Sets *out (own) to the address of the next page, from the header `Link: <address>; rel="next"`,
 * or to NULL if there is no next page. */
static osh_status tree_next_page(osh_ctx *cx, char **out, const osh_http_reply *r,
                                 const osh_hub *hub)
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
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: the list of files continues at '%.200s', wanted an address of the same "
                 "server",
                 hub->endpoint, *out);
done:
    osh_free(cx, line);
    return rc;
}

osh_status osh_hub_tree_get(osh_ctx *cx, osh_hub_tree *out, osh_http *http, const osh_hub *hub,
                            const osh_hub_name *name)
{
    osh_status rc = OSH_OK;
    osh_http_reply r = {0};         // own
    osh_json_walk w = {0};          // own
    char *url = NULL, *next = NULL; // own
    *out = (osh_hub_tree){0};
    OSH_TRY(tree_find_commit(cx, out->commit, http, hub, name));
    OSH_TRY(hub_api_url(cx, &url, hub, name, "tree", out->commit));
    if (!(next = osh_sprintf(cx, "%s?recursive=true", url))) OSH_TRY(OSH_E_NOMEM);
    for (int page = 0; next; page++) {
        if (page == MAX_PAGES)
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: more than %d pages of files", url, MAX_PAGES);
        OSH_TRY(osh_hub_ask(cx, http, &r, hub,
                            &(osh_http_request){.url = next, .max_body = MAX_PAGE_BYTES},
                            name->id));
        OSH_TRY(osh_hub_walk(cx, &w, &r, url));
        OSH_TRY(osh_hub_tree_read(cx, out, &w));
        osh_json_walk_deinit(cx, &w);
        OSH_TRY(tree_next_page(cx, &next, &r, hub));
    }
    OSH_TRY(tree_sort(cx, out, url));
done:
    osh_json_walk_deinit(cx, &w);
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
