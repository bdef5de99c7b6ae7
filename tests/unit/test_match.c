/* test_match.c - matches targets with module names and classes, in compressed-tensors' order. */
#include "text/match.h"
#include "unit/text_helpers.h"

enum { MAX_TARGETS = 8 };

static int64_t find(osh_ctx *cx, const char *const *targets, const char *name, const char *cls)
{
    osh_matcher *m = NULL;
    int64_t which = -2;
    size_t n = 0;

    while (n < MAX_TARGETS && targets[n]) n++;
    assert_ok(cx, osh_matcher_new(cx, &m, targets, n));
    assert_ok(cx, osh_matcher_find(cx, &which, m, name, cls));
    osh_matcher_free(cx, m);
    return which;
}
#define LIST(...) ((const char *const[MAX_TARGETS + 1]){__VA_ARGS__})
#define Q_PROJ "model.layers.3.self_attn.q_proj"

static void test_kinds(void **state)
{
    osh_ctx *cx = *state;
    assert_int_equal(find(cx, LIST(Q_PROJ), Q_PROJ, "Linear"), 0);
    // a target does not match the end of a name
    assert_int_equal(find(cx, LIST("q_proj"), Q_PROJ, "Linear"), -1);
    assert_int_equal(find(cx, LIST("model.layers.3"), Q_PROJ, "Linear"), -1);
    assert_int_equal(find(cx, LIST("re:.*q_proj"), Q_PROJ, "Linear"), 0);
    // re.match is used, not re.search
    assert_int_equal(find(cx, LIST("re:q_proj"), Q_PROJ, "Linear"), -1);
    assert_int_equal(find(cx, LIST("re:model\\.layers\\.3"), Q_PROJ, "Linear"), 0);
    assert_int_equal(find(cx, LIST("Linear"), Q_PROJ, "Linear"), 0);
    assert_int_equal(find(cx, LIST("Linea"), Q_PROJ, "Linear"), -1);
    /* A regex never matches a class. */
    assert_int_equal(find(cx, LIST("re:Linear"), Q_PROJ, "Linear"), -1);
    assert_int_equal(find(cx, LIST("Linear"), Q_PROJ, NULL), -1);
    assert_int_equal(find(cx, LIST(NULL), Q_PROJ, "Linear"), -1); // the list of targets is empty
}

static void test_precedence(void **state)
{
    osh_ctx *cx = *state;
    assert_int_equal(find(cx, LIST("Linear", "re:.*", Q_PROJ), Q_PROJ, "Linear"), 2);
    assert_int_equal(find(cx, LIST("Linear", "re:.*"), Q_PROJ, "Linear"), 1);
    assert_int_equal(find(cx, LIST("re:.*", "Linear"), "lm_head", "Linear"), 0);
    /* Targets of one kind must be tried in the order of their strings, not in the order of the
     * list. */
    assert_int_equal(find(cx, LIST("re:.*q_proj", "re:.*proj"), Q_PROJ, "Linear"), 1);
    assert_int_equal(find(cx, LIST("re:.*proj", "re:.*q_proj"), Q_PROJ, "Linear"), 0);
    assert_int_equal(find(cx, LIST("re:model", "re:.*proj", "re:.*q"), Q_PROJ, "Linear"), 1);
    /* A target in two groups belongs to the later group. */
    assert_int_equal(find(cx, LIST("Linear", "Linear"), Q_PROJ, "Linear"), 1);
    assert_int_equal(find(cx, LIST("re:.*", "Linear", "re:.*"), Q_PROJ, "Linear"), 2);
}

static void test_linear_base(void **state)
{
    osh_ctx *cx = *state;
    assert_int_equal(find(cx, LIST("Linear"), Q_PROJ, "LinearBase"), 0);
    assert_int_equal(find(cx, LIST("LinearBase"), Q_PROJ, "LinearBase"), 0);
    assert_int_equal(find(cx, LIST("LinearBase"), Q_PROJ, "Linear"), -1);
    assert_int_equal(find(cx, LIST("LinearBase", "Linear"), Q_PROJ, "LinearBase"), 1);
}

