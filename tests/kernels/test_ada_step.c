/* test_ada_step.c - compares learners on a GPU with learners on the host (solver/ada.h). If two
 * learners get the same gradients, the weights, codes, scales and zero points of AutoRound are
 * equal after each step. AdaRound and AdaQuant differ only where exp, log or a sum round
 * differently. Also tests the gradient of the loss of a block. */
#include "kernel_test.h"

#include "base/rng.h"
#include "on_gpu.h"
#include "solver/ada.h"

enum { STEPS = 5, BOTH = 2 };

typedef struct ada_case {
    osh_dtype dtype; // dtype of the weight
    int64_t O, I, group, row_block;
    int bits;
    bool floats, zeros, is_signed, moves, keep_zeros;
    osh_scale_kind kind;
    osh_ada_kind by;
} ada_case;

static bool case_is_exact(const ada_case *c) { return c->by == OSH_ADA_SIGN; }

static float case_number(int64_t k, int64_t i)
{
    return (float)(osh_rng_u64(SEED, (uint64_t)k, (uint64_t)i) >> 40) / (float)(1 << 24) - 0.5f;
}

typedef struct ada_side { // a learner, and what it reads and writes
    osh_ada_learner *l;
    osh_ada_args a;
    osh_tensor *to; // the weight, on the device or in host memory
} ada_side;

/* Sets the scales and the codes of a side as rounding to nearest does. */
static void side_round(const ada_side *s, const float *w)
{
    const osh_ada_args *a = &s->a;
    int64_t across = osh_div_up(a->I, a->group);
    for (int64_t r = 0; r < osh_div_up(a->O, a->row_block); r++)
        for (int64_t g = 0; g < across; g++) {
            float lo = 0, hi = 0, zero;
            for (int64_t o = r * a->row_block; o < osh_min64(a->O, (r + 1) * a->row_block); o++)
                for (int64_t i = g * a->group; i < osh_min64(a->I, (g + 1) * a->group); i++)
                    lo = fminf(lo, w[o * a->I + i]), hi = fmaxf(hi, w[o * a->I + i]);
            a->scale[r * across + g] = osh_scale_of(&zero, &a->scales, 1, lo, hi);
            if (a->zero)
                a->zero[r * across + g] = fminf(fmaxf(zero, a->scales.grid.lo), a->scales.grid.hi);
        }
    for (int64_t i = 0; i < a->O * a->I; i++)
        a->codes[i] = osh_grid_code(&a->scales.grid, (float)(i % 3 - 1));
}

static void side_init(osh_ctx *cx, ada_side *s, const ada_case *c, const osh_tensor *w,
                      const float *values, osh_device *d)
{
    int64_t across = osh_div_up(c->I, c->group), n = osh_div_up(c->O, c->row_block) * across;
    s->a = (osh_ada_args){
        .rule = {.kind = c->by, .steps = STEPS, .rate = case_is_exact(c) ? 0.3 : 0.05,
                 .scale_rate = !c->moves ? 0 : case_is_exact(c) ? 0.3 : 0.05,
                 .signed_scales = c->is_signed, .whole_range = true,
                 .reg = 0.3, .from = 20, .to = 2, .warm = 0.3},
        .w = w, .O = c->O, .I = c->I, .group = c->group, .row_block = c->row_block,
        .keep_zeros = c->keep_zeros, .period = 1,
        .scales = {.grid = osh_grid_of(c->bits, c->floats), .symmetric = !c->zeros,
                   .dtype = w->dtype, .kind = c->kind, .global = 96}};
    s->a.codes = osh_calloc(cx, (size_t)(c->O * c->I), 1);
    s->a.scale = osh_calloc(cx, (size_t)n, sizeof(float));
    if (c->zeros) s->a.zero = osh_calloc(cx, (size_t)n, sizeof(float));
    side_round(s, values);
    assert_int_equal(osh_tensor_new_on(cx, &s->to, (osh_where){d, OSH_LIFE_LONG}, w->dtype, 2,
                                       w->shape), OSH_OK);
    size_t before = d ? osh_arena_used(d->arena) : 0;
    assert_int_equal(osh_ada_learner_new(cx, &s->l, &s->a, d), OSH_OK);
    osh_ada_memory said = osh_ada_learner_bytes(&s->a, 1, d, w->dtype);
    if (d) assert_int_equal(osh_arena_used(d->arena) - before, said.device);
}

