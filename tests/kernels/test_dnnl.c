/* test_dnnl.c - linear on oneDNN against the reference: in F32 on every CPU, in BF16 where the CPU
 * has the instructions. */
#include "kernel_test.h"
#include "ops/cpu/dnnl.h"

static void linear_case(osh_ctx *one, osh_ctx *three, int64_t n, int64_t in, int64_t out,
                        int64_t split, bool bias, osh_dtype dt)
{
    const osh_op *op = osh_op_find("linear");
    guarded x = guarded_new(one, dt, 2, n, in), w = guarded_new(one, dt, 2, out, in),
            b = guarded_new(one, dt, 1, out, 0);
    guarded y[3];
    int64_t offsets[3] = {0, split, n};
    osh_seqs seqs = {.n = split ? 2 : 1, .offsets = offsets};

    if (!split) offsets[1] = n;
    guarded_fill(&x, 1, 1), guarded_fill(&w, 2, 1), guarded_fill(&b, 3, 1);
    for (int i = 0; i < 3; i++) y[i] = guarded_new(one, dt, 2, n, out);
    osh_op_args a = {.in = {&x.t, &w.t, bias ? &b.t : NULL}, .out = {&y[0].t}, .seqs = &seqs};
    assert_int_equal(op->run[OSH_REF](one, &a), OSH_OK);
    assert_int_equal(osh_dnnl_linear(one, &y[1].t, &x.t, &w.t, bias ? &b.t : NULL, &seqs), OSH_OK);
    assert_int_equal(osh_dnnl_linear(three, &y[2].t, &x.t, &w.t, bias ? &b.t : NULL, &seqs), OSH_OK);
    assert_memory_equal(y[1].t.data, y[2].t.data, osh_tensor_bytes(&y[1].t));
    double e = nmse(&y[1].t, &y[0].t);
    if (!(e <= tol_of(op->tol, dt)))
        fail_msg("oneDNN linear [%ld, %ld, %ld]: NMSE %g", (long)n, (long)in, (long)out, e);
    guarded_check(&x), guarded_check(&w), guarded_check(&b);
    guarded_free(one, &x), guarded_free(one, &w), guarded_free(one, &b);
    for (int i = 0; i < 3; i++) guarded_check(&y[i]), guarded_free(one, &y[i]);
}

static void run_cases(osh_dtype dt)
{
    osh_ctx *one = NULL, *three = NULL;

    assert_int_equal(osh_ctx_new(&one, 1), OSH_OK);
    assert_int_equal(osh_ctx_new(&three, 3), OSH_OK);
    linear_case(one, three, 1, 1, 1, 0, false, dt);
    linear_case(one, three, 7, 7, 7, 3, true, dt);
    linear_case(one, three, 129, 129, 193, 1, true, dt);
    linear_case(one, three, 600, 65, 129, 10, false, dt);
    linear_case(one, three, 130, 576, 576, 0, false, dt);
    assert_int_equal(osh_mem_live(one), 0);
    assert_int_equal(osh_mem_live(three), 0);
    osh_ctx_free(three);
    osh_ctx_free(one);
}

static void test_f32(void **state)
{
    (void)state;
    run_cases(OSH_F32);
}

static void test_bf16(void **state)
{
    (void)state;
    osh_tensor t = {.dtype = OSH_BF16};
    if (!osh_dnnl_fits(&t, &t, &t, NULL)) {
        print_message("no AVX-512 BF16 on this CPU\n");
        skip();
    }
    run_cases(OSH_BF16);
}

int main(void)
{
    int unable = pin_isa();
    if (unable) return unable;
    printf("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_bf16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
