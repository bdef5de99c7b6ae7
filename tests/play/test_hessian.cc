/* test_hessian.cc - tests hessian_accum on a GPU whose tensor cores truncate sums. Hessians of
 * channels with outliers must be positive definite after damping. Ragged batches must need few
 * shapes of matrix products. One call and several calls must give the same bytes. H is also
 * computed in several bands of rows, which must fill the whole lower triangle and write nothing
 * above it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
extern "C" {
#include <cmocka.h>
}
#include <math.h>
#include <vector>

#include "base/rng.h"
#include "ops/cuda/op.cuh"
#include "play/play.h"

enum { SEED = 5, ALL = 1 << 20 }; // ALL: more tokens than any test has, so one call gets all

/* Adds the tokens of x [n, I] to h, `step` tokens per call. */
static void add_tokens(osh_ctx *cx, osh_tensor *h, const std::vector<float> &x, int64_t step)
{
    int64_t I = h->shape[0], n = (int64_t)x.size() / I;
    std::vector<uint16_t> bits(x.size());

    osh_from_f32(bits.data(), OSH_BF16, x.data(), (int64_t)x.size());
    for (int64_t first = 0; first < n; first += step) {
        int64_t shape[2] = {osh_min64(step, n - first), I};
        osh_tensor *t = NULL; // own
        osh_op_args a = {};
        assert_int_equal(
            osh_tensor_new_on(cx, &t, osh_where{h->device, OSH_LIFE_LONG}, OSH_BF16, 2, shape),
            OSH_OK);
        assert_int_equal(osh_tensor_put(cx, t, 0, &bits[(size_t)(first * I)], osh_tensor_bytes(t)),
                         OSH_OK);
        a.in[0] = t, a.out[0] = h;
        size_t used = osh_arena_used(h->device->arena);
        assert_int_equal(osh_hessian_accum_cuda(cx, &a), OSH_OK);
        assert_int_equal(osh_arena_used(h->device->arena), used);
        osh_tensor_free(cx, t);
    }
}

/* Adds H of x [n, I] to a matrix in which all elements are `old`. Returns the sum. */
static std::vector<float> hessian(osh_ctx *cx, osh_device *d, const std::vector<float> &x,
                                  int64_t I, int64_t step, float old = 0)
{
    int64_t shape[2] = {I, I};
    std::vector<float> out((size_t)(I * I), old);
    osh_tensor *h = NULL; // own

    assert_int_equal(osh_tensor_new_on(cx, &h, osh_where{d, OSH_LIFE_LONG}, OSH_F32, 2, shape),
                     OSH_OK);
    assert_int_equal(osh_tensor_put(cx, h, 0, out.data(), out.size() * sizeof(float)), OSH_OK);
    add_tokens(cx, h, x, step);
    assert_int_equal(osh_tensor_get(cx, out.data(), h, 0, out.size() * sizeof(float)), OSH_OK);
    osh_tensor_free(cx, h);
    return out;
}

/* Every fourth token is an outlier in two channels. One of the channels is 1.25 times the other, so
 * without damping H is singular. A real H has a diagonal of 14,336 elements. Damping adds 0.01
 * times the mean of these elements to each of them. This is 7e-7 of the trace. So the damped H is
 * positive definite if the sums lose less than 7e-7 of the trace. One matrix multiplication over
 * 16,384 tokens would lose 3.5e-6. */
static void test_outliers(void **)
{
    enum { N = 16384, I = 4 };
    osh_ctx *cx = NULL;
    osh_device *d = NULL;
    std::vector<float> x(N * I);

    for (int64_t i = 0; i < N; i++) {
        float big = i % 4 ? 0 : 4 * floorf(20 + 12 * osh_rng_sym(SEED, 0, (uint64_t)i));
        x[(size_t)(i * I)] = big, x[(size_t)(i * I + 1)] = 1.25f * big;
        for (int64_t j = 2; j < I; j++)
            x[(size_t)(i * I + j)] = (float)osh_rng_sym(SEED, (uint64_t)j, (uint64_t)i);
    }
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_int_equal(osh_device_open(cx, &d, &osh_device_kinds[OSH_GPU], 0, 64 << 20), OSH_OK);
    for (int cut = 0; cut < 2; cut++) {
        osh_play_truncate(cut);
        std::vector<float> h = hessian(cx, d, x, I, ALL);
        double trace = 0;
        for (int64_t j = 0; j < I; j++) trace += h[(size_t)(j * I + j)];
        for (int64_t j = 0; j < I; j++) h[(size_t)(j * I + j)] += (float)(0.01 * trace / 14336);
        int64_t shape[2] = {I, I};
        osh_tensor t = osh_tensor_view(OSH_F32, 2, shape, h.data());
        osh_op_args a = {};
        a.out[0] = &t;
        if (osh_op_run(cx, &osh_op_gptq_factor, &a))
            fail_msg("H is not positive definite, cut %d", cut);
    }
    osh_play_truncate(false);
    osh_device_close(cx, d);
    osh_ctx_free(cx);
}

