/* fiber.cc - switches between the stacks of fibers. Uses a few instructions on x86-64, and ucontext
 * on other CPUs. Each switch is reported to AddressSanitizer. */
#include "fiber.h"

#include <stdint.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#else
static void __sanitizer_start_switch_fiber(void **, const void *, size_t) {}
static void __sanitizer_finish_switch_fiber(void *, const void **, size_t *) {}
#endif

#ifdef __x86_64__
extern "C" void osh_fiber_swap(void **save_sp, void *load_sp);
__asm__(".text\n"
        ".globl osh_fiber_swap\n"
        ".type osh_fiber_swap, @function\n"
        "osh_fiber_swap:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq "
        "%r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size osh_fiber_swap, .-osh_fiber_swap\n");

static void prepare(osh_fiber *f, char *stack, size_t n_bytes, void (*entry)(void))
{
    uintptr_t top = ((uintptr_t)stack + n_bytes) & ~(uintptr_t)15;
    void **sp = (void **)top;
    *--sp = nullptr;         // the entry function has no return address
    *--sp = (void *)entry;   // the address to which osh_fiber_swap returns
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    f->sp = sp;
}
#else
static void osh_fiber_swap(void **save_sp, void *load_sp)
{
    ucontext_t here;
    *save_sp = &here;
    swapcontext(&here, (ucontext_t *)load_sp);
}

static void prepare(osh_fiber *f, char *stack, size_t n_bytes, void (*entry)(void))
{
    ucontext_t *c = (ucontext_t *)stack; // the context is stored at the far end of the stack
    getcontext(c);
    c->uc_stack.ss_sp = stack + sizeof *c;
    c->uc_stack.ss_size = n_bytes - sizeof *c;
    c->uc_link = nullptr;
    makecontext(c, entry, 0);
    f->sp = c;
}
#endif

void osh_fiber_init(osh_fiber *f, char *stack, size_t n_bytes, void (*entry)(void))
{
    f->fake = nullptr, f->bottom = stack, f->bytes = n_bytes;
    prepare(f, stack, n_bytes, entry);
}

void osh_fiber_switch(osh_fiber *from, osh_fiber *to, bool ends)
{
    __sanitizer_start_switch_fiber(ends ? nullptr : &from->fake, to->bottom, to->bytes);
    osh_fiber_swap(&from->sp, to->sp);
    __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
}

void osh_fiber_enter(osh_fiber *self, osh_fiber *caller)
{
    __sanitizer_finish_switch_fiber(self->fake, &caller->bottom, &caller->bytes);
}
