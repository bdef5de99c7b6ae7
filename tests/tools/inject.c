/* inject.c - disturbs a process as an LD_PRELOAD library. It counts the calls that change a disk,
 * and acts before one of these calls. Its settings are environment variables:
 *
 *   INJECT_AT=N          acts before call N, from 1
 *   INJECT_STEP=TEXT     acts after the first write(2) that has this text, such as the record
 *                        "observe model.layers.0 Start" of a profile; only for TERM, hang, COMMAND
 *   INJECT_CALLS=NAMES   counts only these calls, such as "pwrite rename"
 *   INJECT_WHAT=kill     kills the process
 *               stop     stops the process (SIGSTOP)
 *               EIO      makes this call and all later calls fail with EIO
 *               ENOSPC   makes this call and all later calls fail with ENOSPC
 *               TERM     sends SIGTERM once, then makes the call
 *               hang     sends SIGTERM, and the call never returns
 *               COMMAND  runs the command, then makes the call
 *   INJECT_COUNT=FILE    FILE gets the number of calls
 *   INJECT_READ=FILE     FILE gets the number of bytes that pread returned
 *   INJECT_AFTER=FILE    FILE gets the seconds of processor time from SIGTERM to the end of the
 *                        process
 *
 * If INJECT_CALLS has the word "reads", each call of pread or read counts, too. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static _Atomic long n_calls, n_read;
static _Atomic int asked;
static double busy_then; // processor seconds of the process at the time of the signal

static double busy(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void ask(const char *what)
{
    if (atomic_exchange(&asked, 1)) return;
    busy_then = busy();
    kill(getpid(), SIGTERM);
    while (!strcmp(what, "hang")) pause();
}

static void command(const char *what)
{
    unsetenv("LD_PRELOAD"); // the library must not be loaded into the command
    if (system(what)) fprintf(stderr, "inject: %s failed\n", what);
}

static void at_step(const char *what)
{
    if (!strcmp(what, "TERM") || !strcmp(what, "hang")) ask(what);
    else if (!atomic_exchange(&asked, 1)) command(what);
}

static int fails(const char *call)
{
    const char *which = getenv("INJECT_CALLS"), *at = getenv("INJECT_AT"),
               *what = getenv("INJECT_WHAT");
    if (which && !strstr(which, call)) return 0;
    long n = atomic_fetch_add(&n_calls, 1) + 1;
    if (!at || !what || n < atol(at)) return 0;
    if (!strcmp(what, "TERM") || !strcmp(what, "hang")) return ask(what), 0;
    if (!strcmp(what, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(what, "stop")) return n == atol(at) ? raise(SIGSTOP) : 0;
    if (!strcmp(what, "ENOSPC") || !strcmp(what, "EIO")) {
        errno = !strcmp(what, "ENOSPC") ? ENOSPC : EIO;
        return 1;
    }
    if (n == atol(at)) command(what);
    return 0;
}

static void note(const char *variable, const char *format, double value)
{
    const char *path = getenv(variable);
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f) return;
    fprintf(f, format, value);
    fclose(f);
}

__attribute__((destructor)) static void report(void)
{
    note("INJECT_READ", "%.0f\n", (double)atomic_load(&n_read));
    note("INJECT_COUNT", "%.0f\n", (double)atomic_load(&n_calls));
    if (atomic_load(&asked)) note("INJECT_AFTER", "%.3f\n", busy() - busy_then);
}

#define NEXT(type, name) ((type)dlsym(RTLD_NEXT, name))
void _exit(int code)
{
    report();
    NEXT(void (*)(int), "_exit")(code);
    for (;;) {} // makes the process hang
}

typedef ssize_t (*write_fn)(int, const void *, size_t);
ssize_t write(int fd, const void *p, size_t n)
{
    const char *step = getenv("INJECT_STEP"), *what = getenv("INJECT_WHAT");
    ssize_t k = NEXT(write_fn, "write")(fd, p, n);
    if (step && what && memmem(p, n, step, strlen(step))) at_step(what);
    return k;
}

typedef ssize_t (*pread_fn)(int, void *, size_t, off_t);
static void reads(void)
{
    const char *which = getenv("INJECT_CALLS");
    if (which && strstr(which, "reads")) fails("reads");
}
typedef ssize_t (*read_fn)(int, void *, size_t);
ssize_t read(int fd, void *p, size_t n) { return reads(), NEXT(read_fn, "read")(fd, p, n); }
static ssize_t counted(ssize_t n)
{
    if (n > 0) atomic_fetch_add(&n_read, n);
    return n;
}
ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    return reads(), counted(NEXT(pread_fn, "pread")(fd, p, n, at));
}
ssize_t pread64(int fd, void *p, size_t n, off_t at)
{
    return reads(), counted(NEXT(pread_fn, "pread64")(fd, p, n, at));
}

typedef ssize_t (*pwrite_fn)(int, const void *, size_t, off_t);
typedef int (*fd_fn)(int);
typedef int (*cut_fn)(int, off_t);
typedef int (*reserve_fn)(int, int, off_t, off_t);
typedef int (*path_fn)(const char *);
typedef int (*rename_fn)(const char *, const char *);
typedef int (*mkdir_fn)(const char *, mode_t);

/* Writes only the first half of the bytes of a call that then fails, as on a disk that becomes
 * full. */
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
int ftruncate(int fd, off_t n)
{
    return fails("ftruncate") ? -1 : NEXT(cut_fn, "ftruncate")(fd, n);
}
int ftruncate64(int fd, off_t n)
{
    return fails("ftruncate") ? -1 : NEXT(cut_fn, "ftruncate64")(fd, n);
}
int fallocate(int fd, int mode, off_t at, off_t n)
{
    return fails("fallocate") ? -1 : NEXT(reserve_fn, "fallocate")(fd, mode, at, n);
}
int fallocate64(int fd, int mode, off_t at, off_t n)
{
    return fails("fallocate") ? -1 : NEXT(reserve_fn, "fallocate64")(fd, mode, at, n);
}
int unlink(const char *path) { return fails("unlink") ? -1 : NEXT(path_fn, "unlink")(path); }
int rename(const char *from, const char *to)
{
    return fails("rename") ? -1 : NEXT(rename_fn, "rename")(from, to);
}
int mkdir(const char *path, mode_t mode)
{
    return fails("mkdir") ? -1 : NEXT(mkdir_fn, "mkdir")(path, mode);
}
