/* hf_rope.h - reads the parameters of the rotary embedding from config.json, for hf_config.c. */
#ifndef OSH_HF_ROPE_H
#define OSH_HF_ROPE_H
#include "io/hf_config.h"

typedef struct osh_rope_defaults { // a family's values for keys that config.json does not have
    /* Each member is the default of the key with its name; 0: the family has no default. */
    int64_t max_position_embeddings, original_max_position_embeddings;
    /* Defaults of rope_theta and partial_rotary_factor. 0: the family has the default of most
     * families, which is 10000 for rope_theta and 1 for partial_rotary_factor. */
    double theta, partial_rotary_factor;
    /* Theta of layers with sliding attention, if they have a rope of their own. 0: all layers have
     * the same rope. */
    double sliding_theta;
    /* Object that maps usual names of keys to the names in the family's config.json; NULL: no key
     * has another name. */
    const cJSON *keys; // view
    /* Value of partial_rotary_factor for layers with full attention, if config.json has no rope
     * parameters. The rope type of these layers is then "proportional". 0: the family does not use
     * this type. */
    double proportional;
    double attention_factor; // default attention_factor of "yarn"; 0: the default of most families
    bool longrope;           // true if the types "su" and "yarn" mean longrope
    /* True if config.json must have the rope parameters: the family's class always uses a rope type
     * that has parameters. */
    bool required;
    /* True if the default partial_rotary_factor has two conditions. The layer must have full
     * attention, and config.json must have neither rope_parameters nor rope_scaling. Otherwise the
     * default is 1. */
    bool whole;
    /* True if the key alpha of a rope of type "dynamic" means a larger theta (osh_rope.alpha). This
     * theta is the same for samples of all lengths. */
    bool alpha;
} osh_rope_defaults;
/* Reads the ropes of layers with full attention (rope[0]) and of layers with sliding attention
 * (rope[1]). Sets *unknown to NULL if both are complete. Otherwise sets *unknown to the reason,
 * such as "longrope" or "yarn: 'factor' is missing"; the caller owns this text. An incomplete rope
 * is no failure, because a recipe that needs no calibration data needs no rope. */
osh_status osh_hf_rope_read(osh_ctx *cx, osh_rope *rope, char **unknown, const cJSON *config,
                            const osh_rope_defaults *family);
#endif
