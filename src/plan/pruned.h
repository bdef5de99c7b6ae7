/* pruned.h - which Linears a recipe prunes, and how much of each. */
#ifndef OSH_PLAN_PRUNED_H
#define OSH_PLAN_PRUNED_H
#include "plan/plan.h"

typedef struct osh_prunable {
    const char *name, *cls; // views; cls NULL: no target's class means it
    bool never;             // whatever the targets are
    int modifier;           // out: index into the recipe's; -1: it is not pruned
    double sparsity;        // out
    int aimed;              // which of the modules that the targets name it is inside of
} osh_prunable;

osh_status osh_plan_prune(osh_ctx *cx, osh_plan *p, osh_prunable *of, int64_t n);
extern const osh_q_scheme osh_pruned_scheme; // of what is pruned and not quantized
/* l is pruned by that modifier: what it wants, and what cannot be. */
osh_status osh_plan_pruned(osh_ctx *cx, const osh_plan *p, osh_linear *l, int pruner);
#endif
