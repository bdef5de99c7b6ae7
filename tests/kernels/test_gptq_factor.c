/* test_gptq_factor.c - tests gptq_factor on the CPU and on a GPU: compares its result with the
 * definition of the factor. Also tests the functions that permute H for a solve and restore H. */
#include "on_gpu.h"
#include "gptq_hessian.h"
#include "solver/gptq_solve.h"

static bool has_column(const osh_op *op, int column, const osh_device *d)
{
    return op->run[column] && (column != OSH_CUDA || d);
}

/* Runs a kernel of gptq_factor on a host matrix. `column` selects the kernel: reference, CPU or
 * CUDA. */
static osh_status matrix_factor(osh_ctx *cx, osh_device *d, int column, osh_tensor *h)
{
    const osh_op *op = &osh_op_gptq_factor;
    osh_op_args a = {.out = {h}};
    if (column == OSH_CUDA)
        return gpu_run(cx, d, op, &a, osh_gptq_factor_device_bytes(h->shape[0]));
    return op->run[column](cx, &a);
}

static void factor_case(osh_ctx *cx, osh_device *d, int column, int64_t I)
{
    const osh_op *op = &osh_op_gptq_factor;
    guarded h[2];
    double worst = 0;
    float *sym = osh_alloc(cx, (size_t)(I * I) * sizeof *sym);

    make_hessian(sym, I);
    for (int k = 0; k < 2; k++) {
        h[k] = guarded_new(cx, OSH_F32, 2, I, I);
        memcpy(h[k].t.data, sym, osh_tensor_bytes(&h[k].t));
        // the upper triangle is NaN, because the kernel must not read it
        for (int64_t i = 0; i < I; i++)
            for (int64_t j = i + 1; j < I; j++) ((float *)h[k].t.data)[i * I + j] = NAN;
        assert_int_equal(matrix_factor(cx, d, k ? column : OSH_REF, &h[k].t), OSH_OK);
    }
    double e = nmse(&h[1].t, &h[0].t);
    if (!(e <= op->tol)) fail_msg("gptq_factor [%ld]: NMSE %g", (long)I, e);
    /* Checks that U H U^T is the identity, which follows from U^T U = H^-1. With row u_i of U and p
     * = H u_j^T, element (i, j) is u_i p. */
    const float *u = h[1].t.data;
    float *p = osh_alloc(cx, (size_t)I * sizeof *p);
    for (int64_t j = 0; j < I && j < 200; j++) {
        for (int64_t k = j; k < I; k++)
            p[k] = (float)plain_dot(sym + k * I + j, u + j * I + j, I - j);
        for (int64_t i = j; i < I && i < 200; i++)
            worst = fmax(worst, fabs(plain_dot(u + i * I + i, p + i, I - i) - (i == j)));
    }
    osh_free(cx, p);
    assert_true(worst < 1e-4);
    for (int64_t i = 0; i < I; i++)
        for (int64_t j = 0; j < i; j++) assert_true(u[i * I + j] == 0);
    for (int k = 0; k < 2; k++) guarded_check(&h[k]), guarded_free(cx, &h[k]);
    osh_free(cx, sym);
}

static void test_factor(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    const int64_t sizes[] = {
        1, 2, 5, 7, 8, 64, 65, 127, 128, 129, 255, 256, 257, 576, OSH_FACTORS_MOST + 6};

    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    for (int column = OSH_CPU; column < OSH_N_BACKENDS; column++) {
        if (!has_column(&osh_op_gptq_factor, column, d)) continue;
        if (column != OSH_CUDA && gpu_alone()) continue;
        for (int k = 0; k < (column == OSH_CUDA ? gpu_orders() : 1); k++) {
            gpu_order(k);
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                /* The last size tests code that only the GPU has, so the CPU skips it. */
                if (column == OSH_CPU && sizes[i] > OSH_FACTORS_MOST) continue;
                if (!k || sizes[i] < 256) factor_case(cx, d, column, sizes[i]);
            }
        }
    }
    osh_device_close(cx, d);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static void test_factor_threads(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    enum { I = 700 };
    static float u[2][I * I];

    for (int k = 0; k < 2; k++) {
        osh_ctx *cx = NULL;
        assert_int_equal(osh_ctx_new(&cx, k ? 3 : 1), OSH_OK);
        make_hessian(u[k], I);
        osh_tensor t = osh_tensor_view(OSH_F32, 2, (int64_t[]){I, I}, u[k]);
        osh_op_args a = {.out = {&t}};
        assert_int_equal(osh_op_run(cx, &osh_op_gptq_factor, &a), OSH_OK);
        assert_int_equal(osh_mem_used_peak(cx, OSH_MEM_HOST),
                         osh_gptq_factor_bytes(I, osh_threads(cx)));
        osh_ctx_free(cx);
    }
    assert_memory_equal(u[0], u[1], sizeof u[0]);
}

