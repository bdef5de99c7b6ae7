/* file_lock.c - locks files, and creates temporary files. A temporary file is always new and
 * locked, and never a file that another user has put at its path. */
#include "base/file_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The files that this process has locked. A forked child shares the open files, and a lock of
 * flock(2) lasts until all processes have closed the file. Therefore a handler of fork(2) closes
 * the locked files in the child. (exec closes them anyway.) */
static struct {
    pthread_mutex_t mutex;
    pthread_once_t once;
    osh_file *first;
} locks = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_ONCE_INIT, NULL};

static void locks_before_fork(void) { pthread_mutex_lock(&locks.mutex); }
static void locks_in_parent(void) { pthread_mutex_unlock(&locks.mutex); }

static void locks_in_child(void)
{
    for (osh_file *f = locks.first; f; f = f->next_locked) {
        close(f->fd);
        f->fd = -1, f->locked = false;
    }
    locks.first = NULL;
    pthread_mutex_unlock(&locks.mutex);
}

static void locks_watch_fork(void)
{
    pthread_atfork(locks_before_fork, locks_in_parent, locks_in_child);
}

/* Removes the file from the list and closes it while the list's mutex is held. A fork between these
 * two steps would pass the file's lock to the child. */
void osh_file_unlock(osh_file *f)
{
    pthread_mutex_lock(&locks.mutex);
    for (osh_file **at = &locks.first; *at; at = &(*at)->next_locked) {
        if (*at != f) continue;
        *at = f->next_locked;
        break;
    }
    // `close` alone would not unlock the file while a child of a concurrent fork has it open
    flock(f->fd, LOCK_UN);
    close(f->fd);
    f->fd = -1, f->locked = false;
    pthread_mutex_unlock(&locks.mutex);
}

osh_status osh_file_lock(osh_ctx *cx, osh_file *f, bool *taken)
{
    int rc;
    pthread_once(&locks.once, locks_watch_fork);
    /* The mutex is locked first: a fork between flock and the change of the list would pass the
     * file's lock to the child. */
    pthread_mutex_lock(&locks.mutex);
    do rc = flock(f->fd, LOCK_EX | LOCK_NB);
    while (rc && errno == EINTR);
    int why = errno;
    if (!rc && !f->locked) f->next_locked = locks.first, locks.first = f, f->locked = true;
    pthread_mutex_unlock(&locks.mutex);
    /* a file system without locks is no error: *taken is true */
    *taken = !rc || why == EOPNOTSUPP || why == ENOLCK || why == ENOSYS;
    errno = why;
    return rc && !*taken && why != EWOULDBLOCK ? osh_file_fail(cx, "lock", f->path) : OSH_OK;
}

/* Returns NULL if a killed process of this user may have left the file that `st` describes.
 * Otherwise returns a description of the file, such as "a directory". */
static const char *foreign_text(const struct stat *st)
{
    if (S_ISLNK(st->st_mode)) return "a symbolic link";
    if (S_ISDIR(st->st_mode)) return "a directory";
    if (!S_ISREG(st->st_mode)) return "a device, a pipe or a socket";
    if (st->st_nlink != 1) return "a file with a second name (a hard link)";
    return geteuid() && st->st_uid != geteuid() ? "another user's file" : NULL;
}

/* Removes the file at `path` if a killed process has left it. A missing file is no error. Fails if
 * a process has locked the file. Also fails if the file is not regular, belongs to another user or
 * has several hard links. */
static osh_status leftover_remove(osh_ctx *cx, const char *path)
{
    osh_status rc = OSH_OK;
    osh_file *f = NULL; // own
    struct stat st;
    bool taken = false;
    OSH_TRY(osh_file_new(cx, &f, path));
    if (lstat(path, &st)) {
        if (errno != ENOENT) OSH_TRY(osh_file_fail(cx, "look at", path));
        goto done;
    }
    if (foreign_text(&st))
        OSH_FAIL(cx, OSH_E_IO,
                 "cannot create %s: found %s, want no file, or a file that a killed run left", path,
                 foreign_text(&st));
    if ((f->fd = osh_fd_open(path, O_RDWR | O_NOFOLLOW)) < 0) {
        /* ENOENT: the process that made the file has already renamed it */
        if (errno != ENOENT) OSH_TRY(osh_file_fail(cx, "open", path));
        goto done;
    }
    OSH_TRY(osh_file_lock(cx, f, &taken));
    if (!taken) OSH_FAIL(cx, OSH_E_IO, "cannot create %s: another process is writing it", path);
    if (osh_file_is_at(f, path) && unlink(path)) OSH_TRY(osh_file_fail(cx, "remove", path));
done:
    osh_file_close(cx, f);
    return rc;
}

osh_status osh_file_create_exclusive(osh_ctx *cx, osh_file **out, const char *path)
{
    enum { TRIES = 8 };
    osh_status rc = OSH_OK;
    osh_file *f = NULL; // own

    *out = NULL;
    for (int i = 0; i < TRIES && !*out; i++) {
        bool taken = false;
        OSH_TRY(leftover_remove(cx, path));
        OSH_TRY(osh_file_new(cx, &f, path));
        f->fd = osh_fd_open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW);
        if (f->fd < 0 && errno != EEXIST) OSH_TRY(osh_file_fail(cx, "create", path));
        if (f->fd >= 0) OSH_TRY(osh_file_lock(cx, f, &taken));
        if (taken && osh_file_is_at(f, path)) *out = f, f = NULL; // give
        /* another process made the file first, or removed the new file before this process locked
         * it */
        osh_file_close(cx, f), f = NULL;
    }
    if (!*out)
        OSH_FAIL(cx, OSH_E_IO, "cannot create %s: other processes create and remove it meanwhile",
                 path);
done:
    osh_file_close(cx, f);
    return rc;
}
