/* hf_rope.h - the rotary embedding's parameters from a config.json tree; part of hf_config. */
#ifndef OSH_HF_ROPE_H
#define OSH_HF_ROPE_H
#include "io/hf_config.h"

/* unknown: own; NULL where rope is complete, else what stands in the way ("longrope", "yarn: no
 * 'factor'"). That alone is no failure: a recipe without data needs no rope. */
osh_status osh_hf_rope_read(osh_ctx *cx, osh_rope *rope, char **unknown, const cJSON *config,
                            int64_t max_position_embeddings_dflt);
#endif
