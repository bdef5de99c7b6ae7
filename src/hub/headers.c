/* headers.c - a model without its weights, for a plan: of each safetensors file the header, by a range request, in a
 * file of the right size that is empty behind it and takes no space:
 *
 *   HF_HOME/oneshot/headers/models--org--name/<commit>/model-00001-of-00163.safetensors     header, then nothing
 *                                                      config.json -> the file in the cache
 *
 * No other program looks there: in the Hub's cache such a file would be taken for the weights. */
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "hub/pull.h"

enum { FIRST_BYTES = 16 << 10, // of a dense model all of a header; of many experts' the rest is asked for, and no more
       MAX_HEADER_BYTES = 100 << 20 };

typedef struct head { // the beginning of a file
    const osh_hub_file *f;
    const osh_hub_name *name;
    osh_buf bytes; // own
    int64_t want;  // of them
} head;

static osh_status on_begin(osh_ctx *cx, void *user, const osh_http_reply *r)
{
    const head *h = user;
    if (r->status == 200 && !h->bytes.len && h->want == h->f->n_bytes) return OSH_OK; // all of it was asked for
    if (r->status == 206 && r->range_from == (int64_t)h->bytes.len && r->range_total == h->f->n_bytes) return OSH_OK;
    return osh_fail(cx, OSH_E_UNSUPPORTED,
                    "%s of %s: the server does not send the part that is asked for: want `oneshot "
                    "pull` first",
                    h->f->path, h->name->id);
}

static osh_status on_take(osh_ctx *cx, void *user, const void *p, size_t n)
{
    head *h = user;
    if ((int64_t)(h->bytes.len + n) > h->want)
        return osh_fail(cx, OSH_E_IO, "%s of %s: more bytes than were asked for", h->f->path, h->name->id);
    return osh_buf_append(cx, &h->bytes, p, n);
}

/* On to h->want bytes. */
static osh_status fetch_to(osh_ctx *cx, osh_http *http, osh_hub_place *p, head *h)
{
    osh_status rc = OSH_OK;
    osh_http_reply r = {0};         // own
    char *url = NULL, *what = NULL; // own
    bool elsewhere;
    OSH_TRY(osh_hub_file_url(cx, &url, p, h->f));
    if (!(what = osh_sprintf(cx, "%s of %s", h->f->path, h->name->id))) OSH_TRY(OSH_E_NOMEM);
    for (int tried = 0; (int64_t)h->bytes.len < h->want; tried++) {
        osh_http_request q = {.url = url, .from = (int64_t)h->bytes.len, .to = h->want, .begin = on_begin,
                              .take = on_take, .user = h};
        OSH_TRY(osh_hub_follow(cx, http, &r, &elsewhere, p->hub, &q));
        if ((int64_t)h->bytes.len == h->want) break;
        bool cut = r.status == 206 || r.status == 200, expired = elsewhere && (r.status == 403 || r.status == 400);
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

static osh_status write_file(osh_ctx *cx, const char *path, const head *h)
{
    osh_status rc = OSH_OK;
    osh_file *out = NULL; // own
    char *temp = osh_sprintf(cx, "%s.oneshot-%ld", path, (long)getpid()); // own
    if (!temp) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_hub_parent_make(cx, path));
    OSH_TRY(osh_file_create(cx, &out, temp));
    OSH_TRY(osh_file_pwrite(cx, out, h->bytes.data, h->bytes.len, 0));
    OSH_TRY(osh_file_truncate(cx, out, h->f->n_bytes)); // longer
    OSH_TRY(osh_rename(cx, temp, path));
done:
    if (rc && out) unlink(temp);
    osh_file_close(cx, out);
    osh_free(cx, temp);
    return rc;
}

osh_status osh_hub_header_pull(osh_ctx *cx, osh_http *http, osh_hub_place *p, const osh_hub_file *f)
{
    osh_status rc = OSH_OK;
    head h = {.f = f, .name = p->name, .want = f->n_bytes < FIRST_BYTES ? f->n_bytes : FIRST_BYTES};
    uint64_t n = 0;
    int64_t has = -1, unused;
    char *path = osh_path_join(cx, p->headers, f->path); // own
    osh_buf_init(&h.bytes, 0);
    if (!path) OSH_TRY(OSH_E_NOMEM);
    if (osh_file_exists(path)) OSH_TRY(osh_file_stat(cx, &has, &unused, path));
    if (has == f->n_bytes) goto done;
    if (f->n_bytes < 8) OSH_FAIL(cx, OSH_E_FORMAT, "%s of %s: no safetensors file has %lld bytes", f->path, p->name->id,
                                 (long long)f->n_bytes);
    OSH_TRY(fetch_to(cx, http, p, &h));
    for (int i = 0; i < 8; i++) n |= (uint64_t)(unsigned char)h.bytes.data[i] << (8 * i);
    if (n > MAX_HEADER_BYTES || (int64_t)n + 8 > f->n_bytes)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s of %s: a header of %llu bytes in a file of %lld", f->path, p->name->id,
                 (unsigned long long)n, (long long)f->n_bytes);
    h.want = (int64_t)n + 8;
    if ((int64_t)h.bytes.len < h.want) OSH_TRY(fetch_to(cx, http, p, &h));
    h.bytes.len = (size_t)h.want; // nothing of a weight
    OSH_TRY(write_file(cx, path, &h));
done:
    osh_buf_deinit(cx, &h.bytes);
    osh_free(cx, path);
    return rc;
}

osh_status osh_hub_header_link(osh_ctx *cx, const osh_hub_place *p, const osh_hub_file *f)
{
    osh_status rc = OSH_OK;
    char *to = NULL, *from = osh_path_join(cx, p->snapshot, f->path), *link = osh_path_join(cx, p->headers, f->path);
    if (!from || !link) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_path_resolve(cx, &to, from));
    OSH_TRY(osh_hub_parent_make(cx, link));
    OSH_TRY(osh_hub_link(cx, link, to));
done:
    osh_free(cx, to);
    osh_free(cx, from);
    osh_free(cx, link);
    return rc;
}
