/* mark.h - the list of files that a snapshot of this program must have:
 *
 *   CACHE/models--org--name/.oneshot/<commit>      oneshot snapshot 1
 *                                                  all
 *                                                  726 0f3c...(40 hex digits) config.json
 *                                                  ...
 *
 * The mark is written before the first file of the snapshot, so it exists if a pull ends early. It
 * then has the state `open` (it will list more files) or `all` (it lists every file). The state
 * `whole` is written last: all files were complete and had the right hashes. No other program reads
 * this directory. A snapshot of another program has no mark. */
#ifndef OSH_HUB_MARK_H
#define OSH_HUB_MARK_H
#include "base/at.h"
#include "hub/hub.h"

typedef struct osh_hub_file {
    char *path; // own: safe path inside the repository
    int64_t n_bytes;
    char etag[65]; // SHA-256 (64 digits) of a large file, git's SHA-1 (40) of a small one
} osh_hub_file;

typedef enum { OSH_MARK_NONE, OSH_MARK_OPEN, OSH_MARK_ALL, OSH_MARK_WHOLE } osh_mark_state;
typedef struct osh_mark {
    osh_mark_state state;
    char *text;       // own
    const char *next; // view of text: next line for osh_mark_file
} osh_mark;
/* Reads the mark. A mark that cannot be read counts as `open`. */
osh_status osh_mark_read(osh_ctx *cx, osh_mark *out, const char *repo, const char *commit);
void osh_mark_deinit(osh_ctx *cx, osh_mark *m);
/* Gets the next file of the list; its path is a view of m. Returns false if there are no more. */
bool osh_mark_file(osh_mark *m, osh_hub_file *f);
/* Writes a mark unless there already is one with the same or a later state. `dir` is .oneshot of
 * the repository. */
osh_status osh_mark_write(osh_ctx *cx, osh_at *dir, const char *commit, osh_mark_state state,
                          const osh_hub_file *const *files, size_t n);
#endif
