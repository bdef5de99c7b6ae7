/* fetch.c - fetches the bytes of one file. Each idle thread fetches a part (a range of bytes):
 *
 *   blobs/<etag>.oneshot.incomplete     the bytes so far; a large file has holes for missing parts
 *   blobs/<etag>.oneshot.ranges         record: the ranges of a large file (ranges.h); without a
 *                                       record, the incomplete file has no holes
 *
 * Both files stay if a run ends early, and the next run continues with them. At the end the hash of
 * the whole file is checked, so wrong bytes are noticed. If a server ignores range requests, the
 * file is fetched as one stream. Each request goes to the Hub first, because the address to which
 * the Hub redirects is signed and expires. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "hub/pull.h"
#include "hub/ranges.h"
#include "hub/sha.h"

/* Largest number of bytes of one request. Servers refuse answers of more than 50 GB. */
static const int64_t MOST_ASKED = 8000000000;

typedef struct osh_fetch { // a file that is being downloaded
    osh_hub_place *p;
    const osh_hub_file *f;
    /* The incomplete file, and the record. The record is NULL if the file is fetched as one
     * stream. */
    osh_file *out, *record; // own
    osh_at *blobs;          // own
    /* own: names of the incomplete file and of the record in the directory blobs. */
    char *partial, *ranges;
    struct osh_fetch *next; // view: next item of the list p->open
    osh_ranges parts; // parts of the file; p->lock protects this member, at_work and no_ranges
    int at_work;            // number of other threads that fetch a part of the file
    bool no_ranges;         // true if the server ignores range requests
} osh_fetch;

typedef struct stream { // one request for a part of the file
    osh_fetch *x;
    osh_part *part;
    int64_t asked_end;
    bool over; // true if the rest of the answer is not needed
} stream;

bool osh_hub_fetch_has_parts(const osh_hub_file *f) { return f->n_bytes >= 2 * OSH_LEAST_PART; }

/* Writes x->parts to the record. The caller holds p->lock, or x is not yet known to other
 * threads. */
static osh_status fetch_save_ranges(osh_ctx *cx, osh_fetch *x)
{
    char text[OSH_RANGES_BYTES];
    if (!x->record) return OSH_OK;
    return osh_file_pwrite(cx, x->record, text, osh_ranges_write(text, &x->parts), 0);
}

/* Fails if another process has renamed or removed the incomplete file. This can happen because some
 * network file systems have no locks. */
static osh_status fetch_check_name(osh_ctx *cx, const osh_fetch *x)
{
    const char *path = osh_file_path(x->out);
    if (osh_file_is_at(x->out, path)) return OSH_OK;
    return osh_fail(cx, OSH_E_IO,
                    "%s: another process has removed or renamed it: run the same command again",
                    path);
}

/* Discards all fetched bytes. A file with parts then gets its full size, because parts arrive in
 * any order. */
static osh_status fetch_start_over(osh_ctx *cx, osh_fetch *x)
{
    osh_status rc = OSH_OK;
    pthread_mutex_lock(&x->p->lock);
    atomic_fetch_sub(&x->p->done, (long long)osh_ranges_done(&x->parts));
    osh_ranges_init(&x->parts, x->f->n_bytes, 0);
    OSH_TRY(fetch_check_name(cx, x));
    OSH_TRY(fetch_save_ranges(cx, x));
    OSH_TRY(osh_file_truncate(cx, x->out, 0));
    if (x->record) OSH_TRY(osh_file_truncate(cx, x->out, x->f->n_bytes));
done:
    pthread_mutex_unlock(&x->p->lock);
    return rc;
}

/* Opens the incomplete file and the record of an earlier run, or makes them. */
static osh_status fetch_open_partial(osh_ctx *cx, osh_fetch *x)
{
    osh_status rc = OSH_OK;
    char text[OSH_RANGES_BYTES];
    int64_t total = x->f->n_bytes;
    OSH_TRY(osh_at_resume(cx, &x->out, x->blobs, x->partial));
    int64_t has = osh_file_bytes(x->out), n;
    osh_ranges_init(&x->parts, total, has > total ? 0 : has);
    if (has > total) OSH_TRY(osh_file_truncate(cx, x->out, 0));
    if (osh_hub_fetch_has_parts(x->f)) {
        OSH_TRY(osh_at_resume(cx, &x->record, x->blobs, x->ranges));
        if ((n = osh_file_bytes(x->record)) == OSH_RANGES_BYTES) {
            OSH_TRY(osh_file_pread(cx, x->record, text, (size_t)n, 0));
            osh_ranges parts;
            if (osh_ranges_read(&parts, text, (size_t)n, total) && osh_ranges_done(&parts) <= has)
                x->parts = parts;
        } else if (n) OSH_TRY(osh_file_truncate(cx, x->record, 0));
        OSH_TRY(fetch_save_ranges(cx, x));
        OSH_TRY(osh_file_truncate(cx, x->out, total));
    }
    atomic_fetch_add(&x->p->done, (long long)osh_ranges_done(&x->parts));
done:
    return rc;
}

