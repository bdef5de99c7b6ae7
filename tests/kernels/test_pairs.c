/* test_pairs.c - compares the kernels that multiply pairs of BF16 numbers (linear, Hessian,
 * attention, and plain matrix products) with the reference. */
#include "kernel_test.h"
#include "ops/cpu/pairs_flow.h"
#include "ops/cpu/pairs_ops.h"
#include "math/span512.h"
#include "ops/gated.h"

static void linear_case(osh_ctx *one, osh_ctx *three, int64_t n, int64_t in, int64_t out,
                        int64_t split, bool bias)
{
    const osh_op *op = &osh_op_linear;
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
    const osh_op *op = &osh_op_hessian_accum;
    guarded x = guarded_new(one, OSH_BF16, 2, n, width), h[4];
    int64_t offsets[3] = {0, split, n}, parts[2][2] = {{0, split}, {0, n - split}};
    osh_seqs seqs = {.n = 2, .offsets = offsets};

    guarded_fill(&x, 1, 1);
    // H has values before the call; elements above the diagonal must not change
    for (int i = 0; i < 4; i++) {
        h[i] = guarded_new(one, OSH_F32, 2, width, width);
        guarded_fill(&h[i], 2, 1);
    }
    osh_op_args a = {.in = {&x.t}, .out = {&h[0].t}, .seqs = &seqs};
    assert_int_equal(op->run[OSH_REF](one, &a), OSH_OK);
    assert_int_equal(osh_pairs_hessian(one, &h[1].t, &x.t, NULL, &seqs), OSH_OK);
    assert_int_equal(osh_pairs_hessian(three, &h[2].t, &x.t, NULL, &seqs), OSH_OK);
    for (int i = 0; i < 2; i++) { // each sample is computed in a call of its own
        int64_t rows = parts[i][1];
        osh_tensor part = osh_tensor_view(OSH_BF16, 2, (int64_t[]){rows, width},
                                          osh_elem(&x.t, offsets[i] * width));
        osh_seqs alone = {.n = 1, .offsets = parts[i]};
        assert_int_equal(osh_pairs_hessian(three, &h[3].t, &part, NULL, &alone), OSH_OK);
    }
    assert_memory_equal(h[1].t.data, h[2].t.data, osh_tensor_bytes(&h[1].t));
    assert_memory_equal(h[1].t.data, h[3].t.data, osh_tensor_bytes(&h[1].t));
    const float *ref = h[0].t.data, *got = h[1].t.data;
    for (int64_t r = 0; r < width; r++)
        for (int64_t c = r + 1; c < width; c++)
            if (ref[r * width + c] != got[r * width + c])
                fail_msg("above the diagonal: %ld, %ld", (long)r, (long)c);
    double e = nmse(&h[1].t, &h[0].t);
    if (!(e <= op->tol + tol_sums(n)))
        fail_msg("Hessian [%ld, %ld]: NMSE %g", (long)n, (long)width, e);
    guarded_check(&x), guarded_free(one, &x);
    for (int i = 0; i < 4; i++) guarded_check(&h[i]), guarded_free(one, &h[i]);
}

static void attention_case(osh_ctx *one, osh_ctx *three, const osh_attention_attr *at, int64_t n,
                           int64_t split)
{
    const osh_op *op = &osh_op_attention;
    int64_t wide = at->n_heads * at->head_dim, narrow = at->n_kv_heads * at->head_dim;
    guarded q = guarded_new(one, OSH_BF16, 2, n, wide),
            k = guarded_new(one, OSH_BF16, 2, n, narrow),
            v = guarded_new(one, OSH_BF16, 2, n, narrow), y[3];
    int64_t offsets[3] = {0, split, n};
    osh_seqs seqs = {.n = 2, .offsets = offsets};

    guarded_fill(&q, 1, 2), guarded_fill(&k, 2, 2), guarded_fill(&v, 3, 1);
    for (int i = 0; i < 3; i++) {
        osh_op_args a = {.in = {&q.t, &k.t, &v.t}, .attr = at, .seqs = &seqs};
        y[i] = guarded_new(one, OSH_BF16, 2, n, wide);
        a.out[0] = &y[i].t;
        assert_int_equal(i == 0 ? op->run[OSH_REF](one, &a)
                                : osh_pairs_attention(i == 1 ? one : three, &a),
                         OSH_OK);
    }
    assert_memory_equal(y[1].t.data, y[2].t.data, osh_tensor_bytes(&y[1].t));
    double e = nmse(&y[1].t, &y[0].t);
    if (!(e <= tol_of(op->tol, OSH_BF16)))
        fail_msg("attention of %ld tokens, %ld heads on %ld of %ld: NMSE %g", (long)n,
                 (long)at->n_heads, (long)at->n_kv_heads, (long)at->head_dim, e);
    guarded_check(&q), guarded_check(&k), guarded_check(&v);
    guarded_free(one, &q), guarded_free(one, &k), guarded_free(one, &v);
    for (int i = 0; i < 3; i++) guarded_check(&y[i]), guarded_free(one, &y[i]);
}

