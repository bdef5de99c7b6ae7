/* file_stamp.c - reads the size, the times and the inode of a file, which show later whether the
 * file has changed. */
#include "base/file_impl.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

enum { TICK_NS = 50000000 }; // 50 ms; some kernels set times of files in steps of up to 10 ms

static int64_t timespec_ns(struct timespec t) { return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec; }

static osh_stamp stamp_of(const struct stat *st)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    osh_stamp s = {.n_bytes = (int64_t)st->st_size,
                   .mtime_ns = timespec_ns(st->st_mtim),
                   .ctime_ns = timespec_ns(st->st_ctim),
                   .inode = (uint64_t)st->st_ino,
                   .device = (uint64_t)st->st_dev};
    /* The clock of a file server may differ from the local clock, so the difference may be
     * negative. */
    s.fresh = llabs(timespec_ns(now) - s.ctime_ns) < TICK_NS;
    return s;
}

osh_status osh_file_stamp(osh_ctx *cx, osh_stamp *out, const osh_file *f)
{
    struct stat st;
    if (fstat(f->fd, &st)) return osh_file_fail(cx, "look at", f->path);
    *out = stamp_of(&st);
    return OSH_OK;
}

osh_status osh_path_stamp(osh_ctx *cx, osh_stamp *out, const char *path)
{
    struct stat st;
    if (stat(path, &st)) return osh_file_fail(cx, "look at", path);
    *out = stamp_of(&st);
    return OSH_OK;
}

osh_status osh_path_settle(osh_ctx *cx, const char *path)
{
    osh_status rc = OSH_OK;
    osh_stamp s = {.fresh = true};
    for (int i = 0; i < 10 && s.fresh && !rc; i++) {
        if (i) nanosleep(&(struct timespec){.tv_nsec = TICK_NS / 5}, NULL);
        rc = osh_path_stamp(cx, &s, path);
    }
    return rc;
}

bool osh_stamp_same(const osh_stamp *a, const osh_stamp *b)
{
    return a->n_bytes == b->n_bytes && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns &&
           a->inode == b->inode && a->device == b->device;
}
