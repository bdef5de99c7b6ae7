/* file.c - reads and writes files. Loops continue after a short transfer or a signal. Each failure
 * names the path and the operating system's reason. A function that writes a whole file renames a
 * temporary file, so a file with the final name is always complete. */
#include "base/at.h"
#include "base/file_impl.h"
#include "base/ctx.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Largest number of bytes of one read(2). A larger number would delay the reaction to a signal,
 * because a signal cannot interrupt a read from a disk. */
enum { READ_ONCE = 64 << 20 };

osh_status osh_file_fail(osh_ctx *cx, const char *what, const char *path)
{
    char why[128];
    return osh_fail(cx, OSH_E_IO, "cannot %s %s: %s", what, path,
                    strerror_r(errno, why, sizeof why));
}

/* Opens a file with O_NONBLOCK. Without this flag, open(2) of a pipe would wait until another
 * process opens the other end. With this flag, open(2) of a pipe returns at once, and fails if the
 * pipe is opened for writing and no process reads it. */
int osh_fd_open(const char *path, int flags)
{
    int fd, high;
    do fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0666);
    while (fd < 0 && errno == EINTR);
    // removes O_NONBLOCK, so that later writes wait
    if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    if (fd < 0 || fd > STDERR_FILENO) return fd;
    high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int why = errno;
    close(fd);
    errno = why;
    return high;
}

static osh_status file_check_kind(osh_ctx *cx, const struct stat *st, const char *what,
                                  const char *path)
{
    static const struct { mode_t kind; const char *name;
    } others[] = {{S_IFDIR, "a directory"},
                  {S_IFIFO, "a pipe"},
                  {S_IFSOCK, "a socket"},
                  {S_IFCHR, "a character device"},
                  {S_IFBLK, "a block device"}};
    if (S_ISREG(st->st_mode)) return OSH_OK;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if ((st->st_mode & S_IFMT) == others[i].kind)
            return osh_fail(cx, OSH_E_IO, "cannot %s %s: it is %s, want a regular file", what, path,
                            others[i].name);
    return osh_fail(cx, OSH_E_IO, "cannot %s %s: want a regular file", what, path);
}

osh_status osh_file_new(osh_ctx *cx, osh_file **out, const char *path)
{
    osh_status rc = OSH_OK;
    osh_file *f = NULL; // own
    *out = NULL;
    OSH_NEW(cx, f, 1);
    f->fd = f->direct = -1;
    if (!(f->path = osh_strdup(cx, path))) OSH_TRY(OSH_E_NOMEM);
    *out = f, f = NULL; // give
done:
    osh_file_close(cx, f);
    return rc;
}

/* Opens a file. The file must be regular: reading a pipe or a device may never end, and opening a
 * device can have effects. With O_PATH the file may be of any kind. */
static osh_status file_open_with(osh_ctx *cx, osh_file **out, const char *path, int flags,
                                 const char *what)
{
    osh_status rc = OSH_OK;
    osh_file *f = NULL; // own
    struct stat st;

    *out = NULL;
    OSH_TRY(osh_file_new(cx, &f, path));
    if (!(flags & O_PATH) && !stat(path, &st)) OSH_TRY(file_check_kind(cx, &st, what, path));
    if ((f->fd = osh_fd_open(path, flags)) < 0 || fstat(f->fd, &st))
        OSH_TRY(osh_file_fail(cx, what, path));
    /* The open file is checked again: another process may have replaced the file after the first
     * check. */
    if (!(flags & O_PATH)) OSH_TRY(file_check_kind(cx, &st, what, path));
    *out = f, f = NULL;
done:
    osh_file_close(cx, f);
    return rc;
}

osh_status osh_file_open(osh_ctx *cx, osh_file **out, const char *path)
{
    return file_open_with(cx, out, path, O_RDONLY, "open");
}

osh_status osh_file_create(osh_ctx *cx, osh_file **out, const char *path)
{
    return file_open_with(cx, out, path, O_RDWR | O_CREAT | O_TRUNC, "create");
}

osh_status osh_file_open_rw(osh_ctx *cx, osh_file **out, const char *path)
{
    return file_open_with(cx, out, path, O_RDWR, "open for writing");
}

osh_status osh_file_open_or_create(osh_ctx *cx, osh_file **out, const char *path)
{
    return file_open_with(cx, out, path, O_RDWR | O_CREAT, "open for writing");
}

