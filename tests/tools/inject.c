/* inject.c - LD_PRELOAD: counts the calls that change a disk, and before the INJECT_AT-th (from 1) kills or stops the
 * process (SIGSTOP), or runs a command, or fails it and all later ones.
 *
 *   INJECT_AT=17 INJECT_WHAT=kill|stop|EIO|ENOSPC|COMMAND [INJECT_CALLS="pwrite rename"]
 *   [INJECT_COUNT=file: how many there were]
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static _Atomic long n_calls;

static int fails(const char *call)
{
    const char *which = getenv("INJECT_CALLS"), *at = getenv("INJECT_AT"), *what = getenv("INJECT_WHAT");
    if (which && !strstr(which, call)) return 0;
    long n = atomic_fetch_add(&n_calls, 1) + 1;
    if (!at || !what || n < atol(at)) return 0;
    if (!strcmp(what, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(what, "stop")) return n == atol(at) ? raise(SIGSTOP) : 0;
    if (!strcmp(what, "ENOSPC") || !strcmp(what, "EIO")) {
        errno = !strcmp(what, "ENOSPC") ? ENOSPC : EIO;
        return 1;
    }
    if (n > atol(at)) return 0;
    unsetenv("LD_PRELOAD"); // the command is itself
    if (system(what)) fprintf(stderr, "inject: %s failed\n", what);
    return 0;
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("INJECT_COUNT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f) return;
    fprintf(f, "%ld\n", atomic_load(&n_calls));
    fclose(f);
}

#define NEXT(type, name) ((type)dlsym(RTLD_NEXT, name))
typedef ssize_t (*pwrite_fn)(int, const void *, size_t, off_t);
typedef int (*fd_fn)(int);
typedef int (*cut_fn)(int, off_t);
typedef int (*reserve_fn)(int, int, off_t, off_t);
typedef int (*path_fn)(const char *);
typedef int (*rename_fn)(const char *, const char *);
typedef int (*mkdir_fn)(const char *, mode_t);

/* Half of a failing write reaches the file, as on a disk that fills up. */
static ssize_t half(pwrite_fn next, int fd, const void *p, size_t n, off_t at)
{
    int why = errno;
    if (n > 1) next(fd, p, n / 2, at);
    errno = why;
    return -1;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    pwrite_fn next = NEXT(pwrite_fn, "pwrite");
    return fails("pwrite") ? half(next, fd, p, n, at) : next(fd, p, n, at);
}
ssize_t pwrite64(int fd, const void *p, size_t n, off_t at)
{
    pwrite_fn next = NEXT(pwrite_fn, "pwrite64");
    return fails("pwrite") ? half(next, fd, p, n, at) : next(fd, p, n, at);
}
int fsync(int fd) { return fails("fsync") ? -1 : NEXT(fd_fn, "fsync")(fd); }
int fdatasync(int fd) { return fails("fdatasync") ? -1 : NEXT(fd_fn, "fdatasync")(fd); }
int ftruncate(int fd, off_t n) { return fails("ftruncate") ? -1 : NEXT(cut_fn, "ftruncate")(fd, n); }
int ftruncate64(int fd, off_t n) { return fails("ftruncate") ? -1 : NEXT(cut_fn, "ftruncate64")(fd, n); }
int fallocate(int fd, int mode, off_t at, off_t n)
{
    return fails("fallocate") ? -1 : NEXT(reserve_fn, "fallocate")(fd, mode, at, n);
}
int fallocate64(int fd, int mode, off_t at, off_t n)
{
    return fails("fallocate") ? -1 : NEXT(reserve_fn, "fallocate64")(fd, mode, at, n);
}
int unlink(const char *path) { return fails("unlink") ? -1 : NEXT(path_fn, "unlink")(path); }
int rename(const char *from, const char *to) { return fails("rename") ? -1 : NEXT(rename_fn, "rename")(from, to); }
int mkdir(const char *path, mode_t mode) { return fails("mkdir") ? -1 : NEXT(mkdir_fn, "mkdir")(path, mode); }
