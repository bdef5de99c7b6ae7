/* test_quant.c - compares arithmetic, packing and configuration with compressed-tensors and LLM
 * Compressor for the same inputs (gen.py). Every stored tensor must have the same bytes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/num.h"
#include "base/rng.h"
#include "io/container.h"
#include "quant/format.h"
#include "torture.h"

#define HERE OSH_SOURCE_DIR "/tests/golden/quant/"

static osh_ctx *cx;
static cJSON *cases;
static uint64_t seed;

static int setup(void **state)
{
    if (osh_ctx_new(&cx, 2)) return -1;
    if (osh_json_read(cx, &cases, HERE "cases.json", 1 << 20, 0)) return -1;
    seed = (uint64_t)cJSON_GetObjectItem(cases, "seed")->valuedouble;
    return 0;
}

static int teardown(void **state)
{
    cJSON_Delete(cases);
    int live = osh_mem_live(cx) != 0;
    osh_ctx_free(cx);
    return live;
}

static int64_t number(const cJSON *o, const char *key)
{
    return (int64_t)cJSON_GetObjectItem(o, key)->valuedouble;
}

static const char *string(const cJSON *o, const char *key)
{
    return cJSON_GetObjectItem(o, key)->valuestring;
}

static uint32_t crc32_of(const void *p, size_t n)
{
    const uint8_t *b = p;
    uint32_t c = ~0u;
    for (size_t i = 0; i < n; i++) {
        c ^= b[i];
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (0xedb88320u & (0u - (c & 1)));
    }
    return ~c;
}

/* Replaces -0 by +0. compressed-tensors keeps the sign of a value that it rounds to 0, but integer
 * codes cannot store this sign. */
static void drop_minus_zero(void *p, osh_dtype dt, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (dt == OSH_F32 && ((uint32_t *)p)[i] == 0x80000000u) ((uint32_t *)p)[i] = 0;
        if (dt != OSH_F32 && ((uint16_t *)p)[i] == 0x8000) ((uint16_t *)p)[i] = 0;
    }
}

static float weight_at(int64_t stream, int64_t r, int64_t c, int64_t K)
{
    float w = osh_rng_sym(seed, (uint64_t)stream, (uint64_t)(r * K + c)) * 0.0625f;
    switch (r % 12) {
    case 0:
        return 0;
    case 1:
        return fabsf(w);
    case 2:
        return -fabsf(w);
    case 3:
        return c < K / 2 ? 0 : w;
    case 4:
        return w * 0x1p-20f;
    case 5:
        return -0.0f;
    case 6:
        return c % 3 ? w : -0.0f;
    case 7:
        return (float)((c * 7) % 31 - 15) * 0.5f;
    case 8:
        return (float)(c % 17 - 8);
    case 9:
        return c ? 0 : 3;
    case 10:
        return w * 0x1p-124f;
    default:
        return w * 0x1p12f;
    }
}

static osh_tensor *make_weight(int64_t stream, int64_t N, int64_t K, osh_dtype dt)
{
    osh_tensor *t = NULL;
    float *f = malloc((size_t)(N * K) * 4);
    assert_ok(cx, osh_tensor_new(cx, &t, dt, 2, (int64_t[]){N, K}));
    for (int64_t i = 0; i < N * K; i++) f[i] = weight_at(stream, i / K, i % K, K);
    osh_from_f32(t->data, dt, f, N * K);
    free(f);
    return t;
}

static osh_tensor *make_activation(int64_t stream, int64_t n, int64_t i, osh_dtype dt)
{
    osh_tensor *t = NULL;
    float *f = malloc((size_t)(n * i) * 4);
    assert_ok(cx, osh_tensor_new(cx, &t, dt, 2, (int64_t[]){n, i}));
    for (int64_t k = 0; k < n * i; k++) {
        f[k] = k < i ? 0
                     : osh_rng_sym(seed, (uint64_t)stream, (uint64_t)k) *
                           ldexpf(1, (int)(stream % 7) - 3);
        if (stream % 4 == 0 && f[k] < 0) f[k] *= (float)(8 + stream / 4 % 8) / 2048;
        if (stream % 3 == 0) f[k] = fabsf(f[k]);
    }
    osh_from_f32(t->data, dt, f, n * i);
    free(f);
    return t;
}

