/* test_gptq_refine.c - compares two parts of GPTQ with references: the search for scales, and the
 * steps that refine codes. Also checks that no step raises tr(dW H dW^T) for any Hessian. */
#include "on_gpu.h"
#include "gptq_hessian.h"
#include "solver/gptq_refine.h"
#include "solver/gptq_solve.h"

/* Kinds of the inputs' columns. */
typedef enum { RANDOM, DEAD, MASSIVE, DUPLICATED, RANK_ONE, N_KINDS } kind;
static const char *const kinds[] = {"random", "dead", "massive", "duplicated", "rank one"};

typedef struct problem {
    int64_t O, I, group, row_block;
    int bits;
    bool fp8, asymmetric, order;
    osh_dtype dtype;
    osh_scale_kind kind;
    float global;
} problem;

static const problem problems[] = {
    {1, 8, 8, 1, 4, .dtype = OSH_F32},
    {7, 21, 7, 1, 4, .dtype = OSH_BF16},
    {65, 129, 43, 1, 3, .order = true, .dtype = OSH_BF16},
    {65, 128, 32, 1, 4, .asymmetric = true, .order = true, .dtype = OSH_BF16},
    {130, 192, 64, 1, 2, .order = true, .dtype = OSH_F16},
    {33, 192, 64, 1, 2, .asymmetric = true, .dtype = OSH_BF16},
    {40, 128, 64, 1, 8, .order = true, .dtype = OSH_BF16},
    {40, 130, 130, 1, 4, .dtype = OSH_BF16}, // one scale per row of the weight
    {40, 130, 130, 1, 4, .asymmetric = true, .dtype = OSH_F32},
    /* The whole weight has one scale, and more rows than a tile of the kernel. */
    {200, 96, 96, 200, 4, .dtype = OSH_BF16},
    {150, 96, 96, 150, 5, .asymmetric = true, .dtype = OSH_BF16},
    {40, 96, 96, 40, 8, .fp8 = true, .dtype = OSH_BF16},
    {40, 96, 96, 1, 8, .fp8 = true, .order = true, .dtype = OSH_BF16},
    /* Each block of 32 rows and 48 columns has one scale; the last blocks are smaller. */
    {70, 100, 48, 32, 8, .fp8 = true, .dtype = OSH_BF16},
    /* Groups of 2 columns: more groups than are solved at once (OSH_FIT_GROUPS). */
    {3, 260, 2, 1, 4, .asymmetric = true, .dtype = OSH_BF16},
    {20, 576, 64, 1, 4, .asymmetric = true, .order = true, .dtype = OSH_BF16},
    // The formats of the next five cases are NVFP4, NVFP4, MXFP4, MXFP4, MXFP8.
    {40, 128, 16, 1, 4, .fp8 = true, .order = true, .dtype = OSH_F32, .kind = OSH_SCALE_E4M3,
     .global = 2389.3f},
    /* All scales have the smallest value of E4M3. */
    {33, 96, 16, 1, 4, .fp8 = true, .dtype = OSH_F32, .kind = OSH_SCALE_E4M3, .global = 3e-3f},
    {40, 128, 32, 1, 4, .fp8 = true, .order = true, .dtype = OSH_BF16, .kind = OSH_SCALE_E8M0},
    {33, 96, 32, 1, 4, .fp8 = true, .dtype = OSH_F16, .kind = OSH_SCALE_E8M0},
    {40, 128, 32, 1, 8, .fp8 = true, .dtype = OSH_F32, .kind = OSH_SCALE_E8M0},
    /* MXFP6 */
    {40, 96, 32, 1, 6, .fp8 = true, .order = true, .dtype = OSH_BF16, .kind = OSH_SCALE_E8M0},
};

typedef struct solution {
    const problem *p;
    float *h, *u, *weight, *scale, *zero; // own
    int32_t *perm;
    bool *dead;
    int8_t *codes;
    osh_tensor *w;
    int64_t n_scales;
} solution;

