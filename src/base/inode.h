/* inode.h - finds the kind of file at a path, without following links, and compares paths. */
#ifndef OSH_INODE_H
#define OSH_INODE_H
#include "base/base.h"

typedef enum {
    OSH_INODE_NONE,
    OSH_INODE_FILE,
    OSH_INODE_DIR,
    OSH_INODE_LINK,
    OSH_INODE_OTHER
} osh_inode_kind;
typedef struct osh_inode {
    osh_inode_kind kind;
    uint64_t device, inode;
    /* n_names: number of hard links of the file.
     * n_bytes: size of the file. */
    int64_t n_names, n_bytes;
} osh_inode;

osh_inode osh_inode_at(const char *path); // returns kind OSH_INODE_OTHER if lstat fails
/* Returns the kind as text, such as "a symbolic link" */
const char *osh_inode_text(const osh_inode *p);
/* Returns the absolute path without links. Parts that do not exist yet are appended as given. The
 * caller owns *out. */
osh_status osh_path_real(osh_ctx *cx, char **out, const char *path);
/* Sets *inside to true if `path` is `dir` or is inside `dir`, also through links and mounts.
 * The paths need not exist. */
osh_status osh_path_inside(osh_ctx *cx, bool *inside, const char *path, const char *dir);
#endif
