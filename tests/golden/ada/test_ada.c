/* test_ada.c - compares AdaRound, AdaQuant and AutoRound with PyTorch (gen.py). PyTorch uses the
 * inputs and autograd; osh_ada uses sums over the inputs and formulas for gradients. Losses must
 * agree within 1 %, and 99 % of the codes must be equal. The other codes may differ, because the
 * last bit of a sum decides the code of some numbers: those near the middle between two codes, and
 * those with a gradient near 0. (Adam enlarges tiny gradients.) */
#include "torture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/rng.h"
#include "solver/ada.h"
#include "solver/gptq_solve.h"
#include "math/grid.h"
#include "ops/kernel.h"
#include "kernels/kernel_test.h"
#include "text/json.h"

enum { NUMBERS = 20261123, T = 256, PERIOD = 10, STEPS = 300 };
static const char folder[] = OSH_SOURCE_DIR "/tests/golden/ada";

typedef struct problem {
    const cJSON *of; // view: the case in the JSON file
    osh_ada_args a;
    osh_tensor *w;   // own
    float *h, *shift, *scale, *zero; // own
    int8_t *codes;
    double nearest[80], learned[80], curve[STEPS / PERIOD];
    bool diverged[80];
} problem;

static double number(const cJSON *of, const char *key)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(of, key);
    return cJSON_IsBool(x) ? cJSON_IsTrue(x) : cJSON_GetNumberValue(x);
}

static int64_t whole(uint64_t stream, int64_t i, uint64_t below)
{
    return (int64_t)(osh_rng_u64(NUMBERS, stream, (uint64_t)i) % below);
}

static float input(uint64_t stream, int64_t I, int64_t t, int64_t i)
{
    int64_t common = whole(stream + 2, t, 31) - 15;
    return (float)(common * whole(stream + 4, i, 4) + whole(stream + 3, t * I + i, 31) - 15) / 32;
}

/* Computes m, the result of the op `mix` for x [T, I] and x0 = x + d. Then sets x to m, and d to x0
 * - m. */
static void mix(osh_ctx *cx, float *x, float *d, int64_t I, uint64_t stream, double share)
{
    int64_t shape[2] = {T, I};
    float *x0 = calloc((size_t)(T * I), sizeof *x0);
    for (int64_t i = 0; i < T * I; i++) x0[i] = x[i] + d[i];
    osh_tensor of[2] = {osh_tensor_view(OSH_F32, 2, shape, x),
                        osh_tensor_view(OSH_F32, 2, shape, x0)};
    osh_mix_attr at = {.key = osh_mix_key(NUMBERS, stream, 0), .share = share};
    osh_op_args a = {.in = {&of[0], &of[1]}, .out = {&of[0]}, .attr = &at};
    assert_ok(cx, osh_op_run(cx, &osh_op_mix, &a));
    for (int64_t i = 0; i < T * I; i++) d[i] = x0[i] - x[i];
    free(x0);
}

static void make_sums(osh_ctx *cx, problem *p, uint64_t stream, bool shifts, double share)
{
    int64_t I = p->a.I;
    float *x = calloc((size_t)(2 * T * I), sizeof *x), *d = x + T * I;
    for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < I; i++) {
            x[t * I + i] = input(stream, I, t, i);
            d[t * I + i] = shifts ? (float)(whole(stream + 5, t * I + i, 9) - 4) / 32 : 0;
        }
    if (share < 1) mix(cx, x, d, I, stream, share);
    for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < I; i++)
            for (int64_t k = 0; k < I; k++) {
                p->h[i * I + k] += x[t * I + i] * x[t * I + k];
                p->shift[i * I + k] += d[t * I + i] * x[t * I + k];
            }
    free(x);
}

/* Returns the grid and the scales of a case. */
static osh_scale_rule scales_of(const cJSON *of)
{
    const cJSON *floats = cJSON_GetObjectItemCaseSensitive(of, "floats");
    const char *kind = floats ? floats->valuestring : "";
    bool bf16 =
        !strcmp(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(of, "dtype")), "BF16");
    return (osh_scale_rule){.grid = osh_grid_of((int)number(of, "bits"), *kind != 0),
                            .global = 10000,
                            .dtype = bf16 ? OSH_BF16 : OSH_F32,
                            .kind = !strcmp(kind, "E4M3") ? OSH_SCALE_E4M3 : OSH_SCALE_PLAIN};
}

