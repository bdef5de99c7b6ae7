/* experts.h - the arguments of REAPPruningModifier, which leaves out experts. src/rewrite/experts.c
 * finds the experts in the model. */
#ifndef OSH_MODIFIERS_EXPERTS_H
#define OSH_MODIFIERS_EXPERTS_H
#include "modifiers/modifier.h"

typedef struct osh_kept_experts { // the kept experts of one layer
    char *layer; // own: "model.layers.0.mlp"
    int *which;  // own [n]: in rising order
    int n;
} osh_kept_experts;

typedef struct osh_reap { // args of the modifier
    double sparsity;
    char *report_path;      // own; NULL: none
    osh_kept_experts *kept; // own [n_kept]: result of an earlier run; n_kept 0: it must be measured
    size_t n_kept;
} osh_reap;
const osh_reap *osh_reap_of(const osh_modifier *m); // view; NULL: it is another modifier
#endif
