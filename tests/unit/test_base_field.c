/* test_base_field.c - parses texts into members of a struct, and checks the messages for invalid
 * texts. */
#include "base/field.h"
#include "torture.h"

typedef struct options {
    int64_t block_size, any, room;
    double damp, free_float;
    bool flag;
    char *order, *name;
    osh_strs targets;
} options;

static const osh_field fields[] = {
    {"block_size", OSH_F_INT, offsetof(options, block_size), "128", 1, 65536,
     "columns solved together"},
    {"any", OSH_F_INT, offsetof(options, any), NULL, 0, 0, "any number", .alias = "output_dir"},
    {"room", OSH_F_BYTES, offsetof(options, room), "20GB", 0, 0, "a size"},
    {"damp", OSH_F_FLOAT, offsetof(options, damp), "0.01", 0, 1, "a share"},
    {"free_float", OSH_F_FLOAT, offsetof(options, free_float), NULL, 0, 0, "any"},
    {"flag", OSH_F_BOOL, offsetof(options, flag), "true", 0, 0, "a switch"},
    {"order", OSH_F_STR, offsetof(options, order), "static", 0, 0, "column order",
     .values = "static|weight|none"},
    {"name", OSH_F_STR, offsetof(options, name), NULL, 0, 0, "any text"},
    {"targets", OSH_F_STRS, offsetof(options, targets), "Linear", 0, 0, "names or classes"},
    {0},
};

static osh_ctx *cx;
static options o;

static int setup(void **state)
{
    memset(&o, 0xa5, sizeof o); // the defaults must not depend on the old content of the struct
    return osh_ctx_new(&cx, 1) || osh_fields_default(cx, fields, &o);
}

static int teardown(void **state)
{
    osh_fields_deinit(cx, fields, &o);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
    return 0;
}

static osh_status set(const char *name, const char *text)
{
    return osh_field_set(cx, osh_field_find(fields, name), &o, text);
}

static void defaults(void **state)
{
    assert_int_equal(o.block_size, 128);
    assert_int_equal(o.any, 0);
    assert_true(o.room == 20000000000);
    assert_true(o.damp == 0.01 && o.free_float == 0 && o.flag);
    assert_string_equal(o.order, "static");
    assert_null(o.name);
    assert_int_equal(o.targets.n, 1);
    assert_string_equal(o.targets.items[0], "Linear");
}

static void finds_by_name_and_alias(void **state)
{
    assert_ptr_equal(osh_field_find(fields, "block_size"), &fields[0]);
    assert_ptr_equal(osh_field_find(fields, "block-size"), &fields[0]);
    assert_ptr_equal(osh_field_find(fields, "output-dir"), &fields[1]);
    assert_null(osh_field_find(fields, "block_siz"));
    assert_null(osh_field_find(fields, "block_size2"));
    assert_null(osh_field_find(fields, "blocksize"));
    assert_null(osh_field_find(fields, ""));
}

