/* activations.h - stores values between subgraphs, sample by sample, bit for bit in their dtype.
 * The stored bytes do not depend on how samples are batched.
 *
 * Memory: a block for each sample. With a device there is a block for each batch, in its memory or
 * in (page-locked) host memory (blocks.h); batches must then have the same samples each time. Kept
 * samples (osh_acts_keep) rest as the tensors that the batches made. Disk: a file for each value
 * with a slot at a fixed offset for each sample (slots.h); a later process can go on from complete
 * files of a run that was killed. */
#ifndef OSH_ACTIVATIONS_H
#define OSH_ACTIVATIONS_H
#include "graph/exec.h"
#include "store/tier.h"
#include "tensor/device.h"
#include "data/dataset.h"

typedef struct osh_acts osh_acts;
typedef struct osh_acts_place {
    osh_tier tier;
    const char *dir; // disk: for osh_scratch_open; a file there stays until its value is stored
    bool zstd;       // disk: compress the samples
} osh_acts_place;
osh_status osh_acts_new(osh_ctx *cx, osh_acts **out, const osh_graph *g, const osh_dataset *d,
                        const osh_acts_place *place);
/* A second store for the graph and the samples of `beside`, in host memory or on the disk, with
 * other files in the same directory `dir` and the same compression. f16: values are kept as F16.
 * The caller frees it before `beside`, without keeping its files. */
osh_status osh_acts_new_beside(osh_ctx *cx, osh_acts **out, const osh_acts *beside, osh_tier tier,
                               bool f16, const char *dir);
int64_t osh_acts_own_bytes(const osh_graph *g); // gross host bytes without any value
/* Call it before the first value is stored. Batches are then in the memory of d, and the tier
 * device is that memory. */
osh_status osh_acts_use(osh_ctx *cx, osh_acts *a, osh_device *d);
/* Call it before the first value is stored. Rows of samples [0, n) are then handed over and back
 * instead of copied; the tier holds the other samples. Batches must have the same samples each
 * time, and no batch samples of both kinds. */
void osh_acts_keep(osh_acts *a, int64_t n);
/* Call it before osh_acts_use. Host memory for copies to a device is then not page-locked. */
void osh_acts_unpinned(osh_acts *a);
/* Call it after osh_acts_use. Disk: n_threads threads read n_batches ahead (loaders.h) between
 * osh_acts_open and osh_acts_close. Does nothing in the other tiers. */
osh_status osh_acts_read_ahead(osh_ctx *cx, osh_acts *a, int n_threads, int64_t n_batches);
/* The number of batches that the caller passes to osh_acts_ask before it wants them. */
int64_t osh_acts_ahead(const osh_acts *a);
/* The GPU reads files of values itself, by cuFile: its device has a stage (gpu/gpu.h). */
void osh_acts_by_card(osh_acts *a);
/* Disk. run: a number that no other run has. stage: the work that makes the values stored from now
 * on. */
void osh_acts_of_run(osh_acts *a, uint64_t run);
void osh_acts_stage(osh_acts *a, uint64_t stage);
void osh_acts_free(osh_ctx *cx, osh_acts *a, bool keep_files);
/* Stores like osh_acts_store. If these samples are kept, it takes *t and sets it to NULL. */
osh_status osh_acts_put(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n,
                        osh_tensor **t);
typedef struct osh_acts_rows { // samples [first, first + n) of a value
    int value;
    int64_t first, n;
} osh_acts_rows;
/* Returns a tensor of these rows on `d` (NULL: host memory), which the caller frees. For kept
 * samples it is the stored tensor itself: a view that lives until the value is dropped or, with
 * `last`, given away. */
osh_status osh_acts_get(osh_ctx *cx, osh_tensor **t, osh_acts *a, const osh_acts_rows *r, bool last,
                        osh_device *d);
/* Rows of samples [first, first + n) of a value: t is [their tokens, width] in the value's
 * dtype. */
osh_status osh_acts_store(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n,
                          const osh_tensor *t);
osh_status osh_acts_load(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n,
                         osh_tensor *t);
/* Loads one sample to t in host memory. Only for stores without a device. */
osh_status osh_acts_sample(osh_ctx *cx, osh_acts *a, int value, int64_t sample, osh_tensor *t);
/* Begins a pass; osh_acts_close ends it. in, out: [values].
 *   tier host with a device   osh_acts_ask reads values of `in` ahead; values of `out` are stored
 *                             during later work, each by way of a block of device memory for
 *                             n_tokens tokens (osh_acts_way_bytes)
 *   disk                      values of `in` are read ahead if osh_acts_read_ahead was called
 *   else                      nothing
 * Values of `out` are not loaded before osh_acts_close. */
osh_status osh_acts_open(osh_ctx *cx, osh_acts *a, const bool *in, const bool *out,
                         int64_t n_tokens);
/* Announces a later osh_acts_get of these samples. Batches are announced in their order, and the
 * values of a batch in the order of the later calls. */
osh_status osh_acts_ask(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n);
osh_status osh_acts_close(osh_ctx *cx, osh_acts *a);
int64_t osh_acts_way_bytes(const osh_graph *g, int value, int64_t n_tokens); // device bytes, gross
/* Frees these rows in memory; does not touch a file. */
void osh_acts_forget(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n);
bool osh_acts_has(const osh_acts *a, int value);
void osh_acts_drop(osh_ctx *cx, osh_acts *a, int value); // frees the rows and removes the file
/* Disk: the stored rows survive a loss of power. */
osh_status osh_acts_sync(osh_ctx *cx, osh_acts *a, int value);
/* Takes up the file that an earlier process of this run stored in that stage, and checks every
 * slot. *found is false if there is no complete file. */
osh_status osh_acts_adopt(osh_ctx *cx, osh_acts *a, int value, uint64_t stage, bool *found);
/* Gross bytes to compress one sample of any value, and to hold one. */
int64_t osh_acts_frame_bytes(const osh_graph *g, const osh_dataset *d);
int64_t osh_acts_stage_bytes(const osh_graph *g, const osh_dataset *d);
/* Bytes of samples [first, all) of a value in that tier: gross in memory, without compression on
 * the disk. With a device on the disk they are osh_slots_bytes instead. */
int64_t osh_acts_bytes(const osh_graph *g, const osh_dataset *d, osh_tier tier, int value,
                       int64_t first);
/* Tier host with a device: gross host bytes of a batch. */
int64_t osh_acts_batch_bytes(const osh_graph *g, int value, int64_t n_tokens);
/* Gross bytes of the kept batches [0, n) of a value; batch_at [n + 1]: their first samples. */
int64_t osh_acts_kept_bytes(const osh_graph *g, const osh_dataset *d, int value,
                            const int64_t *batch_at, int64_t n);
#endif