/* Checks that the answer is the requested part. If the server sends the whole file instead of a
 * part, sets s->over and returns OSH_E_IO to end the request. Because of s->over, the caller does
 * not treat this as a failure. */
static osh_status fetch_on_begin(osh_ctx *cx, void *user, const osh_http_reply *r)
{
    osh_status rc = OSH_OK;
    stream *s = user;
    osh_fetch *x = s->x;
    // the answer is the whole file, because the server ignores ranges
    if (r->status == 200 && x->record) {
        pthread_mutex_lock(&x->p->lock);
        x->no_ranges = s->over = true;
        pthread_mutex_unlock(&x->p->lock);
        return OSH_E_IO;
    }
    /* The server ignores ranges and sends the file from its first byte. */
    if (r->status == 200) return s->part->at ? fetch_start_over(cx, x) : OSH_OK;
    if (r->range_from != s->part->at || r->range_total != x->f->n_bytes)
        OSH_FAIL(cx, OSH_E_IO,
                 "%s of %s: asked for bytes from %lld of %lld, got bytes from %lld of %lld",
                 x->f->path, x->p->name->id, (long long)s->part->at, (long long)x->f->n_bytes,
                 (long long)r->range_from, (long long)r->range_total);
done:
    return rc;
}

/* Writes bytes of the part to the file, and the new ranges to the record. If the rest of the answer
 * is not needed, ends the request: returns OSH_E_IO, but sets s->over, so that this is not a
 * failure. */
static osh_status fetch_on_take(osh_ctx *cx, void *user, const void *bytes, size_t n)
{
    osh_status rc = OSH_OK;
    stream *s = user;
    osh_fetch *x = s->x;
    pthread_mutex_lock(&x->p->lock);
    /* The end of the part changes if another thread takes the second half of the part. */
    int64_t at = s->part->at, left = s->part->end - at;
    s->over |= x->no_ranges;
    pthread_mutex_unlock(&x->p->lock);
    if (s->over) return OSH_E_IO;
    if ((int64_t)n > s->asked_end - at)
        OSH_FAIL(cx, OSH_E_IO, "%s of %s: the server sent more than the %lld bytes of the file",
                 x->f->path, x->p->name->id, (long long)x->f->n_bytes);
    if ((int64_t)n > left) n = (size_t)left;
    OSH_TRY(osh_file_pwrite(cx, x->out, bytes, n, at));
    pthread_mutex_lock(&x->p->lock);
    s->part->at += (int64_t)n;
    s->over = s->part->at >= s->part->end && s->part->end < s->asked_end;
    rc = fetch_save_ranges(cx, x);
    pthread_mutex_unlock(&x->p->lock);
    atomic_fetch_add(&x->p->done, (long long)n);
    /* The early end is no failure: another thread fetches the rest of the part. */
    if (!rc && s->over) rc = OSH_E_IO;
done:
    return rc;
}

/* Makes requests until the part has all its bytes. Each request that gets bytes sets the number of
 * attempts back to 0. */
