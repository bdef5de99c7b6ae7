/* inode.h - what lies at a path, of its own: links are not followed. */
#ifndef OSH_INODE_H
#define OSH_INODE_H
#include "base/base.h"

typedef enum { OSH_INODE_NONE, OSH_INODE_FILE, OSH_INODE_DIR, OSH_INODE_LINK, OSH_INODE_OTHER } osh_inode_kind;
typedef struct osh_inode {
    osh_inode_kind kind;
    uint64_t device, inode;
    int64_t n_names, n_bytes; // of a file: 1, or more with hard links; its size
} osh_inode;

osh_inode osh_inode_at(const char *path); // what cannot be looked at counts as OSH_INODE_OTHER
bool osh_inode_same(const osh_inode *a, const osh_inode *b); // the very same file or directory
const char *osh_inode_text(const osh_inode *p); // "a symbolic link"
/* The absolute path without links that path means; what is not there yet stands at its end as it was given. own */
osh_status osh_path_real(osh_ctx *cx, char **out, const char *path);
/* Whether path is dir, or lies somewhere in it, also by way of links and mounts. Neither need be there. */
osh_status osh_path_inside(osh_ctx *cx, bool *inside, const char *path, const char *dir);
#endif
