/* modules.h - modules while they get their schemes (plan_match.c), and while the output's config is
 * made of them (match_config.c). */
#ifndef OSH_PLAN_MODULES_H
#define OSH_PLAN_MODULES_H
#include <string.h>

#include "match/matching.h"

typedef struct osh_plan_module { // a module that could be quantized
    char *name;            // own
    char *loaded;          // own: its name in transformers; NULL: the same
    const char *cls;       // static or view of the graph: its class in loaders
    int64_t tensor;
    int module;
    int scheme;            // global index; -1: none
    int pruner;            // index into the recipe's modifiers; -1: none
    double sparsity;       // for the pruner
    const char *why; // static: why it stays dense; NULL: it does not, or no reason is known yet
    bool never;            // copied, whatever the targets are
    bool reached;          // a target reaches it as loaders read targets, though it stays dense
    bool unseen;           // text alone does not run it: rounded without data, or dense
    bool left;             // --only does not name it; if the source has it quantized, scheme is the
                           // group that it keeps
    bool absent; // a head without a tensor of its own; transformers may have a longer name for it
    bool by_name;          // the class Linear and regexes do not reach it, only its name
} osh_plan_module;

typedef struct osh_plan_modules { osh_plan_module *c; int64_t n; } osh_plan_modules;

static inline bool osh_is_embedding(const osh_plan_module *c)
{
    return !strcmp(c->cls, "Embedding");
}

/* Gives modules names as targets if the source's groups are kept beside the recipe's. */
osh_status osh_match_names(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs);
/* Makes the ignore list as the reference does: every module that is not quantized, of a class that
 * is quantized elsewhere. */
osh_status osh_match_ignore(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs);
/* Infers the format of each group, the top-level format and the JSON. A group whose modules have
 * different formats is an error. */
osh_status osh_match_config(osh_ctx *cx, osh_matching *p);
osh_status osh_match_vllm(osh_ctx *cx, osh_matching *p, const osh_plan_modules *cs);
#endif
