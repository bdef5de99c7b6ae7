/* scratch.h - a directory for values on the disk, with one file for each value. It holds a mark,
 * and the process that uses the directory has the mark locked. If anything else has the path (a
 * link, a directory without the mark, a file that oneshot did not make), the call fails with that
 * path and touches nothing there. */
#ifndef OSH_SCRATCH_H
#define OSH_SCRATCH_H
#include "base/base.h"

#define OSH_SCRATCH_NAME "scratch" // in the directory where the output is built
typedef struct osh_scratch osh_scratch;
/* Returns the scratch directory of the run that builds its output in `partial`; the caller frees
 * it. It is below scratch_dir (NULL: below `partial`). Its name follows from the resolved path of
 * `partial`, so it does not depend on the working directory. */
osh_status osh_scratch_dir(osh_ctx *cx, char **out, const char *scratch_dir, const char *partial);
/* Fails if anything but a scratch directory has the path; an absent directory is fine. */
osh_status osh_scratch_check(osh_ctx *cx, const char *dir);
/* Makes the directory if it is absent, and keeps the values that an earlier run left there. */
osh_status osh_scratch_open(osh_ctx *cx, osh_scratch **out, const char *dir);
/* Removes the directory unless keep_files is set. NULL is fine. */
void osh_scratch_close(osh_ctx *cx, osh_scratch *s, bool keep_files);
/* Removes the directory that an earlier run left; an absent directory is fine. */
osh_status osh_scratch_remove(osh_ctx *cx, const char *dir);
/* Returns the path of a value's file; the caller frees it. Fails if the directory is no longer the
 * one that was opened. */
osh_status osh_scratch_path(osh_ctx *cx, char **out, const osh_scratch *s, int value);
#endif
