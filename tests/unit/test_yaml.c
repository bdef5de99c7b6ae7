/* test_yaml.c - tests YAML: scalars as in PyYAML, trees with line numbers, tags, and errors. */
#include "text/yaml.h"
#include "unit/text_helpers.h"
#include <math.h>
#include <stdio.h>

static osh_yaml *parse(osh_ctx *cx, const char *text)
{
    osh_yaml *y = NULL;
    assert_ok(cx, osh_yaml_parse(cx, &y, text, strlen(text), "r.yaml"));
    return y;
}

static void refuse_n(osh_ctx *cx, const char *text, size_t n, const char *holds)
{
    osh_yaml *y = NULL;
    assert_fails(cx, OSH_E_FORMAT, holds, osh_yaml_parse(cx, &y, text, n, "r.yaml"));
    assert_null(y);
}

static void refuse(osh_ctx *cx, const char *text, const char *holds)
{
    refuse_n(cx, text, strlen(text), holds);
}

/* Each row has a word and the value that yaml.safe_load of PyYAML 6 gives for it. */
static const struct {
    const char *text;
    osh_yaml_kind kind;
    double value;
} words[] = {
    {"null", OSH_Y_NULL, 0},
    {"Null", OSH_Y_NULL, 0},
    {"NULL", OSH_Y_NULL, 0},
    {"~", OSH_Y_NULL, 0},
    {"nULL", OSH_Y_STR, 0},
    {"none", OSH_Y_STR, 0},
    {"None", OSH_Y_STR, 0},
    {"yes", OSH_Y_BOOL, 1},
    {"Yes", OSH_Y_BOOL, 1},
    {"YES", OSH_Y_BOOL, 1},
    {"true", OSH_Y_BOOL, 1},
    {"True", OSH_Y_BOOL, 1},
    {"TRUE", OSH_Y_BOOL, 1},
    {"on", OSH_Y_BOOL, 1},
    {"On", OSH_Y_BOOL, 1},
    {"ON", OSH_Y_BOOL, 1},
    {"no", OSH_Y_BOOL, 0},
    {"No", OSH_Y_BOOL, 0},
    {"NO", OSH_Y_BOOL, 0},
    {"false", OSH_Y_BOOL, 0},
    {"False", OSH_Y_BOOL, 0},
    {"FALSE", OSH_Y_BOOL, 0},
    {"off", OSH_Y_BOOL, 0},
    {"Off", OSH_Y_BOOL, 0},
    {"OFF", OSH_Y_BOOL, 0},
    {"y", OSH_Y_STR, 0},
    {"n", OSH_Y_STR, 0},
    {"tRue", OSH_Y_STR, 0},
    {"oN", OSH_Y_STR, 0},
    {"0", OSH_Y_INT, 0},
    {"-0", OSH_Y_INT, 0},
    {"128", OSH_Y_INT, 128},
    {"+12", OSH_Y_INT, 12},
    {"-1", OSH_Y_INT, -1},
    {"1_000", OSH_Y_INT, 1000},
    {"0x1F", OSH_Y_INT, 31},
    {"-0x_f_F", OSH_Y_INT, -255},
    {"0X1f", OSH_Y_STR, 0},
    {"0x", OSH_Y_STR, 0},
    {"010", OSH_Y_INT, 8},
    {"0_7", OSH_Y_INT, 7},
    {"08", OSH_Y_STR, 0},
    {"0o7", OSH_Y_STR, 0},
    {"0b101", OSH_Y_INT, 5},
    {"0b2", OSH_Y_STR, 0},
    {"1:30", OSH_Y_INT, 90},
    {"-1:30:05", OSH_Y_INT, -5405},
    {"1:60", OSH_Y_STR, 0},
    {"0:30", OSH_Y_STR, 0},
    {"_1", OSH_Y_STR, 0},
    {"1a", OSH_Y_STR, 0},
    {"--1", OSH_Y_STR, 0},
    {"+", OSH_Y_STR, 0},
    {"9223372036854775807", OSH_Y_INT, 9223372036854775807.0},
    {"-9223372036854775808", OSH_Y_INT, -9223372036854775808.0},
    {"0.01", OSH_Y_FLOAT, 0.01},
    {"1.", OSH_Y_FLOAT, 1},
    {".5", OSH_Y_FLOAT, 0.5},
    {"-.5", OSH_Y_STR, 0},
    {"+0.5", OSH_Y_FLOAT, 0.5},
    {"-2.5e+3", OSH_Y_FLOAT, -2500},
    {"1.5e-3", OSH_Y_FLOAT, 0.0015},
    {".5E+1", OSH_Y_FLOAT, 5},
    {"1e3", OSH_Y_STR, 0},
    {"1e-3", OSH_Y_STR, 0},
    {"1.0e3", OSH_Y_STR, 0},
    {"1.5e", OSH_Y_STR, 0},
    {"1.5e+", OSH_Y_STR, 0},
    {"1_0.0_1", OSH_Y_FLOAT, 10.01},
    {"._5", OSH_Y_STR, 0},
    {".", OSH_Y_STR, 0},
    {"1.2.3", OSH_Y_STR, 0},
    {"1:30.5", OSH_Y_FLOAT, 90.5},
    {"0:30.", OSH_Y_FLOAT, 30},
    {"-1:0:0.25", OSH_Y_FLOAT, -3600.25},
    {"1:30.5e+1", OSH_Y_STR, 0},
    {"010.5", OSH_Y_FLOAT, 10.5},
    {".inf", OSH_Y_FLOAT, INFINITY},
    {"-.Inf", OSH_Y_FLOAT, -INFINITY},
    {"+.INF", OSH_Y_FLOAT, INFINITY},
    {"inf", OSH_Y_STR, 0},
    {".iNF", OSH_Y_STR, 0},
    {".nan", OSH_Y_FLOAT, NAN},
    {".NaN", OSH_Y_FLOAT, NAN},
    {"-.nan", OSH_Y_STR, 0},
    {"nan", OSH_Y_STR, 0},
    {"=", OSH_Y_STR, 0},
    {"2001-01-01", OSH_Y_STR, 0},
    {"re:.*q_proj$", OSH_Y_STR, 0},
    {"W4A16", OSH_Y_STR, 0},
    {"Linear", OSH_Y_STR, 0},
};

