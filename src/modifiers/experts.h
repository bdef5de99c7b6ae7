/* experts.h - the arguments of REAPPruningModifier, which leaves experts out. src/plan/experts.c finds them. */
#ifndef OSH_MODIFIERS_EXPERTS_H
#define OSH_MODIFIERS_EXPERTS_H
#include "modifiers/modifier.h"

typedef struct osh_kept_experts { // of one layer
    char *layer; // own: "model.layers.0.mlp"
    int *which;  // own [n]: rising
    int n;
} osh_kept_experts;

typedef struct osh_reap { // args of such a modifier
    double sparsity;
    char *report_path;      // own; NULL: none
    osh_kept_experts *kept; // own [n_kept]: as an earlier run found them; n_kept 0: that is to be found
    size_t n_kept;
} osh_reap;
const osh_reap *osh_reap_of(const osh_modifier *m); // view; NULL: it is no such modifier
#endif
