/* test_json.c - tests JSON: refused texts and their messages, typed members, edits that keep the
 * other bytes, Python's printing. */
#include "text/json.h"
#include "unit/text_helpers.h"
#include <stdio.h>
#include <unistd.h>

static cJSON *parse(osh_ctx *cx, const char *text)
{
    cJSON *o = NULL;
    assert_ok(cx, osh_json_parse(cx, &o, text, strlen(text), "x.json", 0));
    return o;
}

static void refuse_n(osh_ctx *cx, const char *text, size_t n, const char *holds)
{
    cJSON *o = NULL;
    assert_fails(cx, OSH_E_FORMAT, holds, osh_json_parse(cx, &o, text, n, "x.json", 0));
    assert_null(o);
}

static void refuse(osh_ctx *cx, const char *text, const char *holds)
{
    refuse_n(cx, text, strlen(text), holds);
}

static void test_accepts(void **state)
{
    osh_ctx *cx = *state;
    static const char *const good[] = {
        "{}", "[]", " null ", "true", "\"\"", "-0", "0.5e+3", "1E5", "[[],{}]",
        "{\"a\":[1,{\"b\":null}],\"c\":\"\\u00e9\\ud83d\\ude00\\n\"}\r\n\t",
        "{\"a\":{\"k\":1},\"b\":{\"k\":1}}", // two objects may have the same key
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) cJSON_Delete(parse(cx, good[i]));
}

static void test_refuses_bad_syntax(void **state)
{
    osh_ctx *cx = *state;
    refuse(cx, "", "x.json: line 1 column 1: the text ends");
    refuse(cx, "{\"a\": 1,\n  \"b\" 2}", "x.json: line 2 column 7: found no ':'");
    refuse(cx, "{} x", "line 1 column 4: something follows");
    refuse(cx, "\xef\xbb\xbf{}",
           "x.json: line 1 column 1: a byte order mark in place of a value (Python's json "
           "refuses it)");
    refuse(cx, "{}{}", "something follows");
    refuse(cx, "[1,]", "no JSON value");
    refuse(cx, "{\"a\":1,}", "no quoted key");
    refuse(cx, "[1 2]", "found no ','");
    refuse(cx, "{\"a\":1 \"b\":2}", "found no ','");
    refuse(cx, "[1}", "found no ','");
    refuse(cx, "[1", "found no ','");
    refuse(cx, "{\"a", "closing quote");
    refuse(cx, "\"\\x\"", "unknown escape");
    refuse(cx, "\"\\", "unknown escape");
    refuse(cx, "\"\\u12g4\"", "four hexadecimal");
    refuse(cx, "\"\\ud800\"", "surrogate");
    refuse(cx, "\"\\ud800\\u0041\"", "surrogate");
    refuse(cx, "\"\\udc00\"", "surrogate");
    refuse(cx, "\"a\nb\"", "control character");
    refuse(cx, "01", "something follows");
    refuse(cx, "+1", "no JSON value");
    refuse(cx, "1.", "not a number");
    refuse(cx, ".5", "no JSON value");
    refuse(cx, "1e", "not a number");
    refuse(cx, "-", "not a number");
    refuse(cx, "NaN", "no JSON value");
    refuse(cx, "tru", "no JSON value");
    refuse(cx, "'a'", "no JSON value");
    refuse(cx, "0.1234567890123456789012345678901234567890123456789012345678901234",
           "63 characters");
}

static void test_nesting(void **state)
{
    osh_ctx *cx = *state;
    char deep[2 * 256 + 3];

    memset(deep, '[', 256), memset(deep + 256, ']', 256), deep[512] = 0;
    cJSON_Delete(parse(cx, deep));
    memset(deep, '[', 257), memset(deep + 257, ']', 257), deep[514] = 0;
    refuse(cx, deep, "nested more than 256 deep");
}

