/* test_blas.cc - compares src/gpu/blas.cu with simple loops. The emulated cuBLASLt and cuSOLVER
 * check every argument of the calls. */
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
#include "gpu/runtime.h"
#include "play/play.h"

enum { SEED = 11 };
typedef struct fixture {
    osh_ctx *cx;
    osh_device *d;
} fixture;
static fixture f;

static int setup(void **)
{
    if (osh_ctx_new(&f.cx, 1)) return 1;
    if (osh_device_open(f.cx, &f.d, &osh_device_kinds[OSH_GPU], 0, 64 << 20))
        fail_msg("%s", osh_error_text(f.cx));
    return 0;
}

static int teardown(void **)
{
    osh_device_close(f.cx, f.d);
    bool leak = osh_mem_live(f.cx) || osh_play_live();
    osh_ctx_free(f.cx);
    return leak;
}

/* A matrix on the GPU, and the same values in f32. The dtype of the matrix can represent these
 * values. */
typedef struct matrix {
    osh_tensor *t; // own
    std::vector<float> values;
} matrix;

static matrix matrix_new(osh_dtype dt, int64_t n, uint64_t stream)
{
    matrix m;
    std::vector<char> bytes((size_t)n * osh_dtype_bytes(dt));
    m.values.resize((size_t)n);
    for (int64_t i = 0; i < n; i++) {
        m.values[(size_t)i] = osh_round_to((float)osh_rng_sym(SEED, stream, (uint64_t)i), dt);
        osh_from_f32(&bytes[(size_t)i * osh_dtype_bytes(dt)], dt, &m.values[(size_t)i], 1);
    }
    assert_int_equal(osh_tensor_new_on(f.cx, &m.t, osh_where{f.d, OSH_LIFE_LONG}, dt, 1, &n),
                     OSH_OK);
    assert_int_equal(osh_tensor_put(f.cx, m.t, 0, bytes.data(), bytes.size()), OSH_OK);
    return m;
}

static std::vector<float> read(const osh_tensor *t)
{
    std::vector<char> bytes(osh_tensor_bytes(t));
    std::vector<float> out((size_t)osh_tensor_numel(t));
    assert_int_equal(osh_tensor_get(f.cx, bytes.data(), t, 0, bytes.size()), OSH_OK);
    osh_to_f32(out.data(), bytes.data(), t->dtype, (int64_t)out.size());
    return out;
}

typedef struct gemm_case {
    int64_t m, n, k, batch, gap; // gap: number of unused elements between two rows, and between two
                                 // matrices
    bool ta, tb;
    osh_dtype in, out;
    float alpha, beta;
} gemm_case;

static void check_gemm(const gemm_case *g)
{
    int64_t a_cols = (g->ta ? g->m : g->k), a_rows = g->ta ? g->k : g->m,
            b_cols = g->tb ? g->k : g->n, b_rows = g->tb ? g->n : g->k, lda = a_cols + g->gap,
            ldb = b_cols + g->gap, ldc = g->n + g->gap;
    int64_t sa = a_rows * lda + g->gap, sb = b_rows * ldb + g->gap, sc = g->m * ldc + g->gap;
    matrix a = matrix_new(g->in, sa * g->batch, 1), b = matrix_new(g->in, sb * g->batch, 2),
           c = matrix_new(g->out, sc * g->batch, 3);
    osh_cuda_mat ma = {a.t->data, lda, sa, g->in, g->ta}, mb = {b.t->data, ldb, sb, g->in, g->tb},
                 mc = {c.t->data, ldc, sc, g->out, false};
    if (osh_cuda_gemm(f.cx, f.d, {&mc, &ma, &mb, g->m, g->n, g->k, g->batch, g->alpha, g->beta}))
        fail_msg("%s", osh_error_text(f.cx));
    std::vector<float> got = read(c.t), want = c.values; // the gaps must not change
    for (int64_t i = 0; i < g->batch * g->m * g->n; i++) {
        int64_t s = i / (g->m * g->n), row = i / g->n % g->m, col = i % g->n;
        double sum = 0;
        for (int64_t k = 0; k < g->k; k++)
            sum += (double)a.values[(size_t)(s * sa + (g->ta ? k * lda + row : row * lda + k))] *
                   b.values[(size_t)(s * sb + (g->tb ? col * ldb + k : k * ldb + col))];
        float *w = &want[(size_t)(s * sc + row * ldc + col)];
        *w = (float)(g->alpha * sum + (g->beta != 0 ? g->beta * (double)*w : 0));
    }
    for (size_t i = 0; i < want.size(); i++) {
        float unit = g->out == OSH_BF16 ? 1.f / 128 : g->out == OSH_F16 ? 1.f / 1024 : 1e-5f;
        if (!(fabsf(got[i] - want[i]) <= unit * (1e-1f + fabsf(want[i]))))
            fail_msg("[%ld, %ld, %ld]: element %zu is %g, want %g", (long)g->m, (long)g->n,
                     (long)g->k, i, (double)got[i], (double)want[i]);
    }
    osh_tensor_free(f.cx, a.t), osh_tensor_free(f.cx, b.t), osh_tensor_free(f.cx, c.t);
}

