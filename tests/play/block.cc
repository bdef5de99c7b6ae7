/* block.cc - runs a grid on the emulated GPU. The blocks run one after the other, and the threads
 * of a block are fibers. A thread runs until it must wait. At a barrier it waits for all threads of
 * the block, and at a warp call it waits for the lanes of the mask. Then the next thread that can
 * run continues. A thread that has not begun uses the fiber of the thread before it if that thread
 * has ended; otherwise it gets a fiber of its own. */
#include "block.h"
#include "fiber.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

enum { MAX_THREADS = 1024, STACK = 128 << 10, GUARD = 4096, SKEW = 192 };
enum state { AT_BARRIER, AT_WARP, ENDED };

struct async_copy {
    char *to;
    const char *from;
    size_t n, n_read;
    int group;
};

struct thread {
    osh_fiber *fiber; // fiber that runs the thread; NULL: the thread has not begun or has ended
    uint3 index;
    int id;             // index in block.threads
    state at;           // kind of the current or the last wait, or ENDED
    osh_play_site site; // call at which the thread waits
    int predicate;
    int group;                      // number of the open group of asynchronous copies
    std::vector<async_copy> copies; // pending copies, in the order of the calls
};

/* A warp. Lanes exchange data in slots when they meet. There are two sets of slots: lanes that
 * already run again may fill the second set while other lanes still read the first. */
struct warp {
    osh_play_site site; // site: call at which the lanes meet; mask: bits of these lanes
    uint32_t mask, arrived;
    int turn;
    uint64_t ready; // bits of all lanes in block.ready[ready_word]. 0: the warp has fewer than 32
                    // lanes, or its bits are in two words
    int ready_word;
    osh_play_slot slots[2][warpSize];
};

static struct {
    const osh_play_grid *g;
    osh_fiber scheduler, fibers[MAX_THREADS];
    osh_fiber *idle[MAX_THREADS], *from; // idle: a stack of fibers that run no thread; from: the
                                         // fiber that ran before the current one
    thread threads[MAX_THREADS];
    warp warps[MAX_THREADS / warpSize];
    thread *now;
    const int *order;                 // [n] indices of the threads in the order in which they run
    int places[MAX_THREADS];          // [thread] position in `order`
    uint64_t ready[MAX_THREADS / 64]; // one bit for each position in `order`: 1 if the thread at
                                      // this position can run
    int first_ready;                  // all words of `ready` before this one are 0
    int n, count; // n: number of threads of the block; count: number of threads whose predicate was
                  // not 0 at the last barrier
    int n_ended, n_idle;
    std::vector<char> dynamic;
} block;

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

void osh_play_die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("play: ", stderr);
    if (block.g)
        fprintf(stderr, "%s, block (%u, %u, %u): ", block.g->kernel, blockIdx.x, blockIdx.y,
                blockIdx.z);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    abort();
}

int osh_play_lane(void) { return block.now->id % warpSize; }
void *osh_play_dynamic_shared(void) { return block.dynamic.data(); }

static void pass_barrier(void);
static void fiber_main(void);
static char *stack_of(int i);

static void set_ready(int thread)
{
    int place = block.places[thread];
    block.ready[place / 64] |= (uint64_t)1 << place % 64;
    block.first_ready = std::min(block.first_ready, place / 64);
}

/* Makes some lanes of a warp ready. Bit i of `lanes` stands for the thread with the number
 * `first` + i. */
static void set_lanes_ready(const warp *w, uint32_t lanes, int first)
{
    uint32_t rest = ~lanes;
    if (w->ready && !(rest & (rest - 1))) { // a short cut: at most one lane is not in `lanes`
        uint64_t bits = w->ready;
        if (rest) bits &= ~((uint64_t)1 << block.places[first + __builtin_ctz(rest)] % 64);
        block.ready[w->ready_word] |= bits;
        block.first_ready = std::min(block.first_ready, w->ready_word);
        return;
    }
    for (; lanes; lanes &= lanes - 1) set_ready(first + __builtin_ctz(lanes));
}

