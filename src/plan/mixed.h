/* mixed.h - chooses a scheme for each module. All modules together may have at most a given size,
 * and their loss must be as small as possible. Modules that runtimes fuse, such as q, k and v of a
 * layer, are one unit: they must get the same scheme. */
#ifndef OSH_MIXED_H
#define OSH_MIXED_H
#include "plan/plan.h"

typedef struct osh_mixed_unit {
    /* Name of the unit's first module, such as "model.layers.0.self_attn.q_proj". A unit of experts
     * has the beginning of their names instead, up to "experts". */
    char *name;          // own
    int64_t n_weights;
    int n;               // number of candidates
    int bits[OSH_CANDIDATES];      // bits of a code with each candidate
    char label[OSH_CANDIDATES][16]; // name of each candidate, such as "4 bits" or "NVFP4A16"
    /* for each candidate: bytes of all tensors that store the unit's weights */
    int64_t bytes[OSH_CANDIDATES];
    /* Loss of each candidate. At first this is the loss that the survey measured. After
     * osh_mixed_weigh or osh_mixed_by_gradients, it is a change of the model's loss. */
    double loss[OSH_CANDIDATES];
    /* Loss that the survey measured for OSH_SURVEY_BITS bits, summed over the Linears of the unit
     * (osh_losses.all). `effect` is measured with the same number of bits. */
    double rounded;
    double effect;       // measured change of the model's loss if only this unit is rounded
    int chosen;
} osh_mixed_unit;

typedef struct osh_mixed_step { // a point on the curve of sizes and losses
    int64_t bytes;
    double loss;
} osh_mixed_step;

typedef struct osh_mixed {
    osh_mixed_unit *units; // own
    int n_units;
    int *unit_of;          // own [linears]: index of the Linear's unit
    /* n_weights: number of weights in all units.
     * limit: largest allowed size in bytes.
     * bytes: bytes of the chosen candidates. */
    int64_t n_weights, limit, bytes;
    /* loss: sum of the losses of the chosen candidates.
     * bound: lower bound of the loss of all choices within the limit. */
    double loss, bound;
    /* Sizes and losses after each step (see mixed.c), from the smallest size to the largest. */
    osh_mixed_step *curve; // own
    int n_curve;
    /* Reason why losses are multiplied by measured effects instead of gradients. NULL: they are
     * multiplied by gradients. */
    char *gradients_not;   // own
} osh_mixed;

/* Makes the units from the Linears of a survey, and computes the bytes of each candidate. losses
 * [Linears]: losses of all candidates of the Linear. */
osh_status osh_mixed_new(osh_ctx *cx, osh_mixed **out, const osh_plan *p,
                         const osh_losses *const *losses);
/* For a survey with gradients: converts the losses of the candidates to changes of -log p of a
 * token. Called instead of osh_mixed_weigh. */
void osh_mixed_by_gradients(osh_mixed *m, const osh_plan *p);
/* Multiplies the loss of each candidate of unit u by effect[u] / u->rounded. effect [units]:
 * measured change of the model's loss if only this unit is rounded. */
void osh_mixed_weigh(osh_mixed *m, const double *effect);
void osh_mixed_free(osh_ctx *cx, osh_mixed *m);
/* Chooses a candidate for each unit with the method of mixed.c. Fails with OSH_E_USAGE if the
 * smallest candidates of all units together have more than `limit` bytes. */
osh_status osh_mixed_choose(osh_ctx *cx, osh_mixed *m, int64_t limit);
/* Sets *limit to the bytes that --target-bits or --target-size allow for all quantized modules. */
osh_status osh_mixed_limit(osh_ctx *cx, int64_t *limit, const osh_mixed *m, const osh_plan *p);
/* Sets *out (own) to the text of p's recipe with the chosen schemes. */
osh_status osh_mixed_recipe(osh_ctx *cx, char **out, const osh_mixed *m, const osh_plan *p,
                            const char *head);
#endif
