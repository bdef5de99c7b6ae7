/* test_prune.c - compares prune_solve with its reference, on the CPU and on a GPU. Also compares
 * masks with a sort, and tests that GPTQ keeps the zeros of a pruned weight. */
#include "on_gpu.h"
#include "gptq_hessian.h"
#include "solver/gptq_solve.h"
#include "solver/prune.h"

typedef struct prune_problem {
    int64_t O, I, block;
    double sparsity;
    int64_t n, m;
    bool keep, identity;
    int zeros; // weights whose index is a multiple of this are 0 before the test; 0: none
} prune_problem;

static const prune_problem problems[] = {
    {1, 1, 128, 0.5},
    {7, 7, 3, 0.3},
    {70, 129, 128, 0.5},
    {129, 130, 32, 0.75, .zeros = 5},
    {129, 130, 32, 0.5, .keep = true, .zeros = 5},
    {129, 130, 32, 0.1, .keep = true, .zeros = 11}, // some blocks already have more zeros than
                                                    // `sparsity` asks for
    {65, 64, 16, 0.5, .identity = true},
    {65, 128, 128, 0, .n = 2, .m = 4},
    {3, 96, 32, 0, .n = 5, .m = 8},
    {65, 128, 64, 0, .n = 1, .m = 4, .keep = true, .zeros = 3},
    {130, 256, 128, 0, .n = 2, .m = 4, .zeros = 7},
};

static void fill(float *w, const prune_problem *p)
{
    for (int64_t i = 0; i < p->O * p->I; i++)
        w[i] = p->zeros && i % p->zeros == 0 ? 0 : osh_rng_sym(SEED, 30, (uint64_t)i);
}

static void check_mask(const prune_problem *p, const float *w, const float *was)
{
    int64_t zeros = 0;
    for (int64_t i = 0; i < p->O * p->I; i++) {
        zeros += w[i] == 0;
        if (p->keep && was[i] == 0) assert_true(w[i] == 0);
    }
    for (int64_t i = 0; p->m && i < p->O * p->I; i += p->m) {
        int64_t n = 0;
        for (int64_t k = 0; k < p->m; k++) n += w[i + k] == 0;
        assert_true(n >= p->n);
    }
    if (!p->m)
        assert_true((double)zeros >=
                    p->sparsity * (double)(p->O * p->I) - (double)(p->I / p->block + 1));
}

static void test_solve(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), 0);
    for (size_t k = 0; k < sizeof problems / sizeof *problems; k++) {
        const prune_problem *p = &problems[k];
        size_t n = (size_t)(p->O * p->I), differ = 0;
        float *w[3], *was = osh_alloc(cx, n * 4), *u = osh_alloc(cx, (size_t)(p->I * p->I) * 4);
        double *loss = osh_alloc(cx, (size_t)p->O * 8), sum[3] = {0}, err = 0, all = 0;
        make_hessian(u, p->I);
        osh_tensor t = osh_tensor_view(OSH_F32, 2, (int64_t[]){p->I, p->I}, u);
        osh_op_args f = {.out = {&t}};
        assert_int_equal(osh_op_run(cx, &osh_op_gptq_factor, &f), OSH_OK);
        fill(was, p);
        for (int i = 0; i < 3; i++) {
            osh_ctx *c = NULL;
            assert_int_equal(osh_ctx_new(&c, i == 2 ? 3 : 1), 0);
            w[i] = osh_alloc(cx, n * 4);
            memcpy(w[i], was, n * 4);
            osh_prune_solve_args a = {.w = w[i], .u = p->identity ? NULL : u, .O = p->O, .I = p->I,
                                      .block_size = p->block, .sparsity = p->sparsity, .n = p->n,
                                      .m = p->m, .keep = p->keep, .loss = loss};
            assert_int_equal((i ? osh_prune_solve : osh_prune_solve_ref)(c, &a), OSH_OK);
            if (i) assert_true(osh_mem_peak(c) <= osh_prune_solve_bytes(&a, i == 2 ? 3 : 1));
            osh_ctx_free(c);
            for (int64_t o = 0; o < p->O; o++) sum[i] += loss[o];
            check_mask(p, w[i], was);
        }
        for (size_t i = 0; i < n; i++) {
            double d = (double)w[1][i] - w[0][i];
            differ += (w[1][i] == 0) != (w[0][i] == 0);
            err += d * d, all += (double)w[0][i] * w[0][i];
        }
        /* After each block, the kernel adds errors in f32, and the reference adds them in double.
         * So the order of two nearly equal scores may differ. This happens once in many thousands
         * of scores. */
        if (differ > n / 2000 || err > (differ ? 1e-4 : 1e-10) * all)
            fail_msg("case %zu: %zu other zeros, NMSE %g", k, differ, err / all);
        assert_true(fabs(sum[1] - sum[0]) <= 1e-3 * sum[0] + 1e-12);
        assert_memory_equal(w[1], w[2], n * 4);
        for (int i = 0; i < 3; i++) osh_free(cx, w[i]);
        osh_free(cx, was), osh_free(cx, u), osh_free(cx, loss);
    }
    osh_ctx_free(cx);
}

