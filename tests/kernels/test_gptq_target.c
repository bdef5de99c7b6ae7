/* test_gptq_target.c - compares gptq_shift and gptq_target with their references, and checks that
 * they compute the weight whose output is closest to that of the original model. */
#include "on_gpu.h"
#include "gptq_hessian.h"

static bool has_column(const osh_op *op, int column, const osh_device *d)
{
    return op->run[column] && (column != OSH_CUDA || d);
}

static osh_status run_column(osh_ctx *cx, osh_device *d, int column, const osh_op *op,
                             const osh_op_args *a, int64_t I, int64_t O)
{
    if (column == OSH_CUDA)
        return gpu_run(cx, d, op, a, op->arena_bytes(NULL, (int64_t[]){I}, I, O, OSH_F32));
    return op->run[column](cx, a);
}

/* Makes the factor U of a Hessian, and an order of the columns. */
static void make_factor(osh_ctx *cx, guarded *u, guarded *perm, int64_t I)
{
    *u = guarded_new(cx, OSH_F32, 2, I, I), *perm = guarded_new(cx, OSH_I32, 1, I, 0);
    make_hessian(u->t.data, I);
    osh_op_args a = {.out = {&u->t}};
    assert_int_equal(osh_op_run(cx, &osh_op_gptq_factor, &a), OSH_OK);
    for (int64_t i = 0; i < I; i++) ((int32_t *)perm->t.data)[i] = (int32_t)((i * 3 + 1) % I);
    for (int64_t i = 0; I % 3 == 0 && i < I; i++)
        ((int32_t *)perm->t.data)[i] = (int32_t)(I - 1 - i);
}

static void shift_case(osh_ctx *cx, osh_ctx *three, osh_device *d, int column, int64_t I)
{
    const osh_op *op = &osh_op_gptq_shift;
    guarded u, perm, s[2];

    make_factor(cx, &u, &perm, I);
    for (int k = 0; k < 2; k++) {
        s[k] = guarded_new(cx, OSH_F32, 2, I, I);
        guarded_fill(&s[k], 5, 1);
        osh_op_args a = {.in = {&u.t, &perm.t}, .out = {&s[k].t}};
        assert_int_equal(run_column(k ? three : cx, d, k ? column : OSH_REF, op, &a, I, I), OSH_OK);
    }
    double e = nmse(&s[1].t, &s[0].t);
    if (!(e <= op->tol)) fail_msg("gptq_shift [%ld]: NMSE %g", (long)I, e);
    /* gptq_shift replaces the matrix D (here random numbers) by S = D Hd^-1, so the test checks the
     * product S Hd, which must be D. Hd is the damped Hessian, and `h` is the Hessian of
     * make_hessian:
     *   Hd[perm i][perm j] = h[i][j] */
    float *h = osh_alloc(cx, (size_t)(I * I) * sizeof *h),
          *was = osh_alloc(cx, (size_t)I * sizeof *was);
    const int32_t *p = perm.t.data;
    make_hessian(h, I);
    for (int64_t r = 0; r < I && r < 3; r++)
        for (int64_t j = 0; j < I; j++) {
            double sum = 0;
            for (int64_t i = 0; i < I; i++)
                sum += (double)((float *)s[1].t.data)[r * I + p[i]] * h[i * I + j];
            assert_true(fabs(sum - osh_rng_sym(SEED, 5, (uint64_t)(r * I + p[j]))) < 1e-3);
        }
    osh_free(cx, h), osh_free(cx, was);
    for (int k = 0; k < 2; k++) guarded_check(&s[k]), guarded_free(cx, &s[k]);
    guarded_check(&u), guarded_free(cx, &u), guarded_check(&perm), guarded_free(cx, &perm);
}

static void target_case(osh_ctx *cx, osh_ctx *three, osh_device *d, int column, int64_t O,
                        int64_t I, osh_dtype dt)
{
    const osh_op *op = &osh_op_gptq_target;
    guarded w = guarded_new(cx, dt, 2, O, I), s = guarded_new(cx, OSH_F32, 2, I, I), t[2];

    guarded_fill(&w, 1, 1);
    for (int zero = 0; zero < 2; zero++) {
        guarded_fill(&s, 2, zero ? 0 : 0.1f);
        for (int k = 0; k < 2; k++) {
            t[k] = guarded_new(cx, OSH_F32, 2, O, I);
            osh_op_args a = {.in = {&w.t, &s.t}, .out = {&t[k].t}};
            assert_int_equal(run_column(k ? three : cx, d, k ? column : OSH_REF, op, &a, I, O),
                             OSH_OK);
        }
        double e = nmse(&t[1].t, &t[0].t);
        if (!(e <= op->tol)) fail_msg("gptq_target [%ld, %ld]: NMSE %g", (long)O, (long)I, e);
        for (int64_t i = 0; zero && i < O * I; i++)
            assert_true(value_at(&t[1].t, i) == value_at(&w.t, i));
        for (int k = 0; k < 2; k++) guarded_check(&t[k]), guarded_free(cx, &t[k]);
    }
    guarded_check(&w), guarded_free(cx, &w), guarded_check(&s), guarded_free(cx, &s);
}