/* Returns the scale of a group whose largest magnitude is `most`. */
static float scale_of(const osh_scale_rule *r, const cJSON *of, float most)
{
    const cJSON *floats = cJSON_GetObjectItemCaseSensitive(of, "floats");
    if (!r->grid.digits) return osh_round_to(most * 0.25f, r->dtype);
    if (!strcmp(floats->valuestring, "E8M0")) return exp2f(floorf(log2f(most / r->grid.hi)));
    return osh_scale_round(r, most / r->grid.hi);
}

static int8_t nearest_code(const osh_grid *g, float u, float zero)
{
    if (!g->digits) return (int8_t)fmaxf(g->lo, fminf(g->hi, nearbyintf(u) + zero));
    return osh_grid_code(g, osh_grid_nearest(g, fmaxf(g->lo, fminf(g->hi, u))) + 0.0f);
}

static osh_status problem_open(osh_ctx *cx, problem *p, const cJSON *of)
{
    osh_status rc = OSH_OK;
    uint64_t stream = (uint64_t)number(of, "stream");
    int64_t O = (int64_t)number(of, "O"), I = (int64_t)number(of, "I"),
            group = (int64_t)number(of, "group");
    const char *kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(of, "kind"));
    int64_t n = group ? group : I, G = I / n;
    osh_scale_rule scales = scales_of(of);
    *p = (problem){.of = of};
    p->a = (osh_ada_args){.rule = {.signed_scales = *kind == 's',
                                   .whole_range = true,
                                   .kind = *kind == 'a' || *kind == 's' ? OSH_ADA_SIGN
                                           : *kind == 'q'               ? OSH_ADA_QUANT
                                                                        : OSH_ADA_ROUND,
                                   .steps = (int64_t)number(of, "steps"),
                                   .reg = 0.01,
                                   .rate = number(of, "rate"),
                                   .scale_rate = number(of, "scale_rate"),
                                   .from = 20,
                                   .to = 2,
                                   .warm = 0.2},
                          .n_tokens = T,
                          .O = O,
                          .I = I,
                          .group = n,
                          .row_block = 1,
                          .scales = scales,
                          .period = PERIOD,
                          .nearest = p->nearest,
                          .learned = p->learned,
                          .curve = p->curve,
                          .diverged = p->diverged};
    OSH_TRY(osh_tensor_new(cx, &p->w, p->a.scales.dtype, 2, (int64_t[]){O, I}));
    OSH_NEW(cx, p->h, I * I);
    OSH_NEW(cx, p->shift, I * I);
    OSH_NEW(cx, p->scale, O * G);
    OSH_NEW(cx, p->zero, O * G);
    OSH_NEW(cx, p->codes, O * I);
    const cJSON *share = cJSON_GetObjectItemCaseSensitive(of, "share");
    make_sums(cx, p, stream, number(of, "shift") != 0, share ? share->valuedouble : 1);
    for (int64_t k = 0; k < O * G; k++) {
        float most = 0, w[64];
        for (int64_t i = 0; i < n; i++) {
            uint64_t at = (uint64_t)(k * n + i);
            w[i] = osh_rng_sym(NUMBERS, stream, at) * osh_rng_sym(NUMBERS, stream + 1, at) * 0.25f;
            w[i] = osh_round_to(w[i], p->a.scales.dtype);
            most = fmaxf(most, fabsf(w[i]));
        }
        p->scale[k] = scale_of(&scales, of, most);
        p->zero[k] = number(of, "zeros") != 0 ? (float)(k % 3 - 1) : 0;
        osh_from_f32((char *)p->w->data + (size_t)(k * n) * osh_dtype_bytes(scales.dtype),
                     scales.dtype, w, n);
        for (int64_t i = 0; i < n; i++)
            p->codes[k * n + i] = nearest_code(&scales.grid, w[i] / p->scale[k], p->zero[k]);
    }
    p->a.w = p->w, p->a.h = p->h, p->a.shift = number(of, "shift") != 0 ? p->shift : NULL;
    p->a.scale = p->scale, p->a.zero = number(of, "zeros") != 0 ? p->zero : NULL,
    p->a.codes = p->codes;
done:
    return rc;
}

static void problem_close(osh_ctx *cx, problem *p)
{
    osh_tensor_free(cx, p->w);
    osh_free(cx, p->h);
    osh_free(cx, p->shift);
    osh_free(cx, p->scale);
    osh_free(cx, p->zero);
    osh_free(cx, p->codes);
}

