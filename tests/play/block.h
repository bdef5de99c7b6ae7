/* block.h - has declarations that the files of the emulated GPU share. */
#ifndef OSH_PLAY_BLOCK_H
#define OSH_PLAY_BLOCK_H
#include "cuda_runtime.h"
#include "play.h"
#include <functional>

struct osh_play_grid {
    const char *kernel; // name of the kernel, for messages
    const void *entry;
    dim3 grid, block;
    size_t shared; // number of bytes of dynamic shared memory
    std::function<void()> body;
};
void osh_play_run(const osh_play_grid *g, unsigned order); // runs all blocks of the grid, one after
                                                           // the other

// fills the static shared memory of a kernel with NaN
void osh_play_poison_shared(const void *entry);
// returns the start of GPU memory; *end: end of GPU memory
uintptr_t osh_play_gpu_range(uintptr_t *end);

/* Functions of race.cc, which exist only if race.cc is linked:
 *   osh_race_grid     a grid begins
 *   osh_race_block    a block begins
 *   osh_race_thread   thread i continues; -1: no thread runs
 *   osh_race_barrier  all threads of a block have met
 *   osh_race_syncwarp the threads of a warp have met
 *   osh_race_note     a thread accesses memory, and the compiler does not insert a call for it */
void osh_race_grid(uintptr_t stacks, size_t stack_bytes) __attribute__((weak));
void osh_race_block(void) __attribute__((weak));
void osh_race_thread(int i) __attribute__((weak));
extern "C" void osh_race_barrier(void) __attribute__((weak));
void osh_race_syncwarp(int thread) __attribute__((weak));
void osh_race_note(const void *p, size_t n, bool write) __attribute__((weak));
[[noreturn]] void osh_play_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#endif
