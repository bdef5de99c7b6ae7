/* mixed.h - chooses a scheme for each module so that all modules together have at most a given size
 * and lose least. Modules that runtimes fuse are one unit and get the same scheme. */
#ifndef OSH_MIXED_H
#define OSH_MIXED_H
#include "plan/plan.h"

typedef struct osh_mixed_unit {
    char *name;          // own: common part of its modules' names, such as
                         // "model.layers.0.self_attn.qkv"
    int64_t n_weights;
    int n;               // number of candidates
    int bits[OSH_CANDIDATES];      // bits of a code
    char label[OSH_CANDIDATES][16]; // such as "4 bits" or "NVFP4A16"
    int64_t bytes[OSH_CANDIDATES]; // bytes of all tensors that store the unit's weights
    double loss[OSH_CANDIDATES];   // loss from a survey; after osh_mixed_weigh: effect on the model
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
    int64_t n_weights, limit, bytes; // bytes: size of the choice
    double loss, bound;    // loss of the choice; lower bound for the loss of all choices within the
                           // limit
    osh_mixed_step *curve; // own: from the smallest size to the largest along the convex hull
    int n_curve;
    char *gradients_not;   // own: reason why losses are weighted by effects and not by gradients;
                           // NULL: by gradients
} osh_mixed;

/* Makes the units of a survey's Linears and the bytes of each candidate. losses [linears]: loss of
 * each candidate. */
osh_status osh_mixed_new(osh_ctx *cx, osh_mixed **out, const osh_plan *p,
                         const osh_losses *const *losses);
/* For a survey with gradients: converts losses and effects to changes of -log p of a token. Effects
 * are then not measured. */
void osh_mixed_by_gradients(osh_mixed *m, const osh_plan *p);
/* effect [units]: measured effect of rounding the unit. The loss of each candidate is multiplied by
 * the effect and divided by the loss of the measured rounding. */
void osh_mixed_weigh(osh_mixed *m, const double *effect);
void osh_mixed_free(osh_ctx *cx, osh_mixed *m);
/* Chooses a candidate for each unit (see mixed.c for the method). OSH_E_USAGE: even the smallest
 * candidates are larger than the limit. */
osh_status osh_mixed_choose(osh_ctx *cx, osh_mixed *m, int64_t limit);
/* Sets *limit to the bytes that --target-bits or --target-size allow for quantized modules. */
osh_status osh_mixed_limit(osh_ctx *cx, int64_t *limit, const osh_mixed *m, const osh_plan *p);
/* Prints the recipe of p with the chosen schemes. *out: own. */
osh_status osh_mixed_recipe(osh_ctx *cx, char **out, const osh_mixed *m, const osh_plan *p,
                            const char *head);
#endif
