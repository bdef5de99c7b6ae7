/* test_base_buf.c - tests buffers that grow: appending, printing, the size limit and the final
 * NUL. */
#include "base/buf.h"
#include "base/shell.h"
#include "torture.h"

static void grows_and_stays_terminated(void **state)
{
    osh_ctx *cx;
    osh_buf b;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_buf_init(&b, 0);
    assert_null(b.data);
    assert_ok(cx, osh_buf_append(cx, &b, NULL, 0));
    assert_string_equal(b.data, "");
    for (int i = 0; i < 5000; i++) {
        char c = (char)('a' + i % 26);
        assert_ok(cx, osh_buf_append(cx, &b, &c, 1));
        assert_int_equal(b.data[b.len], 0);
        assert_true(b.len < b.cap);
    }
    assert_int_equal(b.len, 5000);
    for (int i = 0; i < 5000; i++) assert_int_equal(b.data[i], 'a' + i % 26);
    osh_buf_clear(&b);
    assert_string_equal(b.data, "");
    assert_ok(cx, osh_buf_printf(cx, &b, "%s-%d", "layer", 3));
    // the text is longer than the free space of the buffer
    assert_ok(cx, osh_buf_printf(cx, &b, "%0500d", 7));
    assert_int_equal(b.len, 507);
    assert_memory_equal(b.data, "layer-3000", 10);
    assert_int_equal(b.data[506], '7');
    osh_buf_clear(&b);
    // escaping may make every byte longer
    assert_ok(cx, osh_buf_line(cx, &b, "%s: %0200d", "\x1b[2J\n", 7));
    assert_memory_equal(b.data, "\\u001b[2J\\u000a: 000", 20);
    assert_int_equal(b.len, 15 + 2 + 200 + 1);
    assert_int_equal(b.data[b.len - 1], '\n');
    osh_buf_deinit(cx, &b);
    osh_buf_deinit(cx, &b);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static void cap_is_kept(void **state)
{
    osh_ctx *cx;
    osh_buf b;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_buf_init(&b, 10);
    assert_ok(cx, osh_buf_append(cx, &b, "0123456789", 10)); // the limit of the buffer does not
                                                             // count the final NUL
    assert_fails(cx, OSH_E_FORMAT, osh_buf_append(cx, &b, "x", 1), "at most 10");
    assert_fails(cx, OSH_E_FORMAT, osh_buf_printf(cx, &b, "%d", 1), "at most 10");
    assert_fails(cx, OSH_E_FORMAT, osh_buf_append(cx, &b, "x", SIZE_MAX - 3), "at most 10");
    assert_string_equal(b.data, "0123456789");
    osh_buf_deinit(cx, &b);
    osh_ctx_free(cx);
}

static osh_status fill(osh_ctx *cx, void *user)
{
    osh_status rc = OSH_OK;
    osh_buf b;
    osh_buf_init(&b, 0);
    for (int i = 0; i < 300; i++) OSH_TRY(osh_buf_printf(cx, &b, "%d ", i));
    OSH_TRY(osh_buf_line(cx, &b, "%0300d", 1));
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

static void words_for_a_shell(void **state)
{
    osh_ctx *cx;
    osh_buf b;
    static const char *const rows[][2] = {
        {"a/b-1_2.x", "a/b-1_2.x"}, {"", "''"},       {"a b", "'a b'"},
        {"it's", "'it'\\''s'"},     {"$x", "'$x'"},   {"a\nb", "$'a\\012b'"},
        {"'\x1b\\", "$'\\047\\033\\134'"}, {"gr\xc3\xbc\xc3\x9f", "'gr\xc3\xbc\xc3\x9f'"},
        {"\xff", "$'\\377'"},      {"a\xe2\x80\xae", "$'a\\342\\200\\256'"},
    };
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_buf_init(&b, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        osh_buf_clear(&b);
        assert_ok(cx, osh_shell_word(cx, &b, rows[i][0]));
        assert_string_equal(b.data, rows[i][1]);
    }
    osh_buf_clear(&b);
    assert_ok(cx, osh_shell_path(cx, &b, "-x y"));
    assert_string_equal(b.data, "./'-x y'");
    osh_buf_deinit(cx, &b);
    osh_ctx_free(cx);
}

static void torture_buf(void **state)
{
    assert_true(torture(fill, NULL) > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_and_stays_terminated),
        cmocka_unit_test(cap_is_kept),
        cmocka_unit_test(words_for_a_shell),
        cmocka_unit_test(torture_buf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