osh_status osh_file_hold(osh_ctx *cx, osh_file **out, const char *path)
{
    return file_open_with(cx, out, path, O_PATH | O_NOFOLLOW, "look at");
}

osh_status osh_file_of_fd(osh_ctx *cx, osh_file **out, int fd, const char *path)
{
    osh_status rc = OSH_OK;
    osh_file *f = NULL; // own
    struct stat st;
    *out = NULL;
    OSH_NEW(cx, f, 1);
    f->fd = f->direct = -1;
    if (!(f->path = osh_strdup(cx, path))) OSH_TRY(OSH_E_NOMEM);
    if (fstat(fd, &st)) OSH_TRY(osh_file_fail(cx, "look at", path));
    OSH_TRY(file_check_kind(cx, &st, "open", path));
    f->fd = fd, fd = -1;
    *out = f, f = NULL; // give
done:
    if (fd >= 0) close(fd);
    osh_file_close(cx, f);
    return rc;
}

void osh_file_close(osh_ctx *cx, osh_file *f)
{
    if (!f) return;
    if (f->locked) osh_file_unlock(f);
    // errors of close do not matter: data that must be safe was synced before
    if (f->fd >= 0) close(f->fd);
    if (f->direct >= 0) close(f->direct);
    osh_free(cx, f->path);
    osh_free(cx, f);
}

int64_t osh_file_bytes(const osh_file *f)
{
    struct stat st;
    return fstat(f->fd, &st) ? -1 : (int64_t)st.st_size;
}

const char *osh_file_path(const osh_file *f)
{
    return f->path;
}

osh_status osh_file_pread(osh_ctx *cx, osh_file *f, void *to, size_t n, int64_t offset)
{
    size_t got = 0;
    while (got < n) {
        if (got && osh_interrupted(cx)) return osh_check_interrupt(cx);
        size_t want = n - got < READ_ONCE ? n - got : READ_ONCE;
        ssize_t k = pread(f->fd, (char *)to + got, want, (off_t)(offset + (int64_t)got));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return osh_file_fail(cx, "read", f->path);
        if (k == 0)
            return osh_fail(cx, OSH_E_FORMAT, "needs bytes [%lld, %lld) but the file has %lld: %s",
                            (long long)offset, (long long)(offset + (int64_t)n),
                            (long long)osh_file_bytes(f), f->path);
        got += (size_t)k;
        atomic_fetch_add(&cx->sh->read_bytes, k);
    }
    return OSH_OK;
}

/* DIRECT_ALIGN: alignment of memory, offset and size in bytes. DIRECT_LEAST: smallest read, in
 * bytes, for which direct access is used. */
enum { DIRECT_ALIGN = OSH_BLOCK_BYTES, DIRECT_LEAST = 1 << 20 };

typedef struct scan { // a read of n bytes of f from `offset` on; fn gets the bytes chunk by chunk
    osh_file *f;
    char *room;       // aligned buffer of room_bytes bytes
    size_t room_bytes, n, got;
    int64_t offset;
    void (*fn)(void *user, const void *p, size_t n);
    void *user;
} scan;

/* Reads whole blocks as long as the file system supports direct access. `fd` is the file of s->f,
 * opened for direct access. */
static osh_status scan_direct(osh_ctx *cx, scan *s, int fd)
{
    int64_t at = s->offset / DIRECT_ALIGN * DIRECT_ALIGN, end = s->offset + (int64_t)s->n;
    while (at < end) {
        size_t want = (size_t)((end - at + DIRECT_ALIGN - 1) / DIRECT_ALIGN * DIRECT_ALIGN);
        if (osh_interrupted(cx)) return osh_check_interrupt(cx);
        ssize_t k = pread(fd, s->room, want < s->room_bytes ? want : s->room_bytes, (off_t)at);
        if (k < 0 && errno == EINTR) continue;
        // the file system refuses direct access although it accepted O_DIRECT
        if (k < 0 && errno == EINVAL) return OSH_OK;
        if (k < 0) return osh_file_fail(cx, "read", s->f->path);
        int64_t from = at > s->offset ? at : s->offset, to_end = at + k < end ? at + k : end;
        if (to_end > from) {
            s->fn(s->user, s->room + (from - at), (size_t)(to_end - from));
            s->got = (size_t)(to_end - s->offset);
            atomic_fetch_add(&cx->sh->read_bytes, to_end - from);
        }
        if (k % DIRECT_ALIGN || k == 0) return OSH_OK; // 0 bytes: the end of the file
        at += k;
    }
    return OSH_OK;
}

