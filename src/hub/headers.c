/* headers.c - downloads a model without its weights, for a plan. A range request gets the header of
 * each safetensors file. Each written file has the size of the complete file, with a hole after the
 * header:
 *
 *   HF_HOME/oneshot/headers/models--org--name/<commit>/
 *       model-00001-of-00163.safetensors     header, then a hole
 *       config.json                          -> the file in the cache
 *
 * This directory is outside of the Hub's cache: other programs would take such a file for complete
 * weights. */
#include <string.h>

#include "base/file.h"
#include "hub/pull.h"

enum {
    /* Number of bytes of the first request. It is enough for the header of a dense model; a longer
     * header needs a second request. */
    FIRST_BYTES = 16 << 10,
    MAX_HEADER_BYTES = 100 << 20
};

typedef struct head { // the beginning of a safetensors file
    const osh_hub_file *f;
    const osh_hub_name *name;
    osh_file *out;     // own
    int64_t has, want; // has: number of bytes fetched so far; want: number of bytes to fetch
} head;

/* Checks that the answer is the requested part of the file. */
static osh_status head_on_begin(osh_ctx *cx, void *user, const osh_http_reply *r)
{
    const head *h = user;
    if (r->status == 200 && !h->has && h->want == h->f->n_bytes)
        return OSH_OK; // the whole file was requested, so an answer without a range is right
    if (r->status == 206 && r->range_from == h->has && r->range_total == h->f->n_bytes)
        return OSH_OK;
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "%s of %s: the server does not send the requested part: want `oneshot pull` "
                    "first",
                    h->f->path, h->name->id);
}

static osh_status head_on_take(osh_ctx *cx, void *user, const void *p, size_t n)
{
    osh_status rc = OSH_OK;
    head *h = user;
    if ((int64_t)n > h->want - h->has)
        OSH_FAIL(cx, OSH_E_IO, "%s of %s: the server sent more bytes than requested", h->f->path,
                 h->name->id);
    OSH_TRY(osh_file_pwrite(cx, h->out, p, n, h->has));
    h->has += (int64_t)n;
done:
    return rc;
}

/* Fetches bytes of the file until h->want bytes are fetched. */
static osh_status head_fetch(osh_ctx *cx, osh_http *http, osh_hub_place *p, head *h)
{
    osh_status rc = OSH_OK;
    osh_http_reply r = {0};         // own
    char *url = NULL, *what = NULL; // own
    bool elsewhere;
    OSH_TRY(osh_hub_file_url(cx, &url, p, h->f));
    if (!(what = osh_sprintf(cx, "%s of %s", h->f->path, h->name->id))) OSH_TRY(OSH_E_NOMEM);
    for (int tried = 0; h->has < h->want; tried++) {
        osh_http_request q = {.url = url,
                              .from = h->has,
                              .to = h->want,
                              .begin = head_on_begin,
                              .take = head_on_take,
                              .user = h};
        OSH_TRY(osh_hub_follow(cx, http, &r, &elsewhere, p->hub, &q));
        if (h->has == h->want) break;
        bool cut = r.status == 206 || r.status == 200,
             expired = elsewhere && (r.status == 403 || r.status == 400);
        if ((!cut && !expired && !osh_hub_passes(&r)) || tried == OSH_HUB_RETRIES)
            OSH_TRY(osh_hub_refused(cx, p->hub, &r, what));
        OSH_TRY(osh_hub_pause(cx, &r, tried, &p->stop));
    }
done:
    osh_http_reply_deinit(cx, &r);
    osh_free(cx, what);
    osh_free(cx, url);
    return rc;
}

/* Opens the directory below HF_HOME in which the file f will be. Sets *name to the last part of
 * f->path, a view of f. */
static osh_status head_open_dir(osh_ctx *cx, osh_at **out, const char **name,
                                const osh_hub_place *p, const osh_hub_file *f)
{
    const char *slash = strrchr(f->path, '/'), *below = p->headers + strlen(p->hub->home) + 1;
    *name = slash ? slash + 1 : f->path;
    char *dir = osh_sprintf(cx, "%s%s%.*s", below, slash ? "/" : "",
                            slash ? (int)(slash - f->path) : 0, f->path); // own
    osh_status rc = dir ? osh_at_open(cx, out, p->hub->home, dir) : OSH_E_NOMEM;
    osh_free(cx, dir);
    return rc;
}

/* Writes the header of the file to h->out. The rest up to the size of the file is a hole. */
static osh_status head_write(osh_ctx *cx, osh_http *http, osh_hub_place *p, head *h)
{
    osh_status rc = OSH_OK;
    uint64_t n = 0;
    unsigned char first[8];
    OSH_TRY(head_fetch(cx, http, p, h));
    OSH_TRY(osh_file_pread(cx, h->out, first, sizeof first, 0));
    for (int i = 0; i < 8; i++) n |= (uint64_t)first[i] << (8 * i);
    if (n > MAX_HEADER_BYTES || (int64_t)n + 8 > h->f->n_bytes)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s of %s: a header of %llu bytes in a file of %lld", h->f->path,
                 p->name->id, (unsigned long long)n, (long long)h->f->n_bytes);
    h->want = (int64_t)n + 8;
    if (h->has < h->want) OSH_TRY(head_fetch(cx, http, p, h));
    // removes bytes of weights that were fetched after the header
    OSH_TRY(osh_file_truncate(cx, h->out, h->want));
    OSH_TRY(osh_file_truncate(cx, h->out, h->f->n_bytes)); // makes the hole
done:
    return rc;
}

osh_status osh_hub_header_pull(osh_ctx *cx, osh_http *http, osh_hub_place *p, const osh_hub_file *f)
{
    osh_status rc = OSH_OK;
    head h = {.f = f, .name = p->name, .want = f->n_bytes < FIRST_BYTES ? f->n_bytes : FIRST_BYTES};
    int64_t has = -1, unused;
    osh_at *dir = NULL; // own
    const char *name = NULL;
    char *made = NULL; // own
    bool whole = false;
    char *path = osh_path_join(cx, p->headers, f->path); // own
    if (!path) OSH_TRY(OSH_E_NOMEM);
    if (osh_file_exists(path)) OSH_TRY(osh_file_stat(cx, &has, &unused, path));
    if (has == f->n_bytes) goto done;
    if (f->n_bytes < 8)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s of %s: a file of %lld bytes is not a safetensors file",
                 f->path, p->name->id, (long long)f->n_bytes);
    OSH_TRY(head_open_dir(cx, &dir, &name, p, f));
    OSH_TRY(osh_at_create(cx, &h.out, &made, dir, "new-"));
    OSH_TRY(head_write(cx, http, p, &h));
    OSH_TRY(osh_at_rename(cx, h.out, dir, made, dir, name));
    whole = true;
done:
    if (made && !whole) osh_at_remove(cx, dir, made);
    osh_file_close(cx, h.out);
    osh_at_close(cx, dir);
    osh_free(cx, made);
    osh_free(cx, path);
    return rc;
}

osh_status osh_hub_header_link(osh_ctx *cx, const osh_hub_place *p, const osh_hub_file *f)
{
    osh_status rc = OSH_OK;
    osh_at *dir = NULL; // own
    const char *name = NULL;
    char *to = NULL, *from = osh_path_join(cx, p->snapshot, f->path); // own
    if (!from) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_path_resolve(cx, &to, from));
    OSH_TRY(head_open_dir(cx, &dir, &name, p, f));
    OSH_TRY(osh_at_link(cx, dir, name, dir, to));
done:
    osh_at_close(cx, dir);
    osh_free(cx, to);
    osh_free(cx, from);
    return rc;
}