/* Compares osh_gated_run with the three ops gate, up and glu. If `nan` is true, row 1 of x has a
 * NaN. */
static void gated_case(osh_ctx *cx, int64_t n, int64_t in, int64_t out, const char *act, bool bias,
                       bool nan)
{
    osh_glu_attr at = {.act = (char *)(uintptr_t)act};
    guarded x = guarded_new(cx, OSH_BF16, 2, n, in), w[2], b[2], y[4];
    bool finite = false;

    guarded_fill(&x, 1, 1);
    if (nan) ((uint16_t *)x.t.data)[in] = 0x7fc0;
    for (int k = 0; k < 2; k++) {
        w[k] = guarded_new(cx, OSH_BF16, 2, out, in), b[k] = guarded_new(cx, OSH_BF16, 1, out, 0);
        guarded_fill(&w[k], 2 + (uint64_t)k, 1), guarded_fill(&b[k], 4 + (uint64_t)k, 1);
    }
    for (int i = 0; i < 4; i++) y[i] = guarded_new(cx, OSH_BF16, 2, n, out);
    for (int k = 0; k < 2; k++) {
        osh_op_args a = {.in = {&x.t, &w[k].t, bias ? &b[k].t : NULL}, .out = {&y[k].t}};
        assert_int_equal(osh_pairs_linear(cx, &a), OSH_OK);
    }
    osh_op_args a = {.in = {&y[0].t, &y[1].t}, .out = {&y[2].t}, .attr = &at};
    assert_int_equal(osh_op_run(cx, &osh_op_glu, &a), OSH_OK);
    osh_gated g = {
        &x.t, {&w[0].t, &w[1].t}, {bias ? &b[0].t : NULL, bias ? &b[1].t : NULL}, &y[3].t, &at};
    assert_true(osh_gated_takes(OSH_BF16, in, &at));
    size_t before = osh_mem_used(cx, OSH_MEM_HOST);
    osh_mem_limit(cx, OSH_MEM_HOST, before + osh_gated_scratch(in, out, osh_threads(cx)));
    assert_int_equal(osh_gated_run(cx, &finite, &g), OSH_OK);
    osh_mem_limit(cx, OSH_MEM_HOST, 0);
    assert_int_equal(finite, !nan);
    if (!nan) assert_memory_equal(y[2].t.data, y[3].t.data, osh_tensor_bytes(&y[2].t));
    guarded_check(&x), guarded_free(cx, &x);
    for (int k = 0; k < 2; k++) guarded_free(cx, &w[k]), guarded_free(cx, &b[k]);
    for (int i = 0; i < 4; i++) guarded_check(&y[i]), guarded_free(cx, &y[i]);
}

static void test_gated(void **state)
{
    (void)state;
    if (!osh_pairs_used()) skip();
    for (int n_threads = 1; n_threads <= 3; n_threads += 2) {
        osh_ctx *cx = NULL;
        assert_int_equal(osh_ctx_new(&cx, n_threads), OSH_OK);
        gated_case(cx, 1, 1, 1, "silu", false, false);
        gated_case(cx, 7, 65, 7, "silu", true, false);
        gated_case(cx, 129, 96, 193, "gelu_pytorch_tanh", true, false);
        gated_case(cx, 530, 64, 130, "silu", false, false);
        gated_case(cx, 40, 64, 100, "silu", false, true);
        assert_int_equal(osh_mem_live(cx), 0);
        osh_ctx_free(cx);
    }
}

/* ---- blocks of matrix products that a flow (pairs_flow.h) computes ---- */
/* The bytes of a block must be those of osh_pairs_product, rounded by osh_pairs_narrow. */

enum { ROW = OSH_FLOW_COLS, BLOCKS = 3, FLOW_K = 97 };

typedef struct flow_case {
    int64_t m, n, k;
    bool bias, gated, nan;
} flow_case;

/* Makes the blocks of one matrix product. Block i multiplies the m rows of x that begin at row
 * i. */
