/* activations.h - stores the values of a graph between subgraphs. Samples are stored separately,
 * without loss, in the dtype of the value. So the stored bytes do not depend on how samples are
 * batched.
 *
 * Without a GPU, each sample has one allocation in host memory. With a GPU, each batch has one
 * allocation in GPU memory or in page-locked host memory (blocks.h). The batches must then have the
 * same samples in every pass. For kept samples (osh_acts_keep), the store keeps the tensors of the
 * batches without a copy. On the disk, each value has a file, in which each sample has a slot at a
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
    const char *dir; // only for tier disk: directory of the files (osh_scratch_open)
    bool zstd;       // only for tier disk: true if samples are compressed
} osh_acts_place;
/* Makes an empty store for the values of g and the samples of d; both must outlive it. The caller
 * frees *out with osh_acts_free. */
osh_status osh_acts_new(osh_ctx *cx, osh_acts **out, const osh_graph *g, const osh_dataset *d,
                        const osh_acts_place *place);
/* Makes a second store for the graph and the samples of the store `beside`. The second store is in
 * host memory or on the disk. On the disk, its files are in the directory of the first store, with
 * the same compression but other names. If f16 is true, values are stored as F16. The second store
 * must be freed before the first; osh_acts_free then removes its files. */
osh_status osh_acts_new_beside(osh_ctx *cx, osh_acts **out, const osh_acts *beside, osh_tier tier,
                               bool f16, const char *dir);
/* Returns the number of host bytes of a store without values, with the allocator's overhead. */
int64_t osh_acts_own_bytes(const osh_graph *g);
/* Sets the device d on which passes run. Batches are then in the memory of d, and values of the
 * tier `device` are there, too. Must be called before the first value is stored. */
osh_status osh_acts_use(osh_ctx *cx, osh_acts *a, osh_device *d);
/* Makes the samples [0, n) kept samples. For these samples, osh_acts_put keeps the caller's
 * tensors, and osh_acts_get returns the same tensors without a copy. All other samples are stored
 * in the tier. The batches must have the same samples in every pass. No batch may have both kept
 * and other samples. Must be called before the first value is stored. */
void osh_acts_keep(osh_acts *a, int64_t n);
/* Makes the store use pageable instead of page-locked host memory for copies to a GPU. Must be
 * called before osh_acts_use. */
void osh_acts_unpinned(osh_acts *a);
/* Sets up prefetch for tier disk: between osh_acts_open and osh_acts_close, n_threads threads read
 * up to n_batches batches in advance (loaders.h). Does nothing for other tiers. Must be called
 * after osh_acts_use. */
osh_status osh_acts_read_ahead(osh_ctx *cx, osh_acts *a, int n_threads, int64_t n_batches);
/* Returns n, the number of batches to request in advance. Before the caller gets batch k, it must
 * call osh_acts_ask for batch k + n. */
int64_t osh_acts_ahead(const osh_acts *a);
/* Lets the GPU itself read the files of values, with cuFile. The device must have allocated its
 * stage, which is a buffer for such reads (osh_device_files). */
void osh_acts_by_gpu(osh_acts *a);
/* The next two functions set numbers that identify the contents of files on the disk.
 * osh_acts_of_run sets a number that no other run has. osh_acts_stage sets the stage: a number for
 * the visit and the pass in which values are stored from now on. */
void osh_acts_of_run(osh_acts *a, uint64_t run);
void osh_acts_stage(osh_acts *a, uint64_t stage);
void osh_acts_free(osh_ctx *cx, osh_acts *a, bool keep_files);
/* Stores samples like osh_acts_store. If the samples are kept (osh_acts_keep), takes ownership of
 * the tensor *t, and sets *t to NULL. */
osh_status osh_acts_put(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n,
                        osh_tensor **t);
typedef struct osh_acts_rows { // samples [first, first + n) of a value
    int value;
    int64_t first, n;
} osh_acts_rows;
/* Sets *t to a tensor of the samples r. The tensor is on d, or in host memory if d is NULL. The
 * caller frees *t. The data of kept samples are not copied: if `last` is true, *t is the stored
 * tensor itself. Otherwise *t is a view of the stored tensor, which is valid until the value is
 * dropped. */
