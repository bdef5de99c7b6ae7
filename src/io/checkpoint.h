/* checkpoint.h - opens a Hugging Face directory (config.json and shards) and reads tensors by name.
 * Opening reads only headers. */
#ifndef OSH_CHECKPOINT_H
#define OSH_CHECKPOINT_H
#include "base/map.h"
#include "io/hf_config.h"
#include "io/safetensors.h"
#include "tensor/fold.h"
#include "tensor/rotation.h"

typedef struct osh_ckpt_tensor {
    const osh_st_entry *e; // view: lives as long as the checkpoint
    int shard;             // index of the shard; < 0: virtual tensor with index -1 - shard
} osh_ckpt_tensor;

/* Computes rows [first, first + n) of a tensor that is in no shard, for example of a weight that is
 * dequantized when it is read. A row is one vector of the last dimension: [8, 32, 64] has 256
 * rows. */
typedef osh_status (*osh_ckpt_make)(osh_ctx *cx, void *to, void *user, const osh_st_entry *e,
                                    int64_t first, int64_t n);
typedef struct osh_ckpt_virtual {
    osh_st_entry *e; // own, name own
    osh_ckpt_make make; // NULL: a second name of a stored tensor
    void *user;
    bool kept;      // true: the stored tensors from which it is computed stay in the list and are
                    // copied to the output
    int64_t stored; // index of the stored tensor of the same name; -1: none
    int first_shard, last_shard; // shards that contain the stored tensors from which it is
                                 // computed; last < first: none
} osh_ckpt_virtual;

typedef struct osh_checkpoint {
    char *dir;               // own
    osh_hf_config *config;   // own
    osh_st **shards;         // own
    char **shard_names;      // own: file names, sorted
    int n_shards;
    char **aside;            // own, each name own: safetensors files that are not read
    size_t n_aside;
    osh_ckpt_tensor *tensors; // own: all tensors, by shard, then in file order
    int64_t n_tensors;
    osh_map *by_name;        // own: name -> index into tensors
    osh_ckpt_virtual *virtuals; // own
    struct osh_ckpt_sums *sums; // own: checksums of tensors that were read; NULL: not recorded
    int n_virtuals;
    struct osh_ckpt_changes *changes; // own: changes of tensors; NULL: none
    osh_st_entry *parts;        // own, each name own: experts of tensors that contain several
    int64_t n_parts;
} osh_checkpoint;

/* Opens model.safetensors, or else model.safetensors.index.json with its shards. If both exist,
 * they must be one model (ckpt_files.h). A tensor that is only in the index, only in a shard, or in
 * two shards is an error. */
osh_status osh_checkpoint_open(osh_ctx *cx, osh_checkpoint **out, const char *dir);
void osh_checkpoint_close(osh_ctx *cx, osh_checkpoint *ck);
/* Finds a tensor by name. NULL: the name is absent. */
const osh_ckpt_tensor *osh_checkpoint_find(const osh_checkpoint *ck, const char *name);
osh_status osh_checkpoint_read(osh_ctx *cx, void *to, const osh_checkpoint *ck,
                               const osh_ckpt_tensor *t);
/* Loads a tensor in its stored dtype; the caller owns it. Fails if the tensor is absent or has
 * another shape (ndim < 0: any shape). */
osh_status osh_checkpoint_load(osh_ctx *cx, osh_tensor **out, const osh_checkpoint *ck,
                               const char *name, int ndim, const int64_t *shape);
/* Adds a tensor with the dtype and shape of `like`; make() computes its rows whenever it is read. A
 * stored tensor of the same name loses its name to it (ckpt_virtual.c). */
osh_status osh_checkpoint_add_virtual(osh_ctx *cx, osh_checkpoint *ck, const char *name,
                                      const osh_st_entry *like, osh_ckpt_make make, void *user);
/* Removes from the list the stored tensors that virtual tensors are made of. by [tensors]: the
 * virtual tensor that replaces this tensor; -1: the tensor stays; < -1: it is removed. Indices of
 * tensors change (ckpt_virtual.c). */
osh_status osh_checkpoint_hide(osh_ctx *cx, osh_checkpoint *ck, const int64_t *by);
/* Reads bytes [offset, offset + n_bytes) of a stored or virtual tensor, without changes and
 * checksums (see below). */
osh_status osh_checkpoint_read_part(osh_ctx *cx, void *to, const osh_checkpoint *ck,
                                    const osh_ckpt_tensor *t, int64_t offset, size_t n_bytes);
/* Reads a part of a tensor. The offset of `e` is the position of the part in the bytes of the
 * tensor. */
osh_status osh_checkpoint_read_as(osh_ctx *cx, void *to, const osh_checkpoint *ck,
                                  const osh_ckpt_tensor *t, const osh_st_entry *part);
/* Returns true for a virtual tensor whose member `kept` is true. */
bool osh_checkpoint_is_kept(const osh_checkpoint *ck, int64_t tensor);
/* Finds the tensor that is copied to the output by name: for a virtual tensor that is kept, the
 * stored tensor of the same name. NULL: the name is absent. */
const osh_ckpt_tensor *osh_checkpoint_find_copied(const osh_checkpoint *ck, const char *name);
int64_t osh_ckpt_columns(const osh_st_entry *e); // elements of a row: the last dimension
int64_t osh_checkpoint_stored_bytes(const osh_checkpoint *ck); // bytes of all tensors in the shards
/* Prepares the checkpoint for the functions below, which change tensors. */
osh_status osh_checkpoint_expect_changes(osh_ctx *cx, osh_checkpoint *ck);
/* Folds factors into a tensor: from now on every reader gets the tensor with these factors, applied
 * after those that were added before. `r` must outlive the checkpoint. No other thread may read the
 * tensor during the call (ckpt_changes.c). */