static void test_columns(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 7, 64, 65, 129, 257};
    const osh_dtype dts[] = {OSH_F32, OSH_BF16, OSH_F16};
    osh_ctx *cx = NULL, *three = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_int_equal(osh_ctx_new(&three, 3), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    for (int column = OSH_CPU; column < OSH_N_BACKENDS; column++) {
        if (!has_column(&osh_op_gptq_shift, column, d)) continue;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            shift_case(cx, three, d, column, sizes[i]);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            target_case(cx, three, d, column, sizes[5 - i], sizes[i], dts[i % 3]);
        // 1030 rows: a GPU computes this case in two slabs (ranges of rows, gptq_target.cu)
        target_case(cx, three, d, column, 1030, 9, OSH_BF16);
    }
    osh_device_close(cx, d);
    assert_int_equal(osh_mem_live(cx), 0);
    assert_int_equal(osh_mem_live(three), 0);
    osh_ctx_free(cx);
    osh_ctx_free(three);
}

/* The inputs of the quantized and the original model differ. The outputs of the weight W + W S must
 * be closest to those of the original model. The outputs of W, and of W + W S with noise, must be
 * farther away. */
static void test_closest(void **state)
{
    (void)state;
    enum { N = 300, I = 24, O = 5 };
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    guarded x = guarded_new(cx, OSH_F32, 2, N, I), x0 = guarded_new(cx, OSH_F32, 2, N, I);
    guarded w = guarded_new(cx, OSH_F32, 2, O, I), h = guarded_new(cx, OSH_F32, 2, I, I);
    guarded s = guarded_new(cx, OSH_F32, 2, I, I), t = guarded_new(cx, OSH_F32, 2, O, I);
    guarded perm = guarded_new(cx, OSH_I32, 1, I, 0);
    double left[3];
    guarded_fill(&x0, 1, 1), guarded_fill(&w, 2, 1);
    guarded_fill(&h, 3, 0), guarded_fill(&s, 3, 0);
    for (int i = 0; i < I; i++) ((int32_t *)perm.t.data)[i] = i;
    // a fraction of the neighbouring channel of x0 is added to each channel of x
    for (int i = 0; i < N * I; i++)
        ((float *)x.t.data)[i] =
            (float)(0.9 * value_at(&x0.t, i) + 0.2 * value_at(&x0.t, i % I ? i - 1 : i + I - 1) +
                    0.05 * osh_rng_sym(SEED, 4, (uint64_t)i));
    osh_op_args of_h = {.in = {&x.t}, .out = {&h.t}}, of_d = {.in = {&x.t, &x0.t}, .out = {&s.t}};
    osh_op_args of_u = {.out = {&h.t}}, of_s = {.in = {&h.t, &perm.t}, .out = {&s.t}};
    osh_op_args of_t = {.in = {&w.t, &s.t}, .out = {&t.t}};
    assert_int_equal(osh_op_run(cx, &osh_op_hessian_accum, &of_h), OSH_OK);
    assert_int_equal(osh_op_run(cx, &osh_op_shift_accum, &of_d), OSH_OK);
    assert_int_equal(osh_op_run(cx, &osh_op_gptq_factor, &of_u), OSH_OK);
    assert_int_equal(osh_op_run(cx, &osh_op_gptq_shift, &of_s), OSH_OK);
    assert_int_equal(osh_op_run(cx, &osh_op_gptq_target, &of_t), OSH_OK);
    for (int k = 0; k < 3; k++) { // the weight is W, then W + W S, then W + W S with noise
        left[k] = 0;
        for (int n = 0; n < N; n++)
            for (int o = 0; o < O; o++) {
                double e = 0;
                for (int i = 0; i < I; i++) {
                    double v = value_at(k ? &t.t : &w.t, o * I + i);
                    if (k == 2) v += 0.02 * osh_rng_sym(SEED, 6, (uint64_t)(o * I + i));
                    e += v * value_at(&x.t, n * I + i) -
                         value_at(&w.t, o * I + i) * value_at(&x0.t, n * I + i);
                }
                left[k] += e * e;
            }
    }
    if (!(left[1] < 0.2 * left[0] && left[1] < left[2]))
        fail_msg("left of the original's output: W %g, W + W S %g, another %g", left[0], left[1],
                 left[2]);
    guarded *all[] = {&x, &x0, &w, &h, &s, &t, &perm};
    for (int i = 0; i < 7; i++) guarded_free(cx, all[i]);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static void test_torture(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        osh_status rc = OSH_E_NOMEM;
        for (int64_t nth = 1; rc && nth < 20; nth++) {
            osh_ctx *cx = NULL;
            guarded u, perm;
            assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
            make_factor(cx, &u, &perm, 7);
            guarded s = guarded_new(cx, OSH_F32, 2, 7, 7), t = guarded_new(cx, OSH_F32, 2, 7, 7);
            guarded_fill(&s, 1, 1);
            osh_op_args a = {.in = {&u.t, which ? &s.t : &perm.t}, .out = {which ? &t.t : &s.t}};
            osh_mem_fail_after(cx, nth);
            rc = osh_op_run(cx, osh_op_find(which ? "gptq_target" : "gptq_shift"), &a);
            assert_true(rc == OSH_OK || rc == OSH_E_NOMEM);
            osh_mem_fail_after(cx, -1);
            guarded_free(cx, &u), guarded_free(cx, &perm), guarded_free(cx, &s),
                guarded_free(cx, &t);
            assert_int_equal(osh_mem_live(cx), 0);
            osh_ctx_free(cx);
        }
        assert_int_equal(rc, OSH_OK);
    }
}

int main(void)
{
    int unable = pin_isa();
    if (unable) return unable;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_columns),
                                       cmocka_unit_test(test_closest),
                                       cmocka_unit_test(test_torture)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
