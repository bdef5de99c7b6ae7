/* hf_rope.h - the rotary embedding's parameters from a config.json tree; part of hf_config. */
#ifndef OSH_HF_ROPE_H
#define OSH_HF_ROPE_H
#include "io/hf_config.h"

/* unknown: own; NULL where rope is complete, else what stands in the way ("longrope", "yarn: no
 * 'factor'"). That alone is no failure: a recipe without data needs no rope. */
typedef struct osh_rope_defaults { // of a family, where config.json has no such key
    int64_t max_position_embeddings, original_max_position_embeddings; // 0: none
    double theta, partial_rotary_factor; // 0: 10000; 0: 1
    const char *theta_key, *partial_key; // what older files call these; NULL: the same
    double sliding_theta;    // not 0: layers with a sliding window have a rope of their own, with this theta
    const char *sliding_key; // key of that theta; NULL: none
    double proportional;     // not 0: of full layers whose rope config.json does not have, this part of them
    bool longrope;           // "su" and "yarn" are names of longrope
} osh_rope_defaults;
/* rope [2]: of full layers, of sliding ones. */
osh_status osh_hf_rope_read(osh_ctx *cx, osh_rope *rope, char **unknown, const cJSON *config,
                            const osh_rope_defaults *family);
#endif