static void test_plain_scalars(void **state)
{
    osh_ctx *cx = *state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char text[64];
        snprintf(text, sizeof text, "k: %s\n", words[i].text);
        osh_yaml *y = parse(cx, text);
        const osh_yaml *v = osh_yaml_get(y, "k");
        double got = v->kind == OSH_Y_BOOL ? v->b : v->kind == OSH_Y_INT ? (double)v->i : v->f;
        if (v->kind != words[i].kind)
            fail_msg("%s: kind %d, wanted %d", words[i].text, v->kind, words[i].kind);
        if (v->kind == OSH_Y_BOOL || v->kind == OSH_Y_INT || v->kind == OSH_Y_FLOAT)
            if (got != words[i].value && !(isnan(got) && isnan(words[i].value)))
                fail_msg("%s: %g, wanted %g", words[i].text, got, words[i].value);
        assert_string_equal(v->text, words[i].text);
        osh_yaml_free(cx, y);
    }
}

static void test_exact_integers(void **state)
{
    osh_ctx *cx = *state;
    osh_yaml *y = parse(cx, "[9223372036854775807, -9223372036854775808, 9007199254740993]");
    assert_true(y->items[0]->i == INT64_MAX);
    assert_true(y->items[1]->i == INT64_MIN);
    assert_true(y->items[2]->i == 9007199254740993);
    osh_yaml_free(cx, y);
    refuse(cx, "a: 9223372036854775808",
           "line 1 column 4: not a 64-bit integer: 9223372036854775808");
    refuse(cx, "[-9223372036854775809]", "64-bit");
    refuse(cx, "[0xffffffffffffffff]", "64-bit");
}