osh_status osh_file_scan(osh_ctx *cx, osh_file *f, size_t n, int64_t offset,
                         void (*fn)(void *user, const void *p, size_t n), void *user)
{
    osh_status rc = OSH_OK;
    char *block = NULL; // own
    scan s = {.f = f, .n = n, .offset = offset, .fn = fn, .user = user,
              .room_bytes = n < OSH_DIRECT_BYTES ? osh_file_room(n) : OSH_DIRECT_BYTES};
    osh_file again = {.fd = f->fd, .direct = f->direct};

    if (n >= DIRECT_LEAST) osh_file_use_direct(&again);
    osh_mem_class old = osh_mem_use(cx, OSH_MEM_HOST);
    block = osh_alloc(cx, s.room_bytes + DIRECT_ALIGN);
    osh_mem_use(cx, old);
    if (!block) OSH_TRY(OSH_E_NOMEM);
    s.room = osh_file_align(block);
    if (n >= DIRECT_LEAST && again.direct >= 0) OSH_TRY(scan_direct(cx, &s, again.direct));
    while (s.got < n) {
        size_t k = n - s.got < s.room_bytes ? n - s.got : s.room_bytes;
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(osh_file_pread(cx, f, s.room, k, offset + (int64_t)s.got));
        fn(user, s.room, k);
        s.got += k;
    }
done:
    if (again.direct >= 0 && again.direct != f->direct) close(again.direct);
    osh_free(cx, block);
    return rc;
}

static void scan_put(void *user, const void *p, size_t n)
{
    char **to = user;
    memcpy(*to, p, n);
    *to += n;
}

osh_status osh_file_pread_direct(osh_ctx *cx, osh_file *f, void *to, size_t n, int64_t offset)
{
    char *at = to;
    if (n < DIRECT_LEAST) return osh_file_pread(cx, f, to, n, offset);
    return osh_file_scan(cx, f, n, offset, scan_put, &at);
}

osh_status osh_file_pwrite(osh_ctx *cx, osh_file *f, const void *from, size_t n, int64_t offset)
{
    size_t put = 0;
    while (put < n) {
        ssize_t k =
            pwrite(f->fd, (const char *)from + put, n - put, (off_t)(offset + (int64_t)put));
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return osh_file_fail(cx, "write", f->path);
        put += (size_t)k;
        atomic_fetch_add(&cx->sh->written_bytes, k);
    }
    return OSH_OK;
}

void osh_file_use_direct(osh_file *f)
{
    char path[64]; // path of the open file in /proc, also valid if the file was renamed
    int mode = fcntl(f->fd, F_GETFL) & O_ACCMODE;
    snprintf(path, sizeof path, "/proc/self/fd/%d", f->fd);
    /* -1: the file system has no direct access */
    if (f->direct < 0) f->direct = osh_fd_open(path, mode | O_DIRECT);
}

int osh_file_direct_fd(const osh_file *f) { return f->direct; }

size_t osh_file_room(size_t n) { return (n / OSH_BLOCK_BYTES + 2) * OSH_BLOCK_BYTES; }

void *osh_file_align(void *p)
{
    return (char *)p + (OSH_BLOCK_BYTES - (uintptr_t)p % OSH_BLOCK_BYTES) % OSH_BLOCK_BYTES;
}

osh_status osh_file_read_blocks(osh_ctx *cx, osh_file *f, void *room, size_t n, int64_t offset)
{
    /* `have` counts bytes from the start of the first block. */
    size_t lead = (size_t)(offset % OSH_BLOCK_BYTES), have = 0;
    size_t want = (lead + n + OSH_BLOCK_BYTES - 1) / OSH_BLOCK_BYTES * OSH_BLOCK_BYTES;
    int64_t at = offset - (int64_t)lead;
    while (f->direct >= 0 && have < lead + n) {
        ssize_t k = pread(f->direct, (char *)room + have, want - have, (off_t)(at + (int64_t)have));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && errno != EINVAL) return osh_file_fail(cx, "read", f->path);
        // the file system refuses direct access although it accepted O_DIRECT, or the file ends
        if (k <= 0) break;
        have += (size_t)k;
        // after a partial block, osh_file_pread below reads the remaining bytes
        if (k % OSH_BLOCK_BYTES) break;
    }
    size_t got = have < lead ? 0 : have - lead < n ? have - lead : n;
    atomic_fetch_add(&cx->sh->read_bytes, (int64_t)got);
    return osh_file_pread(cx, f, (char *)room + lead + got, n - got, offset + (int64_t)got);
}

