/* test_elementary.c - compares exp, log, pow and erfc with the C library in long double, and tests
 * extreme values. */
#include "base/elementary.h"
#include "base/rng.h"
#include "torture.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

enum { N = 200000, SEED = 7 };

/* Returns the distance of `got` from the true value, in units in the last place. */
static double ulps(double got, long double want)
{
    int e;
    frexpl(want, &e);
    return (double)fabsl((got - want) / ldexpl(1, e < -1021 ? -1074 : e - 53));
}

static double unit(uint64_t stream, uint64_t i)
{
    return osh_rng_sym(SEED, stream, i) + 1e-8 * osh_rng_sym(SEED, 9, i);
}

static void exp_is_near(void **state)
{
    (void)state;
    double worst = 0;
    for (uint64_t i = 0; i < N; i++) {
        double x = unit(1, i) * (i % 4 == 0 ? 745 : i % 4 == 1 ? 30 : i % 4 == 2 ? 1 : 1e-5);
        if (x > 709.7) continue;
        worst = fmax(worst, ulps(osh_math_exp(x), expl(x)));
    }
    printf("exp: %.3f ulp\n", worst);
    assert_true(worst <= 1);
    assert_true(osh_math_exp(0) == 1 && osh_math_exp(-INFINITY) == 0);
    assert_true(osh_math_exp(INFINITY) == INFINITY && isnan(osh_math_exp(NAN)));
    assert_true(osh_math_exp(-745) > 0 && osh_math_exp(-747) == 0);
    assert_true(osh_math_exp(709.78) < INFINITY && osh_math_exp(710) == INFINITY);
}

static void log_is_near(void **state)
{
    (void)state;
    double worst = 0;
    for (uint64_t i = 0; i < N; i++) {
        double x = i % 3 == 0   ? exp(700 * unit(2, i))
                   : i % 3 == 1 ? 1 + 0.5 * unit(2, i)
                                : 1 + 1e-6 * unit(2, i);
        if (x == 1) continue;
        worst = fmax(worst, ulps(osh_math_log(x), logl(x)));
    }
    printf("log: %.3f ulp\n", worst);
    assert_true(worst <= 1);
    assert_true(osh_math_log(1) == 0 && osh_math_log(0) == -INFINITY);
    assert_true(isnan(osh_math_log(-1)) && isnan(osh_math_log(NAN)));
    assert_true(osh_math_log(INFINITY) == INFINITY &&
                ulps(osh_math_log(0x1p-1070), logl(0x1p-1070L)) <= 1);
}

/* Tests the powers that rope frequencies need. Rounded to f32, they must equal the correctly
 * rounded powers. */
static void pow_is_near(void **state)
{
    (void)state;
    const double base[] = {100, 10000, 500000, 1000000, 5e8};
    double worst = 0;
    for (size_t b = 0; b < sizeof base / sizeof *base; b++)
        for (int dim = 2; dim <= 512; dim += 2)
            for (int i = 0; i < dim; i += 2) {
                float y = (float)i / (float)dim;
                double got = osh_math_pow(base[b], (double)y);
                long double want = powl(base[b], y);
                worst = fmax(worst, (double)fabsl(got / want - 1));
                assert_true((float)got == (float)want);
            }
    printf("pow: relative error %.2e\n", worst);
    assert_true(worst < 1e-14);
    assert_true(osh_math_pow(7, 0) == 1);
}

static void erfc_is_near(void **state)
{
    (void)state;
    double worst = 0;
    for (uint64_t i = 0; i < N; i++) {
        double x = unit(3, i) * (i % 2 ? 26 : 3);
        long double want = erfcl(x);
        worst = fmax(worst, (double)fabsl(osh_math_erfc(x) / want - 1));
    }
    printf("erfc: relative error %.2e\n", worst);
    assert_true(worst < 2e-13);
    assert_true(fabs(osh_math_erfc(0) - 1) < 1e-15 && osh_math_erfc(INFINITY) == 0 &&
                osh_math_erfc(-INFINITY) == 2);
    assert_true(isnan(osh_math_erfc(NAN)) && osh_math_erfc(40) == 0 && osh_math_erfc(-40) == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(exp_is_near), cmocka_unit_test(log_is_near),
                                       cmocka_unit_test(pow_is_near),
                                       cmocka_unit_test(erfc_is_near)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