static void test_quoted_and_block_scalars(void **state)
{
    osh_ctx *cx = *state;
    osh_yaml *y =
        parse(cx, "a: '1'\nb: \"yes\"\nc: ''\nd:\ne: |\n  12\nf: >-\n  x\n  y\n\"<<\": 1\n5: z\n");
    assert_int_equal(osh_yaml_get(y, "a")->kind, OSH_Y_STR);
    assert_int_equal(osh_yaml_get(y, "b")->kind, OSH_Y_STR);
    assert_int_equal(osh_yaml_get(y, "c")->kind, OSH_Y_STR);
    assert_int_equal(osh_yaml_get(y, "d")->kind, OSH_Y_NULL);
    assert_int_equal(osh_yaml_get(y, "e")->kind, OSH_Y_STR);
    assert_string_equal(osh_yaml_get(y, "e")->text, "12\n");
    assert_string_equal(osh_yaml_get(y, "f")->text, "x y");
    assert_int_equal(osh_yaml_get(y, "<<")->i, 1);
    assert_string_equal(osh_yaml_get(y, "5")->text, "z");
    assert_null(osh_yaml_get(y, "absent"));
    assert_null(osh_yaml_get(osh_yaml_get(y, "a"), "a"));
    assert_null(osh_yaml_get(NULL, "a"));
    osh_yaml_free(cx, y);
    osh_yaml_free(cx, NULL);
}

static void test_lines_and_order(void **state)
{
    osh_ctx *cx = *state;
    osh_yaml *y = parse(cx, "# head\nz: 1\na:\n  - x\n  -  [p, q]\nb: {k: v}\n");
    assert_int_equal(y->kind, OSH_Y_MAP);
    assert_int_equal(y->n, 3);
    assert_string_equal(y->keys[0]->text, "z");
    assert_string_equal(y->keys[1]->text, "a");
    assert_int_equal(y->keys[1]->line, 3);
    assert_int_equal(y->keys[1]->column, 1);
    const osh_yaml *a = osh_yaml_get(y, "a");
    assert_int_equal(a->kind, OSH_Y_SEQ);
    assert_int_equal(a->n, 2);
    assert_int_equal(a->items[0]->line, 4);
    assert_int_equal(a->items[0]->column, 5);
    assert_int_equal(a->items[1]->items[1]->line, 5);
    assert_int_equal(a->items[1]->items[1]->column, 10);
    assert_string_equal(osh_yaml_get(osh_yaml_get(y, "b"), "k")->text, "v");
    osh_yaml_free(cx, y);
}

static void test_tags(void **state)
{
    osh_ctx *cx = *state;
    osh_yaml *y = parse(
        cx, "actorder: !!python/object/apply:compressed_tensors.ActivationOrdering [\n  static]\n"
            "s: !!str 5\ni: !!int '5'\nf: !!float 5\nn: !!null ''\nb: !!bool 'on'\nx: !mine v\n"
            "m: !!map {a: 1}\nq: !!seq [1]\ne: ! 12\no: !!python/name:x.y ''\nw: ! [1]\n");
    const osh_yaml *a = osh_yaml_get(y, "actorder");
    assert_int_equal(a->kind, OSH_Y_SEQ);
    assert_string_equal(
        a->tag, "tag:yaml.org,2002:python/object/apply:compressed_tensors.ActivationOrdering");
    assert_int_equal(a->n, 1);
    assert_string_equal(a->items[0]->text, "static");
    assert_int_equal(osh_yaml_get(y, "s")->kind, OSH_Y_STR);
    assert_null(osh_yaml_get(y, "s")->tag);
    assert_int_equal(osh_yaml_get(y, "i")->i, 5);
    assert_int_equal(osh_yaml_get(y, "i")->kind, OSH_Y_INT);
    assert_int_equal(osh_yaml_get(y, "f")->kind, OSH_Y_FLOAT);
    assert_true(osh_yaml_get(y, "f")->f == 5);
    assert_int_equal(osh_yaml_get(y, "n")->kind, OSH_Y_NULL);
    assert_true(osh_yaml_get(y, "b")->b);
    assert_string_equal(osh_yaml_get(y, "x")->tag, "!mine");
    assert_int_equal(osh_yaml_get(y, "x")->kind, OSH_Y_STR);
    assert_null(osh_yaml_get(y, "m")->tag);
    assert_null(osh_yaml_get(y, "q")->tag);
    assert_int_equal(osh_yaml_get(y, "e")->kind, OSH_Y_STR);
    assert_string_equal(osh_yaml_get(y, "o")->tag, "tag:yaml.org,2002:python/name:x.y");
    assert_null(osh_yaml_get(y, "w")->tag);
    osh_yaml_free(cx, y);
    refuse(cx, "a: !!int x", "line 1 column 4: the tag does not fit the value: x");
    refuse(cx, "a: !!bool 5", "the tag does not fit");
}

