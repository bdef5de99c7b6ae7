/* ada.h - the arguments of AdaRoundModifier, AdaQuantModifier and AutoRoundModifier: the interface
 * between ada_keys.c and ada.c. This header is only for src/modifiers. */
#ifndef OSH_ADA_MODIFIER_H
#define OSH_ADA_MODIFIER_H
#include "modifiers/modifier.h"
#include "solver/ada.h"

typedef struct ada { // arguments of the modifier
    double learning_rate, scale_learning_rate, reg_param, warm_start, drop_ratio;
    int64_t num_iterations, num_batches, log_period;
    bool early_stop, selective_update, update_bias;
    double bias_learning_rate;
    char *target, *mode; // own
    /* The key beta. osh_ada_key reads the keys beta and lr_adjust, because the table of fields
     * cannot describe lists. */
    double beta[2];
    /* The key lr_adjust: if the error of rounding to nearest exceeds adjust[0], the learning rate
     * is adjust[1]. adjust[1] 0: the key is not given. */
    double adjust[2];
    bool minmax;         // for AutoRound: true if the ranges of groups are also learned
    /* The module whose output error is minimized: "block", "linear", or "auto" (block if possible,
     * else linear). */
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
// reads the keys of AdaRoundModifier and AdaQuantModifier that the table cannot describe
osh_status osh_ada_key(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *v,
                       bool *known, const char *what);
/* Reads the keys of AutoRoundModifier that the table of fields cannot describe. Sets *known to
 * false for any other key. */
osh_status osh_auto_key(osh_ctx *cx, osh_modifier *m, const char *key, const osh_yaml *v,
                        bool *known, const char *what);
// checks and completes keys that depend on each other
osh_status osh_ada_resolve(osh_ctx *cx, osh_modifier *m);
osh_status osh_auto_resolve(osh_ctx *cx, osh_modifier *m);
// true if the target is the output of the original model
bool osh_ada_targets_original(const ada *a, bool block);
/* Returns the number of steps over which early_stop averages the loss (osh_ada_rule.window), or 0
 * if learning does not stop early. */
int64_t osh_ada_window(const ada *a);
// true if there are no steps; the modifier then rounds to nearest
bool osh_ada_is_nearest(const osh_modifier *m);
/* True if the ranges of groups are learned. This requires that each scale belongs to one row.
 * Ranges of FP8 and FP6 are not learned: these grids have small steps near 0 and large steps near
 * their ends, so the range hardly matters. Ranges of MX are not learned, because an MX scale can
 * only change by a factor of two. */
bool osh_ada_learns_range(const osh_modifier *m, const osh_q_args *q);
bool osh_ada_learns_scales(const osh_modifier *m);
#endif
