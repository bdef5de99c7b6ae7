/* blob.c - one file of a repository into the cache:
 *
 *   .locks/models--org--name/<etag>.lock     held meanwhile: who comes second finds it done
 *   blobs/<etag>                             its bytes (fetch.c)
 *   snapshots/<commit>/<path>                a link to that */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "hub/pull.h"

static bool has_size(const char *path, int64_t n)
{
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode) && st.st_size == n;
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
        if (!there) OSH_TRY(osh_hub_fetch(cx, http, p, f, p->hub->no_links ? link : blob));
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
    int64_t has = stat(partial, &st) || st.st_size > f->n_bytes ? 0 : (int64_t)st.st_blocks * 512; // it may have holes
    *n_bytes = f->n_bytes - (has < f->n_bytes ? has : f->n_bytes);
done:
    osh_free(cx, link);
    osh_free(cx, blob);
    osh_free(cx, partial);
    return rc;
}
