/* rewrites.h - declares the changes of a model that are made before it is quantized. Folded factors
 * and rotations do not change the function of the model. Removed experts change it. The file also
 * declares the list of values that use the range of an earlier value. */
#ifndef OSH_REWRITES_H
#define OSH_REWRITES_H
#include "match/matching.h"

/* A fold (folds.h) changes the weights of one layer, the smooth layer, and of the Linears that read
 * its output, the balance layers. The weights of the smooth layer are divided by factors, one for
 * each channel. The weights of the balance layers are multiplied by the factors. */
typedef struct osh_fold {
    int modifier;       // index of the modifier in the recipe
    /* module: index of the smooth layer's module among the graph's modules.
     * value: index of the graph value whose statistics give the factors. */
    int module, value;
    int64_t n;          // number of channels of the smooth layer's output
    /* Indices of the graph weights that are divided by factors: weight and bias of the smooth
     * layer. */
    int gives[2], n_gives;
    /* offset of the smooth layer, if it is a norm that multiplies by (weight + offset) */
    float offset;
    int *takes, n_takes;   // own: indices of the graph weights that are multiplied by factors
    int subgraph; // index of the subgraph with the layers of the fold; -1: the graph is not cut yet
    float *s;           // own [n]: factors
    bool known;         // true after the factors `s` are computed
} osh_fold;

typedef struct osh_experts osh_experts; // kept and removed experts (experts.h)
typedef struct osh_rotated osh_rotated; // rotations of weights (rotations.h)
typedef struct osh_rewrites {
    const osh_inputs *in;      // view
    const osh_matching *match; // view
    /* The folds, in the order of the recipe's modifiers. The folds of one modifier are in the order
     * of the graph. */
    osh_fold *folds;           // own
    int n_folds;
    /* folded[i] is not 0 if a fold or a rotation changes source tensor i. NULL: no tensor is
     * changed. */
    uint8_t *folded;         // own [tensors of the source]
    osh_experts *experts;    // own: kept and removed experts; NULL: the recipe removes no experts
    osh_rotated *rotated;    // own: rotations of weights; NULL: the recipe has none
    /* own: values that use the range of an earlier value (passthrough.h) */
    struct osh_inherit *inherits;
    int n_inherits;
} osh_rewrites;
#endif
