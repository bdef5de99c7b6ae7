/* fiber.h - a thread of a block: its own stack, switched by hand. */
#ifndef OSH_PLAY_FIBER_H
#define OSH_PLAY_FIBER_H
#include <stddef.h>

struct osh_fiber {
    void *sp;           // saved stack pointer, or a ucontext_t
    void *fake;         // fake stack of AddressSanitizer
    const void *bottom; // lowest address of the stack
    size_t bytes;
};
void osh_fiber_init(osh_fiber *f, char *stack, size_t n_bytes, void (*entry)(void)); // entry never returns
/* Switches from the caller's fiber to another. `from` is where the caller continues later; if
 * `ends` is set, it never does. */
void osh_fiber_switch(osh_fiber *from, osh_fiber *to, bool ends);
// entry must call it first: `caller` learns its stack
void osh_fiber_enter(osh_fiber *self, osh_fiber *caller);
#endif
