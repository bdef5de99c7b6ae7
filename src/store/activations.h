/* activations.h - stores the values of a graph between subgraphs. Samples are stored separately,
 * without loss, in the dtype of the value. Thus the stored bytes do not depend on how samples are
 * batched.
 *
 * Without a GPU, each sample has one allocation in host memory. With a GPU, each batch has one
 * allocation in GPU memory or in page-locked host memory (blocks.h); each batch must then have the
 * same samples in every pass. For kept samples (osh_acts_keep) the tensors of the batches are
 * stored without a copy. On the disk each value has a file, in which each sample has a slot at a
 * fixed offset (slots.h). If a process is killed, the process that continues the run can use the
 * complete files. */
#ifndef OSH_ACTIVATIONS_H
#define OSH_ACTIVATIONS_H
#include "graph/exec.h"
#include "store/tier.h"
#include "tensor/device.h"
#include "data/dataset.h"

typedef struct osh_acts osh_acts;
typedef struct osh_acts_place {
    osh_tier tier;
    const char *dir; // for tier disk: directory of the files (osh_scratch_open)
    bool zstd;       // for tier disk: true if the samples are compressed
} osh_acts_place;
osh_status osh_acts_new(osh_ctx *cx, osh_acts **out, const osh_graph *g, const osh_dataset *d,
                        const osh_acts_place *place);
/* Makes a second store, in host memory or on the disk, for the graph and the samples of `beside`,
 * the first store. On the disk, the files of the second store are in the same directory and have
 * the same compression, but other names. If f16 is true, values are stored as F16. The caller frees
 * the second store before the first; osh_acts_free removes the files of the second store. */
osh_status osh_acts_new_beside(osh_ctx *cx, osh_acts **out, const osh_acts *beside, osh_tier tier,
                               bool f16, const char *dir);
/* Returns the host bytes, with the allocator's overhead, of a store that contains no values. */
int64_t osh_acts_own_bytes(const osh_graph *g);
/* Sets the device on which passes run. Batches are then in the memory of d, and so are the values
 * of the tier `device`. Must be called before the first value is stored. */
osh_status osh_acts_use(osh_ctx *cx, osh_acts *a, osh_device *d);
/* Sets the number of kept samples, which are samples [0, n). For kept samples, the store keeps the
 * tensors of osh_acts_put, and osh_acts_get returns these tensors without a copy. All other samples
 * are stored in the tier. Each batch must have the same samples in every pass, and no batch may
 * have both kept and other samples. Must be called before the first value is stored. */
void osh_acts_keep(osh_acts *a, int64_t n);
/* Makes host memory for copies to a GPU pageable instead of page-locked. Must be called before
 * osh_acts_use. */
void osh_acts_unpinned(osh_acts *a);
/* For tier disk: between osh_acts_open and osh_acts_close, n_threads threads prefetch n_batches
 * batches (loaders.h). For other tiers, does nothing. Must be called after osh_acts_use. */
osh_status osh_acts_read_ahead(osh_ctx *cx, osh_acts *a, int n_threads, int64_t n_batches);
/* Returns n, the number of batches to prefetch. Before the caller gets batch k, it must call
 * osh_acts_ask for batch k + n. */
int64_t osh_acts_ahead(const osh_acts *a);
/* Lets the GPU read files of values itself, with cuFile. Requires that the device has a
 * stage (osh_device_files). */
void osh_acts_by_gpu(osh_acts *a);
/* The next two functions set numbers that identify the files of tier disk. osh_acts_of_run sets a
 * number that no other run has. osh_acts_stage sets the number of the visit whose values are stored
 * next. */
void osh_acts_of_run(osh_acts *a, uint64_t run);
void osh_acts_stage(osh_acts *a, uint64_t stage);
void osh_acts_free(osh_ctx *cx, osh_acts *a, bool keep_files);
/* Stores samples like osh_acts_store. For kept samples, takes ownership of the tensor *t and sets
 * *t to NULL. */
osh_status osh_acts_put(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n,
                        osh_tensor **t);
