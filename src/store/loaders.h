/* loaders.h - prefetches batches of values from the disk (slots.h), on threads. Each thread reads
 * one sample at a time, in the order in which the batches were requested.
 *
 *   without a GPU   disk -> a tensor in host memory, which the caller gets
 *   with a GPU      disk -> a block of host memory (blocks.h), page-locked or not -> the GPU
 *
 * If a thread cannot read a batch, the functions behave as if the batch was not requested. The
 * caller then reads the batch itself, and this read fails with the error. */
#ifndef OSH_LOADERS_H
#define OSH_LOADERS_H
#include "store/slots.h"

typedef struct osh_loaders osh_loaders;
/* Makes n_threads loaders, which read files with the layout that s describes. osh_loaders_start
 * starts the threads. device: NULL if there is no GPU. s must outlive the loaders. */
osh_status osh_loaders_new(osh_ctx *cx, osh_loaders **out, const osh_slots *s, int n_threads,
                           osh_device *device, bool pin);
void osh_loaders_free(osh_ctx *cx, osh_loaders *l); // also stops the threads; accepts NULL
osh_status osh_loaders_start(osh_ctx *cx, osh_loaders *l);
/* Stops the threads, waits for their end, and frees the batches that were not taken. Does nothing
 * if no thread was started. */
osh_status osh_loaders_stop(osh_ctx *cx, osh_loaders *l);
/* Requests the samples [first, first + n) of a value. f must not change until these samples are
 * taken or the threads are stopped. */
osh_status osh_loaders_ask(osh_ctx *cx, osh_loaders *l, const osh_slot_file *f, int value,
                           int64_t first, int64_t n);
/* Without a GPU: waits for the requested batch that begins with sample `first`. Sets *t to a tensor
 * of the batch, which the caller frees. The memory of the tensor counts for the caller's memory
 * class (osh_mem_use). Sets *t to NULL if the batch was not requested, or could not be read. */
osh_status osh_loaders_take(osh_ctx *cx, osh_loaders *l, int value, int64_t first, osh_tensor **t);
/* With a GPU: waits for the requested batch that begins with sample `first`, and copies it to t in
 * GPU memory. Sets *found to false if the batch was not requested, or could not be read. */
osh_status osh_loaders_load(osh_ctx *cx, osh_loaders *l, int value, int64_t first, osh_tensor *t,
                            bool *found);
/* Returns the number of batches that the caller must request before it takes the first one, so that
 * each thread has a sample to read. */
int64_t osh_loaders_ahead(int64_t n_threads, int64_t n_samples, int64_t n_batches);
/* Both functions return host bytes, with the allocator's overhead. osh_loaders_own_bytes counts
 * n_threads loaders. Each of them has a buffer of `frame` bytes for decompression (0 if samples are
 * not compressed). osh_loaders_value_bytes counts n_ahead batches of one value, each of n_tokens
 * tokens. */
int64_t osh_loaders_own_bytes(int64_t n_threads, int64_t frame);
int64_t osh_loaders_value_bytes(const osh_graph *g, int value, int64_t n_ahead, int64_t n_tokens,
                                bool gpu);
#endif
