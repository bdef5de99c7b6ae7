/* recipe_quant.h - reads the quantization keys that all quantizers have, such as
 * QuantizationModifier and GPTQModifier (llmcompressor
 * modifiers/quantization/quantization/mixin.py). This header is only for src/modifiers. */
#ifndef OSH_RECIPE_QUANT_H
#define OSH_RECIPE_QUANT_H
#include "modifiers/modifier.h"

/* Values of the quantization keys that are read so far. Pointers are views of the YAML tree. */
typedef struct osh_recipe_quant {
    const osh_yaml *config_groups, *scheme, *targets, *ignore, *cache, *candidates;
    /* Values of the keys weight_observer, input_observer and output_observer; "": the key is not
     * given. */
    char observers[3][32];
} osh_recipe_quant;

/* Reads one key of a modifier into q. Sets *known to false if the key is not a quantization key.
 * `what` names the recipe in messages. */
osh_status osh_recipe_quant_key(osh_ctx *cx, osh_recipe_quant *q, const char *key,
                                const osh_yaml *value, bool *known, const char *what);
/* Builds and checks the schemes, the ignore list and the observers of m from the keys. */
osh_status osh_recipe_quant_build(osh_ctx *cx, osh_modifier *m, const osh_recipe_quant *q,
                                  const char *what);
/* Compiles the targets and the ignore list of m to matchers. The schemes must not change
 * afterwards. */
osh_status osh_recipe_quant_matchers(osh_ctx *cx, osh_modifier *m);
osh_status osh_recipe_strs(osh_ctx *cx, osh_strs *out, const osh_yaml *y, const char *key,
                           const char *what); // reads a string or a list of strings
#endif