/* Tests a factorization that fails in a later block of the matrix, while other threads invert the
 * first block or multiply. The upper triangle must not change. */
static void test_factor_refuses_late(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    enum { I = 700 };
    static float h[I * I];

    for (int threads = 1; threads < 4; threads++)
        for (int64_t bad = 255; bad < I; bad += 222) { // element `bad` is in block 0, 1 or 2
            osh_ctx *cx = NULL;
            assert_int_equal(osh_ctx_new(&cx, threads), OSH_OK);
            make_hessian(h, I);
            for (int64_t i = 0; i < I; i++)
                for (int64_t j = i + 1; j < I; j++) h[i * I + j] = (float)(i * I + j);
            // the factorization runs from the last element to the first
            h[(I - 1 - bad) * (I + 1)] = -1;
            osh_tensor t = osh_tensor_view(OSH_F32, 2, (int64_t[]){I, I}, h);
            osh_op_args a = {.out = {&t}};
            assert_int_equal(osh_op_run(cx, &osh_op_gptq_factor, &a), OSH_E_NUMERIC);
            assert_string_equal(osh_error_text(cx), "");
            for (int64_t i = 0; i < I; i++)
                for (int64_t j = i + 1; j < I; j++) assert_true(h[i * I + j] == (float)(i * I + j));
            assert_int_equal(osh_mem_live(cx), 0);
            osh_ctx_free(cx);
        }
}

static void test_factor_refuses(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    const osh_op *op = &osh_op_gptq_factor;

    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    for (int column = OSH_REF; column < OSH_N_BACKENDS; column++) {
        float negative[4] = {1, 0, 2, 1}, nan[4] = {1, 0, NAN, 1};
        osh_tensor t = osh_tensor_view(OSH_F32, 2, (int64_t[]){2, 2}, negative);
        if (!has_column(op, column, d)) continue;
        // the matrix is not positive definite: its eigenvalues are 3 and -1
        assert_int_equal(matrix_factor(cx, d, column, &t), OSH_E_NUMERIC);
        t.data = nan;
        assert_int_equal(matrix_factor(cx, d, column, &t), OSH_E_NUMERIC);
        // there is no message, because the caller tries again with more damping
        assert_string_equal(osh_error_text(cx), "");
    }
    osh_device_close(cx, d);
    osh_ctx_free(cx);
}

/* Permutes the rows and columns of a host matrix on a GPU, or on the CPU if `d` is NULL. */
static void matrix_permute(osh_ctx *cx, osh_device *d, osh_tensor *h, const int32_t *perm)
{
    if (!d) {
        assert_int_equal(osh_gptq_permute(cx, h, perm), OSH_OK);
        return;
    }
    gpu_copy_of c = gpu_put(cx, d, h);
    size_t before = osh_arena_used(d->arena), peak = osh_arena_peak(d->arena);
    assert_int_equal(osh_gptq_column_of(d)->permute(cx, &c.t, perm), OSH_OK);
    if (osh_arena_peak(d->arena) > peak)
        assert_true(osh_arena_peak(d->arena) <=
                    before + osh_gptq_permute_device_bytes(h->shape[0]));
    assert_int_equal(osh_arena_used(d->arena), before);
    gpu_take(cx, h, &c);
}

