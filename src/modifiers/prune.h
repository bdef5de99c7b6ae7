/* prune.h - the arguments of modifiers that set weights to 0. A quantizer may follow such a
 * modifier. */
#ifndef OSH_PRUNE_MODIFIER_H
#define OSH_PRUNE_MODIFIER_H
#include "modifiers/modifier.h"

typedef struct osh_prune_rule { // properties that the check of the output requires of a pruned
                                // weight
    double sparsity; // at least this fraction of the elements is 0
    int64_t n, m;    // n of each m columns are 0; m is 0 if the rule has no such structure
    bool exact;      // true if elements that are not 0 have the values of the source
} osh_prune_rule;
typedef struct osh_layer_share { // sparsity of a layer according to OWL
    char *layer;     // own: name of the decoder layer, such as "model.layers.0"
    double sparsity;
} osh_layer_share;
/* For sparsity_profile owl: each decoder layer gets a sparsity that depends on the layer's outliers
 * (eval/owl.h). */
typedef struct osh_owl {
    double m, lmbda, sparsity; // m, lmbda: NAN if the key is not given; sparsity: the mean sparsity
                               // over all layers
    /* own [n_shares]: sparsity of each layer, from the key layer_sparsities; n_shares 0: not yet
     * measured */
    osh_layer_share *shares;
    size_t n_shares;
    bool asked;
} osh_owl;
const osh_owl *osh_owl_of(const osh_modifier *m); // returns the arguments of OWL (view), or NULL if
                                                  // the recipe does not use OWL
/* Returns the properties of a weight after pruning to `sparsity`. */
osh_prune_rule osh_prune_rule_of(const osh_modifier *m, double sparsity);

/* Sets *out to the sparsity of module k of the n modules that match the targets. Fails if the
 * recipe has a list of sparsities whose length is not n. */
osh_status osh_prune_sparsity(osh_ctx *cx, double *out, const osh_modifier *m, int k, int n);
/* Fails if mask_structure is N:M and the number I of input features is not a multiple of M. */
osh_status osh_prune_takes(osh_ctx *cx, const osh_modifier *m, const char *name, int64_t I);
#endif
