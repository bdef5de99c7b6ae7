/* test_products.cu - tests the calls of src/gpu/blas.cu to cuBLASLt and cuSOLVER.
 *
 * On a GPU, tests the libraries (label cuda; skipped without a GPU). On the emulated GPU
 * (tests/play/test_products.cc includes this file), tests the emulated libraries.
 *
 * Matrix products of every dtype and shape must agree with sums in double. The bytes of a product
 * must not depend on the number of products in a call, nor on the addresses of the operands.
 * Factors and inverses of triangles must be right, and the other triangle must not change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
extern "C" {
#include <cmocka.h>
}
#include <math.h>
#include <stdio.h>
#include <vector>

#include "base/rng.h"
#include "gpu/runtime.h"
#include "strict.h"

enum { SEED = 23, ARENA = 192 << 20 };
static osh_ctx *cx;
static osh_device *d;

static int setup(void **)
{
    if (!osh_device_present(&osh_device_kinds[OSH_GPU])) {
        printf("skip: no GPU is there\n");
        exit(77);
    }
    if (osh_ctx_new(&cx, 1)) return 1;
    if (osh_device_open(cx, &d, &osh_device_kinds[OSH_GPU], 0, ARENA))
        fail_msg("%s", osh_error_text(cx));
    printf("%s\n", d->text);
    return 0;
}

static int teardown(void **)
{
    osh_device_close(cx, d);
    bool leak = osh_mem_live(cx);
    osh_ctx_free(cx);
    return leak;
}

static void ok(osh_status rc)
{
    if (rc) fail_msg("%s", osh_error_text(cx));
}

/* A vector of n values that are exact in dt. On the GPU it begins `skip` elements after the start
 * of a block. */
typedef struct vec {
    char *room; // own: memory from the arena
    void *at;
    osh_dtype dt;
    std::vector<float> host;
} vec;

static vec vec_new(osh_dtype dt, int64_t n, uint64_t stream, int64_t skip = 0)
{
    vec v = {NULL, NULL, dt, std::vector<float>((size_t)n)};
    size_t each = osh_dtype_bytes(dt);
    std::vector<char> bytes((size_t)n * each);
    for (int64_t i = 0; i < n; i++) {
        v.host[(size_t)i] = osh_round_to((float)osh_rng_sym(SEED, stream, (uint64_t)i), dt);
        osh_from_f32(&bytes[(size_t)i * each], dt, &v.host[(size_t)i], 1);
    }
    v.room = (char *)osh_device_alloc(cx, d, (size_t)(n + skip) * each, OSH_LIFE_LONG);
    assert_non_null(v.room);
    v.at = v.room + (size_t)skip * each;
    ok(d->type->put(cx, d, v.at, bytes.data(), bytes.size()));
    return v;
}

static std::vector<char> raw(const vec &v)
{
    std::vector<char> bytes(v.host.size() * osh_dtype_bytes(v.dt));
    ok(d->type->get(cx, d, bytes.data(), v.at, bytes.size()));
    return bytes;
}

static std::vector<float> values(const vec &v)
{
    std::vector<float> out(v.host.size());
    osh_to_f32(out.data(), raw(v).data(), v.dt, (int64_t)out.size());
    return out;
}

static void vec_drop(const vec &v) { osh_device_free(d, v.room); }

/* ---- products ---- */
typedef struct gemm_case {
    const char *what;
    int64_t m, n, k, batch;
    bool ta, tb;
    char shared; // 'A' or 'B': all products of the batch have the same matrix A or B; 0: each
                 // product has its own matrices
    osh_dtype in, out;
    float alpha, beta;
    bool tf32;
} gemm_case;