static void set_all_ready(void)
{
    for (int i = 0; i < block.n; i += 64)
        block.ready[i / 64] = block.n - i < 64 ? ((uint64_t)1 << (block.n - i)) - 1 : ~(uint64_t)0;
    block.first_ready = 0;
}

/* Returns the first thread in the block's order that can run, or NULL. So a warp runs alone until
 * its lanes wait for other warps. This order keeps the stacks of the warp in the cache. */
static thread *find_ready(void)
{
    for (int &i = block.first_ready; i < (block.n + 63) / 64; i++) {
        if (!block.ready[i]) continue;
        int place = 64 * i + __builtin_ctzll(block.ready[i]);
        block.ready[i] &= block.ready[i] - 1;
        return &block.threads[block.order[place]];
    }
    return nullptr;
}

/* Chooses the next thread to run, and returns its fiber. A thread that has not begun gets the fiber
 * `own`, or a new fiber if `own` is NULL. If all threads wait, they pass a barrier. After the last
 * thread, returns the fiber of the scheduler. */
static osh_fiber *next_fiber(osh_fiber *own)
{
    thread *t;
    while (!(t = find_ready())) {
        if (block.n_ended == block.n) {
            if (osh_race_thread) osh_race_thread(-1);
            return &block.scheduler;
        }
        pass_barrier();
    }
    block.now = t, threadIdx = t->index;
    if (osh_race_thread) osh_race_thread(t->id);
    if (t->fiber) return t->fiber;
    if (own) return t->fiber = own;
    t->fiber = block.idle[--block.n_idle];
    int i = (int)(t->fiber - block.fibers);
    size_t skew = (size_t)(i % 128) * SKEW; // without the skew, all stacks would use a few sets of
                                            // the cache
    osh_fiber_init(t->fiber, stack_of(i), STACK - GUARD - skew, fiber_main);
    return t->fiber;
}

static void switch_fibers(osh_fiber *from, osh_fiber *to, bool ends)
{
    block.from = from;
    osh_fiber_switch(from, to, ends);
}

static void wait_at(state at, osh_play_site site)
{
    thread *t = block.now;
    t->at = at, t->site = site;
    osh_fiber *next = next_fiber(nullptr);
    if (next != t->fiber) switch_fibers(t->fiber, next, false);
}

int osh_play_barrier(osh_play_site site, int predicate)
{
    block.now->predicate = predicate != 0;
    wait_at(AT_BARRIER, site);
    return block.count;
}

/* Waits until all lanes of the mask have arrived, and returns their slots. The last lane to arrive
 * wakes the others. If `orders` is true, earlier writes of each lane are visible to all lanes. */
static const osh_play_slot *meet(osh_play_site site, uint32_t mask, const osh_play_slot &mine,
                                 bool orders)
{
    int me = block.now->id, first = me - me % warpSize, lane = me % warpSize, n = block.n - first;
    warp *w = &block.warps[me / warpSize];
    int turn = w->turn;

    if (!w->arrived) w->site = site, w->mask = mask;
    if (w->mask != mask || w->site.line != site.line || w->site.file != site.file)
        osh_play_die(
            "lane %d of warp %d meets with mask %08x in %s:%d, lanes %08x with %08x in %s:%d", lane,
            me / warpSize, mask, site.file, site.line, w->arrived, w->mask, w->site.file,
            w->site.line);
    if (!(mask >> lane & 1) || (n < warpSize && mask >> n))
        osh_play_die("%s:%d: the mask %08x lacks lane %d, or names lanes that the block of %d "
                     "threads does not have",
                     site.file, site.line, mask, lane, block.n);
    w->slots[turn][lane] = mine, w->arrived |= 1u << lane;
    if (w->arrived != mask) {
        wait_at(AT_WARP, site);
    } else {
        if (orders && osh_race_syncwarp) osh_race_syncwarp(me), osh_race_thread(me);
        set_lanes_ready(w, mask & ~(1u << lane), first);
        w->turn = !turn, w->arrived = 0;
    }
    return w->slots[turn];
}

