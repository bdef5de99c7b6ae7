/* test_calibrate.c - tests observers that use histograms. Their ranges must be equal bit for bit to
 * those of NumPy (gen_calibrate.py). No value may be lost when a histogram grows. A weight, and
 * each head of an attention, must get the range of its own values. */
#include "torture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "modifiers/recipe.h"
#include "quant/calibrate.h"
#include "text/json.h"

static const uint64_t seed = 20261124;
static const char path[] = OSH_SOURCE_DIR "/tests/golden/observers/calibrate.json";
static osh_ctx *cx;

static int setup(void **state)
{
    (void)state;
    return osh_ctx_new(&cx, 2) ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    int live = osh_mem_live(cx) != 0;
    osh_ctx_free(cx);
    return live;
}

/* Returns n random values in rows of 100 (own). Each row has its 100 values `copies` times; copy c
 * is multiplied by 1 + c. */
static osh_tensor *sample(uint64_t stream, int64_t n, float scale, bool one_sided, int copies)
{
    osh_tensor *x = NULL;
    assert_ok(cx, osh_tensor_new(cx, &x, OSH_F32, 2, (int64_t[]){n / 100, 100 * copies}));
    float *f = x->data;
    for (int64_t i = 0; i < n; i++) {
        uint64_t k = (uint64_t)i;
        float v = osh_rng_sym(seed, stream, k) * osh_rng_sym(seed, stream + 1, k) *
                  osh_rng_sym(seed, stream + 2, k);
        v *= scale;
        for (int c = 0; c < copies; c++)
            f[i / 100 * 100 * copies + c * 100 + i % 100] =
                (one_sided ? fabsf(v) : v) * (float)(1 + c);
    }
    return x;
}

static osh_recipe *recipe_of(const char *args)
{
    osh_recipe *r = NULL;
    char text[1024];
    snprintf(text, sizeof text,
             "s_stage: {s_modifiers: {QuantizationModifier: {config_groups: {group_0: {targets: "
             "[Linear], weights: "
             "{num_bits: 8, type: %s, strategy: channel}, input_activations: %s}}}}}",
             strstr(args, "type: float") ? "float" : "int", args);
    assert_ok(cx, osh_recipe_parse(cx, &r, text, strlen(text), "r.yaml"));
    return r;
}

static void check(const cJSON *c, int number)
{
    osh_recipe *r = recipe_of(cJSON_GetObjectItem(c, "args")->valuestring);
    const osh_q_args *a = &r->modifiers[0].schemes[0].inputs;
    bool one_sided = cJSON_IsTrue(cJSON_GetObjectItem(c, "one_sided"));
    osh_act_observer o[3] = {{0}}; // o[0] and o[1] observe one head; o[2] observes two heads
    const cJSON *s = NULL;
    int64_t total = 0, seen = 0;
    float lo, hi, l, u;
    int k = 0;
    for (int look = 0; look <= (int)osh_observer_twice(a); look++) {
        k = 0;
        cJSON_ArrayForEach(s, cJSON_GetObjectItem(c, "samples"))
        {
            int64_t n = (int64_t)s->child->valuedouble;
            uint64_t stream = (uint64_t)(10 * number + 100 * k++);
            for (int copies = 1; copies <= 2; copies++) {
                osh_tensor *x =
                    sample(stream, n, (float)s->child->next->valuedouble, one_sided, copies);
                if (look)
                    assert_ok(cx, osh_act_observe_again(cx, &o[copies - 1], copies, x, a, NULL));
                else assert_ok(cx, osh_act_observe(cx, &o[copies - 1], copies, x, a));
                osh_tensor_free(cx, x);
            }
            total += look ? 0 : n;
        }
    }
    for (int64_t b = -o[0].counts->n; b < o[0].counts->n; b++)
        seen += osh_histogram_at(o[0].counts, b);
    assert_int_equal(seen, total);
    assert_int_equal(o[0].counts->total, total);
    osh_act_observed(&lo, &hi, &o[0], a, OSH_F32);
    double want_lo = cJSON_GetObjectItem(c, "lo")->valuedouble,
           want_hi = cJSON_GetObjectItem(c, "hi")->valuedouble;
    if (lo != (float)want_lo || hi != (float)want_hi)
        fail_msg("%s: [%.9g, %.9g], want [%.9g, %.9g]", c->string, (double)lo, (double)hi, want_lo,
                 want_hi);
    osh_act_observed(&l, &u, &o[1], a, OSH_F32);
    if (l != lo || u != hi) fail_msg("%s: of a head [%.9g, %.9g]", c->string, (double)l, (double)u);
    osh_act_observed(&l, &u, &o[2], a, OSH_F32);
    if (l != 2 * lo || u != 2 * hi)
        fail_msg("%s: of twice the values [%.9g, %.9g]", c->string, (double)l, (double)u);
    for (int i = 0; i < 3; i++) osh_act_observer_deinit(cx, &o[i]);
    osh_recipe_free(cx, r);
}

