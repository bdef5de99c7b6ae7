/* file.h - reads and writes files and directories. Every failure names the path and the operating
 * system's reason. */
#ifndef OSH_FILE_H
#define OSH_FILE_H
#include "base/base.h"

/* Opens a file as open(2) does, with close-on-exec. The descriptor is never 0, 1 or 2. If the
 * process was started with these descriptors closed, its messages to stdout or stderr would
 * otherwise go into the file. Returns < 0 and sets errno on failure. */
int osh_fd_open(const char *path, int flags);

typedef struct osh_file osh_file; // an open file: descriptor and path
/* Opens a file for reading only. */
osh_status osh_file_open(osh_ctx *cx, osh_file **out, const char *path);
/* Creates a file for reading and writing; an existing file becomes empty. */
osh_status osh_file_create(osh_ctx *cx, osh_file **out, const char *path);
/* Creates a temporary file and locks it until osh_file_close. Never follows a link and never
 * replaces a file of another user. First removes a file at `path` that is regular, has one hard
 * link, is not locked, and belongs to this user (or this user is root): a killed process may have
 * left such a file. Anything else at `path` is an error. */
osh_status osh_file_create_exclusive(osh_ctx *cx, osh_file **out, const char *path);
/* Opens an existing file for reading and writing. */
osh_status osh_file_open_rw(osh_ctx *cx, osh_file **out, const char *path);
/* Opens a file for reading and writing and keeps its content. Creates the file if it is missing. */
osh_status osh_file_open_or_create(osh_ctx *cx, osh_file **out, const char *path);
/* Opens a file, a directory or a link for osh_file_is_at only, not for reading or writing. Until
 * osh_file_close no other file gets the same inode number. */
osh_status osh_file_hold(osh_ctx *cx, osh_file **out, const char *path);
void osh_file_close(osh_ctx *cx, osh_file *f);                             // accepts NULL
/* Returns the size of the file in bytes, or -1 if it is unknown. */
int64_t osh_file_bytes(const osh_file *f);
/* Returns the path with which the file was opened (a view of f). */
const char *osh_file_path(const osh_file *f);
/* Reads bytes [offset, offset + n) of the file. Fails if the file does not have all of these
 * bytes. */
osh_status osh_file_pread(osh_ctx *cx, osh_file *f, void *to, size_t n, int64_t offset);
/* Reads all n bytes without the page cache, if the file system supports this and n is at least 1
 * MiB. Thus a file that is read only once does not push other files out of the cache. Allocates a
 * little more than OSH_DIRECT_BYTES of host memory during the call. */
enum { OSH_DIRECT_BYTES = 2 << 20 };
osh_status osh_file_pread_direct(osh_ctx *cx, osh_file *f, void *to, size_t n, int64_t offset);
/* Reads n bytes like osh_file_pread_direct and passes them to `fn` chunk by chunk. */
osh_status osh_file_scan(osh_ctx *cx, osh_file *f, size_t n, int64_t offset,
                         void (*fn)(void *user, const void *p, size_t n), void *user);
/* Writes n bytes at `offset`. Fails unless all of them are written. */
osh_status osh_file_pwrite(osh_ctx *cx, osh_file *f, const void *from, size_t n, int64_t offset);

/* Direct access (O_DIRECT) moves blocks of OSH_BLOCK_BYTES between the disk and aligned memory
 * without the page cache. The functions below use the page cache if the file system has no direct
 * access, or if osh_file_use_direct was not called. */
enum { OSH_BLOCK_BYTES = 4096 };
/* Opens a second descriptor of f for direct access. Must be called at most once, before other
 * threads use f. */
void osh_file_use_direct(osh_file *f);
/* Returns the descriptor for direct access, valid while f is open; < 0: none. */
int osh_file_direct_fd(const osh_file *f);
/* Returns the size of a buffer of whole blocks that can hold n bytes of a file from any offset. */
size_t osh_file_room(size_t n);
/* Returns the first aligned address in the allocation p. The allocation must be OSH_BLOCK_BYTES
 * larger than the caller needs. */
void *osh_file_align(void *p);
/* Reads all n bytes to the address `room + offset % OSH_BLOCK_BYTES`. `room` is aligned and has
 * osh_file_room(n) bytes. */
osh_status osh_file_read_blocks(osh_ctx *cx, osh_file *f, void *room, size_t n, int64_t offset);
/* Writes n bytes. `from` has the alignment of the offset: (uintptr_t)from % OSH_BLOCK_BYTES ==
 * offset % OSH_BLOCK_BYTES. Partial blocks at both ends go through the page cache. */
osh_status osh_file_write_blocks(osh_ctx *cx, osh_file *f, const void *from, size_t n,
                                 int64_t offset);