static void side_deinit(osh_ctx *cx, ada_side *s)
{
    osh_ada_learner_free(cx, s->l);
    osh_tensor_free(cx, s->to);
    osh_free(cx, s->a.codes), osh_free(cx, s->a.scale), osh_free(cx, s->a.zero);
}

/* Passes the gradient to the learner of a side: directly, or in two parts. */
static void side_add(osh_ctx *cx, ada_side *s, const osh_tensor *dw, bool parts)
{
    osh_tensor *to = osh_ada_learner_place(s->l), *own = NULL;
    osh_device *d = s->to->device;
    for (int k = 0; k < (parts ? 2 : 1); k++) {
        if (k || !to || parts) {
            assert_int_equal(osh_tensor_new_on(cx, &own, (osh_where){d, OSH_LIFE_SHORT}, OSH_F32, 2,
                                               dw->shape), OSH_OK);
            to = own;
        }
        assert_int_equal(osh_tensor_copy(cx, to, dw), OSH_OK);
        assert_int_equal(osh_ada_learner_add(cx, s->l, to), OSH_OK);
        osh_tensor_free(cx, own), own = NULL;
    }
}

/* Fails if the weights of the two sides differ. A 0 may have either sign. If `exact` is false, few
 * weights may differ, as a code may change between two values. */
static void sides_compare(osh_ctx *cx, const ada_side *s, bool exact, const char *when, int64_t t)
{
    int64_t n = osh_tensor_numel(s[0].to), others = 0;
    osh_tensor *got = NULL;
    assert_int_equal(osh_tensor_new(cx, &got, s[0].to->dtype, 2, s[0].to->shape), OSH_OK);
    assert_int_equal(osh_tensor_copy(cx, got, s[1].to), OSH_OK);
    for (int64_t i = 0; i < n; i++) {
        float x = osh_tensor_at(got, i), y = osh_tensor_at(s[0].to, i);
        if (exact ? x == y : fabsf(x - y) <= 1e-5f + fabsf(y) / 100) continue;
        if (exact || ++others > n / 100)
            fail_msg("%s %ld: weight %ld is %.9g on the GPU, %.9g on the host", when, (long)t,
                     (long)i, x, y);
    }
    osh_tensor_free(cx, got);
}

static void sides_compare_results(const ada_side *s, const ada_case *c)
{
    int64_t n = osh_div_up(c->O, c->row_block) * osh_div_up(c->I, c->group), used = 0, others = 0;
    for (int64_t i = 0; i < c->O * c->I; i++) others += s[0].a.codes[i] != s[1].a.codes[i];
    assert_true(others <= (case_is_exact(c) ? 0 : c->O * c->I / 100));
    for (int64_t i = 0; i < n; i++)
        assert_true(fabsf(s[0].a.scale[i] - s[1].a.scale[i]) <=
                    (case_is_exact(c) ? 0 : 1e-4f * fabsf(s[0].a.scale[i])));
    if (c->zeros) assert_memory_equal(s[0].a.zero, s[1].a.zero, (size_t)n * sizeof(float));
    for (int64_t i = 0; i < c->O * c->I; i++) used += s[0].a.codes[i] != 0;
    assert_true(used > c->O * c->I / 2);
}

/* Compares the two weights that a learner can show, and the rounding terms of AdaRound. */
static void sides_compare_shown(osh_ctx *cx, const ada_side *s, const ada_case *c)
{
    for (int learned = c->by == OSH_ADA_SIGN && c->is_signed; learned < 2; learned++) {
        for (int k = 0; k < BOTH; k++)
            assert_int_equal(osh_ada_learner_show(cx, s[k].l, learned, s[k].to), OSH_OK);
        sides_compare(cx, s, case_is_exact(c) || !learned, learned ? "learned" : "nearest", 0);
    }
    double a = osh_ada_learner_term(s[0].l, STEPS - 1), b = osh_ada_learner_term(s[1].l, STEPS - 1);
    assert_true(c->by == OSH_ADA_ROUND ? a > 0 && fabs(a - b) <= 1e-4 * a : a == 0 && b == 0);
}

