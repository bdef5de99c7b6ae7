/* test_span.c - tests the vector loops of math/span.h. The baseline (SSE2) code must give the bytes
 * of the AVX2 and AVX-512 code. exp and the roundings must be accurate over their whole range and
 * for special values. */
#include "kernel_test.h"
#include "math/span.h"
#include "math/span512.h"

/* Compiles the loops of span.h a second time, with names base_*. This copy never uses AVX2 or
 * AVX-512. */
#include "base/isa.h"
#define osh_span512_takes(dt) ((void)(dt), false)
#define osh_isa_used() OSH_ISA_GENERIC
#define osh_span_round base_round
#define osh_span_add base_add
#define osh_span_glu base_glu
#define osh_span_rms_norm base_rms_norm
#define osh_span_softmax base_softmax
#define osh_span_rotate base_rotate
#define osh_span_softcap base_softcap
#define osh_span_layer_norm base_layer_norm
#define osh_span_max base_max
#define osh_span_sum_exp base_sum_exp
#define osh_span_sum_exp_diff base_sum_exp_diff
#define osh_span_sincos base_sincos
#include "math/span.c"
#undef osh_span_round
#undef osh_span_add
#undef osh_span_glu
#undef osh_span_rms_norm
#undef osh_span_softmax
#undef osh_span_rotate
#undef osh_span_softcap
#undef osh_span_layer_norm
#undef osh_span_max
#undef osh_span_sum_exp
#undef osh_span_sum_exp_diff
#undef osh_span_sincos
#undef osh_isa_used
#undef osh_span512_takes

enum { N = 1024 };
static const osh_dtype dts[] = {OSH_F32, OSH_BF16, OSH_F16};

static void fill(float *x, uint64_t stream, float amp)
{
    for (int i = 0; i < N; i++) x[i] = amp * osh_rng_sym(SEED, stream, (uint64_t)i);
}

static void test_same_bytes_without_avx2(void **state)
{
    (void)state;
    float x[N], a[N], b[N], y[N], c[N], s[N];

    fill(x, 1, 20), fill(y, 2, 3), fill(c, 3, 1), fill(s, 4, 1);
    for (int d = 0; d < 3; d++) {
        osh_dtype dt = dts[d];
        memcpy(a, x, sizeof x), memcpy(b, x, sizeof x);
        osh_span_round(a, N, dt), base_round(b, N, dt);
        assert_memory_equal(a, b, sizeof a);
        osh_span_add(a, y, N), base_add(b, y, N);
        assert_memory_equal(a, b, sizeof a);
        for (int act = OSH_ACT_SILU; act <= OSH_ACT_GELU_TANH; act++) {
            osh_span_glu(a, y, N, (osh_act_kind)act, dt), base_glu(b, y, N, (osh_act_kind)act, dt);
            assert_memory_equal(a, b, sizeof a);
        }
        memcpy(a, x, sizeof x), memcpy(b, x, sizeof x);
        osh_span_rms_norm(a, y, N, N, 1e-5f, dt), base_rms_norm(b, y, N, N, 1e-5f, dt);
        assert_memory_equal(a, b, sizeof a);
        osh_span_rotate(a, a + 509, c, s, 509, dt), base_rotate(b, b + 509, c, s, 509, dt);
        assert_memory_equal(a, b, sizeof a);
        memcpy(a, x, sizeof x), memcpy(b, x, sizeof x);
        osh_span_softcap(a, N, 0.3f, 5, dt), base_softcap(b, N, 0.3f, 5, dt);
        assert_memory_equal(a, b, sizeof a);
        osh_span_layer_norm(a, y, c, N, N - 3, 1e-5f), base_layer_norm(b, y, c, N, N - 3, 1e-5f);
        assert_memory_equal(a, b, sizeof a);
        memcpy(a, x, sizeof x), memcpy(b, x, sizeof x);
        osh_span_softmax(a, N, 0.3f, dt), base_softmax(b, N, 0.3f, dt);
        assert_memory_equal(a, b, sizeof a);
        memcpy(a, x, sizeof x), memcpy(b, x, sizeof x);
        osh_span_softmax(a, N, 0.125f, dt), base_softmax(b, N, 0.125f, dt);
        assert_memory_equal(a, b, sizeof a);
        // 24 elements: a vector of 16 and half a vector
        memcpy(a, x, sizeof x), memcpy(b, x, sizeof x);
        osh_span_softmax(a, 24, 0.125f, dt), base_softmax(b, 24, 0.125f, dt);
        osh_span_rms_norm(a + 32, y, 8, 5, 1e-5f, dt), base_rms_norm(b + 32, y, 8, 5, 1e-5f, dt);
        osh_span_rms_norm(a + 64, y, 40, 40, 1e-5f, dt),
            base_rms_norm(b + 64, y, 40, 40, 1e-5f, dt);
        osh_span_glu(a + 128, y, 56, OSH_ACT_SILU, dt), base_glu(b + 128, y, 56, OSH_ACT_SILU, dt);
        assert_memory_equal(a, b, sizeof a);
    }
    assert_true(osh_span_max(x, N) == base_max(x, N));
    assert_true(osh_span_sum_exp(x, N, 20) == base_sum_exp(x, N, 20));
    assert_true(osh_span_sum_exp_diff(x, y, N, 20) == base_sum_exp_diff(x, y, N, 20));
}

