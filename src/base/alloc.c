/* alloc.c - counted memory, 64-byte aligned, with an injected failure for the torture tests.
 *
 *   | head 64 bytes: size ........ | n bytes of the caller ... |
 *   ^ aligned_alloc                ^ what is returned, a cache line's start */
#include "base/ctx.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALIGN = 64 };
typedef struct head {
    size_t n_bytes;
} head;

static head *head_of(void *p)
{
    return (head *)(void *)((char *)p - ALIGN);
}

static bool must_fail(osh_shared *sh)
{
    if (atomic_load_explicit(&sh->fail_after, memory_order_relaxed) <= 0) return false;
    if (atomic_fetch_sub(&sh->fail_after, 1) != 1) return false;
    atomic_store(&sh->fail_hit, true);
    return true;
}

static void count(osh_shared *sh, size_t n_bytes)
{
    size_t live = atomic_fetch_add(&sh->live, n_bytes) + n_bytes;
    size_t peak = atomic_load_explicit(&sh->peak, memory_order_relaxed);
    while (live > peak && !atomic_compare_exchange_weak(&sh->peak, &peak, live)) {}
}

void *osh_alloc(osh_ctx *cx, size_t n_bytes)
{
    size_t room = n_bytes ? n_bytes : 1; // never NULL for zero bytes
    char *base = NULL;

    if (!must_fail(cx->sh) && room <= PTRDIFF_MAX - 2 * ALIGN)
        base = aligned_alloc(ALIGN, (room + 2 * ALIGN - 1) / ALIGN * ALIGN);
    if (!base) {
        osh_fail(cx, OSH_E_NOMEM, "cannot allocate %zu bytes", n_bytes);
        return NULL;
    }
    ((head *)(void *)base)->n_bytes = n_bytes;
    count(cx->sh, n_bytes);
    return base + ALIGN;
}

void *osh_calloc(osh_ctx *cx, size_t n, size_t size)
{
    size_t n_bytes;
    if (n == 0) n = 1; // one object's room, so that a loop over none may still point at it
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
    size_t old = head_of(p)->n_bytes;
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
    atomic_fetch_sub(&cx->sh->live, head_of(p)->n_bytes);
    free(head_of(p));
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

int64_t osh_rss_peak(void)
{
    char text[4096]; // no stdio: this must not allocate
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return -1;
    text[n] = 0;
    const char *at = strstr(text, "VmHWM:");
    return at ? strtoll(at + 6, NULL, 10) * 1024 : -1;
}
