/* activations.h - values between subgraphs, sample by sample, bit for bit in its dtype. How samples are batched
 * leaves no trace here.
 *
 * Memory: a block for each sample; with a device one for each batch, which must have the same samples each time, there
 * or, page-locked, in host memory (blocks.h). Samples that are kept (osh_acts_keep) rest as the tensors that the
 * batches made. Disk: a file for each value, a slot of fixed place for each sample (slots.h), so that a run that was
 * killed can take up what is complete. */
#ifndef OSH_ACTIVATIONS_H
#define OSH_ACTIVATIONS_H
#include "graph/exec.h"
#include "store/tier.h"
#include "tensor/device.h"
#include "data/dataset.h"

typedef struct osh_acts osh_acts;
typedef struct osh_acts_place {
    osh_tier tier;
    const char *dir; // disk: as osh_scratch_open has it; files that lie there stay until their value is stored
    bool zstd;       // disk
} osh_acts_place;
osh_status osh_acts_new(osh_ctx *cx, osh_acts **out, const osh_graph *g, const osh_dataset *d,
                        const osh_acts_place *place);
/* Of the same graph and samples as `beside`, for other values of theirs, in host memory or on the disk, f16: as F16,
 * compressed likewise: in dir, which is the same, and whose files are others. It goes before that one, with its
 * files. */
osh_status osh_acts_new_beside(osh_ctx *cx, osh_acts **out, const osh_acts *beside, osh_tier tier, bool f16,
                               const char *dir);
int64_t osh_acts_own_bytes(const osh_graph *g); // without any value
/* Before the first value: the tier device is that one's memory, and batches lie there. */
osh_status osh_acts_use(osh_ctx *cx, osh_acts *a, osh_device *d);
/* Before the first value: rows of samples [0, n) are handed over and back, not copied; the tier is that of the others.
 * Batches have the same samples each time, and none of them samples of both kinds. */
void osh_acts_keep(osh_acts *a, int64_t n);
/* Before osh_acts_use: host memory on the way to a device is not page-locked. */
void osh_acts_unpinned(osh_acts *a);
/* Behind osh_acts_use: disk, so many threads read n_batches ahead (loaders.h) between osh_acts_open and osh_acts_close.
 * Nothing elsewhere. */
osh_status osh_acts_read_ahead(osh_ctx *cx, osh_acts *a, int n_threads, int64_t n_batches);
int64_t osh_acts_ahead(const osh_acts *a); // batches that osh_acts_ask is to be told of before they are wanted
/* The device has a stage for files (ops/cuda/cuda.h): it reads those of values itself, by cuFile. */
void osh_acts_by_card(osh_acts *a);
/* Disk. run: a number that no other run has; stage: of the work that the values which are stored now come from. */
void osh_acts_of_run(osh_acts *a, uint64_t run);
void osh_acts_stage(osh_acts *a, uint64_t stage);
void osh_acts_free(osh_ctx *cx, osh_acts *a, bool keep_files);
/* osh_acts_store; takes *t, which is NULL then, where these samples are kept. */
osh_status osh_acts_put(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n, osh_tensor **t);
typedef struct osh_acts_rows { // of samples [first, first + n)
    int value;
    int64_t first, n;
} osh_acts_rows;
/* A tensor of these rows on `d` (or NULL: host memory): kept samples' own, as a view that lives until the value is
 * dropped, or with `last` given away; else a new one. own */
osh_status osh_acts_get(osh_ctx *cx, osh_tensor **t, osh_acts *a, const osh_acts_rows *r, bool last, osh_device *d);
/* Rows of samples [first, first + n) of a value: t is [their tokens, width] in the value's dtype. */
osh_status osh_acts_store(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n, const osh_tensor *t);
osh_status osh_acts_load(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n, osh_tensor *t);
/* The same of one sample, without a device. */
osh_status osh_acts_sample(osh_ctx *cx, osh_acts *a, int value, int64_t sample, osh_tensor *t);
/* With a device and tier host, until osh_acts_close: values of `in` are read ahead by osh_acts_ask, and values of `out`
 * are stored beside the work, by way of blocks of the device's memory (osh_acts_way_bytes each) for n_tokens tokens. On
 * the disk values of `in` are read ahead, where osh_acts_read_ahead was called. Nothing elsewhere. Values of `out` are
 * not loaded before osh_acts_close. in, out: [values]. */
osh_status osh_acts_open(osh_ctx *cx, osh_acts *a, const bool *in, const bool *out, int64_t n_tokens);
/* For a later osh_acts_get of the same samples: batches in their order, and of each its values in the order in which
 * they are wanted. */
osh_status osh_acts_ask(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n);
osh_status osh_acts_close(osh_ctx *cx, osh_acts *a);
int64_t osh_acts_way_bytes(const osh_graph *g, int value, int64_t n_tokens);
void osh_acts_forget(osh_ctx *cx, osh_acts *a, int value, int64_t first, int64_t n); // memory only: these rows go
bool osh_acts_has(const osh_acts *a, int value);
void osh_acts_drop(osh_ctx *cx, osh_acts *a, int value); // its file, too
osh_status osh_acts_sync(osh_ctx *cx, osh_acts *a, int value); // disk: what was stored survives a loss of power
/* Takes up the file that an earlier process of this run stored in that stage; *found false: there is none that is
 * complete. Every slot is checked. */
osh_status osh_acts_adopt(osh_ctx *cx, osh_acts *a, int value, uint64_t stage, bool *found);
int64_t osh_acts_frame_bytes(const osh_graph *g, const osh_dataset *d); // room to compress one sample of any value
int64_t osh_acts_stage_bytes(const osh_graph *g, const osh_dataset *d); // room for one sample of any value
/* What a value's samples [first, all) take in that tier: gross, or of its file without compression; with a device those
 * of osh_slots_bytes. */
int64_t osh_acts_bytes(const osh_graph *g, const osh_dataset *d, osh_tier tier, int value, int64_t first);
int64_t osh_acts_batch_bytes(const osh_graph *g, int value, int64_t n_tokens); // tier host with a device: of a batch
/* What batches [0, n) of a value take that are kept; batch_at [n + 1]: their first samples. */
int64_t osh_acts_kept_bytes(const osh_graph *g, const osh_dataset *d, int value, const int64_t *batch_at, int64_t n);
#endif
