/* transform.h - declares transform_config of compressed-tensors. A transform_config lists matrices
 * by which weights were multiplied before they were stored, and matrices by which activations are
 * multiplied while the model runs. */
#ifndef OSH_TRANSFORM_H
#define OSH_TRANSFORM_H
#include <cjson/cJSON.h>

#include "base/field.h"

typedef enum {
    OSH_AT_INPUT, OSH_AT_OUTPUT, OSH_AT_WEIGHT_INPUT, OSH_AT_WEIGHT_OUTPUT,
    /* Queries and keys of attention after RoPE. Their names in transform_config are q_attn and
     * k_cache. */
    OSH_AT_QUERIES, OSH_AT_KEYS,
    OSH_N_PLACES
} osh_q_place;
static inline bool osh_q_place_attends(osh_q_place at)
{
    return at == OSH_AT_QUERIES || at == OSH_AT_KEYS;
}
static inline bool osh_q_place_acts(osh_q_place at)
{
    return at == OSH_AT_INPUT || at == OSH_AT_OUTPUT || osh_q_place_attends(at);
}
typedef struct osh_q_apply {
    osh_q_place at;
    bool inverse;
    osh_strs targets, ignore; // own
} osh_q_apply;
typedef struct osh_q_transform { // a group of transform_config: one matrix and where it is applied
    char *name, *type;  // own: name of the group, such as "R4", and type, such as "hadamard"
    /* Number of channels of each diagonal block of the matrix (head_dim). 0: the matrix is one
     * block for all channels. */
    int64_t block;
    bool f32;           // dtype of stored matrices; true: F32; false: F64
    osh_q_apply *apply; // own
    size_t n;
} osh_q_transform;
typedef struct osh_q_transforms {
    osh_q_transform *of; // own
    size_t n;
} osh_q_transforms;

/* Returns the name of a place in transform_config, such as "weight_input". */
const char *osh_q_place_name(osh_q_place at);
/* True if one of the transforms multiplies activations while the model runs. */
bool osh_q_transforms_act(const osh_q_transforms *t);
/* True if `tensor` is a stored matrix of a transform that multiplies activations while the model
 * runs. The name of such a tensor is, for example, "...R4_input.weight". */
bool osh_q_is_matrix(const osh_q_transforms *t, const char *tensor);
/* osh_q_transforms_add adds a group to t. osh_q_apply_add adds a location to a group: the matrix of
 * the group is applied at the place `at` of the modules `targets`. Both copy the strings. */
osh_status osh_q_transforms_add(osh_ctx *cx, osh_q_transforms *t, const char *name,
                                const char *type, int64_t block, bool f32);
osh_status osh_q_apply_add(osh_ctx *cx, osh_q_transform *t, osh_q_place at, bool inverse,
                           const osh_strs *targets, const osh_strs *ignore);
/* Reads the transform_config of a checkpoint into t, which must be empty. Skips groups that were
 * only applied to stored weights. Fails if a group multiplies activations in a way that this
 * program does not support. */
osh_status osh_q_transforms_parse(osh_ctx *cx, osh_q_transforms *t, const cJSON *transform_config,
                                  const char *what);
/* Returns the JSON object transform_config, which the caller owns. Returns NULL if memory is
 * exhausted. */
cJSON *osh_q_transforms_object(const osh_q_transforms *t);
/* Prints the quantization_config of a model with transforms but without quantized weights. The
 * caller owns *out. */
osh_status osh_q_transforms_print(osh_ctx *cx, char **out, const osh_q_transforms *t);
/* Frees all members of t. */
void osh_q_transforms_deinit(osh_ctx *cx, osh_q_transforms *t);
#endif