/* Returns a quantization_config with the scheme (own). The caller still owns `scheme`. */
static osh_q_config *config_of(cJSON *scheme)
{
    osh_q_config *q = NULL;
    cJSON *root = cJSON_CreateObject(), *groups = cJSON_CreateObject();
    cJSON_AddItemReferenceToObject(groups, "group_0", scheme);
    cJSON_AddItemToObject(root, "config_groups", groups);
    assert_ok(cx, osh_q_config_parse(cx, &q, root, "case"));
    cJSON_Delete(root);
    return q;
}

static const osh_entry *entry_of(const osh_container *st, const char *name)
{
    for (int64_t i = 0; i < osh_container_count(st); i++)
        if (!strcmp(osh_container_at(st, i)->name, name)) return osh_container_at(st, i);
    return NULL;
}

static int n_tensors_of(const osh_container *st, const char *prefix)
{
    int n = 0;
    for (int64_t i = 0; i < osh_container_count(st); i++)
        n += !strncmp(osh_container_at(st, i)->name, prefix, strlen(prefix)) &&
             osh_container_at(st, i)->name[strlen(prefix)] == '.';
    return n;
}

static void same_bytes(const osh_container *st, const char *name, const osh_format_tensor *t,
                       const void *data)
{
    const osh_entry *e = entry_of(st, name);
    if (!e) fail_msg("%s is not in the golden", name);
    size_t n = (size_t)(e->end - e->begin);
    uint8_t *want = malloc(n + 1);
    assert_int_equal(e->dtype, t->dtype);
    assert_int_equal(e->ndim, t->ndim);
    for (int d = 0; d < t->ndim; d++) assert_int_equal(e->shape[d], t->shape[d]);
    assert_ok(cx, osh_container_read(cx, want, st, e));
    for (size_t i = 0; i < n; i++)
        if (((const uint8_t *)data)[i] != want[i])
            fail_msg("%s: byte %zu is %02x, want %02x", name, i, ((const uint8_t *)data)[i],
                     want[i]);
    free(want);
}

/* Checks scales, codes and stored tensors of one case. Then unpacks and decodes the stored
 * tensors. */
static void check_weight_case(const osh_container *st, const cJSON *c)
{
    osh_q_config *q = config_of(cJSON_GetObjectItem(c, "scheme"));
    const osh_q_scheme *s = &q->schemes[0];
    osh_dtype dt = osh_dtype_of_name(string(c, "dtype"));
    int64_t N = number(c, "rows"), K = number(c, "cols");
    osh_tensor *w = make_weight(number(c, "stream"), N, K, dt), *decoded = NULL,
               stored[OSH_FORMAT_MAX_TENSORS];
    // compressed-tensors decodes NVFP4 and MX to BF16
    osh_dtype to = s->weights.scale_dtype ? OSH_BF16 : dt;
    const osh_tensor *views[OSH_FORMAT_MAX_TENSORS];
    osh_qparams p = {0}, back = {0};
    const osh_format *f = NULL;
    osh_format_tensor t[OSH_FORMAT_MAX_TENSORS];
    void *data[OSH_FORMAT_MAX_TENSORS];
    uint8_t *codes = malloc((size_t)(N * K)), *again = malloc((size_t)(N * K));
    int n = 0;

    assert_ok(cx, osh_q_weight_params(cx, &p, w, &s->weights, OSH_ARITH_REFERENCE, "w"));
    assert_ok(cx, osh_q_encode(cx, codes, w, &p, &s->weights, OSH_ARITH_REFERENCE));
    assert_ok(cx, osh_format_infer(cx, &f, s, "case"));
    assert_ok(cx, f->tensors(cx, t, &n, &(osh_format_weight){s, N, K, dt}));
    assert_int_equal(n, n_tensors_of(st, string(c, "name")));
    for (int i = 0; i < n; i++) {
        stored[i] = osh_tensor_view(t[i].dtype, t[i].ndim, t[i].shape, NULL);
        data[i] = stored[i].data = calloc(1, osh_tensor_bytes(&stored[i]));
        views[i] = &stored[i];
    }
    assert_ok(cx, f->pack(cx, data, &(osh_format_weight){s, N, K, dt}, codes, &p, NULL));
    for (int i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s", string(c, "name"), t[i].leaf);
        same_bytes(st, name, &t[i], data[i]);
    }
    assert_ok(cx, f->unpack(cx, again, &back, &(osh_format_weight){s, N, K, OSH_BF16}, views));
    assert_memory_equal(again, codes, (size_t)(N * K));
    assert_ok(cx, osh_tensor_new(cx, &decoded, to, 2, w->shape));
    assert_ok(cx, osh_q_decode(cx, decoded, again, &back, &s->weights));
    drop_minus_zero(decoded->data, to, N * K);
    if (crc32_of(decoded->data, osh_tensor_bytes(decoded)) != (uint32_t)number(c, "crc_decoded"))
        fail_msg("%s: the decoded weight differs", string(c, "name"));
    for (int i = 0; i < n; i++) free(data[i]);
    free(codes), free(again);
    osh_qparams_deinit(cx, &p);
    osh_qparams_deinit(cx, &back);
    osh_tensor_free(cx, w);
    osh_tensor_free(cx, decoded);
    osh_q_config_free(cx, q);
}

