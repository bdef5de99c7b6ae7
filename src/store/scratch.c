/* scratch.c - makes, checks and removes the scratch directory, which contains the files of
 * values. */
#include "store/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/inode.h"
#include "base/name.h"
#include "base/xxh3.h"

#define MARK_NAME "oneshot-scratch"
#define VALUES_TAIL ".values"

struct osh_scratch {
    char *dir;      // own
    osh_file *mark; // own: the file MARK_NAME (scratch.h), which this process has locked
};

osh_status osh_scratch_dir(osh_ctx *cx, char **out, const char *scratch_dir, const char *partial)
{
    osh_status rc = OSH_OK;
    char *real = NULL; // own
    OSH_TRY(osh_path_real(cx, &real, partial));
    *out = scratch_dir ? osh_sprintf(cx, "%s/oneshot-%016llx", scratch_dir,
                                     (unsigned long long)XXH3_64bits(real, strlen(real)))
                       : osh_path_join(cx, partial, OSH_SCRATCH_NAME);
    if (!*out) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
done:
    osh_free(cx, real);
    return rc;
}

#define RANK_TAIL "-rank"

osh_status osh_scratch_dir_of_rank(osh_ctx *cx, char **out, const char *dir, int rank)
{
    *out = osh_sprintf(cx, "%s" RANK_TAIL "%d", dir, rank);
    return *out ? OSH_OK : osh_fail(cx, OSH_E_NOMEM, "no memory for a path");
}

/* True if `name` is `base` with the suffix of a rank (osh_scratch_dir_of_rank). */
static bool is_of_rank(const char *name, const char *base)
{
    size_t n = strlen(base), tail = strlen(RANK_TAIL);
    if (strncmp(name, base, n) || strncmp(name + n, RANK_TAIL, tail)) return false;
    size_t digits = strspn(name + n + tail, "0123456789");
    return digits && !name[n + tail + digits];
}

bool osh_scratch_is_name(const char *name)
{
    return !strcmp(name, OSH_SCRATCH_NAME) || is_of_rank(name, OSH_SCRATCH_NAME);
}

osh_status osh_scratch_remove_ranks(osh_ctx *cx, const char *dir)
{
    osh_status rc = OSH_OK;
    const char *base = osh_path_last(dir);
    char *above = osh_sprintf(cx, "%.*s", (int)(base - dir), dir), *path = NULL; // own
    char **names = NULL;                                                         // own
    size_t n = 0;
    if (!above) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    if (osh_inode_at(above).kind != OSH_INODE_DIR) goto done;
    OSH_TRY(osh_dir_list(cx, &names, &n, above));
    for (size_t i = 0; i < n; i++) {
        if (!is_of_rank(names[i], base)) continue;
        osh_free(cx, path);
        if (!(path = osh_path_join(cx, above, names[i])))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
        OSH_TRY(osh_scratch_remove(cx, path));
    }
done:
    osh_strings_free(cx, names, n);
    osh_free(cx, above);
    osh_free(cx, path);
    return rc;
}

/* True if a file with this name may contain a value. An example is "00012.values". */
static bool is_values_file(const char *name)
{
    size_t digits = strspn(name, "0123456789");
    return digits >= 5 && !strcmp(name + digits, VALUES_TAIL);
}

/* Fails if the directory has a file that oneshot did not make. Also fails if the directory has
 * files, but not the file MARK_NAME, which marks a directory as oneshot's. Sets *empty to true if
 * the directory has no file. */
static osh_status scratch_check_files(osh_ctx *cx, const char *dir, bool *empty)
{
    osh_status rc = OSH_OK;
    char **names = NULL, *path = NULL; // own
    size_t n = 0;
    bool marked = false;
    OSH_TRY(osh_dir_list(cx, &names, &n, dir));
    for (size_t i = 0; i < n; i++) marked |= !strcmp(names[i], MARK_NAME);
    for (size_t i = 0; i < n; i++) {
        osh_free(cx, path);
        if (!(path = osh_path_join(cx, dir, names[i])))
            OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
        if (!marked)
            OSH_FAIL(cx, OSH_E_USAGE,
                     "%s was not made by oneshot: it holds %s and no %s; want it moved away, or "
                     "another --scratch-dir",
                     dir, names[i], MARK_NAME);
        osh_inode at = osh_inode_at(path);
        bool ours = !strcmp(names[i], MARK_NAME) || is_values_file(names[i]);
        if (!ours || at.kind != OSH_INODE_FILE || at.n_names > 1)
            OSH_FAIL(cx, OSH_E_USAGE, "%s is %s that oneshot did not make: want it moved away",
                     path, osh_inode_text(&at));
    }
    *empty = !n;
done:
    osh_strings_free(cx, names, n);
    osh_free(cx, path);
    return rc;
}

