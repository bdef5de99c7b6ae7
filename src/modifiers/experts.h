/* experts.h - the arguments of REAPPruningModifier, which removes experts. src/rewrite/experts.c
 * finds the experts in the model. */
#ifndef OSH_MODIFIERS_EXPERTS_H
#define OSH_MODIFIERS_EXPERTS_H
#include "modifiers/modifier.h"

typedef struct osh_kept_experts { // experts of one layer that are not removed
    char *layer; // own: name of the MoE module, such as "model.layers.0.mlp"
    int *which;  // own [n]: indices of the experts in ascending order
    int n;
} osh_kept_experts;

typedef struct osh_reap { // arguments of the modifier
    double sparsity;
    char *report_path;      // own: path of the report; NULL: no report is written
    /* Kept experts of each layer, from the key `retained`. n_kept 0: the experts are not chosen
     * yet. */
    osh_kept_experts *kept; // own [n_kept]
    size_t n_kept;
} osh_reap;
/* Returns the arguments (view), or NULL if m is not a REAPPruningModifier. */
const osh_reap *osh_reap_of(const osh_modifier *m);
#endif