osh_status osh_file_write_blocks(osh_ctx *cx, osh_file *f, const void *from, size_t n,
                                 int64_t offset)
{
    osh_status rc = OSH_OK;
    size_t head = (size_t)((OSH_BLOCK_BYTES - offset % OSH_BLOCK_BYTES) % OSH_BLOCK_BYTES);
    if (head > n) head = n;
    size_t end = f->direct < 0 ? head : head + (n - head) / OSH_BLOCK_BYTES * OSH_BLOCK_BYTES,
           put = head;
    OSH_TRY(osh_file_pwrite(cx, f, from, head, offset));
    while (put < end) {
        ssize_t k =
            pwrite(f->direct, (const char *)from + put, end - put, (off_t)(offset + (int64_t)put));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && errno != EINVAL) return osh_file_fail(cx, "write", f->path);
        if (k <= 0) break; // the file system refuses direct access although it accepted O_DIRECT
        put += (size_t)k;
        atomic_fetch_add(&cx->sh->written_bytes, k);
        if (k % OSH_BLOCK_BYTES) break;
    }
    OSH_TRY(osh_file_pwrite(cx, f, (const char *)from + put, n - put, offset + (int64_t)put));
done:
    return rc;
}

osh_status osh_file_reserve(osh_ctx *cx, osh_file *f, int64_t n_bytes)
{
    int rc;
    if (n_bytes <= 0) return OSH_OK;
    do rc = fallocate(f->fd, 0, 0, (off_t)n_bytes);
    while (rc && errno == EINTR);
    if (!rc) return OSH_OK;
    /* If the file system has no fallocate, checks the free space and sets the size. */
    if (errno == EOPNOTSUPP || errno == ENOSYS) {
        int64_t room = osh_disk_free(f->path), have = osh_file_bytes(f);
        errno = ENOSPC;
        if (room < 0 || room >= n_bytes - have)
            if (n_bytes <= have || !ftruncate(f->fd, (off_t)n_bytes)) return OSH_OK;
    }
    char what[64];
    snprintf(what, sizeof what, "reserve %lld bytes for", (long long)n_bytes);
    return osh_file_fail(cx, what, f->path);
}

osh_status osh_file_sync(osh_ctx *cx, osh_file *f)
{
    int rc;
    do rc = fsync(f->fd);
    while (rc && errno == EINTR);
    /* EINVAL: the file system has no sync */
    if (rc && errno != EINVAL) return osh_file_fail(cx, "sync", f->path);
    return OSH_OK;
}

osh_status osh_file_sync_data(osh_ctx *cx, osh_file *f)
{
    int rc;
    do rc = fdatasync(f->fd);
    while (rc && errno == EINTR);
    return rc && errno != EINVAL ? osh_file_fail(cx, "sync", f->path) : OSH_OK;
}

void osh_file_start_write(osh_file *f, int64_t offset, size_t n)
{
    /* sync_file_range is only a hint to the kernel. The later sync reports any error. */
    sync_file_range(f->fd, offset, (off_t)n, SYNC_FILE_RANGE_WRITE);
}

osh_status osh_file_truncate(osh_ctx *cx, osh_file *f, int64_t n_bytes)
{
    int rc;
    do rc = ftruncate(f->fd, (off_t)n_bytes);
    while (rc && errno == EINTR);
    return rc ? osh_file_fail(cx, "cut", f->path) : OSH_OK;
}

