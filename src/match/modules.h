/* modules.h - the list of modules from which their schemes (plan_match.c) and the output's config
 * (match_config.c) are computed. */
#ifndef OSH_PLAN_MODULES_H
#define OSH_PLAN_MODULES_H
#include <string.h>

#include "match/matching.h"

typedef struct osh_plan_module { // a module that the recipe may quantize
    char *name;            // own
    char *loaded;          // own: name of the module in transformers; NULL: equal to `name`
    const char *cls;       // static or view of the graph: class of the module in loaders
    int64_t tensor;
    int module;
    int scheme;            // index in the plan's schemes; -1: none
    int pruner;            // index of the pruning modifier in the recipe; -1: none
    double sparsity;       // sparsity for the pruner
    const char *why; // static: reason why the module stays dense; NULL: it does not stay dense, or
                     // the reason is not yet known
    bool never;            // true: the module is copied even if a target matches it
    bool reached;          // true: a target matches the module in the way in which loaders match,
                           // but the module stays dense
    bool unseen;           // true: a forward pass of text does not run the module, so it is
                           // quantized without data, or stays dense
    bool left;             // true: --only does not name the module; if the source has it quantized,
                           // `scheme` is the group that it keeps
    bool absent; // true: a head without a tensor of its own; its name in transformers may be longer
    bool by_name; // true: only a target that names the module matches (is_named), not the class
                  // Linear
} osh_plan_module;

typedef struct osh_plan_modules { osh_plan_module *c; int64_t n; } osh_plan_modules;

static inline bool osh_is_embedding(const osh_plan_module *c)
{
    return !strcmp(c->cls, "Embedding");
}

/* If groups of the source are kept, the targets of the recipe's groups become names of modules. */
osh_status osh_match_names(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs);
/* Makes the ignore list like compressed-tensors: it has every dense module whose class has a
 * quantized module. */
osh_status osh_match_ignore(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs);
/* Infers the format of each group, the top-level format and the JSON. A group whose modules have
 * different formats is an error. */
osh_status osh_match_config(osh_ctx *cx, osh_matching *p);
osh_status osh_match_vllm(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs);
#endif