/* Restores H and doubles its diagonal, with the calls that a modifier makes. */
static void matrix_restore(osh_ctx *cx, osh_device *d, osh_tensor *h, float *diag)
{
    const osh_gptq_column *column = osh_gptq_column_of(d);
    int64_t I = h->shape[0];
    gpu_copy_of c = d ? gpu_put(cx, d, h) : (gpu_copy_of){.t = *h};
    float *got = osh_alloc(cx, (size_t)I * sizeof *got);
    assert_int_equal(column->restore(cx, &c.t, diag), OSH_OK);
    assert_int_equal(column->diag(cx, got, &c.t), OSH_OK);
    assert_memory_equal(got, diag, (size_t)I * sizeof *got);
    for (int64_t i = 0; i < I; i++) got[i] = 2 * diag[i];
    assert_int_equal(column->set_diag(cx, &c.t, got), OSH_OK);
    if (d) gpu_take(cx, h, &c);
    osh_free(cx, got);
}

static void permute_case(osh_ctx *cx, osh_device *d, int64_t I, bool ordered)
{
    float *h = osh_alloc(cx, (size_t)(I * I) * sizeof *h),
          *was = osh_alloc(cx, (size_t)(I * I) * sizeof *was);
    float *diag = osh_alloc(cx, (size_t)I * sizeof *diag);
    int32_t *perm = osh_alloc(cx, (size_t)I * sizeof *perm);
    osh_tensor t = osh_tensor_view(OSH_F32, 2, (int64_t[]){I, I}, h);
    for (int64_t i = 0; i < I; i++)
        for (int64_t j = 0; j < I; j++) {
            h[i * I + j] = j > i ? NAN : osh_rng_sym(SEED, 40, (uint64_t)(i * I + j));
            was[i * I + j] = osh_rng_sym(SEED, 40, (uint64_t)(j > i ? j * I + i : i * I + j));
        }
    for (int64_t i = 0; i < I; i++)
        perm[i] = (int32_t)(!ordered ? i : I % 5 ? (i * 5 + 2) % I : I - 1 - i);
    matrix_permute(cx, d, &t, ordered ? perm : NULL);
    for (int64_t i = 0; i < I; i++)
        for (int64_t j = 0; j < I; j++) assert_true(h[i * I + j] == was[perm[i] * I + perm[j]]);
    for (int64_t i = 0; i < I; i++) {
        diag[i] = h[i * I + i];
        for (int64_t j = 0; j <= i; j++) h[i * I + j] = NAN;
    }
    matrix_restore(cx, d, &t, diag);
    for (int64_t i = 0; i < I; i++)
        for (int64_t j = 0; j < I; j++)
            assert_true(h[i * I + j] == (i == j ? 2 : 1) * was[perm[i] * I + perm[j]]);
    osh_free(cx, h), osh_free(cx, was), osh_free(cx, diag), osh_free(cx, perm);
}

/* Tests the permutation of a matrix in place, and the restoration of its lower triangle after a
 * failed factorization. */