static void test_products(void **)
{
    static const osh_dtype types[][2] = {
        {OSH_F32, OSH_F32}, {OSH_BF16, OSH_BF16}, {OSH_BF16, OSH_F32}, {OSH_F16, OSH_F16},
        {OSH_F16, OSH_F32}};
    for (auto &t : types)
        for (int k = 0; k < 8; k++) {
            gemm_case odd = {7,    13, 9, 1 + k / 4 * 2, 3, (k & 1) != 0, (k & 2) != 0, t[0],
                             t[1], 1,  0};
            gemm_case sum = {33, 1, 129, 1, 0, (k & 1) != 0, (k & 2) != 0, t[0], t[1], -0.5f, 1};
            gemm_case one = {
                1, 1, 1, 1, 0, (k & 1) != 0, (k & 2) != 0, t[0], t[1], 2, k & 4 ? 1.f : 0.f};
            check_gemm(&odd), check_gemm(&sum), check_gemm(&one);
        }
}

/* Computes n matrix products of different shapes. Product i has the shape [1 + i % 100, 1 + i /
 * 100], and the first i is `first`. Returns the number of queries to cuBLASLt. */
static long asked_about(osh_tensor *t, int first, int n)
{
    long before = osh_play_calls("cublasLtMatmulAlgoGetHeuristic");
    for (int64_t i = first; i < first + n; i++) {
        int64_t rows = 1 + i % 100, cols = 1 + i / 100;
        osh_cuda_mat a = {t->data, 1, 0, OSH_F32, false}, b = {t->data, cols, 0, OSH_F32, false},
                     c = {osh_elem(t, 200), cols, 0, OSH_F32, false};
        assert_int_equal(osh_cuda_gemm(f.cx, f.d, {&c, &a, &b, rows, cols, 1, 1, 1, 0}), OSH_OK);
    }
    return osh_play_calls("cublasLtMatmulAlgoGetHeuristic") - before;
}

/* The cache of plans (algorithms of cuBLASLt, blas.cu) holds 8,192 shapes. When it is full, a new
 * plan must replace the oldest plan. */
static void test_many_shapes(void **)
{
    const int64_t n = 200 + 100 * 100;
    osh_tensor *t = NULL; // own
    osh_play_protect(false);
    assert_int_equal(osh_tensor_new_on(f.cx, &t, osh_where{f.d, OSH_LIFE_LONG}, OSH_F32, 1, &n),
                     OSH_OK);
    assert_int_equal(osh_tensor_zero(f.cx, t), OSH_OK);
    for (int again = 0; again < 2; again++)
        assert_int_equal(asked_about(t, 0, 3000), again ? 0 : 3000);
    // the first 100 shapes were dropped and are queried again
    assert_int_equal(asked_about(t, 3000, 8192 - 3000 + 100), 8192 - 3000 + 100);
    assert_int_equal(asked_about(t, 100, 100), 0);
    assert_int_equal(asked_about(t, 0, 100), 100);
    assert_int_equal(asked_about(t, 8192, 100), 0);
    osh_tensor_free(f.cx, t);
    osh_play_protect(true);
    gemm_case g = {30, 20, 3, 1, 0, false, true, OSH_F32, OSH_F32, 1, 0};
    check_gemm(&g);
}

