/* dir.c - handles directories, names and free space: the functions of file.h that need no open
 * file. */
#include "base/file.h"
#include "base/ctx.h"
#include "base/name.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static osh_status path_fail(osh_ctx *cx, const char *what, const char *path)
{
    char why[128];
    return osh_fail(cx, OSH_E_IO, "cannot %s %s: %s", what, path,
                    strerror_r(errno, why, sizeof why));
}

bool osh_file_exists(const char *path)
{
    struct stat st;
    return !stat(path, &st) && !S_ISDIR(st.st_mode);
}

bool osh_dir_exists(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

osh_status osh_file_stat(osh_ctx *cx, int64_t *n_bytes, int64_t *mtime_ns, const char *path)
{
    struct stat st;
    if (stat(path, &st)) return path_fail(cx, "look at", path);
    *n_bytes = (int64_t)st.st_size;
    *mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return OSH_OK;
}

osh_status osh_file_remove(osh_ctx *cx, const char *path)
{
    return unlink(path) && errno != ENOENT ? path_fail(cx, "remove", path) : OSH_OK;
}

osh_status osh_dir_make(osh_ctx *cx, const char *path)
{
    osh_status rc = OSH_OK;
    // own: a copy of the path, which the loop cuts at each slash to make one directory
    char *p = osh_strdup(cx, path);
    if (!p) return OSH_E_NOMEM;

    for (size_t i = 1;; i++) {
        char c = p[i - 1] ? p[i] : 0;
        if (c && c != '/') continue;
        if (!p[i - 1]) break; // an empty path: no directory is made
        p[i] = 0;
        if (mkdir(p, 0777) && !(errno == EEXIST && osh_dir_exists(p)))
            OSH_TRY(path_fail(cx, "make directory", p));
        if (!c) break;
        p[i] = c;
    }
done:
    osh_free(cx, p);
    return rc;
}

void osh_strings_free(osh_ctx *cx, char **names, size_t n)
{
    for (size_t i = 0; names && i < n; i++) osh_free(cx, names[i]);
    osh_free(cx, names);
}

static int names_by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool name_is_dots(const char *name)
{
    return !strcmp(name, ".") || !strcmp(name, "..");
}

osh_status osh_dir_list(osh_ctx *cx, char ***names, size_t *n, const char *path)
{
    osh_status rc = OSH_OK;
    DIR *d = NULL;      // own
    char **list = NULL; // own
    size_t n_list = 0, cap = 16;

    *names = NULL;
    *n = 0;
    OSH_NEW(cx, list, cap);
    if (!(d = opendir(path))) OSH_TRY(path_fail(cx, "list", path));
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (!e && errno) OSH_TRY(path_fail(cx, "list", path));
        if (!e) break;
        if (name_is_dots(e->d_name)) continue;
        if (n_list == cap) {
            char **more = osh_realloc(cx, list, 2 * cap * sizeof *more);
            if (!more) OSH_TRY(OSH_E_NOMEM);
            list = more;
            cap *= 2;
        }
        if (!(list[n_list] = osh_strdup(cx, e->d_name))) OSH_TRY(OSH_E_NOMEM);
        n_list++;
    }
    if (n_list) qsort(list, n_list, sizeof *list, names_by_bytes);
    *n = n_list;
    *names = list, list = NULL;
done:
    if (d) closedir(d);
    osh_strings_free(cx, list, n_list);
    return rc;
}

/* Removes everything in path, then path. A symbolic link is removed, never followed. */
static osh_status tree_remove(osh_ctx *cx, const char *path)
{
    osh_status rc = OSH_OK;
    char **names = NULL, *child = NULL; // own
    size_t n = 0;
    struct stat st;

    if (lstat(path, &st)) {
        if (errno != ENOENT) OSH_TRY(path_fail(cx, "remove", path));
        goto done; // another process has already removed the directory
    }
    if (!S_ISDIR(st.st_mode)) {
        if (unlink(path)) OSH_TRY(path_fail(cx, "remove", path));
        goto done;
    }
    OSH_TRY(osh_dir_list(cx, &names, &n, path));
    for (size_t i = 0; i < n; i++) {
        if (!(child = osh_path_join(cx, path, names[i]))) OSH_TRY(OSH_E_NOMEM);
        OSH_TRY(tree_remove(cx, child));
        osh_free(cx, child), child = NULL;
    }
    if (rmdir(path)) OSH_TRY(path_fail(cx, "remove", path));
done:
    osh_free(cx, child);
    osh_strings_free(cx, names, n);
    return rc;
}

