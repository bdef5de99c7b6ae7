/* checkpoint.h - opens a Hugging Face directory and reads tensors by name. The directory has
 * config.json, and files with tensors (shards). Opening a checkpoint reads only the headers of
 * shards. */
#ifndef OSH_CHECKPOINT_H
#define OSH_CHECKPOINT_H
#include "base/map.h"
#include "io/hf_config.h"
#include "io/container.h"
#include "tensor/fold.h"
#include "tensor/rotation.h"

typedef struct osh_ckpt_tensor {
    const osh_entry *e;    // view: lives as long as the checkpoint
    int shard;             // index of the shard; < 0: the tensor is virtuals[-1 - shard]
} osh_ckpt_tensor;

/* Type of a function that computes rows [first, first + n) of a virtual tensor, for example of a
 * weight that is dequantized when it is read. A row is one vector of the last dimension: a tensor
 * [8, 32, 64] has 256 rows. */
typedef osh_status (*osh_ckpt_make)(osh_ctx *cx, void *to, void *user, const osh_entry *e,
                                    int64_t first, int64_t n);
typedef struct osh_ckpt_virtual {
    osh_entry *e;       // own, name own
    osh_ckpt_make make; // computes the rows; NULL: the tensor is a second name of a stored tensor
    void *user;
    bool merged;    // true: a LoRA adapter changes this tensor
    bool dense;     // true: computed from one stored tensor that is not quantized
    bool kept;      // true: computed from stored tensors that the output copies
    /* index of the stored tensor with the same name; -1: no stored tensor has this name */
    int64_t stored;
    /* Indices of the first and the last shard with a stored tensor from which this tensor is
     * computed. If last_shard < first_shard, this tensor is computed from no stored tensor. */
    int first_shard, last_shard;
} osh_ckpt_virtual;

typedef struct osh_checkpoint {
    char *dir;               // own
    osh_hf_config *config;   // own
    osh_container **shards;  // own
    char **shard_names;      // own: file names, sorted
    int n_shards;
    char **aside; // own, with own names: safetensors files that do not belong to the model
    size_t n_aside;
    osh_ckpt_tensor *tensors; // own: all tensors, sorted by shard and, in a shard, by offset
    int64_t n_tensors;
    osh_map *by_name;        // own: maps a name to an index in `tensors`
    osh_ckpt_virtual *virtuals; // own
    /* Checksums of tensors that were read; NULL: checksums are not recorded. */
    struct osh_ckpt_sums *sums; // own
    int n_virtuals;
    struct osh_ckpt_changes *changes; // own: changes of tensors; NULL: no tensor is changed
    /* own, each name own: entries of single experts. Their data are parts of tensors with several
     * experts. */
    osh_entry *parts;
    int64_t n_parts;
    /* own [parts]: name of each part in the file (osh_checkpoint_name_in_file); NULL: no parts */
    const char **in_file;
    /* Directory of the LoRA adapter that is merged into the tensors (set by quant/source.c); NULL:
     * none. */
    char *adapter; // own
} osh_checkpoint;

/* Opens model.safetensors. If this file does not exist, opens the shards that
 * model.safetensors.index.json names. If both files exist and it is not clear which of them is the
 * model, fails (ckpt_files.h). A tensor is an error if it is only in the index, only in a shard, or
 * in two shards. */
osh_status osh_checkpoint_open(osh_ctx *cx, osh_checkpoint **out, const char *dir);
/* Frees the checkpoint. Accepts NULL. */
void osh_checkpoint_close(osh_ctx *cx, osh_checkpoint *ck);
/* Returns the tensor with this name (view), or NULL if there is none. */
const osh_ckpt_tensor *osh_checkpoint_find(const osh_checkpoint *ck, const char *name);
/* Reads the whole tensor t to the memory `to`, and applies the changes of t. */
osh_status osh_checkpoint_read(osh_ctx *cx, void *to, const osh_checkpoint *ck,
                               const osh_ckpt_tensor *t);
/* Loads a tensor in the dtype of the file. The caller owns *out. Fails if no tensor has this name,
 * or if its shape is not `shape` [ndim]. If ndim is negative, any shape is accepted. */
osh_status osh_checkpoint_load(osh_ctx *cx, osh_tensor **out, const osh_checkpoint *ck,
                               const char *name, int ndim, const int64_t *shape);
/* Adds a virtual tensor with the dtype and shape of `like`; `make` computes its rows in each read.
 * If a stored tensor has the same name, osh_checkpoint_find returns the virtual tensor from now on
 * (ckpt_virtual.c). */
osh_status osh_checkpoint_add_virtual(osh_ctx *cx, osh_checkpoint *ck, const char *name,
                                      const osh_entry *like, osh_ckpt_make make, void *user);
/* Changes the list of tensors: removes the stored tensors from which virtual tensors are computed.
 * `by` [tensors] has a number for each tensor. If the number is -1, the tensor remains in the list.
 * If it is less than -1, the tensor is removed. Otherwise it is the index of the virtual tensor
 * that replaces the tensor in the list. The indices of tensors change (ckpt_virtual.c). */
