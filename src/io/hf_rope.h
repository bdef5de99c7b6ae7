/* hf_rope.h - reads the parameters of the rotary embedding from config.json; part of hf_config. */
#ifndef OSH_HF_ROPE_H
#define OSH_HF_ROPE_H
#include "io/hf_config.h"

typedef struct osh_rope_defaults { // defaults of a family, if config.json has no such key
    int64_t max_position_embeddings, original_max_position_embeddings; // 0: none
    double theta, partial_rotary_factor; // 0: 10000; 0: 1
    const char *theta_key, *partial_key; // names of these keys in older files; NULL: the same
    double sliding_theta;    // theta of sliding layers that have their own rope; 0: they have none
    const char *sliding_key; // key of that theta; NULL: none
    double proportional;     // rotary part of full layers without rope in config.json; 0: not used
    bool longrope;           // "su" and "yarn" are names of longrope
    bool required;           // without rope in config.json the class has a type with parameters
    bool alpha;              // the type dynamic with alpha has a larger theta, whatever the length
} osh_rope_defaults;
/* Reads rope [2]: of full layers, and of sliding layers. *unknown: own; NULL: rope is complete,
 * else the reason why not ("longrope", "yarn: 'factor' is missing"). That is no failure: a recipe
 * without data needs no rope. */
osh_status osh_hf_rope_read(osh_ctx *cx, osh_rope *rope, char **unknown, const cJSON *config,
                            const osh_rope_defaults *family);
#endif