osh_status osh_checkpoint_change(osh_ctx *cx, osh_checkpoint *ck, int64_t tensor,
                                 const osh_fold_rule *r);
bool osh_checkpoint_is_changed(const osh_checkpoint *ck, int64_t tensor);
/* A step that changes a tensor and is known before any tensor is read. The result of each step is
 * rounded to the tensor's dtype. A row of a 1-D tensor has one element. */
typedef enum {
    OSH_REWRITE_FILL,   // sets all elements to `value`
    OSH_REWRITE_CENTRE, // subtracts the mean from each row
    OSH_REWRITE_NORM,   // multiplies column c by (element c of tensor `norm` + `value`)
    OSH_REWRITE_ROWS,   // osh_rotate_rows
    OSH_REWRITE_COLUMNS // osh_rotate_columns
} osh_rewrite_kind;
typedef struct osh_rewrite {
    osh_rewrite_kind kind;
    bool transposed;
    const osh_rotation *r; // view: lives as long as the checkpoint
    int64_t norm;          // index of a tensor
    double value;
} osh_rewrite;
/* Adds a step to a tensor. The steps are applied before all factors, in the order in which they are
 * added. */
osh_status osh_checkpoint_rewrite(osh_ctx *cx, osh_checkpoint *ck, int64_t tensor,
                                  const osh_rewrite *w);
/* Returns the number of elements that are changed together, at least 1. */
int64_t osh_checkpoint_unit(const osh_checkpoint *ck, int64_t tensor);
/* Returns the most gross bytes that one reader needs to change a tensor. */
size_t osh_checkpoint_rewrite_bytes(const osh_checkpoint *ck);
/* Changes elements [first, first + n) of a tensor that was read in parts. `data` contains the
 * stored elements; first and n are multiples of the unit. Does nothing for a tensor without
 * changes. */
osh_status osh_checkpoint_apply(osh_ctx *cx, const osh_checkpoint *ck, int64_t tensor, void *data,
                                int64_t first, int64_t n);
/* Adds a second name for the bytes of the stored tensor `of`. Changes of the two names are
 * separate. */
osh_status osh_checkpoint_add_alias(osh_ctx *cx, osh_checkpoint *ck, const char *name, int64_t of);
void osh_checkpoint_free_changes(osh_ctx *cx, osh_checkpoint *ck); // osh_checkpoint_close calls it
/* Begins to record the XXH3 checksum of each tensor that is read. If a tensor is read in parts, the
 * reader reports its checksum with osh_checkpoint_saw. Two reads of a tensor must give the same
 * checksum (ckpt_sums.c). */
osh_status osh_checkpoint_watch(osh_ctx *cx, osh_checkpoint *ck);
void osh_checkpoint_unwatch(osh_ctx *cx, osh_checkpoint *ck);
/* Records the checksum of a tensor. Any thread may call it. Fails if another checksum of the tensor
 * was recorded. */
osh_status osh_checkpoint_saw(osh_ctx *cx, const osh_checkpoint *ck, int64_t tensor, uint64_t sum);
/* Reads a tensor only for its checksum, if checksums are recorded and it has none yet. */
osh_status osh_checkpoint_see(osh_ctx *cx, const osh_checkpoint *ck, int64_t tensor);
bool osh_checkpoint_seen(const osh_checkpoint *ck, int64_t tensor, uint64_t *sum); // false: no
                                                                                   // checksum yet
/* Returns the at-th tensor and its checksum, in the order of first reads. Returns
 * false if fewer were read so far. */
bool osh_checkpoint_next_seen(const osh_checkpoint *ck, int64_t at, int64_t *tensor, uint64_t *sum);
/* Reads a shard again. Compares its header, and each tensor with its recorded checksum. *diff
 * (own): message about the first difference, or NULL. *stamp: stamp of the file when it was read
 * again. */
osh_status osh_checkpoint_reread(osh_ctx *cx, char **diff, osh_stamp *stamp,
                                 const osh_checkpoint *ck, int shard);
/* Computes XXH3 of a whole file. */
osh_status osh_sum_of_file(osh_ctx *cx, uint64_t *sum, int64_t *n_bytes, const char *path);
void osh_checkpoint_free_virtuals(osh_ctx *cx, osh_checkpoint *ck); // osh_checkpoint_close calls it
/* Splits tensors that hold several experts, for families whose loaders find experts by name;
 * osh_checkpoint_open calls it (ckpt_experts.c). */
osh_status osh_checkpoint_part_experts(osh_ctx *cx, osh_checkpoint *ck);
void osh_checkpoint_free_parts(osh_ctx *cx, osh_checkpoint *ck); // osh_checkpoint_close calls it
/* Lists the files of the directory to copy unchanged, sorted, freed with osh_strings_free. Not
 * listed: directories, weights (*.safetensors, *.bin, *.pt, *.pth, *.gguf, *.onnx, *.h5, *.msgpack,
 * *.ot, *.ckpt), *.index.json, recipe.yaml, config.json, oneshot.log or oneshot-*. */
#define OSH_README_NAME "README.md" // an output gets one of its own
osh_status osh_checkpoint_side_files(osh_ctx *cx, char ***names, size_t *n,
                                     const osh_checkpoint *ck);
#endif
