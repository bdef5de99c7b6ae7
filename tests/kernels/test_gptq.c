/* test_gptq.c - compares gptq_solve with the reference (simple loops over the columns), on the CPU
 * and on a GPU. */
#include "on_gpu.h"
#include "gptq_hessian.h"
#include "solver/gptq_solve.h"
#include "quant/format.h"

typedef struct problem {
    int64_t O, I, block;
    int bits, group; // `group`: number of columns that share a scale; 0: all columns
    bool fp8, zero, order, target;
    int64_t row_block;
    osh_dtype dq, stored; // dq: dtype of the dequantized weight; stored: dtype of the given weight
                          // (0: F32)
} problem;

typedef struct solution {
    float *w, *u, *scale, *zero, *h; // own; w: the weight, then the solution
    float *from;                     // own: the weight before the solve, as f32
    osh_tensor *start;               // own: the weight before the solve
    osh_tensor target;               // view of `from`
    int8_t *codes;
    int32_t *col, *perm;
    bool *dead;
    double *loss;
    osh_gptq_solve_args a;
} solution;

static void solution_open(osh_ctx *cx, solution *s, const problem *p)
{
    int64_t O = p->O, I = p->I, n_cols = p->group ? (I + p->group - 1) / p->group : 1,
            n_rows = (O + p->row_block - 1) / p->row_block;

    *s = (solution){.w = osh_calloc(cx, (size_t)(O * I), 4),
                    .u = osh_calloc(cx, (size_t)(I * I), 4),
                    .h = osh_calloc(cx, (size_t)(I * I), 4),
                    .scale = osh_calloc(cx, (size_t)(n_rows * n_cols), 4),
                    .zero = osh_calloc(cx, (size_t)(n_rows * n_cols), 4),
                    .codes = osh_calloc(cx, (size_t)(O * I), 1),
                    .col = osh_calloc(cx, (size_t)I, 4), .loss = osh_calloc(cx, (size_t)O, 8)};
    make_hessian(s->h, I);
    memcpy(s->u, s->h, (size_t)(I * I) * 4);
    osh_tensor t = osh_tensor_view(OSH_F32, 2, (int64_t[]){I, I}, s->u);
    osh_op_args f = {.out = {&t}};
    assert_int_equal(osh_op_run(cx, &osh_op_gptq_factor, &f), OSH_OK);
    assert_int_equal(osh_gptq_mirror(cx, s->u, I), OSH_OK);
    osh_dtype stored = p->stored ? p->stored : OSH_F32;
    assert_int_equal(osh_tensor_new(cx, &s->start, stored, 2, (int64_t[]){O, I}), OSH_OK);
    s->from = osh_calloc(cx, (size_t)(O * I), sizeof *s->from);
    for (int64_t i = 0; i < O * I; i++)
        s->from[i] = osh_rng_sym(SEED, p->target ? 24 : 20, (uint64_t)i);
    osh_from_f32(s->start->data, stored, s->from, O * I);
    osh_to_f32(s->from, s->start->data, stored, O * I);
    for (int64_t i = 0; p->target && i < O * I; i++)
        s->from[i] = osh_rng_sym(SEED, 20, (uint64_t)i);
    s->target = osh_tensor_view(OSH_F32, 2, (int64_t[]){O, I}, s->from);
    for (int64_t i = 0; i < n_rows * n_cols; i++) {
        float q_max = p->fp8 ? osh_grid_of(p->bits, true).hi : (float)(1 << (p->bits - 1));
        s->scale[i] =
            osh_round_to((0.9f + 0.1f * osh_rng_sym(SEED, 21, (uint64_t)i)) / q_max, p->dq);
        s->zero[i] = (float)(int)(osh_rng_sym(SEED, 22, (uint64_t)i) * 2.9f);
    }
    for (int64_t i = 0; i < I; i++)
        s->col[i] = p->group ? (int32_t)((p->order ? I - 1 - i : i) / p->group) : 0;
    s->a = (osh_gptq_solve_args){.w = s->start,
                                 .target = p->target ? &s->target : NULL,
                                 .dq = s->w,
                                 .codes = s->codes,
                                 .u = s->u,
                                 .scale = s->scale,
                                 .zero = p->zero ? s->zero : NULL,
                                 .col_scale = s->col,
                                 .O = O,
                                 .I = I,
                                 .n_scale_cols = n_cols,
                                 .row_block = p->row_block,
                                 .block_size = p->block,
                                 .bits = p->bits,
                                 .fp8 = p->fp8,
                                 .dq_dtype = p->dq,
                                 .loss = s->loss};
}

static void solution_close(osh_ctx *cx, solution *s)
{
    osh_free(cx, s->w), osh_free(cx, s->u), osh_free(cx, s->h), osh_free(cx, s->scale),
        osh_free(cx, s->zero);
    osh_free(cx, s->codes), osh_free(cx, s->col), osh_free(cx, s->loss);
    osh_free(cx, s->perm), osh_free(cx, s->dead), osh_free(cx, s->from);
    osh_tensor_free(cx, s->start);
}

