/* mixed.h - which scheme each module gets, so that all together keep to a size and lose least. Modules that runtimes
 * fuse are a unit and get the same one. */
#ifndef OSH_MIXED_H
#define OSH_MIXED_H
#include "plan/plan.h"

typedef struct osh_mixed_unit {
    char *name;          // own: what its modules have in common: "model.layers.0.self_attn.qkv"
    int64_t n_weights;
    int n;               // candidates
    int bits[OSH_CANDIDATES];      // of a code
    char label[OSH_CANDIDATES][16]; // "4 bits", "NVFP4A16"
    int64_t bytes[OSH_CANDIDATES]; // of all tensors that stand for its weights
    double loss[OSH_CANDIDATES];   // as a survey finds them; osh_mixed_weigh: what they do to the model
    double rounded;      // the same of the rounding whose effect is measured
    double effect;       // that
    int chosen;
} osh_mixed_unit;

typedef struct osh_mixed_step { // of the curve
    int64_t bytes;
    double loss;
} osh_mixed_step;

typedef struct osh_mixed {
    osh_mixed_unit *units; // own
    int n_units;
    int *unit_of;          // own [linears]
    int64_t n_weights, limit, bytes; // bytes: of what is chosen
    double loss, bound;    // of what is chosen; no choice within the limit can lose less than bound
    osh_mixed_step *curve; // own: from the least size to the largest, along the convex hull
    int n_curve;
    char *gradients_not;   // own: why losses are not weighed by gradients, but by effects; NULL: they are
} osh_mixed;

/* Units of a survey's Linears, and what each candidate takes. losses [linears]: of each candidate. */
osh_status osh_mixed_new(osh_ctx *cx, osh_mixed **out, const osh_plan *p, const osh_losses *const *losses);
/* Of a survey with gradients: losses become those of a token's -log p, and so does the effect, which nobody measures */
void osh_mixed_by_gradients(osh_mixed *m, const osh_plan *p);
/* effect [units]: of rounding them. A candidate's is that times its loss over the loss of that rounding. */
void osh_mixed_weigh(osh_mixed *m, const double *effect);
void osh_mixed_free(osh_ctx *cx, osh_mixed *m);
/* By falling loss per byte, then what still fits. OSH_E_USAGE where even the least size is above the limit. */
osh_status osh_mixed_choose(osh_ctx *cx, osh_mixed *m, int64_t limit);
/* Bytes that --target-bits or --target-size allows to what is quantized. */
osh_status osh_mixed_limit(osh_ctx *cx, int64_t *limit, const osh_mixed *m, const osh_plan *p);
/* The recipe of p with the choice in it. own */
osh_status osh_mixed_recipe(osh_ctx *cx, char **out, const osh_mixed *m, const osh_plan *p, const char *head);
#endif
