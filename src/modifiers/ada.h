/* ada.h - declares the arguments of AdaRoundModifier, AdaQuantModifier and AutoRoundModifier, which
 * ada_keys.c reads and ada.c uses. This header is only for src/modifiers. */
#ifndef OSH_ADA_MODIFIER_H
#define OSH_ADA_MODIFIER_H
#include "modifiers/modifier.h"
#include "solver/ada.h"

typedef struct ada { // arguments of the three modifiers
    double learning_rate, scale_learning_rate, reg_param, warm_start, drop_ratio;
    int64_t num_iterations, num_batches, log_period;
    bool early_stop, selective_update, update_bias;
    double bias_learning_rate;
    char *target, *mode; // own
    /* Value of the key beta. The keys beta and lr_adjust are read by osh_ada_key, because the table
     * of fields cannot describe lists. */
    double beta[2];
    /* Value of the key lr_adjust: the learning rate is adjust[1] if the error of rounding to
     * nearest exceeds adjust[0]. If the key is not given, adjust[1] is 0. */
    double adjust[2];
    bool minmax;         // AutoRound only: true if the ranges of groups are learned, too
    /* Part of the model whose output error is minimized: "block", "linear", or "auto" (a block if
     * possible, else a Linear). */
    char *unit;          // own
    osh_block_rule block;
} ada;

extern const osh_modifier_type osh_modifier_adaround, osh_modifier_adaquant, osh_modifier_autoround;
static inline bool osh_is_adaround(const osh_modifier *m)
{
    return m->type == &osh_modifier_adaround;
}
static inline bool osh_is_autoround(const osh_modifier *m)
{
    return m->type == &osh_modifier_autoround;
}
static inline osh_ada_kind osh_ada_kind_of(const osh_modifier *m)
{
    return osh_is_autoround(m) ? OSH_ADA_SIGN : osh_is_adaround(m) ? OSH_ADA_ROUND : OSH_ADA_QUANT;
}

extern const osh_field osh_ada_round_fields[], osh_ada_quant_fields[], osh_ada_auto_fields[];
/* Reads the keys of AdaRoundModifier and AdaQuantModifier that the table of fields cannot describe.
 * Sets *known to false for any other key. */
osh_status osh_ada_key(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *v,
                       bool *known, const char *what);
/* Reads the keys of AutoRoundModifier that the table of fields cannot describe. Sets *known to
 * false for any other key. */
osh_status osh_auto_key(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *v,
                        bool *known, const char *what);
/* Checks keys that depend on each other, and sets the members whose values follow from several
 * keys. */
osh_status osh_ada_resolve(osh_ctx *cx, osh_modifier *m);
osh_status osh_auto_resolve(osh_ctx *cx, osh_modifier *m);
/* True if the target of learning is the output of the original model. `block` true: for learning by
 * block; false: for learning by Linear. */
bool osh_ada_targets_original(const ada *a, bool block);
/* Returns osh_ada_rule.window, the number of steps in a window. With early_stop, learning compares
 * the mean loss of each window with that of the previous window. Returns 0 if learning does not
 * stop early. */
int64_t osh_ada_window(const ada *a);
/* True if the modifier does no learning steps, so that it rounds to nearest. */
bool osh_ada_is_nearest(const osh_modifier *m);
/* True if the ranges of groups are learned. False if several rows share a scale. Ranges of FP8 and
 * FP6 are not learned, because the grids have small steps near 0 and large steps near their ends,
 * so a range hardly changes the error. Ranges of MX are not learned, because an MX scale can only
 * change by a factor of two. */
bool osh_ada_learns_range(const osh_modifier *m, const osh_q_args *q);
/* True if m learns scales. */
bool osh_ada_learns_scales(const osh_modifier *m);
#endif
