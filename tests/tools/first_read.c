/* first_read.c - is a library for LD_PRELOAD. It measures the time from the start of a program to
 * its first pread of a .safetensors file, and the time from the start to its first pread after the
 * header of this file.
 *
 *   FIRST_READ_SINCE=$EPOCHREALTIME FIRST_READ=FILE
 *
 * FILE gets a line for each time, such as "header 0.0124 0.0091" and "weights 0.0150 0.0102". The
 * first number is the elapsed time, and the second is the processor time, both in seconds. The
 * clock starts when the shell reads EPOCHREALTIME. So the elapsed time includes fork, execve, and a
 * second execve that the program itself makes. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Atomic int seen[2]; // number of calls: [0] for headers, [1] for weights

static int is_shard(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path);
    const char end[] = ".safetensors";
    const ssize_t n_end = (ssize_t)strlen(end);
    return n > n_end && !memcmp(path + n - n_end, end, (size_t)n_end);
}

static void note(int fd, off_t at)
{
    // a file has 8 bytes with the length of the header, the header, then the weights
    const int what = at > 8;
    const char *since = getenv("FIRST_READ_SINCE"), *to = getenv("FIRST_READ");
    if (atomic_load(&seen[1]) || !since || !to || !is_shard(fd) || atomic_exchange(&seen[what], 1))
        return;
    struct timespec t, busy;
    clock_gettime(CLOCK_REALTIME, &t);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &busy);
    FILE *f = fopen(to, "a");
    if (!f) return;
    double wall = (double)t.tv_sec - strtod(since, NULL) + (double)t.tv_nsec / 1e9;
    fprintf(f, "%s %.4f %.4f\n", what ? "weights" : "header", wall,
            (double)busy.tv_sec + (double)busy.tv_nsec / 1e9);
    fclose(f);
}

typedef ssize_t (*pread_fn)(int, void *, size_t, off_t);
ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    note(fd, at);
    return ((pread_fn)dlsym(RTLD_NEXT, "pread"))(fd, p, n, at);
}
ssize_t pread64(int fd, void *p, size_t n, off_t at)
{
    note(fd, at);
    return ((pread_fn)dlsym(RTLD_NEXT, "pread64"))(fd, p, n, at);
}
