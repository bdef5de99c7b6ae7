/* rope_freq.h - inverse frequencies of the rotary embedding from config.json's rope parameters. */
#ifndef OSH_ROPE_FREQ_H
#define OSH_ROPE_FREQ_H
#include "io/hf_config.h"
#include "ops/op.h"

/* Fills attr for heads of head_dim. max_positions: the model's; path: for messages. */
osh_status osh_rope_attr_fill(osh_ctx *cx, osh_rope_attr *attr, const osh_rope *rope,
                              int64_t head_dim, int64_t max_positions, const char *path);
/* By whose square attention's scores grow in models with latent attention, as transformers' yarn_apply_mscale. */
double osh_rope_mscale(const osh_rope *rope);
#endif