static void learner_case(osh_ctx *cx, osh_device *d, const ada_case *c)
{
    ada_side s[BOTH] = {{0}};
    int64_t shape[2] = {c->O, c->I}, n = c->O * c->I;
    osh_tensor *w = NULL, *dw = NULL;
    float *x = osh_calloc(cx, (size_t)n, sizeof *x);
    assert_int_equal(osh_tensor_new(cx, &w, c->dtype, 2, shape), OSH_OK);
    assert_int_equal(osh_tensor_new(cx, &dw, OSH_F32, 2, shape), OSH_OK);
    for (int64_t i = 0; i < n; i++) x[i] = i % 11 ? case_number(0, i) : 0;
    osh_from_f32(w->data, c->dtype, x, n), osh_to_f32(x, w->data, c->dtype, n);
    for (int k = 0; k < BOTH; k++) {
        side_init(cx, &s[k], c, w, x, k ? d : NULL);
        assert_int_equal(osh_ada_learner_step(cx, s[k].l, -1, s[k].to), OSH_OK);
    }
    sides_compare(cx, s, case_is_exact(c), "before the first step", 0);
    for (int64_t t = 0; t < STEPS; t++) {
        for (int64_t i = 0; i < n; i++) ((float *)dw->data)[i] = case_number(t + 1, i);
        for (int k = 0; k < BOTH; k++) {
            if (t != 2) side_add(cx, &s[k], dw, t == 1); // step 2 has no gradient
            assert_int_equal(osh_ada_learner_step(cx, s[k].l, t, s[k].to), OSH_OK);
        }
        sides_compare(cx, s, case_is_exact(c), "step", t);
    }
    sides_compare_shown(cx, s, c);
    for (int k = 0; k < BOTH; k++)
        assert_int_equal(osh_ada_learner_end(cx, s[k].l, s[k].to), OSH_OK);
    sides_compare(cx, s, case_is_exact(c), "at the end", 0);
    sides_compare_results(s, c);
    for (int k = 0; k < BOTH; k++) side_deinit(cx, &s[k]);
    osh_tensor_free(cx, w), osh_tensor_free(cx, dw), osh_free(cx, x);
}

static void test_learners(void **state)
{
    static const ada_case cases[] = {
        {OSH_BF16, 5, 96, 32, 1, 4, .is_signed = true, .moves = true, .by = OSH_ADA_SIGN},
        {OSH_F32, 3, 96, 32, 1, 4, .zeros = true, .moves = true, .by = OSH_ADA_SIGN},
        {OSH_BF16, 9, 77, 77, 1, 8, .zeros = true, .moves = true, .by = OSH_ADA_SIGN},
        {OSH_F16, 3, 100, 40, 1, 3, .moves = true, .keep_zeros = true, .by = OSH_ADA_SIGN},
        {OSH_F32, 2, 70, 70, 1, 2, .is_signed = true, .moves = true, .by = OSH_ADA_SIGN},
        {OSH_F64, 2, 64, 64, 1, 4, .is_signed = true, .by = OSH_ADA_SIGN},
        {OSH_BF16, 6, 40, 40, 4, 4, .zeros = true, .by = OSH_ADA_SIGN},
        {OSH_BF16, 4, 64, 16, 1, 4, .floats = true, .moves = true, .kind = OSH_SCALE_E4M3,
         .by = OSH_ADA_SIGN},
        {OSH_BF16, 2, 64, 32, 1, 4, .floats = true, .kind = OSH_SCALE_E8M0, .by = OSH_ADA_SIGN},
        {OSH_F32, 2, 48, 48, 1, 8, .floats = true, .by = OSH_ADA_SIGN},
        {OSH_BF16, 3, 96, 32, 1, 4, .by = OSH_ADA_ROUND},
        {OSH_F32, 3, 77, 40, 1, 4, .zeros = true, .keep_zeros = true, .by = OSH_ADA_ROUND},
        {OSH_F16, 4, 64, 16, 1, 4, .floats = true, .kind = OSH_SCALE_E4M3, .by = OSH_ADA_ROUND},
        {OSH_BF16, 3, 96, 32, 1, 4, .moves = true, .by = OSH_ADA_QUANT},
        {OSH_F32, 3, 77, 40, 1, 4, .zeros = true, .moves = true, .keep_zeros = true,
         .by = OSH_ADA_QUANT},
        {OSH_F32, 4, 64, 64, 1, 8, .floats = true, .moves = true, .by = OSH_ADA_QUANT},
    };
    osh_ctx *cx = NULL;
    (void)state;
    assert_int_equal(osh_ctx_new(&cx, 1), 0);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    if (d) gpu_protect();
    for (int k = 0; d && k < gpu_orders(); k++) {
        gpu_order(k);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) learner_case(cx, d, &cases[i]);
    }
    osh_device_close(cx, d);
    osh_ctx_free(cx);
}

