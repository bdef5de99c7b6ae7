/* recipe.h - reads the YAML recipes of LLM Compressor into modifiers, and writes recipes. */
#ifndef OSH_RECIPE_H
#define OSH_RECIPE_H
#include "modifiers/modifier.h"

typedef struct osh_recipe {
    osh_modifier *modifiers; // own: the modifiers, in the order of the file
    size_t n;
    /* Text of the recipe that the user gave, or of a recipe that was made from command line
     * flags. */
    char *text;              // own
    size_t n_text;
    /* Static text: default quality of the modifiers. NULL: there is no default. */
    const char *quality;
} osh_recipe;

/* The next functions read a recipe. A quality chooses the quantizer: "fast" is rounding to nearest,
 * "gptq" is GPTQModifier as in LLM Compressor, and "best" is GPTQModifier with every option that
 * lowers the loss. The argument `quality` is for modifiers without the key `quality`; it may be
 * NULL. */

/* Parses the YAML text [n]. `what` names the text in messages. The caller frees *out with
 * osh_recipe_free. */
osh_status osh_recipe_parse(osh_ctx *cx, osh_recipe **out, const char *text, size_t n,
                            const char *what);
/* Works like osh_recipe_parse, with a quality. */
osh_status osh_recipe_parse_as(osh_ctx *cx, osh_recipe **out, const char *text, size_t n,
                               const char *quality, const char *what);
/* Works like osh_recipe_parse_as, for a file of at most 1 MiB. */
osh_status osh_recipe_open(osh_ctx *cx, osh_recipe **out, const char *path, const char *quality);

/* Values (views) of command line flags that make a recipe, such as --scheme W4A16 --method gptq
 * --ignore lm_head. */
typedef struct osh_recipe_flags {
    /* method: "rtn" (the same as NULL), "gptq", or a quality such as "best". */
    const char *scheme, *method;
    const osh_strs *targets, *ignore;
    // Bits and group size of weights; 0: as in the scheme. group_size < 0: one scale for each row.
    int64_t num_bits, group_size;
    const char *symmetric;        // "true" or "false"; NULL: as in the scheme
    /* Name of the output head of the model. It is added to the ignore list if no target has this
     * name. NULL: the model has no head. */
    const char *head;
} osh_recipe_flags;
/* Makes a recipe from flags. Sets *spared to true if the head was added to the ignore list. The
 * caller frees *out with osh_recipe_free. */
osh_status osh_recipe_of_flags(osh_ctx *cx, osh_recipe **out, bool *spared,
                               const osh_recipe_flags *flags);

typedef struct osh_recipe_group { // a scheme, and the modules that get this scheme
    int modifier;               // index of the recipe's modifier that has this scheme
    const char *name;           // view
    const osh_q_scheme *scheme; // view; its group_name and targets are not read
    const char *const *modules; // views
    size_t n;
} osh_recipe_group;
/* Sets *out to the text of the recipe r with `groups` instead of the schemes of the quantizers. The
 * text begins with `head`. The caller owns *out. */
osh_status osh_recipe_with_groups(osh_ctx *cx, char **out, const osh_recipe *r, const char *head,
                                  const osh_recipe_group *groups, size_t n);
/* Sets *out to the text of the recipe r with `line` added as the last key of modifier number
 * `modifier`. The text begins with `head`. The caller owns *out. */
osh_status osh_recipe_with_line(osh_ctx *cx, char **out, const osh_recipe *r, const char *head,
                                int modifier, const char *line);
/* Frees the recipe. Accepts NULL. */
void osh_recipe_free(osh_ctx *cx, osh_recipe *r);
#endif
