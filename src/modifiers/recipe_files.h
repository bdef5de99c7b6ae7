/* recipe_files.h - checks file names in recipes. A recipe may come from a stranger, so these files
 * must be in the output directory. */
#ifndef OSH_RECIPE_FILES_H
#define OSH_RECIPE_FILES_H
#include "modifiers/modifier.h"

/* Fails if an argument of the modifier names a file (osh_field.path) outside the output directory
 * or in a subdirectory of it, or a file that the output has or that loaders look for in a model.
 * `what` is the name of the recipe. */
osh_status osh_recipe_files_check(osh_ctx *cx, const osh_modifier *m, const char *what);
#endif
