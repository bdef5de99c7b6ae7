/* alloc.c - allocates memory and counts its bytes. Blocks of 128 bytes and more are aligned to 64
 * bytes. Torture tests can make an allocation fail.
 *
 *   ... | 32 bytes | head 32 bytes: size, class . | n bytes of the caller ... |
 *   ^   ^ start of a cache line                   ^ the returned pointer
 *   start of malloc's block; in a block of whole pages, the page begins at the cache line
 *
 * A block of at most 127 bytes is a head and the caller's bytes, with malloc's alignment. Small
 * blocks are frequent, because a plan has some names, shapes and short lists for each tensor. A
 * name of 60 bytes takes 112 bytes; aligned to a cache line it would take 192.
 *
 * aligned_alloc is not used. Before glibc 2.38 aligned_alloc does not reuse fitting holes of the
 * heap, so the heap would grow during the whole run. With 16 layers of 128 tiny experts and one
 * subgraph per Linear, the heap grew from 67 to 146 MB while 14 MB were in use.
 *
 * A block of PAGES_BYTES or more has pages of its own. Freed pages are kept for the next blocks
 * (kept.c). Live blocks and kept pages together never exceed the peak of the live blocks; all other
 * freed pages return to the system. malloc serves smaller blocks and the libraries. Tensors should
 * not be in malloc's heap. There a tensor can occupy memory that a library used as scratch, so that
 * the library's next call makes the heap grow. (An evaluation of a model of 3 million parameters
 * had 22 MiB of tensors in a heap of 37 MiB.) Therefore PAGES_BYTES is less than MMAP_BYTES, the
 * size from which malloc takes pages from the system. */
#include "base/ctx.h"

#include <fcntl.h>
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    ALIGN = 64,
    SMALL_BYTES = 127,
    PAGES_BYTES = 32 << 10,
    MMAP_BYTES = 128 << 10,
    GIVE_BYTES = 64 << 10
};
/* MALLOC_BYTES: number of bytes that glibc adds to each block. */
enum { HEAD_BYTES = 32, MALLOC_ALIGN = _Alignof(max_align_t), MALLOC_BYTES = sizeof(size_t) };
typedef struct head {
    size_t n_bytes; // number of bytes that the caller uses; at most SMALL_BYTES in a small block
    void *from;     // pointer that malloc returned; not used for a block of whole pages
    osh_mem_class class;
} head;

static size_t mem_block_bytes(size_t n_bytes)
{
    size_t room = n_bytes ? n_bytes : 1; // a request for zero bytes also gets a block
    return (room + 2 * ALIGN - 1) / ALIGN * ALIGN;
}

size_t osh_mem_gross(size_t n_bytes)
{
    if (n_bytes <= SMALL_BYTES)
        return (HEAD_BYTES + n_bytes + MALLOC_BYTES + MALLOC_ALIGN - 1) / MALLOC_ALIGN *
               MALLOC_ALIGN;
    size_t block = mem_block_bytes(n_bytes) + ALIGN;
    return block < PAGES_BYTES ? block : osh_whole_pages(block + ALIGN);
}

static head *block_head(void *p)
{
    return (head *)(void *)((char *)p - HEAD_BYTES);
}

static bool mem_must_fail(osh_shared *sh)
{
    if (atomic_load_explicit(&sh->fail_after, memory_order_relaxed) <= 0) return false;
    if (atomic_fetch_sub(&sh->fail_after, 1) != 1) return false;
    atomic_store(&sh->fail_hit, true);
    return true;
}

/* Clang tells by __has_feature if the sanitizer is on; gcc defines __SANITIZE_ADDRESS__ itself. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
/* With a sanitizer no freed page is kept, so that the sanitizer finds each use of a freed block. */
enum { KEEPS = 0 };
#else
enum { KEEPS = 1 };
#endif

_Static_assert(sizeof(head) <= HEAD_BYTES, "a head has room");
static bool block_is_large(size_t block)
{
    return KEEPS && block + ALIGN >= PAGES_BYTES && getpagesize() == OSH_PAGE;
}

/* Allocates whole pages for a new block and returns them. The caller has already counted the bytes
 * of the block as used. */
static void *pages_take(osh_shared *sh, size_t block)
{
    size_t used = atomic_load(&sh->used[OSH_MEM_HOST]),
           peak = atomic_load(&sh->used_peak[OSH_MEM_HOST]);
    return osh_kept_take(&sh->kept, osh_whole_pages(block), peak > used ? peak - used : 0);
}

static void peak_raise(_Atomic size_t *peak, size_t now)
{
    size_t old = atomic_load_explicit(peak, memory_order_relaxed);
    while (now > old && !atomic_compare_exchange_weak(peak, &old, now)) {}
}

/* Counts `gross` bytes (with the allocator's overhead) of class `c`. If a large block raises the
 * bytes in use above give_above, first waits until other threads have freed memory. Does not wait
 * if no other thread will free memory. Returns false if the memory limit of the class is
 * exceeded. */