static osh_status fetch_part(osh_ctx *cx, osh_http *http, osh_fetch *x, int i)
{
    osh_status rc = OSH_OK;
    osh_http_reply r = {0};         // own
    char *url = NULL, *what = NULL; // own
    bool elsewhere;
    stream s = {.x = x, .part = &x->parts.parts[i]};
    OSH_TRY(osh_hub_file_url(cx, &url, x->p, x->f));
    if (!(what = osh_sprintf(cx, "%s of %s", x->f->path, x->p->name->id))) OSH_TRY(OSH_E_NOMEM);
    for (int tried = 0;; tried++) {
        pthread_mutex_lock(&x->p->lock);
        osh_part before = *s.part;
        s.over = x->no_ranges;
        pthread_mutex_unlock(&x->p->lock);
        if (before.at >= before.end || s.over) break;
        osh_http_request q = {.url = url,
                              .from = before.at,
                              .begin = fetch_on_begin,
                              .take = fetch_on_take,
                              .user = &s};
        s.asked_end = before.end;
        if (x->record)
            q.to = s.asked_end =
                before.end - before.at < MOST_ASKED ? before.end : before.at + MOST_ASKED;
        rc = osh_hub_follow(cx, http, &r, &elsewhere, x->p->hub, &q);
        if (s.over) rc = OSH_OK;
        OSH_TRY(rc);
        // `at` is read without the lock, because only this thread changes it
        if (s.part->at > before.at) tried = 0;
        if (s.over || s.part->at == s.asked_end) continue;
        bool cut = r.status == 200 || r.status == 206,
             expired = elsewhere && (r.status == 403 || r.status == 400);
        if (!cut && !expired && !osh_hub_passes(&r))
            OSH_TRY(osh_hub_refused(cx, x->p->hub, &r, what));
        if (tried == OSH_HUB_RETRIES && cut)
            OSH_FAIL(cx, OSH_E_IO, "%s: only %lld of the bytes from %lld to %lld arrived", what,
                     (long long)(s.part->at - before.at), (long long)before.at,
                     (long long)before.end);
        if (tried == OSH_HUB_RETRIES) OSH_TRY(osh_hub_refused(cx, x->p->hub, &r, what));
        OSH_TRY(osh_hub_pause(cx, &r, tried, &x->p->stop));
    }
done:
    osh_http_reply_deinit(cx, &r);
    osh_free(cx, what);
    osh_free(cx, url);
    return rc;
}

/* Chooses a part for this thread and returns its index: a part that no thread fetches, or the
 * second half of a part that another thread fetches. Returns -1 if there is none. The caller holds
 * p->lock. */
static int part_take(osh_fetch *x) { return x->no_ranges ? -1 : osh_ranges_take(&x->parts); }

static void part_give(osh_fetch *x, int i)
{
    pthread_mutex_lock(&x->p->lock);
    x->parts.parts[i].busy = false;
    pthread_mutex_unlock(&x->p->lock);
}

