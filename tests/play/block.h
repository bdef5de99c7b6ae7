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
[[noreturn]] void osh_play_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#endif
