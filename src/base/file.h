/* file.h - files and directories. Every failure names the path and the operating system's reason. */
#ifndef OSH_FILE_H
#define OSH_FILE_H
#include "base/base.h"

/* open(2), closed at exec; never one of the descriptors 0 to 2: where the process has them closed, what it says there
 * would be written into the file. < 0: errno. */
int osh_fd_open(const char *path, int flags);

typedef struct osh_file osh_file; // an open file: fd and path
osh_status osh_file_open(osh_ctx *cx, osh_file **out, const char *path);   // read only
osh_status osh_file_create(osh_ctx *cx, osh_file **out, const char *path); // read/write, truncated
/* As osh_file_create, but never through a link and never over what somebody else made: for temporary files. The file
 * is new, and locked until it is closed. A leftover of a killed process is removed first: a regular file of this user
 * (root: of any) with one name that no process has locked. Anything else at path is an error. */
osh_status osh_file_create_exclusive(osh_ctx *cx, osh_file **out, const char *path);
osh_status osh_file_open_rw(osh_ctx *cx, osh_file **out, const char *path); // must exist
osh_status osh_file_open_or_create(osh_ctx *cx, osh_file **out, const char *path); // read/write, what it holds stays
/* A file, directory or link, not its bytes: for osh_file_is_at alone. While it is held no other one gets its inode. */
osh_status osh_file_hold(osh_ctx *cx, osh_file **out, const char *path);
void osh_file_close(osh_ctx *cx, osh_file *f);                             // accepts NULL
int64_t osh_file_bytes(const osh_file *f);
const char *osh_file_path(const osh_file *f);
osh_status osh_file_pread(osh_ctx *cx, osh_file *f, void *to, size_t n, int64_t offset); // all n bytes, or a failure
/* The same past the page cache, where the file system can and n is 1 MiB or more: what is read once does not push out
 * what is read often. Takes a block of OSH_DIRECT_BYTES and a little of host memory meanwhile. */
enum { OSH_DIRECT_BYTES = 2 << 20 };
osh_status osh_file_pread_direct(osh_ctx *cx, osh_file *f, void *to, size_t n, int64_t offset);
/* So, too, and fn sees the n bytes piece by piece instead. */
osh_status osh_file_scan(osh_ctx *cx, osh_file *f, size_t n, int64_t offset,
                         void (*fn)(void *user, const void *p, size_t n), void *user);
osh_status osh_file_pwrite(osh_ctx *cx, osh_file *f, const void *from, size_t n, int64_t offset);

/* Without a copy, too: blocks of OSH_BLOCK_BYTES go between the disk and memory that lies as they do. Where the file
 * system has no such access, or f was not told to, the same calls go through the page cache. */
enum { OSH_BLOCK_BYTES = 4096 };
void osh_file_use_direct(osh_file *f); // once, by one thread, before others use f; a second descriptor
int osh_file_direct_fd(const osh_file *f); // of that second one, as long as f is open; < 0: there is none
size_t osh_file_room(size_t n);        // bytes of whole blocks, aligned, that hold n bytes of any offset
void *osh_file_align(void *p);         // the first block's start in an allocation of OSH_BLOCK_BYTES more
/* All n bytes at room + offset % OSH_BLOCK_BYTES; room is aligned and has osh_file_room(n) bytes. */
osh_status osh_file_read_blocks(osh_ctx *cx, osh_file *f, void *room, size_t n, int64_t offset);
/* from lies as its bytes do in the file: (uintptr_t)from % OSH_BLOCK_BYTES == offset % OSH_BLOCK_BYTES. What does not
 * fill a block at either end goes through the page cache. */
