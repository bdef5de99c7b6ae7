/* pruned.h - finds the Linears that a recipe prunes and the sparsity of each. */
#ifndef OSH_PLAN_PRUNED_H
#define OSH_PLAN_PRUNED_H
#include "match/matching.h"

typedef struct osh_prunable {
    const char *name, *cls; // views; cls NULL: no target matches its class
    bool never;             // true: the module is not pruned even if a target matches it
    bool unseen;            // true: a forward pass of text does not run the module, so a modifier
                            // that needs data does not prune it
    bool unreached;         // result: true if a target names the module but it is not pruned
                            // because it is `unseen`
    int modifier;           // result: index of the modifier in the recipe; -1: not pruned
    double sparsity;        // result
    int aimed; // result: index, among the modules that the targets name, of the module that
               // contains this one
} osh_prunable;

/* Sets modifier, sparsity and aimed of the n modules. */
osh_status osh_plan_prune(osh_ctx *cx, osh_matching *p, osh_prunable *of, int64_t n);
extern const osh_q_scheme osh_pruned_scheme; // scheme of Linears that are pruned and not quantized
/* Sets the statistics that a Linear needs if this modifier prunes it. Fails if the Linear cannot be
 * pruned. */
osh_status osh_plan_pruned(osh_ctx *cx, const osh_matching *p, osh_linear *l, int pruner);
#endif
