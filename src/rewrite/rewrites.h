/* rewrites.h - what changes a model and keeps its function: factors that are folded into weights,
 * rotations, experts that are removed, ranges that are taken from other values. */
#ifndef OSH_REWRITES_H
#define OSH_REWRITES_H
#include "match/matching.h"

/* Factors that a layer gives to the Linears that read its output (folds.h). */
typedef struct osh_fold {
    int modifier;       // index into the recipe's modifiers
    int module, value;  // graph indices: the layer that gives, the value observed for it (folds.h)
    int64_t n;          // channels of the layer
    int gives[2], n_gives; // graph weights that are divided: the layer's weight and bias
    float offset;       // added to the weight by the layer itself
    int *takes, n_takes;   // own: graph weights of the Linears that take the factors
    int subgraph;       // -1: the graph is not cut, or another traversal makes it
    int home;           // with traversals: its subgraph in its own traversal
    float *s;           // own [n]
    bool known;         // s is filled
} osh_fold;

typedef struct osh_experts osh_experts; // experts.h
typedef struct osh_rotated osh_rotated; // rotations.h
typedef struct osh_rewrites {
    const osh_inputs *in;      // view
    const osh_matching *match; // view
    osh_fold *folds;           // own, in the order in which they are made
    int n_folds;
    uint8_t *folded;         // own [tensors of the source]: not 0: a fold or a rotation changes it;
                             // NULL: none
    osh_experts *experts;    // own: layers that lose experts; NULL: the recipe has no such modifier
    osh_rotated *rotated;    // own: rotations of weights; NULL: the recipe has no such modifier
    struct osh_inherit *inherits; // own: passthrough.h
    int n_inherits;
} osh_rewrites;
#endif