/* Prunes the weight w with the reference, and writes the pruned weight to `want`. Before this, the
 * columns of `dead` are set to 0. Returns the sum of the losses. */
static double prune_by_reference(osh_ctx *cx, float *want, const osh_tensor *w, const bool *dead,
                                 osh_prune_solve_args a)
{
    double sum = 0;
    osh_to_f32(want, w->data, w->dtype, a.O * a.I);
    for (int64_t i = 0; i < a.O * a.I; i++)
        if (dead[i % a.I]) want[i] = 0;
    a.w = want;
    assert_int_equal(osh_prune_solve_ref(cx, &a), OSH_OK);
    for (int64_t o = 0; o < a.O; o++) sum += a.loss[o];
    return sum;
}

/* Prunes w [O, I] on the GPU and copies the pruned weight to `got`. If `place` is true, the pruned
 * weight overwrites the copy of w on the GPU. */
static void prune_there(osh_ctx *cx, osh_device *d, osh_tensor *got, const osh_tensor *w,
                        const bool *dead, osh_prune_solve_args a, bool place)
{
    osh_tensor host_u = osh_tensor_view(OSH_F32, 2, (int64_t[]){a.I, a.I}, (float *)a.u), out;
    gpu_copy_of on = gpu_put(cx, d, w), u = gpu_put(cx, d, &host_u);
    size_t before = osh_arena_used(d->arena), peak = osh_arena_peak(d->arena);
    osh_tensor *left; // own
    a.u = u.t.data;
    osh_prune_there x = {&a, &on.t, place ? &on.t : NULL, got->data, dead};
    assert_true(osh_prune_takes_device(&a));
    assert_int_equal(osh_gptq_column_of(d)->prune(cx, d, &x), OSH_OK);
    assert_int_equal(osh_arena_used(d->arena), before);
    if (osh_arena_peak(d->arena) > peak)
        assert_true(osh_arena_peak(d->arena) <= before + osh_prune_solve_device_bytes(&a));
    assert_int_equal(osh_tensor_new(cx, &left, w->dtype, 2, w->shape), OSH_OK);
    out = *left;
    gpu_take(cx, &out, &on), gpu_take(cx, &host_u, &u);
    assert_memory_equal(out.data, (place ? got : w)->data, osh_tensor_bytes(w));
    osh_tensor_free(cx, left);
}

