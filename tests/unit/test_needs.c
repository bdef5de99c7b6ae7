/* test_needs.c - tests a prediction of modifiers: their function `needs` tells the plan how many
 * bytes their function `compress` will take.
 *
 * The test tries every modifier, and the survey, with weights of all strategies. There are one or
 * three Linears, one or three threads, and results that are freed at once or kept. A prediction
 * must be at least the used bytes, and at most 1.15 times the used bytes. If each Linear has a
 * thread of its own, the number of Linears that are solved at the same time varies. In this case
 * the upper bound is 1.15 times the bytes of one Linear times the number of threads. */
#include "plain.h"
#include "torture.h"

#include <stdio.h>

#include "base/rng.h"
#include "modifiers/recipe.h"
#include "modifiers/survey.h"

enum { MOST = 12, SHAPES = 3, I = 192, N_SAMPLES = 64, MOST_PERCENT = 115 };
static int n_tried, n_apart;
/* number of rows of each Linear; the second case has few rows, so data for each column takes most
 * of the memory */
static const int64_t rows[][SHAPES] = {{160, 96, 160}, {32, 8, 32}};
/* X^T X of random rows X, and X^T Y for other rows Y; each is [I, I] */
static float square[2][I * I];

typedef struct trial {
    const osh_modifier *m;
    int n, n_threads, shape; // `shape` is an index into `rows`
    /* stays: true if results are kept.
     * keep_w: true if weights are kept.
     * both: true if the target is 'original'. */
    bool stays, keep_w, both;
    bool apart;               // true if there are enough Linears to give each thread one
} trial;

static osh_status job_take(osh_ctx *cx, osh_linear_job *j)
{
    osh_linear_job_deinit(cx, j);
    return OSH_OK;
}

static osh_tensor *random_of(osh_ctx *cx, osh_dtype dtype, int64_t O, uint64_t seed)
{
    osh_tensor *t = NULL;
    assert_ok(cx, osh_tensor_new(cx, &t, dtype, 2, (int64_t[]){O, I}));
    for (int64_t i = 0; i < O * I; i++) {
        float x = (float)((double)(osh_rng_u64(seed, 0, (uint64_t)i) >> 40) / (1 << 24) - 0.5);
        osh_from_f32((char *)t->data + (size_t)i * osh_dtype_bytes(dtype), dtype, &x, 1);
    }
    return t;
}

PLAIN static void add_product(float *restrict to, const float *restrict x, const float *restrict y,
                              float scale)
{
    for (int64_t i = 0; i < I; i++)
        for (int64_t j = 0; j < I; j++) to[i * I + j] += x[i] * scale * y[j];
}

static void make_squares(osh_ctx *cx)
{
    osh_tensor *x = random_of(cx, OSH_F32, 2 * I, 7), *y = random_of(cx, OSH_F32, 2 * I, 8);
    const float *a = x->data, *b[2] = {x->data, y->data};
    for (int of = 0; of < 2; of++)
        for (int64_t k = 0; k < 2 * I; k++)
            add_product(square[of], a + k * I, b[of] + k * I, of ? 0.1F : 1);
    osh_tensor_free(cx, x), osh_tensor_free(cx, y);
}

static osh_tensor *copy_of(osh_ctx *cx, const float *from)
{
    osh_tensor *t = NULL;
    assert_ok(cx, osh_tensor_new(cx, &t, OSH_F32, 2, (int64_t[]){I, I}));
    memcpy(t->data, from, sizeof square[0]);
    return t;
}

static osh_status nothing(osh_ctx *cx, void *user, int64_t chunk, int worker)
{
    (void)cx, (void)user, (void)chunk, (void)worker;
    return OSH_OK;
}

/* `said`: predicted bytes. `took`: used bytes. `with`: another number of bytes. Fails if `said` is
 * less than `took`, or more than MOST_PERCENT percent of `with`. */
static void trial_check(const trial *t, const char *text, size_t said, size_t took, size_t with)
{
    const char *stays = t->stays ? ", results stay" : "", *keep = t->keep_w ? ", weights stay" : "";
    if (took <= said && said * 100 <= with * MOST_PERCENT) return;
    fail_msg("%s: %d Linears of %d rows, %d threads%s%s%s: takes %zu bytes, or %zu, says %zu", text,
             t->n, (int)rows[t->shape][0], t->n_threads, stays, keep, t->apart ? ", apart" : "",
             took, with, said);
}

