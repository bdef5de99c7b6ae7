/* race.cc - finds races of an emulated kernel: accesses of two threads, one of them a write,
 * without a barrier between them.
 *
 * The kernels are compiled with -fsanitize=thread, whose calls come here instead of to its own
 * runtime. A word of memory keeps its last writer and its last two readers. Two accesses of one
 * block are ordered by a barrier of the block, two of one warp also by __syncwarp; a shuffle or a
 * vote orders nothing, as on a GPU. Nothing orders two blocks of a grid, and they share only GPU
 * memory. Atomics and a thread's own stack are not checked. */
#include "block.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { WORD = 4, PAGE_WORDS = 1 << 14 };
struct access {
    uint32_t grid, block;             // counted from 1
    uint16_t thread, barriers, warps; // barriers and __syncwarps before the access
    uint8_t bytes;                    // bytes of the word, one bit each
};
struct word { access write, read[2]; };

static struct {
    access now;
    bool inside; // a thread of a block runs
    uint16_t barriers, warps[32];
    uintptr_t stacks, stacks_end, card, card_end;
} at;

/* ---- state of a word: pages by address, until the process ends ---- */
enum { TOP_BITS = 17, MID_BITS = 14 };
static word **top[1 << TOP_BITS];

static word *word_of(uintptr_t p)
{
    uintptr_t n = p / WORD / PAGE_WORDS, hi = n >> MID_BITS & ((1 << TOP_BITS) - 1), lo = n & ((1 << MID_BITS) - 1);
    if (!top[hi]) top[hi] = (word **)calloc(1 << MID_BITS, sizeof(word *));
    if (!top[hi][lo]) {
        void *m = mmap(nullptr, PAGE_WORDS * sizeof(word), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (m == MAP_FAILED) osh_play_die("no memory to look for races");
        top[hi][lo] = (word *)m;
    }
    return &top[hi][lo][p / WORD % PAGE_WORDS];
}

/* ---- rules ---- */
static bool ordered(const access &a, bool on_card) // true if a is ordered before the present access
{
    const access &b = at.now;
    if (a.grid != b.grid) return true;
    if (a.block != b.block) return !on_card;
    if (a.thread == b.thread || a.barriers < b.barriers) return true;
    return a.thread / 32 == b.thread / 32 && a.warps < b.warps;
}

static void look(const access &a, uint8_t bytes, bool on_card, uintptr_t p, const char *what)
{
    if (!(a.bytes & bytes) || ordered(a, on_card)) return;
    osh_play_die("race: thread %u %s %p, %s by thread %u of %s", at.now.thread, what, (void *)p,
                 a.bytes & 0x80 ? "written" : "read", a.thread, a.block == at.now.block ? "this block" : "another block");
}

static void note(uintptr_t p, size_t n, bool write)
{
    if (!at.inside || (p >= at.stacks && p < at.stacks_end)) return;
    bool on_card = p >= at.card && p < at.card_end;
    for (uintptr_t end = p + n, next; p < end; p = next) {
        next = (p / WORD + 1) * WORD;
        if (next > end) next = end;
        uint8_t bytes = (uint8_t)(((1u << (next - p)) - 1) << p % WORD);
        word *w = word_of(p);
        look(w->write, bytes, on_card, p, write ? "writes" : "reads");
        access mine = at.now;
        if (write) {
            for (const access &r : w->read) look(r, bytes, on_card, p, "writes");
            mine.bytes = bytes | 0x80;
            w->write = mine;
        } else {
            mine.bytes = bytes;
            bool again = w->read[0].thread == mine.thread && w->read[0].block == mine.block &&
                         w->read[0].grid == mine.grid;
            if (!again) w->read[1] = w->read[0];
            w->read[0] = mine;
        }
    }
}

/* ---- from block.cc ---- */
void osh_race_grid(uintptr_t stacks, size_t stack_bytes)
{
    at.now.grid++, at.now.block = 0;
    at.stacks = stacks, at.stacks_end = stacks + stack_bytes;
    at.card = osh_play_card_range(&at.card_end);
}

void osh_race_block(void)
{
    at.now.block++, at.barriers = 0;
    for (uint16_t &w : at.warps) w = 0;
}

void osh_race_thread(int i) // the thread that runs from now on; -1: none
{
    at.inside = i >= 0;
    if (i < 0) return;
    at.now.thread = (uint16_t)i, at.now.barriers = at.barriers, at.now.warps = at.warps[i / 32];
}

// card.h looks for this name to know that races are checked
extern "C" void osh_race_barrier(void) { at.barriers++; }
void osh_race_syncwarp(int thread) { at.warps[thread / 32]++; }
void osh_race_note(const void *p, size_t n, bool write) { note((uintptr_t)p, n, write); }

/* ---- from the compiler ---- */
extern "C" {
void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
#define ACCESS(n)                                                                                                      \
    void __tsan_read##n(void *p) { note((uintptr_t)p, n, false); }                                                     \
    void __tsan_write##n(void *p) { note((uintptr_t)p, n, true); }                                                     \
    void __tsan_unaligned_read##n(void *p) { note((uintptr_t)p, n, false); }                                           \
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
