/* play.h - knobs of the played card, for tests. All of them act from the next call on. */
#ifndef OSH_PLAY_H
#define OSH_PLAY_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
/* Order of the threads of a block and of the blocks of a grid: 0 forward, 1 reverse, else shuffled by the seed. */
void osh_play_order(unsigned seed);
/* Work of a stream is done when the host waits for it (true), or when it is asked for (false, the default): with both,
 * what lacks an event or a wait gives other values. */
void osh_play_lazy(bool on);
/* Streams that were lazy do their work: that which was opened as number `first` of those that are open, from 0 on, and
 * what it waits for, then the next ones in turn. What a stream does not wait for it finds undone, or done already. */
void osh_play_drain(int first);
/* Host code that touches the card's memory crashes (default: true). */
void osh_play_protect(bool on);
void osh_play_memory(size_t n_bytes); // of the card; default 1 GiB
/* Shared memory of a multiprocessor; a block may have 1 KiB less. Default 228 KiB, Hopper's. */
void osh_play_shared(size_t n_bytes);
/* The n-th call of `name` from now (1: the next) fails with this error, and from then on all of it where the card is
 * lost (error 719). NULL: no call does. "launch" counts kernels; what a stream does fails at the next call. */
void osh_play_fail(const char *name, int n, int error);
int osh_play_fault(const char *name); // for the played libraries: what osh_play_fail wants of this call of theirs
extern size_t osh_play_solver_bytes;  // of the card, that each call of cuSOLVER wants; default 1 KiB
extern size_t osh_play_solver_each[2]; // that potrf and trtri want besides for each element of a square; default 0
/* Products on tensor cores (of BF16, F16 and TF32) cut their sums off behind 16 products, or 8, as Hopper's do; default
 * false: they round. */
void osh_play_truncate(bool on);
extern bool osh_play_truncates; // for the played libraries
size_t osh_play_live(void);     // bytes of card memory, pinned memory, streams and events that were not given back
long osh_play_launches(void);   // so far
long osh_play_calls(const char *name); // so far, of a call that osh_play_fail can make fail, and cudaHostUnregister
/* For the played libraries: fn(user) at its turn on the stream, with the card's memory open. */
void osh_play_submit(void *stream, void (*fn)(void *user), void *user);
void osh_play_touch(void (*fn)(void *user), void *user); // the same at once, beside all streams
bool osh_play_is_card(const void *p, size_t n_bytes); // all of it is memory of the card
#ifdef __cplusplus
}
#endif
#endif