static void there_case(osh_ctx *cx, osh_device *d, const prune_problem *p, osh_dtype dt,
                       bool place)
{
    size_t n = (size_t)(p->O * p->I), differ = 0;
    float *was = osh_alloc(cx, n * 4), *want = osh_alloc(cx, n * 4), *have = osh_alloc(cx, n * 4),
          *u = osh_alloc(cx, (size_t)(p->I * p->I) * 4);
    double *loss = osh_alloc(cx, (size_t)p->O * 8), err = 0, all = 0;
    bool *dead = osh_calloc(cx, (size_t)p->I, 1);
    osh_tensor *w, *got[2]; // own
    osh_tensor t = osh_tensor_view(OSH_F32, 2, (int64_t[]){p->I, p->I}, u);
    osh_op_args f = {.out = {&t}};
    dead[p->I / 2] = p->I > 8;
    make_hessian(u, p->I);
    assert_int_equal(osh_op_run(cx, &osh_op_gptq_factor, &f), OSH_OK);
    assert_int_equal(osh_tensor_new(cx, &w, dt, 2, (int64_t[]){p->O, p->I}), OSH_OK);
    fill(was, p);
    osh_from_f32(w->data, dt, was, (int64_t)n);
    osh_prune_solve_args a = {.u = u, .O = p->O, .I = p->I, .block_size = p->block,
                              .sparsity = p->sparsity, .n = p->n, .m = p->m, .loss = loss};
    double sum = prune_by_reference(cx, want, w, dead, a);
    for (int k = 0; k < gpu_orders(); k++) {
        double now = 0;
        gpu_order(k);
        assert_int_equal(osh_tensor_new(cx, &got[k], dt, 2, w->shape), OSH_OK);
        prune_there(cx, d, got[k], w, dead, a, place);
        for (int64_t o = 0; o < p->O; o++) now += loss[o];
        assert_true(fabs(now - sum) <= 1e-3 * sum + 1e-12);
        assert_memory_equal(got[k]->data, got[0]->data, osh_tensor_bytes(w));
    }
    osh_to_f32(have, got[0]->data, dt, (int64_t)n);
    check_mask(p, have, was);
    for (size_t i = 0; i < n; i++) {
        double x = (double)have[i] - want[i];
        differ += (have[i] == 0) != (want[i] == 0);
        err += x * x, all += (double)want[i] * want[i];
    }
    if (differ > n / 2000 || err > (differ ? 1e-4 : dt == OSH_F32 ? 1e-10 : 1e-5) * all)
        fail_msg("[%ld, %ld] on the GPU: %zu other zeros, NMSE %g", (long)p->O, (long)p->I, differ,
                 err / all);
    for (int k = 0; k < gpu_orders(); k++) osh_tensor_free(cx, got[k]);
    osh_tensor_free(cx, w);
    osh_free(cx, was), osh_free(cx, want), osh_free(cx, have), osh_free(cx, u);
    osh_free(cx, loss), osh_free(cx, dead);
}

/* Prunes on the GPU. The result is that of the reference except for rounding, and does not depend
 * on the order of the threads. The scratch is not larger than predicted. */
static void test_solve_on_gpu(void **state)
{
    (void)state;
    static const prune_problem more[] = {
        {300, 260, 128, 0.5},
        {9, 1030, 1024, 0.25}, // the widest block: 1024 columns
        {40, 192, 128, 0, .n = 40, .m = 64},
    };
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), 0);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    for (size_t k = 0; d && k < sizeof problems / sizeof *problems; k++)
        if (!problems[k].keep && !problems[k].identity)
            there_case(cx, d, &problems[k], k % 2 ? OSH_BF16 : OSH_F32, k % 3 == 0);
    for (size_t k = 0; d && k < sizeof more / sizeof *more; k++)
        there_case(cx, d, &more[k], OSH_BF16, true);
    osh_prune_solve_args wide = {.O = 8, .I = 2048, .block_size = 1025};
    assert_false(osh_prune_takes_device(&wide));
    wide.block_size = 128, wide.keep = true;
    assert_false(osh_prune_takes_device(&wide));
    osh_device_close(cx, d);
    osh_ctx_free(cx);
}

