/* fiber.h - an emulated thread of a block: it has its own stack, and other threads run only when it
 * calls osh_fiber_switch. */
#ifndef OSH_PLAY_FIBER_H
#define OSH_PLAY_FIBER_H
#include <stddef.h>

struct osh_fiber {
    void *sp;           // saved stack pointer, or a ucontext_t
    void *fake;         // fake stack of AddressSanitizer
    const void *bottom; // lowest address of the stack
    size_t bytes;
};
/* `entry` must never return. */
void osh_fiber_init(osh_fiber *f, char *stack, size_t n_bytes, void (*entry)(void));
/* Switches to the fiber `to`. The caller's state is stored in `from`, so the caller continues at
 * the next switch to `from`. If `ends` is true, the caller never continues. */
void osh_fiber_switch(osh_fiber *from, osh_fiber *to, bool ends);
// must be the first call of `entry`; records the stack of `caller`
void osh_fiber_enter(osh_fiber *self, osh_fiber *caller);
#endif
