/* test_safetensors.c - tests the reader and the layout of safetensors files. Compares them with
 * files that the safetensors library wrote. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/rng.h"
#include "io/safetensors.h"

#define GOLDEN OSH_SOURCE_DIR "/tests/golden/safetensors/"

static const char *const goldens[] = {"every_dtype", "names", "shapes", "packed", "none",
                                      "pad0",        "pad1",  "pad2",   "pad3",   "pad4",
                                      "pad5",        "pad6",  "pad7"};
#define N_GOLDENS (sizeof goldens / sizeof *goldens)

static osh_ctx *new_ctx(void)
{
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    return cx;
}

static void golden_path(char *to, size_t room, const char *name)
{
    assert_true((size_t)snprintf(to, room, GOLDEN "%s.safetensors", name) < room);
}

/* Shuffles the tensors of a file that the safetensors library wrote, and lays them out. The header
 * and the offsets must equal those of the file. */
static void test_layout_is_the_librarys(void **state)
{
    osh_ctx *cx = new_ctx();
    for (size_t g = 0; g < N_GOLDENS; g++) {
        char path[1024], *text = NULL, *header = NULL;
        size_t n_text = 0, n_header = 0;
        osh_container *st = NULL;
        golden_path(path, sizeof path, goldens[g]);
        if (osh_container_open(cx, &st, path)) fail_msg("%s", osh_error_text(cx));
        assert_int_equal(osh_file_read_all(cx, &text, &n_text, path, 1 << 20), OSH_OK);
        int64_t n = osh_container_count(st);
        osh_entry *e = calloc((size_t)n + 1, sizeof *e);
        for (int64_t i = 0; i < n; i++) {
            e[i] = *osh_container_at(st, i);
            e[i].begin = e[i].end = -1;
        }
        for (int64_t i = n - 1; i > 0; i--) {
            int64_t k = (int64_t)(osh_rng_u64(5, g, (uint64_t)i) % (uint64_t)(i + 1));
            osh_entry swap = e[i];
            e[i] = e[k], e[k] = swap;
        }
        if (osh_safetensors_layout_array(cx, &header, &n_header, e, n))
            fail_msg("%s", osh_error_text(cx));
        assert_true(n_header <= n_text && n_header % 8 == 0);
        if (memcmp(header, text, n_header))
            fail_msg("%s: header differs: %s", goldens[g], header + 8);
        for (int64_t i = 0; i < n; i++) {
            const osh_entry *want = NULL;
            for (int64_t k = 0; k < n; k++)
                if (!strcmp(osh_container_at(st, k)->name, e[i].name))
                    want = osh_container_at(st, k);
            assert_true(want && want->begin == e[i].begin && want->end == e[i].end);
        }
        free(e);
        osh_free(cx, header);
        osh_free(cx, text);
        osh_container_close(cx, st);
    }
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

/* gen.py fills each tensor with 0, 1, 2, ... modulo 251, and bool with 0 and 1. */
static void test_read(void **state)
{
    osh_ctx *cx = new_ctx();
    for (size_t g = 0; g < N_GOLDENS; g++) {
        char path[1024];
        osh_container *st = NULL;
        golden_path(path, sizeof path, goldens[g]);
        assert_int_equal(osh_container_open(cx, &st, path), OSH_OK);
        assert_string_equal(osh_container_path(st), path);
        for (int64_t i = 0; i < osh_container_count(st); i++) {
            const osh_entry *e = osh_container_at(st, i);
            int64_t n = e->end - e->begin, numel = 0;
            assert_true(osh_shape_numel(&numel, e->ndim, e->shape));
            assert_int_equal(n, numel * (int64_t)osh_dtype_bytes(e->dtype));
            uint8_t *to = malloc((size_t)n + 1);
            to[n] = 0xa5;
            assert_int_equal(osh_container_read(cx, to, st, e), OSH_OK);
            for (int64_t k = 0; k < n; k++)
                assert_int_equal(to[k], k % (e->dtype == OSH_BOOL ? 2 : 251));
            if (n > 3) {
                assert_int_equal(osh_container_read_part(cx, to, st, e, 2, (size_t)n - 3), OSH_OK);
                assert_int_equal(to[0], e->dtype == OSH_BOOL ? 0 : 2);
                assert_int_equal(to[n - 4], (n - 2) % (e->dtype == OSH_BOOL ? 2 : 251));
            }
            assert_int_equal(to[n], 0xa5);
            free(to);
        }
        osh_container_close(cx, st);
    }
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static void test_open_torture(void **state)
{
    osh_ctx *cx = new_ctx();
    char path[1024];
    golden_path(path, sizeof path, "packed");
    for (int64_t k = 1;; k++) {
        osh_container *st = NULL;
        uint8_t to[64];
        osh_mem_fail_after(cx, k);
        osh_status rc = osh_container_open(cx, &st, path);
        if (!rc) rc = osh_container_read(cx, to, st, osh_container_at(st, 0));
        osh_mem_fail_after(cx, -1);
        osh_container_close(cx, st);
        assert_int_equal(osh_mem_live(cx), 0);
        if (!rc) {
            assert_true(k > 4);
            break;
        }
        assert_int_equal(rc, OSH_E_NOMEM);
        osh_error_clear(cx);
    }
    osh_ctx_free(cx);
}

static void test_layout_torture(void **state)
{
    osh_ctx *cx = new_ctx();
    for (int64_t k = 1;; k++) {
        char names[4][8] = {"d", "c", "b", "a"}, *header = NULL;
        osh_entry e[4];
        size_t n = 0;
        for (int i = 0; i < 4; i++) e[i] = (osh_entry){names[i], OSH_F32, 1, {3}, 0, 0};
        osh_mem_fail_after(cx, k);
        osh_status rc = osh_safetensors_layout_array(cx, &header, &n, e, 4);
        osh_mem_fail_after(cx, -1);
        if (rc) assert_null(header);
        osh_free(cx, header);
        assert_int_equal(osh_mem_live(cx), 0);
        if (!rc) {
            assert_true(k > 2);
            break;
        }
        assert_int_equal(rc, OSH_E_NOMEM);
        osh_error_clear(cx);
    }
    osh_ctx_free(cx);
}

static void check_refused(osh_ctx *cx, osh_entry *e, int64_t n, const char *words)
{
    char *header = NULL;
    size_t bytes = 0;
    assert_int_equal(osh_safetensors_layout_array(cx, &header, &bytes, e, n), OSH_E_FORMAT);
    assert_null(header);
    if (!strstr(osh_error_text(cx), words)) fail_msg("'%s' not in '%s'", words, osh_error_text(cx));
    osh_error_clear(cx);
}

static void test_layout_refuses(void **state)
{
    osh_ctx *cx = new_ctx();
    char a[] = "a", meta[] = "__metadata__", b[] = "b";
    int64_t big = INT64_C(1) << 61;
    osh_entry twice[] = {{a, OSH_F32, 1, {3}, 0, 0}, {a, OSH_U8, 1, {3}, 0, 0}};
    osh_entry meta_name[] = {{meta, OSH_F32, 1, {3}, 0, 0}};
    osh_entry sum[] = {{a, OSH_U8, 1, {big}, 0, 0}, {b, OSH_U8, 1, {big}, 0, 0}};
    osh_entry product[] = {{b, OSH_I64, 1, {big}, 0, 0}};

    check_refused(cx, twice, 2, "'a'");
    check_refused(cx, meta_name, 1, "'__metadata__'");
    check_refused(cx, sum, 2, "too large");
    check_refused(cx, product, 1, "b: the file would be too large");
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

/* If a shard shrinks between opening and reading, the read fails and returns no old or zero
 * bytes. */
static void test_file_changed(void **state)
{
    osh_ctx *cx = new_ctx();
    char path[1024], temp[] = "test_safetensors.XXXXXX", *text = NULL;
    size_t n = 0;
    osh_container *st = NULL;
    uint8_t to[64];
    int fd = mkstemp(temp);

    assert_true(fd >= 0);
    golden_path(path, sizeof path, "packed");
    assert_int_equal(osh_file_read_all(cx, &text, &n, path, 1 << 20), OSH_OK);
    assert_int_equal(write(fd, text, n), n);
    assert_int_equal(osh_container_open(cx, &st, temp), OSH_OK);
    assert_int_equal(ftruncate(fd, (off_t)n - 1), 0);
    assert_int_equal(osh_container_read(cx, to, st, osh_container_at(st, 0)), OSH_E_IO);
    assert_non_null(strstr(osh_error_text(cx), "when it was opened"));
    close(fd);
    osh_error_clear(cx);
    assert_int_equal(unlink(temp), 0);
    assert_int_equal(osh_container_read(cx, to, st, osh_container_at(st, 0)), OSH_E_IO);
    osh_container_close(cx, st);
    osh_free(cx, text);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

/* Lays out and reads 100000 tensors. The time limit detects a quadratic algorithm. */
static void test_many_tensors(void **state)
{
    enum { N = 100000 };
    osh_ctx *cx = new_ctx();
    char temp[] = "test_safetensors.XXXXXX", *header = NULL,
         (*names)[48] = calloc(N, sizeof *names);
    osh_entry *e = calloc(N, sizeof *e);
    size_t bytes = 0;
    osh_container *st = NULL;
    int fd = mkstemp(temp);
    clock_t start = clock(); // processor time, which does not depend on other work on the machine

    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "model.layers.%d.mlp.experts.%d.w", i / 256, i % 256);
        e[i] = (osh_entry){names[i], OSH_U8, 2, {1, i % 3}, 0, 0};
    }
    if (osh_safetensors_layout_array(cx, &header, &bytes, e, N)) fail_msg("%s", osh_error_text(cx));
    assert_int_equal(write(fd, header, bytes), bytes);
    assert_int_equal(ftruncate(fd, (off_t)e[N - 1].end), 0);
    close(fd);
    if (osh_container_open(cx, &st, temp)) fail_msg("%s", osh_error_text(cx));
    assert_int_equal(osh_container_count(st), N);
    // without sanitizers the test takes 0.3 s of processor time
    assert_true(clock() - start < 20 * CLOCKS_PER_SEC);
    osh_container_close(cx, st);
    osh_free(cx, header);
    unlink(temp);
    free(names), free(e);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static void test_file_names(void **state)
{
    const osh_container_kind *kind = osh_container_written();
    static const struct {
        int i, n;
        const char *name;
    } made[] = {{1, 1, "model.safetensors"},
                {1, 3, "model-00001-of-00003.safetensors"},
                {123, 45678, "model-00123-of-45678.safetensors"}};
    static const char *const others[] = {"",
                                         "model",
                                         "model-00001-of-00003",
                                         "model-0001-of-00003.safetensors",
                                         "mode.safetensors",
                                         "model-00001-of-00003.safetensors.tmp",
                                         "model-.safetensors",
                                         "model.gguf",
                                         "model-00001-of-0000x.safetensors",
                                         "model.safetensors.index.json"};
    osh_ctx *cx = new_ctx();
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        char *name = osh_container_file_name(cx, kind, made[i].i, made[i].n); // own
        assert_string_equal(name, made[i].name);
        assert_true(osh_container_is_file_name(kind, name));
        assert_ptr_equal(osh_container_kind_of(name), kind);
        osh_free(cx, name);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(osh_container_is_file_name(kind, others[i]));
    assert_null(osh_container_kind_of("model.gguf"));
    osh_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file_names),     cmocka_unit_test(test_layout_is_the_librarys),
        cmocka_unit_test(test_read),           cmocka_unit_test(test_open_torture),
        cmocka_unit_test(test_layout_torture), cmocka_unit_test(test_layout_refuses),
        cmocka_unit_test(test_file_changed),   cmocka_unit_test(test_many_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
