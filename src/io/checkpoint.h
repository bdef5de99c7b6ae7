/* checkpoint.h - a Hugging Face directory: config.json, shards, tensor by name. Opening reads headers only. */
#ifndef OSH_CHECKPOINT_H
#define OSH_CHECKPOINT_H
#include "base/map.h"
#include "io/hf_config.h"
#include "io/safetensors.h"
#include "tensor/fold.h"
#include "tensor/rotation.h"

typedef struct osh_ckpt_tensor {
    const osh_st_entry *e; // view: lives as long as the checkpoint
    int shard;             // < 0: virtual tensor -1 - shard
} osh_ckpt_tensor;

/* Fills to with rows [first, first + n) of a tensor that no shard holds, a weight that is dequantized as it is read. A
 * row is what the last dimension has: [8, 32, 64] has 256 of them. */
typedef osh_status (*osh_ckpt_make)(osh_ctx *cx, void *to, void *user, const osh_st_entry *e, int64_t first,
                                    int64_t n);
typedef struct osh_ckpt_virtual {
    osh_st_entry *e; // own, name own
    osh_ckpt_make make; // NULL: an alias
    void *user;
    bool kept;      // what it is made of is in the list, too, and is what is to be copied
    int64_t stored; // tensor of its name in the list; -1: none
    int first_shard, last_shard; // what it is made of is there, and in none outside; last < first: in none
} osh_ckpt_virtual;

typedef struct osh_checkpoint {
    char *dir;               // own
    osh_hf_config *config;   // own
    osh_st **shards;         // own
    char **shard_names;      // own: file names, sorted
    int n_shards;
    char **aside;            // own, and each: names of other safetensors files, which are not read
    size_t n_aside;
    osh_ckpt_tensor *tensors; // own: every tensor, by shard then file order
    int64_t n_tensors;
    osh_map *by_name;        // own: name -> index into tensors
    osh_ckpt_virtual *virtuals; // own
    struct osh_ckpt_sums *sums; // own: of the tensors that were read; NULL: nobody asks
    int n_virtuals;
    struct osh_ckpt_changes *changes; // own: of tensors; NULL: none
    osh_st_entry *parts;        // own, names own: of experts that lie in one tensor
    int64_t n_parts;
} osh_checkpoint;

/* model.safetensors, or else model.safetensors.index.json with its shards; both only if they are one (ckpt_files.h). A
 * tensor in the index and not in its shard, in a shard and not in the index, or twice, is an error. */
osh_status osh_checkpoint_open(osh_ctx *cx, osh_checkpoint **out, const char *dir);
void osh_checkpoint_close(osh_ctx *cx, osh_checkpoint *ck);
const osh_ckpt_tensor *osh_checkpoint_find(const osh_checkpoint *ck, const char *name); // NULL: absent
osh_status osh_checkpoint_read(osh_ctx *cx, void *to, const osh_checkpoint *ck, const osh_ckpt_tensor *t);
/* own tensor in its stored dtype; fails where it is absent or its shape differs (ndim < 0: any shape) */
osh_status osh_checkpoint_load(osh_ctx *cx, osh_tensor **out, const osh_checkpoint *ck, const char *name, int ndim,
                               const int64_t *shape);
/* Adds a tensor of that name, with like's dtype and shape, that make() fills whenever it is read; it takes the name
 * over from a stored one. ckpt_virtual.c */
osh_status osh_checkpoint_add_virtual(osh_ctx *cx, osh_checkpoint *ck, const char *name, const osh_st_entry *like,
                                      osh_ckpt_make make, void *user);
/* What a virtual tensor is made of: [tensors] the virtual one that takes its place in the list, -1: it stays, < -1: it
 * goes. Indices of tensors change. ckpt_virtual.c */
osh_status osh_checkpoint_hide(osh_ctx *cx, osh_checkpoint *ck, const int64_t *by);
/* Bytes [offset, offset + n_bytes) of a tensor, stored or virtual, without changes and not seen (see below). */
osh_status osh_checkpoint_read_part(osh_ctx *cx, void *to, const osh_checkpoint *ck, const osh_ckpt_tensor *t,
                                    int64_t offset, size_t n_bytes);
/* All of a part of it, whose entry says where it lies in the tensor's bytes. */
osh_status osh_checkpoint_read_as(osh_ctx *cx, void *to, const osh_checkpoint *ck, const osh_ckpt_tensor *t,
                                  const osh_st_entry *part);
bool osh_checkpoint_is_kept(const osh_checkpoint *ck, int64_t tensor); // a virtual tensor that is kept
const osh_ckpt_tensor *osh_checkpoint_find_copied(const osh_checkpoint *ck, const char *name); // find, but no kept one
int64_t osh_ckpt_columns(const osh_st_entry *e); // of the last dimension: elements of a row
int64_t osh_checkpoint_stored_bytes(const osh_checkpoint *ck); // of all tensors in the shards
/* Tensors may be changed, as below. */
osh_status osh_checkpoint_expect_changes(osh_ctx *cx, osh_checkpoint *ck);
/* Whoever reads this tensor from here on gets it with these factors folded in (a view: while the checkpoint lives),
 * after those that were there before. Not while another thread reads it. ckpt_changes.c */
