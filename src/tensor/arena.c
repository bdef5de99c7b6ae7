/* arena.c - manages the blocks of a range of device addresses. The list of blocks is in host
 * memory. It is an array, sorted by offset, of free and taken blocks that cover the whole range
 * without a gap. */
#include "tensor/device.h"

#include <pthread.h>
#include <string.h>

/* All offsets and sizes are multiples of GRAIN bytes, because copies and tensor cores need aligned
 * addresses. */
enum { GRAIN = 512 };

typedef struct block {
    size_t offset, bytes;
    void *at; // view: separate allocation of the block outside of the arena (osh_arena_note)
    bool taken;
} block;

struct osh_arena {
    pthread_mutex_t lock;
    osh_ctx *cx;   // view: context for allocations; must outlive the arena
    block *blocks; // own [room]: the first n elements are used
    size_t n, room, used, peak;
    size_t aim;     // offset that osh_arena_aim requested; OSH_ANYWHERE: none
    size_t largest; // size of the largest free block in bytes; OSH_ANYWHERE: not computed
    size_t missed;
};

size_t osh_arena_gross(size_t n_bytes)
{
    return n_bytes ? (n_bytes + GRAIN - 1) / GRAIN * GRAIN : GRAIN;
}

osh_status osh_arena_new(osh_ctx *cx, osh_arena **out, size_t n_bytes)
{
    osh_status rc = OSH_OK;
    osh_arena *a = NULL; // own
    OSH_NEW(cx, a, 1);
    pthread_mutex_init(&a->lock, NULL);
    a->cx = cx, a->room = 64, a->aim = a->largest = OSH_ANYWHERE;
    OSH_NEW(cx, a->blocks, a->room);
    a->blocks[0] = (block){0, n_bytes / GRAIN * GRAIN, NULL, false};
    a->n = 1;
    *out = a, a = NULL; // give
done:
    osh_arena_free(cx, a);
    return rc;
}

void osh_arena_free(osh_ctx *cx, osh_arena *a)
{
    if (!a) return;
    osh_free(cx, a->blocks);
    pthread_mutex_destroy(&a->lock);
    osh_free(cx, a);
}

/* Returns the index of a free block of at least `bytes` bytes. For OSH_LIFE_LONG it is the first
 * such block of the arena, for OSH_LIFE_SHORT the last. Returns a->n if no free block is large
 * enough. */
static size_t arena_find(const osh_arena *a, size_t bytes, osh_life life)
{
    for (size_t k = 0; k < a->n; k++) {
        size_t i = life == OSH_LIFE_LONG ? k : a->n - 1 - k;
        if (!a->blocks[i].taken && a->blocks[i].bytes >= bytes) return i;
    }
    return a->n;
}

/* Inserts a copy of block i before block i. Returns false if the list of blocks cannot grow. */
static bool arena_open_slot(osh_arena *a, size_t i)
{
    if (a->n == a->room) {
        block *more = osh_realloc(a->cx, a->blocks, 2 * a->room * sizeof *more);
        if (!more) return false;
        a->blocks = more, a->room *= 2;
    }
    memmove(&a->blocks[i + 1], &a->blocks[i], (a->n - i) * sizeof *a->blocks);
    a->n++;
    return true;
}

/* Takes `bytes` bytes of the free block i, from its start (OSH_LIFE_LONG) or its end
 * (OSH_LIFE_SHORT). Returns false if the list of blocks cannot grow. */
static bool arena_cut(osh_arena *a, size_t i, size_t bytes, osh_life life, size_t *offset)
{
    size_t rest = a->blocks[i].bytes - bytes;
    if (rest) {
        if (!arena_open_slot(a, i)) return false;
        // `front` and `back` are still copies of the free block
        block *front = &a->blocks[i], *back = &a->blocks[i + 1];
        front->bytes = life == OSH_LIFE_LONG ? bytes : rest;
        back->offset = front->offset + front->bytes;
        back->bytes = life == OSH_LIFE_LONG ? rest : bytes;
        if (life == OSH_LIFE_SHORT) i++;
    }
    a->blocks[i].taken = true;
    *offset = a->blocks[i].offset;
    return true;
}

static void arena_merge_next(osh_arena *a, size_t i)
{
    if (i + 1 >= a->n || a->blocks[i].taken || a->blocks[i + 1].taken) return;
    a->blocks[i].bytes += a->blocks[i + 1].bytes;
    memmove(&a->blocks[i + 1], &a->blocks[i + 2], (a->n - i - 2) * sizeof *a->blocks);
    a->n--;
}

