/* test_smoothquant.c - compares our SmoothQuantModifier with LLM Compressor's. Compares the factors
 * and the folded weights. Factors are computed from ranges and weights. torch's pow may differ from
 * ours by a unit in the last place of f32. In BF16 and F16 the bits must be the same, because
 * rounding to 8 or 11 bits removes the difference. In F32 a factor is a quotient of two powers, so
 * factors and weights may differ by 4 units in the last place. The inputs are those of gen.py. */
#include "torture.h"

#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "io/container.h"
#include "modifiers/recipe.h"
#include "ops/kernel.h"
#include "tensor/fold.h"
#include "text/json.h"

enum { N = 129 };
static const uint64_t seed = 20261122;
static const char folder[] = OSH_SOURCE_DIR "/tests/golden/smoothquant";
static osh_ctx *cx;
static osh_container *st;

typedef struct smooth_case {
    const char *name;
    osh_dtype dt;
    uint64_t stream;
    osh_recipe *recipe; // own
} smooth_case;

static float number(const smooth_case *c, int stream, int64_t i)
{
    return osh_rng_sym(seed, c->stream + (uint64_t)stream, (uint64_t)i);
}

static float square(const smooth_case *c, int stream, int64_t i)
{
    float x = number(c, stream, i);
    return i % 17 == 3 ? 0 : osh_round_to(x * x * 16, c->dt);
}

static float weight(const smooth_case *c, int layer, int64_t row, int64_t column)
{
    return column % 13 == 5 ? 0 : osh_round_to(number(c, 2 + layer, row * N + column) / 4, c->dt);
}

static void wanted(float *to, const smooth_case *c, const char *leaf, int64_t n)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", c->name, leaf);
    for (int64_t i = 0; i < osh_container_count(st); i++) {
        const osh_entry *e = osh_container_at(st, i);
        if (strcmp(e->name, name)) continue;
        char raw[2 * N * 4];
        assert_int_equal(e->end - e->begin, n * (int64_t)osh_dtype_bytes(e->dtype));
        assert_ok(cx, osh_container_read(cx, raw, st, e));
        osh_to_f32(to, raw, e->dtype, n);
        return;
    }
    fail_msg("no %s", name);
}

static void compare(const smooth_case *c, const char *leaf, const float *got, int64_t n)
{
    float want[2 * N];
    double tol = c->dt == OSH_F32 ? 4 * ldexp(1, -23) : 0;
    wanted(want, c, leaf, n);
    for (int64_t i = 0; i < n; i++)
        if (got[i] != want[i] && !(fabs((double)got[i] - want[i]) <= tol * fabs(want[i])))
            fail_msg("%s.%s, element %ld: %.9g, want %.9g", c->name, leaf, (long)i, (double)got[i],
                     (double)want[i]);
}

static void fold_and_compare(const smooth_case *c, const char *leaf, float *w, int64_t n,
                             osh_fold_way way, const float *s)
{
    char raw[2 * N * 4];
    const osh_fold_rule rule = {way, s, way == OSH_FOLD_ROWS ? 1 : N, 0};
    int64_t size = (int64_t)osh_dtype_bytes(c->dt);
    osh_from_f32(raw, c->dt, w, n);
    // the weight is processed in chunks whose ends are inside a row
    for (int64_t at = 0, k; at < n; at += k) {
        k = n - at < 50 ? n - at : 50;
        osh_fold_factors(raw + at * size, c->dt, &rule, at, k);
    }
    osh_to_f32(w, raw, c->dt, n);
    compare(c, leaf, w, n);
}

static void case_of(const smooth_case *c)
{
    const osh_modifier *m = &c->recipe->modifiers[0];
    float lo[N], hi[N], most[N] = {0}, s[N], w[2][2 * N], norm[N];
    for (int64_t i = 0; i < N; i++) {
        lo[i] = -square(c, 0, i), hi[i] = square(c, 1, i),
        norm[i] = osh_round_to(1 + number(c, 4, i) / 2, c->dt);
        for (int k = 0; k < 4; k++) w[k / 2][k % 2 * N + i] = weight(c, k / 2, k % 2, i);
    }
    for (int k = 0; k < 2; k++) osh_fold_most(most, w[k], OSH_F32, N, 0, 2 * N);
    m->type->transform->factors(m, s, &(osh_channels){.lo = lo, .hi = hi, .most = most, .n = N,
                                                      .dtype = c->dt});
    compare(c, "s", s, N);
    fold_and_compare(c, "balance", w[0], 2 * N, OSH_FOLD_COLUMNS, s);
    fold_and_compare(c, "norm", norm, N, OSH_FOLD_ROWS, s);
}

static void test_cases(void **state)
{
    cJSON *cases = NULL; // own
    char path[512], text[400];
    int n = 0;
    (void)state;
    snprintf(path, sizeof path, "%s/cases.json", folder);
    assert_ok(cx, osh_json_read(cx, &cases, path, 1 << 20, 0));
    for (const cJSON *o = cases->child; o; o = o->next, n++) {
        smooth_case c = {.name = o->string,
                         .dt = osh_dtype_of_name(cJSON_GetObjectItem(o, "dtype")->valuestring),
                         .stream = (uint64_t)cJSON_GetObjectItem(o, "stream")->valuedouble};
        snprintf(
            text, sizeof text,
            "s_stage: {q_modifiers: {SmoothQuantModifier: {smoothing_strength: %g, algorithm: %s}, "
            "QuantizationModifier: {scheme: W8A8}}}",
            cJSON_GetObjectItem(o, "strength")->valuedouble,
            cJSON_GetObjectItem(o, "algorithm")->valuestring);
        assert_ok(cx, osh_recipe_parse(cx, &c.recipe, text, strlen(text), "case"));
        case_of(&c);
        osh_recipe_free(cx, c.recipe);
    }
    assert_int_equal(n, 18);
    cJSON_Delete(cases);
}

static int setup(void **state)
{
    char path[512];
    (void)state;
    snprintf(path, sizeof path, "%s/factors.safetensors", folder);
    return osh_ctx_new(&cx, 1) || osh_container_open(cx, &st, path);
}

static int teardown(void **state)
{
    (void)state;
    osh_container_close(cx, st);
    int live = osh_mem_live(cx) != 0;
    osh_ctx_free(cx);
    return live;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