static void test_nul(void **state)
{
    osh_ctx *cx = *state;
    cJSON *o = NULL;
    static const char raw[] = "{\"a\0b\": 1}",
                      text[] = "{\"a\\u0000b\": \"\\\\u0000\", \"c\": \"x\0\\\"\"}";

    refuse_n(cx, raw, sizeof raw - 1, "line 1 column 4: a NUL character");
    refuse(cx, "{\"a\": \"\\u0000\"}", "line 1 column 8: a NUL character");
    refuse_n(cx, "{}\0", 3, "something follows");
    refuse_n(cx, "\0{}", 3, "no JSON value");
    assert_ok(cx, osh_json_parse(cx, &o, text, sizeof text - 1, "x.json", OSH_JSON_NUL));
    assert_string_equal(o->child->string, "a\xc0\x80" "b");
    // an escaped backslash, which is not a NUL
    assert_string_equal(o->child->valuestring, "\\u0000");
    assert_string_equal(o->child->next->valuestring, "x\xc0\x80\"");
    cJSON_Delete(o);
}

static void test_nan(void **state)
{
    osh_ctx *cx = *state;
    static const char text[] = "{\"NaN\": NaN, \"i\\\"I\": [Infinity, -Infinity], \"N\\u004e\": 2}";
    static const char *const bad[] = {"[Nan]",     "[NaNs]",       "[-NaN]", "[+Infinity]",
                                      "[Infinit]", "[--Infinity]", "[N"};
    cJSON *tree = NULL;
    char *edited = NULL;
    double d = 0;

    refuse(cx, text, "no JSON value");
    assert_ok(cx, osh_json_parse(cx, &tree, text, strlen(text), "x.json", OSH_JSON_NAN));
    assert_fails(cx, OSH_E_FORMAT, "'NaN' is not finite",
                 osh_json_num_or(cx, &d, tree, "NaN", 1, "x.json"));
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(tree, "i\"I");
    assert_true(list && list->child->valuedouble > 1e308 &&
                list->child->next->valuedouble < -1e308);
    assert_ok(cx, osh_json_num_or(cx, &d, tree, "NN", 1, "x.json"));
    assert_true(d == 2);
    assert_ok(
        cx, osh_json_edit(cx, &edited, text, strlen(text), (osh_json_member){"NN", "3"}, "x.json"));
    assert_string_equal(edited,
                        "{\"NaN\": NaN, \"i\\\"I\": [Infinity, -Infinity], \"N\\u004e\": 3}");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cJSON *none = NULL;
        assert_int_equal(osh_json_parse(cx, &none, bad[i], strlen(bad[i]), "x.json", OSH_JSON_NAN),
                         OSH_E_FORMAT);
        osh_error_clear(cx);
    }
    osh_free(cx, edited);
    cJSON_Delete(tree);
}

static void test_duplicate_keys(void **state)
{
    osh_ctx *cx = *state;
    char many[2000] = "{";

    refuse(cx, "{\"a\": 1, \"b\": 2, \"a\": 3}", "x.json: the key 'a' occurs twice");
    refuse(cx, "{\"a\": 1, \"\\u0061\": 3}", "the key 'a' occurs twice");
    refuse(cx, "[0, {\"x\": [{\"k\": 1, \"k\": 1}]}]", "the key 'k' occurs twice");
    for (int i = 0; i < 40; i++) // more than FEW_KEYS keys, so a hash table is used
        sprintf(many + strlen(many), "%s\"key%d\": %d", i ? "," : "", i == 39 ? 5 : i, i);
    refuse(cx, strcat(many, "}"), "the key 'key5' occurs twice");
}

