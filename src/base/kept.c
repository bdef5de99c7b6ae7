/* kept.c - keeps the pages of freed large blocks for later blocks. Each batch allocates blocks of
 * the same sizes. Kept pages save time, because the system clears each page before it gives the
 * page out.
 *
 * `sizes` has a list of freed blocks for each size. The most recently freed block of a list is
 * used first, because it may be in the cache. `extents` has free ranges from which blocks of any
 * size are cut. Adjacent ranges are joined. If no kept block or extent fits and the limit of kept
 * bytes is reached, blocks become extents, beginning with the size whose blocks were used longest
 * ago. */
#include "base/ctx.h"

#include <string.h>
#include <sys/mman.h>

/* Number of bytes of a huge page. Blocks of at least this size get huge pages; the weight or the
 * Hessian of an expert is usually slightly larger. */
enum { HUGE_BYTES = 2 << 20 };

static osh_kept_size *kept_size_find(osh_kept *k, size_t n)
{
    for (int i = 0; i < k->n_sizes; i++)
        if (k->sizes[i].n == n) return &k->sizes[i];
    return NULL;
}

/* Removes the most recently freed block of size s from its list, and returns it. */
static void *kept_pop(osh_kept *k, osh_kept_size *s)
{
    void *base = s->first;
    s->first = *(void **)base;
    if (!s->first) *s = k->sizes[--k->n_sizes];
    return base;
}

static void extent_remove(osh_kept *k, int i)
{
    memmove(&k->extents[i], &k->extents[i + 1], (size_t)(--k->n_extents - i) * sizeof *k->extents);
}

/* Returns the index of the smallest extent with at least `at_least` bytes, or -1 if there is
 * none. */
static int extent_smallest(const osh_kept *k, size_t at_least)
{
    int best = -1;
    for (int i = 0; i < k->n_extents; i++)
        if (k->extents[i].n >= at_least && (best < 0 || k->extents[i].n < k->extents[best].n))
            best = i;
    return best;
}

/* Removes the last n bytes from extent i and returns a pointer to these bytes. */
static char *extent_cut(osh_kept *k, int i, size_t n)
{
    osh_extent *e = &k->extents[i];
    char *base = e->base + (e->n -= n);
    if (!e->n) extent_remove(k, i);
    return base;
}

/* Gives the last n bytes of extent i back to the system. */
static void extent_unmap(osh_kept *k, int i, size_t n)
{
    munmap(extent_cut(k, i, n), n);
    k->bytes -= n;
}

/* Adds the n bytes at `base` to the extents, and joins them with adjacent extents. */
static void extent_add(osh_kept *k, char *base, size_t n)
{
    int i = 0;
    while (i < k->n_extents && k->extents[i].base < base) i++;
    if (i && k->extents[i - 1].base + k->extents[i - 1].n == base) {
        k->extents[--i].n += n;
    } else {
        memmove(&k->extents[i + 1], &k->extents[i],
                (size_t)(k->n_extents++ - i) * sizeof *k->extents);
        k->extents[i] = (osh_extent){base, n};
    }
    if (i + 1 == k->n_extents || k->extents[i].base + k->extents[i].n != k->extents[i + 1].base)
        return;
    k->extents[i].n += k->extents[i + 1].n;
    extent_remove(k, i + 1);
}

/* Finds the size whose blocks were used longest ago, and makes an extent of one of its blocks. */
static void kept_dissolve(osh_kept *k)
{
    osh_kept_size *oldest = k->sizes;
    for (int i = 1; i < k->n_sizes; i++)
        if (k->sizes[i].used < oldest->used) oldest = &k->sizes[i];
    size_t n = oldest->n;
    int least = k->n_extents == OSH_KEPT_EXTENTS ? extent_smallest(k, 0) : -1;
    if (least >= 0) extent_unmap(k, least, k->extents[least].n);
    extent_add(k, kept_pop(k, oldest), n);
}

/* Unmaps pages until at most `most` bytes are kept. The caller holds the lock. */
static void kept_shrink(osh_kept *k, size_t most)
{
    while (k->bytes > most) {
        if (!k->n_extents) kept_dissolve(k);
        int i = extent_smallest(k, 0);
        size_t n = osh_whole_pages(k->bytes - most);
        extent_unmap(k, i, n < k->extents[i].n ? n : k->extents[i].n);
    }
}

void osh_kept_drop(osh_kept *k, size_t n)
{
    pthread_mutex_lock(&k->lock);
    kept_shrink(k, n);
    pthread_mutex_unlock(&k->lock);
}

/* Returns n bytes of memory from mmap. Requests huge pages of 2 MiB for large blocks. Returns NULL
 * if there is no memory. */
static void *pages_map(size_t n)
{
    void *base = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    // madvise is only a hint to the kernel; its failure does not matter
    if (n >= HUGE_BYTES) madvise(base, n, MADV_HUGEPAGE);
    return base;
}

void *osh_kept_take(osh_kept *k, size_t n, size_t room)
{
    void *base = NULL;
    int i = -1;

    pthread_mutex_lock(&k->lock);
    osh_kept_size *s = kept_size_find(k, n);
    if (s) {
        s->used = ++k->clock;
        base = kept_pop(k, s);
    } else {
        while ((i = extent_smallest(k, n)) < 0 && k->n_sizes && k->bytes > room) kept_dissolve(k);
        if (i >= 0) base = extent_cut(k, i, n);
    }
    if (base) k->bytes -= n;
    kept_shrink(k, room);
    pthread_mutex_unlock(&k->lock);
    if (base || (base = pages_map(n))) return base;
    osh_kept_drop(k, 0);
    return pages_map(n);
}

void osh_kept_put(osh_kept *k, void *base, size_t n)
{
    pthread_mutex_lock(&k->lock);
    osh_kept_size *s = kept_size_find(k, n);
    while (!s && k->n_sizes == OSH_KEPT_SIZES) kept_dissolve(k);
    if (!s) s = &k->sizes[k->n_sizes++], *s = (osh_kept_size){.n = n};
    *(void **)base = s->first;
    s->first = base, s->used = ++k->clock;
    k->bytes += n;
    pthread_mutex_unlock(&k->lock);
}
