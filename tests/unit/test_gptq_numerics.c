/* test_gptq_numerics.c - tests GPTQ on extreme Hessians. GPTQ must end, must report its fallback,
 * and must return finite weights and codes. The bytes must not depend on the number of threads. */
#include "base/rng.h"
#include "modifiers/recipe.h"
#include "plain.h"
#include "tensor/tensor.h"
#include "torture.h"

#include <math.h>
#include <stdio.h>

enum { I = 256, O = 24, N = 400, SEED = 11 };
typedef enum {
    HEALTHY,
    DEAD,
    DEAD_AND_HUGE,
    ZERO,
    RANK_1,
    TWINS,
    HUGE_30,
    TINY_30,
    POWER_UP,
    POWER_DOWN,
    NEAR_MAX,
    MIXED,
    NEARLY,
    INDEFINITE,
    HAS_INF,
    ALL_INF,
    HAS_NAN,
    N_KINDS
} kind;
static const char *const names[N_KINDS] = {"healthy", "dead", "dead and huge", "zero", "rank 1",
                                           "twins", "1e30", "1e-30", "2^100", "2^-100",
                                           "near the maximum", "1e30 and 1e-30", "nearly definite",
                                           "indefinite", "an infinity", "infinities", "a NaN"};

static float x_of(kind k, int t, int i)
{
    float x = osh_rng_sym(SEED, (uint64_t)t, (uint64_t)i);
    if ((k == DEAD || k == DEAD_AND_HUGE) && i % 5 == 2) return 0;
    if (k == ZERO) return 0;
    if (k == RANK_1) return osh_rng_sym(SEED, 1000, (uint64_t)i);
    if (k == TWINS && i % 2) return osh_rng_sym(SEED, (uint64_t)t, (uint64_t)i - 1);
    return x;
}

/* Returns the sum of a[t] b[t] over n tokens in double, in the order of the tokens. */
PLAIN static double sum_products(const float *a, const float *b, int n)
{
    double sum = 0;
    for (int t = 0; t < n; t++) sum += (double)a[t] * b[t];
    return sum;
}

/* Makes the lower triangle of X^T X. The upper triangle is NaN, because GPTQ must not read it. */
static void fill_hessian(float *h, kind k)
{
    static float x[I][N];
    for (int i = 0; i < I; i++)
        for (int t = 0; t < N; t++) x[i][t] = x_of(k, t, i);
    for (int i = 0; i < I; i++)
        for (int j = 0; j < I; j++) {
            double sum = j <= i ? sum_products(x[i], x[j], k == RANK_1 ? 1 : N) : 0, scale = 1;
            if (k == HUGE_30 || k == DEAD_AND_HUGE) scale = 1e30;
            if (k == TINY_30) scale = 1e-30;
            if (k == POWER_UP) scale = 0x1p100;
            if (k == POWER_DOWN) scale = 0x1p-100;
            if (k == NEAR_MAX) scale = 2e36;
            if (k == MIXED) scale = (i < I / 2 ? 1e15 : 1e-15) * (j < I / 2 ? 1e15 : 1e-15);
            h[i * I + j] = j <= i ? (float)(sum * scale) : NAN;
        }
    /* This element is larger than the Cauchy-Schwarz inequality allows, so h is not positive
     * definite. */
    if (k == NEARLY) h[7 * I + 3] = 1.05f * sqrtf(h[7 * I + 7] * h[3 * I + 3]);
    if (k == INDEFINITE) h[7 * I + 3] = 1e4f;
    if (k == HAS_INF) h[9 * I + 9] = INFINITY;
    if (k == HAS_NAN) h[9 * I + 4] = NAN;
    for (int i = 0; k == ALL_INF && i < I; i++) h[i * I + i] = INFINITY;
}

typedef struct result {
    int8_t codes[O * I];
    uint16_t w[O * I];
    double nmse, objective;
    const char *fallback;
} result;

static const char undamped[] =
    "s_stage: {s_modifiers: {GPTQModifier: {dampening_frac: 0, scheme: W4A16, targets: Linear}}}";

static const char original[] =
    "s_stage: {s_modifiers: {GPTQModifier: {target: original, scheme: W4A16, targets: Linear}}}";

/* Makes (X0 - X)^T X, where X0 is X with every third channel times 1.1. If `beyond` is true, all
 * elements are near the largest f32. */
static void fill_shift(float *d, const float *h, bool beyond)
{
    for (int i = 0; i < I; i++)
        for (int j = 0; j < I; j++) {
            float x = i >= j ? h[i * I + j] : h[j * I + i];
            d[i * I + j] = i % 3 ? 0 : isfinite(x) ? 0.1f * x : 0;
            if (beyond) d[i * I + j] = 3e38f;
        }
}

