/* test_tensor.c - tests dtypes and tensors, and compares the conversion of elements with the
 * functions of base/num.h. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/num.h"
#include "base/rng.h"
#include "tensor/tensor.h"

enum { GUARD = 16 };
static const int64_t lengths[] = {0, 1, 7, 8, 15, 16, 17, 31, 129, 4099};
#define N_LENGTHS (sizeof lengths / sizeof *lengths)

static osh_ctx *new_ctx(void)
{
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    return cx;
}

static void test_dtype_names(void **state)
{
    for (int i = 0; i < OSH_N_DTYPES; i++) {
        const char *tag = osh_dtype_name((osh_dtype)i);
        assert_int_equal(osh_dtype_of_name(tag), i);
        assert_true(osh_dtype_bytes((osh_dtype)i) >= 1);
    }
    assert_int_equal(osh_dtype_of_name("torch.bfloat16"), OSH_BF16);
    assert_int_equal(osh_dtype_of_name("float16"), OSH_F16);
    assert_int_equal(osh_dtype_of_name("float8_e4m3fn"), OSH_FP8);
    assert_int_equal(osh_dtype_of_name("bf16"), OSH_DTYPE_NONE);
    assert_int_equal(osh_dtype_of_name(""), OSH_DTYPE_NONE);
    assert_true(osh_dtype_is_float(OSH_FP8) && !osh_dtype_is_float(OSH_I8));
    assert_false(osh_dtype_is_float(OSH_DTYPE_NONE));
}

static void test_shapes(void **state)
{
    int64_t n = -1;
    assert_true(osh_shape_numel(&n, 0, NULL) && n == 1);
    assert_true(osh_shape_numel(&n, 2, (int64_t[]){3, 129}) && n == 387);
    assert_true(osh_shape_numel(&n, 3, (int64_t[]){3, 0, 5}) && n == 0);
    assert_false(osh_shape_numel(&n, 1, (int64_t[]){-1}));
    assert_false(osh_shape_numel(&n, 2, (int64_t[]){0, -1}));
    assert_false(osh_shape_numel(&n, 2, (int64_t[]){INT64_C(1) << 32, INT64_C(1) << 31}));
}

static void test_new_and_view(void **state)
{
    osh_ctx *cx = new_ctx();
    osh_tensor *t = NULL;
    float data[6] = {0};

    assert_int_equal(osh_tensor_new(cx, &t, OSH_BF16, 2, (int64_t[]){3, 5}), OSH_OK);
    assert_int_equal(osh_tensor_numel(t), 15);
    assert_int_equal(osh_tensor_bytes(t), 30);
    assert_true(t->own);
    osh_tensor_free(cx, t);
    osh_tensor_free(cx, NULL);

    osh_tensor v = osh_tensor_view(OSH_F32, 2, (int64_t[]){2, 3}, data);
    assert_true(!v.own && v.data == data && osh_tensor_bytes(&v) == 24);

    t = NULL;
    assert_int_equal(osh_tensor_new(cx, &t, OSH_F64, 1, (int64_t[]){INT64_C(1) << 61}),
                     OSH_E_FORMAT);
    assert_null(t);
    assert_non_null(strstr(osh_error_text(cx), "too large"));
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static void test_new_torture(void **state)
{
    osh_ctx *cx = new_ctx();
    for (int64_t k = 1;; k++) {
        osh_tensor *t = NULL;
        osh_mem_fail_after(cx, k);
        osh_status rc = osh_tensor_new(cx, &t, OSH_F32, 1, (int64_t[]){4});
        osh_mem_fail_after(cx, -1);
        osh_tensor_free(cx, t);
        assert_int_equal(osh_mem_live(cx), 0);
        if (!rc) {
            assert_true(k > 2);
            break;
        }
        assert_int_equal(rc, OSH_E_NOMEM);
        osh_error_clear(cx);
    }
    osh_ctx_free(cx);
}

/* Returns the i-th of many f32 numbers that are hard to round. The numbers have all exponents, and
 * include ties of F16 and BF16, the neighbours of ties, and NaNs. */