static void flow_blocks(const flow_case *c, osh_flow_block b[BLOCKS], const uint16_t *x,
                        uint32_t *packed[2], const float *bias, uint16_t *y)
{
    int64_t each = osh_pairs_panel(c->k), panels = (c->n + 15) / 16;
    for (int i = 0; i < BLOCKS; i++) {
        b[i] = (osh_flow_block){.m = c->m, .n = c->n, .y = y + i * OSH_PAIRS_BAND * ROW, .ld = ROW,
                                .act = OSH_ACT_SILU, .b = {packed[0], panels, c->k, each},
                                .up = {packed[1], c->gated ? panels : 0, c->k, each},
                                .bias = {c->bias ? bias : NULL, c->bias ? bias + ROW : NULL}};
        static uint32_t room[BLOCKS][2 * 16 * (FLOW_K + OSH_PAIRS_STEP) / 2];
        b[i].a = osh_pairs_rows(room[i], x + i * c->k, c->k, c->m, c->k);
    }
}

/* Computes the expected y of a block by osh_pairs_product and osh_pairs_narrow. */
static void flow_expected(const osh_flow_block *b, uint16_t *y)
{
    float sums[OSH_PAIRS_BAND * ROW];
    uint16_t up[OSH_PAIRS_BAND * ROW];
    for (int k = 0; k < (b->up.n ? 2 : 1); k++) {
        osh_pairs_y to = {k ? up : y, ROW, b->n, b->bias[k]};
        osh_pairs_product(sums, ROW, b->a, b->m, k ? b->up : b->b);
        osh_pairs_narrow(&to, sums, ROW, b->m);
    }
    for (int64_t r = 0; b->up.n && r < b->m; r++)
        osh_span512_glu_bf16(y + r * ROW, y + r * ROW, up + r * ROW, b->n, b->act);
}

