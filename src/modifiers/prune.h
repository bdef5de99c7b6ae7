/* prune.h - modifiers that make weights 0, of which a quantizer may come behind. */
#ifndef OSH_PRUNE_MODIFIER_H
#define OSH_PRUNE_MODIFIER_H
#include "modifiers/modifier.h"

typedef struct osh_prune_rule { // what holds of a weight that was pruned
    double sparsity; // at least this share of it is 0, but for ...
    int64_t n, m;    // n of each m columns are; 0: of any
    bool exact;      // what is not 0 is as it was
} osh_prune_rule;
typedef struct osh_layer_share { // of OWL
    char *layer;     // own: "model.layers.0"
    double sparsity;
} osh_layer_share;
typedef struct osh_owl { // sparsity_profile owl: a sparsity for each decoder layer, by its outliers (eval/owl.h)
    double m, lmbda, sparsity; // NAN: not given; sparsity: the mean of all layers
    osh_layer_share *shares;   // own [n_shares]: as an earlier run found them; n_shares 0: they are to be found
    size_t n_shares;
    bool asked;
} osh_owl;
const osh_owl *osh_owl_of(const osh_modifier *m); // view; NULL: it has no such profile
osh_prune_rule osh_prune_rule_of(const osh_modifier *m, double sparsity); // sparsity: of the Linear

/* Sparsity of the k-th of n modules that the targets name; refused where a list has another length. */
osh_status osh_prune_sparsity(osh_ctx *cx, double *out, const osh_modifier *m, int k, int n);
osh_status osh_prune_takes(osh_ctx *cx, const osh_modifier *m, const char *name, int64_t I); // shapes that fit the mask
#endif