const osh_play_slot *osh_play_warp(osh_play_site site, uint32_t mask, const osh_play_slot &mine)
{
    return meet(site, mask, mine, false);
}

void osh_play_meet(osh_play_site at, uint32_t mask) { (void)meet(at, mask, {{0}}, true); }

uint32_t osh_play_vote(osh_play_site at, uint32_t mask, int predicate)
{
    const osh_play_slot *slots = osh_play_warp(at, mask, {{predicate != 0}});
    uint32_t votes = 0;
    for (int i = 0; i < warpSize; i++) votes |= (mask >> i & 1 && slots[i].word[0] ? 1u : 0u) << i;
    return votes;
}

void osh_play_aligned(const void *p, size_t n, const char *what)
{
    if ((uintptr_t)p % n) osh_play_die("%s at an address that is no multiple of %zu", what, n);
}

void osh_play_async_copy(void *to, const void *from, size_t n_bytes, size_t n_read)
{
    thread *t = block.now;
    osh_play_aligned(to, n_bytes, "an asynchronous copy"),
        osh_play_aligned(from, n_bytes, "an asynchronous copy");
    if (osh_race_note && n_read) osh_race_note(from, n_read, false);
    if (osh_race_note) osh_race_note(to, n_bytes, true);
    memset(to, 0xff, n_bytes);
    t->copies.push_back({(char *)to, (const char *)from, n_bytes, n_read, t->group});
}

void osh_play_async_commit(void) { block.now->group++; }

void osh_play_async_wait(int n_left)
{
    thread *t = block.now;
    size_t n = 0;
    for (; n < t->copies.size() && t->copies[n].group < t->group - n_left; n++) {
        const async_copy &c = t->copies[n];
        memcpy(c.to, c.from, c.n_read), memset(c.to + c.n_read, 0, c.n - c.n_read);
        if (osh_race_note) osh_race_note(c.to, c.n, true);
    }
    t->copies.erase(t->copies.begin(), t->copies.begin() + (ptrdiff_t)n);
}

/* Entry of a fiber. Runs a thread. If the next thread to run has not begun, runs it too, and so
 * on. */
static void fiber_main(void)
{
    osh_fiber *self = block.now->fiber, *next;
    osh_fiber_enter(self, block.from);
    do {
        block.g->body();
        if (!block.now->copies.empty()) osh_play_die("a thread ends with copies under way");
        block.now->at = ENDED, block.now->fiber = nullptr, block.now->group = 0, block.n_ended++;
        next = next_fiber(self);
    } while (next == self);
    block.idle[block.n_idle++] = self;
    switch_fibers(self, next, true);
}

static char *stacks; // own: freed by the end of the process

static char *stack_of(int i)
{
    if (!stacks) {
        void *p = mmap(nullptr, (size_t)MAX_THREADS * STACK, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) osh_play_die("no memory for the stacks");
        stacks = (char *)p;
        for (int k = 0; k < MAX_THREADS; k++)
            mprotect(stacks + (size_t)k * STACK, GUARD, PROT_NONE);
    }
    return stacks + (size_t)i * STACK + GUARD;
}

static void say_where(const thread *t, char *text, size_t n)
{
    int i = t->id;
    if (t->at == ENDED) snprintf(text, n, "thread %d has ended", i);
    else
        snprintf(text, n, "thread %d waits at a %s in %s:%d", i,
                 t->at == AT_BARRIER ? "barrier" : "warp call", t->site.file, t->site.line);
}

