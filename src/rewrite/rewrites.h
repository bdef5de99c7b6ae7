/* rewrites.h - changes of a model before it is quantized. Folded factors and rotations do not
 * change the function of the model. Removed experts change it. The file also lists values that use
 * the range of another value. */
#ifndef OSH_REWRITES_H
#define OSH_REWRITES_H
#include "match/matching.h"

/* A fold (folds.h). The weights of a layer, the smooth layer, are divided by factors, one for each
 * channel. The weights of the Linears that read its output, the balance layers, are multiplied by
 * the factors. */
typedef struct osh_fold {
    int modifier;       // index of the modifier in the recipe
    /* module: index of the smooth layer's module in the graph.
     * value: index of the graph value whose statistics give the factors. */
    int module, value;
    int64_t n;          // number of channels of the smooth layer's output
    /* Indices of the graph weights that are divided: weight and bias of the smooth layer. */
    int gives[2], n_gives;
    float offset; // constant, if the smooth layer is a norm that multiplies by (weight + offset)
    int *takes, n_takes;   // own: indices of the graph weights that are multiplied
    int subgraph;       // index of the subgraph of the fold; -1: the graph is not cut yet
    float *s;           // own [n]: factors
    bool known;         // true after `s` is computed
} osh_fold;

typedef struct osh_experts osh_experts; // kept and removed experts (experts.h)
typedef struct osh_rotated osh_rotated; // rotations of weights (rotations.h)
typedef struct osh_rewrites {
    const osh_inputs *in;      // view
    const osh_matching *match; // view
    /* The folds, in the order of the recipe. The folds of one modifier are in the order of the
     * graph. */
    osh_fold *folds;           // own
    int n_folds;
    /* Not 0 if a fold or a rotation changes the tensor. NULL: no tensor is changed. */
    uint8_t *folded;         // own [tensors of the source]
    osh_experts *experts;    // own: kept and removed experts; NULL: the recipe removes no experts
    osh_rotated *rotated;    // own: rotations of weights; NULL: the recipe has none
    struct osh_inherit *inherits; // own: values that use the range of another value (passthrough.h)
    int n_inherits;
} osh_rewrites;
#endif