static bool mem_reserve(osh_ctx *cx, osh_mem_class c, size_t gross)
{
    osh_shared *sh = cx->sh;
    size_t limit = atomic_load(&sh->limit[c]), now;
    size_t above =
        c == OSH_MEM_HOST && gross >= GIVE_BYTES && !cx->alone ? atomic_load(&sh->give_above) : 0;
    for (;;) {
        now = atomic_fetch_add(&sh->used[c], gross) + gross;
        bool fails = limit && now > limit;
        if (!fails && (!above || now <= above)) break;
        atomic_fetch_sub(&sh->used[c], gross);
        if (above && sh->give(sh->give_user)) continue;
        if (fails) return false;
        above = 0;
    }
    peak_raise(&sh->used_peak[c], now);
    if (c == OSH_MEM_HOST) peak_raise(&sh->used_high, now);
    return true;
}

static void mem_release(osh_shared *sh, osh_mem_class c, size_t gross)
{
    atomic_fetch_sub(&sh->used[OSH_MEM_HOST], gross);
    if (c != OSH_MEM_HOST) atomic_fetch_sub(&sh->used[c], gross);
}

static bool mem_limit_fail(osh_ctx *cx, osh_mem_class c, size_t n_bytes)
{
    osh_fail(cx, OSH_E_NOMEM,
             "%zu bytes more would exceed the %s memory: %zu of %zu bytes are in use", n_bytes,
             c == OSH_MEM_HOST ? "host" : "device", atomic_load(&cx->sh->used[c]),
             atomic_load(&cx->sh->limit[c]));
    return false;
}

/* Adds a block of n_bytes to the counts of bytes in use. Returns false, with an error message, if a
 * memory limit would be exceeded. */
static bool mem_block_count(osh_ctx *cx, size_t n_bytes)
{
    size_t gross = osh_mem_gross(n_bytes);
    if (!mem_reserve(cx, OSH_MEM_HOST, gross)) return mem_limit_fail(cx, OSH_MEM_HOST, gross);
    if (cx->mem_class != OSH_MEM_HOST && !mem_reserve(cx, cx->mem_class, gross)) {
        mem_release(cx->sh, OSH_MEM_HOST, gross);
        return mem_limit_fail(cx, cx->mem_class, gross);
    }
    peak_raise(&cx->sh->peak, atomic_fetch_add(&cx->sh->live, n_bytes) + n_bytes);
    return true;
}

static void mem_block_uncount(osh_ctx *cx, const head *h)
{
    mem_release(cx->sh, h->class, osh_mem_gross(h->n_bytes));
    atomic_fetch_sub(&cx->sh->live, h->n_bytes);
}

osh_status osh_mem_count(osh_ctx *cx, size_t n_bytes)
{
    if (mem_must_fail(cx->sh))
        return osh_fail(cx, OSH_E_NOMEM, "cannot allocate %zu bytes", n_bytes);
    return mem_reserve(cx, OSH_MEM_HOST, n_bytes)
               ? OSH_OK
               : (mem_limit_fail(cx, OSH_MEM_HOST, n_bytes), OSH_E_NOMEM);
}

void osh_mem_uncount(osh_ctx *cx, size_t n_bytes) { mem_release(cx->sh, OSH_MEM_HOST, n_bytes); }

/* Allocates a block. Returns the pointer for the caller and sets *from to malloc's pointer, or to
 * NULL if the block has pages of its own. Returns NULL if there is no memory. */
static char *mem_block_new(osh_ctx *cx, size_t n_bytes, char **from)
{
    char *base = NULL;
    *from = NULL;
    if (n_bytes <= SMALL_BYTES)
        return (*from = malloc(HEAD_BYTES + n_bytes)) ? *from + HEAD_BYTES : NULL;
    size_t n = mem_block_bytes(n_bytes);
    if (block_is_large(n)) base = pages_take(cx->sh, n);
    else if ((*from = malloc(n + ALIGN - MALLOC_ALIGN))) base = *from + (-(uintptr_t)*from) % ALIGN;
    return base ? base + ALIGN : NULL;
}

void *osh_alloc(osh_ctx *cx, size_t n_bytes)
{
    char *p, *from;

    if (n_bytes > PTRDIFF_MAX - 4 * OSH_PAGE || mem_must_fail(cx->sh)) {
        osh_fail(cx, OSH_E_NOMEM, "cannot allocate %zu bytes", n_bytes);
        return NULL;
    }
    if (!mem_block_count(cx, n_bytes)) return NULL;
    head h = {n_bytes, NULL, cx->mem_class};
    if (!(p = mem_block_new(cx, n_bytes, &from))) {
        mem_block_uncount(cx, &h);
        osh_fail(cx, OSH_E_NOMEM, "cannot allocate %zu bytes", n_bytes);
        return NULL;
    }
    h.from = from;
    *block_head(p) = h;
    return p;
}

