/* test_json_walk.c - tests the functions that read JSON value by value. They must refuse the texts
 * that a parse of the whole text refuses. A copy of a value must be one line. Files are read in
 * chunks, and a chunk may end at any byte. */
#include "text/json_walk.h"
#include "text/json.h"
#include "unit/text_helpers.h"

#include <string.h>
#include <unistd.h>

static osh_status put_to(osh_ctx *cx, void *user, const char *s, size_t n)
{
    return osh_buf_append(cx, user, s, n);
}

/* Copies a text that is in memory. */
static osh_status copy_text(osh_ctx *cx, osh_buf *to, const char *text, size_t n)
{
    osh_json_walk w; // own
    osh_status rc = osh_json_walk_text(cx, &w, text, n, "text");
    if (!rc) rc = osh_json_walk_copy(&w, put_to, to);
    if (!rc) rc = osh_json_walk_end(&w);
    osh_json_walk_deinit(cx, &w);
    return rc;
}

static void test_copies(void **state)
{
    osh_ctx *cx = *state;
    static const char *const good[][2] = {
        {" [ 1.50 , -0e+5,\ttrue,\n false , null ] ", "[1.50,-0e+5,true,false,null]"},
        {"{ \"a\\u00e9\\/\\u0022\\\\\" : { } , \"\" : [ [ ] ] }",
         "{\"a\303\251/\\\"\\\\\":{},\"\":[[]]}"},
        {"\"\\b\\f\\n\\r\\t\\u0001 x\\ud83d\\ude00\"",
         "\"\\b\\f\\n\\r\\t\\u0001 x\360\237\230\200\""},
        {"12345678901234567890", "12345678901234567890"},
    };
    static const char *const bad[] = {"", " ", "[", "[1", "[1,", "[1,]", "[,]", "[1 2]", "[1}", "{",
                                      "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,}", "{a:1}",
                                      "{1:1}", "01", "1.", "tru", "nil", "\"", "\"\\x\"",
                                      "\"\\ud800\"", "\"\n\"", "\"\\u0000\"", "1 2", "[1]]", "NaN",
                                      "\xef\xbb\xbf[1]"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        osh_buf to; // own
        osh_buf_init(&to, 0);
        assert_ok(cx, copy_text(cx, &to, good[i][0], strlen(good[i][0])));
        assert_string_equal(to.data, good[i][1]);
        osh_buf_deinit(cx, &to);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        osh_buf to; // own
        osh_buf_init(&to, 0);
        assert_fails(cx, OSH_E_FORMAT, "text", copy_text(cx, &to, bad[i], strlen(bad[i])));
        osh_buf_deinit(cx, &to);
    }
    char deep[600];
    for (int depth = 256; depth <= 257; depth++) {
        osh_buf to; // own
        osh_buf_init(&to, 0);
        memset(deep, '[', (size_t)depth), memset(deep + depth, ']', (size_t)depth);
        if (depth == 256)
            assert_ok(cx, copy_text(cx, &to, deep, 512));
        else
            assert_fails(cx, OSH_E_FORMAT, "256 deep", copy_text(cx, &to, deep, 514));
        osh_buf_deinit(cx, &to);
    }
}

typedef struct kept {
    osh_buf keys; // own: the keys that were read, each followed by a space
    int64_t place, sum;
} kept;

static osh_status see_item(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    int64_t n = 0;
    (void)cx;
    assert_null(key);
    osh_status rc = osh_json_walk_count(w, &n, "n");
    ((kept *)user)->sum += n;
    return rc;
}

static osh_status see_member(osh_ctx *cx, void *user, osh_json_walk *w, const char *key)
{
    kept *k = user;
    osh_status rc = osh_buf_printf(cx, &k->keys, "%s ", key);
    if (rc) return rc;
    if (!strcmp(key, "at")) k->place = osh_json_walk_place(w);
    return osh_json_walk_peek(w) == '[' ? osh_json_walk_items(w, see_item, k)
                                        : osh_json_walk_skip(w);
}

/* Reads a file that has a value, then n bytes of padding, then more values. One of the later values
 * crosses the end of a chunk. Then goes back to the first value and reads it again. */