static void test_weights(void **state)
{
    static const char *const tags[] = {"BF16", "F16", "F32"};
    const cJSON *c;
    int n = 0;
    for (int i = 0; i < 3; i++) {
        char path[256];
        osh_container *st = NULL;
        snprintf(path, sizeof path, HERE "weights_%s.safetensors", tags[i]);
        assert_ok(cx, osh_container_open(cx, &st, path));
        cJSON_ArrayForEach(
            c, cJSON_GetObjectItem(cases, "weights")) if (!strcmp(string(c, "dtype"), tags[i]))
        {
            check_weight_case(st, c);
            n++;
        }
        osh_container_close(cx, st);
    }
    assert_int_equal(n, cJSON_GetArraySize(cJSON_GetObjectItem(cases, "weights")));
}

/* Returns a quantization_config (own) with the case's scheme for input activations. The scheme for
 * weights in this config is not used. */
static osh_q_config *config_of_inputs(const cJSON *c)
{
    cJSON *scheme = cJSON_CreateObject(), *w = cJSON_CreateObject();
    cJSON_AddItemToObject(scheme, "targets",
                          cJSON_CreateStringArray((const char *const[]){"Linear"}, 1));
    cJSON_AddStringToObject(w, "type", string(cJSON_GetObjectItem(c, "args"), "type"));
    cJSON_AddItemToObject(scheme, "weights", w);
    cJSON_AddItemReferenceToObject(scheme, "input_activations", cJSON_GetObjectItem(c, "args"));
    osh_q_config *q = config_of(scheme);
    cJSON_Delete(scheme);
    return q;
}

static void check_activation_case(const cJSON *c)
{
    osh_q_config *q = config_of_inputs(c);
    osh_dtype dt = osh_dtype_of_name(string(c, "dtype"));
    osh_tensor *x =
        make_activation(number(c, "stream"), number(c, "rows"), number(c, "cols"), dt);
    const cJSON *given = cJSON_GetObjectItem(c, "scale");
    float s = given ? (float)given->valuedouble : 0;
    const cJSON *zero_given = cJSON_GetObjectItem(c, "zero");
    int8_t z = zero_given ? (int8_t)number(c, "zero") : 0;
    uint32_t room;
    osh_dtype as = q->schemes[0].inputs.dynamic == OSH_Q_LOCAL ? OSH_F32 : dt;
    osh_from_f32(&room, as, &s, 1);
    osh_tensor scale = osh_tensor_view(as, 1, (int64_t[]){1}, &room),
               zero = osh_tensor_view(OSH_I8, 1, (int64_t[]){1}, &z);
    assert_ok(cx, osh_q_fake_quant_act(cx, x, &q->schemes[0].inputs, given ? &scale : NULL,
                                       zero_given ? &zero : NULL));
    drop_minus_zero(x->data, dt, osh_tensor_numel(x));
    if (crc32_of(x->data, osh_tensor_bytes(x)) != (uint32_t)number(c, "crc"))
        fail_msg("activations of stream %lld differ", (long long)number(c, "stream"));
    osh_tensor_free(cx, x);
    osh_q_config_free(cx, q);
}

static void check_micro(const char *json, const char *tensors, int n_weights, int n_activations)
{
    cJSON *micro = NULL;
    const cJSON *c;
    osh_container *st = NULL;
    assert_ok(cx, osh_json_read(cx, &micro, json, 1 << 20, 0));
    assert_ok(cx, osh_container_open(cx, &st, tensors));
    cJSON_ArrayForEach(c, cJSON_GetObjectItem(micro, "weights")) check_weight_case(st, c);
    cJSON_ArrayForEach(c, cJSON_GetObjectItem(micro, "activations")) check_activation_case(c);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(micro, "weights")), n_weights);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(micro, "activations")), n_activations);
    osh_container_close(cx, st);
    cJSON_Delete(micro);
}

