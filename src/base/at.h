/* at.h - files below a directory that other users can also write to, such as a cache on a shared
 * disk.
 *
 * Nothing is written through a link that another user planted there: each directory on the path is
 * opened by the descriptor of its parent, and no file is opened through a symbolic link. A new file
 * is made under a name that did not exist, and renamed. */
#ifndef OSH_AT_H
#define OSH_AT_H
#include "base/file.h"

typedef struct osh_at osh_at; // an open directory
/* Opens root/below and makes its missing directories. Links in root are followed, because the user
 * chose it. Below root every name must be a directory; only the first may be a symbolic link, if
 * this user or root owns the link. */
osh_status osh_at_open(osh_ctx *cx, osh_at **out, const char *root, const char *below);
void osh_at_close(osh_ctx *cx, osh_at *d); // accepts NULL
const char *osh_at_path(const osh_at *d);
/* Creates a file with a new name: base and 16 random digits. *name: own. */
osh_status osh_at_create(osh_ctx *cx, osh_file **out, char **name, osh_at *d, const char *base);
/* Opens the file that an earlier run left, with its content, if it is a regular file with one name
 * that this user owns. Anything else with the name is removed, and a new file is made. */
osh_status osh_at_resume(osh_ctx *cx, osh_file **out, osh_at *d, const char *name);
/* Opens a file to lock, never to write: another user may own it. A symbolic link with the name is
 * removed. */
osh_status osh_at_open_lock(osh_ctx *cx, osh_file **out, osh_at *d, const char *name);
/* Renames f from d/name to to_dir/to, replacing what is there, and syncs the directory. Fails if
 * name is no longer f. */
osh_status osh_at_rename(osh_ctx *cx, const osh_file *f, osh_at *d, const char *name,
                         osh_at *to_dir, const char *to);
osh_status osh_at_remove(osh_ctx *cx, osh_at *d,
                         const char *name); // removes a file or link, not a directory; no error if
                                            // it does not exist
/* Write a file or make a link d/name: first with a new name in `by`, which is on the same file
 * system, then renamed. */
osh_status osh_at_write(osh_ctx *cx, osh_at *d, const char *name, osh_at *by, const void *p,
                        size_t n);
osh_status osh_at_link(osh_ctx *cx, osh_at *d, const char *name, osh_at *by, const char *target);

/* Makes an osh_file of an open descriptor and takes ownership of the descriptor. `path` is used in
 * messages. */
osh_status osh_file_of_fd(osh_ctx *cx, osh_file **out, int fd, const char *path);
#endif
