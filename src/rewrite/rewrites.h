/* rewrites.h - changes of a model before it is quantized. Folded factors and rotations do not
 * change the function of the model; removed experts do. This header also has the values that use
 * the range of another value. */
#ifndef OSH_REWRITES_H
#define OSH_REWRITES_H
#include "match/matching.h"

/* A fold: the weights of a layer (the smooth layer) are divided by factors, one for each channel,
 * and the weights of the Linears that read its output (the balance layers) are multiplied by the
 * factors (folds.h). */
typedef struct osh_fold {
    int modifier;       // index of the modifier in the recipe
    /* module: index of the graph module of the smooth layer.
     * value: index of the graph value from whose statistics the factors are computed. */
    int module, value;
    int64_t n;          // number of channels of the layer's output
    /* Indices of the graph weights that are divided by the factors: weight and bias of the smooth
     * layer. */
    int gives[2], n_gives;
    float offset;       // constant of a norm that multiplies by (weight + offset)
    int *takes, n_takes;   // own: indices of the graph weights that are multiplied by the factors
    int subgraph;       // index of the subgraph that contains the fold; -1: the graph is not cut
    float *s;           // own [n]: factors
    bool known;         // true if `s` has the final factors; false before they are computed
} osh_fold;

typedef struct osh_experts osh_experts; // removed experts (experts.h)
typedef struct osh_rotated osh_rotated; // rotations of weights (rotations.h)
typedef struct osh_rewrites {
    const osh_inputs *in;      // view
    const osh_matching *match; // view
    /* The folds, in the order of the recipe, and for each modifier in the order of the graph. */
    osh_fold *folds;           // own
    int n_folds;
    /* Not 0 if a fold or a rotation changes the tensor; NULL: none is changed. */
    uint8_t *folded;         // own [tensors of the source]
    osh_experts *experts;    // own: kept and removed experts; NULL: the recipe removes no experts
    osh_rotated *rotated;    // own: rotations of weights; NULL: the recipe has none
    struct osh_inherit *inherits; // own: values that use the range of another value (passthrough.h)
    int n_inherits;
} osh_rewrites;
#endif