/* Returns tr(dW H dW^T), where dW is the solution minus the original weight. */
static double solution_objective(const solution *s)
{
    int64_t n = s->a.O * s->a.I;
    float *d = malloc((size_t)n * sizeof *d); // own
    assert_non_null(d);
    for (int64_t i = 0; i < n; i++) d[i] = s->w[i] - s->from[i];
    double sum = plain_objective(d, s->h, s->a.O, s->a.I);
    free(d);
    return sum;
}

static const problem problems[] = {
    {1, 1, 128, 4, 0, .row_block = 1, .dq = OSH_F32},
    {7, 7, 3, 4, 0, .row_block = 1, .dq = OSH_F32},
    {129, 129, 128, 4, 32, .row_block = 1, .dq = OSH_BF16},
    {129, 129, 128, 4, 32, .zero = true, .row_block = 1, .dq = OSH_BF16},
    {65, 129, 128, 3, 0, .row_block = 65, .dq = OSH_F16},
    {130, 256, 128, 8, 64, .order = true, .row_block = 1, .dq = OSH_BF16},
    {70, 256, 64, 8, 128, .fp8 = true, .row_block = 32, .dq = OSH_BF16},
    {33, 130, 1000, 8, 0, .fp8 = true, .row_block = 1, .dq = OSH_F32},
    {33, 130, 1, 2, 13, .zero = true, .row_block = 1, .dq = OSH_F32},
    {192, 576, 128, 4, 64, .order = true, .row_block = 1, .dq = OSH_BF16},
    {1030, 64, 32, 4, 32, .row_block = 1, .dq = OSH_BF16},
    {100, 5, 2, 4, 0, .row_block = 1, .dq = OSH_BF16},
    {3, 127, 128, 4, 0, .row_block = 1, .dq = OSH_BF16},
    {100, 128, 65536, 8, 16, .zero = true, .row_block = 3, .dq = OSH_F16},
    {33, 70, 32, 4, 0, .row_block = 1, .dq = OSH_BF16, .stored = OSH_BF16},
    {33, 70, 32, 8, 0, .fp8 = true, .row_block = 33, .dq = OSH_F16, .stored = OSH_F16},
    {5, 70, 128, 4, 7, .row_block = 1, .dq = OSH_F32, .stored = OSH_F64},
    {33, 70, 32, 4, 7, .row_block = 1, .dq = OSH_BF16, .stored = OSH_BF16, .target = true},
    {70, 129, 128, 8, 0, .fp8 = true, .row_block = 70, .dq = OSH_F32, .target = true},
    /* NVFP4 */
    {70, 96, 128, 4, 16, .fp8 = true, .order = true, .row_block = 1, .dq = OSH_F32,
     .stored = OSH_BF16},
    {33, 70, 32, 4, 32, .fp8 = true, .row_block = 1, .dq = OSH_BF16, .target = true},
    {33, 70, 32, 6, 32, .fp8 = true, .order = true, .row_block = 1, .dq = OSH_BF16},
    {70, 120, 128, 4, 24, .zero = true, .row_block = 1, .dq = OSH_BF16},
    {70, 120, 120, 4, 24, .order = true, .zero = true, .row_block = 1, .dq = OSH_F32},
    /* Many rows: on the CPU, each tile of rows has two panels (gptq_solve.c). */
    {1100, 300, 64, 4, 64, .order = true, .row_block = 1, .dq = OSH_BF16, .stored = OSH_BF16},
    /* A block of 200 columns: more than the 128 rows of U that the CUDA kernel holds in shared
     * memory. */
    {3, 640, 200, 4, 128, .order = true, .row_block = 1, .dq = OSH_BF16},
};

/* Checks w_out, the weight that the GPU dequantized from the codes. Each element must be the value
 * of its code, rounded to the dtype of w. The columns must be in the order of the file. */
static void check_w_out(osh_ctx *cx, const osh_gptq_solve_args *a, gpu_copy_of *w_out,
                        const double *squares)
{
    osh_tensor *got = NULL;
    double err = 0, all = 0;
    assert_int_equal(osh_tensor_new(cx, &got, a->w->dtype, 2, a->w->shape), OSH_OK);
    gpu_take(cx, got, w_out);
    for (int64_t o = 0; o < a->O; o++)
        for (int64_t i = 0; i < a->I; i++) {
            int64_t at = o * a->I + (a->perm ? a->perm[i] : i);
            double was = value_at(a->w, at), is = value_at(got, at);
            osh_tensor one = osh_tensor_view(a->w->dtype, 1, (int64_t[]){1}, (double[1]){0});
            osh_from_f32(one.data, one.dtype, &a->dq[o * a->I + i], 1);
            assert_true(is == value_at(&one, 0));
            err += (was - is) * (was - is), all += was * was;
        }
    assert_true(fabs(err - squares[0]) <= 1e-9 * err && fabs(all - squares[1]) <= 1e-9 * all);
    osh_tensor_free(cx, got);
}

