/* blob.c - downloads one file of a repository into the cache:
 *
 *   .locks/models--org--name/<etag>.lock     a file that is locked during the download
 *   blobs/<etag>                             the bytes of the file (fetch.c)
 *   snapshots/<commit>/<path>                a link to the blob
 *   .oneshot/                                temporary names of links and copies */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "hub/pull.h"

static bool file_has_size(const char *path, int64_t n)
{
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode) && st.st_size == n;
}

osh_status osh_hub_place_dir(osh_ctx *cx, osh_at **out, const osh_hub_place *p, const char *below)
{
    char *all = osh_sprintf(cx, "%s/%s", strrchr(p->repo, '/') + 1, below); // own
    osh_status rc = all ? osh_at_open(cx, out, p->hub->cache, all) : OSH_E_NOMEM;
    osh_free(cx, all);
    return rc;
}

/* Waits until this process has the lock of the file f. Sets *out (own) to the locked file. */
static osh_status blob_lock(osh_ctx *cx, osh_file **out, osh_hub_place *p, const osh_hub_file *f)
{
    osh_status rc = OSH_OK;
    bool taken = false;
    osh_at *dir = NULL; // own
    char *below = osh_sprintf(cx, ".locks/%s", strrchr(p->repo, '/') + 1),
         *name = osh_sprintf(cx, "%s.lock", f->etag); // `below` and `name` are own
    if (!below || !name) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_at_open(cx, &dir, p->hub->cache, below));
    OSH_TRY(osh_at_open_lock(cx, out, dir, name));
    for (bool said = false;; said = true) {
        OSH_TRY(osh_file_lock(cx, *out, &taken));
        if (taken) break;
        if (!said)
            osh_log(cx, OSH_LOG_INFO, "%s: another process downloads %s", p->name->id, f->path);
        OSH_TRY(osh_check_interrupt(cx));
        if (atomic_load(&p->stop)) OSH_FAIL(cx, OSH_E_INTERRUPTED, "another file failed");
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
done:
    osh_at_close(cx, dir);
    osh_free(cx, below);
    osh_free(cx, name);
    return rc;
}

/* Opens the directory of the snapshot in which the file f will be. Sets *name to the last part of
 * f->path, a view of f. */
static osh_status blob_snapshot_dir(osh_ctx *cx, osh_at **out, const char **name,
                                    const osh_hub_place *p, const osh_hub_file *f)
{
    const char *slash = strrchr(f->path, '/');
    *name = slash ? slash + 1 : f->path;
    char *below = osh_sprintf(cx, "snapshots/%s%s%.*s", p->commit, slash ? "/" : "",
                              slash ? (int)(slash - f->path) : 0, f->path); // own
    osh_status rc = below ? osh_hub_place_dir(cx, out, p, below) : OSH_E_NOMEM;
    osh_free(cx, below);
    return rc;
}

/* Makes the link `name` to "../../blobs/<etag>", with one more "../" for each directory in
 * f->path. */
static osh_status blob_link(osh_ctx *cx, osh_at *dir, const char *name, osh_at *by,
                            const osh_hub_file *f)
{
    osh_status rc = OSH_OK;
    osh_buf b; // own
    osh_buf_init(&b, 0);
    OSH_TRY(osh_buf_printf(cx, &b, "../../"));
    for (const char *s = f->path; (s = strchr(s, '/')); s++) OSH_TRY(osh_buf_printf(cx, &b, "../"));
    OSH_TRY(osh_buf_printf(cx, &b, "blobs/%s", f->etag));
    OSH_TRY(osh_at_link(cx, dir, name, by, b.data));
done:
    if (rc) osh_note(cx, "linking a snapshot; HF_HUB_DISABLE_SYMLINKS=1 avoids links");
    osh_buf_deinit(cx, &b);
    return rc;
}

/* Writes a copy of the blob and renames it to `to`, replacing a file of that name. The caller holds
 * the lock of f, so an existing incomplete copy comes from a killed process and is overwritten. */
static osh_status blob_copy(osh_ctx *cx, osh_hub_target to, osh_at *by, const char *blob,
                            const osh_hub_file *f)
{
    enum { STEP = 1 << 16 };
    osh_status rc = OSH_OK;
    osh_file *in = NULL, *out = NULL;                 // own
    char *bytes = NULL;                               // own
    char *copy = osh_sprintf(cx, "%s.copy", f->etag); // own
    if (!copy) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_file_open(cx, &in, blob));
    OSH_NEW(cx, bytes, STEP);
    OSH_TRY(osh_at_resume(cx, &out, by, copy));
    OSH_TRY(osh_file_truncate(cx, out, 0));
    for (int64_t at = 0; at < f->n_bytes; at += STEP) {
        size_t k = f->n_bytes - at < STEP ? (size_t)(f->n_bytes - at) : STEP;
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(osh_file_pread(cx, in, bytes, k, at));
        OSH_TRY(osh_file_pwrite(cx, out, bytes, k, at));
    }
    OSH_TRY(osh_file_sync(cx, out));
    OSH_TRY(osh_at_rename(cx, out, by, copy, to.dir, to.name));
done:
    osh_file_close(cx, in);
    osh_file_close(cx, out);
    osh_free(cx, copy);
    osh_free(cx, bytes);
    return rc;
}

