/* mark.h - which files a snapshot must have that this program pulls:
 *
 *   CACHE/models--org--name/.oneshot/<commit>      oneshot snapshot 1
 *                                                  all
 *                                                  726 0f3c...(40 hex digits) config.json
 *                                                  ...
 *
 * It is written before the first file of the snapshot is, so that a pull that ends early leaves
 * it: then `open` says that more files will be named, `all` that every file is. `whole` is written
 * last: all files were there, and their hashes were right. No other program reads this directory.
 * A snapshot of another program has no mark. */
#ifndef OSH_HUB_MARK_H
#define OSH_HUB_MARK_H
#include "base/at.h"
#include "hub/hub.h"

typedef struct osh_hub_file {
    char *path; // own: inside the repository, safe
    int64_t n_bytes;
    char etag[65]; // SHA-256 of a large file (64 digits), git's SHA-1 of a small one (40)
} osh_hub_file;

typedef enum { OSH_MARK_NONE, OSH_MARK_OPEN, OSH_MARK_ALL, OSH_MARK_WHOLE } osh_mark_state;
typedef struct osh_mark {
    osh_mark_state state;
    char *text;       // own
    const char *next; // view of text: the line that osh_mark_file reads next
} osh_mark;
/* A mark that cannot be understood counts as open. */
osh_status osh_mark_read(osh_ctx *cx, osh_mark *out, const char *repo, const char *commit);
void osh_mark_deinit(osh_ctx *cx, osh_mark *m);
/* The next file of the list: its path is a view of m and ends with it. false: there are no more. */
bool osh_mark_file(osh_mark *m, osh_hub_file *f);
/* Writes a mark, unless the one that is there says as much or more. dir: .oneshot of the
 * repository. */
osh_status osh_mark_write(osh_ctx *cx, osh_at *dir, const char *commit, osh_mark_state state,
                          const osh_hub_file *const *files, size_t n);
#endif
