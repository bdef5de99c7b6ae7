/* play.h - knobs of the emulated GPU, for tests. All of them take effect at the next call. */
#ifndef OSH_PLAY_H
#define OSH_PLAY_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
/* Order of the threads of a block and of the blocks of a grid: 0 forward, 1 reverse, otherwise
 * shuffled by the seed. */
void osh_play_order(unsigned seed);
/* Work of a stream is done when the host waits for it (true), or when it is requested (false, the
 * default). A program that lacks an event or a wait gives different values in the two modes. */
void osh_play_lazy(bool on);
/* Lazy streams do their work: first the stream that was opened as number `first` (from 0) of the
 * open ones, and the work it waits for, then the next ones in turn. Work for which a stream does
 * not wait may be done or not. */
void osh_play_drain(int first);
/* Host code that touches the GPU's memory crashes (default: true). */
void osh_play_protect(bool on);
void osh_play_memory(size_t n_bytes); // sets the bytes of GPU memory; default 1 GiB
/* Shared memory of a multiprocessor; a block may use 1 KiB less. The default is 228 KiB, Hopper's.
 */
void osh_play_shared(size_t n_bytes);
/* The n-th call of `name` from now (1: the next) fails with this error. If the error is a lost GPU
 * (719), all later calls fail, too. NULL: no call fails. "launch" counts kernels; a failure in a
 * stream is reported by the next call. */
void osh_play_fail(const char *name, int n, int error);
// for the emulated libraries: the error that osh_play_fail set for this call
int osh_play_fault(const char *name);
extern size_t osh_play_solver_bytes;  // GPU memory that each call of cuSOLVER needs; default 1 KiB
// more bytes of potrf and trtri for each element of a square; default 0
extern size_t osh_play_solver_each[2];
/* Products on tensor cores (of BF16, F16 and TF32) truncate their sums after 16 products, or 8,
 * like Hopper's; by default they round. */
void osh_play_truncate(bool on);
extern bool osh_play_truncates; // for the emulated libraries
// bytes of GPU memory and pinned memory, streams and events that were not freed
size_t osh_play_live(void);
long osh_play_launches(void);   // so far
// so far, for the calls that osh_play_fail can make fail, and cudaHostUnregister
long osh_play_calls(const char *name);
/* For the emulated libraries: calls fn(user) in the order of the stream, with GPU memory
 * accessible. */
void osh_play_submit(void *stream, void (*fn)(void *user), void *user);
// calls fn(user) at once, beside all streams
void osh_play_touch(void (*fn)(void *user), void *user);
bool osh_play_is_card(const void *p, size_t n_bytes); // true if all n_bytes are GPU memory
#ifdef __cplusplus
}
#endif
#endif
