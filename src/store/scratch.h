/* scratch.h - a directory for values on the disk, with one file for each value. It contains a mark,
 * which is locked by the process that uses the directory. If the path is anything else (a link, a
 * directory without the mark or with a file that oneshot did not make), the call fails with this
 * path and changes nothing. */
#ifndef OSH_SCRATCH_H
#define OSH_SCRATCH_H
#include "base/base.h"

#define OSH_SCRATCH_NAME "scratch" // name in the directory in which the output is built
typedef struct osh_scratch osh_scratch;
/* Returns the scratch directory of the run that builds its output in `partial`; the caller frees
 * it. It is below scratch_dir (NULL: below `partial`). Its name is computed from the resolved path
 * of `partial`, so it does not depend on the working directory. */
osh_status osh_scratch_dir(osh_ctx *cx, char **out, const char *scratch_dir, const char *partial);
/* Fails if the path exists and is not a scratch directory. */
osh_status osh_scratch_check(osh_ctx *cx, const char *dir);
/* Opens the directory, or makes it if it is absent. Keeps the values that an earlier run has left
 * in it. */
osh_status osh_scratch_open(osh_ctx *cx, osh_scratch **out, const char *dir);
/* Removes the directory unless keep_files is true. Accepts NULL. */
void osh_scratch_close(osh_ctx *cx, osh_scratch *s, bool keep_files);
/* Removes the directory that an earlier run has left. No error if it is absent. */
osh_status osh_scratch_remove(osh_ctx *cx, const char *dir);
/* Makes the path of a value's file; the caller frees *out. Fails if the path of the directory no
 * longer leads to the one that was opened. */
osh_status osh_scratch_path(osh_ctx *cx, char **out, const osh_scratch *s, int value);
#endif