/* Returns the number of bytes that `compress` uses. Sets *said to the predicted number, and *result
 * to the size of the result of the first Linear. */
static size_t trial_measure(const trial *t, size_t *said, size_t *result)
{
    osh_ctx *cx = NULL;
    osh_linear_job jobs[MOST] = {{0}};
    osh_tensor *w[MOST] = {NULL}, *h, *shift = NULL;
    assert_int_equal(osh_ctx_new(&cx, t->n_threads), OSH_OK);
    osh_log_setup(cx, OSH_LOG_ERROR, OSH_PROGRESS_NONE);
    assert_ok(cx, osh_parallel_for(cx, 64, nothing, NULL)); // starts the threads of the pool before
                                                            // memory is measured
    h = copy_of(cx, square[0]);
    if (t->both) shift = copy_of(cx, square[1]);
    for (int k = 0; k < t->n; k++) {
        w[k] = random_of(cx, OSH_BF16, rows[t->shape][k % SHAPES], (uint64_t)k);
        jobs[k] = (osh_linear_job){.name = "a", .scheme = &t->m->schemes[0], .w = w[k],
                                   .shift = shift, .sparsity = 0.5, .keep_w = t->keep_w,
                                   .done = t->stays ? NULL : job_take, .n_tokens = 2 * I,
                                   .apart = t->apart};
    }
    *result = osh_job_result_bytes(&jobs[0]);
    assert_int_equal(osh_jobs_at_once(jobs, t->n, t->n_threads) > 1, t->apart);
    osh_ctx_anew(cx);
    size_t before = osh_mem_used(cx, OSH_MEM_HOST);
    *said = t->m->type->solver->needs(t->m, jobs, t->n, t->n_threads, NULL);
    assert_ok(cx, t->m->type->solver->compress(cx, t->m, jobs, t->n, h, N_SAMPLES));
    size_t took = osh_mem_used_peak(cx, OSH_MEM_HOST) - before;
    for (int k = 0; k < t->n; k++) osh_linear_job_deinit(cx, &jobs[k]), osh_tensor_free(cx, w[k]);
    osh_tensor_free(cx, h), osh_tensor_free(cx, shift);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
    n_tried++;
    return took;
}

static void trial_try(const trial *t, const char *text)
{
    size_t said, result, took = trial_measure(t, &said, &result);
    trial_check(t, text, said, took, took);
}

/* Tests `needs` for many Linears that are solved at the same time, each on its own thread. The
 * bound comes from a measurement of a single Linear. */
static void try_apart(const osh_modifier *m, int n_threads, bool stays, const char *text)
{
    bool both = strstr(text, "original") != NULL;
    trial one = {.m = m, .n = 1, .n_threads = 1, .both = both};
    trial all = {
        .m = m, .n = MOST, .n_threads = n_threads, .stays = stays, .both = both, .apart = true};
    size_t said, result, alone_said, took = trial_measure(&all, &said, &result),
                                     alone = trial_measure(&one, &alone_said, &result);
    int waiting = stays || osh_jobs_waiting(n_threads) > MOST ? MOST : osh_jobs_waiting(n_threads);
    trial_check(&all, text, said, took,
                (size_t)n_threads * alone + (size_t)(waiting - n_threads) * result);
}

/* Reads a recipe, and tries its modifier with several combinations of arguments. Returns false if
 * the recipe is refused. */