/* Solves all jobs in one call of gptq_solve on a GPU, with weights and factors in GPU memory. All
 * jobs share one input. But if `several` is true, jobs with different `perm` have different
 * inputs. */
static osh_status solve_inputs_on(osh_ctx *cx, osh_device *d, const osh_gptq_solve_args *jobs,
                                  int n, bool several)
{
    enum { MOST = 8 };
    osh_gptq_solve_args on[MOST];
    gpu_copy_of cw[MOST], ct[MOST];
    double squares[MOST][2];
    const osh_gptq_solve_args *a = jobs;
    gpu_copy_of cu[MOST];
    int n_inputs = 0;
    osh_gptq_group g = {.I = a->I, .block_size = a->block_size};
    for (int k = 0; k < n; k++) {
        if (!k || (several && jobs[k].perm != jobs[k - 1].perm)) {
            osh_tensor u =
                osh_tensor_view(OSH_F32, 2, (int64_t[]){a->I, a->I}, (void *)(uintptr_t)jobs[k].u);
            cu[n_inputs++] = gpu_put(cx, d, &u);
        }
        cw[k] = gpu_put(cx, d, jobs[k].w), on[k] = jobs[k];
        on[k].w = on[k].w_out = &cw[k].t, on[k].u = cu[n_inputs - 1].t.data,
        on[k].squares = squares[k];
        if (jobs[k].target) ct[k] = gpu_put(cx, d, jobs[k].target), on[k].target = &ct[k].t;
        osh_gptq_group_add(&g, jobs[k].O, jobs[k].n_scale_cols);
    }
    g.n_inputs = n_inputs;
    size_t before = osh_arena_used(d->arena), peak = osh_arena_peak(d->arena),
           said = osh_gptq_solve_device_bytes(&g, osh_arena_room(d->arena));
    osh_ctx *own = NULL; // counts the memory that the call of gptq_solve allocates
    assert_int_equal(osh_ctx_new(&own, 1), OSH_OK);
    osh_status rc = osh_gptq_column_of(d)->solve(own, d, on, n);
    assert_int_equal(osh_arena_used(d->arena), before);
    size_t now = osh_arena_peak(d->arena);
    strict(now <= peak || now == before + said, now <= before + said,
           "a solve takes what the plan says",
           "It takes less: the smallest budget that the plan names is too high.");
    size_t host = osh_mem_used_peak(own, OSH_MEM_HOST),
           host_said = osh_gptq_solve_device_host_bytes(&g);
    strict(said == osh_gptq_solve_device_bytes(&g, SIZE_MAX) ? host == host_said
                                                             : host <= host_said,
           host <= host_said + (64 << 10), "a solve takes of the host what the plan says",
           "Libraries allocate beside: --host-memory is kept with the plan's reserve.");
    osh_ctx_free(own);
    for (int k = 0; k < n; k++) {
        if (!jobs[k].packed) check_w_out(cx, &jobs[k], &cw[k], squares[k]);
        else gpu_take(cx, NULL, &cw[k]);
        if (jobs[k].target) gpu_take(cx, NULL, &ct[k]);
    }
    for (int k = 0; k < n_inputs; k++) gpu_take(cx, NULL, &cu[k]);
    return rc;
}

static osh_status solve_on(osh_ctx *cx, osh_device *d, const osh_gptq_solve_args *jobs, int n)
{
    return solve_inputs_on(cx, d, jobs, n, false);
}

/* Compares a solution with the reference. The objectives must be close, and only few codes may
 * differ. If one block has all columns, no code may differ. */
static void check_solution(const solution *ref, const solution *fast, const problem *p,
                           const char *who)
{
    int64_t n = p->O * p->I, differ = 0;
    for (int64_t i = 0; i < n; i++) differ += ref->codes[i] != fast->codes[i];
    double want = solution_objective(ref), got = solution_objective(fast);
    printf("%s: solve %ld x %ld, block %ld: %ld of %ld codes differ, objective %g, reference %g\n",
           who, (long)p->O, (long)p->I, (long)p->block, (long)differ, (long)n, got, want);
    assert_true(differ <= n / 1000);
    assert_true(got <= 1.001 * want);
    bool equal = !differ;
    /* The comparison treats +0 and -0 as equal. */
    for (int64_t i = 0; equal && i < n; i++) equal = ref->w[i] == fast->w[i];
    // one block of columns is not followed by a matrix product, so all sums are rounded as in the
    // reference
    if (p->block >= p->I)
        strict(equal, !strcmp(who, "GPU"), "one block of columns has the reference's codes",
               "The compiler contracted a multiplication and a subtraction, or a division is not "
               "rounded as IEEE 754"
               " has it: look at -fmad and -prec-div. 1 code of 1000 differs at most, the "
               "objective is the same.");
    /* In rows with equal codes, losses differ only by the rounding of matrix products. */
    double apart = 0;
    for (int64_t o = 0; o < p->O; o++)
        if (ref->loss[o] > 0 &&
            !memcmp(ref->codes + o * p->I, fast->codes + o * p->I, (size_t)p->I))
            apart = fmax(apart, fabs(fast->loss[o] / ref->loss[o] - 1));
    printf("    losses of rows differ by %.2g\n", apart);
    bool cut = !osh_play_order && !strcmp(who, "GPU"); // a tensor core truncates sums (tol_sums)
    assert_true(apart < (cut ? 6e-5 : 6e-6));
    double loss = 0, ref_loss = 0; // sums of the losses of rows; twice the sum is tr(dW H dW^T)
    for (int64_t o = 0; o < p->O; o++) loss += fast->loss[o], ref_loss += ref->loss[o];
    assert_true(fabs(loss - ref_loss) <= 1e-3 * ref_loss &&
                fabs(2 * loss - got) <= 1e-3 * got + 1e-12);
}

