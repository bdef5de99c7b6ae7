/* modules.h - modules while they get their schemes: plan_match.c, and what the output's config says of them
 * (match_config.c). */
#ifndef OSH_PLAN_MODULES_H
#define OSH_PLAN_MODULES_H
#include <string.h>

#include "plan/plan.h"

typedef struct osh_plan_module { // a module that could be quantized
    char *name;            // own
    char *loaded;          // own: what transformers calls it; NULL: the same
    const char *cls;       // static or view of the graph: what loaders make of it
    int64_t tensor;
    int module;
    int scheme;            // global index, -1
    int pruner;            // index into the recipe's, -1
    double sparsity;       // for that
    const char *why;       // static: it stays dense; NULL: it does not, or nothing is known against it yet
    bool never;            // copied, whatever the targets are
    bool reached;          // by a target as loaders read it, though it stays dense
    bool unseen;           // text alone does not reach it: rounded, or dense
    bool left;             // --only does not name it; where the source has it quantized, scheme is the group it keeps
    bool absent; // a head without a tensor of its own; transformers may know it by a longer name
    bool by_name;          // the class Linear does not reach it, nor any regex
} osh_plan_module;

typedef struct osh_plan_modules { osh_plan_module *c; int64_t n; } osh_plan_modules;

static inline bool osh_is_embedding(const osh_plan_module *c) { return !strcmp(c->cls, "Embedding"); }

/* Beside groups of the source. */
osh_status osh_match_names(osh_ctx *cx, osh_plan *p, const osh_plan_modules *cs);
/* The reference's generated ignore: every module of a class that is quantized somewhere, and is not
 * quantized itself. */
osh_status osh_match_ignore(osh_ctx *cx, osh_plan *p, const osh_plan_modules *cs);
/* Formats into the groups (a group whose modules infer different ones cannot be), the top-level format, the JSON. */
osh_status osh_match_config(osh_ctx *cx, osh_plan *p);
osh_status osh_match_vllm(osh_ctx *cx, osh_plan *p, const osh_plan_modules *cs);
#endif