/* Prunes the row 1 -4 2 8 5 -5 7 6 by scores. A score is |element| times the square root of the
 * column's importance (9 1 1 1 ...). So the first scores are 3 4 2 8. */
static void test_rows(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 2), 0);
    static const float row[8] = {1, -4, 2, 8, 5, -5, 7, 6}, weight[8] = {9, 1, 1, 1, 1, 1, 1, 1};
    static const struct { double s; int64_t n, m; bool weigh; float want[8]; } cases[] = {
        // the scores of 5 and -5 are equal, and the first of them is pruned
        {0.5, 0, 0, false, {0, 0, 0, 8, 0, -5, 7, 6}},
        {0.5, 0, 0, true, {0, 0, 0, 8, 0, -5, 7, 6}},
        {0.13, 0, 0, true, {1, -4, 0, 8, 5, -5, 7, 6}}, // 8 times 0.13 is a bit more than 1, so one
                                                        // of the 8 elements is pruned
        {0, 2, 4, true, {0, -4, 0, 8, 0, 0, 7, 6}},
        {0, 1, 2, false, {0, -4, 0, 8, 0, -5, 7, 0}},
        {0, 0, 0, false, {1, -4, 2, 8, 5, -5, 7, 6}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        float w[40 * 8];
        for (int i = 0; i < 40 * 8; i++) w[i] = row[i % 8];
        assert_int_equal(osh_prune_rows(cx, w, cases[k].weigh ? weight : NULL, 40, 8,
                                        (osh_prune_share){cases[k].s, cases[k].n, cases[k].m}),
                         OSH_OK);
        for (int i = 0; i < 40 * 8; i++)
            if (w[i] != cases[k].want[i % 8])
                fail_msg("case %zu, element %d: %g", k, i, (double)w[i]);
    }
    float all[16] = {1, -4, 2, 8, 5, -5, 7, 6, 3, 3, 3, 3, 9, 9, 9, 9};
    /* The fourth smallest element is 3, so all four elements with the value 3 become zeros. */
    assert_int_equal(osh_prune_all(cx, all, 2, 8, 0.25), OSH_OK);
    static const float want[16] = {0, -4, 0, 8, 5, -5, 7, 6, 0, 0, 0, 0, 9, 9, 9, 9};
    assert_memory_equal(all, want, sizeof all);
    osh_ctx_free(cx);
}

/* In a ternary or binary weight, most elements have the same magnitude. Pruning must not replace
 * all of them by 0, and must replace about the same fraction in every row. SparseGPT must do the
 * same if it prunes by magnitude. */
static void test_equal_magnitudes(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    enum { O = 8, I = 24 };
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 2), 0);
    for (int way = 0; way < 8; way++) {
        double sparsity = way & 4 ? 0.95 : 0.5;
        float w[O * I];
        double loss[O] = {0};
        for (int i = 0; i < O * I; i++)
            w[i] = (way & 1) && i % 3 == 0 ? 0 : i % 2 ? -0.5f : 0.5f;
        if (way & 2)
            assert_int_equal(osh_prune_solve(cx, &(osh_prune_solve_args){.w = w,
                                                                         .O = O,
                                                                         .I = I,
                                                                         .block_size = I,
                                                                         .sparsity = sparsity,
                                                                         .loss = loss}),
                             OSH_OK);
        else assert_int_equal(osh_prune_all(cx, w, O, I, sparsity), OSH_OK);
        int zeros = 0, want = (int)(O * I * sparsity) + (way & 2 ? 1 : 0);
        for (int r = 0; r < O; r++) {
            int in_row = 0;
            for (int i = 0; i < I; i++) in_row += w[r * I + i] == 0;
            if (abs(in_row - (int)(I * sparsity)) > 1)
                fail_msg("way %d, row %d: %d zeros", way, r, in_row);
            zeros += in_row;
        }
        assert_int_equal(zeros, want);
    }
    osh_ctx_free(cx);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static void test_kth(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    enum { N = 1000 };
    float x[N], sorted[N];
    for (int i = 0; i < N; i++)
        x[i] = osh_rng_sym(SEED, 31, (uint64_t)i / 2) * (i % 7 ? 1 : 1e-30f);
    for (int i = 0; i < N; i++) sorted[i] = fabsf(x[i]);
    qsort(sorted, N, sizeof *sorted, by_value);
    for (int k = 0; k < N; k += 13) {
        int64_t less, want = 0;
        assert_true(osh_kth(x, N, k, &less) == sorted[k]);
        while (sorted[want] < sorted[k]) want++;
        assert_int_equal(less, want);
    }
}

