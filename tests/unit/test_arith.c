/* test_arith.c - tests scales, codes and ranges. Compares them with values of compressed-tensors.
 * Compares C kernels with AVX2 kernels. Compares the results of one thread with those of several
 * threads. Also tests errors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/isa.h"
#include "base/num.h"
#include "base/rng.h"
#include "quant/arith.h"
#include "quant/kernels.h"
#include "torture.h"

enum { GUARD = 32, CANARY = 0xa5 };
static osh_ctx *cx;

static int setup(void **state)
{
    return osh_ctx_new(&cx, 2);
}
static int teardown(void **state)
{
    int live = osh_mem_live(cx) != 0;
    osh_ctx_free(cx);
    return live;
}

static osh_q_args args_of(osh_q_type type, int bits, osh_q_strategy strategy, int64_t group,
                          bool symmetric)
{
    return (osh_q_args){.present = true,
                        .bits = bits,
                        .type = type,
                        .strategy = strategy,
                        .group_size = group,
                        .symmetric = symmetric};
}

/* Returns a BF16 tensor [O, I] (own) with the values of `v`, rounded to BF16. */
static osh_tensor *bf16(const float *v, int64_t O, int64_t I)
{
    osh_tensor *t = NULL;
    assert_ok(cx, osh_tensor_new(cx, &t, OSH_BF16, 2, (int64_t[]){O, I}));
    osh_from_f32(t->data, OSH_BF16, v, O * I);
    return t;
}

static void check_worked(const float *v, int64_t O, int64_t I, const osh_q_args *a,
                         const uint16_t *scale, const int8_t *zero, const uint8_t *codes)
{
    osh_tensor *w = bf16(v, O, I);
    osh_qparams p = {0};
    uint8_t got[64];
    assert_ok(cx, osh_q_weight_params(cx, &p, w, a, OSH_ARITH_REFERENCE, "w"));
    assert_ok(cx, osh_q_encode(cx, got, w, &p, a, OSH_ARITH_REFERENCE));
    assert_memory_equal(p.scale->data, scale, osh_tensor_bytes(p.scale));
    assert_int_equal(p.zero != NULL, zero != NULL);
    if (zero) assert_memory_equal(p.zero->data, zero, osh_tensor_bytes(p.zero));
    assert_memory_equal(got, codes, (size_t)(O * I));
    osh_qparams_deinit(cx, &p);
    osh_tensor_free(cx, w);
}

/* Examples that were computed with compressed-tensors. */
static void test_worked_values(void **state)
{
    static const float rows[] = {.5f, -1, .25f, 0, .0130005f, -.0109863f, .0050049f, .0126953f};
    static const float fp[] = {.5f, -1, .25f, .0001f, .0130005f, -.0109863f, .0050049f, -1e-7f};
    static const float block[] = {1, .5f, .1f, .2f, -2, .25f, .3f, -.4f, .03f, 0, 0, 0};
    static const float row[] = {.69921875f, -.30078125f, .10009766f,  -.8984375f,
                                .05004883f, .02001953f,  -.01000977f, .04003906f};
    osh_q_args a = args_of(OSH_Q_INT, 8, OSH_Q_CHANNEL, 0, true);
    check_worked(rows, 2, 4, &a, (uint16_t[]){0x3C01, 0x38D6}, NULL,
                 (uint8_t[]){64, 0x81, 32, 0, 127, 0x94, 49, 124});
    a = args_of(OSH_Q_FLOAT, 8, OSH_Q_CHANNEL, 0, true);
    check_worked(fp, 2, 4, &a, (uint16_t[]){0x3B12, 0x37F3}, NULL,
                 (uint8_t[]){0x76, 0xFE, 0x6E, 0x14, 0x7E, 0xFC, 0x73, 0x82});
    a.strategy = OSH_Q_TENSOR;
    check_worked(fp, 2, 4, &a, (uint16_t[]){0x3B12}, NULL,
                 (uint8_t[]){0x76, 0xFE, 0x6E, 0x14, 0x4C, 0xCA, 0x41, 0x80});
    a.strategy = OSH_Q_BLOCK, a.block[0] = a.block[1] = 2;
    check_worked(block, 3, 4, &a, (uint16_t[]){0x3B92, 0x3A6A, 0x388D, 0x3C00}, NULL,
                 (uint8_t[]){0x76, 0x6E, 0x6E, 0x76, 0xFE, 0x66, 0x7A, 0xFE, 0x7E, 0, 0, 0});
    a = args_of(OSH_Q_INT, 4, OSH_Q_GROUP, 4, true);
    check_worked(row, 1, 8, &a, (uint16_t[]){0x3DF5, 0x3BDB}, NULL,
                 (uint8_t[]){6, 0xFD, 1, 0xF8, 7, 3, 0xFE, 6});
    a.symmetric = false;
    check_worked(row, 1, 8, &a, (uint16_t[]){0x3DDA, 0x3B83}, (int8_t[]){0, -6},
                 (uint8_t[]){7, 0xFD, 1, 0xF8, 6, 0xFF, 0xF8, 4});
}