osh_status osh_scratch_check(osh_ctx *cx, const char *dir)
{
    osh_inode at = osh_inode_at(dir);
    bool empty;
    if (at.kind == OSH_INODE_NONE) return OSH_OK;
    if (at.kind == OSH_INODE_DIR) return scratch_check_files(cx, dir, &empty);
    return osh_fail(
        cx, OSH_E_USAGE,
        "%s is %s, want a directory for values: want it moved away, or another --scratch-dir", dir,
        osh_inode_text(&at));
}

osh_status osh_scratch_open(osh_ctx *cx, osh_scratch **out, const char *dir)
{
    osh_status rc = OSH_OK;
    osh_scratch *s = NULL; // own
    char *path = NULL;     // own
    bool empty = false, taken = false;
    *out = NULL;
    OSH_NEW(cx, s, 1);
    if (!(s->dir = osh_strdup(cx, dir)) || !(path = osh_path_join(cx, dir, MARK_NAME)))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    OSH_TRY(osh_scratch_check(cx, dir));
    OSH_TRY(osh_dir_make(cx, dir));
    OSH_TRY(scratch_check_files(cx, dir, &empty));
    OSH_TRY(osh_file_open_or_create(cx, &s->mark, path));
    OSH_TRY(osh_file_lock(cx, s->mark, &taken));
    /* another process may have removed the mark before it released the lock */
    if (!taken || !osh_file_is_at(s->mark, path))
        OSH_FAIL(cx, OSH_E_USAGE, "%s: another process stores values in this directory", dir);
    // the mark must be on the disk before the first file of values
    if (empty) OSH_TRY(osh_dir_sync(cx, dir));
    *out = s, s = NULL; // give
done:
    osh_free(cx, path);
    osh_scratch_close(cx, s, true);
    return rc;
}

/* Removes the files of values, the mark and the directory. Allocates nothing, because it must also
 * work after a failed allocation. */
static void scratch_remove_files(const char *dir)
{
    DIR *d = opendir(dir); // own
    bool others = false;
    for (const struct dirent *e; d && (e = readdir(d));) {
        if (is_values_file(e->d_name)) unlinkat(dirfd(d), e->d_name, 0);
        else
            others |=
                strcmp(e->d_name, MARK_NAME) && strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    }
    // The removals must be on the disk before the mark is removed. Otherwise, a loss of power could
    // leave files of values without a mark.
    if (d) fsync(dirfd(d));
    if (d && !others && !unlinkat(dirfd(d), MARK_NAME, 0)) rmdir(dir);
    if (d) closedir(d);
}

void osh_scratch_close(osh_ctx *cx, osh_scratch *s, bool keep_files)
{
    if (!s) return;
    if (!keep_files && s->mark && osh_file_is_at(s->mark, osh_file_path(s->mark)))
        scratch_remove_files(s->dir);
    osh_file_close(cx, s->mark);
    osh_free(cx, s->dir);
    osh_free(cx, s);
}

osh_status osh_scratch_remove(osh_ctx *cx, const char *dir)
{
    osh_status rc = OSH_OK;
    osh_scratch *s = NULL; // own
    if (osh_inode_at(dir).kind == OSH_INODE_NONE) goto done;
    OSH_TRY(osh_scratch_open(cx, &s, dir));
done:
    osh_scratch_close(cx, s, false);
    return rc;
}

osh_status osh_scratch_path(osh_ctx *cx, char **out, const osh_scratch *s, int value)
{
    *out = NULL;
    if (!osh_file_is_at(s->mark, osh_file_path(s->mark)))
        return osh_fail(cx, OSH_E_IO,
                        "%s was removed or replaced while this run stored values in it", s->dir);
    *out = osh_sprintf(cx, "%s/%05d" VALUES_TAIL, s->dir, value);
    return *out ? OSH_OK : OSH_E_NOMEM;
}