/* Called when all threads wait. Checks that they wait at one barrier, and wakes them. */
static void pass_barrier(void)
{
    const thread *first = &block.threads[0];
    block.count = 0;
    for (int i = 0; i < block.n; i++) {
        thread *t = &block.threads[i];
        if (t->at != AT_BARRIER || t->site.line != first->site.line ||
            t->site.file != first->site.file) {
            char a[512], b[512];
            const thread *other = first->at == AT_BARRIER && i ? t : first;
            // finds a thread that waits at another call than the first thread
            for (int k = 0; k < block.n && other == first; k++)
                if (block.threads[k].at != first->at) other = &block.threads[k];
            say_where(first, a, sizeof a), say_where(other, b, sizeof b);
            osh_play_die("deadlock: %s, %s", a, b);
        }
        block.count += t->predicate;
    }
    if (osh_race_barrier) osh_race_barrier();
    set_all_ready();
}

/* Runs a block. Its threads reset their state when they end. */
static void run_block(void)
{
    std::fill(block.dynamic.begin(), block.dynamic.end(), (char)0xff);
    osh_play_poison_shared(block.g->entry);
    if (osh_race_block) osh_race_block();
    set_all_ready();
    block.n_ended = 0;
    switch_fibers(&block.scheduler, next_fiber(nullptr), false);
}

/* Numbers the threads of the grid's blocks. The first call makes the stacks and lists all fibers as
 * idle. */
static void prepare_threads(const std::vector<int> &order)
{
    if (!stacks) {
        stack_of(0);
        while (block.n_idle < MAX_THREADS)
            block.idle[block.n_idle] = &block.fibers[MAX_THREADS - 1 - block.n_idle],
            block.n_idle++;
    }
    block.order = order.data();
    for (int i = 0; i < block.n; i++) {
        unsigned u = (unsigned)i;
        block.places[order[(size_t)i]] = i;
        block.threads[i].id = i;
        block.threads[i].index = {u % blockDim.x, u / blockDim.x % blockDim.y,
                                  u / (blockDim.x * blockDim.y)};
    }
    for (int first = 0; first < block.n; first += warpSize) {
        warp *w = &block.warps[first / warpSize];
        w->ready = 0, w->ready_word = block.places[first] / 64;
        for (int i = first; i < first + warpSize; i++) {
            if (i >= block.n || block.places[i] / 64 != w->ready_word) {
                w->ready = 0;
                break;
            }
            w->ready |= (uint64_t)1 << block.places[i] % 64;
        }
    }
}

/* Returns the numbers 0 to n - 1 forward (seed 0), in reverse (1), or shuffled. */
static std::vector<int> order_of(size_t n, unsigned seed)
{
    std::vector<int> order(n);
    std::iota(order.begin(), order.end(), 0);
    if (seed == 1) std::reverse(order.begin(), order.end());
    if (seed > 1) {
        std::mt19937 rng(seed);
        for (size_t i = n; i > 1; i--) std::swap(order[i - 1], order[rng() % i]);
    }
    return order;
}

void osh_play_run(const osh_play_grid *g, unsigned seed)
{
    block.g = g, block.n = (int)(g->block.x * g->block.y * g->block.z);
    block.dynamic.resize(g->shared);
    block.dynamic.shrink_to_fit(); // the allocation has exactly g->shared bytes, so that
                                   // AddressSanitizer detects accesses past the end
    blockDim = g->block, gridDim = g->grid;
    std::vector<int> threads = order_of((size_t)block.n, seed);
    prepare_threads(threads);
    if (osh_race_grid) osh_race_grid((uintptr_t)stacks, (size_t)MAX_THREADS * STACK);
    for (int i : order_of((size_t)g->grid.x * g->grid.y * g->grid.z, seed)) {
        unsigned u = (unsigned)i;
        blockIdx = {u % gridDim.x, u / gridDim.x % gridDim.y, u / (gridDim.x * gridDim.y)};
        run_block();
    }
    block.g = nullptr;
}
