/* test_observers.c - compares scales and zero points of weights and activations with LLM
 * Compressor's observers (gen.py), byte for byte. Runs under each instruction set
 * (cmake/tests.cmake) and with two numbers of threads. |x|^norm in F32 may differ from torch's
 * result by a unit in the last place. If the losses of two steps differed by less than 1e-7, a
 * search could end at another step. The cases have no such losses. */
#include "torture.h"
#include "kernels/kernel_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "io/container.h"
#include "modifiers/recipe.h"
#include "quant/observer.h"
#include "text/json.h"

static const uint64_t seed = 20261123;
static const char folder[] = OSH_SOURCE_DIR "/tests/golden/observers";
static osh_ctx *one, *three;

static int setup(void **state)
{
    (void)state;
    return osh_ctx_new(&one, 1) || osh_ctx_new(&three, 3) ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    int live = osh_mem_live(one) != 0;
    osh_ctx_free(one);
    osh_ctx_free(three);
    return live;
}

static int64_t number(const cJSON *c, const char *key)
{
    return (int64_t)cJSON_GetObjectItem(c, key)->valuedouble;
}

static float weight_at(uint64_t stream, int64_t r, int64_t c, int64_t cols)
{
    uint64_t i = (uint64_t)(r * cols + c);
    float w = osh_rng_sym(seed, stream, i) * osh_rng_sym(seed, stream + 1, i) * 0.25f;
    switch (r % 8) {
    case 1:
        return fabsf(w);
    case 2:
        return -fabsf(w);
    case 3:
        return w * 0x1p-20f;
    case 4:
        return 0;
    case 5:
        return c == r % cols ? 3 : w;
    default:
        return w;
    }
}

static osh_tensor *make_values(const cJSON *c, int sample)
{
    osh_tensor *w = NULL;
    int64_t rows = number(c, "rows") + 5 * sample, cols = number(c, "cols");
    uint64_t stream = (uint64_t)(number(c, "stream") + 3 * sample);
    osh_dtype dt = osh_dtype_of_name(cJSON_GetObjectItem(c, "dtype")->valuestring);
    float *f = malloc((size_t)(rows * cols) * sizeof *f);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k++) f[r * cols + k] = weight_at(stream, r, k, cols);
    assert_ok(one, osh_tensor_new(one, &w, dt, 2, (int64_t[]){rows, cols}));
    osh_from_f32(w->data, dt, f, rows * cols);
    free(f);
    return w;
}

static float *make_importance(const cJSON *c)
{
    int64_t I = number(c, "cols");
    float *x = malloc((size_t)I * sizeof *x);
    double all = 0;
    for (int64_t i = 0; i < I; i++) {
        float u = osh_rng_sym(seed, (uint64_t)number(c, "stream") + 2, (uint64_t)i);
        x[i] = i % 11 == 3 ? 0 : (u * u) * (u * u);
        all += x[i];
    }
    for (int64_t i = 0; i < I; i++) x[i] = (float)(x[i] * (double)I / all);
    return x;
}

static void same(const osh_container *st, const char *name, const char *leaf, const osh_tensor *t)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s", name, leaf);
    for (int64_t i = 0; i < osh_container_count(st); i++) {
        const osh_entry *e = osh_container_at(st, i);
        if (strcmp(e->name, full)) continue;
        size_t n = (size_t)(e->end - e->begin);
        uint8_t *want = malloc(n);
        assert_int_equal(n, osh_tensor_bytes(t));
        assert_ok(one, osh_container_read(one, want, st, e));
        for (size_t k = 0; k < n; k++)
            if (((const uint8_t *)t->data)[k] != want[k])
                fail_msg("%s: byte %zu is %02x, want %02x", full, k, ((const uint8_t *)t->data)[k],
                         want[k]);
        free(want);
        return;
    }
    fail_msg("%s is not in the golden", full);
}

static void check_activation(const osh_container *st, const cJSON *c, const osh_q_args *a,
                             osh_ctx *cx)
{
    osh_act_observer o = {0};
    osh_dtype dt = osh_dtype_of_name(cJSON_GetObjectItem(c, "dtype")->valuestring);
    float room;
    int8_t zero;
    for (int k = 0; k < number(c, "samples"); k++) {
        osh_tensor *x = make_values(c, k);
        assert_ok(cx, osh_act_observe(cx, &o, 1, x, a));
        osh_tensor_free(one, x);
    }
    osh_q_scale_zp(&room, &zero, &o.min, &o.max, 1, &(osh_q_scaling){a, dt, OSH_ARITH_REFERENCE});
    osh_tensor scale = osh_tensor_view(dt, 1, (int64_t[]){1}, &room);
    osh_tensor z = osh_tensor_view(OSH_I8, 1, scale.shape, &zero);
    same(st, c->string, "scale", &scale);
    if (!a->symmetric) same(st, c->string, "zero", &z);
}

static void check(const osh_container *st, const cJSON *c, osh_ctx *cx)
{
    osh_recipe *r = NULL;
    osh_qparams p = {0};
    const char *text = cJSON_GetObjectItem(c, "recipe")->valuestring;
    assert_ok(one, osh_recipe_parse(one, &r, text, strlen(text), c->string));
    if (cJSON_GetObjectItem(c, "samples")) {
        check_activation(st, c, &r->modifiers[0].schemes[0].inputs, cx);
        osh_recipe_free(one, r);
        return;
    }
    osh_tensor *w = make_values(c, 0);
    const osh_q_args *a = &r->modifiers[0].schemes[0].weights;
    float *importance = make_importance(c);
    /* Every case gets an importance of the channels, even if its observer ignores the importance.
     * This also happens in a run: Linears with the same input share one importance. */
    p.importance = importance;
    assert_ok(cx, osh_q_weight_params(cx, &p, w, a, OSH_ARITH_REFERENCE, "w"));
    same(st, c->string, "scale", p.scale);
    if (p.zero) same(st, c->string, "zero", p.zero);
    osh_qparams_deinit(cx, &p);
    free(importance);
    osh_tensor_free(one, w);
    osh_recipe_free(one, r);
}

static void test_weights(void **state)
{
    cJSON *cases = NULL;
    const cJSON *c;
    osh_container *st = NULL;
    char path[256];
    (void)state;
    snprintf(path, sizeof path, "%s/cases.json", folder);
    assert_ok(one, osh_json_read(one, &cases, path, 1 << 20, 0));
    snprintf(path, sizeof path, "%s/params.safetensors", folder);
    assert_ok(one, osh_container_open(one, &st, path));
    assert_int_equal(cJSON_GetArraySize(cases), 77);
    cJSON_ArrayForEach(c, cases)
    {
        check(st, c, one);
        check(st, c, three);
    }
    osh_container_close(one, st);
    cJSON_Delete(cases);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_weights)};
    int unable = pin_isa();
    if (unable) return unable;
    return cmocka_run_group_tests(tests, setup, teardown);
}
