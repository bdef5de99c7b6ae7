/* ckpt_files.h - decides which files of a model's directory contain its weights if there are
 * several candidates. */
#ifndef OSH_CKPT_FILES_H
#define OSH_CKPT_FILES_H
#include "io/checkpoint.h"

/* Chooses between model.safetensors and an index if both exist; ck has the shards that the index
 * names. transformers reads model.safetensors, and vLLM reads the shards. *single is true if all
 * shards of the index are the file model.safetensors (or links to it), or if none of them exists.
 * Fails in all other cases. */
osh_status osh_ckpt_files_choose(osh_ctx *cx, bool *single, const osh_checkpoint *ck);
/* Lists in ck->aside the safetensors files that are not shards; the caller has set ck->shards.
 * Fails if such a file may be a shard that vLLM would read: its name is numbered like those of the
 * shards, or is numbered while model.safetensors has no index. Files such as
 * consolidated.safetensors of Mistral and adapters are listed. */
osh_status osh_ckpt_files_leave(osh_ctx *cx, osh_checkpoint *ck);
#endif