static osh_recipe *recipe_of(osh_ctx *cx, const char *method)
{
    osh_recipe *r = NULL;
    const osh_strs none = {0};
    const osh_recipe_flags flags = {
        .scheme = "W4A16", .method = method, .targets = &none, .ignore = &none};
    bool spared = false, ours = !strcmp(method, "original") || !strcmp(method, "beyond");
    if (ours) assert_ok(cx, osh_recipe_parse(cx, &r, original, sizeof original - 1, method));
    else if (!strcmp(method, "undamped"))
        assert_ok(cx, osh_recipe_parse(cx, &r, undamped, sizeof undamped - 1, method));
    else assert_ok(cx, osh_recipe_of_flags(cx, &r, &spared, &flags));
    return r;
}

static void run(result *out, kind k, int n_threads, const char *method)
{
    osh_ctx *cx = NULL;
    osh_tensor *w = NULL, *h = NULL, *d = NULL;

    assert_int_equal(osh_ctx_new(&cx, n_threads), OSH_OK);
    osh_recipe *r = recipe_of(cx, method);
    bool ours = !strcmp(method, "original") || !strcmp(method, "beyond");
    assert_ok(cx, osh_tensor_new(cx, &w, OSH_BF16, 2, (int64_t[]){O, I}));
    assert_ok(cx, osh_tensor_new(cx, &h, OSH_F32, 2, (int64_t[]){I, I}));
    for (int i = 0; i < O * I; i++) {
        float f = osh_rng_sym(SEED, 2000, (uint64_t)i);
        osh_from_f32((uint16_t *)w->data + i, OSH_BF16, &f, 1);
    }
    fill_hessian(h->data, k);
    if (ours) assert_ok(cx, osh_tensor_new(cx, &d, OSH_F32, 2, (int64_t[]){I, I}));
    if (ours) fill_shift(d->data, h->data, !strcmp(method, "beyond"));
    osh_linear_job j = {.name = "m", .scheme = &r->modifiers[0].schemes[0], .w = w, .shift = d};
    assert_ok(cx, r->modifiers[0].type->solver->compress(cx, &r->modifiers[0], &j, 1, h, 4));
    memcpy(out->codes, j.codes, sizeof out->codes);
    memcpy(out->w, w->data, sizeof out->w);
    out->nmse = j.nmse, out->objective = j.objective, out->fallback = j.fallback;
    osh_linear_job_deinit(cx, &j);
    osh_tensor_free(cx, w);
    osh_tensor_free(cx, h);
    osh_tensor_free(cx, d);
    osh_recipe_free(cx, r);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static int n_differ(const result *a, const result *b)
{
    int n = 0;
    for (int i = 0; i < O * I; i++) n += a->codes[i] != b->codes[i];
    return n;
}

static void every_hessian_ends(void **state)
{
    (void)state;
    static result one, three;
    for (int at = 0; at < 2 * N_KINDS; at++) {
        int k = at % N_KINDS;
        const char *method = at < N_KINDS ? "gptq" : "original";
        run(&one, (kind)k, 1, method), run(&three, (kind)k, 3, method);
        printf("%-16s nmse %.3e objective %.3e %s\n", names[k], one.nmse, one.objective,
               one.fallback ? one.fallback : "");
        assert_memory_equal(one.codes, three.codes, sizeof one.codes);
        assert_true(one.nmse == three.nmse && one.objective == three.objective &&
                    one.fallback == three.fallback);
        assert_true(isfinite(one.nmse) && isfinite(one.objective) && one.nmse >= 0 &&
                    one.nmse <= 1);
        for (int i = 0; i < O * I; i++) {
            float f;
            assert_true(one.codes[i] >= -8 && one.codes[i] <= 7);
            osh_to_f32(&f, &one.w[i], OSH_BF16, 1);
            assert_true(isfinite(f));
        }
    }
}

/* If H is multiplied by a power of two, the codes must not change. Only the objective changes. */
static void scale_does_not_matter(void **state)
{
    (void)state;
    static result plain, up, down, other;
    run(&plain, HEALTHY, 2, "gptq"), run(&up, POWER_UP, 2, "gptq"),
        run(&down, POWER_DOWN, 2, "gptq");
    assert_null(plain.fallback);
    assert_null(up.fallback);
    assert_null(down.fallback);
    assert_int_equal(n_differ(&plain, &up) + n_differ(&plain, &down), 0);
    assert_true(up.objective == plain.objective * 0x1p100 &&
                down.objective == plain.objective * 0x1p-100);
    const kind others[] = {HUGE_30, TINY_30, NEAR_MAX};
    const double factor[] = {1e30, 1e-30, 2e36};
    for (int i = 0; i < 3; i++) { // the factor is not a power of two, so H is rounded
        run(&other, others[i], 2, "gptq");
        assert_null(other.fallback);
        assert_true(n_differ(&plain, &other) <= O * I / 200);
        assert_true(fabs(other.objective / factor[i] / plain.objective - 1) < 1e-3);
    }
}

static void dead_columns_are_zero(void **state)
{
    (void)state;
    static result r;
    for (int k = DEAD; k < ZERO; k++) {
        run(&r, (kind)k, 2, "gptq");
        assert_null(r.fallback);
        for (int i = 0; i < O * I; i++)
            if (i % I % 5 == 2) assert_int_equal(r.codes[i], 0);
    }
}

static void a_weight_without_inputs_is_rounded(void **state)
{
    (void)state;
    static result r, rtn;
    run(&rtn, HEALTHY, 2, "rtn"), run(&r, ZERO, 2, "gptq");
    assert_string_equal(r.fallback, "its inputs were all 0: rounded to nearest");
    assert_int_equal(n_differ(&r, &rtn), 0);
}

/* The normal damping is enough for rank-deficient Hessians. For worse Hessians the damping is
 * multiplied by 10 until it is enough. */
static void deficient_ones_are_solved(void **state)
{
    (void)state;
    static result gptq, rtn;
    run(&rtn, HEALTHY, 2, "rtn");
    const kind kinds[] = {RANK_1, TWINS, MIXED};
    for (int i = 0; i < 3; i++) {
        run(&gptq, kinds[i], 2, "gptq");
        assert_true(n_differ(&gptq, &rtn) > 0);
        assert_null(gptq.fallback);
    }
    run(&gptq, NEARLY, 2, "gptq"); // damping by 1 % and by 10 % of the mean diagonal is not enough
    assert_string_equal(gptq.fallback, "damping times 100");
    assert_true(n_differ(&gptq, &rtn) > 0);
}

/* If a damping of 0 is not enough, the next damping is the default damping, because 10 times 0 is
 * 0. */
static void a_ladder_from_zero_rises(void **state)
{
    (void)state;
    static result r, rtn;
    static const struct { kind k; const char *says; } rows[] = {{HEALTHY, NULL},
                {RANK_1, "damping 0.01 in place of 0"},
                {NEARLY, "damping 1 in place of 0"}};
    run(&rtn, HEALTHY, 2, "rtn");
    for (int i = 0; i < 3; i++) {
        run(&r, rows[i].k, 2, "undamped");
        if (!rows[i].says) assert_null(r.fallback);
        else assert_string_equal(r.fallback, rows[i].says);
        assert_true(n_differ(&r, &rtn) > 0);
    }
    run(&r, INDEFINITE, 2, "undamped");
    assert_string_equal(r.fallback,
                        "Hessian not positive definite at a damping of 1: rounded to nearest");
}

/* With `target: original`, GPTQ computes target weights from a shift. Targets that exceed f32 must
 * not be used, and the fallback must name the reason. A shift of 0 must change nothing. */
static void targets_are_finite(void **state)
{
    (void)state;
    static result plain, ours, zero;
    run(&plain, HEALTHY, 2, "gptq"), run(&ours, HEALTHY, 2, "original");
    assert_null(ours.fallback);
    assert_true(n_differ(&plain, &ours) > O * I / 100);
    run(&ours, HEALTHY, 2, "beyond");
    assert_string_equal(ours.fallback, "target 'original' is not finite: solved without");
    assert_int_equal(n_differ(&plain, &ours), 0);
    run(&plain, ZERO, 2, "gptq"), run(&zero, ZERO, 2, "original");
    assert_int_equal(n_differ(&plain, &zero), 0);
}

/* A weight that cannot be solved is rounded to nearest, and the fallback names the reason. */
static void hopeless_ones_are_rounded(void **state)
{
    (void)state;
    static result gptq, rtn;
    run(&rtn, HEALTHY, 2, "rtn");
    const kind kinds[] = {INDEFINITE, HAS_NAN, HAS_INF, ALL_INF};
    for (int i = 0; i < 4; i++) {
        run(&gptq, kinds[i], 2, "gptq");
        assert_non_null(gptq.fallback);
        assert_non_null(strstr(gptq.fallback, i < 2 ? "not positive definite" : "not finite"));
        assert_non_null(strstr(gptq.fallback, "rounded to nearest"));
        assert_int_equal(n_differ(&gptq, &rtn), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_are_finite),
        cmocka_unit_test(every_hessian_ends),        cmocka_unit_test(scale_does_not_matter),
        cmocka_unit_test(dead_columns_are_zero),     cmocka_unit_test(deficient_ones_are_solved),
        cmocka_unit_test(a_ladder_from_zero_rises),
        cmocka_unit_test(a_weight_without_inputs_is_rounded),
        cmocka_unit_test(hopeless_ones_are_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
