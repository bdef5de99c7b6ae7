/* modules.h - the list of modules. modules.c makes the list, plan_match.c finds the schemes of the
 * modules, and match_config.c makes the output's config from the list. */
#ifndef OSH_PLAN_MODULES_H
#define OSH_PLAN_MODULES_H
#include <string.h>

#include "match/matching.h"

typedef struct osh_plan_module { // a module with a 2-D weight
    char *name;            // own
    char *loaded;          // own: name of the module in transformers; NULL: the same as `name`
    const char *cls;       // static string or view of the graph: class of the module in loaders
    int64_t tensor;
    int module;
    int scheme;            // index in osh_matching.schemes; -1: none
    int pruner;            // index in the recipe of the modifier that prunes the module; -1: none
    double sparsity;       // sparsity of the pruned weight
    /* Static string: reason why the module stays dense; NULL: not dense, or not known yet. */
    const char *why;
    bool never;            // true if the module is copied even if a target matches it
    bool reached; // true if a target matches the module in loaders, but the module stays dense
    /* True if a forward pass of text does not run the module, so that it can only be quantized
     * without data. */
    bool unseen;
    /* True if --only does not name the module; if the source quantizes the module, `scheme` is its
     * group in the source. */
    bool left;
    bool absent; // true for a head without a tensor, whose name in transformers may have a prefix
    /* True if only a target that names the module matches it (is_named). The target "Linear" does
     * not match it. */
    bool by_name;
} osh_plan_module;

typedef struct osh_plan_modules { osh_plan_module *c; int64_t n; } osh_plan_modules;

static inline bool osh_is_embedding(const osh_plan_module *c)
{
    return !strcmp(c->cls, "Embedding");
}

/* Entries of the ignore list for dense modules whose names in transformers differ from the names of
 * their tensors. Each family has its own entries. */
typedef struct osh_other_names {
    /* view: entries of the ignore list for modules of towers, which are then never quantized; NULL:
     * none */
    const cJSON *tower;
    const cJSON *dense; // view: entries for other modules; NULL: none
} osh_other_names;

osh_other_names osh_modules_other_names(const osh_hf_config *c);
/* Lists the modules of the source. On failure, too, the caller calls osh_modules_deinit. */
osh_status osh_modules_list(osh_ctx *cx, osh_plan_modules *cs, const osh_matching *p);
void osh_modules_deinit(osh_ctx *cx, osh_plan_modules *cs);
/* With --only, replaces the targets of the recipe's groups by the names of the matched modules. */
osh_status osh_match_names(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs);
/* Makes the ignore list like compressed-tensors: it has every dense module whose class also has a
 * quantized module. Adds names that other loaders use. */
osh_status osh_match_ignore(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs);
/* Infers the format of each group and of the top level, and prints the quantization_config. */
osh_status osh_match_config(osh_ctx *cx, osh_matching *p);
osh_status osh_match_vllm(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs);
#endif