static void test_f32_arithmetic(void **state)
{
    enum { N = 4096 };
    static float v[N];
    osh_q_args a = args_of(OSH_Q_INT, 8, OSH_Q_CHANNEL, 0, true);
    osh_qparams p = {0};
    int8_t ref[N], f32[N];
    int differ = 0;
    for (int i = 0; i < N; i++) v[i] = osh_rng_sym(1, 1, (uint64_t)i);
    osh_tensor *w = bf16(v, 4, N / 4);
    assert_ok(cx, osh_q_weight_params(cx, &p, w, &a, OSH_ARITH_F32, "w"));
    assert_ok(cx, osh_q_encode(cx, ref, w, &p, &a, OSH_ARITH_REFERENCE));
    assert_ok(cx, osh_q_encode(cx, f32, w, &p, &a, OSH_ARITH_F32));
    for (int i = 0; i < N; i++) {
        float s = osh_f32_of_bf16(((uint16_t *)p.scale->data)[i / (N / 4)]),
              x = osh_f32_of_bf16(((uint16_t *)w->data)[i]) / s;
        float best = nearbyintf(x > 127 ? 127 : x);
        assert_int_equal(f32[i], (int)best);
        differ += ref[i] != f32[i];
    }
    // the reference rounds twice, so about 8 % of the codes differ
    assert_in_range(differ, N / 50, N / 5);
    osh_qparams_deinit(cx, &p);
    osh_tensor_free(cx, w);
}

/* Fills x with n random finite elements of dtype dt, including zeros and denormals. */
static void bits_fill(void *x, osh_dtype dt, int64_t n, uint64_t stream)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t u = osh_rng_u64(7, stream, (uint64_t)i);
        if (u >> 60 == 0) u &= 0x807f007f8000007full; // x[i], which is made of these bits,
                                                      // becomes a small number or zero
        if (dt == OSH_F32)
            ((uint32_t *)x)[i] =
                (uint32_t)u & (((uint32_t)u & 0x7f800000u) == 0x7f800000u ? 0xbfffffffu : ~0u);
        else {
            uint16_t h = (uint16_t)u, inf = dt == OSH_BF16 ? 0x7f80 : 0x7c00;
            ((uint16_t *)x)[i] = (h & inf) == inf ? h & 0xbfff : h;
        }
    }
}

