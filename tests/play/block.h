/* block.h - between the files of the harness. */
#ifndef OSH_PLAY_BLOCK_H
#define OSH_PLAY_BLOCK_H
#include "cuda_runtime.h"
#include "play.h"

struct osh_play_grid {
    const char *kernel; // its name, for messages
    dim3 grid, block;
    size_t shared; // dynamic, bytes
    std::function<void()> body;
};
void osh_play_run(const osh_play_grid *g, unsigned order); // all blocks, one after the other

void osh_play_poison_shared(void); // static shared memory of all kernels becomes NaN
[[noreturn]] void osh_play_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#endif
