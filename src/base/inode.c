/* inode.c - looks at paths with lstat(2) and compares them by device and inode. */
#include "base/inode.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"

static osh_inode inode_of(const struct stat *st)
{
    osh_inode_kind kind = S_ISREG(st->st_mode)   ? OSH_INODE_FILE
                          : S_ISDIR(st->st_mode) ? OSH_INODE_DIR
                          : S_ISLNK(st->st_mode) ? OSH_INODE_LINK
                                                 : OSH_INODE_OTHER;
    return (osh_inode){kind, (uint64_t)st->st_dev, (uint64_t)st->st_ino, (int64_t)st->st_nlink,
                       (int64_t)st->st_size};
}

osh_inode osh_inode_at(const char *path)
{
    struct stat st;
    if (!lstat(path, &st)) return inode_of(&st);
    return (osh_inode){.kind =
                           errno == ENOENT || errno == ENOTDIR ? OSH_INODE_NONE : OSH_INODE_OTHER};
}

const char *osh_inode_text(const osh_inode *p)
{
    switch (p->kind) {
    case OSH_INODE_NONE: return "not there";
    case OSH_INODE_FILE:
        return p->n_names > 1 ? "a file with a second name (a hard link)" : "a file";
    case OSH_INODE_DIR: return "a directory";
    case OSH_INODE_LINK: return "a symbolic link";
    default: return "not a file or a directory";
    }
}

osh_status osh_path_real(osh_ctx *cx, char **out, const char *path)
{
    osh_status rc = OSH_OK;
    char real[PATH_MAX], *at = NULL; // at: own
    *out = NULL;
    OSH_TRY(osh_path_resolve(cx, &at, path));
    size_t all = strlen(at), n = all;
    char cut = 0;
    while (!realpath(n ? at : ".", real)) { // finds the longest existing prefix of the path
        if (errno != ENOENT || !n)
            OSH_FAIL(cx, OSH_E_IO, "cannot look at %s: %s", path, strerror(errno));
        at[n] = cut;
        while (n && at[n - 1] != '/') n--;
        while (n > 1 && at[n - 1] == '/') n--;
        cut = at[n], at[n] = 0;
    }
    at[n] = cut;
    const char *rest = at + n + strspn(at + n, "/");
    bool root = !strcmp(real, "/");
    *out = *rest ? osh_sprintf(cx, "%s/%s", root ? "" : real, rest) : osh_strdup(cx, real);
    if (!*out) OSH_TRY(OSH_E_NOMEM);
done:
    osh_free(cx, at);
    return rc;
}

/* True if `dir` describes the path `real` or a directory above it. `real` is absolute. Overwrites
 * `real`. */
static bool path_has_above(char *real, const struct stat *dir)
{
    struct stat st;
    for (size_t n = strlen(real);;) {
        if (!stat(real, &st) && st.st_dev == dir->st_dev && st.st_ino == dir->st_ino) return true;
        if (n <= 1) return false;
        while (n && real[n - 1] != '/') n--;
        while (n > 1 && real[n - 1] == '/') n--;
        real[n] = 0;
    }
}

osh_status osh_path_inside(osh_ctx *cx, bool *inside, const char *path, const char *dir)
{
    osh_status rc = OSH_OK;
    char *a = NULL, *b = NULL; // own
    struct stat st;
    *inside = false;
    OSH_TRY(osh_path_real(cx, &a, path));
    OSH_TRY(osh_path_real(cx, &b, dir));
    size_t n = strlen(b);
    *inside = !strncmp(a, b, n) && (!a[n] || a[n] == '/');
    if (!*inside && !stat(b, &st)) *inside = path_has_above(a, &st);
done:
    osh_free(cx, a);
    osh_free(cx, b);
    return rc;
}
