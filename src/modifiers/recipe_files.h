/* recipe_files.h - files that a recipe names. A recipe may be a stranger's, so they lie in the output directory. */
#ifndef OSH_RECIPE_FILES_H
#define OSH_RECIPE_FILES_H
#include "modifiers/modifier.h"

/* Fails if an argument of the modifier names a file (osh_field.path) outside of the output directory, in a directory
 * below it, or one that the output has or that loaders look for in a model. what: the recipe's name. */
osh_status osh_recipe_files_check(osh_ctx *cx, const osh_modifier *m, const char *what);
#endif