static void test_no_algorithm(void **)
{
    matrix a = matrix_new(OSH_F32, 4, 1), c = matrix_new(OSH_BF16, 4, 1);
    osh_cuda_mat m = {a.t->data, 2, 0, OSH_F32, false}, out = {c.t->data, 2, 0, OSH_BF16, false};
    assert_int_equal(osh_cuda_gemm(f.cx, f.d, {&out, &m, &m, 2, 2, 2, 1, 1, 0}), OSH_E_UNSUPPORTED);
    assert_string_equal(osh_error_text(f.cx),
                        "cuBLASLt has no algorithm for the product [2, 2] x [2, 2] of F32");
    osh_error_clear(f.cx);
    osh_tensor_free(f.cx, a.t), osh_tensor_free(f.cx, c.t);
}

/* A triangle that fills a whole tensor, with a workspace of 1 MiB for cuSOLVER. */
typedef struct with_room {
    osh_tensor *room; // own
    osh_cuda_triangle t;
} with_room;

static with_room triangle_of(const osh_tensor *a, int64_t n, bool upper)
{
    with_room w = {};
    const int64_t bytes = 1 << 20;
    assert_int_equal(
        osh_tensor_new_on(f.cx, &w.room, osh_where{f.d, OSH_LIFE_SHORT}, OSH_U8, 1, &bytes),
        OSH_OK);
    w.t = {(float *)a->data, n, n, upper, (char *)w.room->data + 512, (size_t)bytes - 512,
           (int *)w.room->data};
    return w;
}

/* Makes A = T^T T of column-major triangles. potrf must find T. */
static void test_triangles(void **)
{
    for (int64_t n : {1, 7, 65})
        for (int upper = 0; upper < 2; upper++) {
            size_t size = (size_t)(n * n);
            std::vector<double> t(size, 0), product(size, 0);
            matrix a = matrix_new(OSH_F32, n * n, 1);
            bool ok = false;
            auto at = [&](int64_t row, int64_t col) {
                return (size_t)(upper ? col * n + row : row * n + col);
            };
            for (int64_t i = 0; i < n; i++) // upper: T has elements with row <= col; lower: T is
                                            // stored transposed
                for (int64_t j = i; j < n; j++)
                    t[at(i, j)] = i == j ? 2 : 0.1 * osh_rng_sym(SEED, 9, at(i, j));
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < n; j++)
                    for (int64_t k = 0; k < n; k++) product[at(i, j)] += t[at(k, i)] * t[at(k, j)];
            for (size_t i = 0; i < size; i++) a.values[i] = (float)product[i];
            assert_int_equal(osh_tensor_put(f.cx, a.t, 0, a.values.data(), size * sizeof(float)),
                             OSH_OK);
            with_room w = triangle_of(a.t, n, upper);
            assert_int_equal(osh_cuda_potrf(f.cx, f.d, &w.t, &ok), OSH_OK);
            assert_true(ok);
            std::vector<float> got = read(a.t);
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = i; j < n; j++)
                    assert_true(fabs(got[at(i, j)] - t[at(i, j)]) < 1e-4);
            float bad = n == 1 ? 0 : -1;
            assert_int_equal(osh_tensor_put(f.cx, a.t, 0, &bad, sizeof bad), OSH_OK);
            assert_int_equal(osh_cuda_potrf(f.cx, f.d, &w.t, &ok), OSH_OK);
            assert_false(ok); // the matrix is not positive definite, so potrf reports a failure
            assert_string_equal(osh_error_text(f.cx), "");
            osh_tensor_free(f.cx, w.room);
            osh_tensor_free(f.cx, a.t);
        }
}

/* With TF32, a matrix multiplication reads only the TF32 bits of each element of A and B. Without
 * TF32, the multiplication reads all bits. All products of the batch have the same matrix A. */
