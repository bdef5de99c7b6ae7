/* recipe.h - reads LLM Compressor's YAML recipes into modifiers, and writes recipes. */
#ifndef OSH_RECIPE_H
#define OSH_RECIPE_H
#include "modifiers/modifier.h"

typedef struct osh_recipe {
    osh_modifier *modifiers; // own: modifiers in the order of the file
    size_t n;
    /* Text of the recipe that the user gave, or of the recipe made from command line flags. */
    char *text;              // own
    size_t n_text;
    const char *quality; // static text: default quality of the modifiers; NULL: there is no default
} osh_recipe;

/* The functions below read a recipe. A quality chooses the quantizer. "fast" is rounding to
 * nearest, "gptq" is GPTQModifier as in LLM Compressor, and "best" is GPTQModifier with every
 * option that lowers the loss. The key `quality` of a modifier sets the quality. The parameter
 * `quality` is the default for modifiers without this key; it may be NULL. */

osh_status osh_recipe_parse(osh_ctx *cx, osh_recipe **out, const char *text, size_t n,
                            const char *what);
osh_status osh_recipe_parse_as(osh_ctx *cx, osh_recipe **out, const char *text, size_t n,
                               const char *quality, const char *what);
osh_status osh_recipe_open(osh_ctx *cx, osh_recipe **out, const char *path, const char *quality);

/* Values (views) of the command line flags that replace a recipe, such as --scheme W4A16 --method
 * gptq --ignore lm_head. */
typedef struct osh_recipe_flags {
    /* method: "rtn" (also if NULL), "gptq", or a quality such as "best". */
    const char *scheme, *method;
    const osh_strs *targets, *ignore;
    // number of bits and group size of weights; 0: the value of the scheme; group_size < 0: one
    // scale for each row
    int64_t num_bits, group_size;
    const char *symmetric;        // "true" or "false"; NULL: the value of the scheme
    /* Name of the output head. The name is added to the ignore list unless a target has this name.
     * NULL: the model has no head. */
    const char *head;
} osh_recipe_flags;
osh_status osh_recipe_of_flags(osh_ctx *cx, osh_recipe **out, bool *spared,
                               const osh_recipe_flags *flags);

typedef struct osh_recipe_group { // a scheme and the modules to which it applies
    int modifier;               // index of the modifier in the recipe
    const char *name;           // view
    const osh_q_scheme *scheme; // view; group_name and targets are not used
    const char *const *modules; // views
    size_t n;
} osh_recipe_group;
/* Sets *out to the text of r, with `groups` instead of the schemes of its quantizers. The text
 * begins with `head`. The caller owns *out. */
osh_status osh_recipe_with_groups(osh_ctx *cx, char **out, const osh_recipe *r, const char *head,
                                  const osh_recipe_group *groups, size_t n);
/* Sets *out to the text of r, with `line` as the last key of the modifier whose index is
 * `modifier`. The text begins with `head`. The caller owns *out. */
osh_status osh_recipe_with_line(osh_ctx *cx, char **out, const osh_recipe *r, const char *head,
                                int modifier, const char *line);
void osh_recipe_free(osh_ctx *cx, osh_recipe *r);
#endif
