/* mixed.h - chooses a scheme for each module so that all together keep to a size and lose least.
 * Modules that runtimes fuse are one unit and get the same scheme. */
#ifndef OSH_MIXED_H
#define OSH_MIXED_H
#include "plan/plan.h"

typedef struct osh_mixed_unit {
    char *name;          // own: common part of its modules' names: "model.layers.0.self_attn.qkv"
    int64_t n_weights;
    int n;               // candidates
    int bits[OSH_CANDIDATES];      // bits of a code
    char label[OSH_CANDIDATES][16]; // "4 bits", "NVFP4A16"
    int64_t bytes[OSH_CANDIDATES]; // all tensors that store its weights
    double loss[OSH_CANDIDATES];   // from a survey; after osh_mixed_weigh: the effect on the model
    double rounded;      // loss of the rounding whose effect is measured
    double effect;       // measured effect
    int chosen;
} osh_mixed_unit;

typedef struct osh_mixed_step { // a point of the curve
    int64_t bytes;
    double loss;
} osh_mixed_step;

typedef struct osh_mixed {
    osh_mixed_unit *units; // own
    int n_units;
    int *unit_of;          // own [linears]
    int64_t n_weights, limit, bytes; // bytes: of the choice
    double loss, bound;    // loss of the choice; bound: no choice within the limit can lose less
    osh_mixed_step *curve; // own: from the smallest size to the largest, along the convex hull
    int n_curve;
    char *gradients_not;   // own: why losses are weighed by effects and not by gradients; NULL: by
                           // gradients
} osh_mixed;

/* Makes the units of a survey's Linears with the bytes of each candidate. losses [linears]: loss of
 * each candidate. */
osh_status osh_mixed_new(osh_ctx *cx, osh_mixed **out, const osh_plan *p,
                         const osh_losses *const *losses);
/* For a survey with gradients: converts losses, and the effect, to units of a token's -log p. The
 * effect is not measured then. */
void osh_mixed_by_gradients(osh_mixed *m, const osh_plan *p);
/* effect [units]: effect of rounding the unit. A candidate's loss becomes the effect times its loss
 * over the loss of that rounding. */
void osh_mixed_weigh(osh_mixed *m, const double *effect);
void osh_mixed_free(osh_ctx *cx, osh_mixed *m);
/* Chooses by falling loss per byte, then adds the steps that still fit. OSH_E_USAGE if the smallest
 * size is above the limit. */
osh_status osh_mixed_choose(osh_ctx *cx, osh_mixed *m, int64_t limit);
/* Returns in *limit the bytes that --target-bits or --target-size allow for quantized modules. */
osh_status osh_mixed_limit(osh_ctx *cx, int64_t *limit, const osh_mixed *m, const osh_plan *p);
/* Prints the recipe of p with the choice in it. *out: own. */
osh_status osh_mixed_recipe(osh_ctx *cx, char **out, const osh_mixed *m, const osh_plan *p,
                            const char *head);
#endif
