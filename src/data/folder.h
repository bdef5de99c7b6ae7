/* folder.h - lists the files of a data set's path: the file itself, or the data files of a
 * directory, which are read as one file. */
#ifndef OSH_FOLDER_H
#define OSH_FOLDER_H
#include "base/base.h"

/* Lists the paths of the files, sorted by name (*files, own), and their kind ("jsonl", "json",
 * "csv", "txt", "parquet"). Other files of a directory are ignored. Data files of two kinds are an
 * error. If the files have the names of several splits, such as train-00000-of-00002.parquet and
 * test-00000-of-00001.parquet, only the files of one split are listed: the split that `splits`
 * names (split.h), or train if `splits` is NULL. */
osh_status osh_folder_files(osh_ctx *cx, char ***files, size_t *n, const char **kind,
                            const char *path, const char *splits);
#endif
