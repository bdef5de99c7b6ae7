/* recipe.h - LLM Compressor's YAML recipes to modifiers. */
#ifndef OSH_RECIPE_H
#define OSH_RECIPE_H
#include "modifiers/modifier.h"

typedef struct osh_recipe {
    osh_modifier *modifiers; // own, in file order
    size_t n;
    char *text;              // own: the recipe as it was given, or as it was made of flags
    size_t n_text;
    const char *quality;     // view: static, the word that stood in for what the text leaves open; NULL: none
} osh_recipe;

/* fast: rounded to nearest. gptq: GPTQModifier as upstream has it. best: the same with all that is known to help. The
 * key `quality` of a modifier says so; `quality`, or NULL, is for those without it. */

osh_status osh_recipe_parse(osh_ctx *cx, osh_recipe **out, const char *text, size_t n, const char *what);
osh_status osh_recipe_open(osh_ctx *cx, osh_recipe **out, const char *path, const char *quality);
/* --scheme W4A16 --method gptq|rtn --ignore lm_head: a recipe of one modifier. method may also be a quality. */
osh_status osh_recipe_of_flags(osh_ctx *cx, osh_recipe **out, const char *scheme,
                               const char *method, const osh_strs *targets, const osh_strs *ignore);
void osh_recipe_free(osh_ctx *cx, osh_recipe *r);
#endif