/* Solves on a GPU in each order of the threads, and with two sizes of the arena. The results must
 * have equal bytes. */
static void check_gpu(osh_ctx *cx, osh_device *const d[2], const problem *p, const solution *ref)
{
    solution first, s;
    solution_open(cx, &first, p);
    for (int k = 0; k < gpu_orders(); k++) {
        gpu_order(k);
        solution_open(cx, &s, p);
        assert_int_equal(solve_on(cx, d[k % 2], k ? &s.a : &first.a, 1), OSH_OK);
        if (!k) check_solution(ref, &first, p, "GPU");
        if (k) {
            assert_memory_equal(first.codes, s.codes, (size_t)(p->O * p->I));
            assert_memory_equal(first.loss, s.loss, (size_t)p->O * 8);
        }
        solution_close(cx, &s);
    }
    solution_close(cx, &first);
}

/* Tests the option `nearest` of gptq_solve, in the reference and in the kernels. With this option
 * gptq_solve writes no codes. It only computes the loss tr(dW H dW^T) of rounding to nearest, for
 * the rows that osh_gptq_judges selects. */
static void check_nearest(osh_ctx *cx, const problem *p)
{
    solution s;
    double loss[2] = {0};
    solution_open(cx, &s, p);
    memset(s.codes, 77, (size_t)(p->O * p->I));
    s.a.nearest = true;
    for (int k = 0; k < 2; k++) {
        assert_int_equal(k ? osh_gptq_solve(cx, &s.a) : osh_gptq_solve_ref(cx, &s.a), OSH_OK);
        for (int64_t o = 0; o < p->O; o++)
            if (osh_gptq_judges(p->O, o)) loss[k] += 2 * s.loss[o];
            else assert_true(s.loss[o] == 0); // rows that osh_gptq_judges does not select have the
                                              // loss 0
    }
    for (int64_t i = 0; i < p->O * p->I; i++) assert_int_equal(s.codes[i], 77);
    float most = (float)((1 << (p->bits - 1)) - 1);
    for (int64_t o = 0; o < p->O; o++)
        for (int64_t i = 0; i < p->I; i++) {
            int64_t at = o / s.a.row_block * s.a.n_scale_cols + s.a.col_scale[i];
            float scale = s.a.scale[at], zero = s.a.zero ? s.a.zero[at] : 0,
                  q = s.from[o * p->I + i] / scale;
            osh_grid grid = osh_grid_of(p->bits, p->fp8);
            if (p->fp8) q = osh_grid_nearest(&grid, fminf(fmaxf(q, grid.lo), grid.hi));
            else q = nearbyintf(fminf(fmaxf(q + zero, -most - 1), most));
            s.w[o * p->I + i] = osh_round_to(osh_round_to(q - zero, p->dq) * scale, p->dq);
            /* Rows that osh_gptq_judges does not select have no loss. */
            if (!osh_gptq_judges(p->O, o)) s.w[o * p->I + i] = s.from[o * p->I + i];
        }
    double want = solution_objective(&s);
    printf("nearest %ld x %ld: %g, reference %g, tr(dW H dW^T) %g\n", (long)p->O, (long)p->I,
           loss[1], loss[0], want);
    assert_true(fabs(loss[0] - want) <= 1e-3 * want + 1e-12 &&
                fabs(loss[1] - want) <= 1e-3 * want + 1e-12);
    solution_close(cx, &s);
}

/* osh_gptq_judges selects all rows if a weight has at most 127 rows. If it has more, 64 to 96 rows
 * at equal distances are selected. */
static void test_judged(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    for (int64_t O = 1; O < 20000; O += O < 2000 ? 1 : 997) {
        int64_t n = 0, step = osh_gptq_judge_step(O);
        for (int64_t o = 0; o < O; o++) {
            n += osh_gptq_judges(O, o);
            assert_int_equal(osh_gptq_judges(O, o), o % step == 0);
        }
        assert_true(O < 128 ? n == O : n >= 64 && n <= 96);
    }
}

