/* ckpt_files.h - decides which files of a model's directory contain its weights if there are
 * several candidates. */
#ifndef OSH_CKPT_FILES_H
#define OSH_CKPT_FILES_H
#include "io/checkpoint.h"

/* Chooses between model.safetensors and an index if both exist; ck has the shards that the index
 * names. transformers reads model.safetensors, vLLM the shards. *single is true if the index names
 * only model.safetensors or another name of that file, or if none of its shards exists. Fails in
 * all other cases. */
osh_status osh_ckpt_files_choose(osh_ctx *cx, bool *single, const osh_checkpoint *ck);
/* Lists in ck->aside the safetensors files that are not shards; ck already has its shards. Fails if
 * such a file may be a shard, because vLLM would read it: it has the same numbering as the shards,
 * or it is numbered and model.safetensors has no index. Files of other formats, such as
 * consolidated.safetensors of Mistral or adapters, are listed. */
osh_status osh_ckpt_files_leave(osh_ctx *cx, osh_checkpoint *ck);
#endif
