/* prune.h - declares the arguments of modifiers that set weights to 0. A quantizer may follow such
 * a modifier. */
#ifndef OSH_PRUNE_MODIFIER_H
#define OSH_PRUNE_MODIFIER_H
#include "modifiers/modifier.h"

typedef struct osh_layer_share { // the sparsity that OWL gives a decoder layer
    char *layer;     // own: name of the decoder layer, such as "model.layers.0"
    double sparsity;
} osh_layer_share;
/* Arguments for the key sparsity_profile with the value owl. Each decoder layer then gets its own
 * sparsity, which follows from the outliers of the layer (eval/owl.c). */
struct osh_owl {
    /* m, lmbda: the keys owl_m and owl_lmbda; NAN: the key is not given.
     * sparsity: mean of the sparsities of all layers. */
    double m, lmbda, sparsity;
    /* Own [n_shares]: sparsity of each layer, from the key layer_sparsities. If n_shares is 0, the
     * sparsities are not measured yet. */
    osh_layer_share *shares;
    size_t n_shares;
    bool asked;
};
#endif
