/* scratch.h - manages the scratch directory, which has one file for each value that is stored on
 * the disk. The directory also contains the mark, an empty file that the process that uses the
 * directory locks. In three cases the functions fail with a message that names the path, and change
 * nothing: the path is a link, the directory has no mark, or the directory has a file that oneshot
 * did not make. */
#ifndef OSH_SCRATCH_H
#define OSH_SCRATCH_H
#include "base/base.h"

/* Name of the scratch directory inside the partial directory. */
#define OSH_SCRATCH_NAME "scratch"
typedef struct osh_scratch osh_scratch;
/* Sets *out (own) to the path of the scratch directory of a run with the partial directory
 * `partial`. The scratch directory is in scratch_dir, or in `partial` if scratch_dir is NULL. In
 * scratch_dir, its name is a hash of the real path of `partial`, so the name does not depend on the
 * working directory. */
osh_status osh_scratch_dir(osh_ctx *cx, char **out, const char *scratch_dir, const char *partial);
/* Sets *out (own) to the path of the scratch directory of one rank, if several ranks do the job.
 * The result is `dir`, a path of osh_scratch_dir, with an ending for the rank. */
osh_status osh_scratch_dir_of_rank(osh_ctx *cx, char **out, const char *dir, int rank);
/* True if `name` is the name of a scratch directory inside the partial directory, of a run or of
 * one rank. */
bool osh_scratch_is_name(const char *name);
/* Removes the directories that killed ranks have left. dir: the path of osh_scratch_dir. */
osh_status osh_scratch_remove_ranks(osh_ctx *cx, const char *dir);
/* Fails if the path exists and is not a scratch directory. */
osh_status osh_scratch_check(osh_ctx *cx, const char *dir);
/* Opens the directory, or makes it if it is absent. Keeps files of values that an earlier process
 * has written. */
osh_status osh_scratch_open(osh_ctx *cx, osh_scratch **out, const char *dir);
/* Closes the directory, and removes it if keep_files is false. Accepts NULL. */
void osh_scratch_close(osh_ctx *cx, osh_scratch *s, bool keep_files);
/* Removes the directory of an earlier run. An absent directory is no error. */
osh_status osh_scratch_remove(osh_ctx *cx, const char *dir);
/* Sets *out (own) to the path of a value's file. Fails if the path of the scratch directory now
 * belongs to another directory than the opened one. */
osh_status osh_scratch_path(osh_ctx *cx, char **out, const osh_scratch *s, int value);
#endif