static bool try_text(const char *text, bool survey)
{
    osh_ctx *cx = NULL;
    osh_recipe *r = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_log_setup(cx, OSH_LOG_ERROR, OSH_PROGRESS_NONE);
    osh_status rc = osh_recipe_parse(cx, &r, text, strlen(text), "r.yaml");
    if (!rc && survey) rc = osh_survey_begin(cx, &r->modifiers[0]);
    for (int way = 0; !rc && way < 16; way++) {
        /* With sanitizers only four of the 16 combinations are tried; every value of every member
         * occurs in one of them. */
        if (SANITIZED && way != 1 && way != 6 && way != 11 && way != 12) continue;
        // Without sanitizers eight combinations are tried. Every pair of values of two members
        // occurs in one of them.
        if (!SANITIZED && ((way ^ way >> 1 ^ way >> 2) & 1)) continue;
        trial t = {.m = &r->modifiers[0], .n = way & 1 ? 3 : 1, .n_threads = way & 2 ? 3 : 1,
                   .shape = way >> 2 == 3, .stays = way >> 2 == 1, .keep_w = way >> 2 == 2,
                   .both = strstr(text, "original") != NULL};
        trial_try(&t, text);
    }
    for (int way = 0; !rc && way < 4 && r->modifiers[0].type->solver->apart && !survey; way++) {
        if (SANITIZED && way != 1 && way != 2) continue;
        try_apart(&r->modifiers[0], way & 1 ? 3 : 2, way & 2, text), n_apart++;
    }
    osh_recipe_free(cx, r);
    osh_ctx_free(cx);
    return !rc;
}

static const char *const weights[] = {
    "num_bits: 4, group_size: 32",
    "num_bits: 4, group_size: 32, symmetric: false",
    "num_bits: 8, strategy: channel",
    "num_bits: 8, strategy: tensor",
    "num_bits: 8, strategy: block, block_structure: [32, 32]",
    "num_bits: 4, group_size: 64, observer: memoryless_mse",
    "num_bits: 8, type: float, strategy: channel",
};
/* Additional recipe keys for a modifier. These keys reduce the number of steps, or need more memory
 * than the defaults. */
static const struct { const char *name, *keys; } more[] = {
    {"GPTQModifier", "actorder: weight, "},
    {"GPTQModifier", "block_size: 64, "},
    {"GPTQModifier", "quality: best, "},
    {"GPTQModifier", "target: original, "},
    {"AdaRoundModifier", "num_iterations: 4, "},
    {"AdaQuantModifier", "num_iterations: 4, "},
    {"AutoRoundModifier", "iters: 4, "},
    {"SparseGPTModifier", "sparsity: 0.5"},
    {"SparseGPTModifier", "sparsity: 0.5, mask_structure: '2:4'"},
    {"WandaPruningModifier", "sparsity: 0.5"},
    {"MagnitudePruningModifier", "final_sparsity: 0.5"},
    {"ConstantPruningModifier", "targets: [Linear]"},
};

static bool try_keys(const osh_modifier_type *type, const char *keys)
{
    bool any = false, prunes = type->pruner;
    char text[512];
    for (size_t i = 0; i < (prunes ? 1 : sizeof weights / sizeof *weights); i++) {
        if (prunes)
            snprintf(text, sizeof text, "s_stage: {s_modifiers: {%s: {%s}}}", type->name, keys);
        else
            snprintf(text, sizeof text,
                     "s_stage: {s_modifiers: {%s: {%sconfig_groups: {g: {%s, weights: {%s}}}}}}",
                     type->name, keys, "targets: [Linear]", weights[i]);
        /* With sanitizers, each set of keys is tried with only a third of the weights. */
        if (SANITIZED && *keys && i % 3) continue;
        any |= try_text(text, false);
        if (!prunes && !*keys && strstr(weights[i], "type: float") == NULL) try_text(text, true);
    }
    return any;
}

static void test_all(void **state)
{
    osh_ctx *cx = NULL;
    (void)state;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    make_squares(cx);
    osh_ctx_free(cx);
    for (size_t i = 0; i < osh_modifier_count(); i++) {
        const osh_modifier_type *type = osh_modifier_at(i);
        bool any = false, known = false;
        if (!type->solver) continue;
        for (size_t k = 0; k < sizeof more / sizeof *more; k++)
            if (!strcmp(more[k].name, type->name))
                known = true, any |= try_keys(type, more[k].keys);
        if (!known || !strcmp(type->name, "GPTQModifier")) any |= try_keys(type, "");
        if (!any) fail_msg("%s: no recipe of it is tried", type->name);
    }
    assert_true(n_apart > 0);
    printf("%d calls\n", n_tried);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