osh_status osh_checkpoint_hide(osh_ctx *cx, osh_checkpoint *ck, const int64_t *by);
/* Reads bytes [offset, offset + n_bytes) of a stored or virtual tensor, without applying changes
 * (osh_checkpoint_apply) or recording a checksum (osh_checkpoint_watch). */
osh_status osh_checkpoint_read_part(osh_ctx *cx, void *to, const osh_checkpoint *ck,
                                    const osh_ckpt_tensor *t, int64_t offset, size_t n_bytes);
/* Reads elements of tensor t to `to`. The entry `part` describes these elements; its offsets are
 * relative to the first byte of t. */
osh_status osh_checkpoint_read_as(osh_ctx *cx, void *to, const osh_checkpoint *ck,
                                  const osh_ckpt_tensor *t, const osh_entry *part);
/* Returns true if the tensor is virtual and its member `kept` is true. */
bool osh_checkpoint_is_kept(const osh_checkpoint *ck, int64_t tensor);
/* Returns the tensor (view) that the output copies under this name. If the tensor is virtual and
 * its member `kept` is true, this is the stored tensor with the same name. Returns NULL if no
 * tensor has this name. */
const osh_ckpt_tensor *osh_checkpoint_find_copied(const osh_checkpoint *ck, const char *name);
/* Returns the number of elements of a row, which is the size of the last dimension. */
int64_t osh_ckpt_columns(const osh_entry *e);
/* Returns the number of bytes of all tensors in the shards. */
int64_t osh_checkpoint_stored_bytes(const osh_checkpoint *ck);
/* Allocates ck->changes. Must be called before osh_checkpoint_change and osh_checkpoint_rewrite. */
osh_status osh_checkpoint_expect_changes(osh_ctx *cx, osh_checkpoint *ck);
/* Folds factors into a tensor: each later read multiplies the tensor by the factors, in the order
 * of the calls. The arrays of `r` must live as long as the checkpoint. No other thread may read the
 * tensor during the call (ckpt_changes.c). */
osh_status osh_checkpoint_change(osh_ctx *cx, osh_checkpoint *ck, int64_t tensor,
                                 const osh_fold_rule *r);
/* True if osh_checkpoint_change was called for the tensor. */
bool osh_checkpoint_is_changed(const osh_checkpoint *ck, int64_t tensor);
/* A step that changes a tensor. Steps are added before any tensor is read. The result of each step
 * is rounded to the tensor's dtype. In a 1-D tensor each element is a row. */
typedef enum {
    OSH_REWRITE_FILL,   // sets all elements to `value`
    OSH_REWRITE_CENTRE, // subtracts the mean from each row
    /* multiplies column c by the sum of `value` and element c of the tensor `norm` */
    OSH_REWRITE_NORM,
    OSH_REWRITE_ROWS,   // applies osh_rotate_rows
    OSH_REWRITE_COLUMNS // applies osh_rotate_columns
} osh_rewrite_kind;
typedef struct osh_rewrite {
    osh_rewrite_kind kind;
    bool transposed;
    const osh_rotation *r; // view: lives as long as the checkpoint
    int64_t norm;          // index of the tensor of the norm's weight, for OSH_REWRITE_NORM
    double value;
} osh_rewrite;
/* Adds a step to a tensor. When the tensor is read, first its steps are applied, in the order in
 * which they were added. Then its factors are applied. */
osh_status osh_checkpoint_rewrite(osh_ctx *cx, osh_checkpoint *ck, int64_t tensor,
                                  const osh_rewrite *w);
/* Returns the unit of a tensor: the number of consecutive elements that must be changed together.
 * The unit is at least 1. */
int64_t osh_checkpoint_unit(const osh_checkpoint *ck, int64_t tensor);
/* Returns an upper bound of the scratch memory (gross bytes) that one thread needs to apply the
 * changes of one tensor. */
size_t osh_checkpoint_rewrite_bytes(const osh_checkpoint *ck);
/* Applies the changes of a tensor to elements [first, first + n), which the caller has read to
 * `data`. first and n are multiples of osh_checkpoint_unit. Does nothing for a tensor without
 * changes. */
osh_status osh_checkpoint_apply(osh_ctx *cx, const osh_checkpoint *ck, int64_t tensor, void *data,
                                int64_t first, int64_t n);
/* Adds a virtual tensor. It is a second name for the bytes of the stored tensor with index `of`.
 * Changes of one of these tensors have no effect on the other tensor. */
osh_status osh_checkpoint_add_alias(osh_ctx *cx, osh_checkpoint *ck, const char *name, int64_t of);
void osh_checkpoint_free_changes(osh_ctx *cx, osh_checkpoint *ck); // called by osh_checkpoint_close
/* Begins to record the XXH3 checksum of each tensor that is read. Code that reads a tensor in
 * several parts must record the tensor's checksum with osh_checkpoint_saw. Two reads of a tensor
 * must give the same checksum (ckpt_sums.c). */