/* Tests rows of every length. The last elements of a row fill a group of vectors, a single vector
 * or half a vector. */
static void test_every_length(void **state)
{
    (void)state;
    float x[N], y[N], a[N], b[N];
    uint16_t narrow[N];

    fill(x, 10, 20), fill(y, 11, 3);
    for (int64_t n = 8; n <= 600; n += 8) {
        x[n - 3] = n % 5 ? x[n - 3] : -INFINITY; // the element is -inf if a window hides it
        for (int act = OSH_ACT_SILU; act <= OSH_ACT_GELU_TANH; act++) {
            memcpy(a, x, sizeof x), memcpy(b, x, sizeof x);
            osh_span_glu(a, y, n, (osh_act_kind)act, OSH_BF16),
                base_glu(b, y, n, (osh_act_kind)act, OSH_BF16);
            assert_memory_equal(a, b, sizeof a);
        }
        memcpy(a, y, sizeof x), memcpy(b, y, sizeof x);
        osh_span_rms_norm(a, y, n, n - 3, 1e-5f, OSH_BF16),
            base_rms_norm(b, y, n, n - 3, 1e-5f, OSH_BF16);
        assert_memory_equal(a, b, sizeof a);
        memcpy(a, x, sizeof x), memcpy(b, x, sizeof x);
        osh_span_softmax(a, n, 0.125f, OSH_BF16), base_softmax(b, n, 0.125f, OSH_BF16);
        assert_memory_equal(a, b, sizeof a);
        if (!osh_span512_takes(OSH_BF16)) continue;
        osh_from_f32(narrow, OSH_BF16, b, n);
        memcpy(a, x, sizeof x);
        // the output overwrites the input
        osh_span512_probabilities(
            &(osh_scores){a, (uint16_t *)(void *)a, n, n, .rows = 1, .scale = 0.125f});
        assert_memory_equal(a, narrow, (size_t)n * sizeof *narrow);
    }
}

/* Loops that read and write BF16 directly must give the bytes of the loops in f32. */
static void test_same_bytes_of_bf16(void **state)
{
    (void)state;
    enum { ODD = 1003 };
    float x[N], y[N], a[N];
    uint16_t from[N], with[N], got[N], want[N];

    if (!osh_span512_takes(OSH_BF16)) skip();
    fill(x, 8, 20), fill(y, 9, 3);
    x[5] = NAN, y[17] = INFINITY, x[33] = -0.0f, x[40] = 300, x[41] = -300;
    osh_from_f32(from, OSH_BF16, x, N), osh_from_f32(with, OSH_BF16, y, N);
    osh_to_f32(x, from, OSH_BF16, N), osh_to_f32(y, with, OSH_BF16, N);
    for (int act = -1; act <= OSH_ACT_GELU_TANH; act++) {
        memcpy(a, x, sizeof x), memset(got, 0, sizeof got), memset(want, 0, sizeof want);
        if (act == OSH_ACT_GELU) continue;
        bool finite = true; // x and y have values that are not finite
        if (act < 0) osh_span_add(a, y, N), finite = osh_span512_add_bf16(got, from, with, ODD);
        if (act >= 0) osh_span_glu(a, y, N, (osh_act_kind)act, OSH_BF16);
        if (act >= 0) finite = osh_span512_glu_bf16(got, from, with, ODD, (osh_act_kind)act);
        assert_false(finite);
        osh_from_f32(want, OSH_BF16, a, ODD);
        assert_memory_equal(got, want, sizeof got);
    }
}

