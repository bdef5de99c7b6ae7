/* scratch.h - a directory of values on the disk, a file for each. It holds a mark, which the process that uses it has
 * locked. Whatever else lies at its place - a link, a directory without the mark, a file that is none of ours - is
 * refused with its path, and nothing of it is touched. */
#ifndef OSH_SCRATCH_H
#define OSH_SCRATCH_H
#include "base/base.h"

#define OSH_SCRATCH_NAME "scratch" // in the directory where the output is built
typedef struct osh_scratch osh_scratch;
/* Where the values of a run rest that builds its output in `partial`; own. Below scratch_dir (NULL: below partial) each
 * run has a directory by its resolved path, from wherever it was started. */
osh_status osh_scratch_dir(osh_ctx *cx, char **out, const char *scratch_dir, const char *partial);
osh_status osh_scratch_check(osh_ctx *cx, const char *dir); // nothing else lies there; fine if it is not there
/* Made where it is absent; values that an earlier run left in it stay. */
osh_status osh_scratch_open(osh_ctx *cx, osh_scratch **out, const char *dir);
void osh_scratch_close(osh_ctx *cx, osh_scratch *s, bool keep_files); // else the directory goes
osh_status osh_scratch_remove(osh_ctx *cx, const char *dir); // what an earlier run left there; fine if it is not there
/* Of a value's file, own; a failure where the directory is no longer the one that was opened. */
osh_status osh_scratch_path(osh_ctx *cx, char **out, const osh_scratch *s, int value);
#endif