static void test_tf32(void **)
{
    const int64_t M = 33, N = 20, K = 70, BATCH = 3;
    auto cut = [](float x) {
        uint32_t u;
        memcpy(&u, &x, sizeof u), u &= 0xffffe000u, memcpy(&x, &u, sizeof u);
        return x;
    };
    for (bool tf32 : {false, true}) {
        matrix a = matrix_new(OSH_F32, K * M, 1), b = matrix_new(OSH_F32, BATCH * K * N, 2),
               c = matrix_new(OSH_F32, BATCH * M * N, 3);
        osh_cuda_mat ma = {a.t->data, M, 0, OSH_F32, true},
                     mb = {b.t->data, N, K * N, OSH_F32, false},
                     mc = {c.t->data, N, M * N, OSH_F32, false};
        assert_int_equal(osh_cuda_gemm(f.cx, f.d, {&mc, &ma, &mb, M, N, K, BATCH, -1, 1, 1, tf32}),
                         OSH_OK);
        std::vector<float> got = read(c.t);
        /* worst[0]: largest difference to the product of A and B.
         * worst[1]: largest difference to the product of A and B, both cut to TF32. */
        double worst[2] = {0, 0};
        for (int64_t i = 0; i < BATCH * M * N; i++) {
            double sum[2] = {0, 0};
            for (int64_t k = 0; k < K; k++) {
                float x = a.values[(size_t)(k * M + i / N % M)];
                float y = b.values[(size_t)((i / (M * N) * K + k) * N + i % N)];
                sum[0] += (double)x * y, sum[1] += (double)cut(x) * cut(y);
            }
            for (int k = 0; k < 2; k++)
                worst[k] = fmax(worst[k], fabs(got[(size_t)i] + sum[k] - c.values[(size_t)i]));
        }
        assert_true(worst[tf32] < 1e-5 && worst[!tf32] > 1e-3);
        osh_tensor_free(f.cx, a.t), osh_tensor_free(f.cx, b.t), osh_tensor_free(f.cx, c.t);
    }
}

/* Tests a batch of four products. If cuBLASLt has no algorithm without a workspace for the batch,
 * the algorithm for one product is used. */
static void check_like(void)
{
    const int64_t M = 4, N = 4, K = 9;
    matrix a = matrix_new(OSH_F32, 4 * M * K, 1), b = matrix_new(OSH_F32, K * N, 2);
    matrix c = matrix_new(OSH_F32, 4 * M * N, 3);
    osh_cuda_mat ma = {a.t->data, K, M * K, OSH_F32, false}, mb = {b.t->data, N, 0, OSH_F32, false};
    osh_cuda_mat mc = {c.t->data, N, M * N, OSH_F32, false};
    long asked = osh_play_calls("cublasLtMatmulAlgoGetHeuristic"),
         products = osh_play_calls("cublasLtMatmul");
    std::vector<float> want;
    for (int64_t n : {3, 4, 1, 2}) {
        if (n == 1) osh_play_fail("cublasLtMatmulAlgoCheck", 1, 15);
        assert_int_equal(osh_cuda_gemm(f.cx, f.d, {&mc, &ma, &mb, M, N, K, n, 1, 0, 4}), OSH_OK);
        std::vector<float> all = read(c.t);
        if (n == 3) want.assign(all.begin(), all.begin() + M * N);
        assert_true(std::equal(want.begin(), want.end(), all.begin()));
    }
    osh_play_fail(NULL, 0, 0);
    assert_int_equal(osh_play_calls("cublasLtMatmulAlgoGetHeuristic") - asked, 4 + 1);
    assert_int_equal(osh_play_calls("cublasLtMatmul") - products, 4);
    osh_tensor_free(f.cx, a.t), osh_tensor_free(f.cx, b.t), osh_tensor_free(f.cx, c.t);
}

/* If cuBLASLt has no algorithm for F32 in the pedantic mode, the default mode is used. If an
 * algorithm for single products does not accept the size of the batch, the products run one by one,
 * with the same bytes. */
