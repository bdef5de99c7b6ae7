/* prune.h - the arguments of modifiers that set weights to 0. A quantizer may follow them. */
#ifndef OSH_PRUNE_MODIFIER_H
#define OSH_PRUNE_MODIFIER_H
#include "modifiers/modifier.h"

typedef struct osh_prune_rule { // a property that every pruned weight has
    double sparsity; // at least this fraction of the weight is 0
    int64_t n, m;    // n of each m columns are 0; m 0: any columns
    bool exact;      // weights that are not 0 did not change
} osh_prune_rule;
typedef struct osh_layer_share { // sparsity of a layer according to OWL
    char *layer;     // own: such as "model.layers.0"
    double sparsity;
} osh_layer_share;
/* For sparsity_profile owl: a sparsity for each decoder layer, from its outliers (eval/owl.h). */
typedef struct osh_owl {
    double m, lmbda, sparsity; // NAN: not given; sparsity: mean over all layers
    // own [n_shares]: result of an earlier run; n_shares 0: must be measured
    osh_layer_share *shares;
    size_t n_shares;
    bool asked;
} osh_owl;
const osh_owl *osh_owl_of(const osh_modifier *m); // view; NULL: the modifier has no such profile
/* `sparsity` is that of the Linear. */
osh_prune_rule osh_prune_rule_of(const osh_modifier *m, double sparsity);

/* Returns the sparsity of the k-th of n modules that the targets name. Fails if a list has another
 * length. */
osh_status osh_prune_sparsity(osh_ctx *cx, double *out, const osh_modifier *m, int k, int n);
/* Fails if the shape does not fit the mask. */
osh_status osh_prune_takes(osh_ctx *cx, const osh_modifier *m, const char *name, int64_t I);
#endif
