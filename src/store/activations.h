/* activations.h - stores values between subgraphs, sample by sample, bit for bit in their dtype.
 * The stored bytes do not depend on how samples are batched.
 *
 * In memory each sample has a block. With a device each batch has a block, in the device's memory
 * or in (page-locked) host memory (blocks.h); batches must then have the same samples each time.
 * Kept samples (osh_acts_keep) stay the tensors that the batches made. On the disk each value has a
 * file, in which each sample has a slot at a fixed offset (slots.h); if a run was killed, a later
 * process can continue from complete files. */
#ifndef OSH_ACTIVATIONS_H
#define OSH_ACTIVATIONS_H
#include "graph/exec.h"
#include "store/tier.h"
#include "tensor/device.h"
#include "data/dataset.h"

typedef struct osh_acts osh_acts;
typedef struct osh_acts_place {
    osh_tier tier;
    const char *dir; // for tier disk: see osh_scratch_open; a file there stays until its value is
                     // stored
    bool zstd;       // for tier disk: the samples are compressed
} osh_acts_place;
osh_status osh_acts_new(osh_ctx *cx, osh_acts **out, const osh_graph *g, const osh_dataset *d,
                        const osh_acts_place *place);
/* A second store for the graph and the samples of `beside`, in host memory or on the disk, with
 * other files in the same directory `dir` and the same compression. If f16 is true, values are
 * stored as F16. The caller frees the second store before `beside`; its files are not kept. */
osh_status osh_acts_new_beside(osh_ctx *cx, osh_acts **out, const osh_acts *beside, osh_tier tier,
                               bool f16, const char *dir);
int64_t osh_acts_own_bytes(const osh_graph *g); // gross host bytes of a store without values
/* Called before the first value is stored. Batches are then in the memory of d, and the tier
 * `device` is this memory. */
osh_status osh_acts_use(osh_ctx *cx, osh_acts *a, osh_device *d);
/* Called before the first value is stored. Rows of samples [0, n) are then given and taken as
 * tensors instead of copied; the tier stores all other samples. Batches must have the same samples
 * each time, and no batch may have samples of both kinds. */
void osh_acts_keep(osh_acts *a, int64_t n);
/* Called before osh_acts_use. Host memory for copies to a device is then not page-locked. */
void osh_acts_unpinned(osh_acts *a);
/* Called after osh_acts_use. Tier disk: n_threads threads read n_batches in advance (loaders.h)
 * between osh_acts_open and osh_acts_close. Other tiers: does nothing. */
osh_status osh_acts_read_ahead(osh_ctx *cx, osh_acts *a, int n_threads, int64_t n_batches);
/* Returns the number of batches for which the caller calls osh_acts_ask before it needs them. */
int64_t osh_acts_ahead(const osh_acts *a);
/* Lets the GPU read files of values itself, with cuFile. Its device must have a stage
 * (gpu/gpu.h). */
void osh_acts_by_card(osh_acts *a);
/* For tier disk. run: a number that no other run has. stage: the work that makes the values stored
 * from now on. */
void osh_acts_of_run(osh_acts *a, uint64_t run);
void osh_acts_stage(osh_acts *a, uint64_t stage);
void osh_acts_free(osh_ctx *cx, osh_acts *a, bool keep_files);
/* Stores like osh_acts_store. If these samples are kept, it takes ownership of *t and sets it to
 * NULL. */
osh_status osh_acts_put(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n,
                        osh_tensor **t);
typedef struct osh_acts_rows { // samples [first, first + n) of a value
    int value;
    int64_t first, n;
} osh_acts_rows;
/* Returns a tensor of these rows on `d` (NULL: host memory), which the caller frees. For kept
 * samples it is the stored tensor: a view that is valid until the value is dropped, or, if `last`
 * is true, given to the caller. */
osh_status osh_acts_get(osh_ctx *cx, osh_tensor **t, osh_acts *a, const osh_acts_rows *r, bool last,
                        osh_device *d);
/* Stores samples [first, first + n) of a value. t is [their tokens, width] in the value's dtype. */
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
 *   disk                      values of `in` are read in advance if osh_acts_read_ahead was called
 *   else                      nothing
 * Values of `out` are not loaded before osh_acts_close. */
osh_status osh_acts_open(osh_ctx *cx, osh_acts *a, const bool *in, const bool *out,
                         int64_t n_tokens);
/* Announces a later osh_acts_get of these samples. Batches are announced in their order. The values
 * of a batch are announced in the order of the later calls. */
osh_status osh_acts_ask(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n);
osh_status osh_acts_close(osh_ctx *cx, osh_acts *a);
int64_t osh_acts_way_bytes(const osh_graph *g, int value, int64_t n_tokens); // gross bytes of
                                                                             // device memory
/* Frees these rows in memory. Does not change a file. */
void osh_acts_forget(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n);
bool osh_acts_has(const osh_acts *a, int value);
void osh_acts_drop(osh_ctx *cx, osh_acts *a, int value); // frees the rows and removes the file
/* For tier disk: puts the stored rows on the disk, so that a loss of power does not lose them. */
osh_status osh_acts_sync(osh_ctx *cx, osh_acts *a, int value);
/* Takes over the file that an earlier process of this run has stored in that stage, and checks
 * every slot. *found is false if there is no complete file. */
osh_status osh_acts_adopt(osh_ctx *cx, osh_acts *a, int value, uint64_t stage, bool *found);
/* Returns the gross bytes that are needed to compress one sample of any value, and to keep it. */
int64_t osh_acts_frame_bytes(const osh_graph *g, const osh_dataset *d);
int64_t osh_acts_stage_bytes(const osh_graph *g, const osh_dataset *d);
/* Bytes of samples [first, all) of a value in that tier: gross in memory, without compression on
 * the disk. On the disk with a device the result is that of osh_slots_bytes. */
int64_t osh_acts_bytes(const osh_graph *g, const osh_dataset *d, osh_tier tier, int value,
                       int64_t first);
/* For tier host with a device: returns the gross host bytes of a batch. */
int64_t osh_acts_batch_bytes(const osh_graph *g, int value, int64_t n_tokens);
/* Returns the gross bytes of the kept batches [0, n) of a value. batch_at [n + 1]: first sample of
 * each batch. */
int64_t osh_acts_kept_bytes(const osh_graph *g, const osh_dataset *d, int value,
                            const int64_t *batch_at, int64_t n);
#endif
