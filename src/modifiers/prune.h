/* prune.h - the arguments of modifiers that set weights to 0. A quantizer may follow such a
 * modifier. */
#ifndef OSH_PRUNE_MODIFIER_H
#define OSH_PRUNE_MODIFIER_H
#include "modifiers/modifier.h"

typedef struct osh_layer_share { // sparsity of a layer according to OWL
    char *layer;     // own: name of the decoder layer, such as "model.layers.0"
    double sparsity;
} osh_layer_share;
/* For sparsity_profile owl: each decoder layer gets a sparsity that depends on the layer's outliers
 * (eval/owl.c). */
struct osh_owl {
    double m, lmbda, sparsity; // m, lmbda: NAN if the key is not given; sparsity: the mean sparsity
                               // over all layers
    /* own [n_shares]: sparsity of each layer, from the key layer_sparsities; n_shares 0: not yet
     * measured */
    osh_layer_share *shares;
    size_t n_shares;
    bool asked;
};
#endif
