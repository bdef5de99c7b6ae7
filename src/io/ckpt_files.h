/* ckpt_files.h - decides which files of a model's directory contain its weights if there are
 * several candidates. */
#ifndef OSH_CKPT_FILES_H
#define OSH_CKPT_FILES_H
#include "io/checkpoint.h"

/* Chooses between model.safetensors and an index if both exist; ck has the names of the shards from
 * the index. If both exist, transformers would read model.safetensors, but vLLM would read the
 * shards. So the function sets *single to true only in two cases: all shards of the index are the
 * file model.safetensors (or links to it), or no shard of the index exists. Fails in all other
 * cases. */
osh_status osh_ckpt_files_choose(osh_ctx *cx, bool *single, const osh_checkpoint *ck);
/* Lists in ck->aside the safetensors files that are not shards, such as adapters and Mistral's
 * consolidated.safetensors. The caller must have set ck->shards before. Fails if vLLM could read
 * such a file as a shard, because its name is numbered like the names of the shards. Beside a
 * model.safetensors without an index, a name such as model-00001-of-00002.safetensors is also
 * refused. */
osh_status osh_ckpt_files_leave(osh_ctx *cx, osh_checkpoint *ck);
#endif