static void test_micro(void **state)
{
    check_micro(HERE "micro.json", HERE "micro.safetensors", 18, 27);
    check_micro(HERE "mxfp6.json", HERE "mxfp6.safetensors", 6, 12);
}

static void test_packing(void **state)
{
    const cJSON *c;
    osh_container *st = NULL;
    assert_ok(cx, osh_container_open(cx, &st, HERE "packing.safetensors"));
    cJSON_ArrayForEach(c, cJSON_GetObjectItem(cases, "packing"))
    {
        int bits = (int)number(c, "bits");
        int64_t R = number(c, "rows"), K = number(c, "cols"), n = osh_pack_words(K, bits);
        int8_t codes[512];
        uint32_t words[512] = {0};
        char name[64];
        for (int64_t i = 0; i < R * K; i++) {
            uint64_t u = osh_rng_u64(seed, (uint64_t)number(c, "stream"), (uint64_t)i);
            codes[i] = (int8_t)((int)(u >> (64 - bits)) - (1 << (bits - 1)));
        }
        for (int64_t r = 0; r < R; r++) osh_pack_row(words + r * n, 1, codes + r * K, 1, K, bits);
        snprintf(name, sizeof name, "%s.packed", string(c, "name"));
        same_bytes(st, name, &(osh_format_tensor){"", OSH_I32, 2, {R, n}}, words);
        for (int64_t r = 0; r < R; r++) osh_pack_row(words + r, R, codes + r * K, 1, K, bits);
        snprintf(name, sizeof name, "%s.packed_dim0", string(c, "name"));
        same_bytes(st, name, &(osh_format_tensor){"", OSH_I32, 2, {n, R}}, words);
    }
    osh_container_close(cx, st);
}

static void test_activations(void **state)
{
    const cJSON *c;
    cJSON_ArrayForEach(c, cJSON_GetObjectItem(cases, "activations")) check_activation_case(c);
}

static void test_observers(void **state)
{
    const cJSON *c;
    cJSON_ArrayForEach(c, cJSON_GetObjectItem(cases, "observers"))
    {
        osh_q_config *q = config_of_inputs(c);
        const osh_q_args *a = &q->schemes[0].inputs;
        osh_dtype dt = osh_dtype_of_name(string(c, "dtype"));
        osh_act_observer o = {0};
        uint32_t room = 0;
        float scale;
        int8_t zero = 0;
        for (int64_t k = 0; k < number(c, "samples"); k++) {
            osh_tensor *x =
                make_activation(number(c, "stream") + k, 3 + k % 5, number(c, "cols"), dt);
            assert_ok(cx, osh_act_observe(cx, &o, 1, x, a));
            osh_tensor_free(cx, x);
        }
        osh_q_scale_zp(&room, &zero, &o.min, &o.max, 1,
                       &(osh_q_scaling){a, dt, OSH_ARITH_REFERENCE});
        osh_to_f32(&scale, &room, dt, 1);
        assert_true(scale == (float)cJSON_GetObjectItem(c, "scale")->valuedouble);
        assert_int_equal(zero, number(c, "zero"));
        osh_q_config_free(cx, q);
    }
}

/* Checks presets: their observers, inferred formats and printed text. */
static void check_presets(const char *path, int n)
{
    cJSON *presets = NULL, *p;
    static const char *const ignore[] = {"lm_head", "model.\xc3\xa4"};
    char *targets[] = {"Linear"};
    assert_ok(cx, osh_json_read(cx, &presets, path, 1 << 20, 0));
    assert_int_equal(cJSON_GetArraySize(presets), n);
    cJSON_ArrayForEach(p, presets)
    {
        osh_q_scheme s = {.targets = {targets, 1}};
        char *text = NULL;
        assert_ok(cx, osh_q_preset(cx, &s, p->string));
        assert_ok(cx, osh_q_scheme_check(cx, &s, p->string));
        assert_ok(cx, osh_q_config_print(cx, &text, &(osh_q_groups){&s, 1, ignore, 2}, NULL));
        assert_string_equal(text, p->valuestring);
        osh_free(cx, text);
    }
    cJSON_Delete(presets);
}

static void test_presets(void **state)
{
    check_presets(HERE "presets.json", 29);
    check_presets(HERE "mxfp6_presets.json", 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights),     cmocka_unit_test(test_packing),
        cmocka_unit_test(test_activations), cmocka_unit_test(test_observers),
        cmocka_unit_test(test_presets),      cmocka_unit_test(test_micro),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
