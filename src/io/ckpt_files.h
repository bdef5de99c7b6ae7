/* ckpt_files.h - which files of a model's directory hold its weights, where there are several that could. */
#ifndef OSH_CKPT_FILES_H
#define OSH_CKPT_FILES_H
#include "io/checkpoint.h"

/* model.safetensors and an index are both there; ck has the shards that the index names. transformers reads the first,
 * vLLM the shards. Fails unless they are one: *single: the index names model.safetensors alone, also by another name of
 * that file, or no shard of the index is there. */
osh_status osh_ckpt_files_choose(osh_ctx *cx, bool *single, const osh_checkpoint *ck);
/* ck has its shards. Fails if a safetensors file that is none of them may belong to them: one of the same numbering, or
 * numbered shards beside model.safetensors that no index mentions, all of which vLLM would read. The others are left
 * aside (ck->aside): another format's, such as Mistral's consolidated.safetensors, adapters. */
osh_status osh_ckpt_files_leave(osh_ctx *cx, osh_checkpoint *ck);
#endif