/* A weight that is 0 must get the code of 0, in the kernel and in the reference. The reported loss
 * must equal the loss that is computed from dW. */
static void test_keep_zeros(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    enum { O = 70, I = 96 };
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 2), 0);
    // bit 0 of `way`: the codes are asymmetric; bit 1: the columns are solved in another order
    for (int way = 0; way < 4; way++) {
        static float h[I * I], u[I * I], w[O * I], dq[2][O * I], scale[O], zero[O];
        static int8_t codes[2][O * I];
        static int32_t perm[I], col[I];
        double loss[2][O], sum = 0, want = 0;
        make_hessian(h, I);
        for (int i = 0; i < I; i++) perm[i] = way & 2 ? I - 1 - i : i;
        for (int i = 0; i < I * I; i++) u[i] = h[perm[i / I] * I + perm[i % I]];
        osh_tensor t = osh_tensor_view(OSH_F32, 2, (int64_t[]){I, I}, u);
        osh_op_args f = {.out = {&t}};
        assert_int_equal(osh_op_run(cx, &osh_op_gptq_factor, &f), OSH_OK);
        assert_int_equal(osh_gptq_mirror(cx, u, I), OSH_OK);
        for (int i = 0; i < O * I; i++) w[i] = i % 4 < 2 ? 0 : osh_rng_sym(SEED, 32, (uint64_t)i);
        for (int o = 0; o < O; o++) scale[o] = 0.13f, zero[o] = (float)(o % 5 - 2);
        osh_tensor wt = osh_tensor_view(OSH_F32, 2, (int64_t[]){O, I}, w);
        for (int k = 0; k < 2; k++) {
            osh_gptq_solve_args a = {.w = &wt, .perm = way & 2 ? perm : NULL, .codes = codes[k],
                                     .dq = dq[k], .u = u, .scale = scale,
                                     .zero = way & 1 ? zero : NULL, .col_scale = col, .O = O,
                                     .I = I, .n_scale_cols = 1, .row_block = 1, .block_size = 32,
                                     .bits = 4, .dq_dtype = OSH_F32, .loss = loss[k],
                                     .keep_zeros = true};
            assert_int_equal((k ? osh_gptq_solve : osh_gptq_solve_ref)(cx, &a), OSH_OK);
            for (int i = 0; i < O * I; i++)
                if (i % 4 < 2) assert_int_equal(codes[k][i], way & 1 ? (int)zero[i / I] : 0);
        }
        assert_memory_equal(codes[0], codes[1], sizeof codes[0]);
        for (int o = 0; o < O; o++) {
            sum += 2 * loss[1][o];
            for (int i = 0; i < I; i++)
                for (int j = 0; j < I; j++)
                    want += ((double)dq[1][o * I + i] - w[o * I + perm[i]]) *
                            h[perm[i] * I + perm[j]] *
                            ((double)dq[1][o * I + j] - w[o * I + perm[j]]);
        }
        assert_true(fabs(sum - want) <= 1e-3 * want);
    }
    osh_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_solve), cmocka_unit_test(test_solve_on_gpu),
        cmocka_unit_test(test_rows), cmocka_unit_test(test_equal_magnitudes),
        cmocka_unit_test(test_kth), cmocka_unit_test(test_keep_zeros)};
    int rc = pin_isa();
    return rc ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