static void *array(osh_ctx *cx, int64_t n, size_t size)
{
    void *p = osh_calloc(cx, (size_t)n, size);
    assert_non_null(p);
    return p;
}

/* Returns element i of the input vector n. */
static float input_at(kind k, int64_t I, int64_t n, int64_t i)
{
    float common = osh_rng_sym(SEED, 40, (uint64_t)n);
    if (k == RANK_ONE) return common * (1 + (float)(i % 5));
    if (k == DUPLICATED) i /= 2;
    float x = common + osh_rng_sym(SEED, 41, (uint64_t)(n * I + i));
    if (k == DEAD && i % 4 == 1) return 0;
    return k == MASSIVE && i == I / 2 ? 1000 * x : x;
}

static void make_h(osh_ctx *cx, solution *s, kind k)
{
    // fewer inputs than columns, so H is singular without damping
    int64_t I = s->p->I, N = I / 2 + 1;
    double mean = 0;
    float *x = array(cx, I, 4), *y = array(cx, I, 4);
    for (int64_t n = 0; n < N; n++) {
        for (int64_t i = 0; i < I; i++) x[i] = input_at(k, I, n, i), y[i] = x[i] / (float)N;
        plain_add_lower(s->h, x, y, I);
    }
    osh_free(cx, x), osh_free(cx, y);
    for (int64_t i = 0; i < I; i++) {
        s->dead[i] = s->h[i * (I + 1)] == 0;
        if (s->dead[i]) s->h[i * (I + 1)] = 0.5f;
        mean += s->h[i * (I + 1)] / (double)I;
    }
    for (int64_t i = 0; i < I; i++) s->h[i * (I + 1)] += (float)(0.01 * mean);
    plain_mirror(s->h, I);
}

static osh_scale_rule rule_of(const problem *p)
{
    return (osh_scale_rule){
        osh_grid_of(p->bits, p->fp8), !p->asymmetric, p->dtype, false, p->kind, p->global};
}

static osh_gptq_scales_args scales_args(solution *s)
{
    const problem *p = s->p;
    return (osh_gptq_scales_args){.w = s->w, .dead = s->dead, .weight = s->weight, .O = p->O,
                                  .I = p->I, .group = p->group, .row_block = p->row_block,
                                  .rule = rule_of(p),
                                  .scale = s->scale,
                                  .zero = p->asymmetric ? s->zero : NULL};
}

static osh_gptq_refine_args refine_args(solution *s, const osh_refine *steps, int n_steps,
                                        double *loss)
{
    const problem *p = s->p;
    return (osh_gptq_refine_args){.w = s->w, .dead = s->dead, .h = s->h,
                                  .perm = p->order ? s->perm : NULL, .codes = s->codes,
                                  .scale = s->scale, .zero = p->asymmetric ? s->zero : NULL,
                                  .O = p->O, .I = p->I, .group = p->group,
                                  .row_block = p->row_block,
                                  .rule = rule_of(p),
                                  .steps = steps,
                                  .n_steps = n_steps,
                                  .loss = loss};
}

