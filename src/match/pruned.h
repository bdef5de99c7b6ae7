/* pruned.h - finds the Linears that a recipe prunes, and the sparsity of each Linear. */
#ifndef OSH_PLAN_PRUNED_H
#define OSH_PLAN_PRUNED_H
#include "match/matching.h"

typedef struct osh_prunable {
    const char *name, *cls; // views; if cls is NULL, targets are compared only with the name
    bool never;             // true if the module is never pruned, even if a target matches it
    /* True if a forward pass of text does not run the module. Only modifiers that need no data can
     * prune such a module. */
    bool unseen;
    /* Result: true if a target matches the module, but the module is `unseen` and the modifier
     * needs data. */
    bool unreached;
    int modifier;           // result: index of the modifier that prunes the module; -1: not pruned
    double sparsity;        // result: fraction of the weight's elements that become 0
    /* Result: number of the module that a target names; it is this module, or a module that
     * contains it. All modules that targets name are numbered in the order of the model. */
    int aimed;
} osh_prunable;

/* Sets the results (unreached, modifier, sparsity, aimed) of the n modules. */
osh_status osh_plan_prune(osh_ctx *cx, osh_matching *p, osh_prunable *of, int64_t n);
extern const osh_q_scheme osh_pruned_scheme; // scheme of Linears that are pruned and not quantized
/* Adds to l->wants the statistics that the modifier with index `pruner` needs. Fails if this
 * modifier cannot prune the Linear. */
osh_status osh_plan_pruned(osh_ctx *cx, const osh_matching *p, osh_linear *l, int pruner);
#endif
