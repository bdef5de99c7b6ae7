/* play.h - declares functions by which tests set options of the emulated GPU. An option takes
 * effect at the next call of CUDA. */
#ifndef OSH_PLAY_H
#define OSH_PLAY_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
/* Sets the order in which the blocks of a grid run, and the threads of a block. A `seed` of 0 means
 * forward, 1 means reverse, and any other seed shuffles them. */
void osh_play_order(unsigned seed);
/* If `on` is false (the default), a stream does its work when the work is requested. If `on` is
 * true, it does its work when the host waits for it. A program that lacks an event or a wait
 * computes different values in the two modes. */
void osh_play_lazy(bool on);
/* Makes lazy streams do their work. The open streams are numbered from 0 in the order of opening.
 * Stream `first` begins, and then the next streams work, one after the other. If a stream waits for
 * other streams, they do this work before it. */
void osh_play_drain(int first);
/* If true (the default), host code that accesses GPU memory crashes. */
void osh_play_protect(bool on);
/* Sets the number of bytes of GPU memory; the default is 1 GiB. */
void osh_play_memory(size_t n_bytes);
/* Sets the number of emulated GPUs; the default is 1. Ordinal 0 is GPU number `first` of the
 * machine. This number decides the UUIDs. */
void osh_play_gpus(int n, int first);
/* Sets the shared memory of a multiprocessor. A block may use 1 KiB less. The default is 228 KiB,
 * as on Hopper. */
void osh_play_shared(size_t n_bytes);
/* Makes the n-th call of the function `name` from now on fail with the error. If n is 1, the next
 * call fails. If the error is a lost GPU (719), all later calls fail, too. If `name` is NULL, no
 * call fails. The name "launch" stands for launches of kernels. A failure in a stream is reported
 * by the next call. */
void osh_play_fail(const char *name, int n, int error);
// for the emulated libraries: counts a call and returns its error, which osh_play_fail has set
int osh_play_fault(const char *name);
/* Number of bytes of GPU memory that cuSOLVER asks for in each call; the default is 1 KiB. */
extern size_t osh_play_solver_bytes;
/* potrf also asks for this number of bytes for each element of the matrix. The default is 0. */
extern size_t osh_play_solver_each;
/* If true, sums of products of BF16, F16 and TF32 are truncated after 16 products (TF32: 8), as on
 * Hopper's tensor cores. By default they are rounded. */
void osh_play_truncate(bool on);
extern bool osh_play_truncates; // true if osh_play_truncate is on; for the emulated libraries
/* Returns the number of bytes of GPU memory and pinned memory that are not freed, plus the number
 * of streams and events. */
size_t osh_play_live(void);
long osh_play_launches(void);   // returns the number of launches so far
/* Returns the number of calls of the function `name` so far; the name must be one that
 * osh_play_fail accepts, or cudaHostUnregister. */
long osh_play_calls(const char *name);
/* For the emulated libraries: calls fn(user) in the order of the stream. fn may access GPU
 * memory. */
void osh_play_submit(void *stream, void (*fn)(void *user), void *user);
// calls fn(user) immediately, without waiting for a stream
void osh_play_touch(void (*fn)(void *user), void *user);
bool osh_play_is_gpu(const void *p, size_t n_bytes); // returns true if all n_bytes at p are GPU
                                                     // memory
#ifdef __cplusplus
}
#endif
#endif