static void test_members(void **state)
{
    osh_ctx *cx = *state;
    cJSON *o = parse(cx, "{\"i\": 7, \"f\": 2.5, \"s\": \"t\", \"b\": true, \"n\": null, \"l\": [],"
                         " \"big\": 1e300, \"e\": 1e2, \"m\": -9007199254740992, \"inf\": 1e999}");
    int64_t i = 0;
    double f = 0;
    bool b = false;
    const char *s = NULL;

    assert_ok(cx, osh_json_int(cx, &i, o, "i", "x.json"));
    assert_int_equal(i, 7);
    assert_ok(cx, osh_json_int(cx, &i, o, "e", "x.json"));
    assert_int_equal(i, 100);
    assert_ok(cx, osh_json_int(cx, &i, o, "m", "x.json"));
    assert_true(i == -9007199254740992);
    assert_fails(cx, OSH_E_FORMAT, "x.json: has no 'q'", osh_json_int(cx, &i, o, "q", "x.json"));
    assert_fails(cx, OSH_E_FORMAT, "'n' is null", osh_json_int(cx, &i, o, "n", "x.json"));
    assert_fails(cx, OSH_E_FORMAT, "'f' is 2.5", osh_json_int(cx, &i, o, "f", "x.json"));
    assert_fails(cx, OSH_E_FORMAT, "'s' is a string, wanted an integer",
                 osh_json_int(cx, &i, o, "s", "x.json"));
    assert_fails(cx, OSH_E_FORMAT, "2^53", osh_json_int(cx, &i, o, "big", "x.json"));
    assert_ok(cx, osh_json_int_or(cx, &i, o, "q", 9, "x.json"));
    assert_int_equal(i, 9);
    assert_ok(cx, osh_json_int_or(cx, &i, o, "n", 8, "x.json"));
    assert_int_equal(i, 8);
    assert_fails(cx, OSH_E_FORMAT, "'l' is an array", osh_json_int_or(cx, &i, o, "l", 8, "x.json"));
    assert_ok(cx, osh_json_num_or(cx, &f, o, "f", 1, "x.json"));
    assert_true(f == 2.5);
    assert_ok(cx, osh_json_num_or(cx, &f, o, "q", 1.5, "x.json"));
    assert_true(f == 1.5);
    assert_fails(cx, OSH_E_FORMAT, "'b' is a boolean",
                 osh_json_num_or(cx, &f, o, "b", 1, "x.json"));
    assert_fails(cx, OSH_E_FORMAT, "'inf' is not finite",
                 osh_json_num_or(cx, &f, o, "inf", 1, "x.json"));
    assert_ok(cx, osh_json_bool_or(cx, &b, o, "b", false, "x.json"));
    assert_true(b);
    assert_ok(cx, osh_json_bool_or(cx, &b, o, "n", false, "x.json"));
    assert_false(b);
    assert_fails(cx, OSH_E_FORMAT, "'i' is a number, wanted a boolean",
                 osh_json_bool_or(cx, &b, o, "i", false, "x.json"));
    assert_ok(cx, osh_json_str_or(cx, &s, o, "s", NULL, "x.json"));
    assert_string_equal(s, "t");
    assert_ok(cx, osh_json_str_or(cx, &s, o, "q", "dflt", "x.json"));
    assert_string_equal(s, "dflt");
    assert_fails(cx, OSH_E_FORMAT, "'i' is a number, wanted a string",
                 osh_json_str_or(cx, &s, o, "i", NULL, "x.json"));
    cJSON_Delete(o);
}

static void edits_to(osh_ctx *cx, const char *text, const char *key, const char *value,
                     const char *wanted)
{
    char *out = NULL;
    assert_ok(cx,
              osh_json_edit(cx, &out, text, strlen(text), (osh_json_member){key, value}, "x.json"));
    assert_string_equal(out, wanted);
    osh_free(cx, out);
}

static void test_edit_replaces(void **state)
{
    osh_ctx *cx = *state;
    edits_to(cx, "{\n    \"a\" :1 ,\n  \"b\":\t[1, {\"a\": 2}]  ,\"c\": 1.0e0}\n\n", "b", "null",
             "{\n    \"a\" :1 ,\n  \"b\":\tnull  ,\"c\": 1.0e0}\n\n");
    edits_to(cx, "{\"a\": {\"b\": 1}, \"b\": \"x\\\"}\"}", "b", "2",
             "{\"a\": {\"b\": 1}, \"b\": 2}");
    edits_to(cx, "{\"\\u0061\": 1}", "a", "{\n  }", "{\"\\u0061\": {\n  }}");
}

static void test_edit_adds(void **state)
{
    osh_ctx *cx = *state;
    edits_to(cx, "{\n  \"a\": 1\n}\n", "q", "[]", "{\n  \"a\": 1,\n  \"q\": []\n}\n");
    edits_to(cx, "{\n\t\"a\": 1,\n\t\"b\": 2\n}", "q", "3",
             "{\n\t\"a\": 1,\n\t\"b\": 2,\n\t\"q\": 3\n}");
    edits_to(cx, "{\r\n    \"a\": {\"q\": 0}\r\n}", "q", "3",
             "{\r\n    \"a\": {\"q\": 0},\r\n    \"q\": 3\r\n}");
    edits_to(cx, "{\"a\": 1}", "q", "3", "{\"a\": 1, \"q\": 3}");
    edits_to(cx, "{ \"a\": 1 }", "q", "3", "{ \"a\": 1, \"q\": 3 }");
    edits_to(cx, "{}", "q", "3", "{\n  \"q\": 3\n}");
    edits_to(cx, " { \n } \n", "q", "3", " {\n  \"q\": 3\n} \n");
    edits_to(cx, "{}", "a\"b", "3", "{\n  \"a\\\"b\": 3\n}");
}