osh_status osh_hub_fetch_help(osh_ctx *cx, osh_http *http, osh_hub_place *p, bool *did)
{
    int i = -1;
    pthread_mutex_lock(&p->lock);
    osh_fetch *x = p->open;
    for (; x; x = x->next)
        if ((i = part_take(x)) >= 0) break;
    if (x) x->at_work++;
    pthread_mutex_unlock(&p->lock);
    *did = x;
    if (!x) return OSH_OK;
    osh_status rc = fetch_part(cx, http, x, i);
    part_give(x, i);
    /* The failure is recorded before at_work changes. The thread that owns x waits until at_work is
     * 0, and then sees the failure. */
    if (rc) osh_hub_place_fail(cx, p, rc);
    pthread_mutex_lock(&p->lock);
    x->at_work--;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

/* Adds the file to p->open, so that other threads can fetch parts. */
static void fetch_open(osh_fetch *x)
{
    pthread_mutex_lock(&x->p->lock);
    x->next = x->p->open, x->p->open = x;
    pthread_cond_broadcast(&x->p->changed);
    pthread_mutex_unlock(&x->p->lock);
}

/* Removes the file from p->open, and waits until no other thread fetches a part of it. */
static void fetch_shut(osh_fetch *x)
{
    pthread_mutex_lock(&x->p->lock);
    osh_fetch **at = &x->p->open;
    while (*at && *at != x) at = &(*at)->next;
    if (*at) *at = x->next;
    while (x->at_work) osh_hub_place_wait(x->p);
    pthread_mutex_unlock(&x->p->lock);
}

/* Fetches all parts that this thread can take, while other threads fetch other parts. If the server
 * ignores ranges, fetches the file as one stream. */
static osh_status fetch_parts(osh_ctx *cx, osh_http *http, osh_fetch *x)
{
    osh_status rc = OSH_OK;
    if (x->record) fetch_open(x);
    for (int i = 0; !rc && i >= 0;) {
        pthread_mutex_lock(&x->p->lock);
        i = part_take(x);
        pthread_mutex_unlock(&x->p->lock);
        if (i < 0) break;
        rc = fetch_part(cx, http, x, i);
        part_give(x, i);
    }
    if (rc) osh_hub_place_fail(cx, x->p, rc); // stops the other threads that fetch parts
    fetch_shut(x);
    OSH_TRY(rc);
    if (atomic_load(&x->p->stop)) OSH_FAIL(cx, OSH_E_INTERRUPTED, "another file failed");
    if (!x->no_ranges) goto done;
    x->no_ranges = false;
    osh_file_close(cx, x->record), x->record = NULL;
    OSH_TRY(osh_at_remove(cx, x->blobs, x->ranges));
    OSH_TRY(fetch_start_over(cx, x));
    rc = fetch_part(cx, http, x, 0);
done:
    return rc;
}

osh_status osh_hub_file_hash(osh_ctx *cx, char hex[65], osh_file *file, const osh_hub_file *f,
                             const osh_hub_place *p)
{
    enum { STEP = 1 << 18 };
    osh_status rc = OSH_OK;
    osh_sha *sha = NULL; // own
    char *bytes = NULL;  // own
    char head[40];       // git computes the hash of this header and of the bytes after it
    int64_t n = f->n_bytes;
    bool large = strlen(f->etag) == 64;
    OSH_TRY(osh_sha_new(cx, &sha, large ? 256 : 160));
    OSH_NEW(cx, bytes, STEP);
    if (!large)
        osh_sha_feed(sha, head, 1 + (size_t)snprintf(head, sizeof head, "blob %lld", (long long)n));
    for (int64_t at = 0; at < n; at += STEP) {
        size_t k = n - at < STEP ? (size_t)(n - at) : STEP;
        OSH_TRY(osh_check_interrupt(cx));
        if (atomic_load(&p->stop)) OSH_FAIL(cx, OSH_E_INTERRUPTED, "another file failed");
        OSH_TRY(osh_file_pread(cx, file, bytes, k, at));
        osh_sha_feed(sha, bytes, k);
    }
    OSH_TRY(osh_sha_end(cx, sha, hex));
done:
    osh_free(cx, bytes);
    osh_sha_free(cx, sha);
    return rc;
}

/* Fetches the file and checks its hash. If the hash is wrong, fetches the file once more from the
 * start, because bytes of an earlier run may be wrong. */
osh_status osh_hub_fetch(osh_ctx *cx, osh_http *http, osh_hub_place *p, const osh_hub_file *f,
                         osh_hub_target to)
{
    osh_status rc = OSH_OK;
    osh_fetch x = {.p = p, .f = f};
    char hex[65], *target = NULL; // own: target
    if (!(x.partial = osh_sprintf(cx, "%s.oneshot.incomplete", f->etag))) OSH_TRY(OSH_E_NOMEM);
    if (!(x.ranges = osh_sprintf(cx, "%s.oneshot.ranges", f->etag))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_hub_place_dir(cx, &x.blobs, p, "blobs"));
    OSH_TRY(fetch_open_partial(cx, &x));
    for (int tried = 0;; tried++) {
        OSH_TRY(fetch_parts(cx, http, &x));
        OSH_TRY(osh_hub_file_hash(cx, hex, x.out, f, p));
        if (!strcmp(hex, f->etag)) break;
        OSH_TRY(fetch_start_over(cx, &x));
        if (tried)
            OSH_FAIL(cx, OSH_E_IO, "%s of %s: its SHA-%s is %s, wanted %s", f->path, p->name->id,
                     strlen(f->etag) == 64 ? "256" : "1", hex, f->etag);
        osh_log(cx, OSH_LOG_INFO,
                "%s of %s: the checksum is wrong: downloading it again from its start", f->path,
                p->name->id);
    }
    OSH_TRY(osh_file_sync(cx, x.out));
    if (!(target = osh_path_join(cx, osh_at_path(to.dir), to.name))) OSH_TRY(OSH_E_NOMEM);
    if (osh_file_is_at(x.out, target)) goto done; // another process has finished the file
    OSH_TRY(fetch_check_name(cx, &x));
    /* The record is removed before the rename. A kill between these two steps is harmless: the next
     * run finds an incomplete file without a record, and takes all its bytes as fetched. */
    OSH_TRY(osh_at_remove(cx, x.blobs, x.ranges));
    OSH_TRY(osh_at_rename(cx, x.out, x.blobs, x.partial, to.dir, to.name));
done:
    osh_file_close(cx, x.out);
    osh_file_close(cx, x.record);
    osh_at_close(cx, x.blobs);
    osh_free(cx, target);
    osh_free(cx, x.partial);
    osh_free(cx, x.ranges);
    return rc;
}