static float nasty(uint64_t i)
{
    static const uint32_t low[] = {0,       1,       0x0fff,  0x1000,  0x1001, 0x2fff,
                                   0x3000,  0x3001,  0x7fff,  0x8000,  0x8001, 0xffff,
                                   0x17fff, 0x18000, 0x18001, 0x7fffff};
    if (i < 512 * 16) return osh_f32_of_bits((uint32_t)(i / 16) << 23 | low[i % 16]);
    return osh_f32_of_bits((uint32_t)osh_rng_u64(1, 2, i));
}

static uint32_t scalar_from(osh_dtype dt, float f)
{
    if (dt == OSH_BF16) return osh_bf16_of_f32(f);
    if (dt == OSH_F16) return osh_f16_of_f32(f);
    if (dt == OSH_FP8) return osh_fp8_of_f32(f);
    return osh_bits_of_f32(f);
}

static uint32_t element(const void *p, osh_dtype dt, int64_t i)
{
    if (osh_dtype_bytes(dt) == 1) return ((const uint8_t *)p)[i];
    if (osh_dtype_bytes(dt) == 2) return ((const uint16_t *)p)[i];
    return ((const uint32_t *)p)[i];
}

static void test_from_f32(void **state)
{
    static const osh_dtype types[] = {OSH_F32, OSH_BF16, OSH_F16, OSH_FP8};
    enum { N = 40000 };
    float *x = malloc(N * sizeof *x);
    uint8_t *to = malloc(N * 4);

    for (uint64_t i = 0; i < N; i++) x[i] = nasty(i);
    for (int t = 0; t < 4; t++) {
        osh_from_f32(to, types[t], x, N);
        for (int64_t i = 0; i < N; i++)
            if (element(to, types[t], i) != scalar_from(types[t], x[i]))
                fail_msg("%s of %08x: %x, wanted %x", osh_dtype_name(types[t]),
                         osh_bits_of_f32(x[i]), element(to, types[t], i),
                         scalar_from(types[t], x[i]));
    }
    free(to);
    free(x);
}

/* Converts every bit pattern of the 8 and 16 bit dtypes to f32 and back. Only signalling NaNs may
 * change. */
static void test_every_pattern(void **state)
{
    float *f = malloc(65536 * sizeof *f);
    uint16_t *h = malloc(65536 * sizeof *h), *back = malloc(65536 * sizeof *back);
    uint8_t b[256], b_back[256];

    for (int i = 0; i < 65536; i++) h[i] = (uint16_t)i;
    for (int k = 0; k < 2; k++) {
        osh_dtype dt = k ? OSH_F16 : OSH_BF16;
        osh_to_f32(f, h, dt, 65536);
        osh_from_f32(back, dt, f, 65536);
        for (int i = 0; i < 65536; i++) {
            float want = k ? osh_f32_of_f16((uint16_t)i) : osh_f32_of_bf16((uint16_t)i);
            if (osh_bits_of_f32(f[i]) != osh_bits_of_f32(want))
                fail_msg("%s %04x: %08x, wanted %08x", osh_dtype_name(dt), i, osh_bits_of_f32(f[i]),
                         osh_bits_of_f32(want));
            if (isnan(want))
                assert_true(isnan(k ? osh_f32_of_f16(back[i]) : osh_f32_of_bf16(back[i])));
            else
                assert_int_equal(back[i], i);
        }
    }
    for (int i = 0; i < 256; i++) b[i] = (uint8_t)i;
    osh_to_f32(f, b, OSH_FP8, 256);
    osh_from_f32(b_back, OSH_FP8, f, 256);
    for (int i = 0; i < 256; i++) {
        assert_int_equal(osh_bits_of_f32(f[i]), osh_bits_of_f32(osh_f32_of_fp8((uint8_t)i)));
        assert_int_equal(b_back[i], i);
    }
    free(f), free(h), free(back);
}