static void gemm_check(const gemm_case &g)
{
    int64_t lda = g.ta ? g.m : g.k, ldb = g.tb ? g.k : g.n;
    int64_t sa = g.shared == 'A' ? 0 : g.m * g.k, sb = g.shared == 'B' ? 0 : g.k * g.n;
    int64_t sc = g.m * g.n;
    vec a = vec_new(g.in, g.m * g.k * (sa ? g.batch : 1), 1),
        b = vec_new(g.in, g.k * g.n * (sb ? g.batch : 1), 2),
        c = vec_new(g.out, sc * g.batch, 3);
    osh_cuda_mat ma = {a.at, lda, sa, g.in, g.ta}, mb = {b.at, ldb, sb, g.in, g.tb},
                 mc = {c.at, g.n, sc, g.out, false};
    /* worst: largest error so far, in multiples of `unit`.
     * unit: allowed relative error. A narrow dtype rounds the result; in F32 a tensor core may
     * truncate sums. */
    double worst = 0, unit = g.out == OSH_BF16  ? 1. / 250
                             : g.out == OSH_F16 ? 1. / 2000
                             : g.tf32           ? 1. / 1024
                                                : 1e-5;

    ok(osh_cuda_gemm(cx, d, {&mc, &ma, &mb, g.m, g.n, g.k, g.batch, g.alpha, g.beta, 1, g.tf32}));
    std::vector<float> got = values(c);
    for (int64_t i = 0; i < g.batch * sc; i += g.batch * sc / 5000 + 1) {
        int64_t s = i / sc, row = i % sc / g.n, col = i % g.n;
        double sum = 0, all = 0;
        for (int64_t k = 0; k < g.k; k++) {
            double p = (double)a.host[(size_t)(s * sa + (g.ta ? k * lda + row : row * lda + k))] *
                       b.host[(size_t)(s * sb + (g.tb ? col * ldb + k : k * ldb + col))];
            sum += p, all += fabs(p);
        }
        double want = g.alpha * sum + g.beta * (double)c.host[(size_t)i];
        double off = fabs(got[(size_t)i] - want) /
                     (unit * (fabs(want) + (g.out == OSH_F32 ? all : 0)) + 1e-5);
        if (!(off <= worst)) worst = off;
    }
    printf("%-28s [%ld, %ld, %ld] x %ld: error %.2f of what is allowed\n", g.what, (long)g.m,
           (long)g.n, (long)g.k, (long)g.batch, worst);
    if (!(worst <= 1)) fail_msg("%s", g.what);
    vec_drop(a), vec_drop(b), vec_drop(c);
}

static void test_products(void **)
{
    static const gemm_case rows[] = {
        {"linear, BF16", 200, 384, 128, 1, false, true, false, OSH_BF16, OSH_BF16, 1, 0, false},
        {"linear, F16", 200, 384, 128, 1, false, true, false, OSH_F16, OSH_F16, 1, 0, false},
        {"linear, F32", 200, 384, 128, 1, false, true, false, OSH_F32, OSH_F32, 1, 0, false},
        {"linear with bias, BF16", 65, 96, 64, 1, false, true, false, OSH_BF16, OSH_F32, 1, 0,
         false},
        {"linear with bias, F16", 65, 96, 64, 1, false, true, false, OSH_F16, OSH_F32, 1, 0, false},
        {"Hessian, BF16", 256, 512, 1000, 1, true, false, false, OSH_BF16, OSH_F32, 1, 1, false},
        {"Hessian, F16", 256, 512, 1000, 1, true, false, false, OSH_F16, OSH_F32, 1, 1, false},
        {"Hessian, F32", 256, 512, 1000, 1, true, false, false, OSH_F32, OSH_F32, 1, 1, false},
        {"odd, BF16", 37, 53, 29, 1, false, true, false, OSH_BF16, OSH_BF16, 1, 0, false},
        {"odd, BF16 to F32, turned", 37, 53, 29, 3, true, false, false, OSH_BF16, OSH_F32, 1, 1,
         false},
        {"odd, F16, turned", 37, 53, 29, 3, true, true, false, OSH_F16, OSH_F16, 1, 0, false},
        {"odd, F32", 37, 53, 29, 3, false, false, false, OSH_F32, OSH_F32, -1, 1, false},
        {"one row", 1, 512, 128, 1, false, true, false, OSH_BF16, OSH_BF16, 1, 0, false},
        {"one element", 1, 1, 1, 1, false, false, false, OSH_F32, OSH_F32, 2, 1, false},
        {"rest of a solve, F32", 72, 64, 128, 5, true, false, false, OSH_F32, OSH_F32, -1, 1,
         false},
        {"rest of a solve, TF32", 384, 256, 384, 5, true, false, false, OSH_F32, OSH_F32, -1, 1,
         true},
        {"panels with one U, F32", 64, 256, 128, 28, true, false, 'A', OSH_F32, OSH_F32, -1, 1,
         false},
        {"panels with one U, TF32", 192, 256, 384, 28, true, false, 'A', OSH_F32, OSH_F32, -1, 1,
         true},
        {"logits, BF16", 64, 320, 128, 4, false, true, 'B', OSH_BF16, OSH_BF16, 1, 0, false},
        {"a head that is not aligned", 48, 48, 20, 6, false, true, false, OSH_BF16, OSH_BF16, 1, 0,
         false},
    };
    for (auto &row : rows) gemm_check(row);
}

