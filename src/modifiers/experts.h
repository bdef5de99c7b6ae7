/* experts.h - declares the arguments of REAPPruningModifier, which removes experts.
 * src/rewrite/experts.c removes them from the model. */
#ifndef OSH_MODIFIERS_EXPERTS_H
#define OSH_MODIFIERS_EXPERTS_H
#include "modifiers/modifier.h"

typedef struct osh_kept_experts { // the remaining experts of one layer
    char *layer; // own: name of the MoE module, such as "model.layers.0.mlp"
    int *which;  // own [n]: indices of these experts in ascending order
    int n;
} osh_kept_experts;

typedef struct osh_reap { // arguments of REAPPruningModifier
    double sparsity;
    char *report_path;      // own: path of a list of the remaining experts; NULL: not written
    /* Remaining experts of each layer, from the key `retained`. If n_kept is 0, the experts are not
     * chosen yet. */
    osh_kept_experts *kept; // own [n_kept]
    size_t n_kept;
} osh_reap;
/* Returns the arguments of m (view), or NULL if m is not a REAPPruningModifier. */
const osh_reap *osh_reap_of(const osh_modifier *m);
#endif
