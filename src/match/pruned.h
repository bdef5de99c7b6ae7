/* pruned.h - finds the Linears that a recipe prunes, and the sparsity of each. */
#ifndef OSH_PLAN_PRUNED_H
#define OSH_PLAN_PRUNED_H
#include "match/matching.h"

typedef struct osh_prunable {
    const char *name, *cls; // views; cls NULL: no target's class reaches it
    bool never;             // not pruned, whatever the targets are
    bool unseen;            // text alone does not run it: not pruned by a modifier that wants data
    bool unreached;         // out: a target names it, and it is not pruned because it is unseen
    int modifier;           // out: index into the recipe's modifiers; -1: not pruned
    double sparsity;        // out
    int aimed; // index among the modules that the targets name: the one that contains it
} osh_prunable;

/* Fills in modifier, sparsity and aimed of the n modules. */
osh_status osh_plan_prune(osh_ctx *cx, osh_matching *p, osh_prunable *of, int64_t n);
extern const osh_q_scheme osh_pruned_scheme; // scheme of Linears that are pruned and not quantized
/* Sets what a Linear pruned by that modifier wants; fails if it cannot be pruned. */
osh_status osh_plan_pruned(osh_ctx *cx, const osh_matching *p, osh_linear *l, int pruner);
#endif
