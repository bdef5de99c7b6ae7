/* mark.h - reads and writes the mark of a snapshot, a list of the files that the snapshot must
 * have:
 *
 *   CACHE/models--org--name/.oneshot/<commit>      oneshot snapshot 1
 *                                                  all
 *                                                  726 0f3c...(40 hex digits) config.json
 *                                                  ...
 *
 * The mark is written before the first file of the snapshot, so it also exists if a pull (a
 * download of a model) ends early. Its state is `open` while the list is incomplete, and `all` when
 * the list is complete. The state `whole` is written last, when all files are complete and have the
 * right hashes. Only this program reads the directory .oneshot. A snapshot of another program has
 * no mark. */
#ifndef OSH_HUB_MARK_H
#define OSH_HUB_MARK_H
#include "base/at.h"
#include "hub/hub.h"

typedef struct osh_hub_file {
    char *path; // own: safe path inside the repository
    int64_t n_bytes;
    /* SHA-256 of a large file (64 hex digits), git's SHA-1 of a small file (40 hex digits). */
    char etag[65];
} osh_hub_file;

typedef enum { OSH_MARK_NONE, OSH_MARK_OPEN, OSH_MARK_ALL, OSH_MARK_WHOLE } osh_mark_state;
typedef struct osh_mark {
    osh_mark_state state;
    char *text;       // own
    const char *next; // view of text: line that the next osh_mark_file reads
} osh_mark;
/* Reads the mark of a snapshot. A mark with wrong content counts as `open`. */
osh_status osh_mark_read(osh_ctx *cx, osh_mark *out, const char *repo, const char *commit);
/* Frees the text of the mark. */
void osh_mark_deinit(osh_ctx *cx, osh_mark *m);
/* Sets *f to the next file of the list. f->path is a view of m. Returns false after the last
 * file. */
bool osh_mark_file(osh_mark *m, osh_hub_file *f);
/* Writes a mark, unless a mark with this state or a later state exists. `dir` is the directory
 * .oneshot of the repository. */
osh_status osh_mark_write(osh_ctx *cx, osh_at *dir, const char *commit, osh_mark_state state,
                          const osh_hub_file *const *files, size_t n);
#endif
