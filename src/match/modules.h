/* modules.h - declares the list of modules of a source. modules.c makes the list. plan_match.c
 * finds the schemes of the modules. match_config.c makes the output's config from the list. */
#ifndef OSH_PLAN_MODULES_H
#define OSH_PLAN_MODULES_H
#include <string.h>

#include "match/matching.h"

typedef struct osh_plan_module { // a module with a 2-D weight
    char *name;            // own
    char *loaded;          // own: name of the module in transformers; NULL: the same as `name`
    const char *cls; // static string, or view of the graph: class that the module has in loaders
    int64_t tensor;
    int module;
    int scheme;            // index in osh_matching.schemes; -1: none
    int pruner;            // index of the recipe's modifier that prunes the module; -1: none
    double sparsity;       // fraction of the weight's elements that the pruner sets to 0
    /* Static string: reason why the module stays dense. NULL if the module is not dense, or before
     * it is matched. */
    const char *why;
    bool never;            // true if the module stays dense even if a target matches it
    /* True if the module stays dense although a target matches its name, so that loaders would
     * expect codes. */
    bool reached;
    /* True if a forward pass of text does not run the module. Only modifiers that need no data can
     * quantize such a module. */
    bool unseen;
    /* True if --only is given and does not name the module. If the source quantizes such a module,
     * `scheme` is its group in the source. */
    bool left;
    /* true for a head that has no tensor, if its name may have another prefix in transformers */
    bool absent;
    /* True if only a target with the module's name matches the module (is_named). The target
     * "Linear" does not match it. */
    bool by_name;
} osh_plan_module;

typedef struct osh_plan_modules { osh_plan_module *c; int64_t n; } osh_plan_modules;

static inline bool osh_is_embedding(const osh_plan_module *c)
{
    return !strcmp(c->cls, "Embedding");
}

/* Entries of the ignore list for dense modules that have other names in transformers than in the
 * checkpoint. Each family of models has its own entries. */
typedef struct osh_other_names {
    /* Entries for modules of towers (parts for images or sound). If a family has such entries,
     * modules of its towers are never quantized. NULL: none. */
    const cJSON *tower; // view
    const cJSON *dense; // view: entries for dense modules outside of towers; NULL: none
} osh_other_names;

/* Returns the entries of the family of `c`, as views of its records. */
osh_other_names osh_modules_other_names(const osh_hf_config *c);
/* Lists the modules of the source. The caller must call osh_modules_deinit, even after a
 * failure. */
osh_status osh_modules_list(osh_ctx *cx, osh_plan_modules *cs, const osh_matching *p);
void osh_modules_deinit(osh_ctx *cx, osh_plan_modules *cs);
/* With --only, replaces the targets of the recipe's groups by the names of the modules that these
 * targets match. */
osh_status osh_match_names(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs);
/* Makes the ignore list as compressed-tensors does: it has each dense module whose class also has
 * quantized modules. Also adds the names that these modules have in loaders, if these names differ
 * from those in the checkpoint. */
osh_status osh_match_ignore(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs);
/* Infers the format of each group and the format at the top level. Then prints the
 * quantization_config of the output. */
osh_status osh_match_config(osh_ctx *cx, osh_matching *p);
/* Fails if vLLM does not accept the schemes of the modules (`--target vllm`). */
osh_status osh_match_vllm(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs);
#endif
