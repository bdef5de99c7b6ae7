/* test_pairs.c - linear, Hessians, attention and products on BF16 pairs against the reference. */
#include "kernel_test.h"
#include "ops/cpu/pairs_ops.h"

static void linear_case(osh_ctx *one, osh_ctx *three, int64_t n, int64_t in, int64_t out,
                        int64_t split, bool bias)
{
    const osh_op *op = osh_op_find("linear");
    guarded x = guarded_new(one, OSH_BF16, 2, n, in), w = guarded_new(one, OSH_BF16, 2, out, in),
            b = guarded_new(one, OSH_BF16, 1, out, 0);
    guarded y[3];
    int64_t offsets[3] = {0, split, n};
    osh_seqs seqs = {.n = split ? 2 : 1, .offsets = offsets};

    if (!split) offsets[1] = n;
    guarded_fill(&x, 1, 1), guarded_fill(&w, 2, 1), guarded_fill(&b, 3, 1);
    for (int i = 0; i < 3; i++) y[i] = guarded_new(one, OSH_BF16, 2, n, out);
    osh_op_args a = {.in = {&x.t, &w.t, bias ? &b.t : NULL}, .out = {&y[0].t}, .seqs = &seqs};
    assert_int_equal(op->run[OSH_REF](one, &a), OSH_OK);
    a.out[0] = &y[1].t;
    assert_int_equal(osh_pairs_linear(one, &a), OSH_OK);
    a.out[0] = &y[2].t;
    assert_int_equal(osh_pairs_linear(three, &a), OSH_OK);
    assert_memory_equal(y[1].t.data, y[2].t.data, osh_tensor_bytes(&y[1].t));
    double e = nmse(&y[1].t, &y[0].t);
    if (!(e <= tol_of(op->tol, OSH_BF16)))
        fail_msg("linear [%ld, %ld, %ld]: NMSE %g", (long)n, (long)in, (long)out, e);
    guarded_check(&x), guarded_check(&w), guarded_check(&b);
    guarded_free(one, &x), guarded_free(one, &w), guarded_free(one, &b);
    for (int i = 0; i < 3; i++) guarded_check(&y[i]), guarded_free(one, &y[i]);
}

static void hessian_case(osh_ctx *one, osh_ctx *three, int64_t n, int64_t width, int64_t split)
{
    const osh_op *op = osh_op_find("hessian_accum");
    guarded x = guarded_new(one, OSH_BF16, 2, n, width), h[4];
    int64_t offsets[3] = {0, split, n}, parts[2][2] = {{0, split}, {0, n - split}};
    osh_seqs seqs = {.n = 2, .offsets = offsets};

    guarded_fill(&x, 1, 1);
    for (int i = 0; i < 4; i++) { // to what is there, which above the diagonal stays
        h[i] = guarded_new(one, OSH_F32, 2, width, width);
        guarded_fill(&h[i], 2, 1);
    }
    osh_op_args a = {.in = {&x.t}, .out = {&h[0].t}, .seqs = &seqs};
    assert_int_equal(op->run[OSH_REF](one, &a), OSH_OK);
    assert_int_equal(osh_pairs_hessian(one, &h[1].t, &x.t, NULL, &seqs), OSH_OK);
    assert_int_equal(osh_pairs_hessian(three, &h[2].t, &x.t, NULL, &seqs), OSH_OK);
    for (int i = 0; i < 2; i++) { // each sample by itself
        int64_t rows = parts[i][1];
        osh_tensor part = osh_tensor_view(OSH_BF16, 2, (int64_t[]){rows, width}, osh_elem(&x.t, offsets[i] * width));
        osh_seqs alone = {.n = 1, .offsets = parts[i]};
        assert_int_equal(osh_pairs_hessian(three, &h[3].t, &part, NULL, &alone), OSH_OK);
    }
    assert_memory_equal(h[1].t.data, h[2].t.data, osh_tensor_bytes(&h[1].t));
    assert_memory_equal(h[1].t.data, h[3].t.data, osh_tensor_bytes(&h[1].t));
    const float *ref = h[0].t.data, *got = h[1].t.data;
    for (int64_t r = 0; r < width; r++)
        for (int64_t c = r + 1; c < width; c++)
            if (ref[r * width + c] != got[r * width + c]) fail_msg("above the diagonal: %ld, %ld", (long)r, (long)c);
    double e = nmse(&h[1].t, &h[0].t);
    if (!(e <= op->tol + tol_sums(n)))
        fail_msg("Hessian [%ld, %ld]: NMSE %g", (long)n, (long)width, e);
    guarded_check(&x), guarded_free(one, &x);
    for (int i = 0; i < 4; i++) guarded_check(&h[i]), guarded_free(one, &h[i]);
}