/* Tests the probabilities of rows of scores with small differences (osh_softmax512 needs no
 * divisions) and with large differences (it needs divisions). */
static void test_probabilities(void **state)
{
    (void)state;
    enum { ROWS = OSH_SOFTMAX_ROWS, LD = 568 };
    static const float ranges[] = {0.1f, 3, 40, 160, 700, 3000};
    static float x[N], a[ROWS * LD], b[LD];
    static uint16_t narrow[LD];

    if (!osh_span512_takes(OSH_BF16)) skip();
    for (int k = 0; k < 120; k++) {
        int64_t n = 8 + 8 * (k * 7 % 70);
        osh_scores q = {a, (uint16_t *)(void *)a, LD, n, k % 3 ? ROWS : 1, 0.125f};
        for (int r = 0; r < q.rows; r++) {
            fill(x, (uint64_t)(100 + k * ROWS + r), ranges[k % 6]);
            if (k % 4 == 1) x[n / 2] = -INFINITY;
            if (k == 50 && r == 1) x[3] = NAN;
            memcpy(a + r * LD, x, LD * sizeof *a);
        }
        osh_span512_probabilities(&q);
        for (int r = 0; r < q.rows; r++) {
            const uint16_t *got = (uint16_t *)(void *)(a + r * LD);
            fill(x, (uint64_t)(100 + k * ROWS + r), ranges[k % 6]);
            if (k % 4 == 1) x[n / 2] = -INFINITY;
            memcpy(b, x, sizeof b);
            base_softmax(b, n, 0.125f, OSH_BF16);
            osh_from_f32(narrow, OSH_BF16, b, n);
            if (k == 50 && r == 1) assert_true(osh_find_nonfinite(got, OSH_BF16, 1) == 0);
            else assert_memory_equal(got, narrow, (size_t)n * sizeof *narrow);
        }
    }
}

/* Computes the op rms_norm in f32 and writes the result to `want`. The input `from` has `rows` rows
 * of n values. */
static void norms_wanted(uint16_t *want, const uint16_t *from, const float *w, int64_t rows,
                         int64_t n)
{
    float x[N], v[N];
    for (int64_t r = 0; r < rows; r++) {
        memset(x, 0, sizeof x), memset(v, 0, sizeof v);
        osh_to_f32(x, from + r * n, OSH_BF16, n), memcpy(v, w, (size_t)n * sizeof *v);
        base_rms_norm(x, v, osh_pad8(n), n, 1e-5f, OSH_BF16);
        osh_from_f32(want + r * n, OSH_BF16, x, n);
    }
}

static void test_rows_of_bf16(void **state)
{
    (void)state;
    enum { ROWS = 5, LONG = 200 };
    float x[N], w[N], c[N], s[N];
    uint16_t from[N], got[N], want[N];

    if (!osh_span512_takes(OSH_BF16)) skip();
    fill(x, 20, 20), fill(w, 21, 3), fill(c, 22, 1), fill(s, 23, 1);
    osh_span_round(c, N / 8 * 8, OSH_BF16), osh_span_round(s, N / 8 * 8, OSH_BF16);
    osh_from_f32(from, OSH_BF16, x, N);
    for (int64_t n = 1; n <= LONG; n += 7) {
        osh_norm512 norm = {w, n, 1e-5f};
        norms_wanted(want, from, w, ROWS, n);
        assert_true(osh_span512_rms_norm_bf16(got, from, ROWS, &norm));
        assert_memory_equal(got, want, (size_t)(ROWS * n) * sizeof *got);
        w[n - 1] = NAN;
        assert_false(osh_span512_rms_norm_bf16(got, from, ROWS, &norm));
        w[n - 1] = 1;
    }
    for (int64_t half = 1; half < 80; half += 5) { // two heads; in each, 3 values are not rotated
        int64_t dim = 2 * half + 3;
        osh_turn512 turn = {c, s, half, dim};
        osh_to_f32(x, from, OSH_BF16, N);
        for (int h = 0; h < 2; h++)
            base_rotate(x + h * dim, x + h * dim + half, c, s, half, OSH_BF16);
        osh_from_f32(want, OSH_BF16, x, 2 * dim);
        assert_true(osh_span512_rotate_bf16(got, from, 2 * dim, &turn));
        assert_memory_equal(got, want, (size_t)(2 * dim) * sizeof *got);
        memcpy(got, from, sizeof got), got[dim + 1] = 0x7f80;
        assert_false(osh_span512_rotate_bf16(got, got, 2 * dim, &turn));
    }
}