static void test_nearest(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) check_nearest(cx, &problems[i]);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static void test_solve(void **state)
{
    (void)state;
    osh_ctx *one = NULL, *three = NULL;

    assert_int_equal(osh_ctx_new(&one, 1), OSH_OK);
    assert_int_equal(osh_ctx_new(&three, 3), OSH_OK);
    osh_device *d[2] = {gpu_open(one, GPU_BYTES), gpu_open(one, GPU_BYTES / 8)};
    for (size_t k = 0; k < sizeof problems / sizeof *problems; k++) {
        const problem *p = &problems[k];
        solution ref, fast, threads;
        int64_t n = p->O * p->I;
        solution_open(one, &ref, p), solution_open(one, &fast, p),
            solution_open(three, &threads, p);
        assert_int_equal(osh_gptq_solve_ref(one, &ref.a), OSH_OK);
        if (!gpu_alone()) {
            assert_int_equal(osh_gptq_solve(one, &fast.a), OSH_OK);
            assert_int_equal(osh_gptq_solve(three, &threads.a), OSH_OK);
            assert_memory_equal(fast.w, threads.w, (size_t)n * 4);
            assert_memory_equal(fast.codes, threads.codes, (size_t)n);
            assert_memory_equal(fast.loss, threads.loss, (size_t)p->O * 8);
            check_solution(&ref, &fast, p, "CPU");
        }
        if (d[0]) check_gpu(one, d, p, &ref);
        solution_close(one, &ref), solution_close(one, &fast), solution_close(three, &threads);
    }
    osh_device_close(one, d[0]), osh_device_close(one, d[1]);
    assert_int_equal(osh_mem_live(one), 0);
    assert_int_equal(osh_mem_live(three), 0);
    osh_ctx_free(three);
    osh_ctx_free(one);
}

/* Solves a weight with perm and dead columns. Then the test itself permutes the columns of the
 * weight and sets the dead columns to 0, and solves this weight. The results must be equal. */
static void test_solve_order(void **state)
{
    (void)state;
    enum { O = 70, I = 130 };
    const problem p = {O, I, 32, 4, 0, .row_block = 1, .dq = OSH_BF16};
    osh_ctx *cx = NULL;
    solution plain, moved;

    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    solution_open(cx, &plain, &p), solution_open(cx, &moved, &p);
    moved.perm = osh_calloc(cx, I, sizeof *moved.perm),
    moved.dead = osh_calloc(cx, I, sizeof *moved.dead);
    for (int i = 0; i < I; i++) moved.perm[i] = (int32_t)(i * 7 % I), moved.dead[i] = i % 11 == 3;
    float *from = moved.start->data, *to = plain.start->data;
    for (int o = 0; o < O; o++)
        for (int i = 0; i < I; i++) {
            int c = moved.perm[i];
            to[o * I + i] = moved.dead[c] ? 0 : from[o * I + c];
        }
    moved.a.perm = moved.perm, moved.a.dead = moved.dead;
    osh_device *d = gpu_open(cx, GPU_BYTES);
    for (int column = OSH_REF; column < (d ? OSH_N_BACKENDS : OSH_CUDA); column++) {
        osh_status (*run)(osh_ctx *, const osh_gptq_solve_args *) =
            column ? osh_gptq_solve : osh_gptq_solve_ref;
        assert_int_equal(column == OSH_CUDA ? solve_on(cx, d, &plain.a, 1) : run(cx, &plain.a),
                         OSH_OK);
        assert_int_equal(column == OSH_CUDA ? solve_on(cx, d, &moved.a, 1) : run(cx, &moved.a),
                         OSH_OK);
        assert_memory_equal(plain.w, moved.w, O * I * sizeof(float));
        for (int o = 0; o < O; o++)
            for (int i = 0; i < I; i++)
                assert_int_equal(plain.codes[o * I + i], moved.codes[o * I + moved.perm[i]]);
    }
    osh_device_close(cx, d);
    assert_true(osh_mem_used_peak(cx, OSH_MEM_HOST) > osh_gptq_solve_bytes(O, I, 1, 32, 2));
    solution_close(cx, &plain), solution_close(cx, &moved);
    osh_ctx_free(cx);
}

enum { N_TOGETHER = 5 };
typedef struct same_input { // several weights that are solved for one input
    int64_t I, block;
    problem p[N_TOGETHER];
} same_input;

static void open_jobs(osh_ctx *cx, solution *s, osh_gptq_solve_args *a, const same_input *c)
{
    for (int k = 0; k < N_TOGETHER; k++) {
        solution_open(cx, &s[k], &c->p[k]);
        int64_t n = c->p[k].O * c->I;
        for (int64_t i = 0; i < n; i++)
            s[k].from[i] = osh_rng_sym(SEED, (uint64_t)(50 + k), (uint64_t)i);
        osh_from_f32(s[k].start->data, OSH_BF16, s[k].from, n);
        s[k].perm = osh_calloc(cx, (size_t)c->I, sizeof *s[k].perm);
        s[k].dead = osh_calloc(cx, (size_t)c->I, sizeof *s[k].dead);
        for (int64_t i = 0; i < c->I; i++)
            s[k].perm[i] = (int32_t)(i * 7 % c->I), s[k].dead[i] = i % 11 == 3;
        s[k].a.perm = s[k].perm, s[k].a.dead = s[k].dead;
        a[k] = s[k].a;
    }
}

