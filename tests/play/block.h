/* block.h - declarations that the files of the emulated GPU share. */
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
void osh_play_run(const osh_play_grid *g, unsigned order); // runs all blocks, one after the other

// fills the static shared memory of a kernel with NaN
void osh_play_poison_shared(const void *entry);
// returns the start of GPU memory; *end: end of GPU memory
uintptr_t osh_play_gpu_range(uintptr_t *end);

/* Functions of race.cc, if race.cc is linked. The functions are called, in the order below,
 * when a grid begins, when a block begins, when thread i continues (-1: no thread runs), when all
 * threads of a block or warp have met, and for a memory access that the compiler does not see. */
void osh_race_grid(uintptr_t stacks, size_t stack_bytes) __attribute__((weak));
void osh_race_block(void) __attribute__((weak));
void osh_race_thread(int i) __attribute__((weak));
extern "C" void osh_race_barrier(void) __attribute__((weak));
void osh_race_syncwarp(int thread) __attribute__((weak));
void osh_race_note(const void *p, size_t n, bool write) __attribute__((weak));
[[noreturn]] void osh_play_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#endif