static void test_empty(void **state)
{
    osh_ctx *cx = *state;
    static const char *const empty[] = {"", "# nothing\n", "---\n", "--- ~\n...\n", "null"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        osh_yaml *y = parse(cx, empty[i]);
        assert_int_equal(y->kind, OSH_Y_NULL);
        assert_int_equal(y->line >= 1, 1);
        osh_yaml_free(cx, y);
    }
}

static void test_refuses(void **state)
{
    osh_ctx *cx = *state;
    char many[2000] = "";

    refuse(cx, "a: 1\nb: 2\na: 3\n", "r.yaml: line 3 column 1: the key 'a' occurs twice");
    refuse(cx, "x:\n  - {k: 1, 'k': 2}\n", "line 2 column 12: the key 'k' occurs twice");
    for (int i = 0; i < 40; i++) // 40 keys are enough for the use of a hash table
        sprintf(many + strlen(many), "key%d: %d\n", i == 39 ? 5 : i, i);
    refuse(cx, many, "line 40 column 1: the key 'key5' occurs twice");
    refuse(cx, "a: 1\n--- \nb: 1\n", "line 2 column 1: a second document");
    refuse(cx, "a: &x 1\n", "line 1 column 4: anchors are not supported: &x");
    refuse(cx, "a: &y [1]\n", "anchors are not supported: &y");
    refuse(cx, "a: &z {b: 1}\n", "anchors are not supported: &z");
    refuse(cx, "a: *x\n", "line 1 column 4: aliases are not supported: *x");
    refuse(cx, "*x : 1\n", "aliases are not supported: *x");
    refuse(cx, "a:\n  <<: {b: 1}\n", "line 2 column 3: the merge key << is not supported");
    refuse(cx, "{[1]: 2}", "line 1 column 2: a key must be a scalar");
    refuse(cx, "a: \"x\\0y\"", "a NUL character");
    refuse(cx, "a: [1, 2\n", "r.yaml: line 2 column 1: ");
    refuse(cx, "a: b: c\n", "line 1 column 5");
    refuse(cx, "\ta: 1\n", "r.yaml: line 1");
    refuse(cx, "a: \xff\n", "r.yaml: byte 3");
    refuse_n(cx, "a: \0\n", 5, "r.yaml: ");
}

static void test_depth_and_size(void **state)
{
    osh_ctx *cx = *state;
    char deep[300];
    size_t n = (4 << 20) + 1;
    char *large = malloc(n);

    memset(deep, '[', 100), memset(deep + 100, ']', 100), deep[200] = 0;
    osh_yaml_free(cx, parse(cx, deep));
    memset(deep, '[', 101), memset(deep + 101, ']', 101), deep[202] = 0;
    refuse(cx, deep, "nested more than 100 deep");
    memset(large, ' ', n);
    refuse_n(cx, large, n, "4194305 bytes of YAML");
    free(large);
}

static osh_status use(osh_ctx *cx, void *user)
{
    osh_yaml *y = NULL;
    osh_status rc = osh_yaml_parse(cx, &y, user, strlen(user), "r.yaml");
    osh_yaml_free(cx, y);
    return rc;
}

static void test_torture(void **state)
{
    char many[2000] = "a: [1, x, {b: !t c}]\n";
    for (int i = 0; i < 20; i++) sprintf(many + strlen(many), "key%d: %d\n", i, i);
    torture(*state, use, many);
    torture(*state, use, "");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, make_context, drop_context)
    const struct CMUnitTest tests[] = {
        T(test_plain_scalars),   T(test_exact_integers), T(test_quoted_and_block_scalars),
        T(test_lines_and_order), T(test_tags),           T(test_empty),
        T(test_refuses),         T(test_depth_and_size), T(test_torture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