typedef enum { FILE_ABSENT, FILE_WRONG, FILE_RIGHT } file_state;

/* Sets *state to the state of the file at `path`. Compares the size of the file with that of f. If
 * p->verified is false, also compares the hash. */
static osh_status blob_look_at(osh_ctx *cx, file_state *state, osh_hub_place *p, const char *path,
                               const osh_hub_file *f)
{
    osh_status rc = OSH_OK;
    osh_file *file = NULL; // own
    char hex[65];
    *state = file_has_size(path, f->n_bytes) ? FILE_RIGHT : FILE_ABSENT;
    if (!*state || p->verified) goto done;
    OSH_TRY(osh_file_open(cx, &file, path));
    OSH_TRY(osh_hub_file_hash(cx, hex, file, f, p));
    if (strcmp(hex, f->etag)) *state = FILE_WRONG;
done:
    osh_file_close(cx, file);
    return rc;
}

/* Makes the file f of the snapshot: downloads the blob if the cache has none or a wrong one, then
 * links or copies it. The caller holds the lock of f. *fetched is true if the blob was
 * downloaded. */
static osh_status blob_make(osh_ctx *cx, osh_http *http, osh_hub_place *p, const osh_hub_file *f,
                            bool *fetched)
{
    osh_status rc = OSH_OK;
    osh_at *dir = NULL, *blobs = NULL, *by = NULL; // own
    const char *name = NULL;
    file_state state;
    char *blob = osh_sprintf(cx, "%s/blobs/%s", p->repo, f->etag); // own
    if (!blob) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(blob_look_at(cx, &state, p, blob, f));
    *fetched = state != FILE_RIGHT;
    if (state == FILE_WRONG)
        osh_log(cx, OSH_LOG_WARN,
                "%s: its hash differs from its name: it is downloaded again", blob);
    OSH_TRY(blob_snapshot_dir(cx, &dir, &name, p, f));
    OSH_TRY(osh_hub_place_dir(cx, &blobs, p, "blobs"));
    OSH_TRY(osh_hub_place_dir(cx, &by, p, ".oneshot"));
    osh_hub_target to = {p->hub->no_links ? dir : blobs, p->hub->no_links ? name : f->etag};
    if (*fetched) OSH_TRY(osh_hub_fetch(cx, http, p, f, to));
    if (!p->hub->no_links)
        OSH_TRY(blob_link(cx, dir, name, by, f));
    else if (!*fetched)
        OSH_TRY(blob_copy(cx, to, by, blob, f));
done:
    osh_at_close(cx, dir);
    osh_at_close(cx, blobs);
    osh_at_close(cx, by);
    osh_free(cx, blob);
    return rc;
}

osh_status osh_hub_file_pull(osh_ctx *cx, osh_http *http, osh_hub_place *p, const osh_hub_file *f)
{
    osh_status rc = OSH_OK;
    osh_file *lock = NULL; // own
    file_state state;
    bool fetched = false;
    char *link = osh_path_join(cx, p->snapshot, f->path); // own
    if (!link) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(blob_look_at(cx, &state, p, link, f));
    if (state != FILE_RIGHT) {
        OSH_TRY(blob_lock(cx, &lock, p, f));
        // another process may have made the file while this process waited for the lock
        OSH_TRY(blob_look_at(cx, &state, p, link, f));
    }
    if (state != FILE_RIGHT) OSH_TRY(blob_make(cx, http, p, f, &fetched));
    if (!fetched) atomic_fetch_add(&p->done, f->n_bytes);
done:
    osh_file_close(cx, lock);
    osh_free(cx, link);
    return rc;
}

osh_status osh_hub_file_is_there(osh_ctx *cx, bool *there, const osh_hub_place *p,
                                 const osh_hub_file *f)
{
    char *link = osh_path_join(cx, p->snapshot, f->path); // own
    if (!link) return OSH_E_NOMEM;
    *there = file_has_size(link, f->n_bytes);
    osh_free(cx, link);
    return OSH_OK;
}

osh_status osh_hub_file_lacks(osh_ctx *cx, int64_t *n_bytes, const osh_hub_place *p,
                              const osh_hub_file *f)
{
    osh_status rc = OSH_OK;
    struct stat st;
    char *link = osh_path_join(cx, p->snapshot, f->path),
         *blob = osh_sprintf(cx, "%s/blobs/%s", p->repo, f->etag); // `link` and `blob` are own
    char *partial = osh_sprintf(cx, "%s/blobs/%s.oneshot.incomplete", p->repo, f->etag); // own
    *n_bytes = 0;
    if (!link || !blob || !partial) OSH_TRY(OSH_E_NOMEM);
    if (file_has_size(link, f->n_bytes) || file_has_size(blob, f->n_bytes)) goto done;
    bool begun = !lstat(partial, &st) && S_ISREG(st.st_mode) && st.st_size <= f->n_bytes;
    // counts allocated bytes and not the size, because the file may have holes
    int64_t has = begun ? (int64_t)st.st_blocks * 512 : 0;
    *n_bytes = f->n_bytes - (has < f->n_bytes ? has : f->n_bytes);
done:
    osh_free(cx, link);
    osh_free(cx, blob);
    osh_free(cx, partial);
    return rc;
}