/* Checks values that are known from IEEE 754, without base/num.h. */
static void test_known_values(void **state)
{
    const float x[] = {1.0f,          65504.0f,      65519.0f, 65520.0f,
                       5.9604645e-8f, 2.9802322e-8f, -0.0f,    INFINITY};
    const uint16_t f16[] = {0x3c00, 0x7bff, 0x7bff, 0x7c00, 0x0001, 0x0000, 0x8000, 0x7c00};
    const float y[] = {1.0f, 1.00390625f, 1.01171875f, 3.4e38f, 3.4028235e38f, -1.5f, 0, 0};
    const uint16_t bf16[] = {0x3f80, 0x3f80, 0x3f82, 0x7f80, 0x7f80, 0xbfc0, 0, 0};
    uint16_t to[8];

    osh_from_f32(to, OSH_F16, x, 8);
    assert_memory_equal(to, f16, sizeof f16);
    osh_from_f32(to, OSH_BF16, y, 8);
    assert_memory_equal(to, bf16, sizeof bf16);
}

/* Conversions of every length write only the elements, not the guard bytes after the elements. */
static void test_guards(void **state)
{
    static const osh_dtype types[] = {OSH_F32, OSH_BF16, OSH_F16, OSH_FP8, OSH_F64};

    for (size_t k = 0; k < N_LENGTHS; k++)
        for (int t = 0; t < 5; t++) {
            int64_t n = lengths[k];
            size_t room = (size_t)n * osh_dtype_bytes(types[t]);
            uint8_t *to = malloc(room + GUARD);
            float *from = malloc((size_t)n * 4 + 1), *back = malloc((size_t)n * 4 + GUARD);
            for (int64_t i = 0; i < n; i++) from[i] = osh_rng_sym(3, 0, (uint64_t)i);
            memset(to, 0xa5, room + GUARD);
            memset(back, 0xa5, (size_t)n * 4 + GUARD);
            osh_from_f32(to, types[t], from, n);
            osh_to_f32(back, to, types[t], n);
            for (int g = 0; g < GUARD; g++) {
                assert_int_equal(to[room + (size_t)g], 0xa5);
                assert_int_equal(((uint8_t *)(back + n))[g], 0xa5);
            }
            for (int64_t i = 0; i < n; i++) assert_true(fabsf(back[i] - from[i]) <= 0.0625f);
            free(to), free(from), free(back);
        }
}

static void plant(void *p, osh_dtype dt, int64_t i, int kind)
{
    if (dt == OSH_F64)
        ((double *)p)[i] = kind ? NAN : -INFINITY;
    else if (dt == OSH_F32)
        ((float *)p)[i] = kind ? NAN : -INFINITY;
    else if (dt == OSH_FP8)
        ((uint8_t *)p)[i] = kind ? 0x7f : 0xff;
    else
        ((uint16_t *)p)[i] = (dt == OSH_BF16 ? 0x7f80 : 0x7c00) | (kind ? 1 : 0x8000);
}

static void test_find_nonfinite(void **state)
{
    static const osh_dtype types[] = {OSH_F64, OSH_F32, OSH_BF16, OSH_F16, OSH_FP8};

    for (int t = 0; t < 5; t++) {
        osh_dtype dt = types[t];
        size_t room = 131 * osh_dtype_bytes(dt);
        uint8_t *p = malloc(room);
        for (int64_t at = 0; at < 131; at++)
            for (int kind = 0; kind < 2; kind++) {
                memset(p, 0x3a, room);
                plant(p, dt, 130, kind);
                plant(p, dt, at, kind);
                // the first of two elements that are not finite is found
                assert_int_equal(osh_find_nonfinite(p, dt, 131), at);
                assert_int_equal(osh_find_nonfinite(p, dt, at), -1);
            }
        free(p);
    }
    uint16_t bf = 0x7f7f, h = 0x7bff; // the largest finite numbers of each dtype
    uint8_t b = 0x7e;
    assert_int_equal(osh_find_nonfinite(&bf, OSH_BF16, 1), -1);
    assert_int_equal(osh_find_nonfinite(&h, OSH_F16, 1), -1);
    assert_int_equal(osh_find_nonfinite(&b, OSH_FP8, 1), -1);
    assert_int_equal(osh_find_nonfinite("\x7f\x7f\x7f\x7f", OSH_I8, 4), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtype_names),    cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_new_and_view),   cmocka_unit_test(test_new_torture),
        cmocka_unit_test(test_from_f32),       cmocka_unit_test(test_every_pattern),
        cmocka_unit_test(test_known_values),   cmocka_unit_test(test_guards),
        cmocka_unit_test(test_find_nonfinite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
