/* scratch.h - manages the scratch directory, which has one file for each value that is stored on
 * the disk. The directory also contains the mark, which is an empty file. The process that uses the
 * directory locks the mark. The functions never touch a directory that may belong to somebody else.
 * They fail if the path is a link, or if the directory has files but no mark. They also fail if the
 * directory has a file that oneshot did not make. The error message names the path. */
#ifndef OSH_SCRATCH_H
#define OSH_SCRATCH_H
#include "base/base.h"

/* name of the scratch directory, if it is inside the partial directory */
#define OSH_SCRATCH_NAME "scratch"
typedef struct osh_scratch osh_scratch;
/* Sets *out (own) to the path of the scratch directory of a run with the partial directory
 * `partial`. The scratch directory is in the directory scratch_dir, or in `partial` if scratch_dir
 * is NULL. In scratch_dir, the name of the scratch directory is a hash of the real path of
 * `partial`, so that the name does not depend on the working directory. */
osh_status osh_scratch_dir(osh_ctx *cx, char **out, const char *scratch_dir, const char *partial);
/* With several ranks, each rank has a scratch directory. Sets *out (own) to the path of this
 * directory: `dir` with a suffix for the rank. `dir` is a path of osh_scratch_dir. */
osh_status osh_scratch_dir_of_rank(osh_ctx *cx, char **out, const char *dir, int rank);
/* Scratch directories of a run and of its ranks can be inside the partial directory. True if `name`
 * is the name of such a scratch directory. */
bool osh_scratch_is_name(const char *name);
/* Removes the scratch directories that killed ranks have left. dir: the path of osh_scratch_dir. */
osh_status osh_scratch_remove_ranks(osh_ctx *cx, const char *dir);
/* Fails if the path exists but is no scratch directory. */
osh_status osh_scratch_check(osh_ctx *cx, const char *dir);
/* Opens the scratch directory, or makes it if it is absent. Keeps files of values that an earlier
 * process has written. */
osh_status osh_scratch_open(osh_ctx *cx, osh_scratch **out, const char *dir);
/* Closes the scratch directory, and removes it if keep_files is false. s may be NULL. */
void osh_scratch_close(osh_ctx *cx, osh_scratch *s, bool keep_files);
/* Removes the scratch directory of an earlier run. It is no error if the directory is absent. */
osh_status osh_scratch_remove(osh_ctx *cx, const char *dir);
/* Sets *out (own) to the path of the file of a value. Fails if the path of the scratch directory
 * now leads to another directory than the one that was opened. */
osh_status osh_scratch_path(osh_ctx *cx, char **out, const osh_scratch *s, int value);
#endif