void *osh_calloc(osh_ctx *cx, size_t n, size_t size)
{
    size_t n_bytes;
    if (n == 0) n = 1; // for n = 0, one object is allocated
    if (__builtin_mul_overflow(n, size, &n_bytes)) {
        osh_fail(cx, OSH_E_NOMEM, "cannot allocate %zu times %zu bytes", n, size);
        return NULL;
    }
    void *p = osh_alloc(cx, n_bytes);
    if (p) memset(p, 0, n_bytes);
    return p;
}

void *osh_realloc(osh_ctx *cx, void *p, size_t n_bytes)
{
    void *q = osh_alloc(cx, n_bytes);
    if (!q || !p) return q;
    size_t old = block_head(p)->n_bytes;
    memcpy(q, p, old < n_bytes ? old : n_bytes);
    osh_free(cx, p);
    return q;
}

char *osh_strdup(osh_ctx *cx, const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = osh_alloc(cx, n);
    if (p) memcpy(p, s, n);
    return p;
}

char *osh_sprintf(osh_ctx *cx, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : osh_alloc(cx, (size_t)n + 1);
    if (!p) return NULL;
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return p;
}

void osh_free(osh_ctx *cx, void *p)
{
    if (!p) return;
    head *h = block_head(p);
    size_t n = h->n_bytes;
    mem_block_uncount(cx, h);
    if (n <= SMALL_BYTES || !block_is_large(mem_block_bytes(n))) free(h->from);
    else osh_kept_put(&cx->sh->kept, (char *)p - ALIGN, osh_whole_pages(mem_block_bytes(n)));
}

osh_mem_class osh_mem_use(osh_ctx *cx, osh_mem_class c)
{
    osh_mem_class before = cx->mem_class;
    cx->mem_class = c;
    return before;
}

void osh_mem_move(osh_ctx *cx, void *p, osh_mem_class to)
{
    if (!p || block_head(p)->class == to) return;
    size_t gross = osh_mem_gross(block_head(p)->n_bytes);
    if (block_head(p)->class != OSH_MEM_HOST)
        atomic_fetch_sub(&cx->sh->used[block_head(p)->class], gross);
    if (to != OSH_MEM_HOST)
        peak_raise(&cx->sh->used_peak[to], atomic_fetch_add(&cx->sh->used[to], gross) + gross);
    block_head(p)->class = to;
}

void osh_mem_limit(osh_ctx *cx, osh_mem_class c, size_t n_bytes)
{
    atomic_store(&cx->sh->limit[c], n_bytes);
}

void osh_mem_give(osh_ctx *cx, size_t n_bytes, bool (*give)(void *user), void *user)
{
    atomic_store(&cx->sh->give_above, 0);
    cx->sh->give = give, cx->sh->give_user = user;
    if (give) atomic_store(&cx->sh->give_above, n_bytes);
}

size_t osh_mem_used(const osh_ctx *cx, osh_mem_class c)
{
    return atomic_load(&cx->sh->used[c]);
}

size_t osh_mem_used_peak(const osh_ctx *cx, osh_mem_class c)
{
    return atomic_load(&cx->sh->used_peak[c]);
}

int64_t osh_mem_used_high(osh_shared *sh)
{
    size_t high = atomic_exchange(&sh->used_high, 0), now = atomic_load(&sh->used[OSH_MEM_HOST]);
    return (int64_t)(high > now ? high : now);
}

void osh_mem_trim(osh_ctx *cx)
{
    osh_kept_drop(&cx->sh->kept, 0);
    malloc_trim(0);
}

void osh_mem_tune(void)
{
    // without this call, malloc raises M_MMAP_THRESHOLD when large blocks are freed
    mallopt(M_MMAP_THRESHOLD, MMAP_BYTES);
    mallopt(M_TRIM_THRESHOLD, MMAP_BYTES);
    mallopt(M_ARENA_MAX, 1);
}

size_t osh_mem_live(const osh_ctx *cx)
{
    return atomic_load(&cx->sh->live);
}

size_t osh_mem_peak(const osh_ctx *cx)
{
    return atomic_load(&cx->sh->peak);
}

void osh_mem_fail_after(osh_ctx *cx, int64_t n)
{
    atomic_store(&cx->sh->fail_hit, false);
    atomic_store(&cx->sh->fail_after, n);
}

bool osh_mem_fail_hit(const osh_ctx *cx)
{
    return atomic_load(&cx->sh->fail_hit);
}

bool osh_proc_status(char text[OSH_STATUS_BYTES])
{
    /* open(2) instead of stdio, because this function must not allocate */
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, OSH_STATUS_BYTES - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

int64_t osh_proc_status_bytes(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    return at ? strtoll(at + strlen(key), NULL, 10) * 1024 : -1;
}

int64_t osh_rss_peak(void)
{
    char text[OSH_STATUS_BYTES];
    return osh_proc_status(text) ? osh_proc_status_bytes(text, "VmHWM:") : -1;
}