static void test_second_choices(void **)
{
    gemm_case g = {7, 13, 9, 1, 3, false, true, OSH_F32, OSH_F32, 1, 0};
    osh_play_fail("cublasLtMatmulAlgoGetHeuristic", 1, 15);
    check_gemm(&g);

    const int64_t M = 5, N = 6, K = 7, BATCH = 3;
    std::vector<float> got[2];
    for (int one_by_one = 0; one_by_one < 2; one_by_one++) {
        matrix a = matrix_new(OSH_F32, BATCH * M * K, 1), b = matrix_new(OSH_F32, K * N, 2),
               // a new shape, so cuBLASLt is queried again
               c = matrix_new(OSH_F32, BATCH * M * (N + one_by_one), 3);
        osh_cuda_mat ma = {a.t->data, K, M * K, OSH_F32, false},
                     mb = {b.t->data, N, 0, OSH_F32, false},
                     mc = {c.t->data, N, M * (N + one_by_one), OSH_F32, false};
        long before = osh_play_calls("cublasLtMatmul");
        if (one_by_one) osh_play_fail("cublasLtMatmulAlgoCheck", 1, 15);
        for (int twice = 0; twice < 2; twice++)
            assert_int_equal(osh_cuda_gemm(f.cx, f.d, {&mc, &ma, &mb, M, N, K, BATCH, 1, 0, 1}),
                             OSH_OK);
        assert_int_equal(osh_play_calls("cublasLtMatmul") - before, one_by_one ? 2 * BATCH : 2);
        std::vector<float> all = read(c.t);
        for (int64_t i = 0; i < BATCH; i++) {
            auto from = all.begin() + i * mc.stride;
            got[one_by_one].insert(got[one_by_one].end(), from, from + M * N);
        }
        osh_tensor_free(f.cx, a.t), osh_tensor_free(f.cx, b.t), osh_tensor_free(f.cx, c.t);
    }
    assert_true(got[0] == got[1]);
    osh_play_fail(NULL, 0, 0);
    check_like();
    osh_device_counters count;
    assert_int_equal(f.d->type->count(f.cx, f.d, &count), OSH_OK);
    assert_int_equal(count.detours[OSH_DETOUR_F32], 1);
    assert_int_equal(count.detours[OSH_DETOUR_BATCH], 2 * BATCH);
}

/* A call of a library fails. The error must have the status of the library, or CUDA's text if the
 * GPU is lost. */
static void test_failures(void **)
{
    gemm_case g = {2, 2, 2, 1, 0, false, false, OSH_F32, OSH_F32, 1, 0};
    check_gemm(&g);
    matrix a = matrix_new(OSH_F32, 4, 1);
    osh_cuda_mat m = {a.t->data, 2, 0, OSH_F32, false};
    bool ok = false;
    osh_play_fail("cublasLtMatmul", 1, 13);
    assert_int_equal(osh_cuda_gemm(f.cx, f.d, {&m, &m, &m, 2, 2, 2, 1, 1, 0}), OSH_E_IO);
    assert_string_equal(osh_error_text(f.cx), "cublasLtMatmul: cuBLAS status 13");
    osh_error_clear(f.cx);
    with_room w = triangle_of(a.t, 2, false);
    osh_play_fail("cusolverDnSpotrf", 1, 7);
    assert_int_equal(osh_cuda_potrf(f.cx, f.d, &w.t, &ok), OSH_E_IO);
    osh_tensor_free(f.cx, w.room);
    assert_string_equal(osh_error_text(f.cx), "cusolverDnSpotrf: cuSOLVER status 7");
    osh_error_clear(f.cx);
    osh_play_fail("cublasLtMatmul", 1, 716);
    assert_int_equal(osh_cuda_gemm(f.cx, f.d, {&m, &m, &m, 2, 2, 2, 1, 1, 0}), OSH_E_IO);
    assert_string_equal(
        osh_error_text(f.cx),
        "cublasLtMatmul: misaligned address (cudaErrorMisalignedAddress): this"
        " process has lost the GPU; the same command continues from the end of the journal");
    osh_error_clear(f.cx);
    osh_play_fail(NULL, 0, 0);
    osh_tensor_free(f.cx, a.t);
}

/* Returns A [n, n] = M M^T + n I in the lower triangle, and NaN above it. */
static std::vector<float> positive(int64_t n)
{
    std::vector<float> m((size_t)(n * n)), a((size_t)(n * n), NAN);
    for (size_t i = 0; i < m.size(); i++) m[i] = (float)osh_rng_sym(SEED, 4, i);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = i == j ? (double)n : 0;
            for (int64_t k = 0; k < n; k++)
                sum += (double)m[(size_t)(i * n + k)] * m[(size_t)(j * n + k)];
            a[(size_t)(i * n + j)] = (float)sum;
        }
    return a;
}

