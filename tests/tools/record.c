/* record.c - is a library for LD_PRELOAD. It writes a log of all calls that change files or
 * directories below the working directory. The log includes the data of the calls. From the log,
 * lose_power.c makes directories as they may be after a loss of power.
 *
 *   RECORD_LOG=FILE        FILE gets the log
 *   RECORD_HURRY=SECONDS   the clock advances by this time at each reading, so that barriers come
 *                          often
 *
 * Calls run one after the other. A file is identified by its inode, so two descriptors of a file
 * (one with O_DIRECT) count as one file. sync_file_range does not count as a sync. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "disk_log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int log_fd = -1;
static char root[4096];
static size_t n_root;

#define NEXT(type, name) ((type)dlsym(RTLD_NEXT, name))
typedef ssize_t (*pwrite_fn)(int, const void *, size_t, off_t);
typedef ssize_t (*write_fn)(int, const void *, size_t);

typedef int (*openat_fn)(int, const char *, int, ...);
typedef int (*cut_fn)(int, off_t);
typedef int (*reserve_fn)(int, int, off_t, off_t);
typedef int (*path_fn)(const char *);
typedef int (*rename_fn)(const char *, const char *);
typedef int (*mkdir_fn)(const char *, mode_t);
typedef int (*clock_fn)(clockid_t, struct timespec *);

static void log_put(const void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t k = syscall(SYS_write, log_fd, (const char *)p + at, n - at);
        if (k <= 0) abort();
        at += (size_t)k;
    }
}

/* Returns the path relative to the working directory ("." for the directory itself), or NULL if the
 * path is outside. */
static const char *path_inside(const char *path)
{
    if (path[0] == '/') {
        if (strncmp(path, root, n_root) || (path[n_root] && path[n_root] != '/')) return NULL;
        path += n_root;
        while (*path == '/') path++;
    }
    while (path[0] == '.' && path[1] == '/') path += 2;
    if (path[0] == '.' && path[1] == '.') return NULL;
    return *path ? path : ".";
}

/* Appends a call to the log. The caller holds the lock. */
static void log_call(disk_call c, const char *path, const void *data)
{
    int why = errno;
    if (log_fd < 0) {
        const char *file = getenv("RECORD_LOG");
        if (!file || !getcwd(root, sizeof root)) abort();
        n_root = strlen(root);
        log_fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                              0666);
        if (log_fd < 0) abort();
    }
    if (path && !(path = path_inside(path))) goto done;
    c.n_path = path ? (uint32_t)strlen(path) : 0;
    log_put(&c, sizeof c);
    if (path) log_put(path, c.n_path);
    if (data) log_put(data, c.n_data);
done:
    errno = why;
}

static uint64_t inode_of(int fd)
{
    struct stat st;
    return fstat(fd, &st) ? 0 : (uint64_t)st.st_ino;
}

static int log_open(int fd, const char *path, int flags, int was)
{
    bool dir = flags & O_DIRECTORY;
    if (fd < 0 || !strncmp(path, "/proc/", 6)) return fd;
    if (!dir && (flags & O_ACCMODE) == O_RDONLY) return fd;
    log_call((disk_call){.kind = DISK_OPEN, .inode = inode_of(fd), .at = !dir && was < 0,
                           .size = flags & O_TRUNC ? 0 : -1}, path, NULL);
    return fd;
}

static int do_open(openat_fn next, int at, const char *path, int flags, mode_t mode)
{
    struct stat st;
    pthread_mutex_lock(&lock);
    int was = fstatat(at, path, &st, 0);
    int fd = log_open(next(at, path, flags, mode), path, flags, was);
    pthread_mutex_unlock(&lock);
    return fd;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list ap; \
        va_start(ap, flags); \
        mode = va_arg(ap, mode_t); \
        va_end(ap); \
    }