static void test_permute(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 2, 7, 129, 200};
    osh_ctx *cx = NULL;

    assert_int_equal(osh_ctx_new(&cx, 3), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    for (size_t k = 0; k < 2 * sizeof sizes / sizeof *sizes; k++) {
        permute_case(cx, NULL, sizes[k / 2], k % 2);
        for (int order = 0; d && order < gpu_orders(); order++) {
            gpu_order(order);
            permute_case(cx, d, sizes[k / 2], k % 2);
        }
    }
    osh_device_close(cx, d);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

enum { TOGETHER = 5 };
typedef struct several { // several matrices on the host, and their factors from a GPU
    int64_t I;
    float *h[TOGETHER], *was[TOGETHER]; // own [I, I]; h: the matrix, in the lower triangle; was:
                                        // copy of h
    float *diag;   // own [TOGETHER, I]: diagonals of the factored matrices, in the order of the
                   // solve
    int32_t *perm; // own [TOGETHER, I]: order of the columns of each matrix
    int bad;       // index of the matrix that is not positive definite
} several;

static void several_open(osh_ctx *cx, several *x, int64_t I, int bad)
{
    size_t bytes = (size_t)(I * I) * sizeof(float);
    *x = (several){.I = I, .bad = bad,
                   .diag = osh_alloc(cx, (size_t)(TOGETHER * I) * sizeof(float)),
                   .perm = osh_alloc(cx, (size_t)(TOGETHER * I) * sizeof(int32_t))};
    for (int k = 0; k < TOGETHER; k++) {
        x->h[k] = osh_alloc(cx, bytes), x->was[k] = osh_alloc(cx, bytes);
        make_hessian(x->was[k], I);
        for (int64_t i = 0; i < I; i++) {
            int64_t c = I % 5 ? (i * 5 + k) % I : i;
            x->perm[k * I + i] = (int32_t)c;
            x->diag[k * I + i] = x->was[k][c * (I + 1)] * (1 + 0.25f * (float)k);
            for (int64_t j = i + 1; j < I; j++) x->was[k][i * I + j] = NAN;
        }
        if (k == bad) x->diag[k * I + I / 3] = -1;
        memcpy(x->h[k], x->was[k], bytes);
    }
}

static void several_close(osh_ctx *cx, several *x)
{
    for (int k = 0; k < TOGETHER; k++) osh_free(cx, x->h[k]), osh_free(cx, x->was[k]);
    osh_free(cx, x->diag), osh_free(cx, x->perm);
}

/* Factors matrices [first, first + n) in one call. `room` selects the size of the GPU memory. 0:
 * enough for all matrices at the same time. 1: enough for some of them. 2: enough for one. */
static void several_factor(osh_ctx *cx, const several *x, int first, int n, int room)
{
    size_t most = osh_gptq_factors_device_bytes(x->I, n, SIZE_MAX),
           least = osh_gptq_factors_device_bytes(x->I, n, 0);
    size_t others =
        (size_t)n * osh_arena_gross((size_t)(x->I * x->I) * sizeof(float) + 2 * GPU_GUARD);
    size_t given = room == 0 ? most : room == 1 ? (most + least) / 2 : least;
    osh_device *d = gpu_open(cx, others + given);
    gpu_copy_of c[TOGETHER];
    float *h[TOGETHER];
    int failed[TOGETHER] = {7, 7, 7, 7, 7};
    for (int k = 0; k < n; k++) {
        osh_tensor t = osh_tensor_view(OSH_F32, 2, (int64_t[]){x->I, x->I}, x->h[first + k]);
        c[k] = gpu_put(cx, d, &t), h[k] = c[k].t.data;
    }
    osh_gptq_hessians all = {h, x->perm + first * x->I, x->diag + first * x->I, x->I, n};
    assert_int_equal(osh_device_ops_of(d)->factors(cx, d, failed, &all), OSH_OK);
    for (int k = 0; k < n; k++) {
        osh_tensor t = osh_tensor_view(OSH_F32, 2, (int64_t[]){x->I, x->I}, x->h[first + k]);
        assert_int_equal(failed[k], first + k == x->bad);
        gpu_take(cx, &t, &c[k]);
    }
    size_t said = osh_gptq_factors_device_bytes(x->I, n, given);
    assert_true(said <= given && osh_arena_peak(d->arena) == OSH_GPU_WORKSPACE + others + said);
    osh_device_close(cx, d);
}

/* Checks that the factor of matrix k equals the result of gptq_factor for the permuted matrix
 * alone. */
static void check_alone(osh_ctx *cx, osh_device *d, const several *x, int k)
{
    int64_t I = x->I;
    size_t bytes = (size_t)(I * I) * sizeof(float);
    float *h = osh_alloc(cx, bytes);
    osh_tensor t = osh_tensor_view(OSH_F32, 2, (int64_t[]){I, I}, h);
    memcpy(h, x->was[k], bytes);
    matrix_permute(cx, d, &t, x->perm + k * I);
    for (int64_t i = 0; i < I; i++) h[i * (I + 1)] = x->diag[k * I + i];
    assert_int_equal(matrix_factor(cx, d, OSH_CUDA, &t), k == x->bad ? OSH_E_NUMERIC : OSH_OK);
    assert_memory_equal(k == x->bad ? x->was[k] : h, x->h[k], bytes);
    osh_free(cx, h);
}

/* The factor of a Hessian must not depend on the other Hessians in the same call or on the
 * available memory. A Hessian that has no factor must not change, and must not affect the
 * others. */
static void test_factors_together(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 7, 64, 65, 130, 193};
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    for (size_t i = 0; d && i < sizeof sizes / sizeof *sizes; i++)
        /* For `room` 0 to 2, see several_factor. With 3, each matrix has a call of its own. With 1
         * and 2, the same kernels run with less memory, so a check of addresses skips these
         * cases. */
        for (int room = 0; room < 4; room += gpu_looks_at_addresses() ? 3 : 1) {
            several x;
            several_open(cx, &x, sizes[i], (int)i % TOGETHER);
            gpu_order(room % gpu_orders());
            for (int k = 0; k < TOGETHER; k += room == 3 ? 1 : TOGETHER)
                several_factor(cx, &x, k, room == 3 ? 1 : TOGETHER, room % 3);
            for (int k = 0; k < TOGETHER; k++) check_alone(cx, d, &x, k);
            several_close(cx, &x);
        }
    osh_device_close(cx, d);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

/* Copies the diagonals of several matrices in one call. */
static void test_diags(void **state)
{
    (void)state;
    enum { I = 70 };
    osh_ctx *cx = NULL;
    several x;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    several_open(cx, &x, I, 0);
    gpu_copy_of c[TOGETHER];
    float *h[TOGETHER], diag[TOGETHER * I];
    for (int k = 0; d && k < TOGETHER; k++) {
        osh_tensor t = osh_tensor_view(OSH_F32, 2, (int64_t[]){I, I}, x.h[k]);
        for (int i = 0; i < I; i++) x.h[k][i * (I + 1)] = (float)(k * I + i);
        c[k] = gpu_put(cx, d, &t), h[k] = c[k].t.data;
    }
    osh_gptq_hessians all = {h, NULL, NULL, I, TOGETHER};
    if (d) assert_int_equal(osh_gptq_column_of(d)->diags(cx, d, diag, &all), OSH_OK);
    for (int k = 0; d && k < TOGETHER * I; k++) assert_true(diag[k] == (float)k);
    for (int k = 0; d && k < TOGETHER; k++) gpu_take(cx, NULL, &c[k]);
    several_close(cx, &x);
    osh_device_close(cx, d);
    osh_ctx_free(cx);
}

/* If a matrix is not positive definite, its upper triangle does not change. */
static void test_factor_keeps_upper(void **state)
{
    (void)state;
    enum { I = 700 }; // the bad row is in a late block, after valid blocks
    static float h[I * I];
    osh_ctx *cx = NULL;

    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    for (int column = OSH_REF; column < OSH_N_BACKENDS; column++) {
        if (!has_column(&osh_op_gptq_factor, column, d)) continue;
        for (int i = 0; i < I * I; i++)
            h[i] = i / I == i % I ? (i / I == 5 ? -1.0f : 4.0f) : (float)(i % I) / I;
        osh_tensor t = osh_tensor_view(OSH_F32, 2, (int64_t[]){I, I}, h);
        assert_int_equal(matrix_factor(cx, d, column, &t), OSH_E_NUMERIC);
        for (int i = 0; i < I; i++)
            for (int j = i + 1; j < I; j++) assert_true(h[i * I + j] == (float)j / I);
    }
    osh_device_close(cx, d);
    osh_ctx_free(cx);
}

int main(void)
{
    int unable = pin_isa();
    if (unable) return unable;
    printf("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_factor),
                                       cmocka_unit_test(test_factor_threads),
                                       cmocka_unit_test(test_factor_refuses_late),
                                       cmocka_unit_test(test_factor_refuses),
                                       cmocka_unit_test(test_permute),
                                       cmocka_unit_test(test_factor_keeps_upper),
                                       cmocka_unit_test(test_factors_together),
                                       cmocka_unit_test(test_diags)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
