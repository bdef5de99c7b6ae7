/* prune.h - modifiers that make weights 0, of which a quantizer may come behind. */
#ifndef OSH_PRUNE_MODIFIER_H
#define OSH_PRUNE_MODIFIER_H
#include "modifiers/modifier.h"

typedef struct osh_prune_rule { // what holds of a weight that was pruned
    double sparsity; // at least this share of it is 0, but for ...
    int64_t n, m;    // n of each m columns are; 0: of any
    bool exact;      // what is not 0 is as it was
} osh_prune_rule;
osh_prune_rule osh_prune_rule_of(const osh_modifier *m, double sparsity); // sparsity: of the Linear

/* Sparsity of the k-th of n modules that the targets name; refused where a list has another length. */
osh_status osh_prune_sparsity(osh_ctx *cx, double *out, const osh_modifier *m, int k, int n);
osh_status osh_prune_takes(osh_ctx *cx, const osh_modifier *m, const char *name, int64_t I); // shapes that fit the mask
#endif