int open(const char *path, int flags, ...)
{
    MODE(flags)
    return do_open(NEXT(openat_fn, "openat"), AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...)
{
    MODE(flags)
    return do_open(NEXT(openat_fn, "openat64"), AT_FDCWD, path, flags, mode);
}
int openat(int at, const char *path, int flags, ...)
{
    MODE(flags)
    // the program never opens files relative to another directory
    if (at != AT_FDCWD && path[0] != '/') abort();
    return do_open(NEXT(openat_fn, "openat"), at, path, flags, mode);
}

static ssize_t log_write(int fd, const void *p, ssize_t n, off_t at)
{
    if (n > 0)
        log_call((disk_call){.kind = DISK_WRITE, .inode = inode_of(fd), .at = at,
                             .n_data = (uint64_t)n}, NULL, p);
    return n;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    pthread_mutex_lock(&lock);
    ssize_t k = log_write(fd, p, NEXT(pwrite_fn, "pwrite")(fd, p, n, at), at);
    pthread_mutex_unlock(&lock);
    return k;
}
ssize_t pwrite64(int fd, const void *p, size_t n, off_t at) { return pwrite(fd, p, n, at); }

ssize_t write(int fd, const void *p, size_t n)
{
    pthread_mutex_lock(&lock);
    ssize_t k = NEXT(write_fn, "write")(fd, p, n);
    off_t end = k > 0 ? lseek(fd, 0, SEEK_CUR) : -1;
    if (end >= 0) log_write(fd, p, k, end - k);
    pthread_mutex_unlock(&lock);
    return k;
}

/* Only logs the call. A real sync is not needed, because the recorded program never crashes. */
int fsync(int fd)
{
    pthread_mutex_lock(&lock);
    log_call((disk_call){.kind = DISK_SYNC, .inode = inode_of(fd)}, NULL, NULL);
    pthread_mutex_unlock(&lock);
    return 0;
}
int fdatasync(int fd) { return fsync(fd); }

int ftruncate(int fd, off_t n)
{
    pthread_mutex_lock(&lock);
    int rc = NEXT(cut_fn, "ftruncate")(fd, n);
    if (!rc) log_call((disk_call){.kind = DISK_CUT, .inode = inode_of(fd), .size = n}, NULL, NULL);
    pthread_mutex_unlock(&lock);
    return rc;
}
int ftruncate64(int fd, off_t n) { return ftruncate(fd, n); }

int fallocate(int fd, int mode, off_t at, off_t n)
{
    pthread_mutex_lock(&lock);
    int rc = NEXT(reserve_fn, "fallocate")(fd, mode, at, n);
    if (!rc && mode) abort();
    if (!rc)
        log_call((disk_call){.kind = DISK_GROW, .inode = inode_of(fd), .size = at + n}, NULL, NULL);
    pthread_mutex_unlock(&lock);
    return rc;
}
int fallocate64(int fd, int mode, off_t at, off_t n) { return fallocate(fd, mode, at, n); }

static int do_remove(const char *path, const char *name)
{
    pthread_mutex_lock(&lock);
    int rc = NEXT(path_fn, name)(path);
    if (!rc) log_call((disk_call){.kind = DISK_UNLINK}, path, NULL);
    pthread_mutex_unlock(&lock);
    return rc;
}
int unlink(const char *path) { return do_remove(path, "unlink"); }

int unlinkat(int at, const char *name, int flags)
{
    char link[64], path[8192];
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t n = at == AT_FDCWD ? 0 : readlink(link, path, 4096);
    if (n < 0) abort();
    snprintf(path + n, sizeof path - (size_t)n, "%s%s", n ? "/" : "", name);
    return do_remove(path, flags & AT_REMOVEDIR ? "rmdir" : "unlink");
}
int rmdir(const char *path) { return do_remove(path, "rmdir"); }

int mkdir(const char *path, mode_t mode)
{
    struct stat st;
    pthread_mutex_lock(&lock);
    int rc = NEXT(mkdir_fn, "mkdir")(path, mode);
    if (!rc && !stat(path, &st))
        log_call((disk_call){.kind = DISK_MKDIR, .inode = (uint64_t)st.st_ino}, path, NULL);
    pthread_mutex_unlock(&lock);
    return rc;
}

int rename(const char *from, const char *to)
{
    pthread_mutex_lock(&lock);
    int rc = NEXT(rename_fn, "rename")(from, to);
    const char *new = !rc && log_fd >= 0 ? path_inside(to) : NULL;
    if (new) log_call((disk_call){.kind = DISK_RENAME, .n_data = strlen(new)}, from, new);
    pthread_mutex_unlock(&lock);
    return rc;
}

/* Aborts in calls that the program never makes, because a log without them would be wrong. */
#define NEVER(signature) signature { abort(); }
NEVER(ssize_t pwritev(int a, const struct iovec *b, int c, off_t d))
NEVER(ssize_t copy_file_range(int a, off64_t *b, int c, off64_t *d, size_t e, unsigned f))
NEVER(int link(const char *a, const char *b))
NEVER(int symlink(const char *a, const char *b))
NEVER(int truncate(const char *a, off_t n))
NEVER(int renameat(int a, const char *b, int c, const char *d))
NEVER(int mkdirat(int a, const char *b, mode_t c))

int clock_gettime(clockid_t id, struct timespec *t)
{
    static _Atomic long looks;
    const char *hurry = getenv("RECORD_HURRY");
    int rc = NEXT(clock_fn, "clock_gettime")(id, t);
    if (!rc && hurry && id == CLOCK_MONOTONIC)
        t->tv_sec += atomic_fetch_add(&looks, 1) * atol(hurry);
    return rc;
}
