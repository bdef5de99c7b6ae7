/* hf_rope.h - reads the parameters of the rotary embedding from config.json, for hf_config.c. */
#ifndef OSH_HF_ROPE_H
#define OSH_HF_ROPE_H
#include "io/hf_config.h"

typedef struct osh_rope_defaults { // a family's values for keys that config.json does not have
    int64_t max_position_embeddings, original_max_position_embeddings; // 0: no default
    double theta, partial_rotary_factor; // 0: the general defaults 10000 and 1
    const char *theta_key, *partial_key; // names of rope_theta and partial_rotary_factor in older
                                         // files; NULL: no other names
    double sliding_theta;    // theta of sliding layers, if they have their own rope; 0: all layers
                             // have the same rope
    const char *sliding_key; // key of sliding_theta in config.json; NULL: none
    double proportional;     // partial_rotary_factor of the type "proportional" of full layers if
                             // config.json has no rope; 0: not used
    bool longrope;           // the types "su" and "yarn" mean longrope
    bool required;           // the family's class always uses a rope type with parameters, so a
                             // config.json without rope is incomplete
    bool alpha;              // the type "dynamic" with the key alpha means a larger theta for
                             // samples of any length
} osh_rope_defaults;
/* Reads rope [2]: the rope of layers with full attention, and the rope of layers with sliding
 * attention. *unknown (own) is NULL if both are complete, or the reason why they are not, such as
 * "longrope" or "yarn: 'factor' is missing". An incomplete rope is no failure, because a recipe
 * without data needs no rope. */
osh_status osh_hf_rope_read(osh_ctx *cx, osh_rope *rope, char **unknown, const cJSON *config,
                            const osh_rope_defaults *family);
#endif
