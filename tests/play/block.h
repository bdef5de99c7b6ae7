/* block.h - between the files of the harness. */
#ifndef OSH_PLAY_BLOCK_H
#define OSH_PLAY_BLOCK_H
#include "cuda_runtime.h"
#include "play.h"

struct osh_play_grid {
    const char *kernel; // its name, for messages
    const void *entry;
    dim3 grid, block;
    size_t shared; // dynamic, bytes
    std::function<void()> body;
};
void osh_play_run(const osh_play_grid *g, unsigned order); // all blocks, one after the other

void osh_play_poison_shared(const void *entry); // the static shared memory of a kernel becomes NaN
uintptr_t osh_play_card_range(uintptr_t *end); // from the first byte of the card's memory to the last one

/* race.cc, where it is linked: a grid begins, a block, a thread goes on (-1: none), all threads or a warp have met, an
 * access that the compiler does not see. */
void osh_race_grid(uintptr_t stacks, size_t stack_bytes) __attribute__((weak));
void osh_race_block(void) __attribute__((weak));
void osh_race_thread(int i) __attribute__((weak));
extern "C" void osh_race_barrier(void) __attribute__((weak));
void osh_race_syncwarp(int thread) __attribute__((weak));
void osh_race_note(const void *p, size_t n, bool write) __attribute__((weak));
[[noreturn]] void osh_play_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#endif
