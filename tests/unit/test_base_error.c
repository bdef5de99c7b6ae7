/* test_base_error.c - checks that later messages are appended to the first, and that the text is
 * one line and fits its buffer. */
#include "torture.h"

static int setup(void **state)
{
    return osh_ctx_new((osh_ctx **)state, 2);
}

static int teardown(void **state)
{
    osh_ctx_free(*state);
    return 0;
}

static osh_status load(osh_ctx *cx)
{
    osh_status rc = OSH_OK;
    OSH_FAIL(cx, OSH_E_FORMAT, "needs bytes [%d, %d) but the file has %d", 0, 4000000, 64);
done:
    if (rc) osh_note(cx, "loading %s", "model.norm.weight");
    return rc;
}

static void first_message_and_notes(void **state)
{
    osh_ctx *cx = *state;
    assert_string_equal(osh_error_text(cx), "");
    assert_int_equal(load(cx), OSH_E_FORMAT);
    assert_string_equal(
        osh_error_text(cx),
        "needs bytes [0, 4000000) but the file has 64; while loading model.norm.weight");
    assert_int_equal(osh_fail(cx, OSH_E_IO, "disk %s", "full"), OSH_E_IO);
    assert_string_equal(osh_error_text(cx), "needs bytes [0, 4000000) but the file has 64; while "
                                            "loading model.norm.weight; then disk full");
    osh_error_clear(cx);
    assert_string_equal(osh_error_text(cx), "");
    osh_fail(cx, OSH_E_IO, "a\nb\r\nc");
    /* The text of an error is one line, even if a file name has line breaks. */
    assert_string_equal(osh_error_text(cx), "a\\u000ab\\u000d\\u000ac");
}

static void never_success_by_mistake(void **state)
{
    assert_int_equal(osh_fail(*state, OSH_OK, "a failure without a code"), OSH_E_INTERNAL);
}

static void endless_text_is_cut(void **state)
{
    osh_ctx *cx = *state;
    char big[10000];
    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = 0;
    osh_fail(cx, OSH_E_USAGE, "unknown key %s", big);
    size_t n = strlen(osh_error_text(cx));
    assert_true(n < 5000);
    assert_string_equal(osh_error_text(cx) + n - 4, "x...");
    for (int i = 0; i < 100; i++) osh_note(cx, "reading %s", big);
    assert_int_equal(strlen(osh_error_text(cx)), n);
    osh_error_clear(cx);
    for (int i = 0; i < 1000; i++) osh_note(cx, "step %d", i);
    assert_true(strlen(osh_error_text(cx)) < 5000);
}

static void forks_share_all_but_errors(void **state)
{
    osh_ctx *cx = *state, *kid;
    assert_int_equal(osh_ctx_fork(&kid, cx), OSH_OK);
    osh_fail(kid, OSH_E_IO, "of the child");
    assert_string_equal(osh_error_text(cx), "");
    assert_string_equal(osh_error_text(kid), "of the child");
    void *p = osh_alloc(kid, 100);
    assert_int_equal(osh_mem_live(cx), 100);
    osh_free(cx, p);
    assert_int_equal(osh_threads(kid), 2);
    assert_false(osh_interrupted(kid));
    osh_interrupt(cx);
    assert_true(osh_interrupted(kid));
    osh_ctx_free(kid);
    osh_ctx_free(NULL);
}

static void time_goes_on(void **state)
{
    double a = osh_now(), b = osh_now();
    assert_true(b >= a && b - a < 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(first_message_and_notes, setup, teardown),
        cmocka_unit_test_setup_teardown(never_success_by_mistake, setup, teardown),
        cmocka_unit_test_setup_teardown(endless_text_is_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(forks_share_all_but_errors, setup, teardown),
        cmocka_unit_test(time_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
