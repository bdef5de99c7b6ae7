/* modules.h - the list of modules from which their schemes (plan_match.c) and the output's config
 * (match_config.c) are computed. */
#ifndef OSH_PLAN_MODULES_H
#define OSH_PLAN_MODULES_H
#include <string.h>

#include "match/matching.h"

typedef struct osh_plan_module { // a module that could be quantized
    char *name;            // own
    char *loaded;          // own: its name in transformers; NULL: equal to name
    const char *cls;       // static or view of the graph: its class in loaders
    int64_t tensor;
    int module;
    int scheme;            // index in the plan's schemes; -1: none
    int pruner;            // index of the pruning modifier in the recipe; -1: none
    double sparsity;       // sparsity for the pruner
    const char *why; // static: reason why it stays dense; NULL: it does not, or the reason is not
                     // yet known
    bool never;            // it is copied, whatever the targets are
    bool reached;          // a target matches it as loaders read targets, although it stays dense
    bool unseen;           // text alone does not run it: it is quantized without data, or stays
                           // dense
    bool left;             // --only does not name it; if it is quantized in the source, `scheme` is
                           // the group that it keeps
    bool absent; // a head without a tensor of its own; its name in transformers may be longer
    bool by_name;          // only its name matches it, not the class Linear or a regex
} osh_plan_module;

typedef struct osh_plan_modules { osh_plan_module *c; int64_t n; } osh_plan_modules;

static inline bool osh_is_embedding(const osh_plan_module *c)
{
    return !strcmp(c->cls, "Embedding");
}

/* Gives targets that are names of modules to the recipe's groups, if groups of the source are kept
 * too. */
osh_status osh_match_names(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs);
/* Makes the ignore list as the reference does: it has every module that is not quantized and whose
 * class is quantized elsewhere. */
osh_status osh_match_ignore(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs);
/* Infers the format of each group, the top-level format and the JSON. A group whose modules have
 * different formats is an error. */
osh_status osh_match_config(osh_ctx *cx, osh_matching *p);
osh_status osh_match_vllm(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs);
#endif
