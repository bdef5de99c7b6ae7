/* blob.c - one file of a repository into the cache:
 *
 *   .locks/models--org--name/<etag>.lock     held meanwhile: who comes second finds it done
 *   blobs/<etag>.oneshot.incomplete          grows; a later attempt, or run, goes on at its end
 *   blobs/<etag>                             its name when size and hash are right
 *   snapshots/<commit>/<path>                a link to that
 *
 * A request begins at the Hub each time: the address it redirects to is signed, and expires. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "hub/pull.h"
#include "hub/sha.h"

/* A file of more than LARGE is asked for in pieces: servers refuse one answer of that size. */
static const int64_t LARGE = 50000000000, PIECE = 8000000000;

typedef struct fetch { // a file that grows
    osh_hub_place *p;
    const osh_hub_file *f;
    osh_file *out; // own
    char *partial; // own: its path
    int64_t at;    // bytes that it has
    osh_sha sha;   // of these
} fetch;

static bool has_size(const char *path, int64_t n)
{
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode) && st.st_size == n;
}

static void sha_begin(fetch *x)
{
    char head[40];
    if (strlen(x->f->etag) == 64) {
        osh_sha256_begin(&x->sha);
        return;
    }
    osh_sha1_begin(&x->sha); // of git's object, which has a head
    int n = snprintf(head, sizeof head, "blob %lld", (long long)x->f->n_bytes);
    osh_sha_feed(&x->sha, head, (size_t)n + 1);
}

static osh_status start_over(osh_ctx *cx, fetch *x)
{
    atomic_fetch_sub(&x->p->done, x->at);
    x->at = 0;
    sha_begin(x);
    return osh_file_truncate(cx, x->out, 0);
}

static void feed_sha(void *user, const void *p, size_t n) { osh_sha_feed(&((fetch *)user)->sha, p, n); }

/* What an earlier attempt left is read once: its hash goes on from there. */
static osh_status open_partial(osh_ctx *cx, fetch *x)
{
    enum { STEP = 16 << 20 };
    osh_status rc = OSH_OK;
    OSH_TRY(osh_file_open_or_create(cx, &x->out, x->partial));
    int64_t n = osh_file_bytes(x->out);
    sha_begin(x);
    if (n > x->f->n_bytes) OSH_TRY(osh_file_truncate(cx, x->out, n = 0));
    while (x->at < n) {
        size_t k = n - x->at < STEP ? (size_t)(n - x->at) : STEP;
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(osh_file_scan(cx, x->out, k, x->at, feed_sha, x));
        x->at += (int64_t)k;
        atomic_fetch_add(&x->p->done, (long long)k);
    }
done:
    return rc;
}

static osh_status on_begin(osh_ctx *cx, void *user, const osh_http_reply *r)
{
    fetch *x = user;
    if (r->status == 200) return x->at ? start_over(cx, x) : OSH_OK; // the range was not looked at
    if (r->range_from == x->at && r->range_total == x->f->n_bytes) return OSH_OK;
    return osh_fail(cx, OSH_E_IO, "%s of %s: asked for bytes from %lld of %lld on, got them from %lld of %lld on",
                    x->f->path, x->p->name->id, (long long)x->at, (long long)x->f->n_bytes, (long long)r->range_from,
                    (long long)r->range_total);
}

static osh_status on_take(osh_ctx *cx, void *user, const void *bytes, size_t n)
{
    osh_status rc = OSH_OK;
    fetch *x = user;
    if ((int64_t)n > x->f->n_bytes - x->at)
        OSH_FAIL(cx, OSH_E_IO, "%s of %s: more than the %lld bytes that it has came", x->f->path, x->p->name->id,
                 (long long)x->f->n_bytes);
    OSH_TRY(osh_file_pwrite(cx, x->out, bytes, n, x->at));
    osh_sha_feed(&x->sha, bytes, n);
    x->at += (int64_t)n;
    atomic_fetch_add(&x->p->done, (long long)n);
done:
    return rc;
}