static void test_edit_removes(void **state)
{
    osh_ctx *cx = *state;
    edits_to(cx, "{\n  \"a\": 1,\n  \"b\": 2\n}", "a", NULL, "{\n  \"b\": 2\n}");
    edits_to(cx, "{\n  \"a\": 1,\n  \"b\": 2\n}", "b", NULL, "{\n  \"a\": 1\n}");
    edits_to(cx, "{\"a\": 1, \"b\": 2 , \"c\": 3}", "b", NULL, "{\"a\": 1 , \"c\": 3}");
    edits_to(cx, "{\n  \"a\": [1]\n}", "a", NULL, "{}");
    edits_to(cx, "{\"a\": 1}", "q", NULL, "{\"a\": 1}");
}

static void test_edit_refuses(void **state)
{
    osh_ctx *cx = *state;
    char *out = NULL;
#define EDIT(text)                                                                                 \
    osh_json_edit(cx, &out, text, strlen(text), (osh_json_member){"a", "1"}, "x.json")
    assert_fails(cx, OSH_E_FORMAT, "x.json: holds no JSON object", EDIT("[1]"));
    assert_fails(cx, OSH_E_FORMAT, "x.json: line 1 column 9", EDIT("{\"b\": 1 "));
    assert_fails(cx, OSH_E_FORMAT, "something follows", EDIT("{} {}"));
    assert_fails(cx, OSH_E_FORMAT, "'a' occurs twice", EDIT("{\"a\": 1, \"a\": 1}"));
    assert_null(out);
}

static void test_print_is_pythons(void **state)
{
    osh_ctx *cx = *state;
    char *out = NULL;
    cJSON *o =
        parse(cx, "{\"z\":[1,2.5,1e16,1e15,1.0e-5,0.0001,0.1,0.3333333333333333,123456789.125,-7,"
                  "-0.0,5e-324,1.7976931348623157e308,1e22,1.5e300,1234567890123456.5],"
                  "\"a\":{\"b\":null,\"\xc3\xa9\":\"\xc3\xa9\x7f\\\"\\\\/"
                  "\\n\\r\\t\\b\\f\\u0001\xf0\x9f\x98\x80\","
                  "\"a\":true,\"bad\":\"\xff\xe2\x82x\"},\"e\":{},\"l\":[],\"B\":false}");
    static const char *const wanted =
        "{\n  \"B\": false,\n  \"a\": {\n    \"a\": true,\n    \"b\": null,\n"
        "    \"bad\": \"\\ufffd\\ufffd\\ufffdx\",\n"
        "    \"\\u00e9\": \"\\u00e9\\u007f\\\"\\\\/\\n\\r\\t\\b\\f\\u0001\\ud83d\\ude00\"\n  },\n"
        "  \"e\": {},\n  \"l\": [],\n  \"z\": [\n    1,\n    2.5,\n    1e+16,\n    "
        "1000000000000000,\n"
        "    1e-05,\n    0.0001,\n    0.1,\n    0.3333333333333333,\n    123456789.125,\n    -7,\n "
        "   -0.0,\n"
        "    5e-324,\n    1.7976931348623157e+308,\n    1e+22,\n    1.5e+300,\n    "
        "1234567890123456.5\n  ]\n}";

    assert_ok(cx, osh_json_print(cx, &out, o, 0));
    assert_string_equal(out, wanted);
    osh_free(cx, out);
    assert_ok(cx, osh_json_print(cx, &out, o, 1));
    assert_string_equal(out, wanted);
    osh_free(cx, out);
    cJSON_Delete(o);
}

