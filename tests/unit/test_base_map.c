/* test_base_map.c - checks that a map finds every key that was put, and no other key. A key may be
 * empty or contain NUL bytes. */
#include "base/map.h"
#include "base/rng.h"
#include "torture.h"

#include <stdio.h>

static void many_keys(void **state)
{
    enum { N = 20000 };
    osh_ctx *cx;
    osh_map *m;
    char key[32];
    int64_t v;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    for (size_t expected = 0; expected <= N; expected += N) {
        assert_ok(cx, osh_map_new(cx, &m, expected));
        for (int i = 0; i < N; i++) {
            int n = snprintf(key, sizeof key, "model.layers.%d.w", i * 7);
            assert_ok(cx, osh_map_put(cx, m, key, (size_t)n, i - 100));
        }
        assert_int_equal(osh_map_count(m), N);
        for (int i = 0; i < N; i++) {
            int n = snprintf(key, sizeof key, "model.layers.%d.w", i);
            assert_int_equal(osh_map_get(m, key, (size_t)n, &v), i % 7 == 0);
            if (i % 7 == 0) assert_int_equal(v, i / 7 - 100);
        }
        osh_map_free(cx, m);
    }
    osh_map_free(cx, NULL);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static void views(void **state)
{
    enum { N = 3000 };
    static char keys[N][16];
    osh_ctx *cx;
    osh_map *m;
    int64_t v;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_ok(cx, osh_map_new_views(cx, &m, 0));
    for (int i = 0; i < N; i++) {
        int n = snprintf(keys[i], sizeof keys[i], "k%d", i);
        assert_ok(cx, osh_map_put(cx, m, keys[i], (size_t)n, i));
    }
    for (int i = 0; i < N; i++) {
        char key[16];
        int n = snprintf(key, sizeof key, "k%d", i);
        assert_true(osh_map_get(m, key, (size_t)n, &v));
        assert_int_equal(v, i);
        // a key with the same beginning but another length is not found
        assert_false(osh_map_get(m, key, (size_t)n + 1, &v));
    }
    keys[7][0] = 'x'; // the map has a view of this key, so the change also changes the key in the
                      // map
    assert_false(osh_map_get(m, "k7", 2, &v));
    osh_map_free(cx, m);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static void odd_keys(void **state)
{
    /* All keys are zeros, so only their lengths differ. */
    static const char zeros[40] = {0};
    osh_ctx *cx;
    osh_map *m;
    int64_t v = -1;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_ok(cx, osh_map_new(cx, &m, 0));
    assert_false(osh_map_get(m, NULL, 0, &v));
    for (size_t n = 0; n <= sizeof zeros; n++)
        assert_ok(cx, osh_map_put(cx, m, n ? zeros : NULL, n, (int64_t)n));
    for (size_t n = 0; n <= sizeof zeros; n++) {
        assert_true(osh_map_get(m, zeros, n, &v));
        assert_int_equal(v, n);
    }
    assert_ok(cx, osh_map_put(cx, m, "a\0b", 3, 1));
    assert_ok(cx, osh_map_put(cx, m, "a\0c", 3, 2));
    assert_ok(cx, osh_map_put(cx, m, "a", 1, INT64_MIN));
    assert_true(osh_map_get(m, "a\0c", 3, &v));
    assert_int_equal(v, 2);
    size_t n = osh_map_count(m);
    assert_ok(cx, osh_map_put(cx, m, "a\0c", 3, INT64_MAX)); // replaces the value of an existing
                                                             // key
    assert_int_equal(osh_map_count(m), n);
    assert_true(osh_map_get(m, "a\0c", 3, &v));
    assert_true(v == INT64_MAX);
    assert_true(osh_map_get(m, "a", 1, &v));
    assert_true(v == INT64_MIN);
    assert_false(osh_map_get(m, "a\0d", 3, &v));
    osh_map_free(cx, m);
    osh_ctx_free(cx);
}

static void random_lengths(void **state)
{
    enum { N = 3000 };
    static char bytes[N + 300];
    osh_ctx *cx;
    osh_map *m;
    int64_t v;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(osh_rng_u64(1, 0, i) >> 56);
    assert_ok(cx, osh_map_new(cx, &m, 10));
    for (size_t i = 0; i < N; i++)
        assert_ok(cx, osh_map_put(cx, m, bytes + i, 12 + i % 280, (int64_t)i));
    assert_int_equal(osh_map_count(m), N);
    for (size_t i = 0; i < N; i++) {
        assert_true(osh_map_get(m, bytes + i, 12 + i % 280, &v));
        assert_int_equal(v, i);
    }
    osh_map_free(cx, m);
    osh_ctx_free(cx);
}

static osh_status fill(osh_ctx *cx, void *user)
{
    osh_status rc = OSH_OK;
    osh_map *m = NULL; // own
    char key[16];
    int64_t v;
    OSH_TRY(osh_map_new(cx, &m, 4));
    for (int i = 0; i < 200; i++) {
        int n = snprintf(key, sizeof key, "%d", i);
        rc = osh_map_put(cx, m, key, (size_t)n, i);
        if (rc) { // a failed put does not change the map
            assert_int_equal(osh_map_count(m), i);
            assert_false(osh_map_get(m, key, (size_t)n, &v));
            assert_true(i == 0 || osh_map_get(m, "0", 1, &v));
            goto done;
        }
    }
done:
    osh_map_free(cx, m);
    return rc;
}

static void torture_map(void **state)
{
    assert_true(torture(fill, NULL) > 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_keys),
        cmocka_unit_test(views),
        cmocka_unit_test(odd_keys),
        cmocka_unit_test(random_lengths),
        cmocka_unit_test(torture_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