/* Returns |a - b| / |b| of two results. */
static double bytes_apart(const std::vector<char> &a, const std::vector<char> &b, osh_dtype dt)
{
    std::vector<float> x(a.size() / osh_dtype_bytes(dt)), y(x.size());
    double off = 0, all = 0;
    osh_to_f32(x.data(), a.data(), dt, (int64_t)x.size());
    osh_to_f32(y.data(), b.data(), dt, (int64_t)y.size());
    for (size_t i = 0; i < x.size(); i++) off += pow(x[i] - y[i], 2), all += pow(y[i], 2);
    return all > 0 ? sqrt(off / all) : off > 0;
}

/* Computes six matrix products in three ways: all six in one call, four in a call, and one in a
 * call. The operands are at the start of a block of memory, or after other bytes of the block. The
 * results must have equal bytes. */
static void test_same_bytes(void **)
{
    static const struct { osh_dtype in, out; int64_t m, n, k; bool ta, tf32; } rows[] = {
        {OSH_F32, OSH_F32, 384, 256, 384, true, true},
        {OSH_F32, OSH_F32, 100, 256, 128, true, false},
        {OSH_BF16, OSH_BF16, 256, 320, 192, false, false},
        {OSH_BF16, OSH_BF16, 1000, 2048, 256, false, false},
        {OSH_F16, OSH_F16, 128, 128, 64, false, false},
    };
    const int64_t BATCH = 6;
    for (auto &r : rows) {
#ifdef OSH_PLAY
        if (r.m > 500) continue; // the emulated cuBLASLt multiplies each product of a batch alone
#endif
        std::vector<char> want;
        for (int64_t at_once : {BATCH, (int64_t)4, (int64_t)1})
            for (int64_t skip : {0, 64}) {
                int64_t sa = r.m * r.k, sb = r.ta ? r.k * r.n : 0, sc = r.m * r.n;
                vec a = vec_new(r.in, sa * BATCH, 1, skip),
                    b = vec_new(r.in, r.k * r.n * (sb ? BATCH : 1), 2, skip),
                    c = vec_new(r.out, sc * BATCH, 3, skip);
                for (int64_t first = 0; first < BATCH; first += at_once) {
                    int64_t n = osh_min64(at_once, BATCH - first);
                    size_t in = osh_dtype_bytes(r.in), out = osh_dtype_bytes(r.out);
                    osh_cuda_mat ma = {(char *)a.at + (size_t)(first * sa) * in, r.ta ? r.m : r.k,
                                       sa, r.in, r.ta};
                    osh_cuda_mat mb = {(char *)b.at + (size_t)(first * sb) * in, r.ta ? r.n : r.k,
                                       sb, r.in, !r.ta};
                    osh_cuda_mat mc = {(char *)c.at + (size_t)(first * sc) * out, r.n, sc, r.out,
                                       false};
                    float beta = r.ta ? 1 : 0;
                    ok(osh_cuda_gemm(
                        cx, d,
                        {&mc, &ma, &mb, r.m, r.n, r.k, n, r.ta ? -1.f : 1.f, beta, 1, r.tf32}));
                }
                std::vector<char> got = raw(c);
                if (want.empty()) want = got;
                if (got != want)
                    printf(
                        "[%ld, %ld, %ld] of %s: %ld at a time, %ld elements further: other bytes\n",
                        (long)r.m, (long)r.n, (long)r.k, osh_dtype_name(r.in), (long)at_once,
                        (long)skip);
                strict(got == want, bytes_apart(got, want, r.out) < 1e-4,
                       "products of a batch have the bytes of one alone",
                       "cuBLASLt adds up in another order in a batch or at another address: codes "
                       "depend on how many"
                       " panels the arena has room for, so on --device-memory.");
                vec_drop(a), vec_drop(b), vec_drop(c);
            }
    }
}

/* ---- triangles ---- */

/* Computes the Cholesky factor of H = L L^T + n/2 I for a random L. The lower triangle is
 * row-major, as in gptq_factor; the upper triangle has a marker value that must not change.
 * Compares potrf's factor with H, and the result of osh_cuda_factor_inverse with the inverse of
 * this factor. */