static void test_print_as_a_member(void **state)
{
    osh_ctx *cx = *state;
    char *out = NULL;
    cJSON *o = parse(cx, "{\"b\":[1],\"a\":\"x\"}");

    cJSON_AddItemToObject(o, "raw", cJSON_CreateRaw("1.0"));
    assert_ok(cx, osh_json_print(cx, &out, o, 2));
    edits_to(cx, "{\n  \"k\": 0\n}\n", "q", out,
             "{\n  \"k\": 0,\n  \"q\": {\n    \"a\": \"x\","
             "\n    \"b\": [\n      1\n    ],\n    \"raw\": 1.0\n  }\n}\n");
    osh_free(cx, out);
    cJSON_Delete(o);
}

static void test_read(void **state)
{
    osh_ctx *cx = *state;
    cJSON *o = NULL;
    char path[] = "test_json_XXXXXX";
    int64_t i = 0;

    close(mkstemp(path));
    assert_ok(cx, osh_file_write_all(cx, path, "{\"a\": 5}", 8));
    assert_ok(cx, osh_json_read(cx, &o, path, 100, 0));
    assert_ok(cx, osh_json_int(cx, &i, o, "a", path));
    assert_int_equal(i, 5);
    cJSON_Delete(o);
    assert_true(osh_json_read(cx, &o, path, 7, 0) < 0); // the file is larger than the limit
    osh_error_clear(cx);
    assert_ok(cx, osh_file_write_all(cx, path, "{", 1));
    assert_fails(cx, OSH_E_FORMAT, path, osh_json_read(cx, &o, path, 100, 0));
    unlink(path);
    assert_fails(cx, OSH_E_IO, path, osh_json_read(cx, &o, path, 100, 0));
}

typedef struct listed {
    cJSON *items; // own: an array of the items
    int left;     // number of items that the callback accepts before it fails
} listed;

static osh_status keep_item(osh_ctx *cx, void *user, const cJSON *o)
{
    listed *l = user;
    if (l->left-- == 0) return osh_fail(cx, OSH_E_USAGE, "that is enough");
    cJSON_AddItemToArray(l->items, cJSON_Duplicate(o, true));
    return OSH_OK;
}

static const osh_json_taken some_lists[] = {{"t", keep_item}, {"skipped", NULL}, {NULL, NULL}};

/* Reads the list "t" of a file item by item. The items must equal those of a parse of the whole
 * text. The other members of the file must equal `wanted_rest`, in which null replaces each list. A
 * text that a parse refuses must be refused here, too. */
static void reads_lists(osh_ctx *cx, const char *path, const char *text, const char *wanted_rest)
{
    cJSON *whole = NULL, *rest = NULL, *wanted = NULL;
    listed l = {cJSON_CreateArray(), -1};
    assert_ok(cx, osh_file_write_all(cx, path, text, strlen(text)));
    osh_status rc = osh_json_parse(cx, &whole, text, strlen(text), path, 0);
    osh_error_clear(cx);
    assert_int_equal(osh_json_read_lists(cx, &rest, path, some_lists, &l), rc);
    osh_error_clear(cx);
    if (!rc) {
        const cJSON *t = cJSON_GetObjectItemCaseSensitive(whole, "t");
        wanted = cJSON_Parse(wanted_rest);
        assert_true(cJSON_Compare(rest, wanted, true));
        if (cJSON_IsArray(t)) assert_true(cJSON_Compare(l.items, t, true));
        else assert_int_equal(cJSON_GetArraySize(l.items), 0);
    } else assert_null(wanted_rest);
    cJSON_Delete(l.items);
    cJSON_Delete(rest);
    cJSON_Delete(whole);
    cJSON_Delete(wanted);
}

