/* folder.h - lists the files of a data set's path: the file itself, or the data files of a
 * directory, which are read as one file. */
#ifndef OSH_FOLDER_H
#define OSH_FOLDER_H
#include "base/base.h"

/* Lists the files, sorted by name, and their kind ("jsonl", "json", "csv", "txt"). The caller owns
 * *files, which are paths. Other files of a directory are ignored; two kinds of data files are an
 * error. */
osh_status osh_folder_files(osh_ctx *cx, char ***files, size_t *n, const char **kind,
                            const char *path);
#endif
