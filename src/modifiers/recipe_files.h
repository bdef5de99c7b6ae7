/* recipe_files.h - checks the file names in a recipe. The author of a recipe may be unknown, so
 * the name of a file outside of the output directory is an error. */
#ifndef OSH_RECIPE_FILES_H
#define OSH_RECIPE_FILES_H
#include "modifiers/modifier.h"

/* Checks the arguments of the modifier that are file names (osh_field.path). Fails if a file would
 * not be directly in the output directory, or if models usually have a file of this name. `what`:
 * name of the recipe, for messages. */
osh_status osh_recipe_files_check(osh_ctx *cx, const osh_modifier *m, const char *what);
#endif