osh_status osh_checkpoint_change(osh_ctx *cx, osh_checkpoint *ck, int64_t tensor, const osh_fold_rule *r);
bool osh_checkpoint_is_changed(const osh_checkpoint *ck, int64_t tensor);
/* A step of what is known of a tensor before anything is read, each rounded to its dtype. A row of a tensor of one
 * dimension has one element. */
typedef enum {
    OSH_REWRITE_FILL,   // all elements become value
    OSH_REWRITE_CENTRE, // each row loses its mean
    OSH_REWRITE_NORM,   // column c is multiplied by element c of the tensor norm, plus value
    OSH_REWRITE_ROWS,   // osh_rotate_rows
    OSH_REWRITE_COLUMNS // osh_rotate_columns
} osh_rewrite_kind;
typedef struct osh_rewrite {
    osh_rewrite_kind kind;
    bool transposed;
    const osh_rotation *r; // view: while the checkpoint lives
    int64_t norm;          // tensor
    double value;
} osh_rewrite;
/* The same of such a step; those of a tensor come before all factors, in the order in which they were added. */
osh_status osh_checkpoint_rewrite(osh_ctx *cx, osh_checkpoint *ck, int64_t tensor, const osh_rewrite *w);
int64_t osh_checkpoint_unit(const osh_checkpoint *ck, int64_t tensor); // elements that are changed together, 1 or more
size_t osh_checkpoint_rewrite_bytes(const osh_checkpoint *ck); // gross: that one reader takes meanwhile, at most
/* Who reads a tensor in parts has them changed: elements [first, first + n), as they are stored, at data; first and n
 * are multiples of its unit. Nothing where it is not changed. */
osh_status osh_checkpoint_apply(osh_ctx *cx, const osh_checkpoint *ck, int64_t tensor, void *data, int64_t first,
                                int64_t n);
/* A name more for the bytes of a stored tensor, which is then changed for itself. */
osh_status osh_checkpoint_add_alias(osh_ctx *cx, osh_checkpoint *ck, const char *name, int64_t of);
void osh_checkpoint_free_changes(osh_ctx *cx, osh_checkpoint *ck); // called by close
/* What was read of each tensor, from here on: XXH3 of its bytes. Of tensors that are read in parts the reader says it;
 * two reads of one tensor must give the same. ckpt_sums.c */
osh_status osh_checkpoint_watch(osh_ctx *cx, osh_checkpoint *ck); // forgets what was seen before
void osh_checkpoint_unwatch(osh_ctx *cx, osh_checkpoint *ck);
/* From any thread. Fails where this tensor was seen with another sum. */
osh_status osh_checkpoint_saw(osh_ctx *cx, const osh_checkpoint *ck, int64_t tensor, uint64_t sum);
/* Reads a tensor for its checksum alone, where that is watched and was not seen yet. */
osh_status osh_checkpoint_see(osh_ctx *cx, const osh_checkpoint *ck, int64_t tensor);
bool osh_checkpoint_seen(const osh_checkpoint *ck, int64_t tensor, uint64_t *sum); // false: not yet
/* The at-th of those that were read, in the order in which that was first; false: there are no more yet. */
bool osh_checkpoint_next_seen(const osh_checkpoint *ck, int64_t at, int64_t *tensor, uint64_t *sum);
/* Whether the file of that shard has the header that was read, and in each tensor that was seen the same bytes. *diff:
 * what is another, own; NULL: nothing. *stamp: the file's, when all of that was read again. */
osh_status osh_checkpoint_reread(osh_ctx *cx, char **diff, osh_stamp *stamp, const osh_checkpoint *ck, int shard);
osh_status osh_sum_of_file(osh_ctx *cx, uint64_t *sum, int64_t *n_bytes, const char *path); // XXH3 of all of it
void osh_checkpoint_free_virtuals(osh_ctx *cx, osh_checkpoint *ck); // called by close
/* Called by open: of families whose loaders know experts by name, each is a tensor of its own. ckpt_experts.c */
osh_status osh_checkpoint_part_experts(osh_ctx *cx, osh_checkpoint *ck);
void osh_checkpoint_free_parts(osh_ctx *cx, osh_checkpoint *ck); // called by close
/* Files of dir to carry along byte for byte: not weights (*.safetensors, *.bin, *.pt, *.pth, *.gguf, *.onnx, *.h5,
 * *.msgpack, *.ot, *.ckpt), their *.index.json, recipe.yaml, config.json, nor directories. sorted; own:
 * osh_strings_free. */
osh_status osh_checkpoint_side_files(osh_ctx *cx, char ***names, size_t *n, const osh_checkpoint *ck);
#endif
