/* checkpoint.h - a Hugging Face directory: config.json, shards, tensor by name. Opening reads headers only. */
#ifndef OSH_CHECKPOINT_H
#define OSH_CHECKPOINT_H
#include "base/map.h"
#include "io/hf_config.h"
#include "io/safetensors.h"

typedef struct osh_ckpt_tensor {
    const osh_st_entry *e; // view: lives as long as the checkpoint
    int shard;             // < 0: virtual tensor -1 - shard
} osh_ckpt_tensor;

/* Fills to with a tensor that no shard holds: a weight that is dequantized as it is read. */
typedef osh_status (*osh_ckpt_make)(osh_ctx *cx, void *to, void *user, const osh_st_entry *e);
typedef struct osh_ckpt_virtual {
    osh_st_entry *e; // own, name own
    osh_ckpt_make make;
    void *user;
} osh_ckpt_virtual;

typedef struct osh_checkpoint {
    char *dir;               // own
    osh_hf_config *config;   // own
    osh_st **shards;         // own
    char **shard_names;      // own: file names, sorted
    int n_shards;
    osh_ckpt_tensor *tensors; // own: every tensor, by shard then file order
    int64_t n_tensors;
    osh_map *by_name;        // own: name -> index into tensors
    osh_ckpt_virtual *virtuals; // own
    int n_virtuals;
} osh_checkpoint;

/* model.safetensors, or else model.safetensors.index.json with its shards. A tensor in the index and not in its shard,
 * in a shard and not in the index, or twice, is an error. */
osh_status osh_checkpoint_open(osh_ctx *cx, osh_checkpoint **out, const char *dir);
void osh_checkpoint_close(osh_ctx *cx, osh_checkpoint *ck);
const osh_ckpt_tensor *osh_checkpoint_find(const osh_checkpoint *ck, const char *name); // NULL: absent
osh_status osh_checkpoint_read(osh_ctx *cx, void *to, const osh_checkpoint *ck, const osh_ckpt_tensor *t);
/* own tensor in its stored dtype; fails where it is absent or its shape differs (ndim < 0: any shape) */
osh_status osh_checkpoint_load(osh_ctx *cx, osh_tensor **out, const osh_checkpoint *ck, const char *name, int ndim,
                               const int64_t *shape);
/* Adds a tensor of that name, dtype and shape that make() fills whenever it is read; it takes the name over
 * from a stored one. ckpt_virtual.c */
osh_status osh_checkpoint_add_virtual(osh_ctx *cx, osh_checkpoint *ck, const char *name, osh_dtype dtype, int ndim,
                                      const int64_t *shape, osh_ckpt_make make, void *user);
void osh_checkpoint_free_virtuals(osh_ctx *cx, osh_checkpoint *ck); // called by close
/* Files of dir to carry along byte for byte: not weights (*.safetensors, *.bin, *.pt, *.pth, *.gguf, *.onnx, *.h5,
 * *.msgpack, *.ot, *.ckpt), their *.index.json, recipe.yaml, config.json, nor directories. sorted; own:
 * osh_strings_free. */
osh_status osh_checkpoint_side_files(osh_ctx *cx, char ***names, size_t *n, const osh_checkpoint *ck);
#endif