/* Returns the index of the block that contains the byte at `offset`. */
static size_t arena_block_at(const osh_arena *a, size_t offset)
{
    size_t lo = 0, hi = a->n;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (a->blocks[mid].offset <= offset) lo = mid;
        else hi = mid;
    }
    return lo;
}

/* Takes a block at the offset that osh_arena_aim requested, and cancels the request. Returns false
 * if there is no request, if the bytes at the offset are not free, or if the list of blocks cannot
 * grow. */
static bool arena_take_aimed(osh_arena *a, size_t bytes, size_t *offset)
{
    size_t aim = a->aim, i = arena_block_at(a, aim);
    block *b = &a->blocks[i];
    a->aim = OSH_ANYWHERE;
    if (aim == OSH_ANYWHERE || aim % GRAIN || b->taken || aim - b->offset > b->bytes ||
        bytes > b->bytes - (aim - b->offset))
        return false;
    if (aim > b->offset) {
        if (!arena_open_slot(a, i)) return false;
        a->blocks[i].bytes = aim - a->blocks[i].offset;
        a->blocks[i + 1].offset = aim, a->blocks[i + 1].bytes -= a->blocks[i].bytes;
        i++;
    }
    if (arena_cut(a, i, bytes, OSH_LIFE_LONG, offset)) return true;
    if (i) arena_merge_next(a, i - 1);
    return false;
}

void osh_arena_aim(osh_arena *a, size_t offset)
{
    pthread_mutex_lock(&a->lock);
    a->aim = offset;
    pthread_mutex_unlock(&a->lock);
}

bool osh_arena_take(osh_arena *a, size_t *offset, size_t n_bytes, osh_life life)
{
    size_t bytes = osh_arena_gross(n_bytes);
    pthread_mutex_lock(&a->lock);
    bool ok = life == OSH_LIFE_LONG && arena_take_aimed(a, bytes, offset);
    a->missed += life == OSH_LIFE_LONG && !ok;
    a->largest = OSH_ANYWHERE;
    size_t i = ok ? 0 : arena_find(a, bytes, life);
    if (!ok) ok = i < a->n && arena_cut(a, i, bytes, life, offset);
    if (ok) {
        a->used += bytes;
        if (a->used > a->peak) a->peak = a->used;
    }
    pthread_mutex_unlock(&a->lock);
    return ok;
}

void osh_arena_give(osh_arena *a, size_t offset)
{
    pthread_mutex_lock(&a->lock);
    size_t lo = arena_block_at(a, offset);
    a->blocks[lo].taken = false, a->blocks[lo].at = NULL;
    a->used -= a->blocks[lo].bytes;
    a->largest = OSH_ANYWHERE;
    arena_merge_next(a, lo);
    if (lo) arena_merge_next(a, lo - 1);
    pthread_mutex_unlock(&a->lock);
}

void osh_arena_note(osh_arena *a, size_t offset, void *at)
{
    pthread_mutex_lock(&a->lock);
    a->blocks[arena_block_at(a, offset)].at = at;
    pthread_mutex_unlock(&a->lock);
}

size_t osh_arena_noted(const osh_arena *a, const void *at)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&a->lock;
    size_t offset = OSH_ANYWHERE;
    pthread_mutex_lock(lock);
    for (size_t i = 0; i < a->n && offset == OSH_ANYWHERE; i++)
        if (a->blocks[i].taken && a->blocks[i].at == at) offset = a->blocks[i].offset;
    pthread_mutex_unlock(lock);
    return offset;
}

static size_t arena_read(const osh_arena *a, const size_t *figure)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&a->lock;
    pthread_mutex_lock(lock);
    size_t n = *figure;
    pthread_mutex_unlock(lock);
    return n;
}

size_t osh_arena_used(const osh_arena *a) { return arena_read(a, &a->used); }
size_t osh_arena_missed(const osh_arena *a) { return arena_read(a, &a->missed); }
size_t osh_arena_peak(const osh_arena *a) { return arena_read(a, &a->peak); }

size_t osh_arena_room(const osh_arena *a)
{
    // the cast is safe: only the member `largest` changes; it keeps the result for later calls
    osh_arena *known = (osh_arena *)a;
    pthread_mutex_lock(&known->lock);
    if (a->largest == OSH_ANYWHERE) {
        known->largest = 0;
        for (size_t i = 0; i < a->n; i++)
            if (!a->blocks[i].taken && a->blocks[i].bytes > known->largest)
                known->largest = a->blocks[i].bytes;
    }
    size_t largest = a->largest;
    pthread_mutex_unlock(&known->lock);
    return largest;
}

size_t osh_arena_extent(const osh_arena *a)
{
    return a->blocks[a->n - 1].offset + a->blocks[a->n - 1].bytes - osh_arena_room(a);
}
