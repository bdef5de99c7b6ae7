/* fiber.h - a thread of a block: its own stack, switched by hand. */
#ifndef OSH_PLAY_FIBER_H
#define OSH_PLAY_FIBER_H
#include <stddef.h>

struct osh_fiber {
    void *sp;           // saved stack pointer, or the ucontext_t
    void *fake;         // of AddressSanitizer
    const void *bottom; // of the stack
    size_t bytes;
};
void osh_fiber_init(osh_fiber *f, char *stack, size_t n_bytes, void (*entry)(void)); // entry never returns
/* from: where the caller goes on later. ends: it never will. */
void osh_fiber_switch(osh_fiber *from, osh_fiber *to, bool ends);
void osh_fiber_enter(osh_fiber *self, osh_fiber *caller); // the first thing in entry: `caller` learns its stack
#endif
