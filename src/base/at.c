/* at.c - opens files below a directory to which other users can also write. Each directory on the
 * path is opened by a descriptor, without following links. */
#include "base/at.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_TRIES = 16 };

struct osh_at {
    int fd;
    char *path; // own
};

static osh_status at_fail(osh_ctx *cx, const char *what, const osh_at *d, const char *name)
{
    char why[128];
    return osh_fail(cx, OSH_E_IO, "cannot %s %s/%s: %s", what, d->path, name,
                    strerror_r(errno, why, sizeof why));
}

/* Opens the directory to which a symbolic link points, if this user or root owns the link. Returns
 * -1 and sets errno on failure. */
static int link_follow(int parent, const char *name)
{
    char to[PATH_MAX];
    struct stat st;
    int fd = -1, link = openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (link < 0) return link;
    bool ours = !fstat(link, &st) && S_ISLNK(st.st_mode) && (st.st_uid == geteuid() || !st.st_uid);
    ssize_t n = ours ? readlinkat(link, "", to, sizeof to - 1) : -1;
    if (n >= 0)
        to[n] = 0, fd = openat(parent, to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    else
        errno = ELOOP;
    int why = errno;
    close(link);
    errno = why;
    return fd;
}

/* Opens the directory `name` in the directory `parent`, and creates the directory if it is missing.
 * Returns -1 and sets errno on failure. */
static int dir_step(int parent, const char *name, bool may_link)
{
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, fd = openat(parent, name, flags);
    if (fd < 0 && errno == ENOENT && (!mkdirat(parent, name, 0777) || errno == EEXIST))
        fd = openat(parent, name, flags);
    if (fd < 0 && may_link && (errno == ENOTDIR || errno == ELOOP)) fd = link_follow(parent, name);
    return fd;
}

/* Fails with the reason why a directory could not be opened. The first n bytes of `path` are the
 * path of that directory. */
static osh_status dir_refuse(osh_ctx *cx, int parent, const char *name, const char *path, int n)
{
    char why[128];
    struct stat st;
    int code = errno;
    if (!fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISLNK(st.st_mode))
        return osh_fail(
            cx, OSH_E_IO,
            "%.*s is a symbolic link, wanted a directory: nothing is written through it", n, path);
    return osh_fail(cx, OSH_E_IO, "cannot make directory %.*s: %s", n, path,
                    strerror_r(code, why, sizeof why));
}

osh_status osh_at_open(osh_ctx *cx, osh_at **out, const char *root, const char *below)
{
    osh_status rc = OSH_OK;
    osh_at *d = NULL; // own
    char name[NAME_MAX + 1];
    *out = NULL;
    OSH_NEW(cx, d, 1);
    d->fd = -1;
    if (!(d->path = osh_path_join(cx, root, below))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_dir_make(cx, root));
    if ((d->fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        char why[128];
        OSH_FAIL(cx, OSH_E_IO, "cannot open %s: %s", root, strerror_r(errno, why, sizeof why));
    }
    for (const char *s = below; *s;) {
        size_t n = strcspn(s, "/");
        if (!n || n > NAME_MAX)
            OSH_FAIL(cx, OSH_E_IO, "%s: one of its names has %zu bytes, want 1 to %d", d->path, n,
                     NAME_MAX);
        memcpy(name, s, n), name[n] = 0;
        int fd = dir_step(d->fd, name, s == below);
        int upto = (int)(strlen(d->path) - strlen(s) + n);
        if (fd < 0) OSH_TRY(dir_refuse(cx, d->fd, name, d->path, upto));
        close(d->fd);
        d->fd = fd;
        s += n, s += *s == '/';
    }
    *out = d, d = NULL; // give
done:
    osh_at_close(cx, d);
    return rc;
}

void osh_at_close(osh_ctx *cx, osh_at *d)
{
    if (!d) return;
    if (d->fd >= 0) close(d->fd);
    osh_free(cx, d->path);
    osh_free(cx, d);
}

const char *osh_at_path(const osh_at *d)
{
    return d->path;
}

/* Makes an osh_file of the descriptor `fd` and takes ownership of it. If `fd` < 0, fails with the
 * text of errno. */
static osh_status at_file(osh_ctx *cx, osh_file **out, int fd, const osh_at *d, const char *name)
{
    osh_status rc = OSH_OK;
    char *path = NULL;                    // own
    /* Descriptors 0 to 2 are for standard streams, so the file gets a higher descriptor. */
    if (fd >= 0 && fd <= STDERR_FILENO) {
        int low = fd;
        fd = fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        close(low);
    }
    if (fd < 0) OSH_TRY(at_fail(cx, "create", d, name));
    if (!(path = osh_path_join(cx, d->path, name))) {
        close(fd);
        OSH_TRY(OSH_E_NOMEM);
    }
    OSH_TRY(osh_file_of_fd(cx, out, fd, path));
done:
    osh_free(cx, path);
    return rc;
}

/* Returns `base` followed by 16 random hexadecimal digits, or NULL if there is no memory. The
 * caller owns the text. */
static char *new_name(osh_ctx *cx, const char *base)
{
    uint64_t digits = 0;
    /* getrandom fails before the system has collected random bytes. */
    if (getrandom(&digits, sizeof digits, GRND_NONBLOCK) != sizeof digits)
        digits = (uint64_t)(osh_now() * 1e9) ^ ((uint64_t)getpid() << 40);
    return osh_sprintf(cx, "%s%016llx", base, (unsigned long long)digits);
}

enum { NEW_FILE = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC };

osh_status osh_at_create(osh_ctx *cx, osh_file **out, char **name, osh_at *d, const char *base)
{
    osh_status rc = OSH_OK;
    char *made = NULL; // own
    int fd = -1;
    *out = NULL, *name = NULL;
    for (int i = 0; fd < 0 && i < MOST_TRIES; i++) {
        osh_free(cx, made);
        if (!(made = new_name(cx, base))) OSH_TRY(OSH_E_NOMEM);
        fd = openat(d->fd, made, NEW_FILE, 0666);
        if (fd < 0 && errno != EEXIST) break;
    }
    OSH_TRY(at_file(cx, out, fd, d, made));
    *name = made, made = NULL; // give
done:
    osh_free(cx, made);
    return rc;
}

static bool file_is_own(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_nlink == 1 && st->st_uid == geteuid();
}

osh_status osh_at_resume(osh_ctx *cx, osh_file **out, osh_at *d, const char *name)
{
    osh_status rc = OSH_OK;
    struct stat st;
    int fd = openat(d->fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    *out = NULL;
    if (fd >= 0 && (fstat(fd, &st) || !file_is_own(&st))) close(fd), fd = -1, errno = EEXIST;
    if (fd < 0 && errno != ENOENT) OSH_TRY(osh_at_remove(cx, d, name));
    if (fd < 0) fd = openat(d->fd, name, NEW_FILE, 0666);
    OSH_TRY(at_file(cx, out, fd, d, name));
done:
    return rc;
}

osh_status osh_at_open_lock(osh_ctx *cx, osh_file **out, osh_at *d, const char *name)
{
    osh_status rc = OSH_OK;
    int flags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
        fd = openat(d->fd, name, O_RDWR | O_CREAT | flags, 0666);
    *out = NULL;
    if (fd < 0 && errno == ELOOP) {
        OSH_TRY(osh_at_remove(cx, d, name));
        fd = openat(d->fd, name, O_RDWR | O_CREAT | flags, 0666);
    }
    if (fd < 0 && errno == EACCES) {
        fd = openat(d->fd, name, O_RDONLY | flags);
        // EACCES: the message must say that the file cannot be created, not that it is missing
        if (fd < 0) errno = EACCES;
    }
    OSH_TRY(at_file(cx, out, fd, d, name));
done:
    return rc;
}

static osh_status name_move(osh_ctx *cx, osh_at *d, const char *name, osh_at *to_dir,
                            const char *to)
{
    if (renameat(d->fd, name, to_dir->fd, to)) {
        at_fail(cx, "rename", d, name);
        osh_note(cx, "giving it the name %s/%s", to_dir->path, to);
        return OSH_E_IO;
    }
    return osh_dir_sync(cx, to_dir->path);
}

osh_status osh_at_rename(osh_ctx *cx, const osh_file *f, osh_at *d, const char *name,
                         osh_at *to_dir, const char *to)
{
    osh_status rc = OSH_OK;
    if (!osh_file_is_at(f, osh_file_path(f)))
        OSH_FAIL(cx, OSH_E_IO, "%s/%s was removed or replaced while it was written",
                 d->path, name);
    OSH_TRY(name_move(cx, d, name, to_dir, to));
done:
    return rc;
}

osh_status osh_at_remove(osh_ctx *cx, osh_at *d, const char *name)
{
    return unlinkat(d->fd, name, 0) && errno != ENOENT ? at_fail(cx, "remove", d, name) : OSH_OK;
}

osh_status osh_at_write(osh_ctx *cx, osh_at *d, const char *name, osh_at *by, const void *p,
                        size_t n)
{
    osh_status rc = OSH_OK;
    osh_file *f = NULL; // own
    char *made = NULL;  // own
    OSH_TRY(osh_at_create(cx, &f, &made, by, "new-"));
    OSH_TRY(osh_file_pwrite(cx, f, p, n, 0));
    OSH_TRY(osh_file_sync(cx, f));
    OSH_TRY(osh_at_rename(cx, f, by, made, d, name));
done:
    if (rc && made) unlinkat(by->fd, made, 0);
    osh_file_close(cx, f);
    osh_free(cx, made);
    return rc;
}

osh_status osh_at_link(osh_ctx *cx, osh_at *d, const char *name, osh_at *by, const char *target)
{
    osh_status rc = OSH_OK;
    char *made = NULL; // own
    int failed = -1;
    for (int i = 0; failed && i < MOST_TRIES; i++) {
        osh_free(cx, made);
        if (!(made = new_name(cx, "new-"))) OSH_TRY(OSH_E_NOMEM);
        failed = symlinkat(target, by->fd, made);
        if (failed && errno != EEXIST) break;
    }
    if (failed) OSH_TRY(at_fail(cx, "link", d, name));
    OSH_TRY(name_move(cx, by, made, d, name));
done:
    if (rc && made && !failed) unlinkat(by->fd, made, 0);
    osh_free(cx, made);
    return rc;
}