/* Checks that |got - want| is at most 1 % of the larger of `want` and `nearest`, the loss of
 * rounding to nearest. The loss of AdaRound's first step consists of rounding errors
 * only, because AdaRound starts from the unrounded weight. */
static void near(double got, double want, double nearest, const char *name, const char *what)
{
    if (!(fabs(got - want) <= 0.01 * fmax(fabs(want), nearest)))
        fail_msg("%s, %s: %.6g, PyTorch has %.6g", name, what, got, want);
}

static double mean(const double *of_rows, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += of_rows[i];
    return sum / T;
}

typedef struct golden {
    cJSON *json;   // own
    char *codes;   // own
    size_t n;
} golden;

static void golden_open(osh_ctx *cx, golden *g)
{
    char path[512];
    snprintf(path, sizeof path, "%s/curves.json", folder);
    assert_ok(cx, osh_json_read(cx, &g->json, path, 1 << 20, 0));
    snprintf(path, sizeof path, "%s/codes.bin", folder);
    assert_ok(cx, osh_file_read_all(cx, &g->codes, &g->n, path, 1 << 20));
}

static void learns_as_pytorch_does(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    golden g = {0};
    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    golden_open(cx, &g);
    const int8_t *want = (const int8_t *)g.codes;
    for (const cJSON *of = g.json->child; of; of = of->next) {
        problem p;
        int64_t same = 0, k = 0;
        assert_ok(cx, problem_open(cx, &p, of));
        int64_t n = p.a.O * p.a.I;
        assert_ok(cx, osh_ada(cx, &p.a));
        for (int64_t i = 0; i < n; i++) same += p.codes[i] == want[i];
        print_message("%-26s %ld of %ld codes, loss %.5f, PyTorch %.5f\n", of->string, (long)same,
                      (long)n, mean(p.learned, p.a.O), number(of, "learned"));
        double loss = number(of, "nearest");
        near(mean(p.nearest, p.a.O), loss, loss, of->string, "nearest");
        near(mean(p.learned, p.a.O), number(of, "learned"), loss, of->string, "learned");
        const cJSON *curve = cJSON_GetObjectItemCaseSensitive(of, "curve");
        for (const cJSON *c = curve->child; c; c = c->next)
            near(p.curve[k++], c->valuedouble, loss, of->string, "curve");
        assert_int_equal(k, osh_ada_points(p.a.rule.steps, PERIOD));
        if (same * 100 < n * 99) fail_msg("%s: %ld of %ld codes", of->string, (long)same, (long)n);
        want += n;
        problem_close(cx, &p);
    }
    assert_true((const char *)want == g.codes + g.n);
    cJSON_Delete(g.json);
    osh_free(cx, g.codes);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

/* Runs the first case after the callback `change` has changed its arguments. */
static void run_changed(problem *p, osh_ctx *cx, const golden *g, const char *name,
                        void (*change)(osh_ada_args *a))
{
    assert_ok(cx, problem_open(cx, p, cJSON_GetObjectItemCaseSensitive(g->json, name)));
    if (change) change(&p->a);
    assert_ok(cx, osh_ada(cx, &p->a));
}

static void few_steps(osh_ada_args *a) { a->rule.steps = 30; }
static void wild(osh_ada_args *a) { a->rule.rate = 0.01, a->rule.steps = 30; }
static void wilder(osh_ada_args *a) { a->rule.rate = 5, a->rule.steps = 30; }
static void wild_and_selective(osh_ada_args *a) { wild(a), a->rule.selective = true; }
static void stops(osh_ada_args *a) { a->rule.window = 10, a->rule.rate = 1e-12; }

/* If the loss of a row diverges, the row must get the codes of rounding to nearest. */
static void diverged_rows_are_nearest(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    golden g = {0};
    problem p;
    int64_t n = 0;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    golden_open(cx, &g);
    run_changed(&p, cx, &g, "quant_joint", wilder);
    for (int64_t o = 0; o < p.a.O; o++) {
        n += p.diverged[o];
        assert_true(p.diverged[o] ? p.learned[o] == p.nearest[o]
                                  : p.learned[o] <= 100 * p.nearest[o]);
    }
    assert_true(n > 0);
    problem_close(cx, &p);
    cJSON_Delete(g.json);
    osh_free(cx, g.codes);
    osh_ctx_free(cx);
}

/* If the learning rate is too large, some rows have a larger loss than after rounding to nearest.
 * With the option `selective`, there must be no such rows. */
static void selective_rows_are_no_worse(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    golden g = {0};
    problem p, q;
    int64_t worse = 0;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    golden_open(cx, &g);
    run_changed(&p, cx, &g, "quant_joint", wild);
    run_changed(&q, cx, &g, "quant_joint", wild_and_selective);
    for (int64_t o = 0; o < p.a.O; o++) {
        worse += p.learned[o] > p.nearest[o];
        assert_true(q.learned[o] <= q.nearest[o]);
    }
    assert_true(worse > 0);
    problem_close(cx, &p), problem_close(cx, &q);
    /* Learning stops after two windows of steps in which the loss does not improve. After the stop,
     * the curve of losses is constant. */
    run_changed(&p, cx, &g, "quant_weights", stops);
    for (int k = 7; k < 20; k++) assert_true(p.curve[k] == p.curve[6]);
    problem_close(cx, &p);
    cJSON_Delete(g.json);
    osh_free(cx, g.codes);
    osh_ctx_free(cx);
}

/* Weights that must stay 0 stay 0, and the bytes do not depend on the number of threads. */
static void zeros_stay_and_threads_do_not_show(void **state)
{
    static const char *const names[] = {"round_channel_zeros_shift", "quant_joint", "auto_zeros",
                                        "auto_nvfp4", "round_fp8"};
    (void)state;
    osh_ctx *cx[2] = {NULL};
    golden g = {0};
    for (int k = 0; k < 2; k++) assert_int_equal(osh_ctx_new(&cx[k], k ? 3 : 1), OSH_OK);
    golden_open(cx[0], &g);
    for (int c = 0; c < 5; c++) {
        problem p[2];
        for (int k = 0; k < 2; k++) {
            assert_ok(cx[k], problem_open(cx[k], &p[k],
                                          cJSON_GetObjectItemCaseSensitive(g.json, names[c])));
            for (int64_t i = 0; i < p[k].a.O * p[k].a.I; i += 3) {
                ((float *)p[k].w->data)[i] = 0;
                p[k].codes[i] = (int8_t)p[k].zero[i / p[k].a.group];
            }
            p[k].a.keep_zeros = true;
            few_steps(&p[k].a);
            assert_ok(cx[k], osh_ada(cx[k], &p[k].a));
        }
        int64_t n = p[0].a.O * p[0].a.I;
        assert_memory_equal(p[0].codes, p[1].codes, (size_t)n);
        assert_memory_equal(p[0].scale, p[1].scale, (size_t)(n / p[0].a.group) * sizeof(float));
        assert_memory_equal(p[0].learned, p[1].learned, (size_t)p[0].a.O * sizeof(double));
        for (int64_t i = 0; i < n; i += 3)
            assert_true(p[0].codes[i] == p[0].zero[i / p[0].a.group]);
        for (int k = 0; k < 2; k++) problem_close(cx[k], &p[k]);
    }
    cJSON_Delete(g.json);
    osh_free(cx[0], g.codes);
    for (int k = 0; k < 2; k++) osh_ctx_free(cx[k]);
}

static osh_status one_step(osh_ctx *cx, void *user)
{
    problem p;
    osh_status rc = problem_open(cx, &p, user);
    p.a.rule.steps = 1;
    if (!rc) rc = osh_ada(cx, &p.a);
    problem_close(cx, &p);
    return rc;
}

static void memory_is_what_was_said(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    golden g = {0};
    problem p;
    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    golden_open(cx, &g);
    for (const cJSON *of = g.json->child; of; of = of->next) {
        assert_ok(cx, problem_open(cx, &p, of));
        few_steps(&p.a);
        size_t said =
            osh_ada_bytes(p.a.O, p.a.I, p.a.group, osh_ada_points(p.a.rule.steps, PERIOD), 2);
        osh_mem_limit(cx, OSH_MEM_HOST, osh_mem_used(cx, OSH_MEM_HOST) + said);
        assert_ok(cx, osh_ada(cx, &p.a));
        osh_mem_limit(cx, OSH_MEM_HOST, 0);
        problem_close(cx, &p);
    }
    assert_true(torture(one_step, g.json->child) > 5);
    cJSON_Delete(g.json);
    osh_free(cx, g.codes);
    osh_ctx_free(cx);
}

int main(void)
{
    int unable = pin_isa();
    if (unable) return unable;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns_as_pytorch_does),
        cmocka_unit_test(diverged_rows_are_nearest),
        cmocka_unit_test(selective_rows_are_no_worse),
        cmocka_unit_test(zeros_stay_and_threads_do_not_show),
        cmocka_unit_test(memory_is_what_was_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