static void test_hits(void **state)
{
    osh_ctx *cx = *state;
    const char *const targets[] = {"Linear", "re:.*q_proj", "lm_head", "re:.*nothing"};
    osh_matcher *m = NULL;
    int64_t which;

    assert_ok(cx, osh_matcher_new(cx, &m, targets, 4));
    assert_ok(cx, osh_matcher_find(cx, &which, m, Q_PROJ, "Linear"));
    assert_ok(cx, osh_matcher_find(cx, &which, m, "model.layers.3.mlp.up_proj", "Linear"));
    assert_ok(cx, osh_matcher_find(cx, &which, m, "lm_head", "Linear"));
    assert_int_equal(which, 2);
    assert_ok(cx, osh_matcher_find(cx, &which, m, "model.norm", "LlamaRMSNorm"));
    assert_int_equal(which, -1);
    assert_int_equal(osh_matcher_hits(m, 0), 3);
    assert_int_equal(osh_matcher_hits(m, 1), 1);
    assert_int_equal(osh_matcher_hits(m, 2), 1);
    assert_int_equal(osh_matcher_hits(m, 3), 0);
    assert_int_equal(osh_matcher_hits(m, 4), 0);
    osh_matcher_free(cx, m);
    osh_matcher_free(cx, NULL);
}

static void test_bad_regex(void **state)
{
    osh_ctx *cx = *state;
    osh_matcher *m = NULL;
    assert_fails(cx, OSH_E_FORMAT, "'[' is not valid",
                 osh_matcher_new(cx, &m, LIST("Linear", "re:["), 2));
    assert_null(m);
}

/* Tests patterns that PCRE2 compiles, but that Python's re refuses or reads in another way. */
static void test_not_python(void **state)
{
    static const char *const no[] = {
        "re:lm_head\\z",      "re:\\p{L}+",      "re:\\Qlm_head\\E", "re:lm_hea\\Kd",
        "re:a\\h",            "re:\\x{6c}m",     "re:\\x6",          "re:\\v",
        "re:a\\N",            "re:[a\\h]",       "re:[[:alpha:]]+",   "re:(?<n>lm_head)",
        "re:(?x)a b",          "re:(?x)a+ +",    "re:(?i-x:a)",     "re:(?ix:a)",
        "re:(?x)a#[\n|(?<n>z)",
        "re:(?|a)",            "re:a(*ACCEPT)",    "re:b(?i)a",         "re:(?i)(?:b)(?s)",
        "re:(?-i)a",           "re:(?i-i:a)",      "re:a{,2}",          "re:(a)(?R)?",
        "re:(?P<n>a)(?P>n)",   "re:(?(?=a)a|b)",   "re:(?<=a|bc)d",     "re:(?<=a|\\d\\d)d",
        "re:(?U)a",
        "re:(a\\1)", "re:\\1(a)", "re:(?P<n>a(?P=n))", "re:(?P=n)(?P<n>a)",
        "re:(?<=(a)\\1)b", "re:(?<=(?(1)a)(b))", "re:((a)\\1)"};
    static const char *const yes[] = {
        "re:(?i)LM_HEAD",      "re:(?#c)(?i)LM_",  "re:lm_head\\Z",    "re:(?i:LM)_head",
        "re:(?s-i:l.)_head",   "re:[]l]m_",        "re:[^]\\d]m_",      "re:(?!lm_head$a).*",
        "re:.*(?<!ab|.c|\\.d)$", "re:\\x6cm_head", "re:(?P<n>l)m(?P=n)?", "re:l{1,}m{1}_",
        "re:(x)?(?(1)a|lm)",   "re:[a-z\\-_\\w.]+$", "re:l(?>m)_",     "re:\\b.*\\Bd"};
    osh_ctx *cx = *state;
    osh_matcher *m = NULL;
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_fails(cx, OSH_E_FORMAT, "Python's re", osh_matcher_new(cx, &m, &no[i], 1));
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        assert_int_equal(find(cx, LIST(yes[i]), "lm_head", "Linear"), 0);
}

static osh_status use(osh_ctx *cx, void *user)
{
    osh_matcher *m = NULL;
    int64_t which;
    osh_status rc = osh_matcher_new(cx, &m, LIST("Linear", "re:.*q_proj", "re:.*k_proj"), 3);
    if (!rc) rc = osh_matcher_find(cx, &which, m, Q_PROJ, "Linear");
    osh_matcher_free(cx, m);
    return rc;
}

static void test_torture(void **state) { torture(*state, use, NULL); }

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, make_context, drop_context)
    const struct CMUnitTest tests[] = {
        T(test_kinds), T(test_precedence), T(test_linear_base), T(test_hits), T(test_bad_regex),
        T(test_not_python), T(test_torture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