static void whole_numbers(void **state)
{
    assert_ok(cx, set("block_size", "65536"));
    assert_int_equal(o.block_size, 65536);
    assert_ok(cx, set("any", "-9223372036854775808"));
    assert_true(o.any == INT64_MIN);
    assert_fails(cx, OSH_E_USAGE, set("any", "1.5"), "any: want a whole number, got '1.5'");
    assert_fails(cx, OSH_E_USAGE, set("block_size", "0"),
                 "block_size: want a whole number in [1, 65536], got '0'");
    static const char *const bad[] = {"", " 1", "1 ", "x", "0x10", "1e3", "nan", "65537", "-1", "+",
                                      "9223372036854775808"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(cx, OSH_E_USAGE, set("block_size", bad[i]), "want a whole number");
    assert_int_equal(o.block_size, 65536); // invalid texts must not change the member
}

static void numbers(void **state)
{
    assert_ok(cx, set("damp", "1"));
    assert_ok(cx, set("damp", "1e-3"));
    assert_true(o.damp == 1e-3);
    assert_ok(cx, set("free_float", "-.5"));
    assert_true(o.free_float == -0.5);
    assert_fails(cx, OSH_E_USAGE, set("damp", "nan"), "damp: want a number in [0, 1], got 'nan'");
    static const char *const bad[] = {"",     "inf",    "-inf", "NAN(1)", "1e999",
                                      "1.0x", "0x1p-3", "-0.1", "1.0001", " .5"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(cx, OSH_E_USAGE, set("damp", bad[i]), "want a number");
    assert_fails(cx, OSH_E_USAGE, set("free_float", "1e999"), "want a number");
}

static void switches(void **state)
{
    static const char *const yes[] = {"true", "True", "yes", "on", "1"},
                      *const no[] = {"false", "FALSE", "no", "off", "0"};
    for (int i = 0; i < 5; i++) {
        assert_ok(cx, set("flag", no[i]));
        assert_false(o.flag);
        assert_ok(cx, set("flag", yes[i]));
        assert_true(o.flag);
    }
    assert_fails(cx, OSH_E_USAGE, set("flag", "2"), "flag: want true or false, got '2'");
    assert_fails(cx, OSH_E_USAGE, set("flag", ""), "want true or false");
    assert_fails(cx, OSH_E_USAGE, set("flag", NULL), "flag: no value");
}

static void sizes(void **state)
{
    static const struct {
        const char *text;
        int64_t n;
    } good[] = {{"0", 0},
                {"17", 17},
                {"5GB", 5000000000},
                {"5gb", 5000000000},
                {"512MiB", 512 << 20},
                {"1.5KiB", 1536},
                {"0.1GB", 100000000},
                {"2 TB", 2000000000000},
                {"10B", 10},
                {"9007199254740993B", 9007199254740993}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_ok(cx, set("room", good[i].text));
        assert_true(o.room == good[i].n);
    }
    static const char *const bad[] = {"", "GB", "-1GB", "5G", "5 gigabytes", "1..5GB", ".5GB",
                                      "1e3", "nan", "9223372036854775808", "9999999PiB",
                                      "99999999999.5PiB"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(cx, OSH_E_USAGE, set("room", bad[i]),
                     "room: want a size such as 20GB or 512MiB");
}

static void texts(void **state)
{
    assert_ok(cx, set("order", "none"));
    assert_string_equal(o.order, "none");
    assert_fails(cx, OSH_E_USAGE, set("order", "group"),
                 "order: want one of static|weight|none, got 'group'");
    assert_fails(cx, OSH_E_USAGE, set("order", "stat"), "want one of");
    assert_fails(cx, OSH_E_USAGE, set("order", ""), "want one of");
    assert_fails(cx, OSH_E_USAGE, set("order", "static|weight"), "want one of");
    assert_string_equal(o.order, "none");
    assert_ok(cx, set("order", NULL));
    assert_null(o.order);
    assert_ok(cx, set("name", ""));
    assert_string_equal(o.name, "");
    assert_ok(cx, set("targets", "re:.*mlp.*"));
    assert_int_equal(o.targets.n, 2);
    assert_string_equal(o.targets.items[1], "re:.*mlp.*");
    assert_ok(cx, set("targets", "lm_head, re:a{1,2},re:[),(],re:\\(,b"));
    static const char *const items[] = {"lm_head", "re:a{1,2}", "re:[),(]", "re:\\(", "b"};
    assert_int_equal(o.targets.n, 7);
    for (int i = 0; i < 5; i++) assert_string_equal(o.targets.items[2 + i], items[i]);
    static const char *const bad[] = {"", " ", ",", "a,", ",a", "a, ,b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(cx, OSH_E_USAGE, set("targets", bad[i]),
                     "targets: want names with commas between them");
}

static osh_status all(osh_ctx *c, void *user)
{
    osh_status rc = OSH_OK;
    options t;
    OSH_TRY(osh_fields_default(c, fields, &t));
    for (int i = 0; i < 3; i++) OSH_TRY(osh_field_set(c, &fields[8], &t, "lm_head"));
    OSH_TRY(osh_field_set(c, &fields[6], &t, "weight"));
done:
    osh_fields_deinit(c, fields, &t);
    return rc;
}

static void torture_fields(void **state)
{
    assert_int_equal(torture(all, NULL), 14);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(defaults),      TEST(finds_by_name_and_alias),
        TEST(whole_numbers), TEST(numbers),
        TEST(switches),      TEST(sizes),
        TEST(texts),         TEST(torture_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