/* Checks that the emulated GPU truncates: after the square of a large number, bits of the squares
 * of 4,095 small numbers are lost. */
static void test_cut(void **)
{
    enum { N = 4096, I = 1 };
    osh_ctx *cx = NULL;
    osh_device *d = NULL;
    std::vector<float> x(N, 1.f + 1.f / 128);

    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_int_equal(osh_device_open(cx, &d, &osh_device_kinds[OSH_GPU], 0, 64 << 20), OSH_OK);
    x[0] = 4096;
    osh_play_truncate(true);
    float sum = hessian(cx, d, x, I, ALL)[0];
    osh_play_truncate(false);
    double exact = 16777216 + 4095 * (1 + 1. / 64 + 1. / 16384);
    assert_true(sum < exact * (1 - 1e-6) && sum > exact * (1 - 6e-5));
    osh_device_close(cx, d);
    osh_ctx_free(cx);
}

/* The batches have different numbers of tokens. A new shape of matrix multiplication is allowed for
 * each 256 tokens more, but not for each batch. */
static void test_ragged(void **)
{
    enum { I = 3, BATCHES = 40 };
    osh_ctx *cx = NULL;
    osh_device *d = NULL;

    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_int_equal(osh_device_open(cx, &d, &osh_device_kinds[OSH_GPU], 0, 64 << 20), OSH_OK);
    long before = osh_play_calls("cublasLtMatmulAlgoGetHeuristic");
    for (int64_t b = 0; b < BATCHES; b++) {
        int64_t n = 4096 + 1 + 50 * b;
        std::vector<float> x((size_t)(n * I));
        for (size_t i = 0; i < x.size(); i++) x[i] = (float)(i % 5);
        std::vector<float> h = hessian(cx, d, x, I, ALL);
        for (int64_t j = 0; j < I; j++) { // the inputs are whole numbers, so the sums are exact
            double sum = 0;
            for (int64_t i = 0; i < n; i++)
                sum += (double)x[(size_t)(i * I)] * x[(size_t)(i * I + j)];
            assert_true(h[(size_t)(j * I)] == sum);
        }
    }
    long asked = osh_play_calls("cublasLtMatmulAlgoGetHeuristic") - before;
    if (asked > 1 + 8) fail_msg("%ld shapes of %d batches", asked, BATCHES);
    osh_device_close(cx, d);
    osh_ctx_free(cx);
}

/* Four chunks need one matrix multiplication and one launch of a kernel. The sums of the chunks are
 * added in the order of tokens. The order is the same if the tokens come in several calls. */
static void test_order(void **)
{
    enum { CHUNK = 4096 };
    osh_ctx *cx = NULL;
    osh_device *d = NULL;

    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_int_equal(osh_device_open(cx, &d, &osh_device_kinds[OSH_GPU], 0, 64 << 20), OSH_OK);
    // x has 7 numbers other than 0: one in each of 5 chunks, one in the next 256 tokens, and one in
    // the last 44 tokens. big: index of the number that is large
    for (int64_t big = 0; big < 7; big++) {
        std::vector<float> x(5 * CHUNK + 300, 0.f);
        float want = 1;
        for (int64_t i = 0; i < 7; i++) {
            float sum = i == big ? 16777216.f : 1.f;
            x[(size_t)(i < 6 ? i * CHUNK + 77 : 5 * CHUNK + 280)] = sqrtf(sum);
            want += sum; // in f32, 2^24 + 1 is rounded to 2^24
        }
        long products = osh_play_calls("cublasLtMatmul"), launches = osh_play_launches();
        assert_true(hessian(cx, d, x, 1, ALL, 1)[0] == want);
        assert_int_equal(osh_play_calls("cublasLtMatmul") - products, 4);
        assert_int_equal(osh_play_launches() - launches, 2);
        assert_true(hessian(cx, d, x, 1, CHUNK, 1)[0] == want);
        assert_true(hessian(cx, d, x, 1, 3 * CHUNK, 1)[0] == want);
    }
    osh_device_close(cx, d);
    osh_ctx_free(cx);
}