static void flow_case_run(const flow_case *c)
{
    enum { SIZE = BLOCKS * OSH_PAIRS_BAND * ROW };
    static uint16_t x[(OSH_PAIRS_BAND + BLOCKS) * FLOW_K], w[2][ROW * FLOW_K], want[SIZE],
        got[SIZE];
    static uint32_t room[2][2 * 16 * (FLOW_K + OSH_PAIRS_STEP) / 2];
    uint32_t *packed[2] = {room[0], room[1]};
    float bias[2 * ROW];
    osh_flow_block b[BLOCKS];
    osh_flow f;

    for (uint64_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = osh_bf16_of_f32(osh_rng_sym(SEED, 1, i));
    for (uint64_t i = 0; i < 2 * ROW * FLOW_K; i++)
        (&w[0][0])[i] = osh_bf16_of_f32(osh_rng_sym(SEED, 2, i));
    for (uint64_t i = 0; i < 2 * ROW; i++) bias[i] = osh_rng_sym(SEED, 3, i);
    if (c->nan) x[c->k + 1] = 0x7fc1; // row 1 of x is in blocks 0 and 1
    for (int k = 0; k < 2; k++)
        for (int64_t p = 0; p < c->n; p += 16)
            osh_pairs_pack_rows(room[k] + p / 16 * osh_pairs_panel(c->k), w[k] + p * c->k, c->k,
                                c->n - p < 16 ? c->n - p : 16, c->k);
    memset(want, 0xA5, sizeof want), memset(got, 0xA5, sizeof got);
    flow_blocks(c, b, x, packed, bias, got);
    osh_flow_begin(&f);
    for (int i = 0; i < BLOCKS; i++) flow_expected(&b[i], want + i * OSH_PAIRS_BAND * ROW);
    for (int i = 0; i < BLOCKS; i++) osh_flow_add(&f, &b[i]);
    osh_flow_end(&f);
    assert_int_equal(f.bad, c->nan);
    if (!(c->nan && c->gated)) assert_memory_equal(got, want, sizeof want);
}

/* Adds products to a matrix in two ways, by a flow (pairs_flow.h) and by osh_pairs_add_rows, and
 * compares the sums. If `more` is 0, each row has n columns. Otherwise row 0 has one column, and
 * each later row has `more` columns more than the row before it. */
static void added_case_run(int64_t m, int64_t n, int64_t more)
{
    enum { K = 96, SIZE = BLOCKS * OSH_PAIRS_BAND * ROW };
    static uint16_t x[OSH_PAIRS_BAND * K], w[ROW * K];
    static uint32_t room[2 * 16 * K / 2], rows[2 * 16 * K / 2];
    static float want[SIZE], got[SIZE], sums[OSH_PAIRS_BAND * ROW];
    int64_t each = osh_pairs_panel(K);
    osh_pairs_b b = {room, (n + 15) / 16, K, each, true};
    osh_flow f;

    for (uint64_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = osh_bf16_of_f32(osh_rng_sym(SEED, 1, i));
    for (uint64_t i = 0; i < sizeof w / sizeof *w; i++)
        w[i] = osh_bf16_of_f32(osh_rng_sym(SEED, 2, i));
    for (int i = 0; i < SIZE; i++) want[i] = got[i] = (float)i;
    for (int64_t p = 0; p < n; p += 16)
        osh_pairs_pack_rows(room + p / 16 * each, w + p * K, K, n - p < 16 ? n - p : 16, K);
    osh_pairs_a a = osh_pairs_rows(rows, x, K, m, K);
    osh_pairs_begin();
    osh_pairs_product(sums, ROW, a, m, b);
    osh_flow_begin(&f);
    for (int i = 0; i < BLOCKS; i++) {
        int64_t at = i * OSH_PAIRS_BAND * ROW;
        osh_pairs_add_rows((osh_pairs_sums){want + at, ROW}, (osh_pairs_sums){sums, ROW}, m,
                           more ? 1 : n, more);
        osh_flow_add(&f, &(osh_flow_block){.a = a, .m = m, .b = b, .ld = ROW, .added = got + at,
                                           .n = more ? 1 : n, .more = more});
    }
    osh_flow_end(&f);
    assert_memory_equal(got, want, sizeof want);
}

static void test_added(void **state)
{
    (void)state;
    added_case_run(32, 32, 0), added_case_run(17, 20, 0), added_case_run(5, 7, 0);
    added_case_run(32, 32, 1), added_case_run(20, 20, 1), added_case_run(3, 16, 1);
}

static void test_flow(void **state)
{
    static const flow_case cases[] = {
        {32, 32, 64, false, false, false}, {32, 32, 96, true, false, false},
        {17, 20, 97, true, false, false},  {5, 16, 33, false, false, false},
        {16, 7, 32, true, false, false},   {20, 32, 64, true, false, true},
        {32, 32, 64, false, true, false},  {32, 32, 96, true, true, false},
        {17, 20, 97, true, true, false},   {5, 16, 33, false, true, false},
        {32, 32, 64, true, true, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!cases[i].gated || osh_pairs_used()) flow_case_run(&cases[i]);
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

/* Runs an op with a finite input and with a NaN in the input. With the NaN, the kernel must not set
 * osh_op_args.finite. Without the NaN, the kernel may set it, and must set it with AVX-512 BF16. */
static void finite_case(osh_ctx *cx, const osh_op *op, osh_op_args a)
{
    bool finite = false;
    uint16_t *x = (uint16_t *)a.in[0]->data;
    a.finite = &finite;
    assert_int_equal(op->run[OSH_CPU](cx, &a), OSH_OK);
    if (osh_isa_used() >= OSH_ISA_AVX512_BF16) assert_true(finite);
    finite = false, x[5] = 0x7fc0;
    assert_int_equal(op->run[OSH_CPU](cx, &a), OSH_OK);
    assert_false(finite);
    x[5] = 0x3f80;
}

static void test_finite(void **state)
{
    enum { ROWS = 80, WIDTH = 64 };
    osh_ctx *cx = NULL;
    (void)state;
    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    guarded x = guarded_new(cx, OSH_BF16, 2, ROWS, WIDTH),
            y = guarded_new(cx, OSH_BF16, 2, ROWS, WIDTH),
            w = guarded_new(cx, OSH_BF16, 2, WIDTH, WIDTH),
            n = guarded_new(cx, OSH_BF16, 1, WIDTH, 0);
    osh_attention_attr attend = {4, 4, 16, 0, 0};
    osh_rms_norm_attr norm = {.eps = 1e-5};
    guarded_fill(&x, 1, 1), guarded_fill(&w, 2, 1), guarded_fill(&n, 3, 1);
    finite_case(cx, &osh_op_linear, (osh_op_args){.in = {&x.t, &w.t}, .out = {&y.t}});
    finite_case(cx, &osh_op_add, (osh_op_args){.in = {&x.t, &x.t}, .out = {&y.t}});
    finite_case(cx, &osh_op_rms_norm,
                (osh_op_args){.in = {&x.t, &n.t}, .out = {&y.t}, .attr = &norm});
    finite_case(cx, &osh_op_attention,
                (osh_op_args){.in = {&x.t, &x.t, &x.t}, .out = {&y.t}, .attr = &attend});
    guarded_check(&y);
    guarded_free(cx, &x), guarded_free(cx, &y), guarded_free(cx, &w), guarded_free(cx, &n);
    osh_ctx_free(cx);
}

/* On a CPU without instructions for pairs of BF16 numbers, these cases test the loops in C. */
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_flow),
                                       cmocka_unit_test(test_added), cmocka_unit_test(test_gated),
                                       cmocka_unit_test(test_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