static void test_triangles(void **)
{
    for (int64_t n : {1, 2, 7, 64, 65, 300, 1025, 4200}) {
#ifdef OSH_PLAY
        if (n > 1025) continue; // larger sizes are slow on the emulated GPU
#endif
        vec h = vec_new(OSH_F32, n * n, 1);
        std::vector<float> full((size_t)(n * n)), lower;
        const float MARK = 12345;
        bool fine = false;
        auto at = [&](int64_t i, int64_t j) { return (size_t)(i * n + j); };
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++) {
                double sum = i == j ? 0.5 * (double)n : 0;
                for (int64_t k = 0; k < osh_min64(n, 40); k++)
                    sum += (double)h.host[at(i, k)] * h.host[at(j, k)];
                full[at(i, j)] = full[at(j, i)] = (float)sum;
            }
        std::vector<float> in = full;
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i + 1; j < n; j++) in[at(i, j)] = MARK;
        ok(d->type->put(cx, d, h.at, in.data(), in.size() * sizeof(float)));
        osh_cuda_triangle t = {(float *)h.at, n, n, true, NULL, 0, NULL};
        ok(osh_cuda_potrf_bytes(cx, d, &t.room_bytes, &t));
        t.room = osh_device_alloc(cx, d, t.room_bytes, OSH_LIFE_SHORT);
        t.verdict = (int *)osh_device_alloc(cx, d, sizeof(int), OSH_LIFE_SHORT);
        assert_true(t.room && t.verdict);
        ok(osh_cuda_potrf(cx, d, &t, &fine));
        assert_true(fine);
        lower = values(h);
        double worst = 0;
        for (int64_t i = 0; i < n; i += n / 50 + 1)
            for (int64_t j = 0; j <= i; j++) {
                double sum = 0;
                for (int64_t k = 0; k <= j; k++) sum += (double)lower[at(i, k)] * lower[at(j, k)];
                worst = fmax(worst, fabs(sum - full[at(i, j)]) / (double)n);
            }
        osh_device_free(d, t.verdict);
        osh_device_free(d, t.room);
        ok(d->type->put(cx, d, h.at, in.data(), in.size() * sizeof(float)));
        ok(osh_cuda_factor_inverse(cx, d, (float *)h.at, n, &fine));
        assert_true(fine);
        std::vector<float> inverse = values(h);
        double off = 0;
        for (int64_t i = 0; i < n; i += n / 50 + 1)
            for (int64_t j = 0; j <= i; j++) {
                double sum = 0;
                for (int64_t k = j; k <= i; k++) sum += (double)lower[at(i, k)] * inverse[at(k, j)];
                off = fmax(off, fabs(sum - (i == j)));
            }
        printf("triangle of %ld: factor off by %.1e, inverse by %.1e; potrf wants %zu bytes, "
               "planned are %zu\n",
               (long)n, worst, off, t.room_bytes, osh_cuda_triangle_bytes(n));
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i + 1; j < n; j++)
                if (lower[at(i, j)] != MARK || inverse[at(i, j)] != MARK)
                    fail_msg("the other triangle was written");
        if (!(worst < 1e-5 && off < 1e-4)) fail_msg("wrong");
        in[at(n - 1, n - 1)] = -1;
        ok(d->type->put(cx, d, h.at, in.data(), in.size() * sizeof(float)));
        ok(osh_cuda_factor_inverse(cx, d, (float *)h.at, n, &fine));
        assert_false(fine); // the matrix is not positive definite, so it has no factor
        vec_drop(h);
    }
}

/* For all widths of a run, prints how many bytes of workspace cuSOLVER asks for. The smallest block
 * of a run has 64 rows; 512 KiB must be enough for this block (gpu/triangle.cu). */
static void test_wishes(void **)
{
    for (int64_t n = 64; n <= 14336; n = n < 8192 ? 2 * n : n + 6144) {
        osh_cuda_triangle t = {(float *)d->base, n, n, true, NULL, 0, NULL};
        size_t wish;
        ok(osh_cuda_potrf_bytes(cx, d, &wish, &t));
        printf("triangle of %ld: cuSOLVER wants %zu bytes for potrf; a run has %zu\n", (long)n,
               wish, osh_cuda_triangle_bytes(n));
        if (n == 64) assert_true(wish <= 512 << 10);
    }
}

int main(void)
{
#define ON_GPU(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {ON_GPU(test_products), ON_GPU(test_same_bytes),
                                       ON_GPU(test_wishes), ON_GPU(test_triangles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
