/* made.h - checks the files of options such as --profile before this program overwrites them. Only
 * files that this program wrote may be overwritten. */
#ifndef OSH_MADE_H
#define OSH_MADE_H
#include "base/field.h"

/* Fails if the first bytes of the file at `path` show that this program did not write the file. A
 * missing or empty file is allowed. A profile or a log may also be a pipe or a character device
 * such as /dev/null. `use` is OSH_PATH_LOG, _PROFILE, _NPY, _PAGE or _PANEL; `shown` is the name of
 * the option, such as "--profile". */
osh_status osh_made_check(osh_ctx *cx, osh_path_use use, const char *shown, const char *path);
#endif