osh_status osh_hub_file_url(osh_ctx *cx, char **out, const osh_hub_place *p, const osh_hub_file *f)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    OSH_TRY(osh_buf_printf(cx, &b, "%s/%s%s/resolve/%s/", p->hub->endpoint,
                           p->name->kind == OSH_HUB_DATASET ? "datasets/" : "", p->name->id, p->commit));
    OSH_TRY(osh_http_encode(cx, &b, f->path, "/"));
    if (!(*out = osh_strdup(cx, b.data))) rc = OSH_E_NOMEM;
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Requests until the file has all its bytes. Each that brings some counts as a new beginning. */
static osh_status fetch_bytes(osh_ctx *cx, osh_http *http, fetch *x)
{
    osh_status rc = OSH_OK;
    osh_http_reply r = {0};         // own
    char *url = NULL, *what = NULL; // own
    int64_t n = x->f->n_bytes;
    bool elsewhere;
    OSH_TRY(osh_hub_file_url(cx, &url, x->p, x->f));
    if (!(what = osh_sprintf(cx, "%s of %s", x->f->path, x->p->name->id))) OSH_TRY(OSH_E_NOMEM);
    for (int tried = 0; x->at < n;) {
        int64_t before = x->at;
        osh_http_request q = {.url = url, .from = x->at, .begin = on_begin, .take = on_take, .user = x};
        if (n > LARGE) q.to = n - x->at < PIECE ? n : x->at + PIECE;
        OSH_TRY(osh_hub_follow(cx, http, &r, &elsewhere, x->p->hub, &q));
        bool whole = r.status == 206 && q.to && x->at == q.to;
        if (x->at == n || whole) continue;
        if (r.status == 416) OSH_TRY(start_over(cx, x));
        bool cut = r.status == 200 || r.status == 206, expired = elsewhere && (r.status == 403 || r.status == 400);
        if (!cut && !expired && r.status != 416 && !osh_hub_passes(&r))
            OSH_TRY(osh_hub_refused(cx, x->p->hub, &r, what));
        if (x->at > before) tried = 0;
        if (tried == OSH_HUB_RETRIES) {
            if (cut) OSH_FAIL(cx, OSH_E_IO, "%s: %lld of %lld bytes came", what, (long long)x->at, (long long)n);
            OSH_TRY(osh_hub_refused(cx, x->p->hub, &r, what));
        }
        OSH_TRY(osh_hub_pause(cx, &r, tried++, &x->p->stop));
    }
done:
    osh_http_reply_deinit(cx, &r);
    osh_free(cx, what);
    osh_free(cx, url);
    return rc;
}

/* Where the hash is another, once more from the start: what was left of an earlier run may be to blame. */
static osh_status fetch_file(osh_ctx *cx, osh_http *http, osh_hub_place *p, const osh_hub_file *f, const char *to)
{
    osh_status rc = OSH_OK;
    fetch x = {.p = p, .f = f};
    char hex[65];
    if (!(x.partial = osh_sprintf(cx, "%s/blobs/%s.oneshot.incomplete", p->repo, f->etag))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(open_partial(cx, &x));
    for (int tried = 0;; tried++) {
        OSH_TRY(fetch_bytes(cx, http, &x));
        osh_sha_end(&x.sha, hex);
        if (!strcmp(hex, f->etag)) break;
        OSH_TRY(start_over(cx, &x));
        if (tried)
            OSH_FAIL(cx, OSH_E_IO, "%s of %s: its SHA-%s is %s, wanted %s", f->path, p->name->id,
                     strlen(f->etag) == 64 ? "256" : "1", hex, f->etag);
        osh_log(cx, OSH_LOG_INFO, "%s of %s: the checksum is wrong: again from its start", f->path, p->name->id);
    }
    OSH_TRY(osh_file_sync(cx, x.out));
    OSH_TRY(osh_rename(cx, x.partial, to));
done:
    osh_file_close(cx, x.out);
    osh_free(cx, x.partial);
    return rc;
}

static osh_status take_lock(osh_ctx *cx, osh_file **out, osh_hub_place *p, const osh_hub_file *f)
{
    osh_status rc = OSH_OK;
    bool taken = false;
    char *path = osh_sprintf(cx, "%s/%s.lock", p->locks, f->etag); // own
    if (!path) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_file_open_or_create(cx, out, path));
    for (bool said = false;; said = true) {
        OSH_TRY(osh_file_lock(cx, *out, &taken));
        if (taken) break;
        if (!said) osh_log(cx, OSH_LOG_INFO, "%s: another process has %s", p->name->id, f->path);
        OSH_TRY(osh_check_interrupt(cx));
        if (atomic_load(&p->stop)) OSH_FAIL(cx, OSH_E_INTERRUPTED, "another file failed");
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
done:
    osh_free(cx, path);
    return rc;
}

osh_status osh_hub_parent_make(osh_ctx *cx, const char *path)
{
    char *dir = osh_strdup(cx, path); // own
    if (!dir) return OSH_E_NOMEM;
    *strrchr(dir, '/') = 0;
    osh_status rc = osh_dir_make(cx, dir);
    osh_free(cx, dir);
    return rc;
}

osh_status osh_hub_link(osh_ctx *cx, const char *link, const char *to)
{
    osh_status rc = OSH_OK;
    char *temp = osh_sprintf(cx, "%s.oneshot-%ld", link, (long)getpid()); // own
    if (!temp) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_file_remove(cx, temp));
    if (symlink(to, temp)) {
        char why[128];
        OSH_FAIL(cx, OSH_E_IO, "cannot link %s: %s; HF_HUB_DISABLE_SYMLINKS=1 does without", link,
                 strerror_r(errno, why, sizeof why));
    }
    OSH_TRY(osh_rename(cx, temp, link));
done:
    osh_free(cx, temp);
    return rc;
}