static void solution_open(osh_ctx *cx, solution *s, const problem *p, kind k)
{
    int64_t O = p->O, I = p->I;
    s->p = p;
    s->n_scales = osh_div_up(O, p->row_block) * osh_div_up(I, p->group);
    s->h = array(cx, I * I, 4), s->u = array(cx, I * I, 4), s->weight = array(cx, I, 4);
    s->scale = array(cx, s->n_scales, 4), s->zero = array(cx, s->n_scales, 4),
    s->perm = array(cx, I, 4);
    s->dead = array(cx, I, 1), s->codes = array(cx, O * I, 1);
    assert_int_equal(osh_tensor_new(cx, &s->w, OSH_BF16, 2, (int64_t[]){O, I}), OSH_OK);
    for (int64_t i = 0; i < O * I; i++) {
        float x = osh_rng_sym(SEED, 42, (uint64_t)i) *
                  (0.1f + fabsf(osh_rng_sym(SEED, 43, (uint64_t)(i / 16))));
        osh_from_f32(osh_elem(s->w, i), OSH_BF16, &x, 1);
    }
    make_h(cx, s, k);
    for (int64_t i = 0; i < I; i++) s->perm[i] = (int32_t)(I - 1 - i);
    for (int64_t i = 0; i < I; i++)
        for (int64_t j = 0; j < I; j++)
            s->u[i * I + j] = p->order ? s->h[s->perm[i] * I + s->perm[j]] : s->h[i * I + j];
    osh_tensor u = osh_tensor_view(OSH_F32, 2, (int64_t[]){I, I}, s->u);
    osh_op_args f = {.out = {&u}};
    assert_int_equal(osh_op_run(cx, &osh_op_gptq_factor, &f), OSH_OK);
    assert_int_equal(osh_gptq_mirror(cx, s->u, I), OSH_OK);
    for (int64_t i = 0; i < I; i++)
        s->weight[p->order ? s->perm[i] : i] = 1 / (s->u[i * (I + 1)] * s->u[i * (I + 1)]);
}

static void solution_close(osh_ctx *cx, solution *s)
{
    osh_free(cx, s->h), osh_free(cx, s->u), osh_free(cx, s->weight), osh_free(cx, s->scale),
        osh_free(cx, s->zero);
    osh_free(cx, s->perm), osh_free(cx, s->dead), osh_free(cx, s->codes);
    osh_tensor_free(cx, s->w);
}

/* Runs gptq_solve with the current scales. */
static void solution_solve(osh_ctx *cx, solution *s)
{
    const problem *p = s->p;
    int32_t *col = array(cx, p->I, 4);
    double *loss = array(cx, p->O, 8);
    for (int64_t i = 0; i < p->I; i++) col[i] = (int32_t)((p->order ? s->perm[i] : i) / p->group);
    osh_gptq_solve_args a = {.w = s->w, .perm = p->order ? s->perm : NULL, .dead = s->dead,
                             .codes = s->codes, .u = s->u, .scale = s->scale,
                             .zero = p->asymmetric ? s->zero : NULL, .col_scale = col, .O = p->O,
                             .I = p->I, .n_scale_cols = osh_div_up(p->I, p->group),
                             .row_block = p->row_block, .block_size = 128, .bits = p->bits,
                             .fp8 = p->fp8, .dq_dtype = p->dtype, .loss = loss};
    assert_int_equal(osh_gptq_solve(cx, &a), OSH_OK);
    osh_free(cx, col), osh_free(cx, loss);
}

static float quantized(const solution *s, int64_t o, int64_t i)
{
    const problem *p = s->p;
    int64_t at = o / p->row_block * osh_div_up(p->I, p->group) + i / p->group;
    osh_grid g = osh_grid_of(p->bits, p->fp8);
    float z = p->asymmetric ? s->zero[at] : 0;
    return osh_round_to((osh_grid_value(&g, s->codes[o * p->I + i]) - z) * s->scale[at], p->dtype);
}

/* Returns tr(dW H dW^T) in double. Sets *scatter to the sum of the absolute values of the terms,
 * which bounds the rounding errors of f32. */
static double solution_objective(osh_ctx *cx, const solution *s, double *scatter)
{
    int64_t I = s->p->I;
    double sum = 0, *d = array(cx, I, 8);
    *scatter = 0;
    for (int64_t o = 0; o < s->p->O; o++) {
        for (int64_t i = 0; i < I; i++)
            d[i] = quantized(s, o, i) - (s->dead[i] ? 0 : value_at(s->w, o * I + i));
        for (int64_t i = 0; i < I; i++)
            for (int64_t j = 0; j < I; j++) {
                sum += d[i] * s->h[i * I + j] * d[j];
                *scatter += fabs(d[i] * s->h[i * I + j] * d[j]);
            }
    }
    osh_free(cx, d);
    return sum;
}