/* Tests softmax. Scores that the causal mask hides are -inf. A NaN must remain in the result. */
static void test_softmax(void **state)
{
    (void)state;
    float x[N], y[N];

    fill(x, 6, 60);
    for (int i = 900; i < N; i++) x[i] = -INFINITY;
    for (int d = 0; d < 3; d++) {
        double max = -INFINITY, sum = 0, worst = 0;
        memcpy(y, x, sizeof x);
        osh_span_softmax(y, N, 0.125f, dts[d]);
        for (int i = 0; i < N; i++) max = fmax(max, x[i] * 0.125f);
        for (int i = 0; i < N; i++) sum += exp(x[i] * 0.125f - max);
        for (int i = 0; i < N; i++) {
            double want = exp(x[i] * 0.125f - max) / sum;
            double half = dts[d] == OSH_BF16  ? want / 256
                          : dts[d] == OSH_F16 ? fmax(want / 2048, 0x1p-25)
                                              : 0;
            worst = fmax(worst, fabs(y[i] - want) - half - 2e-6 * want);
            if (i >= 900) assert_true(y[i] == 0);
        }
        if (worst > 0) fail_msg("%s: off by %g beyond half a unit", osh_dtype_name(dts[d]), worst);
        memcpy(y, x, sizeof x);
        y[17] = NAN;
        osh_span_softmax(y, N, 0.125f, dts[d]);
        assert_true(isnan(y[0]) && isnan(y[17]) && isnan(y[N - 1]));
    }
}

/* Tests sin and cos for the angles of rope: f32 products with positions up to 2^24. Also tests
 * angles near the multiples of pi/2. */
static void test_sincos(void **state)
{
    (void)state;
    double worst = 0, angle[8];
    float s[2][8], c[2][8];
    for (uint64_t i = 0; i < 400000; i++) {
        for (uint64_t k = 0; k < 8; k++) {
            double u = osh_rng_sym(SEED, 5, 8 * i + k);
            angle[k] = (float)(i % 4 == 0   ? u
                               : i % 4 == 1 ? 600 * u
                               : i % 4 == 2 ? 16777216 * u
                                            : 4e8 * u);
            if (k == 7) angle[k] = (float)((double)(i % 100000) * 1.57079632679489661923);
        }
        osh_span_sincos(s[0], c[0], angle, 8), base_sincos(s[1], c[1], angle, 8);
        assert_memory_equal(s[0], s[1], sizeof s[0]);
        assert_memory_equal(c[0], c[1], sizeof c[0]);
        for (int k = 0; k < 8; k++) {
            double want_s = sin(angle[k]), want_c = cos(angle[k]);
            if (want_s != 0) worst = fmax(worst, fabs(s[0][k] / want_s - 1));
            worst = fmax(worst, fabs(c[0][k] / want_c - 1));
            if (angle[k] == 0) assert_true(s[0][k] == 0 && c[0][k] == 1);
        }
    }
    printf("sin, cos: relative error %.3f * 2^-24 of f32\n", worst * 16777216);
    // errors are at most half a unit in the last place, except near ties
    assert_true(worst * 16777216 <= 1.0001);
}

