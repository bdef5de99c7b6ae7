/* test_arena.c - compares tensor/arena.c with a simple model: one byte for each grain (the unit of
 * allocation) of the arena. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "tensor/device.h"

enum { GRAIN = 512, GRAINS = 97, STEPS = 20000, SEED = 7 };

/* A block of the arena; at: index of its first grain; n: number of its grains. */
typedef struct held { size_t at, n; } held;

/* Searches the arena for a free range of n grains; `life` selects the end at which the search
 * begins. Returns the first grain of the range, or GRAINS if there is none. */
static size_t model_find(const char *map, size_t n, osh_life life)
{
    for (size_t k = 0; k + n <= GRAINS; k++) {
        size_t at = life == OSH_LIFE_LONG ? k : GRAINS - n - k;
        if (!memchr(map + at, 1, n)) return at;
    }
    return GRAINS;
}

static void test_against_model(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    osh_arena *a = NULL;
    char map[GRAINS] = {0};
    held blocks[GRAINS];
    size_t n_blocks = 0, used = 0, peak = 0, missed = 0;

    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    /* The last 100 bytes are not a whole grain, so the arena does not use them. */
    assert_int_equal(osh_arena_new(cx, &a, GRAINS * GRAIN + 100), OSH_OK);
    for (uint64_t i = 0; i < STEPS; i++) {
        uint64_t r = osh_rng_u64(SEED, 0, i);
        if (r % 5 < 2 && n_blocks) {
            size_t k = (size_t)(r >> 8) % n_blocks;
            osh_arena_give(a, blocks[k].at * GRAIN);
            memset(map + blocks[k].at, 0, blocks[k].n);
            used -= blocks[k].n;
            blocks[k] = blocks[--n_blocks];
        } else {
            size_t bytes = (size_t)(r >> 8) % (GRAIN * (r % 7 == 0 ? 40 : 6)),
                   n = (bytes + GRAIN - 1) / GRAIN, got = 1;
            osh_life life = r >> 40 & 1 ? OSH_LIFE_LONG : OSH_LIFE_SHORT;
            if (!n) n = 1;
            size_t want = model_find(map, n, life), aim = (size_t)(r >> 48) % GRAINS;
            bool aims = life == OSH_LIFE_LONG && r % 3 == 0;
            if (aims) osh_arena_aim(a, aim * GRAIN);
            if (aims && aim + n <= GRAINS && !memchr(map + aim, 1, n)) want = aim;
            else missed += life == OSH_LIFE_LONG;
            assert_int_equal(osh_arena_gross(bytes), n * GRAIN);
            bool ok = osh_arena_take(a, &got, bytes, life);
            assert_int_equal(ok, want < GRAINS);
            if (!ok) continue;
            assert_int_equal(got, want * GRAIN);
            memset(map + want, 1, n);
            blocks[n_blocks++] = (held){want, n};
            used += n;
            if (used > peak) peak = used;
        }
        assert_int_equal(osh_arena_used(a), used * GRAIN);
        assert_int_equal(osh_arena_peak(a), peak * GRAIN);
    }
    assert_int_equal(osh_arena_missed(a), missed);
    assert_true(missed);
    while (n_blocks) osh_arena_give(a, blocks[--n_blocks].at * GRAIN);
    size_t whole = 1;
    /* All blocks are freed, so the arena is one free range again. */
    assert_true(osh_arena_take(a, &whole, GRAINS * GRAIN, OSH_LIFE_SHORT));
    assert_int_equal(whole, 0);
    osh_arena_free(cx, a);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static void test_empty(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    osh_arena *a = NULL;
    size_t at;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_int_equal(osh_arena_new(cx, &a, 0), OSH_OK);
    assert_false(osh_arena_take(a, &at, 0, OSH_LIFE_LONG));
    assert_false(osh_arena_take(a, &at, 1, OSH_LIFE_SHORT));
    osh_arena_free(cx, a);
    osh_arena_free(cx, NULL);
    osh_ctx_free(cx);
}

/* If the allocation of the block's record fails, the arena gives no block and does not change. */
static void test_out_of_memory(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    osh_arena *a = NULL;
    size_t at = 0, n = 0;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_int_equal(osh_arena_new(cx, &a, 1000 * GRAIN), OSH_OK);
    osh_mem_fail_after(cx, 1);
    while (osh_arena_take(a, &at, 1, OSH_LIFE_LONG)) n++;
    assert_true(osh_mem_fail_hit(cx) && n < 1000);
    osh_mem_fail_after(cx, -1);
    assert_int_equal(osh_arena_used(a), n * GRAIN);
    assert_true(osh_arena_take(a, &at, 1, OSH_LIFE_LONG));
    assert_int_equal(at, n * GRAIN);
    osh_arena_free(cx, a);
    osh_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_model),
                                       cmocka_unit_test(test_empty),
                                       cmocka_unit_test(test_out_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