/* Calls with whole chunks must give the bytes of one call, with rounded and with truncated sums. */
static void test_calls(void **)
{
    enum { CHUNK = 4096 };
    static const struct { int64_t I, n_chunks, rest; } cases[] = {{5, 6, 1000}, {1030, 2, 256}};
    osh_ctx *cx = NULL;
    osh_device *d = NULL;

    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_int_equal(osh_device_open(cx, &d, &osh_device_kinds[OSH_GPU], 0, 128 << 20), OSH_OK);
    for (auto &c : cases)
        for (int cut = 0; cut < (c.I < 100 ? 2 : 1); cut++) {
            std::vector<float> x((size_t)((c.n_chunks * CHUNK + c.rest) * c.I));
            for (size_t i = 0; i < x.size(); i++) x[i] = (float)osh_rng_sym(SEED, 7, i);
            osh_play_truncate(cut);
            std::vector<float> want = hessian(cx, d, x, c.I, ALL, 0.3f);
            for (int64_t k = 1; k < c.n_chunks; k++)
                if (hessian(cx, d, x, c.I, k * CHUNK, 0.3f) != want)
                    fail_msg("I %ld, calls of %ld chunks", (long)c.I, (long)k);
        }
    osh_play_truncate(false);
    osh_device_close(cx, d);
    osh_ctx_free(cx);
}

/* Returns the sum of a[t] b[t] of n whole numbers. Compiled without sanitizers and with O3, because
 * the loop takes most of the time of the test. For C, PLAIN in tests/plain.h does the same. */
__attribute__((noinline, no_sanitize("address"), no_sanitize("undefined"),
               optimize("O3"))) static int
sum_products(const int *a, const int *b, int64_t n)
{
    int sum = 0;
    for (int64_t t = 0; t < n; t++) sum += a[t] * b[t];
    return sum;
}

/* Computes H in several bands of rows (pieces in hessian_accum.cu). The last bands are smaller.
 * Inputs are whole numbers, so the lower triangle must be exact. Nothing may be written above the
 * diagonal. */
static void test_pieces(void **)
{
    static const struct {
        int64_t I, n;
    } cases[] = {{1023, 270}, {1024, 7}, {1025, 7}, {2049, 7}, {3077, 270}};
    osh_ctx *cx = NULL;
    osh_device *d = NULL;

    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_int_equal(osh_device_open(cx, &d, &osh_device_kinds[OSH_GPU], 0, 128 << 20), OSH_OK);
    for (auto &c : cases) {
        std::vector<float> x((size_t)(c.n * c.I));
        for (size_t i = 0; i < x.size(); i++) x[i] = (float)(i * i % 7) - 3;
        std::vector<int> columns(x.size()); // columns: x^T [I, n]
        for (int64_t t = 0; t < c.n; t++)
            for (int64_t i = 0; i < c.I; i++)
                columns[(size_t)(i * c.n + t)] = (int)x[(size_t)(t * c.I + i)];
        std::vector<float> h = hessian(cx, d, x, c.I, ALL, 5);
        for (int64_t i = 0; i < c.I; i++)
            for (int64_t j = 0; j < c.I; j++) {
                float sum = 5;
                if (j <= i)
                    sum += (float)sum_products(&columns[(size_t)(i * c.n)],
                                               &columns[(size_t)(j * c.n)], c.n);
                if (h[(size_t)(i * c.I + j)] != sum)
                    fail_msg("I %ld: [%ld, %ld]", (long)c.I, (long)i, (long)j);
                if (c.n > 100) j += i % 5; // skips some elements, because all would take long
            }
    }
    osh_device_close(cx, d);
    osh_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_outliers), cmocka_unit_test(test_cut),
                                       cmocka_unit_test(test_ragged), cmocka_unit_test(test_order),
                                       cmocka_unit_test(test_calls), cmocka_unit_test(test_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