/* "../../blobs/<etag>", with one more ../ for each folder of the path. */
static osh_status link_file(osh_ctx *cx, const char *link, const osh_hub_file *f)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    OSH_TRY(osh_buf_printf(cx, &b, "../../"));
    for (const char *s = f->path; (s = strchr(s, '/')); s++) OSH_TRY(osh_buf_printf(cx, &b, "../"));
    OSH_TRY(osh_buf_printf(cx, &b, "blobs/%s", f->etag));
    OSH_TRY(osh_hub_link(cx, link, b.data));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

osh_status osh_hub_file_pull(osh_ctx *cx, osh_http *http, osh_hub_place *p, const osh_hub_file *f)
{
    osh_status rc = OSH_OK;
    osh_file *lock = NULL; // own
    char *link = osh_path_join(cx, p->snapshot, f->path),
         *blob = osh_sprintf(cx, "%s/blobs/%s", p->repo, f->etag); // own
    if (!link || !blob) OSH_TRY(OSH_E_NOMEM);
    bool there = has_size(link, f->n_bytes);
    if (!there) {
        OSH_TRY(take_lock(cx, &lock, p, f));
        there = has_size(blob, f->n_bytes);
        OSH_TRY(osh_hub_parent_make(cx, link));
        if (!there) OSH_TRY(fetch_file(cx, http, p, f, p->hub->no_links ? link : blob));
        if (!p->hub->no_links) OSH_TRY(link_file(cx, link, f));
        else if (there) OSH_TRY(osh_file_copy(cx, link, blob));
    }
    if (there) atomic_fetch_add(&p->done, f->n_bytes);
done:
    osh_file_close(cx, lock);
    osh_free(cx, link);
    osh_free(cx, blob);
    return rc;
}

osh_status osh_hub_file_lacks(osh_ctx *cx, int64_t *n_bytes, const osh_hub_place *p, const osh_hub_file *f)
{
    osh_status rc = OSH_OK;
    struct stat st;
    char *link = osh_path_join(cx, p->snapshot, f->path),
         *blob = osh_sprintf(cx, "%s/blobs/%s", p->repo, f->etag);                       // own
    char *partial = osh_sprintf(cx, "%s/blobs/%s.oneshot.incomplete", p->repo, f->etag); // own
    *n_bytes = 0;
    if (!link || !blob || !partial) OSH_TRY(OSH_E_NOMEM);
    if (has_size(link, f->n_bytes) || has_size(blob, f->n_bytes)) goto done;
    *n_bytes = f->n_bytes - (stat(partial, &st) || st.st_size > f->n_bytes ? 0 : st.st_size);
done:
    osh_free(cx, link);
    osh_free(cx, blob);
    osh_free(cx, partial);
    return rc;
}