static void test_tanh(void **state)
{
    (void)state;
    double worst = 0;
    for (double x = -20; x < 20; x += 1.0 / 4096) {
        float v[8] = {(float)x, (float)(x / 1000), 0, NAN, INFINITY, -INFINITY, 100, -100};
        float in[2] = {v[0], v[1]};
        osh_span_softcap(v, 8, 1, 1, OSH_F32);
        for (int i = 0; i < 2; i++)
            if (in[i] != 0) worst = fmax(worst, fabs(v[i] / tanh(in[i]) - 1));
        assert_true(v[2] == 0 && isnan(v[3]) && v[4] == 1 && v[5] == -1 && v[6] == 1 && v[7] == -1);
    }
    printf("tanh: relative error %g\n", worst);
    assert_true(worst <= 3e-7);
}

static void test_exp(void **state)
{
    (void)state;
    double worst = 0;
    for (double x = -87.3; x < 88.3; x += 1.0 / 8192) {
        /* The other seven lanes are 0 after exp. */
        float v[8] = {(float)x, -1000, -1000, -1000, -1000, -1000, -1000, -1000};
        double want = exp((float)x), got = osh_span_sum_exp(v, 8, 0);
        int e;
        frexp(want, &e);
        worst = fmax(worst, fabs(got - want) / ldexp(1, e - 24));
        if (!(fabs(got - want) <= 2e-7 * want)) fail_msg("exp(%g) = %g, want %g", x, got, want);
    }
    printf("exp: %.3f ulp of f32\n", worst);
    for (double x = -87; x < 88.3; x += 1.0 / 512) {
        float v[8] = {(float)x}, one[8] = {1, 1, 1, 1, 1, 1, 1, 1};
        osh_span_glu(v, one, 8, OSH_ACT_SILU, OSH_F32);
        double want = (float)x / (1 + exp(-(float)x));
        assert_true(fabs(v[0] - want) <= 4e-7 * fabs(want));
    }
    float v[8] = {-INFINITY, -1000, 0, 0, 0, 0, 0, 0};
    assert_true(osh_span_sum_exp(v, 8, 0) == 6);
    v[0] = NAN;
    assert_true(isnan(osh_span_sum_exp(v, 8, 0)));
}

/* Compares conversions of f32 bit patterns with the scalar conversions. Tests special patterns, and
 * every p-th of all patterns, where p is a prime. */
static void test_round(void **state)
{
    (void)state;
    const uint32_t special[8] = {0x7f800000u, 0xff800000u, 0x80000000u, 0x477fefffu,
                                 0x477ff000u, 0x387fffffu, 0x33000000u, 0x33000001u};

    for (uint64_t u = 0; u < 0x100000000u; u += 8 * 10007) {
        float v[2][8], in[8];
        for (uint32_t i = 0; i < 8; i++)
            in[i] = osh_f32_of_bits(u ? (uint32_t)(u + 10007 * i) : special[i]);
        memcpy(v[0], in, sizeof in), memcpy(v[1], in, sizeof in);
        osh_span_round(v[0], 8, OSH_BF16), osh_span_round(v[1], 8, OSH_F16);
        for (int i = 0; i < 8; i++) {
            if (isnan(in[i])) {
                assert_true(isnan(v[0][i]) && isnan(v[1][i]));
                continue;
            }
            assert_int_equal(osh_bits_of_f32(v[0][i]),
                             osh_bits_of_f32(osh_f32_of_bf16(osh_bf16_of_f32(in[i]))));
            assert_int_equal(osh_bits_of_f32(v[1][i]),
                             osh_bits_of_f32(osh_f32_of_f16(osh_f16_of_f32(in[i]))));
        }
    }
}

int main(void)
{
    int unable = pin_isa();
    if (unable) return unable;
    printf("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bytes_without_avx2), cmocka_unit_test(test_every_length),
        cmocka_unit_test(test_same_bytes_of_bf16), cmocka_unit_test(test_probabilities),
        cmocka_unit_test(test_rows_of_bf16),
        cmocka_unit_test(test_softmax), cmocka_unit_test(test_sincos),
        cmocka_unit_test(test_tanh), cmocka_unit_test(test_exp), cmocka_unit_test(test_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