static void test_numpy(void **state)
{
    char *text = NULL;
    size_t n = 0;
    int number = 0;
    (void)state;
    assert_ok(cx, osh_file_read_all(cx, &text, &n, path, 1 << 20));
    cJSON *root = cJSON_Parse(text), *c = NULL;
    assert_non_null(root);
    cJSON_ArrayForEach(c, root) check(c, number++);
    assert_true(number >= 23);
    cJSON_Delete(root);
    osh_free(cx, text);
}

/* A weight with one scale is observed as one sample. A weight with a scale per row is observed row
 * by row. */
static void test_weights(void **state)
{
    static const char *const observers[] = {"percentile", "layerwise_percentile", "min_mse",
                                            "entropy", "distribution"};
    (void)state;
    for (size_t i = 0; i < sizeof observers / sizeof *observers; i++)
        for (int way = 0; way < 4; way++) {
            bool by_row = way & 1, twice = way & 2;
            if (twice && !osh_observer_find(observers[i])->candidate) continue;
            osh_q_args a = {.present = true, .bits = 8, .type = OSH_Q_INT, .symmetric = true,
                            .strategy = by_row ? OSH_Q_CHANNEL : OSH_Q_TENSOR};
            osh_tensor *x = sample(5, 300, 1, false, 1);
            float lo[3], hi[3];
            snprintf(a.observer, sizeof a.observer, "%s", observers[i]);
            if (twice) a.kwargs[a.n_kwargs++] = (osh_q_kwarg){.name = "exact", .value = 1};
            int64_t rows = by_row ? x->shape[0] : 1, each = osh_tensor_numel(x) / rows;
            for (int64_t r = 0; r < rows; r++) {
                const float *f = (const float *)x->data + r * each;
                lo[r] = hi[r] = f[0];
                for (int64_t k = 0; k < each; k++)
                    lo[r] = fminf(lo[r], f[k]), hi[r] = fmaxf(hi[r], f[k]);
            }
            osh_range_job j = {.a = &a, .dt = OSH_F32, .from = OSH_F32, .w = x->data,
                               .O = x->shape[0],
                               .I = x->shape[1], .min = lo, .max = hi};
            assert_ok(cx, osh_observer_search(cx, &j));
            for (int64_t r = 0; r < rows; r++) {
                osh_act_observer o = {0};
                float *from = (float *)x->data + r * each, l, u;
                osh_tensor part = osh_tensor_view(OSH_F32, 2, (int64_t[]){each / 100, 100}, from);
                assert_ok(cx, osh_act_observe(cx, &o, 1, &part, &a));
                if (twice) assert_ok(cx, osh_act_observe_again(cx, &o, 1, &part, &a, NULL));
                osh_act_observed(&l, &u, &o, &a, OSH_F32);
                if (l != lo[r] || u != hi[r])
                    fail_msg("%s: [%g, %g], want [%g, %g]", observers[i], (double)lo[r],
                             (double)hi[r], (double)l, (double)u);
                osh_act_observer_deinit(cx, &o);
            }
            osh_tensor_free(cx, x);
        }
}

/* Tests a sample of zeros before other samples, and only samples of zeros. */
static void test_zeros(void **state)
{
    osh_q_args a = {.present = true, .bits = 8, .symmetric = true, .observer = "percentile"};
    osh_act_observer o = {0};
    float lo, hi;
    (void)state;
    for (int k = 0; k < 2; k++) {
        osh_tensor *x = sample(5, 1000, (float)k, false, 1);
        assert_ok(cx, osh_act_observe(cx, &o, 1, x, &a));
        osh_act_observed(&lo, &hi, &o, &a, OSH_F32);
        assert_true(k ? hi > 0 && lo < 0 : hi == 0 && lo == 0);
        osh_tensor_free(cx, x);
    }
    assert_true(osh_histogram_at(o.counts, 0) >= 1000);
    osh_act_observer_deinit(cx, &o);
}

/* Observes two heads, in two passes over the values. */
static osh_status look_twice(osh_ctx *tortured, void *user)
{
    osh_status rc = OSH_OK;
    osh_q_args a = {.present = true, .bits = 8, .symmetric = true, .observer = "min_mse",
                    .n_kwargs = 1,
                    .kwargs = {{.name = "exact", .value = 1}}};
    osh_act_observer o[2] = {{0}};
    for (int look = 0; look < 2; look++) {
        if (look) OSH_TRY(osh_act_observe_again(tortured, o, 2, user, &a, NULL));
        else OSH_TRY(osh_act_observe(tortured, o, 2, user, &a));
    }
done:
    for (int h = 0; h < 2; h++) osh_act_observer_deinit(tortured, &o[h]);
    return rc;
}

static void test_out_of_memory(void **state)
{
    osh_tensor *x = sample(5, 200, 1, false, 2);
    (void)state;
    assert_true(torture(look_twice, x) >= 11);
    osh_tensor_free(cx, x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numpy), cmocka_unit_test(test_weights),
                                       cmocka_unit_test(test_zeros),
                                       cmocka_unit_test(test_out_of_memory)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
