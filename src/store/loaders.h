/* loaders.h - threads that read batches of values ahead from the disk (slots.h), a sample each at a time, in the order
 * in which the batches are asked for.
 *
 *   without a card   disk -> a tensor in host memory, which is handed over
 *   with one         disk -> a block of host memory (blocks.h), page-locked or not -> the card
 *
 * What a thread cannot read is as if nobody had asked for it: who wants it reads it then, and says what is wrong. */
#ifndef OSH_LOADERS_H
#define OSH_LOADERS_H
#include "store/slots.h"

typedef struct osh_loaders osh_loaders;
/* Of n_threads, which read what lies in slots as those of s do; device: NULL: without a card. s outlives it. */
osh_status osh_loaders_new(osh_ctx *cx, osh_loaders **out, const osh_slots *s, int n_threads, osh_device *device,
                           bool pin);
void osh_loaders_free(osh_ctx *cx, osh_loaders *l); // stops; NULL is fine
osh_status osh_loaders_start(osh_ctx *cx, osh_loaders *l);
osh_status osh_loaders_stop(osh_ctx *cx, osh_loaders *l); // waits; what was not taken goes. Not started: nothing
/* Samples [first, first + n) of a value; f stays as it is until they are taken, or the threads stopped. */
osh_status osh_loaders_ask(osh_ctx *cx, osh_loaders *l, const osh_slot_file *f, int value, int64_t first, int64_t n);
/* Without a card: those that were asked for, from `first` on, as soon as they are there, as memory of the class in use.
 * *t NULL: they are not. own */
osh_status osh_loaders_take(osh_ctx *cx, osh_loaders *l, int value, int64_t first, osh_tensor **t);
/* With one: the same to t, which lies on it; *found false: they are not. */
osh_status osh_loaders_load(osh_ctx *cx, osh_loaders *l, int value, int64_t first, osh_tensor *t, bool *found);
/* Batches to be asked for ahead, so that each thread has a sample to read. */
int64_t osh_loaders_ahead(int64_t n_threads, int64_t n_samples, int64_t n_batches);
/* Host bytes, gross: of n_threads, a frame's bytes each (0: nothing is compressed), and of a value's part of n_ahead
 * batches of n_tokens. */
int64_t osh_loaders_own_bytes(int64_t n_threads, int64_t frame);
int64_t osh_loaders_value_bytes(const osh_graph *g, int value, int64_t n_ahead, int64_t n_tokens, bool card);
#endif
