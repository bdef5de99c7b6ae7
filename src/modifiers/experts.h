/* experts.h - the arguments of REAPPruningModifier, which removes experts. src/rewrite/experts.c
 * finds the experts in the model. */
#ifndef OSH_MODIFIERS_EXPERTS_H
#define OSH_MODIFIERS_EXPERTS_H
#include "modifiers/modifier.h"

typedef struct osh_kept_experts { // experts of one layer that are not removed
    char *layer; // own: such as "model.layers.0.mlp"
    int *which;  // own [n]: numbers of the experts in rising order
    int n;
} osh_kept_experts;

typedef struct osh_reap { // arguments of the modifier
    double sparsity;
    char *report_path;      // own; NULL: no report
    osh_kept_experts *kept; // own [n_kept]: kept experts of each layer, from the key `retained`;
                            // n_kept 0: not yet measured
    size_t n_kept;
} osh_reap;
const osh_reap *osh_reap_of(const osh_modifier *m); // returns the arguments (view), or NULL if m is
                                                    // not a REAPPruningModifier
#endif