/* counts: true if only some rows count. */
static void compare_case(osh_ctx *cx, osh_device *d, osh_dtype dtype, bool counts)
{
    enum { ROWS = 19, WIDTH = 70 };
    const int64_t shape[2] = {ROWS, WIDTH};
    double sums[ROWS];
    int8_t mask[ROWS];
    osh_tensor *y[2] = {NULL}, *dy = NULL;
    gpu_copy_of on[3], rows, mask_on;
    osh_tensor sum = osh_tensor_view(OSH_F64, 1, (int64_t[]){ROWS}, sums),
               counted = osh_tensor_view(OSH_I8, 1, (int64_t[]){ROWS}, mask);
    for (int r = 0; r < ROWS; r++) mask[r] = !counts || r % 3 != 1;
    mask_on = gpu_put(cx, d, &counted);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(osh_tensor_new(cx, &y[k], dtype, 2, shape), OSH_OK);
        for (int64_t i = 0; i < ROWS * WIDTH; i++) {
            float x = case_number(k, i);
            osh_from_f32(osh_elem(y[k], i), dtype, &x, 1);
        }
        on[k] = gpu_put(cx, d, y[k]);
    }
    assert_int_equal(osh_tensor_new(cx, &dy, OSH_F32, 2, shape), OSH_OK);
    on[2] = gpu_put(cx, d, dy), rows = gpu_put(cx, d, &sum);
    osh_ada_compared c = {&on[0].t, &on[1].t, 0.37, &on[2].t, rows.t.data,
                          counts ? mask_on.t.data : NULL};
    assert_int_equal(osh_ada_there_compare(cx, &c), OSH_OK);
    gpu_take(cx, &sum, &rows), gpu_take(cx, dy, &on[2]), gpu_take(cx, NULL, &mask_on);
    for (int k = 0; k < 2; k++) gpu_take(cx, NULL, &on[k]);
    for (int64_t r = 0; r < ROWS; r++) {
        double want = 0;
        for (int64_t i = r * WIDTH; i < (r + 1) * WIDTH; i++) {
            float e = mask[r] ? osh_tensor_at(y[0], i) - osh_tensor_at(y[1], i) : 0;
            want += (double)e * e;
            assert_true(((const float *)dy->data)[i] == (float)(0.37 * e));
        }
        assert_true(fabs(sums[r] - want) <= 1e-12 * want);
    }
    osh_tensor_free(cx, y[0]), osh_tensor_free(cx, y[1]), osh_tensor_free(cx, dy);
}

static void test_compare(void **state)
{
    osh_ctx *cx = NULL;
    (void)state;
    assert_int_equal(osh_ctx_new(&cx, 1), 0);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    for (int k = 0; d && k < 6; k++)
        compare_case(cx, d, (osh_dtype[]){OSH_BF16, OSH_F16, OSH_F32}[k / 2], k % 2);
    osh_device_close(cx, d);
    osh_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_learners),
                                       cmocka_unit_test(test_compare)};
    int rc = pin_isa();
    return rc ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