osh_status osh_acts_get(osh_ctx *cx, osh_tensor **t, osh_acts *a, const osh_acts_rows *r, bool last,
                        osh_device *d);
/* Stores the samples [first, first + n) of a value. t: their rows, [tokens of these samples,
 * width], in the dtype of the value. */
osh_status osh_acts_store(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n,
                          const osh_tensor *t);
/* Copies the samples [first, first + n) of a value to t, which has the shape as in
 * osh_acts_store. */
osh_status osh_acts_load(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n,
                         osh_tensor *t);
/* Copies one sample of a value to t, which is in the memory of the store's device, or in host
 * memory if the store has no device. No pass may be open. */
osh_status osh_acts_sample(osh_ctx *cx, osh_acts *a, int value, int64_t sample, osh_tensor *t);
/* Begins a pass, which osh_acts_close ends. in [values]: true for values that are loaded in the
 * pass. out [values]: true for values that are stored in it. How the pass is prepared depends on
 * the tier:
 *   host, with a GPU          osh_acts_ask prefetches values of `in`. Values of `out` are copied
 *                             while the GPU does later work. Each value gets a block of GPU
 *                             memory for n_tokens tokens (osh_acts_way_bytes)
 *   disk                      values of `in` are prefetched if osh_acts_read_ahead was called
 *   other tiers               nothing is prepared
 * The caller must not load values of `out` before osh_acts_close. */
osh_status osh_acts_open(osh_ctx *cx, osh_acts *a, const bool *in, const bool *out,
                         int64_t n_tokens);
/* Begins to prefetch the samples [first, first + n) of a value. A later call of osh_acts_get
 * returns these samples. The calls of osh_acts_get must be in the order of the calls of
 * osh_acts_ask. */
osh_status osh_acts_ask(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n);
osh_status osh_acts_close(osh_ctx *cx, osh_acts *a);
/* A value is copied through a block of GPU memory. Returns the number of bytes of this block, with
 * padding. */
int64_t osh_acts_way_bytes(const osh_graph *g, int value, int64_t n_tokens);
/* Frees the memory of the samples [first, first + n) of a value. Does nothing if they are in a
 * file. */
void osh_acts_forget(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n);
/* True if the store has samples of the value. */
bool osh_acts_has(const osh_acts *a, int value);
/* Frees all samples of a value, and removes its file. */
void osh_acts_drop(osh_ctx *cx, osh_acts *a, int value);
/* For tier disk: syncs the file of a value, so that its samples survive a loss of power. */
osh_status osh_acts_sync(osh_ctx *cx, osh_acts *a, int value);
/* An earlier process of this run may have stored the value in stage `stage`. Looks for the file of
 * this value, and checks every sample in the file. If the file is complete, sets *found to true and
 * adds the value to the store. Otherwise sets *found to false. */
osh_status osh_acts_adopt(osh_ctx *cx, osh_acts *a, int value, uint64_t stage, bool *found);
/* Both functions return how many bytes, with the allocator's overhead, a buffer needs to have room
 * for any sample of any value. osh_acts_frame_bytes is for a compressed sample, and
 * osh_acts_stage_bytes for an uncompressed sample. */
int64_t osh_acts_frame_bytes(const osh_graph *g, const osh_dataset *d);
int64_t osh_acts_stage_bytes(const osh_graph *g, const osh_dataset *d);
/* Returns the number of bytes that the samples of a value, from sample `first` on, need in the
 * tier. For memory, the allocator's overhead is included. For the disk, this is the size of the
 * uncompressed file in a run without a GPU. (For a run with a GPU, see osh_slots_bytes.) */
int64_t osh_acts_bytes(const osh_graph *g, const osh_dataset *d, osh_tier tier, int value,
                       int64_t first);
/* For tier host with a device: returns how many host bytes a batch of n_tokens tokens needs, with
 * the allocator's overhead. */
int64_t osh_acts_batch_bytes(const osh_graph *g, int value, int64_t n_tokens);
/* Returns the number of bytes of the first n batches of a value. The samples of these batches are
 * kept (osh_acts_keep). Includes the allocator's overhead. batch_at [n + 1]: index of the first
 * sample of each batch. */
int64_t osh_acts_kept_bytes(const osh_graph *g, const osh_dataset *d, int value,
                            const int64_t *batch_at, int64_t n);
#endif
