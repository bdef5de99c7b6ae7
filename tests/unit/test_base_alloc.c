/* test_base_alloc.c - tests the allocator: counted bytes, alignment, overflow of sizes, and
 * injected failures. */
#include "torture.h"

#include "base/available.h"
#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void counts_and_aligns(void **state)
{
    osh_ctx *cx;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    static const size_t sizes[] = {0, 1, 7, 63, 127, 128, 4096, 100001};
    void *p[8];
    size_t sum = 0;
    for (size_t i = 0; i < 8; i++) {
        p[i] = osh_alloc(cx, sizes[i]);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % (sizes[i] < 128 ? _Alignof(max_align_t) : 64), 0);
        memset(p[i], 0xa5, sizes[i]);
        sum += sizes[i];
        assert_int_equal(osh_mem_live(cx), sum);
    }
    for (size_t i = 0; i < 8; i++) osh_free(cx, p[i]);
    osh_free(cx, NULL);
    assert_int_equal(osh_mem_live(cx), 0);
    assert_int_equal(osh_mem_peak(cx), sum);
    osh_ctx_free(cx);
}

static void zeroes_and_refuses_overflow(void **state)
{
    osh_ctx *cx;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    char *p = osh_alloc(cx, 999);
    memset(p, 0xff, 999);
    osh_free(cx, p);
    p = osh_calloc(cx, 37, 27);
    for (int i = 0; i < 999; i++) assert_int_equal(p[i], 0);
    osh_free(cx, p);
    p = osh_calloc(cx, 0, 24); // for 0 objects, osh_calloc allocates a block for one object
    assert_int_equal(osh_mem_live(cx), 24);
    osh_free(cx, p);

    assert_null(osh_calloc(cx, SIZE_MAX / 2, 3));
    assert_non_null(strstr(osh_error_text(cx), "cannot allocate"));
    assert_null(osh_alloc(cx, SIZE_MAX));
    assert_null(osh_alloc(cx, SIZE_MAX - 100));
    assert_null(osh_alloc(cx, PTRDIFF_MAX));
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static void realloc_keeps_content(void **state)
{
    osh_ctx *cx;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    char *p = osh_realloc(cx, NULL, 10);
    memcpy(p, "123456789", 10);
    p = osh_realloc(cx, p, 5000);
    assert_string_equal(p, "123456789");
    p = osh_realloc(cx, p, 4);
    assert_memory_equal(p, "1234", 4);
    assert_int_equal(osh_mem_live(cx), 4);
    osh_mem_fail_after(cx, 1);
    assert_null(osh_realloc(cx, p, 4000));
    assert_memory_equal(p, "1234", 4); // the failed osh_realloc has not freed or changed the block
    osh_free(cx, p);
    char *s = osh_sprintf(cx, "%s.%d", "model.layers", 31), *d = osh_strdup(cx, s);
    assert_string_equal(d, "model.layers.31");
    osh_free(cx, s);
    osh_free(cx, d);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static void nth_allocation_fails(void **state)
{
    osh_ctx *cx;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    for (int n = 1; n <= 5; n++) {
        osh_mem_fail_after(cx, n);
        for (int i = 1; i <= 7; i++) {
            void *p = osh_alloc(cx, 8);
            assert_int_equal(p == NULL, i == n); // only the n-th allocation fails
            assert_int_equal(osh_mem_fail_hit(cx), i >= n);
            osh_free(cx, p);
        }
        assert_string_equal(osh_error_text(cx), "cannot allocate 8 bytes");
        osh_error_clear(cx);
    }
    osh_mem_fail_after(cx, 3);
    osh_mem_fail_after(cx, -1);
    for (int i = 0; i < 9; i++) osh_free(cx, osh_alloc(cx, 1));
    assert_false(osh_mem_fail_hit(cx));
    osh_ctx_free(cx);
}

static osh_status new_three(osh_ctx *cx, void *user)
{
    osh_status rc = OSH_OK;
    int64_t *a = NULL, *b = NULL; // own
    char *c = NULL;               // own
    OSH_NEW(cx, a, 3);
    OSH_NEW(cx, b, 0);
    if (!(c = osh_strdup(cx, "x"))) OSH_TRY(OSH_E_NOMEM);
done:
    osh_free(cx, c);
    osh_free(cx, b);
    osh_free(cx, a);
    return rc;
}

static void torture_counts(void **state)
{
    assert_int_equal(torture(new_three, NULL), 3);
}

static void peak_of_the_process(void **state)
{
    int64_t before = osh_rss_peak();
    assert_true(before > 100000);
    osh_ctx *cx;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    char *p = osh_alloc(cx, (size_t)64 << 20);
    memset(p, 1, (size_t)64 << 20);
    assert_true(osh_rss_peak() >= ((int64_t)64 << 20));
    assert_true(osh_mem_available() > 0);
    osh_free(cx, p);
    osh_ctx_free(cx);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* SKIPS: true if tests of resident memory are skipped. With a sanitizer osh_free keeps no pages,
 * and the memory of the sanitizer itself is resident, too. */
enum { SKIPS = 1 };
#else
enum { SKIPS = 0 };
#endif
enum { MB = 1 << 20, SLACK = MB }; // SLACK: bytes that other memory of the process may take

static size_t resident_bytes(void)
{
    char text[8192];
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    const char *at = strstr(text, "RssAnon:");
    return at ? (size_t)atoll(at + strlen("RssAnon:")) * 1024 : 0;
}

/* The pages of a freed large block are kept for the next block of that size. Kept pages and live
 * blocks together never have more bytes than the live blocks had at their peak. */
static void keeps_large_blocks(void **state)
{
    osh_ctx *cx;
    if (SKIPS) skip();
    osh_mem_tune();
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    size_t before = resident_bytes();
    char *a = osh_alloc(cx, 8 * MB), *b = osh_alloc(cx, 8 * MB + 1), *was = a;
    memset(a, 1, 8 * MB), memset(b, 1, 8 * MB);
    osh_free(cx, a);
    a = osh_calloc(cx, 1, 8 * MB);
    assert_ptr_equal(a, was);
    for (int i = 0; i < 8 * MB; i++) assert_int_equal(a[i], 0);
    osh_free(cx, a), osh_free(cx, b);
    assert_true(resident_bytes() - before >= 16 * MB - SLACK); // both freed blocks stay mapped
    assert_int_equal(osh_mem_used(cx, OSH_MEM_HOST), 0);
    assert_int_equal(osh_mem_live(cx), 0);
    // a block of 15 MB gets the pages of the two freed blocks if they are neighbours in memory;
    // otherwise the pages of both are unmapped
    a = osh_calloc(cx, 1, 15 * MB);
    assert_true(resident_bytes() - before <= osh_mem_used_peak(cx, OSH_MEM_HOST) + SLACK);
    osh_free(cx, a);
    for (size_t i = 0; i < 300; i++) { // allocates 300 different sizes; the allocator keeps pages
                                       // for fewer sizes
        osh_free(cx, osh_calloc(cx, 1, MB / 4 + 8192 * i));
        assert_true(resident_bytes() - before <= osh_mem_used_peak(cx, OSH_MEM_HOST) + SLACK);
    }
    osh_mem_trim(cx);
    assert_true(resident_bytes() <= before + SLACK);
    osh_ctx_free(cx);
}

typedef struct held {
    unsigned char *p, mark;
    size_t n;
} held;

/* Allocates and frees blocks of all sizes. No block may overlap another. The process may never be
 * larger than the largest sum of its live blocks. */
static void pages_serve_other_sizes(void **state)
{
    enum { SLOTS = 64, STEPS = 20000, CHECKS = 50 };
    held slots[SLOTS] = {0};
    osh_ctx *cx;
    if (SKIPS) skip();
    osh_mem_tune();
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    size_t before = resident_bytes();
    for (uint64_t step = 0; step < STEPS; step++) {
        held *h = &slots[osh_rng_u64(1, step, 0) % SLOTS];
        if (h->p) {
            for (size_t i = 0; i < h->n; i += 997) assert_int_equal(h->p[i], h->mark);
            assert_int_equal(h->p[h->n - 1], h->mark);
            osh_free(cx, h->p);
            h->p = NULL;
        } else { // chooses a few sizes often, and any other size sometimes
            uint64_t r = osh_rng_u64(2, step, 0);
            h->n = r % 4 ? (size_t)(100000 + r / 4 % 5 * 150000) : (size_t)(1 + r / 4 % (2 * MB));
            h->mark = (unsigned char)step;
            assert_non_null(h->p = osh_alloc(cx, h->n));
            memset(h->p, h->mark, h->n);
        }
        if (step % (STEPS / CHECKS) == 0)
            assert_true(resident_bytes() - before <= osh_mem_used_peak(cx, OSH_MEM_HOST) + SLACK);
    }
    for (int i = 0; i < SLOTS; i++) osh_free(cx, slots[i].p);
    assert_int_equal(osh_mem_used(cx, OSH_MEM_HOST), 0);
    osh_ctx_free(cx);
    assert_true(resident_bytes() <= before + SLACK);
}

/* Returns 1 if the system may use pages of 2 MiB for p (the flag "hg" in smaps), 0 if not, -1 if
 * unknown. */
static int may_be_huge(const void *p)
{
    char line[512];
    bool in = false;
    int is = -1;
    FILE *f = fopen("/proc/self/smaps", "r");
    if (!f) return -1;
    while (is < 0 && fgets(line, sizeof line, f)) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            in = (uintptr_t)p >= begin && (uintptr_t)p < end;
        else if (in && !strncmp(line, "VmFlags:", 8)) is = strstr(line, " hg") != NULL;
    }
    fclose(f);
    return is;
}

/* Blocks of 2.25 and 3 MiB, such as an expert's Hessian or weight, use pages of 2 MiB if the system
 * has them. The resident memory of many such blocks is never larger than their counted bytes. This
 * is checked before and after the blocks are written, and after some are freed. */
static void experts_blocks_have_huge_pages(void **state)
{
    enum { N = 32 };
    const size_t n_bytes = 768 * 768 * 4;
    osh_ctx *cx;
    char *p[N];
    if (SKIPS || access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK)) skip();
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    size_t before = resident_bytes();
    for (int i = 0; i < N; i++) {
        p[i] = osh_calloc(cx, n_bytes, 1);
        assert_non_null(p[i]);
        assert_int_not_equal(may_be_huge(p[i]), 0);
        assert_true(resident_bytes() <= before + osh_mem_used(cx, OSH_MEM_HOST) + SLACK);
    }
    for (int i = 0; i < N; i += 2) osh_free(cx, p[i]);
    // gives pages back to the system: those of freed blocks that lie between other blocks
    osh_mem_trim(cx);
    assert_true(resident_bytes() <= before + osh_mem_used(cx, OSH_MEM_HOST) + SLACK);
    for (int i = 1; i < N; i += 2) {
        for (size_t k = 0; k < n_bytes; k += 4096) assert_int_equal(p[i][k], 0);
        osh_free(cx, p[i]);
    }
    osh_ctx_free(cx);
}

static osh_status take_in_chunk(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    ((void **)user)[chunk] = osh_alloc(cx, 1000);
    return ((void **)user)[chunk] ? OSH_OK : OSH_E_NOMEM;
}

static void classes_and_limits(void **state)
{
    enum { BIG = 1 << 20 };
    osh_ctx *cx;
    assert_int_equal(osh_ctx_new(&cx, 3), OSH_OK);
    void *host = osh_alloc(cx, BIG), *chunks[8];
    assert_int_equal(osh_mem_use(cx, OSH_MEM_DEVICE), OSH_MEM_HOST);
    void *device = osh_alloc(cx, BIG);
    // the memory that workers allocate counts in the class of the caller
    assert_ok(cx, osh_parallel_for(cx, 8, take_in_chunk, chunks));
    size_t one = osh_mem_gross(BIG), few = osh_mem_gross(1000);
    assert_true(one >= BIG && one < BIG + 16384);
    assert_int_equal(osh_mem_used(cx, OSH_MEM_DEVICE), one + 8 * few);
    assert_int_equal(osh_mem_used(cx, OSH_MEM_HOST), 2 * one + 8 * few);

    osh_mem_limit(cx, OSH_MEM_DEVICE, 2 * one + 8 * few);
    void *last = osh_alloc(cx, BIG); // the allocation reaches the limit exactly
    assert_non_null(last);
    assert_null(osh_alloc(cx, 1));
    assert_non_null(strstr(osh_error_text(cx), "device memory"));
    osh_error_clear(cx);
    osh_mem_use(cx, OSH_MEM_HOST);
    void *more = osh_alloc(cx, BIG); // host memory does not count for the limit of device memory
    assert_non_null(more);
    osh_mem_limit(cx, OSH_MEM_HOST, osh_mem_used(cx, OSH_MEM_HOST));
    assert_null(osh_calloc(cx, 1, 1));
    assert_non_null(strstr(osh_error_text(cx), "host memory"));
    osh_error_clear(cx);

    osh_mem_move(cx, more, OSH_MEM_DEVICE); // a move to another class allocates nothing
    assert_int_equal(osh_mem_used(cx, OSH_MEM_DEVICE), 3 * one + 8 * few);
    osh_free(cx, more), osh_free(cx, last), osh_free(cx, device);
    for (int i = 0; i < 8; i++) osh_free(cx, chunks[i]);
    assert_int_equal(osh_mem_used(cx, OSH_MEM_DEVICE), 0);
    assert_int_equal(osh_mem_used_peak(cx, OSH_MEM_DEVICE), 3 * one + 8 * few);
    osh_free(cx, host);
    assert_int_equal(osh_mem_used(cx, OSH_MEM_HOST), 0);
    osh_ctx_free(cx);
}

typedef struct giver { // a thread that owns blocks and frees one of them on request
    osh_ctx *cx;
    void *held[3];
    int n, asked;
} giver;

static bool giver_give(void *user)
{
    giver *g = user;
    g->asked++;
    if (!g->n) return false;
    osh_free(g->cx, g->held[--g->n]);
    return true;
}

static void others_give_before_a_peak_rises(void **state)
{
    enum { BIG = 1 << 20 };
    osh_ctx *cx, *alone;
    giver g = {.n = 3};
    size_t one = osh_mem_gross(BIG);
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_int_equal(osh_ctx_fork(&alone, cx), OSH_OK);
    osh_ctx_alone(alone);
    g.cx = alone;
    for (int i = 0; i < 3; i++) assert_non_null(g.held[i] = osh_alloc(cx, BIG));
    osh_mem_give(cx, 4 * one, giver_give, &g);
    void *fits = osh_alloc(cx, BIG);
    assert_int_equal(g.asked, 0);
    // neither allocation asks the giver for memory: the first is small, and the second is on the
    // giver's own context
    void *small = osh_alloc(cx, 1000), *writers = osh_alloc(alone, BIG);
    assert_int_equal(g.asked, 0);
    void *waits = osh_alloc(cx, BIG); // asks the giver until the block fits, or until the giver has
                                      // no block
    assert_int_equal(g.asked, 3);
    assert_int_equal(osh_mem_used(cx, OSH_MEM_HOST), 3 * one + osh_mem_gross(1000));
    void *more[2] = {osh_alloc(cx, BIG), osh_alloc(cx, BIG)};
    /* The threshold of osh_mem_give is not a limit, so all allocations succeed. */
    assert_true(more[0] && more[1] && waits && writers && fits && small);
    assert_int_equal(g.asked, 5);
    osh_mem_give(cx, 0, NULL, NULL);
    osh_free(cx, osh_alloc(cx, BIG));
    assert_int_equal(g.asked, 5);
    void *rest[] = {more[0], more[1], waits, writers, fits, small};
    for (int i = 0; i < 6; i++) osh_free(cx, rest[i]);
    osh_ctx_free(alone);
    osh_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_and_aligns),    cmocka_unit_test(zeroes_and_refuses_overflow),
        cmocka_unit_test(realloc_keeps_content), cmocka_unit_test(nth_allocation_fails),
        cmocka_unit_test(torture_counts),       cmocka_unit_test(peak_of_the_process),
        cmocka_unit_test(classes_and_limits),
        cmocka_unit_test(keeps_large_blocks), cmocka_unit_test(pages_serve_other_sizes),
        cmocka_unit_test(experts_blocks_have_huge_pages),
        cmocka_unit_test(others_give_before_a_peak_rises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
