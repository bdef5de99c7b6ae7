/* at.h - files below a directory that other users can write to, too, such as a cache on a shared
 * disk.
 *
 * Nothing is written through a link that somebody planted there: each directory on the way is
 * opened by the descriptor of the one above it, and no file is opened through a symbolic link. A
 * new file is made under a name that did not exist, and renamed. */
#ifndef OSH_AT_H
#define OSH_AT_H
#include "base/file.h"

typedef struct osh_at osh_at; // an open directory
/* Opens root/below, and makes what is missing of it. Links in root are followed: the user chose
 * it. Below it every directory must be a directory; only the first may be a symbolic link, if this
 * user or root owns the link. */
osh_status osh_at_open(osh_ctx *cx, osh_at **out, const char *root, const char *below);
void osh_at_close(osh_ctx *cx, osh_at *d); // accepts NULL
const char *osh_at_path(const osh_at *d);
/* A new file under a name of its own, base and 16 random digits. *name: own. */
osh_status osh_at_create(osh_ctx *cx, osh_file **out, char **name, osh_at *d, const char *base);
/* The file that an earlier run left, with what it holds, if it is a regular file with one name
 * that this user owns. Anything else under the name is removed, and a new file is made. */
osh_status osh_at_resume(osh_ctx *cx, osh_file **out, osh_at *d, const char *name);
/* A file to lock, never to write: it may be another user's. A symbolic link under the name is
 * removed. */
osh_status osh_at_open_lock(osh_ctx *cx, osh_file **out, osh_at *d, const char *name);
/* The name must still be that of f. Replaces what `to` is, and syncs the directory. */
osh_status osh_at_rename(osh_ctx *cx, const osh_file *f, osh_at *d, const char *name,
                         osh_at *to_dir, const char *to);
osh_status osh_at_remove(osh_ctx *cx, osh_at *d,
                         const char *name); // not a directory; fine if it is not there
/* Both make something under a name of its own in `by`, of the same file system, and rename it to
 * d/name. */
osh_status osh_at_write(osh_ctx *cx, osh_at *d, const char *name, osh_at *by, const void *p,
                        size_t n);
osh_status osh_at_link(osh_ctx *cx, osh_at *d, const char *name, osh_at *by, const char *target);

/* A file of an open descriptor, which it takes. path: of messages. */
osh_status osh_file_of_fd(osh_ctx *cx, osh_file **out, int fd, const char *path);
#endif
