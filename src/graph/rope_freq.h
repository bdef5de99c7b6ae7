/* rope_freq.h - computes inverse frequencies of the rotary embedding from the rope parameters of
 * config.json. */
#ifndef OSH_ROPE_FREQ_H
#define OSH_ROPE_FREQ_H
#include "io/hf_config.h"
#include "ops/op.h"

/* Sets *attr for heads of head_dim elements. max_positions: number of tokens of the longest sample
 * of the model. path: path of config.json for messages. */
osh_status osh_rope_attr_fill(osh_ctx *cx, osh_rope_attr *attr, const osh_rope *rope,
                              int64_t head_dim, int64_t max_positions, const char *path);
/* Returns the factor mscale of yarn. Models with latent attention multiply attention scores by its
 * square, like yarn_apply_mscale of transformers. */
double osh_rope_mscale(const osh_rope *rope);
#endif
