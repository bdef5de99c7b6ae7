/* hf_rope.h - reads the parameters of the rotary embedding from config.json, for hf_config.c. */
#ifndef OSH_HF_ROPE_H
#define OSH_HF_ROPE_H
#include "io/hf_config.h"

typedef struct osh_rope_defaults { // a family's values for keys that config.json does not have
    int64_t max_position_embeddings, original_max_position_embeddings; // values of these keys; 0:
                                                                       // the family has none
    double theta, partial_rotary_factor; // values of these keys; 0: as in most families, 10000 and
                                         // 1
    double sliding_theta;    // theta of layers with sliding attention, if they have their own rope;
                             // 0: all layers have the same rope
    const cJSON *keys;       // view: object of other names that keys have in the family's
                             // config.json; NULL: no other names
    double proportional;     // if config.json has no rope, layers with full attention have the type
                             // "proportional" with this partial_rotary_factor; 0: they do not
    bool longrope;           // true if the types "su" and "yarn" mean longrope
    bool required;           // true if the family's class always uses a rope type that has
                             // parameters, so a config.json without them is incomplete
    bool whole;              // true if partial_rotary_factor is only for layers with full attention
                             // of a config.json without rope_parameters; else it is 1
    bool alpha;              // true if the type "dynamic" with the key alpha means a larger theta
                             // (osh_rope.alpha) for samples of any length
} osh_rope_defaults;
/* Reads the ropes of layers with full attention (rope[0]) and of layers with sliding attention
 * (rope[1]). Sets *unknown to NULL if both are complete. If not, sets it to the reason, which the
 * caller owns, such as "longrope" or "yarn: 'factor' is missing". The function does not fail if a
 * rope is incomplete, because a recipe that needs no calibration data needs no rope. */
osh_status osh_hf_rope_read(osh_ctx *cx, osh_rope *rope, char **unknown, const cJSON *config,
                            const osh_rope_defaults *family);
#endif