bool osh_file_is_at(const osh_file *f, const char *path)
{
    struct stat a, b;
    return !fstat(f->fd, &a) && !lstat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

void osh_file_forget(osh_file *f)
{
    osh_file_forget_part(f, 0, 0); // for posix_fadvise, n = 0 means up to the end of the file
}

void osh_file_forget_part(osh_file *f, int64_t offset, size_t n)
{
    /* posix_fadvise is only a hint to the kernel, so its result is not checked. */
    posix_fadvise(f->fd, (off_t)offset, (off_t)n, POSIX_FADV_DONTNEED);
}

osh_status osh_file_read_all(osh_ctx *cx, char **out, size_t *n, const char *path, size_t max_bytes)
{
    osh_status rc = OSH_OK;
    osh_file *f = NULL; // own
    char *p = NULL;     // own
    size_t got = 0, cap;

    *out = NULL;
    *n = 0;
    if (max_bytes == 0 || max_bytes > PTRDIFF_MAX / 2) max_bytes = PTRDIFF_MAX / 2;
    OSH_TRY(osh_file_open(cx, &f, path));
    int64_t size = osh_file_bytes(f);
    if (size > 0 && (size_t)size > max_bytes)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %lld bytes, at most %zu are read", path, (long long)size,
                 max_bytes);
    cap = (size > 0 ? (size_t)size : 4096) + 1; // files of /proc report size 0
    /* WILLNEED: the kernel reads the file in one large request instead of one per 128 KiB. */
    posix_fadvise(f->fd, 0, 0, POSIX_FADV_WILLNEED);
    if (!(p = osh_alloc(cx, cap))) OSH_TRY(OSH_E_NOMEM);
    for (;;) {
        if (got) OSH_TRY(osh_check_interrupt(cx));
        ssize_t k = read(f->fd, p + got, cap - got < READ_ONCE ? cap - got : READ_ONCE);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) OSH_TRY(osh_file_fail(cx, "read", path));
        if (k == 0) break;
        got += (size_t)k;
        atomic_fetch_add(&cx->sh->read_bytes, k);
        if (got > max_bytes) OSH_FAIL(cx, OSH_E_FORMAT, "%s: more than %zu bytes", path, max_bytes);
        if (got == cap) { // one byte is reserved for the NUL
            char *q = osh_realloc(cx, p, cap * 2);
            if (!q) OSH_TRY(OSH_E_NOMEM);
            p = q;
            cap *= 2;
        }
    }
    p[got] = 0;
    *n = got;
    *out = p, p = NULL;
done:
    osh_free(cx, p);
    osh_file_close(cx, f);
    return rc;
}

osh_status osh_file_write_by(osh_ctx *cx, const char *path,
                             osh_status (*fill)(osh_ctx *cx, void *user, osh_file *f), void *user)
{
    osh_status rc = OSH_OK;
    osh_file *f = NULL; // own
    char *temp = NULL;  // own
    bool made = false;

    if (!(temp = osh_sprintf(cx, "%s.tmp", path))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_file_create_exclusive(cx, &f, temp));
    made = true;
    OSH_TRY(fill(cx, user, f));
    OSH_TRY(osh_file_sync(cx, f));
    OSH_TRY(osh_rename(cx, temp, path));
    made = false;
done:
    osh_file_close(cx, f);
    if (made) unlink(temp);
    osh_free(cx, temp);
    return rc;
}

typedef struct bytes { const void *p; size_t n; } bytes;

static osh_status fill_bytes(osh_ctx *cx, void *user, osh_file *f)
{
    const bytes *b = user;
    return osh_file_pwrite(cx, f, b->p, b->n, 0);
}

osh_status osh_file_write_all(osh_ctx *cx, const char *path, const void *p, size_t n)
{
    return osh_file_write_by(cx, path, fill_bytes, &(bytes){p, n});
}

osh_status osh_file_copy(osh_ctx *cx, const char *to, const char *from)
{
    enum { BLOCK = 1 << 16 };
    osh_status rc = OSH_OK;
    osh_file *in = NULL, *out = NULL; // own
    char *block = NULL;               // own
    struct stat a, b;

    OSH_TRY(osh_file_open(cx, &in, from));
    if (!fstat(in->fd, &a) && !stat(to, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        OSH_FAIL(cx, OSH_E_IO, "cannot copy %s to itself", from);
    if (!(block = osh_alloc(cx, BLOCK))) OSH_TRY(OSH_E_NOMEM);
    OSH_TRY(osh_file_create_exclusive(cx, &out, to));
    int64_t n = osh_file_bytes(in);
    for (int64_t at = 0; at < n; at += BLOCK) {
        size_t k = (size_t)(n - at < BLOCK ? n - at : BLOCK);
        OSH_TRY(osh_file_pread(cx, in, block, k, at));
        OSH_TRY(osh_file_pwrite(cx, out, block, k, at));
    }
    OSH_TRY(osh_file_sync(cx, out));
done:
    if (rc && out) unlink(to);
    osh_free(cx, block);
    osh_file_close(cx, out);
    osh_file_close(cx, in);
    return rc;
}

osh_io_counts osh_io_counted(const osh_ctx *cx)
{
    return (osh_io_counts){atomic_load(&cx->sh->read_bytes), atomic_load(&cx->sh->written_bytes)};
}