static void test_lists(void **state)
{
    osh_ctx *cx = *state;
    static const char *const good[][2] = {
        {"{}", "{}"},
        {" [1, {\"t\": [2]}] ", "[1, {\"t\": [2]}]"},
        {"{\"t\": [1, \"]\", {\"t\": [\"\\\"\"]}], \"a\" : {\"t\": [3]}}",
         "{\"t\": null, \"a\": {\"t\": [3]}}"},
        {"{\"skipped\":[[], {}] , \"\\u0074\": [ null ,true ]\n}",
         "{\"skipped\": null, \"t\": null}"},
        {"{\"t\": {\"x\": 1}, \"skipped\": 2}", "{\"t\": {\"x\": 1}, \"skipped\": 2}"},
    };
    static const char *const bad[] = {
        "",
        "\xef\xbb\xbf{}",
        "{",
        "{\"t\"",
        "{\"t\": [",
        "{\"t\": [1",
        "{t: []}",
        "{\"t\": [1,]}",
        "{\"t\": [,1]}",
        "{\"t\": [1 2]}",
        "{\"t\": [1}}",
        "{\"t\": [1],}",
        "{\"t\": [1] \"a\": 2}",
        "{\"t\": [1]} x",
        "{\"t\": [1], \"t\": [2]}",
        "{\"t\": [1], \"t\": 2}",
        "{\"a\": 1, \"a\": 2}",
        "{\"t\": [{\"a\": 1, \"a\": 2}]}",
        "{\"t\": [\"\\ud800\"]}",
        "{\"skipped\": [01]}",
    };
    char path[] = "test_json_XXXXXX";
    cJSON *rest = NULL;
    close(mkstemp(path));
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        reads_lists(cx, path, good[i][0], good[i][1]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) reads_lists(cx, path, bad[i], NULL);
    for (int left = 0; left < 2; left++) { // a failure of the item callback is returned
        listed l = {cJSON_CreateArray(), left};
        const char *text = "{\"t\": [1, 2, 3]}";
        assert_ok(cx, osh_file_write_all(cx, path, text, strlen(text)));
        assert_fails(cx, OSH_E_USAGE, "that is enough",
                     osh_json_read_lists(cx, &rest, path, some_lists, &l));
        assert_null(rest);
        assert_int_equal(cJSON_GetArraySize(l.items), left);
        cJSON_Delete(l.items);
    }
    unlink(path);
    assert_fails(cx, OSH_E_IO, path, osh_json_read_lists(cx, &rest, path, some_lists, NULL));
}

static osh_status see_member(osh_ctx *cx, void *user, size_t i, size_t n, const char *key,
                             const cJSON *o)
{
    osh_buf *b = user;
    char *text = cJSON_PrintUnformatted(o);
    assert_non_null(text);
    osh_status rc = osh_buf_printf(cx, b, "%zu/%zu %s=%s;", i, n, key, text);
    cJSON_free(text);
    return !rc && !strcmp(key, "stop") ? osh_fail(cx, OSH_E_USAGE, "that is enough") : rc;
}

static void test_each_member(void **state)
{
    static const struct { const char *text, *seen, *fails; } cases[] = {
        {"{}", "", NULL},
        {" {\"a\" : 1 , \"\\u0062\":{\"x\":[1,{}]},\"a\":null} ",
         "0/3 a=1;1/3 b={\"x\":[1,{}]};2/3 a=null;", NULL},
        {"{\"\":[]}", "0/1 =[];", NULL},
        {"{\"a\":1,\"stop\":2,\"b\":3}", "0/3 a=1;1/3 stop=2;", "that is enough"},
        {"{\"a\":1,\"b\":{\"x\":1,\"x\":2}}", "0/2 a=1;", "'x' occurs twice"},
        {"{\"a\":1,\"b\":}", "", "what: "}, // the callback gets no member of an invalid text
        {"{\"a\":1} x", "", "what: "},
        {"[1]", "", "what: holds no JSON object"},
        {"", "", "what: holds no JSON object"},
    };
    osh_ctx *cx;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        osh_buf b;
        osh_buf_init(&b, 0);
        osh_status rc =
            osh_json_members(cx, cases[i].text, strlen(cases[i].text), "what", see_member, &b);
        assert_string_equal(b.data ? b.data : "", cases[i].seen);
        assert_int_equal(rc != OSH_OK, cases[i].fails != NULL);
        if (rc) assert_non_null(strstr(osh_error_text(cx), cases[i].fails));
        osh_error_clear(cx);
        osh_buf_deinit(cx, &b);
    }
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

/* The file is read in chunks. The ends of chunks fall on every position of items, keys and the
 * rest. */
