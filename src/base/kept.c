/* kept.c - pages of large blocks that were freed, for the blocks that come: the same shapes come again for each batch,
 * and the system clears each page that it gives.
 *
 *   sizes     blocks as they were freed, by size: the one freed last serves first, it may be in the cache yet
 *   extents   where no block has the size and no more may be kept: the blocks of the size that was used longest ago,
 *             neighbours joined, from which a block of any size is cut */
#include "base/ctx.h"

#include <string.h>
#include <sys/mman.h>

enum { HUGE_BYTES = 2 << 20 }; // one such page: an expert's weight or Hessian has little more

static osh_kept_size *size_of(osh_kept *k, size_t n)
{
    for (int i = 0; i < k->n_sizes; i++)
        if (k->sizes[i].n == n) return &k->sizes[i];
    return NULL;
}

static void *pop(osh_kept *k, osh_kept_size *s)
{
    void *base = s->first;
    s->first = *(void **)base;
    if (!s->first) *s = k->sizes[--k->n_sizes];
    return base;
}

static void remove_extent(osh_kept *k, int i)
{
    memmove(&k->extents[i], &k->extents[i + 1], (size_t)(--k->n_extents - i) * sizeof *k->extents);
}

static int smallest(const osh_kept *k, size_t at_least)
{
    int best = -1;
    for (int i = 0; i < k->n_extents; i++)
        if (k->extents[i].n >= at_least && (best < 0 || k->extents[i].n < k->extents[best].n)) best = i;
    return best;
}

/* The last n bytes of an extent. */
static char *cut(osh_kept *k, int i, size_t n)
{
    osh_extent *e = &k->extents[i];
    char *base = e->base + (e->n -= n);
    if (!e->n) remove_extent(k, i);
    return base;
}

static void unmap(osh_kept *k, int i, size_t n)
{
    munmap(cut(k, i, n), n);
    k->bytes -= n;
}

static void add_extent(osh_kept *k, char *base, size_t n)
{
    int i = 0;
    while (i < k->n_extents && k->extents[i].base < base) i++;
    if (i && k->extents[i - 1].base + k->extents[i - 1].n == base) {
        k->extents[--i].n += n;
    } else {
        memmove(&k->extents[i + 1], &k->extents[i], (size_t)(k->n_extents++ - i) * sizeof *k->extents);
        k->extents[i] = (osh_extent){base, n};
    }
    if (i + 1 == k->n_extents || k->extents[i].base + k->extents[i].n != k->extents[i + 1].base) return;
    k->extents[i].n += k->extents[i + 1].n;
    remove_extent(k, i + 1);
}

/* A block of the size that was used longest ago becomes an extent. */
static void dissolve_one(osh_kept *k)
{
    osh_kept_size *oldest = k->sizes;
    for (int i = 1; i < k->n_sizes; i++)
        if (k->sizes[i].used < oldest->used) oldest = &k->sizes[i];
    size_t n = oldest->n;
    int least = k->n_extents == OSH_KEPT_EXTENTS ? smallest(k, 0) : -1;
    if (least >= 0) unmap(k, least, k->extents[least].n);
    add_extent(k, pop(k, oldest), n);
}

static void drop(osh_kept *k, size_t most)
{
    while (k->bytes > most) {
        if (!k->n_extents) dissolve_one(k);
        int i = smallest(k, 0);
        size_t n = osh_whole_pages(k->bytes - most);
        unmap(k, i, n < k->extents[i].n ? n : k->extents[i].n);
    }
}

void osh_kept_drop(osh_kept *k, size_t n)
{
    pthread_mutex_lock(&k->lock);
    drop(k, n);
    pthread_mutex_unlock(&k->lock);
}

/* A large one of pages of 2 MiB, where the system gives them on request. */
static void *map(size_t n)
{
    void *base = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    if (n >= HUGE_BYTES) madvise(base, n, MADV_HUGEPAGE); // advice
    return base;
}

void *osh_kept_take(osh_kept *k, size_t n, size_t room)
{
    void *base = NULL;
    int i = -1;

    pthread_mutex_lock(&k->lock);
    osh_kept_size *s = size_of(k, n);
    if (s) {
        s->used = ++k->clock;
        base = pop(k, s);
    } else {
        while ((i = smallest(k, n)) < 0 && k->n_sizes && k->bytes > room) dissolve_one(k);
        if (i >= 0) base = cut(k, i, n);
    }
    if (base) k->bytes -= n;
    drop(k, room);
    pthread_mutex_unlock(&k->lock);
    if (base || (base = map(n))) return base;
    osh_kept_drop(k, 0);
    return map(n);
}

void osh_kept_put(osh_kept *k, void *base, size_t n)
{
    pthread_mutex_lock(&k->lock);
    osh_kept_size *s = size_of(k, n);
    while (!s && k->n_sizes == OSH_KEPT_SIZES) dissolve_one(k);
    if (!s) s = &k->sizes[k->n_sizes++], *s = (osh_kept_size){.n = n};
    *(void **)base = s->first;
    s->first = base, s->used = ++k->clock;
    k->bytes += n;
    pthread_mutex_unlock(&k->lock);
}