/* Packs codes of FP4 (two in a byte) or FP6 (four in three bytes), the first code in the low
 * bits. */
static void pack_floats(uint32_t *to, const int8_t *codes, int64_t n, int bits)
{
    uint8_t *bytes = memset(to, 0, (size_t)osh_pack_words(n, bits) * sizeof *to);
    for (int64_t at = 0; at < n * bits; at++)
        if (codes[at / bits] >> at % bits & 1) bytes[at / 8] |= (uint8_t)(1 << at % 8);
}

/* Checks that the GPU packs codes as the formats do: integers as `pack-quantized`, FP4
 * as `nvfp4-pack-quantized`, and FP6 as `mxfp6-pack-quantized`. */
static void packed_case(osh_ctx *cx, osh_device *d, const solution *bytes,
                        const osh_gptq_solve_args *jobs)
{
    osh_gptq_solve_args a[N_TOGETHER];
    for (int k = 0; k < N_TOGETHER; k++) {
        a[k] = jobs[k], a[k].packed = !a[k].fp8 || a[k].bits < 8, a[k].dq = NULL;
        a[k].codes = osh_calloc(cx, (size_t)(a[k].O * (a[k].I + 3)), 1);
    }
    /* One job must not be packed. */
    if (a[0].dq_dtype == OSH_BF16) a[4].packed = false;
    for (int k = 0; k < N_TOGETHER; k++) a[k].dq = a[k].packed ? NULL : jobs[k].dq;
    assert_int_equal(solve_on(cx, d, a, N_TOGETHER), OSH_OK);
    for (int k = 0; k < N_TOGETHER; k++) {
        int64_t I = a[k].I, words = osh_pack_words(I, a[k].bits);
        uint32_t *want = osh_calloc(cx, (size_t)words, sizeof *want);
        for (int64_t o = 0; o < a[k].O; o++) {
            const int8_t *codes = bytes[k].codes + o * I;
            if (a[k].fp8) pack_floats(want, codes, I, a[k].bits);
            else osh_pack_row(want, 1, codes, 1, I, a[k].bits);
            if (a[k].packed)
                assert_memory_equal((uint32_t *)a[k].codes + o * words, want, (size_t)words * 4);
            else assert_memory_equal(a[k].codes + o * I, codes, (size_t)I);
        }
        osh_free(cx, want), osh_free(cx, a[k].codes);
    }
}

/* The result for a weight must not depend on the other weights in the same call. It must not depend
 * on the number of rows that fit into memory, either. */
static void together_case(osh_ctx *cx, const same_input *c)
{
    solution alone[N_TOGETHER], all[N_TOGETHER];
    osh_gptq_solve_args a[N_TOGETHER], b[N_TOGETHER];
    osh_gptq_group g = {.I = c->I, .block_size = c->block};
    /* Arena bytes that solve_on allocates itself, apart from the scratch of gptq_solve. */
    size_t other = osh_arena_gross((size_t)(c->I * c->I) * 4 + 2 * GPU_GUARD);
    for (int k = 0; k < N_TOGETHER; k++) {
        osh_gptq_group_add(&g, c->p[k].O,
                           c->p[k].group ? (c->I + c->p[k].group - 1) / c->p[k].group : 1);
        other += osh_arena_gross((size_t)(c->p[k].O * c->I) * 2 + 2 * GPU_GUARD);
    }
    size_t most = osh_gptq_solve_device_bytes(&g, SIZE_MAX),
           least = osh_gptq_solve_device_bytes(&g, 0);
    assert_true(osh_gptq_solve_device_bytes(&g, most - 1) < most &&
                osh_gptq_solve_device_bytes(&g, least) == least);
    open_jobs(cx, alone, a, c);
    // room 0: memory for all rows; 1: for some rows; 2: for the smallest possible number of rows
    for (int room = 0; room < 3; room += gpu_looks_at_addresses() ? 2 : 1) {
        osh_device *d = gpu_open(cx, other + (room == 0   ? most
                                              : room == 1 ? (most + least) / 2
                                                          : least));
        open_jobs(cx, all, b, c);
        for (int k = 0; !room && k < N_TOGETHER; k++)
            assert_int_equal(solve_on(cx, d, &a[k], 1), OSH_OK);
        gpu_order(room);
        assert_int_equal(solve_on(cx, d, b, N_TOGETHER), OSH_OK);
        for (int k = 0; k < N_TOGETHER; k++) {
            int64_t n = c->p[k].O * c->I, differ = 0;
            for (int64_t i = 0; i < n; i++) differ += alone[k].codes[i] != all[k].codes[i];
            strict(!differ &&
                       !memcmp(alone[k].loss, all[k].loss, (size_t)c->p[k].O * sizeof(double)),
                   differ <= n / 1000,
                   "weights that are solved together have the codes that they have alone",
                   "The product of a tile follows from its panels: codes depend on --device-memory "
                   "and on resumes.");
        }
        packed_case(cx, d, alone, b);
        for (int k = 0; k < N_TOGETHER; k++) solution_close(cx, &all[k]);
        osh_device_close(cx, d);
    }
    for (int k = 0; k < N_TOGETHER; k++) solution_close(cx, &alone[k]);
}

