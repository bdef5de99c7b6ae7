/* paths.h - checks all files and directories that a job reads and writes. */
#ifndef OSH_PLAN_PATHS_H
#define OSH_PLAN_PATHS_H
#include "base/field.h"

/* Checks all options of a table whose values are paths, before the job writes anything. Fails if a
 * file that the job would write
 *
 *   - exists and was not made by this program (base/made.h);
 *   - is a file that the job reads, or is in a directory that it reads;
 *   - is a file that another option would write, too.
 *
 * Files are compared by device and inode, so symbolic links, hard links and spellings of a
 * path do not matter. osh_output_claim checks the output directory itself. osh_recipe_parse
 * checks the file names in a recipe. */
osh_status osh_paths_check(osh_ctx *cx, const osh_field *fields, const void *options);
#endif
