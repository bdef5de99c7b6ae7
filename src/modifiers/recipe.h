/* recipe.h - reads LLM Compressor's YAML recipes into modifiers, and writes recipes. */
#ifndef OSH_RECIPE_H
#define OSH_RECIPE_H
#include "modifiers/modifier.h"

typedef struct osh_recipe {
    osh_modifier *modifiers; // own, in file order
    size_t n;
    char *text;              // own: the recipe as given, or as made from flags
    size_t n_text;
    const char *quality;     // view, static: the default quality of the modifiers; NULL: none
} osh_recipe;

/* A quality chooses the quantizer. fast: rounding to nearest. gptq: GPTQModifier as upstream has
 * it. best: GPTQModifier with every option that lowers the loss. The key `quality` of a modifier
 * sets it. The parameter `quality`, or NULL, is the default of modifiers without that key. */

osh_status osh_recipe_parse(osh_ctx *cx, osh_recipe **out, const char *text, size_t n,
                            const char *what);
osh_status osh_recipe_parse_as(osh_ctx *cx, osh_recipe **out, const char *text, size_t n,
                               const char *quality, const char *what);
osh_status osh_recipe_open(osh_ctx *cx, osh_recipe **out, const char *path, const char *quality);

/* The flags that replace a recipe, such as --scheme W4A16 --method gptq --ignore lm_head. Views. */
typedef struct osh_recipe_flags {
    const char *scheme, *method; // method: rtn (or NULL), gptq, or a quality
    const osh_strs *targets, *ignore;
    // weights; 0: the scheme's; group_size < 0: one scale per row
    int64_t num_bits, group_size;
    const char *symmetric;        // "true", "false"; NULL: the scheme's
    // the output head: ignored unless a target has its name; NULL: none
    const char *head;
} osh_recipe_flags;
osh_status osh_recipe_of_flags(osh_ctx *cx, osh_recipe **out, bool *spared,
                               const osh_recipe_flags *flags);

typedef struct osh_recipe_group { // modules with one scheme
    int modifier;               // index in the recipe
    const char *name;           // view
    const osh_q_scheme *scheme; // view; its name and targets are not used
    const char *const *modules; // views
    size_t n;
} osh_recipe_group;
/* Returns the text of r with these groups in place of its quantizers' schemes. head: text before
 * it. own */
osh_status osh_recipe_with_groups(osh_ctx *cx, char **out, const osh_recipe *r, const char *head,
                                  const osh_recipe_group *groups, size_t n);
/* Returns the text of r with `line` as the last key of a modifier. own */
osh_status osh_recipe_with_line(osh_ctx *cx, char **out, const osh_recipe *r, const char *head,
                                int modifier, const char *line);
void osh_recipe_free(osh_ctx *cx, osh_recipe *r);
#endif
