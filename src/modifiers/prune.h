/* prune.h - the arguments of modifiers that set weights to 0. A quantizer may follow such a
 * modifier. */
#ifndef OSH_PRUNE_MODIFIER_H
#define OSH_PRUNE_MODIFIER_H
#include "modifiers/modifier.h"

typedef struct osh_layer_share { // sparsity of a layer according to OWL
    char *layer;     // own: name of the decoder layer, such as "model.layers.0"
    double sparsity;
} osh_layer_share;
/* Arguments for sparsity_profile owl. With this profile each decoder layer gets its own sparsity,
 * computed from the outliers of the layer (eval/owl.c). */
struct osh_owl {
    /* m, lmbda: the keys owl_m and owl_lmbda; NAN: the key is not given.
     * sparsity: the mean sparsity over all layers. */
    double m, lmbda, sparsity;
    /* Own [n_shares]: sparsity of each layer, from the key layer_sparsities. n_shares 0: not
     * measured yet. */
    osh_layer_share *shares;
    size_t n_shares;
    bool asked;
};
#endif
