/* folder.h - the files that a data set's path means: itself, or those of a directory, as one file. */
#ifndef OSH_FOLDER_H
#define OSH_FOLDER_H
#include "base/base.h"

/* The files, sorted by name, and what all of them are ("jsonl", "json", "csv", "txt"). files: own, each a path; of a
 * directory what is no data is not looked at, and two kinds are an error. */
osh_status osh_folder_files(osh_ctx *cx, char ***files, size_t *n, const char **kind, const char *path);
#endif
