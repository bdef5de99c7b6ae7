/* race.cc - finds races of an emulated kernel. In a race, two threads access the same memory, at
 * least one of them writes, and no barrier is between the accesses.
 *
 * The kernels are compiled with -fsanitize=thread, and this file has the functions that the
 * compiler calls for each access. For a word of memory the last write and the last two reads are
 * recorded. Two accesses of one block are ordered by a barrier of the block, two accesses of one
 * warp also by __syncwarp. A shuffle or a vote orders no accesses, as on a GPU. Two blocks of a
 * grid are never ordered, and share only GPU memory. Atomics and the stacks of threads are not
 * checked. */
#include "block.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { WORD = 4, PAGE_WORDS = 1 << 14 };
/* An access to a word of memory. The struct has two members, so two accesses are compared fast. */
struct access {
    uint64_t where; // number of the grid << 32 | number of the block, from 1
    /* Four numbers of 16 bits, from the lowest: the thread; the number of barriers before the
     * access; the number of __syncwarp calls before it; the mask of the accessed bytes. */
    uint64_t who;
};
enum { BARRIERS = 16, WARPS = 32, BYTES = 48, WRITTEN = 0x80 };
struct word { access write, read[2]; };

static struct {
    access now; // the current access; the mask of its bytes is 0 here
    bool inside; // true while a thread of a block runs
    uint16_t barriers, warps[32];
    uintptr_t stacks, stacks_end, gpu, gpu_end;
} at;

/* ---- state of the words of memory ---- */
enum { TOP_BITS = 17, MID_BITS = 14 };
static word **top[1 << TOP_BITS];

static struct { uintptr_t number; word *page; } recent[64]; // cache of pages, by the lowest bits of
                                                            // the page number

static __attribute__((noinline)) word *find_page(uintptr_t n)
{
    uintptr_t hi = n >> MID_BITS & ((1 << TOP_BITS) - 1), lo = n & ((1 << MID_BITS) - 1);
    if (!top[hi]) top[hi] = (word **)calloc(1 << MID_BITS, sizeof(word *));
    if (!top[hi][lo]) {
        void *m = mmap(nullptr, PAGE_WORDS * sizeof(word), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (m == MAP_FAILED) osh_play_die("no memory to look for races");
        top[hi][lo] = (word *)m;
    }
    return top[hi][lo];
}

static inline word *word_of(uintptr_t p)
{
    uintptr_t n = p / WORD / PAGE_WORDS;
    auto &r = recent[n % 64];
    if (r.number != n || !r.page) r = {n, find_page(n)};
    return &r.page[p / WORD % PAGE_WORDS];
}

/* ---- rules ---- */
static inline unsigned part(const access &a, int shift)
{
    return (unsigned)(a.who >> shift & 0xffff);
}

/* True if the access `a` cannot race with the current access: the two accesses are in different
 * grids or in one thread, do not share memory, or have a barrier between them. */
static inline bool ordered(const access &a, bool on_gpu)
{
    const access &b = at.now;
    if (a.where != b.where) return a.where >> 32 != b.where >> 32 || !on_gpu;
    if (part(a, 0) == part(b, 0) || part(a, BARRIERS) < part(b, BARRIERS)) return true;
    return part(a, 0) / 32 == part(b, 0) / 32 && part(a, WARPS) < part(b, WARPS);
}

[[noreturn]] static __attribute__((noinline)) void say_race(const access &a, uintptr_t p,
                                                            const char *what)
{
    osh_play_die("race: thread %u %s %p, %s by thread %u of %s", part(at.now, 0), what, (void *)p,
                 part(a, BYTES) & WRITTEN ? "written" : "read", part(a, 0),
                 a.where == at.now.where ? "this block" : "another block");
}

static inline void look(const access &a, unsigned bytes, bool on_gpu, uintptr_t p, const char *what)
{
    if (part(a, BYTES) & bytes && !ordered(a, on_gpu)) say_race(a, p, what);
}

/* Records and checks an access to some bytes of the word at p. If a thread repeats its last access,
 * the repetition is not checked. Any access of another thread since then was checked when it
 * happened. */
static inline void note_word(uintptr_t p, unsigned bytes, bool write, bool on_gpu)
{
    word *w = word_of(p);
    access mine = {at.now.where, at.now.who | (uint64_t)(write ? bytes | WRITTEN : bytes) << BYTES};
    const access &last = write ? w->write : w->read[0];
    if (last.where == mine.where && last.who == mine.who) return;
    look(w->write, bytes, on_gpu, p, write ? "writes" : "reads");
    if (write) {
        for (const access &r : w->read) look(r, bytes, on_gpu, p, "writes");
        w->write = mine;
    } else {
        if (last.where != mine.where || part(last, 0) != part(mine, 0)) w->read[1] = w->read[0];
        w->read[0] = mine;
    }
}

static inline __attribute__((always_inline)) void note(uintptr_t p, size_t n, bool write)
{
    if (!at.inside || (p >= at.stacks && p < at.stacks_end)) return;
    bool on_gpu = p >= at.gpu && p < at.gpu_end;
    for (uintptr_t end = p + n, next; p < end; p = next) {
        next = (p / WORD + 1) * WORD;
        if (next > end) next = end;
        note_word(p, ((1u << (next - p)) - 1) << p % WORD, write, on_gpu);
    }
}

/* ---- calls of block.cc ---- */
void osh_race_grid(uintptr_t stacks, size_t stack_bytes)
{
    at.now.where = ((at.now.where >> 32) + 1) << 32;
    at.stacks = stacks, at.stacks_end = stacks + stack_bytes;
    at.gpu = osh_play_gpu_range(&at.gpu_end);
}

void osh_race_block(void)
{
    at.now.where++, at.barriers = 0;
    for (uint16_t &w : at.warps) w = 0;
}

void osh_race_thread(int i) // i: index of the thread that runs from now on; -1: no thread
{
    at.inside = i >= 0;
    if (i < 0) return;
    at.now.who =
        (uint64_t)i | (uint64_t)at.barriers << BARRIERS | (uint64_t)at.warps[i / 32] << WARPS;
}

// on_gpu.h tests whether this function exists: if it does, races are checked
extern "C" void osh_race_barrier(void) { at.barriers++; }
void osh_race_syncwarp(int thread) { at.warps[thread / 32]++; }
void osh_race_note(const void *p, size_t n, bool write) { note((uintptr_t)p, n, write); }

/* ---- calls that the compiler inserts ---- */
extern "C" {
void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
#define ACCESS(n)                                                                                  \
    void __tsan_read##n(void *p) { note((uintptr_t)p, n, false); }                                 \
    void __tsan_write##n(void *p) { note((uintptr_t)p, n, true); }                                 \
    void __tsan_unaligned_read##n(void *p) { note((uintptr_t)p, n, false); }                       \
    void __tsan_unaligned_write##n(void *p) { note((uintptr_t)p, n, true); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void *p, size_t n) { note((uintptr_t)p, n, false); }
void __tsan_write_range(void *p, size_t n) { note((uintptr_t)p, n, true); }
void __tsan_vptr_update(void *, void *) {}
void __tsan_vptr_read(void *) {}
}
