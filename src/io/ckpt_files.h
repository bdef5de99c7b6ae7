/* ckpt_files.h - decides which files of a model's directory hold its weights, if several could. */
#ifndef OSH_CKPT_FILES_H
#define OSH_CKPT_FILES_H
#include "io/checkpoint.h"

/* Chooses between model.safetensors and an index, if both are there; ck has the shards that the
 * index names. transformers reads the first, vLLM the shards. *single: the index names only
 * model.safetensors, or another name of that file, or none of its shards exists. Fails in all other
 * cases. */
osh_status osh_ckpt_files_choose(osh_ctx *cx, bool *single, const osh_checkpoint *ck);
/* Sets ck->aside, safetensors files that are no shards; ck has its shards. Fails if such a file may
 * be a shard: it has the same numbering, or it is numbered and there is model.safetensors without
 * an index; vLLM would read all of these. Other formats are left aside, such as
 * consolidated.safetensors of Mistral, or adapters. */
osh_status osh_ckpt_files_leave(osh_ctx *cx, osh_checkpoint *ck);
#endif