osh_status osh_checkpoint_watch(osh_ctx *cx, osh_checkpoint *ck);
/* Ends the recording, and forgets the checksums. */
void osh_checkpoint_unwatch(osh_ctx *cx, osh_checkpoint *ck);
/* Records the checksum of a tensor. Any thread may call this function. Fails if a different
 * checksum of the tensor was recorded before. */
osh_status osh_checkpoint_saw(osh_ctx *cx, const osh_checkpoint *ck, int64_t tensor, uint64_t sum);
/* If checksums are recorded and no checksum of the tensor is recorded yet, reads the tensor and
 * records its checksum. */
osh_status osh_checkpoint_see(osh_ctx *cx, const osh_checkpoint *ck, int64_t tensor);
/* Sets *sum to the recorded checksum of a tensor. Returns false if the tensor has no checksum
 * yet. */
bool osh_checkpoint_seen(const osh_checkpoint *ck, int64_t tensor, uint64_t *sum);
/* Source tensors are numbered from 0 in the order in which they were first read. Sets *tensor to
 * the index of the tensor with number `at`, and *sum to its recorded checksum. Returns false if at
 * most `at` tensors were read so far. */
bool osh_checkpoint_next_seen(const osh_checkpoint *ck, int64_t at, int64_t *tensor, uint64_t *sum);
/* Reads a shard again and compares the header and each tensor with the recorded checksums. Sets
 * *diff (own) to a message about the first difference, or to NULL if there is none. Sets *stamp to
 * the stamp that the file had at the start of the call. */
osh_status osh_checkpoint_reread(osh_ctx *cx, char **diff, osh_stamp *stamp,
                                 const osh_checkpoint *ck, int shard);
/* Sets *sum to the XXH3 checksum of a whole file and *n_bytes to its size. */
osh_status osh_sum_of_file(osh_ctx *cx, uint64_t *sum, int64_t *n_bytes, const char *path);
/* osh_sum_text_of_file works like osh_sum_of_file, but sets `text` to the checksum in 16 hex
 * digits, as in a manifest. */
enum { OSH_SUM_TEXT = 17 };
osh_status osh_sum_text_of_file(osh_ctx *cx, char text[OSH_SUM_TEXT], int64_t *n_bytes,
                                const char *path);
/* Frees the virtual tensors. osh_checkpoint_close calls this function. */
void osh_checkpoint_free_virtuals(osh_ctx *cx, osh_checkpoint *ck);
/* Splits tensors with several experts into one tensor per expert, for families whose loaders find
 * experts by name. osh_checkpoint_open calls this function (ckpt_experts.c). */
osh_status osh_checkpoint_part_experts(osh_ctx *cx, osh_checkpoint *ck);
/* Splits tensors with several experts, for families in which vLLM finds experts by name but
 * transformers does not. */
osh_status osh_checkpoint_part_for_vllm(osh_ctx *cx, osh_checkpoint *ck);
/* True if osh_checkpoint_part_for_vllm splits the experts of the checkpoint's family. */
bool osh_checkpoint_parts_for_vllm(const osh_checkpoint *ck);
/* True for gpt-oss. In this family, gate and up of a split expert are one module, gate_up_proj. In
 * its weight, rows of gate and rows of up alternate, as in the source. For the codes of
 * gate_up_proj and down_proj, vLLM wants the names experts.3.w13_weight_packed and
 * experts.3.w2_weight_packed. */
bool osh_experts_are_joint(const osh_checkpoint *ck);
/* Returns the name (own) that tensor `leaf` of a module has in an output, or NULL if there is no
 * memory. */
char *osh_checkpoint_name_of(osh_ctx *cx, const osh_checkpoint *ck, const char *module,
                             const char *leaf);
/* True if osh_checkpoint_part_experts or osh_checkpoint_part_for_vllm has made the entry. */
bool osh_checkpoint_is_part(const osh_checkpoint *ck, const osh_entry *e);
/* Returns the name that a tensor has in its file. For example, the file has
 * experts.3.w13_weight_packed for the tensor that this program calls
 * experts.3.gate_up_proj.weight_packed. osh_checkpoint_find finds both names. */
const char *osh_checkpoint_name_in_file(const osh_checkpoint *ck, int64_t tensor);
void osh_checkpoint_free_parts(osh_ctx *cx, osh_checkpoint *ck); // called by osh_checkpoint_close
#define OSH_README_NAME "README.md"
/* Lists the files of the directory ck->dir that the output copies unchanged. Sets *names (own) to
 * their names, sorted, and *n to their number. The caller frees the list with osh_strings_free. The
 * list has no directories, shards or other weights (*.safetensors, *.bin, *.pt, *.pth, *.gguf,
 * *.onnx, *.h5, *.msgpack, *.ot, *.ckpt). It does not have files that a run writes itself:
 * config.json, *.index.json, recipe.yaml, the README, oneshot.log and oneshot-*. It does not have
 * files that describe the source's quantization (hf_quant.h). If only the member `dir` of `ck` is
 * set, no file counts as a shard. */
osh_status osh_checkpoint_side_files(osh_ctx *cx, char ***names, size_t *n,
                                     const osh_checkpoint *ck);
#endif
