/* known.h - lists the files of a directory that this program made. Another file stops the run with
 * an error that has its name, and is never deleted. */
#ifndef OSH_KNOWN_H
#define OSH_KNOWN_H
#include "base/map.h"
#include "io/journal.h"
#include "plan/plan.h"

typedef struct osh_known {
    osh_map *names;  // own
    bool any_shard;  // any name of a shard is accepted, because another plan may have other shards
    bool in_place;   // the run writes to existing files, so a file must not have a second name
} osh_known;
void osh_known_deinit(osh_ctx *cx, osh_known *k);
/* Lists the files, also temporary ones, that a run of this plan puts in its partial directory.
 * was: journal of an earlier run with another plan that began the directory; NULL: this plan
 * began it. */
osh_status osh_known_of_run(osh_ctx *cx, osh_known *k, const osh_plan *p, const osh_journal *was);
/* Lists the files of a run that writes no output. */
osh_status osh_known_of_survey(osh_ctx *cx, osh_known *k);
/* Lists the files of the finished output in dir, from its manifest. */
osh_status osh_known_of_output(osh_ctx *cx, osh_known *k, const char *dir);
/* Fails with `code` and the path of the first file that is not in the list. */
osh_status osh_known_check(osh_ctx *cx, const osh_known *k, const char *dir, osh_status code);
/* Removes all files of the list; the file `last` is the last one. Then removes the directory if it
 * is empty. keep_last: keeps `last` and the directory. */
osh_status osh_known_remove(osh_ctx *cx, const osh_known *k, const char *dir, const char *last,
                            bool keep_last);
/* Removes the temporary files. */
osh_status osh_known_remove_temporary(osh_ctx *cx, const osh_known *k, const char *dir);
#endif
