/* test_regex.c - tests compiled patterns: search, re.match, Unicode, limits and errors. */
#include "text/regex.h"
#include "unit/text_helpers.h"

static osh_regex *compile(osh_ctx *cx, const char *pattern)
{
    osh_regex *r = NULL;
    assert_ok(cx, osh_regex_new(cx, &r, pattern, strlen(pattern)));
    return r;
}

static bool matches(osh_ctx *cx, const char *pattern, const char *s)
{
    osh_regex *r = compile(cx, pattern);
    bool yes = false;
    assert_ok(cx, osh_regex_match(cx, r, s, strlen(s), &yes));
    osh_regex_free(cx, r);
    return yes;
}

static void test_find(void **state)
{
    osh_ctx *cx = *state;
    osh_regex *r = compile(cx, "b+");
    osh_hit at;

    assert_ok(cx, osh_regex_find(cx, r, "abba b", 6, 0, &at));
    assert_int_equal(at.start, 1);
    assert_int_equal(at.end, 3);
    assert_ok(cx, osh_regex_find(cx, r, "abba b", 6, 3, &at));
    assert_int_equal(at.start, 5);
    assert_int_equal(at.end, 6);
    assert_ok(cx, osh_regex_find_valid(cx, r, "abba b", 6, 2, &at));
    assert_int_equal(at.start, 2);
    assert_ok(cx, osh_regex_find(cx, r, "abba b", 6, 6, &at));
    assert_true(at.start == SIZE_MAX);
    assert_ok(cx, osh_regex_find(cx, r, "", 0, 0, &at));
    assert_true(at.start == SIZE_MAX);
    osh_regex_free(cx, r);
    osh_regex_free(cx, NULL);
}

static void test_lookbehind_sees_before_from(void **state)
{
    osh_ctx *cx = *state;
    osh_regex *r = compile(cx, "(?<=a)b");
    osh_hit at;

    assert_ok(cx, osh_regex_find(cx, r, "ab", 2, 1, &at));
    assert_int_equal(at.start, 1);
    osh_regex_free(cx, r);
}

static void test_match_is_anchored_at_the_start_only(void **state)
{
    osh_ctx *cx = *state;
    assert_true(matches(cx, "model\\.layers", "model.layers.0.mlp"));
    assert_false(matches(cx, "layers", "model.layers.0.mlp"));
    assert_true(matches(cx, ".*layers", "model.layers.0.mlp"));
    assert_false(matches(cx, ".*layers$", "model.layers.0.mlp"));
    assert_true(matches(cx, "a|model", "model")); // the match is anchored in every alternative of
                                                  // the pattern
    assert_false(matches(cx, "a|odel", "model"));
    // this is Python's spelling of a named group
    assert_true(matches(cx, "(?P<layer>m)odel", "model"));
}

static void test_unicode(void **state)
{
    osh_ctx *cx = *state;
    /* With UCP, an accented letter is a word character. */
    assert_true(matches(cx, "\\w+$", "h\xc3\xa9llo"));
    // with UTF, four bytes are one character
    assert_true(matches(cx, ".$", "\xf0\x9f\x98\x80"));
    assert_true(matches(cx, "\\p{L}\\p{N}$", "\xd0\x96\xd9\xa3"));
    assert_true(matches(cx, "\\s$", "\xe3\x80\x80"));        // an ideographic space is white space
    assert_true(matches(cx, "(?i)\xc3\xa9$", "\xc3\x89"));
}

static void test_bad_utf8(void **state)
{
    osh_ctx *cx = *state;
    osh_regex *r = compile(cx, "a");
    osh_hit at;

    assert_fails(cx, OSH_E_FORMAT, "UTF-8", osh_regex_find(cx, r, "\xff" "a", 2, 0, &at));
    osh_regex_free(cx, r);
}

static void test_bad_pattern(void **state)
{
    osh_ctx *cx = *state;
    osh_regex *r = NULL;

    assert_fails(cx, OSH_E_FORMAT, "'a(b' is not valid at byte 3", osh_regex_new(cx, &r, "a(b", 3));
    assert_null(r);
}

/* A search for the next match begins at the end of the previous match. So a match must end between
 * two characters, and must not begin before the start of its search. */
static void test_matches_are_whole_characters_in_the_searched_part(void **state)
{
    osh_ctx *cx = *state;
    osh_regex *r = NULL;
    osh_hit at;

    static const char *const bytes[] = {"\\C", "a\\Cb", "(?:x|\\C)", "(?<=\\C)x"};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        assert_fails(cx, OSH_E_FORMAT, "\\C is disabled",
                     osh_regex_new(cx, &r, bytes[i], strlen(bytes[i])));
    r = compile(cx, "\\\\C"); // the pattern matches a backslash and a C
    assert_ok(cx, osh_regex_find(cx, r, "a\\C", 3, 0, &at));
    assert_int_equal(at.start, 1);
    osh_regex_free(cx, r);
    r = compile(
        cx, "(?(DEFINE)(?<s>\\Ka))(?<=(?&s))"); // matches after each "a"; \K moves the start of
                                                // the match to the position before the "a"
    assert_fails(cx, OSH_E_UNSUPPORTED,
                 "matches bytes 0 to 1 of 3; want a match of whole characters from byte 1 on",
                 osh_regex_find_valid(cx, r, "aaa", 3, 1, &at));
    osh_regex_free(cx, r);
}

static void test_match_limit(void **state)
{
    osh_ctx *cx = *state;
    osh_regex *r = compile(cx, "(a+)+$");
    char s[41];
    bool yes = false;

    memset(s, 'a', 39);
    s[39] = 'b', s[40] = 0;
    assert_fails(cx, OSH_E_UNSUPPORTED, "limit", osh_regex_match(cx, r, s, 40, &yes));
    osh_regex_free(cx, r);
}

/* A match with deep backtracking exceeds the JIT's stack, so the interpreter runs. (osh_regex_match
 * always uses the interpreter, because PCRE2's JIT cannot anchor at match time.) */
static void test_long_subject(void **state)
{
    osh_ctx *cx = *state;
    osh_regex *r = compile(cx, "(?:a|b)*c");
    size_t n = 150000;
    osh_hit at;
    char *s = malloc(n);
    bool yes = false;

    memset(s, 'a', n);
    s[n - 1] = 'c';
    assert_ok(cx, osh_regex_find(cx, r, s, n, 0, &at));
    assert_int_equal(at.start, 0);
    assert_int_equal(at.end, n);
    assert_ok(cx, osh_regex_match(cx, r, s, n, &yes));
    assert_true(yes);
    free(s);
    osh_regex_free(cx, r);
}

static osh_status use(osh_ctx *cx, void *user)
{
    osh_regex *r = NULL;
    bool yes = false;
    osh_status rc = osh_regex_new(cx, &r, "a(b|c)+", 7);
    if (!rc) rc = osh_regex_match(cx, r, "abcb", 4, &yes);
    osh_regex_free(cx, r);
    return rc;
}

static void test_torture(void **state) { torture(*state, use, NULL); }

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, make_context, drop_context)
    const struct CMUnitTest tests[] = {
        T(test_find),
        T(test_lookbehind_sees_before_from),
        T(test_match_is_anchored_at_the_start_only),
        T(test_unicode),
        T(test_bad_utf8),
        T(test_bad_pattern),
        T(test_match_limit),
        T(test_matches_are_whole_characters_in_the_searched_part),
        T(test_long_subject),
        T(test_torture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