/* Returns the loss that the search for scales minimizes, summed over all groups. */
static double search_loss(const solution *s)
{
    const problem *p = s->p;
    osh_grid g = osh_grid_of(p->bits, p->fp8);
    double sum = 0;
    for (int64_t i = 0; i < p->O * p->I; i++) {
        int64_t o = i / p->I, c = i % p->I,
                at = o / p->row_block * osh_div_up(p->I, p->group) + c / p->group;
        float w = s->dead[c] ? 0 : (float)value_at(s->w, i), z = p->asymmetric ? s->zero[at] : 0;
        float t = fminf(fmaxf(w / s->scale[at], g.lo - z), g.hi - z);
        double e = (double)osh_grid_nearest(&g, t) * s->scale[at] - w;
        sum += s->weight[c] * e * e;
    }
    return sum;
}

/* Returns the first kind to test for problem i. The next kinds are KIND_STEP apart. Kinds differ
 * only in the values of the inputs, so each problem is tested with half of the kinds. With
 * sanitizers each problem is tested with one kind. */
static kind kind_first(size_t i) { return (kind)(i % (SANITIZED ? N_KINDS : 2)); }
enum { KIND_STEP = SANITIZED ? N_KINDS : 2 };

static void test_scales(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    osh_ctx *cx;
    assert_int_equal(osh_ctx_new(&cx, 3), OSH_OK);
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        for (kind k = kind_first(i); k < N_KINDS; k += KIND_STEP) {
            solution s = {0};
            // search_loss after each pass. Pass 0 takes scales from the whole range of the weights,
            // without a search. Pass 1 is the search of the reference, pass 2 the search of the
            // kernel.
            double loss[3];
            solution_open(cx, &s, &problems[i], k);
            for (int pass = 0; pass < 3; pass++) {
                osh_gptq_scales_args a = scales_args(&s);
                a.rule.fixed = pass == 0;
                assert_int_equal(pass == 1 ? osh_gptq_scales_ref(cx, &a) : osh_gptq_scales(cx, &a),
                                 OSH_OK);
                loss[pass] = search_loss(&s);
                for (int64_t n = 0; n < s.n_scales; n++) {
                    assert_true(s.scale[n] > 0 &&
                                s.scale[n] == osh_scale_round(&a.rule, s.scale[n]));
                    assert_true(s.zero[n] >= a.rule.grid.lo && s.zero[n] <= a.rule.grid.hi);
                }
            }
            if (loss[2] > loss[1] * 1.0001 || loss[1] > loss[0] * 1.0001)
                print_message("problem %zu %s: %g %g %g\n", i, kinds[k], loss[0], loss[1], loss[2]);
            assert_true(loss[2] <= loss[1] * 1.0001 && loss[1] <= loss[0] * 1.0001);
            solution_close(cx, &s);
        }
    osh_ctx_free(cx);
}

static const osh_refine steps[] = {OSH_REFINE_RESCALE, OSH_REFINE_DESCEND, OSH_REFINE_FIT_SCALES,
                                   OSH_REFINE_DESCEND, OSH_REFINE_FIT_SCALES};
enum { N_STEPS = sizeof steps / sizeof *steps };

static osh_status solution_start(osh_ctx *cx, solution *s)
{
    osh_gptq_scales_args a = scales_args(s);
    assert_int_equal(osh_gptq_scales(cx, &a), OSH_OK);
    solution_solve(cx, s);
    return OSH_OK;
}


/* Tests the steps that refine codes. No step may raise the loss, the reported loss must be right,
 * and each step must lower the loss in some problem. */
