/* hf_rope.h - reads the parameters of the rotary embedding from config.json; part of hf_config. */
#ifndef OSH_HF_ROPE_H
#define OSH_HF_ROPE_H
#include "io/hf_config.h"

typedef struct osh_rope_defaults { // values of a family for keys that config.json does not have
    int64_t max_position_embeddings, original_max_position_embeddings; // 0: none
    double theta, partial_rotary_factor; // 0: default, 10000 and 1
    const char *theta_key, *partial_key; // names of these keys in older files; NULL: no other names
    double sliding_theta;    // theta of sliding layers with their own rope; 0: they use the same
                             // rope
    const char *sliding_key; // key of that theta; NULL: none
    double proportional;     // rotary part of full layers if config.json has no rope; 0: not used
    bool longrope;           // "su" and "yarn" mean longrope
    bool required;           // without rope in config.json the class has a type with parameters
    bool alpha;              // the type dynamic with alpha has a larger theta, for any length
} osh_rope_defaults;
/* Reads rope [2]: the rope of full layers, then that of sliding layers. *unknown (own) is NULL if
 * they are complete, or the reason why not: "longrope", "yarn: 'factor' is missing". This is not a
 * failure, because a recipe without data needs no rope. */
osh_status osh_hf_rope_read(osh_ctx *cx, osh_rope *rope, char **unknown, const cJSON *config,
                            const osh_rope_defaults *family);
#endif
