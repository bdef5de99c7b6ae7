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
osh_status osh_recipe_parse_as(osh_ctx *cx, osh_recipe **out, const char *text, size_t n, const char *quality,
                               const char *what);
osh_status osh_recipe_open(osh_ctx *cx, osh_recipe **out, const char *path, const char *quality);

typedef struct osh_recipe_flags { // --scheme W4A16 --method gptq --ignore lm_head: views
    const char *scheme, *method; // method: rtn (or NULL), gptq, or a quality
    const osh_strs *targets, *ignore;
    int64_t num_bits, group_size; // of the weights; 0: the scheme's; group_size < 0: one scale for a row
    const char *symmetric;        // "true", "false"; NULL: the scheme's
    const char *head;             // the output head: ignored where no target has its name; NULL: none
} osh_recipe_flags;
osh_status osh_recipe_of_flags(osh_ctx *cx, osh_recipe **out, bool *spared, const osh_recipe_flags *flags);

typedef struct osh_recipe_group { // modules that get one scheme
    int modifier;               // of the recipe
    const char *name;           // view
    const osh_q_scheme *scheme; // view; its name and targets are not looked at
    const char *const *modules; // views
    size_t n;
} osh_recipe_group;
/* The text of r with these groups in the place of its quantizers' schemes. head: lines that it begins with. own */
osh_status osh_recipe_with_groups(osh_ctx *cx, char **out, const osh_recipe *r, const char *head,
                                  const osh_recipe_group *groups, size_t n);
/* The same with `line` as the last key of a modifier. */
osh_status osh_recipe_with_line(osh_ctx *cx, char **out, const osh_recipe *r, const char *head, int modifier,
                                const char *line);
void osh_recipe_free(osh_ctx *cx, osh_recipe *r);
#endif