static void test_never_raises(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    osh_ctx *cx;
    double gain[N_STEPS] = {0};
    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        for (kind k = kind_first(i); k < N_KINDS; k += KIND_STEP) {
            solution s = {0};
            solution_open(cx, &s, &problems[i], k);
            solution_start(cx, &s);
            double scatter, was = solution_objective(cx, &s, &scatter);
            for (int n = 0; n < N_STEPS; n++) {
                double loss[2];
                osh_gptq_refine_args a = refine_args(&s, &steps[n], 1, loss);
                assert_int_equal(osh_gptq_refine(cx, &a), OSH_OK);
                double slack = 1e-6 * scatter, now = solution_objective(cx, &s, &scatter);
                if (now > was + slack || fabs(loss[1] - now) > slack + 1e-6 * scatter ||
                    loss[1] > loss[0])
                    print_message("problem %zu %s step %d: %g -> %g, said %g -> %g (%g)\n", i,
                                  kinds[k], n, was, now, loss[0], loss[1], slack);
                assert_true(now <= was + slack && loss[1] <= loss[0]);
                assert_true(fabs(loss[0] - was) <= slack &&
                            fabs(loss[1] - now) <= slack + 1e-6 * scatter);
                gain[n] += was > 0 ? 1 - now / was : 0;
                was = now;
            }
            solution_close(cx, &s);
        }
    for (int n = 0; n < N_STEPS; n++) assert_true(gain[n] > 0);
    osh_ctx_free(cx);
}

/* Runs all steps in one call. The losses must be near those of the reference, and the bytes must
 * not depend on the number of threads. */
static void test_against_reference(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        for (kind k = kind_first(i); k < N_KINDS; k += KIND_STEP) {
            solution s[3] = {{0}};
            double loss[3][N_STEPS + 1], all[3];
            const problem *p = &problems[i];
            for (int n = 0; n < 3; n++) {
                osh_ctx *cx;
                assert_int_equal(osh_ctx_new(&cx, n == 2 ? 3 : 1), OSH_OK);
                solution_open(cx, &s[n], p, k);
                solution_start(cx, &s[n]);
                osh_gptq_refine_args a = refine_args(&s[n], steps, N_STEPS, loss[n]);
                a.all = &all[n];
                assert_int_equal(n == 0 ? osh_gptq_refine_ref(cx, &a) : osh_gptq_refine(cx, &a),
                                 OSH_OK);
                osh_ctx_free(cx);
            }
            for (int n = 0; n <= N_STEPS; n++) {
                /* With few rows, a single code changes the loss by more than with many rows. */
                double slack = p->O > 10 && k == RANDOM ? 0.01 : 0.05;
                if (fabs(loss[1][n] - loss[0][n]) > slack * loss[0][n])
                    print_message("problem %zu %s after %d: %g, not %g\n", i, kinds[k], n,
                                  loss[1][n], loss[0][n]);
                assert_true(fabs(loss[1][n] - loss[0][n]) <= slack * loss[0][n]);
            }
            assert_true(fabs(all[1] - all[0]) <= 1e-5 * all[0] && all[0] > loss[0][0] &&
                        all[1] == all[2]);
            assert_memory_equal(s[1].codes, s[2].codes, (size_t)(p->O * p->I));
            assert_memory_equal(s[1].scale, s[2].scale, (size_t)s[1].n_scales * 4);
            assert_memory_equal(loss[1], loss[2], sizeof loss[1]);
            osh_ctx *cx;
            assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
            for (int n = 0; n < 3; n++) solution_close(cx, &s[n]);
            osh_ctx_free(cx);
        }
}

/* Runs the search and all steps on a GPU with only the predicted memory. The caller compares the
 * losses with the reference. The caller also runs another order of the threads, which must give the
 * same bytes. */