static void attention_case(osh_ctx *one, osh_ctx *three, const osh_attention_attr *at, int64_t n, int64_t split)
{
    const osh_op *op = osh_op_find("attention");
    int64_t wide = at->n_heads * at->head_dim, narrow = at->n_kv_heads * at->head_dim;
    guarded q = guarded_new(one, OSH_BF16, 2, n, wide), k = guarded_new(one, OSH_BF16, 2, n, narrow),
            v = guarded_new(one, OSH_BF16, 2, n, narrow), y[3];
    int64_t offsets[3] = {0, split, n};
    osh_seqs seqs = {.n = 2, .offsets = offsets};

    guarded_fill(&q, 1, 2), guarded_fill(&k, 2, 2), guarded_fill(&v, 3, 1);
    for (int i = 0; i < 3; i++) {
        osh_op_args a = {.in = {&q.t, &k.t, &v.t}, .attr = at, .seqs = &seqs};
        y[i] = guarded_new(one, OSH_BF16, 2, n, wide);
        a.out[0] = &y[i].t;
        assert_int_equal(i == 0 ? op->run[OSH_REF](one, &a) : osh_pairs_attention(i == 1 ? one : three, &a), OSH_OK);
    }
    assert_memory_equal(y[1].t.data, y[2].t.data, osh_tensor_bytes(&y[1].t));
    double e = nmse(&y[1].t, &y[0].t);
    if (!(e <= tol_of(op->tol, OSH_BF16)))
        fail_msg("attention of %ld tokens, %ld heads on %ld of %ld: NMSE %g", (long)n, (long)at->n_heads,
                 (long)at->n_kv_heads, (long)at->head_dim, e);
    guarded_check(&q), guarded_check(&k), guarded_check(&v);
    guarded_free(one, &q), guarded_free(one, &k), guarded_free(one, &v);
    for (int i = 0; i < 3; i++) guarded_check(&y[i]), guarded_free(one, &y[i]);
}

static void run_cases(void)
{
    osh_ctx *one = NULL, *three = NULL;

    assert_int_equal(osh_ctx_new(&one, 1), OSH_OK);
    assert_int_equal(osh_ctx_new(&three, 3), OSH_OK);
    linear_case(one, three, 1, 1, 1, 0, false);
    linear_case(one, three, 7, 7, 7, 3, true);
    linear_case(one, three, 129, 129, 193, 1, true);
    linear_case(one, three, 600, 65, 129, 10, false);
    linear_case(one, three, 130, 576, 576, 0, false);
    hessian_case(one, three, 2, 1, 1);
    hessian_case(one, three, 7, 7, 3);
    hessian_case(one, three, 600, 257, 10);
    hessian_case(one, three, 1030, 129, 513);
    hessian_case(one, three, 130, 576, 65);
    attention_case(one, three, &(osh_attention_attr){1, 1, 1, 0, 0}, 2, 1);
    attention_case(one, three, &(osh_attention_attr){9, 3, 64, 0, 0}, 130, 1);
    attention_case(one, three, &(osh_attention_attr){4, 2, 36, 0, 0.3}, 300, 37);
    attention_case(one, three, &(osh_attention_attr){6, 2, 16, 50, 0}, 333, 200);
    assert_int_equal(osh_mem_live(one), 0);
    assert_int_equal(osh_mem_live(three), 0);
    osh_ctx_free(three);
    osh_ctx_free(one);
}

/* On a CPU without the instructions the plain loops run: packing and cutting are theirs, too. */
static void test_cases(void **state)
{
    (void)state;
    run_cases();
}

int main(void)
{
    int unable = pin_isa();
    if (unable) return unable;
    printf("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