static void test_solve_together(void **state)
{
    (void)state;
    static const same_input cases[] = {
        {129, 32,
         {{70, 129, 32, 4, 32, .row_block = 1, .dq = OSH_BF16, .stored = OSH_BF16},
          {1, 129, 32, 4, 0, .zero = true, .row_block = 1, .dq = OSH_BF16, .stored = OSH_BF16},
          {200, 129, 32, 8, 16, .fp8 = true, .row_block = 32, .dq = OSH_BF16, .stored = OSH_BF16},
          {64, 129, 32, 3, 0, .row_block = 64, .dq = OSH_BF16, .stored = OSH_BF16},
          {65, 129, 32, 8, 5, .zero = true, .row_block = 1, .dq = OSH_BF16, .stored = OSH_BF16}}},
        {513, 128,
         {{130, 513, 128, 4, 128, .row_block = 1, .dq = OSH_F16, .stored = OSH_BF16},
          {40, 513, 128, 6, 32, .fp8 = true, .row_block = 1, .dq = OSH_F16, .stored = OSH_BF16},
          {3, 513, 128, 4, 32, .fp8 = true, .row_block = 1, .dq = OSH_F16, .stored = OSH_BF16},
          {128, 513, 128, 4, 128, .row_block = 1, .dq = OSH_F16, .stored = OSH_BF16},
          {7, 513, 128, 2, 0, .row_block = 1, .dq = OSH_F16, .stored = OSH_BF16}}},
    };
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    for (size_t k = 0; d && k < sizeof cases / sizeof *cases; k++) together_case(cx, &cases[k]);
    osh_device_close(cx, d);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

enum { N_INPUTS = 7 };

/* Opens a problem for input k. Each input has its own factor, column order and dead columns. */
static void open_input(osh_ctx *cx, solution *s, const problem *p, int k)
{
    int64_t I = p->I, n = p->O * I;
    solution_open(cx, s, p);
    for (int64_t i = 0; i < n; i++) s->from[i] = osh_rng_sym(SEED, (uint64_t)(60 + k), (uint64_t)i);
    osh_from_f32(s->start->data, p->stored, s->from, n);
    for (int64_t i = 0; i < I * I; i++) s->u[i] *= 1 + 0.01f * (float)(k + i % (k + 2));
    s->perm = osh_calloc(cx, (size_t)I, sizeof *s->perm),
    s->dead = osh_calloc(cx, (size_t)I, sizeof *s->dead);
    for (int64_t i = 0; i < I; i++)
        s->perm[i] = (int32_t)((i * 7 + k) % I), s->dead[i] = i % 11 == k;
    for (int64_t i = 0; i < I; i++) s->col[i] = p->group ? s->perm[i] / p->group : 0;
    s->a.perm = s->perm, s->a.dead = s->dead, s->a.packed = p->bits == 4,
    s->a.dq = s->a.packed ? NULL : s->w;
}

/* The result for a weight must not depend on weights with other inputs. It must not depend on the
 * number of panels (groups of rows of one weight, gptq_solve.cu) that fit into memory, either. */
static void inputs_case(osh_ctx *cx, const problem *p)
{
    solution alone[N_INPUTS], all[N_INPUTS];
    osh_gptq_solve_args a[N_INPUTS];
    osh_gptq_group g = {.I = p->I, .block_size = p->block, .n_inputs = N_INPUTS}, one = g;
    int64_t n_cols = p->group ? (p->I + p->group - 1) / p->group : 1;
    size_t n = (size_t)(p->O * p->I),
           u = osh_arena_gross((size_t)(p->I * p->I) * 4 + 2 * GPU_GUARD);
    size_t others =
        N_INPUTS * (u + osh_arena_gross(n * osh_dtype_bytes(p->stored) + 2 * GPU_GUARD));
    one.n_inputs = 1;
    for (int k = 0; k < N_INPUTS; k++) osh_gptq_group_add(&g, p->O, n_cols);
    osh_gptq_group_add(&one, p->O, n_cols);
    size_t most = osh_gptq_solve_device_bytes(&g, SIZE_MAX),
           least = osh_gptq_solve_device_bytes(&g, 0);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    int n_alone = gpu_looks_at_addresses() ? 1 : N_INPUTS; // all inputs use the same addresses
    for (int k = 0; k < N_INPUTS; k++) {
        open_input(cx, &alone[k], p, k);
        if (k < n_alone) assert_int_equal(solve_on(cx, d, &alone[k].a, 1), OSH_OK);
    }
    osh_device_close(cx, d);
    /* room 0 to 3: memory for all panels, for many, for few, and for one panel */
    for (int room = 0; room < 4; room += gpu_looks_at_addresses() ? 2 : 1) {
        size_t given[] = {most, least + 2 * (most - least) / 3, least + (most - least) / 5, least};
        d = gpu_open(cx, others + given[room]);
        gpu_order(room % gpu_orders());
        for (int k = 0; k < N_INPUTS; k++) open_input(cx, &all[k], p, k), a[k] = all[k].a;
        assert_int_equal(solve_inputs_on(cx, d, a, N_INPUTS, true), OSH_OK);
        for (int k = 0; k < n_alone; k++) {
            size_t bytes = p->bits == 4 ? (size_t)(p->O * osh_pack_words(p->I, 4)) * 4 : n;
            int64_t differ = 0;
            for (size_t i = 0; i < bytes; i++) differ += alone[k].codes[i] != all[k].codes[i];
            strict(!differ && !memcmp(alone[k].loss, all[k].loss, (size_t)p->O * sizeof(double)),
                   differ <= (int64_t)bytes / 500,
                   "weights of several inputs have the codes that each has alone",
                   "The product of a batch follows from its size: codes depend on --device-memory "
                   "and on resumes.");
        }
        for (int k = 0; k < N_INPUTS; k++) solution_close(cx, &all[k]);
        osh_device_close(cx, d);
    }
    for (int k = 0; k < N_INPUTS; k++) solution_close(cx, &alone[k]);
}

static void test_solve_inputs(void **state)
{
    (void)state;
    static const problem cases[] = {
        /* 200 rows: each input has four panels of at most 64 rows. */
        {200, 300, 128, 4, 100, .row_block = 1, .dq = OSH_BF16, .stored = OSH_BF16},
        {130, 257, 64, 8, 0, .fp8 = true, .row_block = 130, .dq = OSH_BF16, .stored = OSH_BF16},
        /* Few rows: each input has one or two panels of at most 64 rows. */
        {64, 130, 32, 4, 32, .zero = true, .row_block = 1, .dq = OSH_F16, .stored = OSH_F16},
        /* The only block has all columns, so no matrix multiplication follows the block. */
        {70, 40, 128, 3, 0, .row_block = 1, .dq = OSH_F32, .stored = OSH_F32},
    };
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    osh_device_close(cx, d);
    for (size_t k = 0; d && k < sizeof cases / sizeof *cases; k++) inputs_case(cx, &cases[k]);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

/* Rounds weights that are in the middle between two codes, or larger than the largest code. The
 * weight has one column, so only rounding is tested. */
static void ties_case(osh_ctx *cx, osh_device *d, bool fp8, int bits)
{
    enum { O = 600 };
    const problem p = {O, 1, 128, bits, 0, .fp8 = fp8, .row_block = O, .dq = OSH_F32};
    solution s[OSH_N_BACKENDS];
    for (int column = OSH_REF; column < (d ? OSH_N_BACKENDS : OSH_CUDA); column++) {
        solution_open(cx, &s[column], &p);
        s[column].scale[0] = 1;
        for (int o = 0; o < O; o++) {
            uint8_t low = (uint8_t)(o / 2 % 127);
            float a = osh_f32_of_fp8(low), b = low == 126 ? 2 * a : osh_f32_of_fp8(low + 1);
            float x = bits == 8 ? (a + b) / 2 : (float)low / 8;
            ((float *)s[column].start->data)[o] = o % 2 ? -x : x;
        }
        const osh_gptq_solve_args *a = &s[column].a;
        assert_int_equal(column == OSH_CUDA ? solve_on(cx, d, a, 1)
                         : column           ? osh_gptq_solve(cx, a)
                                            : osh_gptq_solve_ref(cx, a),
                         OSH_OK);
        assert_memory_equal(s[column].codes, s[0].codes, O);
    }
    for (int column = OSH_REF; column < (d ? OSH_N_BACKENDS : OSH_CUDA); column++)
        solution_close(cx, &s[column]);
}

static void test_solve_ties(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    ties_case(cx, d, false, 4);
    ties_case(cx, d, true, 8);
    ties_case(cx, d, true, 4);
    osh_device_close(cx, d);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

int main(void)
{
    int unable = pin_isa();
    if (unable) return unable;
    printf("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_solve),       cmocka_unit_test(test_judged),
        cmocka_unit_test(test_nearest),     cmocka_unit_test(test_solve_order),
        cmocka_unit_test(test_solve_ties),  cmocka_unit_test(test_solve_together),
        cmocka_unit_test(test_solve_inputs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