static void columns_compare(const osh_q_kernels *v)
{
    static const osh_dtype dts[] = {OSH_BF16, OSH_F16, OSH_F32};
    static const int64_t sizes[] = {1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 129, 1000};
    const osh_q_kernels *c = &osh_q_kernels_c;
    for (int d = 0; d < 3; d++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            for (int mode = 0; mode < 9; mode++) {
                int64_t n = sizes[s];
                size_t size = osh_dtype_bytes(dts[d]);
                uint8_t x[4000], want[1000 + GUARD], got[1000 + GUARD], y[4000 + GUARD],
                    z[4000 + GUARD];
                float lo[2], hi[2];
                int bits = mode >= 7 ? 6 : mode >= 4 ? 4 : 8;
                osh_q_type type = mode < 2 || mode > 4 ? OSH_Q_FLOAT : OSH_Q_INT;
                osh_q_args a = args_of(type, bits, OSH_Q_CHANNEL, 0, true);
                osh_q_code q = osh_q_code_of(&a, mode % 2 ? dts[d] : OSH_F32);
                bits_fill(x, dts[d], n, (uint64_t)(d * 1000 + mode * 100 + (int)s));
                q.scale = osh_q_round_to(mode == 3 ? 0.0037f : 1e-3f, dts[d]),
                q.zero = mode == 3 ? -77 : 0;
                memset(want, CANARY, sizeof want), memset(got, CANARY, sizeof got);
                memset(y, CANARY, sizeof y), memset(z, CANARY, sizeof z);
                c->range(&lo[0], &hi[0], x, dts[d], n);
                v->range(&lo[1], &hi[1], x, dts[d], n);
                assert_memory_equal(&lo[0], &lo[1], 4);
                assert_memory_equal(&hi[0], &hi[1], 4);
                for (int64_t seg = 1; seg <= n && n % seg == 0; seg *= 2) {
                    float ends[4][1000] = {{0}};
                    c->ranges(ends[0], ends[1], x, dts[d], seg, n / seg);
                    v->ranges(ends[2], ends[3], x, dts[d], seg, n / seg);
                    assert_memory_equal(ends[0], ends[2], sizeof ends[0]);
                    assert_memory_equal(ends[1], ends[3], sizeof ends[1]);
                }
                c->encode(want, x, dts[d], n, &q);
                v->encode(got, x, dts[d], n, &q);
                assert_memory_equal(want, got, sizeof want);
                if (mode == 0)
                    for (int64_t i = 0; i < n; i++)
                        want[i] = (uint8_t)osh_rng_u64(8, 1, (uint64_t)i); // the codes include
                                                                           // those that stand for
                                                                           // NaN
                c->decode(y, dts[d], want, n, &q);
                v->decode(z, dts[d], want, n, &q);
                for (int64_t i = 0; i < n; i++) // the kernels may decode a NaN to different bits
                    if ((want[i] & 0x7f) == 0x7f && q.kind == OSH_Q_CODE_FP8) {
                        memset(y + (size_t)i * size, 0, size);
                        assert_true(osh_find_nonfinite(z + (size_t)i * size, dts[d], 1) == 0);
                        memset(z + (size_t)i * size, 0, size);
                    }
                assert_memory_equal(y, z, sizeof y);
                for (int64_t seg = 1; seg <= n && n % seg == 0 && mode; seg *= 2) {
                    float scale[OSH_Q_RUN], zero[OSH_Q_RUN];
                    osh_q_run run = {seg, n / seg < OSH_Q_RUN ? n / seg : OSH_Q_RUN, scale, zero};
                    for (int i = 0; i < OSH_Q_RUN; i++) {
                        scale[i] = osh_q_round_to(q.scale * (float)(1 + i), dts[d]);
                        zero[i] = q.zero;
                    }
                    c->encode_run(want, x, dts[d], &run, &q);
                    v->encode_run(got, x, dts[d], &run, &q);
                    c->decode_run(y, dts[d], want, &run, &q);
                    v->decode_run(z, dts[d], got, &run, &q);
                    assert_memory_equal(want, got, sizeof want);
                    assert_memory_equal(y, z, sizeof y);
                }
                double sums[2][2];
                c->error(sums[0], x, y, dts[d], n);
                v->error(sums[1], x, y, dts[d], n);
                assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
            }
}

static void test_kernel_columns(void **state)
{
    if (!osh_q_kernels_avx2() || osh_isa_of_cpu() < OSH_ISA_AVX2) skip();
    columns_compare(osh_q_kernels_avx2());
    if (osh_isa_of_cpu() >= OSH_ISA_AVX512) columns_compare(osh_q_kernels_avx512());
}

/* Compares the error sums of the C and AVX2 kernels with sums in double. Some values have squares
 * that exceed the range of f32. */
static void test_error_sums(void **state)
{
    enum { N = 1003 };
    static const float sizes[] = {1, 1e-3f, 1e25f};
    const osh_q_kernels *columns[] = {&osh_q_kernels_c, osh_q_kernels_avx2()};
    for (int k = 0; k < 2; k++)
        for (int s = 0; s < 3; s++) {
            if (!columns[k] || (k && osh_isa_of_cpu() < OSH_ISA_AVX2)) continue;
            float a[N], b[N];
            double want[2] = {0}, got[2];
            for (uint64_t i = 0; i < N; i++) {
                a[i] = osh_rng_sym(9, 1, i) * sizes[s],
                b[i] = a[i] + osh_rng_sym(9, 2, i) * sizes[s] / 8;
                double d = (double)a[i] - b[i];
                want[0] += d * d, want[1] += (double)a[i] * a[i];
            }
            columns[k]->error(got, a, b, OSH_F32, N);
            for (int i = 0; i < 2; i++) assert_true(fabs(got[i] / want[i] - 1) < 1e-12);
        }
}

/* Computes scales for many ranges in one call (eight ranges at a time), and for each range alone.
 * The scales must be equal, even for ranges that overflow, are 0 or have only one sign. */
static void test_params_columns(void **state)
{
    static const osh_dtype dts[] = {OSH_BF16, OSH_F16, OSH_F32};
    float min[67], max[67];
    for (int i = 0; i < 67; i++) {
        float e = ldexpf(1, i % 40 - 30);
        min[i] = i % 5 ? -fabsf(osh_rng_sym(3, 1, (uint64_t)i)) * e : i % 2 ? 0 : e;
        max[i] = i % 7 ? fabsf(osh_rng_sym(3, 2, (uint64_t)i)) * e : i % 2 ? -e : 0;
    }
    min[60] = -60000, max[60] = 60000, min[61] = max[61] = 0, min[62] = -1e-30f, max[62] = 0;
    for (int d = 0; d < 3; d++)
        for (int mode = 0; mode < 4; mode++) {
            osh_q_args a = args_of(OSH_Q_INT, mode < 2 ? 4 : 8, OSH_Q_GROUP, 32, mode % 2);
            uint8_t scale[67 * 4];
            int8_t zero[67];
            osh_q_scale_zp(scale, zero, min, max, 67,
                           &(osh_q_scaling){&a, dts[d], OSH_ARITH_REFERENCE});
            for (int i = 0; i < 67; i++) {
                uint8_t s[4];
                int8_t z;
                osh_q_scale_zp(s, &z, min + i, max + i, 1,
                               &(osh_q_scaling){&a, dts[d], OSH_ARITH_REFERENCE});
                assert_memory_equal(s, scale + (size_t)i * osh_dtype_bytes(dts[d]),
                                    osh_dtype_bytes(dts[d]));
                assert_int_equal(z, zero[i]);
            }
        }
}

static void test_same_for_threads(void **state)
{
    enum { O = 700, I = 1024 }; // the weight is large enough for several chunks of parallel work
    osh_ctx *four = NULL;
    osh_tensor *w = NULL;
    assert_int_equal(osh_ctx_new(&four, 4), OSH_OK);
    assert_ok(cx, osh_tensor_new(cx, &w, OSH_BF16, 2, (int64_t[]){O, I}));
    for (int64_t i = 0; i < O * I; i++)
        ((uint16_t *)w->data)[i] = osh_bf16_of_f32(osh_rng_sym(5, 0, (uint64_t)i));
    for (int k = 2 * OSH_Q_TENSOR; k < 2 * (OSH_Q_BLOCK + 1); k++) {
        int strategy = k / 2, mse = k % 2;
        osh_q_args a = args_of(OSH_Q_INT, 8, (osh_q_strategy)strategy, 64, strategy != OSH_Q_GROUP);
        osh_qparams p = {0}, q = {0};
        uint8_t *x = malloc(O * I), *y = malloc(O * I);
        a.block[0] = 96, a.block[1] = 100;
        if (mse) snprintf(a.observer, sizeof a.observer, "mse");
        assert_ok(cx, osh_q_weight_params(cx, &p, w, &a, OSH_ARITH_REFERENCE, "w"));
        assert_ok(four, osh_q_weight_params(four, &q, w, &a, OSH_ARITH_REFERENCE, "w"));
        assert_memory_equal(p.scale->data, q.scale->data, osh_tensor_bytes(p.scale));
        assert_ok(cx, osh_q_encode(cx, x, w, &p, &a, OSH_ARITH_REFERENCE));
        assert_ok(four, osh_q_encode(four, y, w, &q, &a, OSH_ARITH_REFERENCE));
        assert_memory_equal(x, y, O * I);
        free(x), free(y);
        osh_qparams_deinit(cx, &p);
        osh_qparams_deinit(four, &q);
    }
    osh_tensor_free(cx, w);
    osh_ctx_free(four);
}

static void test_refusals(void **state)
{
    static const float v[] = {1, 2, 3, NAN, 5, 6, 7, 8}, inf[] = {1, 2, 3, 4, 5, -INFINITY, 7, 8};
    osh_q_args a = args_of(OSH_Q_INT, 4, OSH_Q_GROUP, 3, true);
    osh_qparams p = {0};
    osh_tensor *w = bf16(v, 2, 4), *x = bf16(inf, 2, 4);
    uint8_t codes[8];
    assert_fails(cx, OSH_E_FORMAT,
                 osh_q_weight_params(cx, &p, w, &a, OSH_ARITH_REFERENCE, "m.q_proj"),
                 "m.q_proj has 4 input features, which groups of 3 do not divide");
    for (int s = OSH_Q_TENSOR; s <= OSH_Q_GROUP; s++) {
        a.strategy = (osh_q_strategy)s, a.group_size = 2;
        assert_fails(cx, OSH_E_NUMERIC,
                     osh_q_weight_params(cx, &p, w, &a, OSH_ARITH_REFERENCE, "m.q_proj"),
                     "m.q_proj holds a NaN");
        assert_fails(cx, OSH_E_NUMERIC,
                     osh_q_weight_params(cx, &p, x, &a, OSH_ARITH_REFERENCE, "m.q_proj"),
                     "m.q_proj holds a NaN");
    }
    osh_q_args wide = args_of(OSH_Q_INT, 4, OSH_Q_CHANNEL, 0, true);
    snprintf(wide.observer, sizeof wide.observer,
             "fouroversix"); // the observer tries up to 1.8 times the range of the values
    uint16_t half[] = {0x7b00, 0x3c00}; // the bits of 57344 and 1 in F16
    osh_tensor huge = osh_tensor_view(OSH_F16, 2, (int64_t[]){1, 2}, half);
    assert_fails(cx, OSH_E_NUMERIC,
                 osh_q_weight_params(cx, &p, &huge, &wide, OSH_ARITH_REFERENCE, "m"),
                 "the range that observer fouroversix finds in m is not finite");
    a.strategy = OSH_Q_TOKEN;
    assert_fails(cx, OSH_E_USAGE, osh_q_weight_params(cx, &p, x, &a, OSH_ARITH_REFERENCE, "m"),
                 "for activations");
    x->dtype = OSH_I16;
    assert_fails(cx, OSH_E_UNSUPPORTED,
                 osh_q_weight_params(cx, &p, x, &a, OSH_ARITH_REFERENCE, "m"), "I16");
    x->dtype = OSH_BF16;
    osh_tensor scale =
        osh_tensor_view(OSH_BF16, 1, (int64_t[]){1}, codes); // this tensor has one scale, but the
                                                             // weight needs two
    osh_qparams wrong = {.scale = &scale};
    a.strategy = OSH_Q_CHANNEL;
    assert_fails(cx, OSH_E_FORMAT, osh_q_encode(cx, codes, x, &wrong, &a, OSH_ARITH_REFERENCE),
                 "weight_scale holds 1 BF16 values, want 2");
    assert_null(p.scale);
    a.strategy = OSH_Q_TOKEN, a.dynamic = OSH_Q_DYNAMIC;
    assert_fails(cx, OSH_E_NUMERIC, osh_q_fake_quant_act(cx, w, &a, NULL, NULL),
                 "an activation is NaN");
    a.strategy = OSH_Q_TENSOR, a.dynamic = OSH_Q_STATIC;
    assert_fails(cx, OSH_E_FORMAT, osh_q_fake_quant_act(cx, w, &a, NULL, NULL),
                 "input_scale is not one number");
    osh_tensor_free(cx, w);
    osh_tensor_free(cx, x);
}

static osh_status quantize(osh_ctx *c, void *user)
{
    osh_status rc = OSH_OK;
    uint16_t v[24] = {0x3f80, 0xbf80};
    uint8_t codes[24];
    osh_tensor w = osh_tensor_view(OSH_BF16, 2, (int64_t[]){3, 8}, v);
    osh_q_args a = args_of(OSH_Q_INT, 4, OSH_Q_GROUP, 4, false);
    osh_qparams p = {0};
    if (user)
        snprintf(a.observer, sizeof a.observer, "mse"), a.strategy = OSH_Q_TENSOR, a.group_size = 0;
    OSH_TRY(osh_q_weight_params(c, &p, &w, &a, OSH_ARITH_REFERENCE, "w"));
    OSH_TRY(osh_q_encode(c, codes, &w, &p, &a, OSH_ARITH_REFERENCE));
    OSH_TRY(osh_q_decode(c, &w, codes, &p, &a));
done:
    osh_qparams_deinit(c, &p);
    return rc;
}

static void test_torture(void **state)
{
    assert_true(torture(quantize, NULL) >= 6);
    assert_true(torture(quantize, &cx) >= 10); // the weight has the observer mse, which searches
                                               // for the range
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worked_values),    cmocka_unit_test(test_f32_arithmetic),
        cmocka_unit_test(test_kernel_columns), cmocka_unit_test(test_error_sums),
        cmocka_unit_test(test_params_columns),
        cmocka_unit_test(test_same_for_threads), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_torture),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
