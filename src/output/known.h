/* known.h - lists the files of a directory that this program made. A file that is not in the list
 * stops the run with an error that names the file, and is never deleted. */
#ifndef OSH_KNOWN_H
#define OSH_KNOWN_H
#include "base/map.h"
#include "io/journal.h"
#include "rewrite/manifest.h"

typedef struct osh_known {
    osh_map *names;  // own
    /* True if every name of a shard is accepted, because an earlier run may have had other
     * shards. */
    bool any_shard;
    /* True if the run writes into existing files of the list. Such a file must not have a second
     * hard link. */
    bool in_place;
} osh_known;
void osh_known_deinit(osh_ctx *cx, osh_known *k);
/* Lists the files, also temporary ones, that a run with this manifest writes into its partial
 * directory. If a run with another plan created the directory, `was` is the journal of that run;
 * otherwise it is NULL. */
osh_status osh_known_of_run(osh_ctx *cx, osh_known *k, const osh_manifest *p,
                            const osh_journal *was);
/* Lists the files of a run that writes no output. */
osh_status osh_known_of_survey(osh_ctx *cx, osh_known *k);
/* Lists the files of the finished output in dir, from its manifest. */
osh_status osh_known_of_output(osh_ctx *cx, osh_known *k, const char *dir);
/* Fails with `code` and the path of the first file that is not in the list. */
osh_status osh_known_check(osh_ctx *cx, const osh_known *k, const char *dir, osh_status code);
/* Removes all files of the list in dir, with `last` after all others, then removes the directory if
 * it is empty. If `keep_last` is true, keeps `last` and the directory. */
osh_status osh_known_remove(osh_ctx *cx, const osh_known *k, const char *dir, const char *last,
                            bool keep_last);
/* Removes the files of the list that are temporary. */
osh_status osh_known_remove_temporary(osh_ctx *cx, const osh_known *k, const char *dir);
#endif
