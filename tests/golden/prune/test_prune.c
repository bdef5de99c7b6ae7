/* test_prune.c - compares pruned weights with LLM Compressor's. The zeros must be the same. The
 * other values of SparseGPT may differ by a unit in the last place of BF16, because a sum in f32
 * may end on the other side of a tie. The inputs are those of gen.py. */
#include "torture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "io/container.h"
#include "modifiers/prune.h"
#include "modifiers/recipe.h"
#include "ops/kernel.h"
#include "text/json.h"

// LATER: largest number of weights whose last bit may differ
enum { O = 24, I = 64, T = 256, SAMPLES = 4, LATER = 16 };
static const uint64_t seed = 20261122;
static const char folder[] = OSH_SOURCE_DIR "/tests/golden/prune";
static osh_ctx *cx;
static osh_container *st;

static uint64_t stream_of(const cJSON *o)
{
    return (uint64_t)cJSON_GetObjectItem(o, "stream")->valuedouble;
}

static float input(uint64_t stream, int64_t t, int64_t i)
{
    float v = osh_rng_sym(seed, stream + 1, (uint64_t)(t * I + i)),
          u = osh_rng_sym(seed, stream + 2, (uint64_t)t);
    return i == 9 ? 0 : osh_round_to(osh_round_to(v * (float)(1 + i % 5) + u, OSH_F32), OSH_BF16);
}

static void make_weight(uint16_t *w, const cJSON *o)
{
    for (int64_t r = 0; r < O; r++)
        for (int64_t i = 0; i < I; i++) {
            float x = osh_rng_sym(seed, stream_of(o), (uint64_t)(r * I + i));
            if (cJSON_GetObjectItem(o, "zeros") && (r + i) % 7 == 0) x = 0;
            osh_from_f32(w + r * I + i, OSH_BF16, &x, 1);
        }
}

static void make_stats(float *h, float *importance, const cJSON *o)
{
    for (int64_t i = 0; i < I; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = 0;
            for (int64_t t = 0; t < T; t++)
                sum += (double)input(stream_of(o), t, i) * input(stream_of(o), t, j);
            h[i * I + j] = (float)sum;
            if (i == j) importance[i] = (float)sum;
        }
}

static osh_recipe *recipe_of(const cJSON *o)
{
    char text[400];
    const char *type = cJSON_GetObjectItem(o, "modifier")->valuestring;
    int n = snprintf(text, sizeof text, "s_stage: {p_modifiers: {%s: {", type);
    osh_recipe *r = NULL;
    for (const cJSON *k = o->child; k; k = k->next) {
        if (!strcmp(k->string, "modifier") || !strcmp(k->string, "stream") ||
            !strcmp(k->string, "zeros"))
            continue;
        char *value = cJSON_PrintUnformatted(k); // own
        n += snprintf(text + n, sizeof text - (size_t)n, "%s: %s, ", k->string, value);
        cJSON_free(value);
    }
    snprintf(text + n, sizeof text - (size_t)n, "}}}");
    assert_ok(cx, osh_recipe_parse(cx, &r, text, strlen(text), "case"));
    return r;
}

static void compare(const char *name, const uint16_t *got)
{
    uint16_t want[O * I];
    int later = 0;
    for (int64_t i = 0; i < osh_container_count(st); i++)
        if (!strcmp(osh_container_at(st, i)->name, name))
            assert_ok(cx, osh_container_read(cx, want, st, osh_container_at(st, i)));
    for (int i = 0; i < O * I; i++) {
        int a = got[i] & 0x7fff, b = want[i] & 0x7fff;
        bool near = a && b && got[i] >> 15 == want[i] >> 15 && abs(a - b) == 1;
        later += near;
        if (a != b && !near)
            fail_msg("%s, row %d, column %d: %04x, want %04x", name, i / I, i % I, got[i], want[i]);
    }
    if (later > LATER) fail_msg("%s: %d weights off by one", name, later);
}

static void case_of(const cJSON *o)
{
    uint16_t w[O * I];
    float h[I * I] = {0}, importance[I];
    osh_recipe *r = recipe_of(o);
    const osh_modifier *m = &r->modifiers[0];
    make_weight(w, o);
    make_stats(h, importance, o);
    osh_tensor wt = osh_tensor_view(OSH_BF16, 2, (int64_t[]){O, I}, w);
    osh_tensor ht = osh_tensor_view(OSH_F32, 2, (int64_t[]){I, I}, h);
    osh_linear_job j = {.name = o->string, .scheme = &m->schemes[0], .w = &wt,
                        .params.importance = importance};
    assert_ok(cx, m->type->pruner->sparsity(cx, &j.sparsity, m, 0, 1));
    assert_ok(cx, m->type->solver->compress(cx, m, &j, 1, &ht, SAMPLES));
    assert_true(j.packed && !j.fallback);
    assert_memory_equal(j.codes, w, sizeof w);
    compare(o->string, w);
    osh_linear_job_deinit(cx, &j);
    osh_recipe_free(cx, r);
}

static void test_cases(void **state)
{
    cJSON *cases = NULL; // own
    char path[512];
    (void)state;
    snprintf(path, sizeof path, "%s/cases.json", folder);
    assert_ok(cx, osh_json_read(cx, &cases, path, 1 << 20, 0));
    for (const cJSON *o = cases->child; o; o = o->next) case_of(o);
    assert_int_equal(cJSON_GetArraySize(cases), 9);
    cJSON_Delete(cases);
}

static int setup(void **state)
{
    char path[512];
    (void)state;
    snprintf(path, sizeof path, "%s/pruned.safetensors", folder);
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
