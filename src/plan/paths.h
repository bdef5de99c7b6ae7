/* paths.h - the files and directories that a job is told to read and to write, in one list. */
#ifndef OSH_PLAN_PATHS_H
#define OSH_PLAN_PATHS_H
#include "base/field.h"

/* Before a job writes anything. Of a table's options those with a path are the list. Fails if a file that would be
 * written
 * - is there, and this program did not make it (base/made.h);
 * - is a file that is read, or lies in a directory that is read;
 * - is another file that would be written.
 * Files are compared by device and inode, so that links, hard links and spellings of a path are seen through. The
 * output directory itself is osh_output_claim's affair, a recipe's file names osh_recipe_parse's. */
osh_status osh_paths_check(osh_ctx *cx, const osh_field *fields, const void *options);
#endif
