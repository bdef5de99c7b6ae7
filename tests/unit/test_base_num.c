/* test_base_num.c - tests conversions to f16 and fp8 at every value, at every midpoint between two
 * values, and at the neighbours of each midpoint. Also tests the counter RNG. */
#include "base/num.h"
#include "base/rng.h"
#include "torture.h"

#include <math.h>

/* Returns the F16 number with the bits h as a double, by the definition of F16. */
static double f16_value(int h)
{
    int e = (h >> 10) & 31, m = h & 1023;
    double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}

static double fp8_value(int b)
{
    int e = (b >> 3) & 15, m = b & 7;
    double v = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
    return b & 0x80 ? -v : v;
}

static void f16_there_and_back(void **state)
{
    for (int h = 0; h < 65536; h++) {
        float f = osh_f32_of_f16((uint16_t)h);
        if ((h & 0x7fff) > 0x7c00) {
            assert_true(isnan(f));
            uint16_t back = osh_f16_of_f32(f);
            assert_true((back & 0x7fff) > 0x7c00 && (back & 0x8000) == (h & 0x8000));
            continue;
        }
        if ((h & 0x7fff) == 0x7c00) assert_true(isinf(f) && (f < 0) == (h >> 15));
        else assert_true((double)f == f16_value(h) && !!signbit(f) == h >> 15);
        assert_int_equal(osh_f16_of_f32(f), h);
    }
}

static void f16_rounds_to_nearest_even(void **state)
{
    for (int h = 0; h < 0x7c00; h++) {
        double hi = h + 1 == 0x7c00 ? 65536.0 : f16_value(h + 1);
        // the midpoint is exact in f32, which has more bits than F16
        float mid = (float)((f16_value(h) + hi) / 2);
        int even = h & 1 ? h + 1 : h;
        assert_int_equal(osh_f16_of_f32(mid), even);
        assert_int_equal(osh_f16_of_f32(-mid), even | 0x8000);
        assert_int_equal(osh_f16_of_f32(nextafterf(mid, 0)), h);
        assert_int_equal(osh_f16_of_f32(nextafterf(mid, INFINITY)), h + 1);
        assert_int_equal(osh_f16_of_f32(-nextafterf(mid, INFINITY)), (h + 1) | 0x8000);
    }
    assert_int_equal(osh_f16_of_f32(INFINITY), 0x7c00);
    assert_int_equal(osh_f16_of_f32(3e38f), 0x7c00);
    assert_int_equal(osh_f16_of_f32(65520.0f), 0x7c00);
    assert_int_equal(osh_f16_of_f32(1e-30f), 0);
    assert_int_equal(osh_f16_of_f32(-1e-45f), 0x8000);
    // the fraction of this NaN has only a bit that F16 cuts off; the result must still be a NaN
    assert_int_equal(osh_f16_of_f32(osh_f32_of_bits(0x7f800001u)) & 0x7e00, 0x7e00);
}

static void fp8_there_and_back(void **state)
{
    for (int b = 0; b < 256; b++) {
        float f = osh_f32_of_fp8((uint8_t)b);
        if ((b & 0x7f) == 0x7f) assert_true(isnan(f) && !!signbit(f) == b >> 7);
        else assert_true((double)f == fp8_value(b) && !!signbit(f) == b >> 7);
        assert_int_equal(osh_fp8_of_f32(f), b);
    }
    assert_true(osh_f32_of_fp8(0x7e) == 448.0f);
    assert_true(osh_f32_of_fp8(0x01) == 0.001953125f);
}

static void fp8_rounds_and_saturates(void **state)
{
    for (int b = 0; b < 0x7e; b++) {
        float mid = (float)((fp8_value(b) + fp8_value(b + 1)) / 2);
        int even = b & 1 ? b + 1 : b;
        assert_int_equal(osh_fp8_of_f32(mid), even);
        assert_int_equal(osh_fp8_of_f32(-mid), even | 0x80);
        assert_int_equal(osh_fp8_of_f32(nextafterf(mid, 0)), b);
        assert_int_equal(osh_fp8_of_f32(nextafterf(mid, 1000)), b + 1);
    }
    static const float large[] = {448.0f, 449.0f, 464.0f, 465.0f, 479.0f, 480.0f, 1e30f, INFINITY};
    for (int i = 0; i < 8; i++) {
        assert_int_equal(osh_fp8_of_f32(large[i]), 0x7e);
        assert_int_equal(osh_fp8_of_f32(-large[i]), 0xfe);
    }
    assert_int_equal(osh_fp8_of_f32(NAN) & 0x7f, 0x7f);
    assert_int_equal(osh_fp8_of_f32(-NAN), 0xff);
    assert_int_equal(osh_fp8_of_f32(1e-40f), 0);
}

static void bf16_rounds_to_nearest_even(void **state)
{
    for (uint32_t h = 0; h < 0x7f80; h++) {
        uint32_t mid = (h << 16) | 0x8000u;
        assert_int_equal(osh_bf16_of_f32(osh_f32_of_bf16((uint16_t)h)), h);
        assert_int_equal(osh_bf16_of_f32(osh_f32_of_bits(mid)), h + (h & 1));
        assert_int_equal(osh_bf16_of_f32(osh_f32_of_bits(mid - 1)), h);
        assert_int_equal(osh_bf16_of_f32(osh_f32_of_bits(mid + 1)), h + 1);
        assert_int_equal(osh_bf16_of_f32(-osh_f32_of_bits(mid + 1)), (h + 1) | 0x8000);
    }
    assert_int_equal(osh_bf16_of_f32(INFINITY), 0x7f80);
    assert_true(isnan(osh_f32_of_bf16(osh_bf16_of_f32(osh_f32_of_bits(0x7f800001u)))));
    assert_true(isnan(osh_f32_of_bf16(osh_bf16_of_f32(osh_f32_of_bits(0xffffffffu)))));
}

/* Compares osh_rng with numbers that were computed from the formula in rng.h with Python's
 * integers. */
static void rng_agrees_with_its_formula(void **state)
{
    assert_true(osh_rng_u64(0, 0, 0) == 0xe220a8397b1dcdafull);
    assert_true(osh_rng_u64(42, 0, 0) == 0xbdd732262feb6e95ull);
    assert_true(osh_rng_u64(42, 0, 1) == 0x28efe333b266f103ull);
    assert_true(osh_rng_u64(42, 7, 123456789) == 0x92bb9c562209e02bull);
    assert_true(osh_rng_u64(UINT64_MAX, 0xffffffff, 0xffffffff) == 0xb4d055fcf2cbbd7bull);
    double sum = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        float x = osh_rng_sym(5, 3, i);
        assert_true(x >= -1 && x < 1);
        sum += x;
    }
    assert_true(fabs(sum / 100000) < 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_there_and_back),
        cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(fp8_there_and_back),
        cmocka_unit_test(fp8_rounds_and_saturates),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(rng_agrees_with_its_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