osh_status osh_file_write_blocks(osh_ctx *cx, osh_file *f, const void *from, size_t n, int64_t offset);
osh_status osh_file_reserve(osh_ctx *cx, osh_file *f, int64_t n_bytes); // a full disk fails here
osh_status osh_file_sync(osh_ctx *cx, osh_file *f);
osh_status osh_file_sync_data(osh_ctx *cx, osh_file *f); // without its times: fdatasync
/* To the disk, without waiting: a sync finds less to do. */
void osh_file_start_write(osh_file *f, int64_t offset, size_t n);
osh_status osh_file_truncate(osh_ctx *cx, osh_file *f, int64_t n_bytes);
/* Takes the whole file for this process until it is closed; *taken false: another one has it, or another open file of
 * this process. A forked child does not get the lock: f is closed in it. */
osh_status osh_file_lock(osh_ctx *cx, osh_file *f, bool *taken);
bool osh_file_is_at(const osh_file *f, const char *path); // path, no link, still names this very file
/* What tells two states of a file apart without reading it. */
typedef struct osh_stamp {
    int64_t n_bytes, mtime_ns, ctime_ns;
    uint64_t inode, device;
    bool fresh; // changed so shortly before that another change might get the same time
} osh_stamp;
osh_status osh_file_stamp(osh_ctx *cx, osh_stamp *out, const osh_file *f);
osh_status osh_path_stamp(osh_ctx *cx, osh_stamp *out, const char *path);
osh_status osh_path_settle(osh_ctx *cx, const char *path); // waits until it is not fresh; for 0.1 s at most
bool osh_stamp_same(const osh_stamp *a, const osh_stamp *b); // of one state of one file
void osh_file_forget(osh_file *f); // its pages leave the cache where they are clean: the next read asks the disk
void osh_file_forget_part(osh_file *f, int64_t offset, size_t n); // the pages of these bytes do

/* own, a NUL behind the n bytes; max_bytes 0: no cap */
osh_status osh_file_read_all(osh_ctx *cx, char **out, size_t *n, const char *path, size_t max_bytes);
/* temp name, fsync, rename */
osh_status osh_file_write_all(osh_ctx *cx, const char *path, const void *p, size_t n);
/* The same of a file that fill writes, piece by piece. */
osh_status osh_file_write_by(osh_ctx *cx, const char *path, osh_status (*fill)(osh_ctx *cx, void *user, osh_file *f),
                             void *user);
osh_status osh_file_copy(osh_ctx *cx, const char *to, const char *from); // bytes, fsync
bool osh_file_exists(const char *path);
osh_status osh_file_stat(osh_ctx *cx, int64_t *n_bytes, int64_t *mtime_ns, const char *path);
osh_status osh_file_remove(osh_ctx *cx, const char *path); // fine if it is not there
bool osh_dir_exists(const char *path);
osh_status osh_dir_make(osh_ctx *cx, const char *path); // with its parents; fine if it is there
/* sorted by bytes; own: free with osh_strings_free */
osh_status osh_dir_list(osh_ctx *cx, char ***names, size_t *n, const char *path);
void osh_strings_free(osh_ctx *cx, char **names, size_t n);
osh_status osh_dir_remove(osh_ctx *cx, const char *path); // recursively; fine if it is not there
osh_status osh_dir_sync(osh_ctx *cx, const char *path);   // the names in it
osh_status osh_dir_sync_above(osh_ctx *cx, const char *path); // of the directory that holds path
osh_status osh_rename(osh_ctx *cx, const char *from, const char *to); // and fsync of the parent
char *osh_path_join(osh_ctx *cx, const char *dir, const char *name);  // own; NULL = no memory
/* own: the place that path means, links followed, without a slash at its end; it need not be there yet */
osh_status osh_path_resolve(osh_ctx *cx, char **out, const char *path);
bool osh_dir_is_mount(const char *path); // something is mounted there: it cannot be renamed
int64_t osh_disk_free(const char *path); // bytes available where path is or will be; < 0 unknown

typedef struct osh_io_counts { // through osh_file_*
    int64_t read_bytes, written_bytes;
} osh_io_counts;
osh_io_counts osh_io_counted(const osh_ctx *cx);
#endif
