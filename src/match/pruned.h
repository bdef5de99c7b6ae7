/* pruned.h - finds the Linears that a recipe prunes, and the sparsity of each. */
#ifndef OSH_PLAN_PRUNED_H
#define OSH_PLAN_PRUNED_H
#include "match/matching.h"

typedef struct osh_prunable {
    const char *name, *cls; // views; cls NULL: targets match the name only
    bool never;             // true if the module is not pruned even if a target matches it
    /* True if a forward pass of text does not run the module. Modifiers that need data do not prune
     * such a module. */
    bool unseen;
    /* Result: true if a target names the module, but it is not pruned because it is `unseen`. */
    bool unreached;
    int modifier;           // result: index of the modifier that prunes the module; -1: not pruned
    double sparsity;        // result: sparsity of the weight
    /* Result: number of the module that a target names and that contains this module. Such modules
     * are numbered in the order of the model. */
    int aimed;
} osh_prunable;

/* Sets the results (modifier, sparsity, ...) of the n modules. */
osh_status osh_plan_prune(osh_ctx *cx, osh_matching *p, osh_prunable *of, int64_t n);
extern const osh_q_scheme osh_pruned_scheme; // scheme of Linears that are pruned and not quantized
/* Adds the statistics that modifier `pruner` needs to l->wants. Fails if the Linear cannot be
 * pruned in this way. */
osh_status osh_plan_pruned(osh_ctx *cx, const osh_matching *p, osh_linear *l, int pruner);
#endif
