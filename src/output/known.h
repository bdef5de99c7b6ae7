/* known.h - which files of a directory are this program's own. One that is not among them is named, stops the run and
 * is never deleted. */
#ifndef OSH_KNOWN_H
#define OSH_KNOWN_H
#include "base/map.h"
#include "io/journal.h"
#include "plan/plan.h"

typedef struct osh_known {
    osh_map *names;  // own
    bool any_shard;  // also of a plan that cuts the output elsewhere
    bool in_place;   // files are written into: a second name of one would show that
} osh_known;
void osh_known_deinit(osh_ctx *cx, osh_known *k);
/* What a run of this plan puts into its partial directory, its temporary files included. was: the journal of an earlier
 * run of another plan that began it; NULL: it was this plan. */
osh_status osh_known_of_run(osh_ctx *cx, osh_known *k, const osh_plan *p, const osh_journal *was);
osh_status osh_known_of_survey(osh_ctx *cx, osh_known *k); // a run that writes no output
osh_status osh_known_of_output(osh_ctx *cx, osh_known *k, const char *dir); // a finished one, by its manifest
/* Fails with `code` and the path of the first one that is not known. */
osh_status osh_known_check(osh_ctx *cx, const osh_known *k, const char *dir, osh_status code);
/* Removes what is known, `last` last, or with keep_last not at all; then the directory, if nothing is left in it. */
osh_status osh_known_remove(osh_ctx *cx, const osh_known *k, const char *dir, const char *last, bool keep_last);
osh_status osh_known_remove_temporary(osh_ctx *cx, const osh_known *k, const char *dir);
#endif