/* Reserves disk space for n_bytes. Fails if the disk is full. */
osh_status osh_file_reserve(osh_ctx *cx, osh_file *f, int64_t n_bytes);
/* Waits until the file is on the disk (fsync). */
osh_status osh_file_sync(osh_ctx *cx, osh_file *f);
/* Syncs the data of the file without its times (fdatasync). */
osh_status osh_file_sync_data(osh_ctx *cx, osh_file *f);
/* Starts writing to the disk without waiting, so that a later sync has less to do. */
void osh_file_start_write(osh_file *f, int64_t offset, size_t n);
/* Sets the size of the file. */
osh_status osh_file_truncate(osh_ctx *cx, osh_file *f, int64_t n_bytes);
/* Locks the whole file for this process until f is closed. *taken is false if another process or
 * another osh_file of this process has the lock. A forked child does not get the lock: fork closes
 * f in the child. */
osh_status osh_file_lock(osh_ctx *cx, osh_file *f, bool *taken);
/* True if the path leads to the open file f, and the last name of the path is not a link. */
bool osh_file_is_at(const osh_file *f, const char *path);
/* An osh_stamp identifies the state of a file, so that a change is found without reading the
 * file. */
typedef struct osh_stamp {
    int64_t n_bytes, mtime_ns, ctime_ns;
    uint64_t inode, device;
    /* True if the last change is so recent that another change could get the same time. The stamp
     * would then not show the other change. */
    bool fresh;
} osh_stamp;
/* Set *out to the stamp of an open file, or of the file at `path`. */
osh_status osh_file_stamp(osh_ctx *cx, osh_stamp *out, const osh_file *f);
osh_status osh_path_stamp(osh_ctx *cx, osh_stamp *out, const char *path);
/* Waits until the last change of the file is old enough, so that a new stamp is not `fresh`. The
 * wait takes at most 0.1 s. */
osh_status osh_path_settle(osh_ctx *cx, const char *path);
/* True if the stamps `a` and `b` describe the same state of the same file. */
bool osh_stamp_same(const osh_stamp *a, const osh_stamp *b);
/* Drops the clean pages of the file from the page cache, so that the next read uses the disk. */
void osh_file_forget(osh_file *f);
/* Drops the clean pages of bytes [offset, offset + n) of the file from the page cache. */
void osh_file_forget_part(osh_file *f, int64_t offset, size_t n);

/* Reads a whole file. *out (own) gets n bytes followed by a NUL. If max_bytes is 0, there is no
 * limit. */
osh_status osh_file_read_all(osh_ctx *cx, char **out, size_t *n, const char *path,
                             size_t max_bytes);
/* Writes a whole file under a temporary name, syncs and renames it. */
osh_status osh_file_write_all(osh_ctx *cx, const char *path, const void *p, size_t n);
/* Writes a whole file like osh_file_write_all. The callback `fill` writes the content. */
osh_status osh_file_write_by(osh_ctx *cx, const char *path,
                             osh_status (*fill)(osh_ctx *cx, void *user, osh_file *f), void *user);
/* Copies the content of a file and syncs the copy. */
osh_status osh_file_copy(osh_ctx *cx, const char *to, const char *from);
/* True if `path` names anything but a directory. Links are followed. */
bool osh_file_exists(const char *path);
/* Sets *n_bytes to the size of the file, and *mtime_ns to the time of its last change in
 * nanoseconds. */
osh_status osh_file_stat(osh_ctx *cx, int64_t *n_bytes, int64_t *mtime_ns, const char *path);
/* Removes a file. A missing file is no error. */
osh_status osh_file_remove(osh_ctx *cx, const char *path);
/* True if `path` is a directory. Links are followed. */
bool osh_dir_exists(const char *path);
/* Makes a directory and its missing parents. An existing directory is no error. */
osh_status osh_dir_make(osh_ctx *cx, const char *path);
/* Lists the names in a directory, sorted by bytes. The caller owns *names and frees it with
 * osh_strings_free. */
osh_status osh_dir_list(osh_ctx *cx, char ***names, size_t *n, const char *path);
void osh_strings_free(osh_ctx *cx, char **names, size_t n);
/* Removes a directory and everything in it. A missing directory is no error. */
osh_status osh_dir_remove(osh_ctx *cx, const char *path);
/* Syncs the list of names in the directory. */
osh_status osh_dir_sync(osh_ctx *cx, const char *path);
osh_status osh_dir_sync_above(osh_ctx *cx, const char *path); // syncs the directory that holds path
/* Renames a file or directory and syncs the directory that contains the new name. */
osh_status osh_rename(osh_ctx *cx, const char *from, const char *to);
/* Returns the path dir/name (own), or NULL if there is no memory. */
char *osh_path_join(osh_ctx *cx, const char *dir, const char *name);
/* Sets *out (own) to `path` without trailing slashes. If the last name of the path is a link, *out
 * is the path to which the link points. `path` need not exist yet. */
osh_status osh_path_resolve(osh_ctx *cx, char **out, const char *path);
/* True if a file system is mounted at `path`; such a directory cannot be renamed. */
bool osh_dir_is_mount(const char *path);
/* Returns the free space in bytes on the disk that holds or will hold `path`; < 0: unknown. */
int64_t osh_disk_free(const char *path);

/* Number of bytes that all osh_file_* functions have read and written. */
typedef struct osh_io_counts {
    int64_t read_bytes, written_bytes;
} osh_io_counts;
/* Returns the numbers of bytes that were read and written since the context was made. */
osh_io_counts osh_io_counted(const osh_ctx *cx);
#endif
