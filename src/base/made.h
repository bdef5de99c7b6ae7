/* made.h - files that the user names and this program writes: what is there already is overwritten only if this program
 * made it. */
#ifndef OSH_MADE_H
#define OSH_MADE_H
#include "base/field.h"

/* Fails if a file is at path that this program cannot have made, as its first bytes show; an empty file will do. A
 * profile or a log may also be a pipe or a character device such as /dev/null. use: OSH_PATH_LOG, _PROFILE, _NPY or
 * _PAGE. shown: what names the file, such as "--profile". */
osh_status osh_made_check(osh_ctx *cx, osh_path_use use, const char *shown, const char *path);
#endif
