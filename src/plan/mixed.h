/* mixed.h - chooses a scheme for each module, so that all modules together have at most a given
 * size and the smallest loss. Modules that runtimes fuse, such as q, k and v of a layer, are one
 * unit: they must get the same scheme. */
#ifndef OSH_MIXED_H
#define OSH_MIXED_H
#include "plan/plan.h"

typedef struct osh_mixed_unit {
    /* Common prefix of the names of the unit's modules, such as "model.layers.0.self_attn.qkv". */
    char *name;          // own
    int64_t n_weights;
    int n;               // number of candidates
    int bits[OSH_CANDIDATES];      // number of bits of a code, for each candidate
    char label[OSH_CANDIDATES][16]; // name of each candidate, such as "4 bits" or "NVFP4A16"
    int64_t bytes[OSH_CANDIDATES]; // bytes of all tensors that store the unit's weights
    /* Loss that the survey measured; after osh_mixed_weigh or osh_mixed_by_gradients: change of the
     * model's loss. */
    double loss[OSH_CANDIDATES];
    /* Loss that the survey measured for rounding to OSH_SURVEY_BITS bits, the rounding of `effect`:
     * sum of osh_losses.all over the unit's Linears. */
    double rounded;
    double effect;       // change of the model's loss when only this unit is rounded
    int chosen;
} osh_mixed_unit;

typedef struct osh_mixed_step { // a point of the curve of size and loss
    int64_t bytes;
    double loss;
} osh_mixed_step;

typedef struct osh_mixed {
    osh_mixed_unit *units; // own
    int n_units;
    int *unit_of;          // own [linears]: index of the unit of each Linear
    /* n_weights: number of weights of all units.
     * bytes: size of the chosen candidates, at most `limit`. */
    int64_t n_weights, limit, bytes;
    /* loss: sum of the losses of the chosen candidates.
     * bound: no choice within the limit has a smaller loss. */
    double loss, bound;
    /* Points along the convex hull, from the smallest size to the largest. */
    osh_mixed_step *curve; // own
    int n_curve;
    /* Reason why losses are multiplied by measured effects and not by gradients; NULL: by
     * gradients. */
    char *gradients_not;   // own
} osh_mixed;

/* Makes the units (Linears that must get the same scheme) from the Linears of a survey, and
 * computes the bytes of each candidate. losses [linears]: losses of each candidate. */
osh_status osh_mixed_new(osh_ctx *cx, osh_mixed **out, const osh_plan *p,
                         const osh_losses *const *losses);
/* For a survey with gradients: converts the losses to changes of -log p of a token. Then
 * osh_mixed_weigh is not needed. */
void osh_mixed_by_gradients(osh_mixed *m, const osh_plan *p);
/* Multiplies the loss of each candidate of unit u by effect[u] / u->rounded. effect [units]: change
 * of the model's loss when only this unit is rounded. */
void osh_mixed_weigh(osh_mixed *m, const double *effect);
void osh_mixed_free(osh_ctx *cx, osh_mixed *m);
/* Chooses a candidate for each unit by the method of mixed.c. Fails with OSH_E_USAGE if the
 * smallest candidates exceed the limit. */
osh_status osh_mixed_choose(osh_ctx *cx, osh_mixed *m, int64_t limit);
/* Sets *limit to the bytes that --target-bits or --target-size allow for all quantized modules. */
osh_status osh_mixed_limit(osh_ctx *cx, int64_t *limit, const osh_mixed *m, const osh_plan *p);
/* Prints the recipe of p with the chosen schemes to *out (own). */
osh_status osh_mixed_recipe(osh_ctx *cx, char **out, const osh_mixed *m, const osh_plan *p,
                            const char *head);
#endif
