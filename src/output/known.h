/* known.h - lists the files that this program made in a directory. A file that is not in the list
 * is never deleted: it stops the run with an error that names the file. */
#ifndef OSH_KNOWN_H
#define OSH_KNOWN_H
#include "base/map.h"
#include "io/journal.h"
#include "rewrite/manifest.h"

typedef struct osh_known {
    osh_map *names;  // own
    /* True if every name of a shard counts as known, because an earlier run may have had other
     * shards. */
    bool any_shard;
    /* True if the run writes into existing files of the list. None of them may then have a second
     * hard link. */
    bool in_place;
} osh_known;
/* Frees the names and sets *k to zero. */
void osh_known_deinit(osh_ctx *cx, osh_known *k);
/* Lists the files that a run with this manifest writes into its partial directory, including
 * temporary files. `was`: journal of the run that created the directory; may be NULL if that run
 * had the same plan. */
osh_status osh_known_of_run(osh_ctx *cx, osh_known *k, const osh_manifest *p,
                            const osh_journal *was);
/* Lists the files of a run that writes no output tensors (a survey). */
osh_status osh_known_of_survey(osh_ctx *cx, osh_known *k);
/* Lists the files of the finished output in `dir`: those that its manifest names, and those that
 * this program always makes. */
osh_status osh_known_of_output(osh_ctx *cx, osh_known *k, const char *dir);
/* Fails with `code` if `dir` has a file that is not in the list. The message has the path of the
 * first such file. */
osh_status osh_known_check(osh_ctx *cx, const osh_known *k, const char *dir, osh_status code);
/* Removes the files of the list from `dir`. Removes the file `last` after all other files, and then
 * the directory if it is empty. If `keep_last` is true, keeps `last` and the directory. */
osh_status osh_known_remove(osh_ctx *cx, const osh_known *k, const char *dir, const char *last,
                            bool keep_last);
/* Removes the temporary files of the list from `dir`. */
osh_status osh_known_remove_temporary(osh_ctx *cx, const osh_known *k, const char *dir);
#endif
