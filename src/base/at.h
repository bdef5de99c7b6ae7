/* at.h - opens and creates files below a directory to which other users can also write, such as a
 * cache on a shared disk.
 *
 * Another user can plant links in such a directory. No write may follow such a link. So each
 * directory on the path is opened by the descriptor of its parent, and no file is opened through a
 * symbolic link. A new file is created with a name that did not exist, and then renamed. */
#ifndef OSH_AT_H
#define OSH_AT_H
#include "base/file.h"

typedef struct osh_at osh_at; // an open directory
/* Opens the directory root/below and creates missing directories. Links in `root` are followed,
 * because the user chose that path. Below `root` every name must be a directory; the first name may
 * also be a symbolic link that this user or the superuser owns. */
osh_status osh_at_open(osh_ctx *cx, osh_at **out, const char *root, const char *below);
void osh_at_close(osh_ctx *cx, osh_at *d); // accepts NULL
/* Returns the path of the directory (a view of d). */
const char *osh_at_path(const osh_at *d);
/* Creates a file with a new name: `base` and 16 random digits. The caller owns *name. */
osh_status osh_at_create(osh_ctx *cx, osh_file **out, char **name, osh_at *d, const char *base);
/* Opens the file of an earlier run and keeps its content. The file must be regular, have one hard
 * link and belong to this user. Anything else with this name is removed, and a new file is
 * created. */
osh_status osh_at_resume(osh_ctx *cx, osh_file **out, osh_at *d, const char *name);
/* Opens or creates a file that is only locked. The caller must not write the file, because another
 * user may own it. A symbolic link with this name is removed. */
osh_status osh_at_open_lock(osh_ctx *cx, osh_file **out, osh_at *d, const char *name);
/* Renames the file f and syncs to_dir. The path of f is d/name, and the new path is to_dir/to. A
 * file at the new path is replaced. Fails if d/name is no longer f. */
osh_status osh_at_rename(osh_ctx *cx, const osh_file *f, osh_at *d, const char *name,
                         osh_at *to_dir, const char *to);
/* Removes a file or link, but no directory. A missing file is no error. */
osh_status osh_at_remove(osh_ctx *cx, osh_at *d, const char *name);
/* osh_at_write writes the file d/name, and osh_at_link makes the link d/name. Both functions first
 * create the file or link with a new name in the directory `by`, and then rename it. `by` and `d`
 * must be on the same file system. */
osh_status osh_at_write(osh_ctx *cx, osh_at *d, const char *name, osh_at *by, const void *p,
                        size_t n);
osh_status osh_at_link(osh_ctx *cx, osh_at *d, const char *name, osh_at *by, const char *target);

/* Makes an osh_file of an open descriptor and takes ownership of the descriptor. `path` is used in
 * messages. */
osh_status osh_file_of_fd(osh_ctx *cx, osh_file **out, int fd, const char *path);
#endif