osh_status osh_dir_remove(osh_ctx *cx, const char *path)
{
    return tree_remove(cx, path);
}

osh_status osh_dir_sync(osh_ctx *cx, const char *dir)
{
    int rc, fd;

    do fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    /* a directory that this user may not read cannot be synced; this is no error */
    if (fd < 0) return errno == EACCES ? OSH_OK : path_fail(cx, "open", dir);
    do rc = fsync(fd);
    while (rc && errno == EINTR);
    /* EINVAL: the file system cannot sync directories, which is no error. */
    if (rc && errno == EINVAL) rc = 0;
    osh_status st = rc ? path_fail(cx, "sync", dir) : OSH_OK;
    close(fd);
    return st;
}

osh_status osh_dir_sync_above(osh_ctx *cx, const char *path)
{
    char dir[PATH_MAX];
    /* no file operation can have succeeded with such a long path, so there is nothing to sync */
    if (!osh_path_parent(dir, sizeof dir, path)) return OSH_OK;
    return osh_dir_sync(cx, dir);
}

osh_status osh_rename(osh_ctx *cx, const char *from, const char *to)
{
    if (rename(from, to)) {
        osh_status rc = path_fail(cx, "rename", from);
        osh_note(cx, "giving it the name %s", to);
        return rc;
    }
    return osh_dir_sync_above(cx, to);
}

char *osh_path_join(osh_ctx *cx, const char *dir, const char *name)
{
    size_t n = strlen(dir);
    return osh_sprintf(cx, "%s%s%s", dir, n == 0 || dir[n - 1] == '/' ? "" : "/", name);
}

enum { MAX_LINKS = 40 }; // the kernel's limit of links in one path

/* Sets *out to the path to which the link at `path` points, or to NULL if `path` is not a link. The
 * caller owns *out. */
static osh_status link_target(osh_ctx *cx, char **out, const char *path)
{
    osh_status rc = OSH_OK;
    char to[PATH_MAX];
    ssize_t n = readlink(path, to, sizeof to - 1);
    *out = NULL;
    if (n < 0) goto done;
    to[n] = 0;
    const char *slash = strrchr(path, '/');
    *out = to[0] == '/' || !slash ? osh_strdup(cx, to)
                                  : osh_sprintf(cx, "%.*s/%s", (int)(slash - path), path, to);
    if (!*out) OSH_TRY(OSH_E_NOMEM);
done:
    return rc;
}

static void path_cut_slashes(char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') path[--n] = 0;
}

osh_status osh_path_resolve(osh_ctx *cx, char **out, const char *path)
{
    osh_status rc = OSH_OK;
    char real[PATH_MAX], *at = NULL, *next = NULL; // `at` and `next` are own
    *out = NULL;
    if (!(at = osh_strdup(cx, path))) OSH_TRY(OSH_E_NOMEM);
    path_cut_slashes(at);
    for (int i = 0;; i++) {
        OSH_TRY(link_target(cx, &next, at));
        if (!next) break;
        osh_free(cx, at);
        at = next, next = NULL;
        path_cut_slashes(at);
        if (i == MAX_LINKS) OSH_FAIL(cx, OSH_E_IO, "%s: too many links in a row", path);
    }
    const char *name = strrchr(at, '/');
    bool dots = !strcmp(name ? name + 1 : at, ".") || !strcmp(name ? name + 1 : at, "..");
    if (dots) { // the path ends in "." or "..", which cannot be the name of a new file
        if (!realpath(at, real)) OSH_TRY(path_fail(cx, "look at", at));
        osh_free(cx, at);
        if (!(at = osh_strdup(cx, real))) OSH_TRY(OSH_E_NOMEM);
    }
    *out = at, at = NULL; // give
done:
    osh_free(cx, at);
    osh_free(cx, next);
    return rc;
}

bool osh_dir_is_mount(const char *path)
{
    struct statx st;
    return !statx(AT_FDCWD, path, 0, STATX_TYPE, &st) &&
           (st.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) &&
           (st.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

int64_t osh_disk_free(const char *path)
{
    char at[PATH_MAX], up[PATH_MAX];
    struct statvfs v;

    if (strlen(path) >= sizeof at) return -1;
    strcpy(at, path);
    /* If the path does not exist yet, the loop finds the nearest parent directory that exists. */
    while (statvfs(at, &v)) {
        if (errno != ENOENT || !osh_path_parent(up, sizeof up, at) || !strcmp(at, up)) return -1;
        strcpy(at, up);
    }
    return (int64_t)v.f_bavail * (int64_t)v.f_frsize;
}
