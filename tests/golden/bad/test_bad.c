/* test_bad.c - tests the damaged files of gen.py. Each must be refused with a message that names
 * the defect. The files ok_* must be accepted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "io/container.h"

#define FOLDER OSH_SOURCE_DIR "/tests/golden/bad/"

typedef struct bad_row {
    const char *name;
    osh_status rc;
    const char *words[2]; // words that the message must contain
} bad_row;

static const bad_row bad[] = {
    {"empty_file", OSH_E_FORMAT, {"has 0 bytes"}},
    {"no_length", OSH_E_FORMAT, {"has 3 bytes"}},
    {"truncated_header", OSH_E_FORMAT, {"header of 112 bytes", "the file has 48"}},
    {"header_longer_than_file", OSH_E_FORMAT, {"header of 1048576 bytes", "but the file has"}},
    {"header_longer_by_one", OSH_E_FORMAT, {"header of 9 bytes", "the file has 16"}},
    {"header_length_negative", OSH_E_FORMAT, {"header of 9223372036854775807 bytes"}},
    {"header_not_json", OSH_E_FORMAT, {"line 1 column 2"}},
    {"header_not_an_object", OSH_E_FORMAT, {"not a JSON object"}},
    {"header_cut_json", OSH_E_FORMAT, {"line 1"}},
    {"bytes_after_json", OSH_E_FORMAT, {"line 1 column 56"}},
    {"overlapping_offsets", OSH_E_FORMAT, {"b: overlaps a", "12, wanted 16"}},
    {"same_bytes_twice", OSH_E_FORMAT, {"overlaps"}},
    {"hole", OSH_E_FORMAT, {"b: leaves a gap after a", "20, wanted 16"}},
    {"hole_at_start", OSH_E_FORMAT, {"leaves a gap after the header"}},
    {"shape_exceeds_data", OSH_E_FORMAT, {"b: its shape wants 12 bytes", "give 8"}},
    {"shape_below_data", OSH_E_FORMAT, {"b: its shape wants 4 bytes", "give 8"}},
    {"past_end", OSH_E_FORMAT, {"b: needs data bytes [16, 32)", "the file has 24"}},
    {"truncated_data", OSH_E_FORMAT, {"b: needs data bytes [16, 24)", "the file has 20"}},
    {"trailing_bytes", OSH_E_FORMAT, {"3 bytes after the last tensor"}},
    {"data_without_tensor", OSH_E_FORMAT, {"8 bytes after the last tensor"}},
    {"negative_shape", OSH_E_FORMAT, {"shape holds -4"}},
    {"negative_shape_pair", OSH_E_FORMAT, {"shape holds -2"}},
    {"fractional_shape", OSH_E_FORMAT, {"shape holds 4.5"}},
    {"huge_shape", OSH_E_FORMAT, {"a: the product of its shape overflows"}},
    {"shape_past_int64", OSH_E_FORMAT, {"shape holds 1.18"}},
    {"shape_of_strings", OSH_E_FORMAT, {"shape holds a value that is not a number"}},
    {"nine_dimensions", OSH_E_UNSUPPORTED, {"more than 8 dimensions"}},
    {"negative_offset", OSH_E_FORMAT, {"data_offsets holds -16"}},
    {"offsets_backwards", OSH_E_FORMAT, {"[16, 0) end before they begin"}},
    {"three_offsets", OSH_E_FORMAT, {"data_offsets has 3 items"}},
    {"unknown_dtype", OSH_E_UNSUPPORTED, {"a: unknown dtype 'F31'"}},
    {"lower_case_dtype", OSH_E_UNSUPPORTED, {"unknown dtype 'float32'"}},
    {"missing_dtype", OSH_E_FORMAT, {"wanted an object with dtype"}},
    {"missing_shape", OSH_E_FORMAT, {"wanted an object with dtype, shape"}},
    {"missing_offsets", OSH_E_FORMAT, {"and data_offsets"}},
    {"tensor_is_a_number", OSH_E_FORMAT, {"a: wanted an object"}},
    {"duplicate_tensor", OSH_E_FORMAT, {"'a' occurs twice"}},
    {"nul_in_name", OSH_E_FORMAT, {"NUL"}},
    {"raw_nul_in_name", OSH_E_FORMAT, {"NUL"}},
    {"bad_utf8", OSH_E_FORMAT, {"not UTF-8 at byte 11"}},
    {"metadata_not_an_object", OSH_E_FORMAT, {"__metadata__ is not an object"}},
    {"metadata_of_numbers", OSH_E_FORMAT, {"__metadata__.format is not a string"}},
};

typedef struct ok_row {
    const char *name;
    int64_t n;
    const char *first, *last; // names of the first and the last tensor in the order of the file
} ok_row;

static const ok_row ok[] = {
    {"ok_brace_in_metadata", 2, "a", "b"},
    {"ok_600_tensors", 600, "layer.0", "layer.599"},
    {"ok_no_tensors", 0, NULL, NULL},
    {"ok_empty_tensors", 4, "e0", "s"},
    {"ok_listed_backwards", 2, "a", "b"},
    {"ok_not_aligned", 1, "a", "a"},
    {"ok_unicode_name", 1, "größe.語\n", "größe.語\n"},
};

static void path_of(char *to, size_t room, const char *name)
{
    assert_true((size_t)snprintf(to, room, FOLDER "%s.safetensors", name) < room);
}

static void test_bad(void **state)
{
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char path[1024];
        osh_container *st = NULL;
        path_of(path, sizeof path, bad[i].name);
        osh_status rc = osh_container_open(cx, &st, path);
        const char *text = osh_error_text(cx);
        if (rc != bad[i].rc)
            fail_msg("%s: status %d, wanted %d: %s", bad[i].name, rc, bad[i].rc, text);
        assert_null(st);
        if (!strstr(text, path)) fail_msg("%s: no path in '%s'", bad[i].name, text);
        for (int w = 0; w < 2 && bad[i].words[w]; w++)
            if (!strstr(text, bad[i].words[w]))
                fail_msg("%s: '%s' not in '%s'", bad[i].name, bad[i].words[w], text);
        assert_int_equal(osh_mem_live(cx), 0);
        osh_error_clear(cx);
    }
    osh_ctx_free(cx);
}

static void test_ok(void **state)
{
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    for (size_t i = 0; i < sizeof ok / sizeof *ok; i++) {
        char path[1024];
        osh_container *st = NULL;
        path_of(path, sizeof path, ok[i].name);
        if (osh_container_open(cx, &st, path)) fail_msg("%s: %s", ok[i].name, osh_error_text(cx));
        assert_int_equal(osh_container_count(st), ok[i].n);
        if (ok[i].n) {
            assert_string_equal(osh_container_at(st, 0)->name, ok[i].first);
            assert_string_equal(osh_container_at(st, ok[i].n - 1)->name, ok[i].last);
        }
        osh_container_close(cx, st);
        assert_int_equal(osh_mem_live(cx), 0);
    }
    osh_ctx_free(cx);
}

static bool is_listed(const char *file)
{
    size_t n = strlen(file) - strlen(".safetensors");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (strlen(bad[i].name) == n && !strncmp(file, bad[i].name, n)) return true;
    for (size_t i = 0; i < sizeof ok / sizeof *ok; i++)
        if (strlen(ok[i].name) == n && !strncmp(file, ok[i].name, n)) return true;
    return false;
}

/* Every file of gen.py must have a row in the table. */
static void test_every_file_has_a_row(void **state)
{
    osh_ctx *cx = NULL;
    char **names = NULL;
    size_t n = 0, n_checked = 0;

    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_int_equal(osh_dir_list(cx, &names, &n, FOLDER), OSH_OK);
    for (size_t i = 0; i < n; i++) {
        if (!strstr(names[i], ".safetensors")) continue;
        if (!is_listed(names[i])) fail_msg("%s has no row", names[i]);
        n_checked++;
    }
    assert_int_equal(n_checked, sizeof bad / sizeof *bad + sizeof ok / sizeof *ok);
    osh_strings_free(cx, names, n);
    osh_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_ok),
        cmocka_unit_test(test_every_file_has_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