/* Computes the inverse of the Cholesky factor of `a`, with the memory that a plan counts. This
 * memory must be enough for any demand of cuSOLVER. If potrf demands too much for the whole matrix,
 * it gets one block of the matrix at a time. Sets *calls to the number of calls of potrf. */
static std::vector<float> factor_inverse(const std::vector<float> &a, int64_t n, bool *ok,
                                         long *calls)
{
    osh_tensor *t = NULL; // own
    int64_t size = n * n;
    assert_int_equal(osh_tensor_new_on(f.cx, &t, osh_where{f.d, OSH_LIFE_LONG}, OSH_F32, 1, &size),
                     OSH_OK);
    assert_int_equal(osh_tensor_put(f.cx, t, 0, a.data(), a.size() * sizeof(float)), OSH_OK);
    size_t used = osh_arena_used(f.d->arena);
    *calls = osh_play_calls("cusolverDnSpotrf");
    if (osh_cuda_factor_inverse(f.cx, f.d, (float *)t->data, n, ok))
        fail_msg("%s", osh_error_text(f.cx));
    *calls = osh_play_calls("cusolverDnSpotrf") - *calls;
    assert_int_equal(osh_arena_used(f.d->arena), used);
    assert_true(osh_arena_peak(f.d->arena) - used <= osh_cuda_triangle_bytes(n));
    std::vector<float> out = read(t);
    osh_tensor_free(f.cx, t);
    return out;
}

static void test_factor_by_blocks(void **)
{
    // potrf: number of bytes that potrf wants for each element. The plan counts 4 bytes per
    // element, and 1 MiB for the call.
    // calls: expected number of calls of potrf for each of `sizes`.
    const struct { size_t potrf; long calls[4]; } wishes[] = {
        {0, {1, 1, 1, 1}}, {100, {3, 3, 4, 5}}, {40, {1, 3, 2, 3}}};
    const int64_t sizes[4] = {130, 191, 256, 300};
    for (int k = 0; k < 4; k++) {
        int64_t n = sizes[k];
        std::vector<float> a = positive(n), bad = a, want;
        bad[(size_t)((n - 2) * n + n - 2)] = -1; // makes an element of the last block negative
        for (auto &e : wishes) {
            bool ok = false;
            long calls = 0;
            osh_play_solver_each = e.potrf;
            std::vector<float> got = factor_inverse(a, n, &ok, &calls);
            if (!e.potrf) want = got;
            assert_true(ok);
            assert_int_equal(calls, e.calls[k]);
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < n; j++) {
                    size_t at = (size_t)(i * n + j);
                    if (j > i) assert_true(isnan(got[at])); // the upper triangle must not change
                    else if (!(fabsf(got[at] - want[at]) < 1e-6f)) // the elements are at most 0.1,
                                                                   // so a fixed tolerance is enough
                        fail_msg("n %ld, %zu bytes an element: [%ld, %ld] is %g, want %g", (long)n,
                                 e.potrf, (long)i, (long)j, (double)got[at], (double)want[at]);
                }
            factor_inverse(bad, n, &ok, &calls);
            assert_false(ok);
        }
    }
    osh_play_solver_each = 0;
}

/* If cuSOLVER needs more memory than a plan counts for the smallest triangle, opening the device
 * must fail. Otherwise a run would fail later. */
static void test_solver_room(void **)
{
    osh_device *d = NULL;
    osh_play_solver_bytes = 1 << 20;
    assert_int_equal(osh_device_open(f.cx, &d, &osh_device_kinds[OSH_GPU], 0, 64 << 20),
                     OSH_E_UNSUPPORTED);
    if (!strstr(osh_error_text(f.cx),
                "cuSOLVER wants 1048576 bytes for a triangle of 64 rows, at most 524288"
                " are given"))
        fail_msg("%s", osh_error_text(f.cx));
    osh_error_clear(f.cx);
    osh_play_solver_bytes = 1024;
}

int main(void)
{
#define ON_GPU(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {ON_GPU(test_products), ON_GPU(test_many_shapes),
                                       ON_GPU(test_no_algorithm), ON_GPU(test_triangles),
                                       ON_GPU(test_tf32), ON_GPU(test_second_choices),
                                       ON_GPU(test_failures), ON_GPU(test_factor_by_blocks),
                                       ON_GPU(test_solver_room)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