static void test_long_lists(void **state)
{
    osh_ctx *cx = *state;
    char path[] = "test_json_XXXXXX";
    close(mkstemp(path));
    for (int shift = 0; shift < 40; shift++) {
        osh_buf b, rest;
        osh_buf_init(&b, 0);
        osh_buf_init(&rest, 0);
        assert_ok(cx, osh_buf_printf(cx, &rest, "{\"pad\": \"%*s\", \"t\": null, \"long\": [",
                                     shift + 1, "\\n"));
        for (int i = 0; i < 9000; i++)
            assert_ok(cx, osh_buf_printf(cx, &rest, "%s%d.5e1", i ? "," : "", i));
        assert_ok(cx, osh_buf_printf(cx, &rest, "], \"skipped\": null}"));
        assert_ok(cx, osh_buf_printf(cx, &b, "{\"pad\": \"%*s\", \"t\": [", shift + 1, "\\n"));
        for (int i = 0; i < 3000; i++)
            assert_ok(
                cx, osh_buf_printf(cx, &b,
                                   "%s {\"name\": \"m\\u00e9.%d\", \"v\": [%d, -1.25, true, null]}",
                                   i ? "," : "", i, i));
        assert_ok(cx, osh_buf_printf(cx, &b, "], \"long\": ["));
        for (int i = 0; i < 9000; i++)
            assert_ok(cx, osh_buf_printf(cx, &b, "%s%d.5e1", i ? "," : "", i));
        assert_ok(cx, osh_buf_printf(cx, &b, "], \"skipped\": ["));
        for (int i = 0; i < 9000; i++)
            assert_ok(cx, osh_buf_printf(cx, &b, "%s\"%d\"", i ? "," : "", i));
        assert_ok(cx, osh_buf_printf(cx, &b, "]}"));
        reads_lists(cx, path, b.data, rest.data);
        osh_buf_deinit(cx, &b);
        osh_buf_deinit(cx, &rest);
    }
    unlink(path);
}

static osh_status pass_item(osh_ctx *cx, void *user, const cJSON *o)
{
    (void)user;
    return cJSON_IsNumber(o) ? OSH_OK : osh_fail(cx, OSH_E_FORMAT, "not a number");
}

static const osh_json_taken lists_of_torture[] = {{"t", pass_item}, {NULL, NULL}};

static osh_status use(osh_ctx *cx, void *user)
{
    static const char text[] =
        "{\"a\": \"\\u0000\", \"b\": {\"x\": 1, \"y\": [1, 2.5]},"
        "\"k0\": 1, \"k1\": 1, \"k2\": 1,"
        "\"k3\": 1, \"k4\": 1, \"k5\": 1, \"k6\": 1, \"k7\": 1, \"k8\": 1, \"k9\": 1, \"ka\": 1,"
        "\"kb\": 1, \"kc\": 1, \"kd\": 1, \"ke\": 1}";
    cJSON *o = NULL;
    char *printed = NULL, *edited = NULL;
    osh_status rc = osh_json_parse(cx, &o, text, sizeof text - 1, "x.json", OSH_JSON_NUL);
    if (!rc) rc = osh_json_print(cx, &printed, o, 0);
    if (!rc)
        rc = osh_json_edit(cx, &edited, "{\"a\": 1}", 8, (osh_json_member){"q", printed}, "x.json");
    osh_free(cx, edited);
    osh_free(cx, printed);
    cJSON_Delete(o);
    o = NULL;
    if (!rc) rc = osh_json_read_lists(cx, &o, user, lists_of_torture, NULL);
    cJSON_Delete(o);
    return rc;
}

static void test_torture(void **state)
{
    osh_ctx *cx = *state;
    char path[] = "test_json_XXXXXX";
    close(mkstemp(path));
    const char *text = "{\"t\": [1, 2], \"a\": \"b\"}";
    assert_ok(cx, osh_file_write_all(cx, path, text, strlen(text)));
    torture(cx, use, path);
    unlink(path);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, make_context, drop_context)
    const struct CMUnitTest tests[] = {
        T(test_accepts),
        T(test_refuses_bad_syntax),
        T(test_nesting),
        T(test_nul),
        T(test_nan),
        T(test_duplicate_keys),
        T(test_members),
        T(test_edit_replaces),
        T(test_edit_adds),
        T(test_edit_removes),
        T(test_edit_refuses),
        T(test_print_is_pythons),
        T(test_print_as_a_member),
        T(test_read),
        T(test_lists),
        T(test_long_lists),
        T(test_each_member),
        T(test_torture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