static void refine_on_gpu(osh_ctx *cx, osh_device *d, const problem *p, kind k, solution *s,
                          double *loss, double *all)
{
    solution_open(cx, s, p, k);
    osh_gptq_scales_args a = scales_args(s);
    gpu_copy_of w = gpu_put(cx, d, s->w);
    size_t before = osh_arena_used(d->arena);
    a.w = &w.t;
    assert_int_equal(osh_gptq_column_of(d)->scales(cx, d, &a), OSH_OK);
    solution_solve(cx, s);
    osh_tensor h = osh_tensor_view(OSH_F32, 2, (int64_t[]){p->I, p->I}, s->h);
    gpu_copy_of ch = gpu_put(cx, d, &h);
    osh_gptq_refine_args r = refine_args(s, steps, N_STEPS, loss);
    r.w = &w.t, r.h = ch.t.data, r.all = all;
    before = osh_arena_used(d->arena);
    osh_ctx *own = NULL; // counts the memory that the call of gptq_refine allocates
    assert_int_equal(osh_ctx_new(&own, 1), OSH_OK);
    assert_int_equal(osh_gptq_column_of(d)->refine(own, d, &r), OSH_OK);
    assert_int_equal(osh_arena_used(d->arena), before);
    size_t said = osh_gptq_refine_device_host_bytes(p->O, p->I, p->group, p->row_block, 1);
    if (osh_play_order) assert_true(osh_mem_used_peak(own, OSH_MEM_HOST) <= said);
    osh_ctx_free(own);
    gpu_take(cx, NULL, &ch);
    gpu_take(cx, NULL, &w);
}

static void test_gpu(void **state)
{
    (void)state;
    osh_ctx *cx;
    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    for (size_t i = 0; d && i < sizeof problems / sizeof *problems; i++) {
        const problem *p = &problems[i];
        kind k = i % N_KINDS;
        solution ref = {0}, s[2] = {{0}};
        double loss[3][N_STEPS + 1], all[3];
        if (p->I > 300) continue; // problems with more columns take long on the emulated GPU
        solution_open(cx, &ref, p, k);
        solution_start(cx, &ref);
        osh_gptq_refine_args a = refine_args(&ref, steps, N_STEPS, loss[2]);
        a.all = &all[2];
        assert_int_equal(osh_gptq_refine_ref(cx, &a), OSH_OK);
        for (int n = 0; n < (gpu_orders() > 1 ? 2 : 1); n++) {
            gpu_order(n);
            long waits = osh_play_calls ? osh_play_calls("cudaEventSynchronize") : 0;
            refine_on_gpu(cx, d, p, k, &s[n], loss[n], &all[n]);
            /* the host must wait only a few times, because the blocks of H are not copied row by
             * row */
            if (osh_play_calls && p->I > 100)
                assert_true(osh_play_calls("cudaEventSynchronize") - waits < 60 + p->O / 2);
        }
        for (int n = 0; n <= N_STEPS; n++) {
            if (fabs(loss[0][n] - loss[2][n]) > 0.05 * loss[2][n])
                print_message("problem %zu %s after %d: %g, not %g\n", i, kinds[k], n, loss[0][n],
                              loss[2][n]);
            assert_true(fabs(loss[0][n] - loss[2][n]) <= 0.05 * loss[2][n]);
            assert_true(!n || loss[0][n] <= loss[0][n - 1]);
        }
        for (int64_t n = 0; n < s[0].n_scales; n++)
            assert_true(s[0].scale[n] > 0 &&
                        s[0].scale[n] == osh_scale_round(&a.rule, s[0].scale[n]));
        double scatter, is = solution_objective(cx, &s[0], &scatter);
        assert_true(fabs(is - loss[0][N_STEPS]) <= 1e-5 * scatter);
        assert_true(fabs(all[0] - all[2]) <= 1e-5 * all[2]);
        if (gpu_orders() > 1) {
            assert_memory_equal(s[0].codes, s[1].codes, (size_t)(p->O * p->I));
            assert_memory_equal(s[0].scale, s[1].scale, (size_t)s[0].n_scales * 4);
            solution_close(cx, &s[1]);
        }
        solution_close(cx, &s[0]);
        solution_close(cx, &ref);
    }
    osh_device_close(cx, d);
    osh_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_never_raises),
        cmocka_unit_test(test_against_reference),
        cmocka_unit_test(test_gpu),
    };
    int rc = pin_isa();
    return rc ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