static void read_padded(osh_ctx *cx, const char *path, size_t n)
{
    osh_buf text, copy; // own
    osh_file *f = NULL; // own
    osh_json_walk w;    // own
    kept k = {0};
    osh_buf_init(&text, 0), osh_buf_init(&copy, 0), osh_buf_init(&k.keys, 0);
    assert_ok(cx, osh_buf_printf(cx, &text, "{\"at\": {\"x\": \"\\u00e9\"}, \"pad\": \""));
    assert_ok(cx, osh_buf_printf(cx, &text, "%0*d", (int)n, 0));
    assert_ok(cx,
              osh_buf_printf(cx, &text, "\\ud83d\\ude00\", \"l\": [1, 20, 300], \"end\": false}"));
    assert_ok(cx, osh_file_write_all(cx, path, text.data, text.len));
    assert_ok(cx, osh_file_open(cx, &f, path));
    assert_ok(cx, osh_json_walk_file(cx, &w, f, "file"));
    assert_ok(cx, osh_json_walk_members(&w, see_member, &k));
    assert_ok(cx, osh_json_walk_end(&w));
    assert_string_equal(k.keys.data, "at pad l end ");
    assert_int_equal(k.sum, 321);
    osh_json_walk_seek(&w, k.place);
    assert_ok(cx, osh_json_walk_copy(&w, put_to, &copy));
    assert_string_equal(copy.data, "{\"x\":\"\303\251\"}");
    osh_json_walk_seek(&w, 0);
    osh_buf_clear(&copy);
    assert_ok(cx, osh_json_walk_copy(&w, put_to, &copy));
    size_t rest = sizeof "{\"at\":{\"x\":\"\303\251\"},\"pad\":\"\360\237\230\200\",\"l\":[1,20,"
                         "300],\"end\":false}" -
                  1;
    assert_int_equal(copy.len, n + rest);
    osh_json_walk_deinit(cx, &w);
    osh_file_close(cx, f);
    osh_buf_deinit(cx, &text), osh_buf_deinit(cx, &copy), osh_buf_deinit(cx, &k.keys);
}

static void test_pieces(void **state)
{
    osh_ctx *cx = *state;
    char path[] = "test_json_walk_XXXXXX";
    close(mkstemp(path));
    for (size_t n = (1 << 16) - 80; n < (1 << 16) - 20; n++) read_padded(cx, path, n);
    read_padded(cx, path, 200000);
    unlink(path);
}

static osh_status take_text(osh_ctx *cx, void *user)
{
    osh_json_walk w; // own
    osh_buf name;    // own
    int64_t n = 0;
    bool yes;
    const char *const *value = user;
    osh_buf_init(&name, 8);
    osh_status rc = osh_json_walk_text(cx, &w, value[1], strlen(value[1]), "x.json");
    if (!rc && value[0][0] == 's') rc = osh_json_walk_string(&w, &name, "key");
    if (!rc && value[0][0] == 'n') rc = osh_json_walk_count(&w, &n, "key");
    if (!rc && value[0][0] == 'b') rc = osh_json_walk_bool(&w, &yes, "key");
    osh_buf_deinit(cx, &name);
    osh_json_walk_deinit(cx, &w);
    return rc;
}

static void test_types(void **state)
{
    osh_ctx *cx = *state;
    static const char *const bad[][3] = {
        {"string", "1", "x.json: 'key' is a number, wanted a string"},
        {"string", "{}", "x.json: 'key' is an object, wanted a string"},
        {"string", "\"123456789\"", "at most 8 are allowed; while reading 'key' of x.json"},
        {"number", "-1", "x.json: 'key' is -1, wanted a whole number from 0 to 2^53"},
        {"number", "1.0", "'key' is 1.0, wanted"},
        {"number", "1e3", "'key' is 1e3, wanted"},
        {"number", "9007199254740993", "'key' is 9007199254740993, wanted"},
        {"number", "99999999999999999999", "wanted a whole number"},
        {"number", "\"1\"", "'key' is a string, wanted a whole number"},
        {"number", "", "'key' is the end of the text, wanted a whole number"},
        {"bool", "null", "'key' is null, wanted true or false"},
        {"bool", "0", "'key' is a number, wanted true or false"},
    };
    static const char *const good[][3] = {{"string", "\"12345678\"", ""},
                                          {"number", "9007199254740992", ""},
                                          {"number", "0", ""},
                                          {"bool", " true", ""}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(cx, OSH_E_FORMAT, bad[i][2], take_text(cx, (void *)(uintptr_t)bad[i]));
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_ok(cx, take_text(cx, (void *)(uintptr_t)good[i]));
    torture(cx, take_text, (void *)(uintptr_t)good[0]);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, make_context, drop_context)
    const struct CMUnitTest tests[] = {T(test_copies), T(test_pieces), T(test_types)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