typedef struct osh_acts_rows { // samples [first, first + n) of a value
    int value;
    int64_t first, n;
} osh_acts_rows;
/* Sets *t to a tensor of the samples r on d, or in host memory if d is NULL. The caller frees *t.
 * The data of kept samples are not copied. If `last` is true, *t is the stored tensor. If not, *t
 * is a view of the stored tensor, which is valid until the value is dropped. */
osh_status osh_acts_get(osh_ctx *cx, osh_tensor **t, osh_acts *a, const osh_acts_rows *r, bool last,
                        osh_device *d);
/* Stores samples [first, first + n) of a value. t is [tokens of these samples, width] in the
 * value's dtype. */
osh_status osh_acts_store(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n,
                          const osh_tensor *t);
osh_status osh_acts_load(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n,
                         osh_tensor *t);
/* Loads one sample to t in host memory. The store must not have a device. */
osh_status osh_acts_sample(osh_ctx *cx, osh_acts *a, int value, int64_t sample, osh_tensor *t);
/* Begins a pass, which osh_acts_close ends. in, out [values]: true for the values that are loaded
 * and for the values that are stored in the pass. The function prepares the pass:
 *   tier host with a GPU      osh_acts_ask prefetches values of `in`; values of `out` are
 *                             stored during later work. Each value has a block of GPU memory for
 *                             n_tokens tokens (osh_acts_way_bytes)
 *   disk                      values of `in` are prefetched if osh_acts_read_ahead was called
 *   other tiers               nothing is prepared
 * The caller must not load values of `out` before osh_acts_close. */
osh_status osh_acts_open(osh_ctx *cx, osh_acts *a, const bool *in, const bool *out,
                         int64_t n_tokens);
/* Begins to prefetch samples [first, first + n), which a later call of osh_acts_get returns. The
 * calls of osh_acts_get must have the same order as the calls of osh_acts_ask. */
osh_status osh_acts_ask(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n);
osh_status osh_acts_close(osh_ctx *cx, osh_acts *a);
/* Returns the bytes, with padding, of the buffer in GPU memory for a value. */
int64_t osh_acts_way_bytes(const osh_graph *g, int value, int64_t n_tokens);
/* Frees the memory of samples [first, first + n) of a value. If the samples are in a file, does
 * nothing. */
void osh_acts_forget(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n);
bool osh_acts_has(const osh_acts *a, int value);
/* Frees all samples of the value and removes its file. */
void osh_acts_drop(osh_ctx *cx, osh_acts *a, int value);
/* For tier disk: syncs the file of the value, so that a loss of power does not lose the samples. */
osh_status osh_acts_sync(osh_ctx *cx, osh_acts *a, int value);
/* Opens the file of a value that an earlier process of this run has stored in stage `stage`, and
 * checks every sample. If the file is complete, sets *found to true and adds the value to the
 * store. If not, sets *found to false. */
osh_status osh_acts_adopt(osh_ctx *cx, osh_acts *a, int value, uint64_t stage, bool *found);
/* The next two functions return the bytes, with the allocator's overhead, of a buffer for any
 * sample of any value. osh_acts_frame_bytes is for a compressed sample, osh_acts_stage_bytes for an
 * uncompressed sample. */
int64_t osh_acts_frame_bytes(const osh_graph *g, const osh_dataset *d);
int64_t osh_acts_stage_bytes(const osh_graph *g, const osh_dataset *d);
/* Returns the bytes of the samples of a value from sample `first` on, in tier `tier`. In memory,
 * the bytes include the allocator's overhead. On the disk, they are the bytes of a file without
 * compression, for a run without a GPU. (osh_slots_bytes returns the bytes for a run with a
 * GPU.) */
int64_t osh_acts_bytes(const osh_graph *g, const osh_dataset *d, osh_tier tier, int value,
                       int64_t first);
/* For tier host with a device: returns the host bytes, with the allocator's overhead, of a batch of
 * n_tokens tokens. */
int64_t osh_acts_batch_bytes(const osh_graph *g, int value, int64_t n_tokens);
/* Returns the bytes, with the allocator's overhead, of the first n kept batches of a value.
 * batch_at [n + 1] is the index of the first sample of each batch. */
int64_t osh_acts_kept_bytes(const osh_graph *g, const osh_dataset *d, int value,
                            const int64_t *batch_at, int64_t n);
#endif
