/* rewrites.h - changes of a model that keep its function, and removed experts: factors folded into
 * weights, rotations, ranges that are taken from other values. */
#ifndef OSH_REWRITES_H
#define OSH_REWRITES_H
#include "match/matching.h"

/* Factors that a layer gives to the Linears that read its output (folds.h). */
typedef struct osh_fold {
    int modifier;       // index of the modifier in the recipe
    int module, value;  // in the graph: layer that gives the factors; value from whose statistics
                        // the factors are computed (folds.h)
    int64_t n;          // number of channels of the layer
    int gives[2], n_gives; // weights of the graph that are divided by the factors: weight and bias
                           // of the layer
    float offset;       // number that the layer adds to its weight when it runs
    int *takes, n_takes;   // own: weights of the graph that are multiplied by the factors: those of
                           // the Linears
    int subgraph;       // index of the subgraph; -1: the graph is not cut
    float *s;           // own [n]
    bool known;         // the factors s are known
} osh_fold;

typedef struct osh_experts osh_experts; // experts.h
typedef struct osh_rotated osh_rotated; // rotations.h
typedef struct osh_rewrites {
    const osh_inputs *in;      // view
    const osh_matching *match; // view
    osh_fold *folds;           // own, in the order in which they are computed
    int n_folds;
    uint8_t *folded;         // own [tensors of the source]: not 0 if a fold or a rotation changes
                             // the tensor; NULL: none is changed
    osh_experts *experts;    // own: layers from which experts are removed; NULL: the recipe has no
                             // such modifier
    osh_rotated *rotated;    // own: rotations of weights; NULL: the recipe has no such modifier
    struct osh_inherit *inherits; // own: see passthrough.h
    int n_inherits;
} osh_rewrites;
#endif
