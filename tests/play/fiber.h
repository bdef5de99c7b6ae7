/* fiber.h - emulates a thread of a block by a fiber. A fiber has its own stack. Other fibers run
 * only when the running fiber calls osh_fiber_switch. */
#ifndef OSH_PLAY_FIBER_H
#define OSH_PLAY_FIBER_H
#include <stddef.h>

struct osh_fiber {
    void *sp;           // saved stack pointer; on CPUs other than x86-64, a ucontext_t
    void *fake;         // fake stack of AddressSanitizer
    const void *bottom; // lowest address of the stack
    size_t bytes;
};
/* `entry` must never return. */
void osh_fiber_init(osh_fiber *f, char *stack, size_t n_bytes, void (*entry)(void));
/* Switches to the fiber `to`. Stores the caller's state in `from`, so that the caller continues at
 * the next switch to `from`. If `ends` is true, the caller never continues. */
void osh_fiber_switch(osh_fiber *from, osh_fiber *to, bool ends);
// must be the first call of `entry`; records the stack of `caller`
void osh_fiber_enter(osh_fiber *self, osh_fiber *caller);
#endif
