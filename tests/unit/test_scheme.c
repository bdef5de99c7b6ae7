/* test_scheme.c - tests which schemes are accepted or refused, how schemes are printed, and which
 * scheme vLLM finds for a module. */
#include <stdio.h>
#include <stdlib.h>

#include "quant/format.h"
#include "torture.h"

static osh_ctx *cx;

static int setup(void **state)
{
    return osh_ctx_new(&cx, 1);
}
static int teardown(void **state)
{
    int live = osh_mem_live(cx) != 0;
    osh_ctx_free(cx);
    return live;
}

static osh_status parse(osh_q_config **q, const char *text)
{
    cJSON *o = cJSON_Parse(text);
    assert_non_null(o);
    osh_status rc = osh_q_config_parse(cx, q, o, "config.json");
    cJSON_Delete(o);
    return rc;
}

/* Parses {"config_groups": {"group_0": {"targets": ["Linear"], <body>}}}. */
static osh_status parse_group(osh_q_config **q, const char *body)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],%s}}}",
             body);
    return parse(q, text);
}

static void test_args_rules(void **state)
{
    static const struct {
        const char *set, *part; // set: keys to set, as "key=value,..."; the value "~" is null.
                                // part: part of the error message, or NULL if the scheme is
                                // accepted
        osh_status rc;
        bool weight;
    } rows[] = {
        {"num_bits=4,group_size=128", NULL, 0, true},
        {"num_bits=4,group_size=-1", NULL, 0, true},
        {"num_bits=8,strategy=TENSOR", NULL, 0, true},
        {"strategy=block,block_structure=128x128,type=FLOAT", NULL, 0, true},
        {"actorder=static", NULL, 0, true},
        {"actorder=false", NULL, 0, true},
        {"symmetric=false,zp_dtype=int8", NULL, 0, true},
        {"strategy=token,dynamic=true", NULL, 0, false},
        {"strategy=group,group_size=128,dynamic=true,type=float", NULL, 0, false},
        {"observer=static_minmax", NULL, 0, false},
        {"observer_kwargs={}", NULL, 0, true},
        {"strategy=~,group_size=~,actorder=~,scale_dtype=~,zp_dtype=~,observer=~", NULL, 0, true},
        {"num_bits=1", "int of 1 bits, want 2 to 8", OSH_E_UNSUPPORTED, true},
        {"num_bits=9", "int of 9 bits", OSH_E_UNSUPPORTED, true},
        {"num_bits=four", "num_bits is 'four'", OSH_E_USAGE, true},
        {"num_bits=~", "num_bits is null", OSH_E_USAGE, true},
        {"type=float,num_bits=4", "NVFP4", OSH_E_UNSUPPORTED, true},
        {"type=float,num_bits=4,strategy=group,group_size=32", "scale_dtype torch.uint8",
         OSH_E_UNSUPPORTED, true},
        {"type=float,num_bits=4,strategy=tensor_group,group_size=16,scale_dtype=float8_e4m3fn",
         NULL, 0, true},
        {"type=float,num_bits=4,strategy=tensor_group,group_size=32,scale_dtype=float8_e4m3fn",
         "group_size 16", OSH_E_UNSUPPORTED, true},
        {"type=float,num_bits=4,group_size=32,scale_dtype=torch.uint8", NULL, 0, true},
        {"type=float,group_size=32,scale_dtype=uint8", NULL, 0, true},
        {"group_size=32,scale_dtype=torch.uint8", "wants type float", OSH_E_UNSUPPORTED, true},
        {"type=float,group_size=16,scale_dtype=torch.uint8", "group_size 32", OSH_E_UNSUPPORTED,
         true},
        {"type=float,group_size=32,scale_dtype=float8_e4m3fn", "wants strategy tensor_group",
         OSH_E_UNSUPPORTED, true},
        {"type=float,num_bits=4,strategy=tensor_group,group_size=16,scale_dtype=float8_e4m3fn,"
         "dynamic=local",
         NULL, 0, false},
        {"type=float,num_bits=4,strategy=tensor_group,group_size=16,scale_dtype=float8_e4m3fn",
         "dynamic: local", OSH_E_UNSUPPORTED, false},
        {"dynamic=local", "needs strategy tensor_group", OSH_E_USAGE, false},
        {"type=float,num_bits=5", "float of 5 bits, want 8, 6 or 4", OSH_E_USAGE, true},
        {"type=float,num_bits=6", "6-bit float wants groups of 32", OSH_E_UNSUPPORTED, true},
        {"type=float,num_bits=6,group_size=32,scale_dtype=torch.uint8", NULL, 0, true},
        {"type=float,symmetric=false", "asymmetric float", OSH_E_UNSUPPORTED, true},
        {"type=bool", "type is 'bool'", OSH_E_USAGE, true},
        {"symmetric=yes", "want true or false", OSH_E_USAGE, true},
        {"strategy=group", "without a positive group_size", OSH_E_USAGE, true},
        {"strategy=channel,group_size=32", "needs strategy group", OSH_E_USAGE, true},
        {"group_size=0", "group_size is 0", OSH_E_USAGE, true},
        {"group_size=-2", "group_size is '-2'", OSH_E_USAGE, true},
        {"strategy=block", "go together", OSH_E_USAGE, true},
        {"block_structure=8x8", "go together", OSH_E_USAGE, true},
        {"block_structure=8x", "block_structure is '8x'", OSH_E_USAGE, true},
        {"block_structure=0x8", "two positive numbers", OSH_E_USAGE, true},
        {"strategy=tensor_group", "without a positive group_size", OSH_E_USAGE, true},
        {"strategy=attn_head", "the inputs of attention, not for weights", OSH_E_USAGE, true},
        {"strategy=row", "strategy is 'row'", OSH_E_USAGE, true},
        {"strategy=token", "is for activations", OSH_E_USAGE, true},
        {"dynamic=true", "dynamic weights", OSH_E_UNSUPPORTED, true},
        {"dynamic=local", "dynamic weights", OSH_E_UNSUPPORTED, true},
        {"actorder=group", "weight_g_idx", OSH_E_UNSUPPORTED, true},
        {"actorder=true", "weight_g_idx", OSH_E_UNSUPPORTED, true},
        {"actorder=Static", "actorder is 'Static'", OSH_E_USAGE, true},
        {"scale_dtype=torch.int8", "scale_dtype torch.int8", OSH_E_UNSUPPORTED, true},
        {"symmetric=false,zp_dtype=torch.int16", "zp_dtype torch.int16", OSH_E_UNSUPPORTED, true},
        {"observer=memoryless_max", "unknown observer 'memoryless_max': want memoryless_minmax, ",
         OSH_E_USAGE, true},
        {"observer_kwargs={...}", "observer_kwargs is '{...}', want a map", OSH_E_USAGE, true},
        {"bits=4", "unknown key 'bits'", OSH_E_USAGE, true},
        {"strategy=token", "needs dynamic: true", OSH_E_USAGE, false},
        {"strategy=channel", "is for weights", OSH_E_USAGE, false},
        {"group_size=64", "static activations in groups", OSH_E_UNSUPPORTED, false},
        {"actorder=weight", "actorder is for weights", OSH_E_USAGE, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        osh_q_args a;
        char text[128], *save = NULL;
        osh_status rc = OSH_OK;
        osh_q_args_init(&a);
        snprintf(text, sizeof text, "%s", rows[i].set);
        for (char *key = strtok_r(text, ",", &save); key && !rc; key = strtok_r(NULL, ",", &save)) {
            char *value = strchr(key, '=');
            *value++ = '\0';
            rc = osh_q_args_set(cx, &a, key, strcmp(value, "~") ? value : NULL, "group_0");
        }
        if (!rc) rc = osh_q_args_check(cx, &a, "group_0", rows[i].weight);
        if (rc != rows[i].rc)
            fail_msg("%s: status %d, want %d (%s)", rows[i].set, rc, rows[i].rc,
                     rc ? osh_error_text(cx) : "");
        if (!rc) continue;
        if (!strstr(osh_error_text(cx), rows[i].part) || !strstr(osh_error_text(cx), "group_0"))
            fail_msg("%s: '%s' does not hold '%s'", rows[i].set, osh_error_text(cx), rows[i].part);
        osh_error_clear(cx);
    }
}

static void test_normalized(void **state)
{
    osh_q_args a;
    osh_q_args_init(&a);
    a.group_size = -1, a.symmetric = false;
    assert_ok(cx, osh_q_args_check(cx, &a, "w", true));
    assert_int_equal(a.strategy, OSH_Q_CHANNEL);
    assert_int_equal(a.group_size, -1);
    assert_string_equal(a.observer, "memoryless_minmax");
    assert_string_equal(a.zp_dtype, "torch.int8");
    osh_q_args_init(&a);
    assert_ok(cx, osh_q_args_check(cx, &a, "x", false));
    assert_int_equal(a.strategy, OSH_Q_TENSOR);
    assert_string_equal(a.observer, "minmax");
    assert_string_equal(a.zp_dtype, "");
    osh_q_args_init(&a);
    a.dynamic = OSH_Q_DYNAMIC, a.strategy = OSH_Q_TOKEN;
    assert_ok(cx, osh_q_args_check(cx, &a, "x", false));
    assert_string_equal(a.observer, "");
}

static void test_presets(void **state)
{
    osh_q_scheme s = {0};
    assert_ok(cx, osh_q_preset(cx, &s, "fp8_block"));
    assert_int_equal(s.weights.block[1], 128);
    assert_int_equal(s.inputs.group_size, 128);
    assert_ok(cx, osh_q_preset(cx, &s, "W4A16_ASYM"));
    assert_false(s.weights.symmetric || s.inputs.present);
    assert_ok(cx, osh_q_preset(cx, &s, "nvfp4"));
    assert_int_equal(s.inputs.dynamic, OSH_Q_LOCAL);
    assert_fails(cx, OSH_E_USAGE, osh_q_preset(cx, &s, "W9A16"),
                 "unknown scheme 'W9A16', want one of W4A16");
}

static void test_format_of(void **state)
{
    static const struct {
        const char *preset, *format, *want, *part;
    } rows[] = {
        {"W4A16", "", "pack-quantized", NULL},
        {"W4A8", "", "int-quantized", NULL},
        {"W4A8", "pack-quantized", "pack-quantized", NULL},
        {"W4AFP8", "", "int-quantized", NULL},
        {"FP8", "", "float-quantized", NULL},
        {"FP8", "naive-quantized", "naive-quantized", NULL},
        {"FP8", "pack-quantized", NULL, "cannot hold float weights"},
        {"W4A16", "float-quantized", NULL, "cannot hold integer weights"},
        {"W4A16", "marlin-24", NULL, "format marlin-24 is not supported"},
        {"UNQUANTIZED", "", NULL, "no weights"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        osh_q_scheme s = {0};
        const osh_format *f = NULL;
        assert_ok(cx, osh_q_preset(cx, &s, rows[i].preset));
        snprintf(s.format, sizeof s.format, "%s", rows[i].format);
        osh_status rc = osh_format_infer(cx, &f, &s, "group_0");
        assert_int_equal(rc == OSH_OK, rows[i].want != NULL);
        if (!rc)
            assert_string_equal(f->name, rows[i].want);
        else
            assert_non_null(strstr(osh_error_text(cx), rows[i].part));
        osh_error_clear(cx);
    }
}

static void test_parse_good(void **state)
{
    osh_q_config *q = NULL;
    assert_ok(
        cx,
        parse(&q,
              "{\"quant_method\":\"compressed-tensors\",\"format\":\"mixed-precision\",\"ignore\":["
              "\"lm_head\"],"
              "\"sparsity_config\":{},\"transform_config\":{\"config_groups\":{\"R1\":{\"apply\":[{"
              "\"location\":"
              "\"weight_output\"}]}}},\"kv_cache_scheme\":null,\"run_"
              "compressed\":true,"
              "\"config_groups\":{\"a\":{\"targets\":[\"Linear\",\"re:x\"],\"weights\":{\"num_"
              "bits\":4,\"group_size\":32,"
              "\"observer\":\"mse\",\"observer_kwargs\":{\"norm\":2.4}},\"input_activations\":null,"
              "\"output_activations\":null,\"format\":null},\"FP8_DYNAMIC\":[\"re:y\"]}}"));
    assert_int_equal(q->n, 2);
    assert_int_equal(q->ignore.n, 1);
    assert_string_equal(q->schemes[0].group_name, "a");
    assert_int_equal(q->schemes[0].targets.n, 2);
    assert_int_equal(q->schemes[0].weights.strategy, OSH_Q_GROUP);
    assert_int_equal(q->schemes[1].inputs.strategy, OSH_Q_TOKEN);
    assert_string_equal(q->schemes[1].targets.items[0], "re:y");
    assert_string_equal(q->format, "mixed-precision");
    osh_q_config_free(cx, q);
    q = NULL;
    assert_ok(cx, parse(&q, "{\"format\":\"int-quantized\",\"config_groups\":{\"g\":{\"targets\":["
                            "\"Linear\"],\"weights\":{}}}}"));
    // the group without a format gets the top-level `format`
    assert_string_equal(q->schemes[0].format, "int-quantized");
    osh_q_config_free(cx, q);
}

static void test_parse_refuses(void **state)
{
    static const struct {
        const char *text, *part;
    } whole[] = {
        {"{}", "no config_groups"},
        {"{\"config_groups\":{}}", "no config_groups"},
        {"{\"quant_method\":\"gptq\",\"config_groups\":{}}", "quant_method is 'gptq'"},
        {"{\"quantization_status\":\"frozen\",\"config_groups\":{}}", "'frozen', want compressed"},
        {"{\"kv_cache_scheme\":{\"num_bits\":4},\"config_groups\":{}}", "of 4 bits"},
        {"{\"transform_config\":{\"config_groups\":{\"R4\":{\"apply\":[{\"location\":\"weight_"
         "input\"},"
         "{\"location\":\"input\"}]}}},\"config_groups\":{}}",
         "R4 acts while the model runs with a matrix of type ''"},
        {"{\"transform_config\":{\"config_groups\":{\"R3\":{\"apply\":[{\"location\":\"v_cache\"}]}"
         "}},"
         "\"config_groups\":{}}",
         "transform_config: R3 has location 'v_cache'"},
        {"{\"transform_config\":{\"config_groups\":{\"R3\":{\"type\":\"hadamard\",\"apply\":["
         "{\"location\":\"k_cache\"}]}}},\"config_groups\":{}}",
         "transform_config: R3 has no head_dim"},
        {"{\"sparsity_config\":{\"format\":\"sparse-24-bitmask\"},\"config_groups\":{}}",
         "sparse-24-bitmask"},
        {"{\"config_groups\":{\"g\":3}}", "want an object or a list"},
        {"{\"config_groups\":{\"g\":{\"weights\":{}}}}", "has no targets"},
        {"{\"config_groups\":{\"g\":{\"targets\":[1],\"weights\":{}}}}", "not a string"},
        {"{\"config_groups\":{\"NVFP5\":[\"Linear\"]}}", "NVFP5"},
    };
    static const struct {
        const char *body, *part;
    } groups[] = {
        {"\"weights\":null", "without weights"},
        {"\"weights\":3", "group_0.weights is not an object"},
        {"\"weights\":{},\"kernel\":1", "unknown key 'kernel'"},
        {"\"weights\":{\"num_bit\":1}", "group_0.weights: unknown key 'num_bit'"},
        {"\"weights\":{},\"output_activations\":{\"strategy\":\"channel\"}",
         "output_activations: strategy channel is for"},
        {"\"weights\":{},\"format\":3", "format"},
        {"\"weights\":{},\"format\":\"nvfp4-pack-quantized\"",
         "nvfp4-pack-quantized wants weights of type float, 4 bits"},
        {"\"weights\":{\"strategy\":\"block\",\"block_structure\":[8]}", "block_structure"},
    };
    osh_q_config *q = NULL;
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        assert_int_not_equal(parse(&q, whole[i].text), OSH_OK);
        if (!strstr(osh_error_text(cx), whole[i].part))
            fail_msg("'%s' does not hold '%s'", osh_error_text(cx), whole[i].part);
        osh_error_clear(cx);
    }
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        assert_int_not_equal(parse_group(&q, groups[i].body), OSH_OK);
        if (!strstr(osh_error_text(cx), groups[i].part))
            fail_msg("'%s' does not hold '%s'", osh_error_text(cx), groups[i].part);
        osh_error_clear(cx);
    }
    assert_null(q);
}

static void test_print_order(void **state)
{
    osh_q_config *q = NULL, *again = NULL;
    char *text = NULL;
    assert_ok(cx, parse(&q, "{\"config_groups\":{\"group_2\":{\"targets\":[\"re:.*a$\"],"
                            "\"weights\":{\"num_bits\":4,\"group_size\":-1,"
                            "\"actorder\":\"weight\"}},\"group_10\":{\"targets\":[\"b\"],"
                            "\"weights\":{\"type\":\"float\"}}}}"));
    assert_ok(cx, osh_q_config_print(cx, &text, &(osh_q_groups){q->schemes, q->n, NULL, 0}, NULL));
    assert_true(strstr(text, "group_10") < strstr(text, "group_2"));
    assert_non_null(strstr(text, "\n    \"format\": \"mixed-precision\","));
    assert_non_null(strstr(text, "\"actorder\": \"weight\""));
    assert_non_null(strstr(text, "\"group_size\": -1"));
    assert_non_null(strstr(text, "\"ignore\": [],"));
    assert_ok(cx, parse(&again, text));
    assert_int_equal(again->n, 2);
    osh_free(cx, text);
    osh_q_config_free(cx, q);
    osh_q_config_free(cx, again);
}

/* Looks up each of `modules` as vLLM does. A row has the targets of one or two groups. It also has
 * the number of the group that each module must get (-1: no group). */
static void test_vllm_lookup(void **state)
{
    static const char *const modules[] = {"m.embed_tokens", "m.0.q_proj",    "m.0.k_proj",
                                          "m.0.v_proj",     "m.0.o_proj",    "m.0.gate_proj",
                                          "m.0.up_proj",    "m.0.down_proj", "lm_head"};
    static const char *const classes[] = {"Embedding", "Linear", "Linear", "Linear", "Linear",
                                          "Linear",    "Linear", "Linear", "Linear"};
    static const struct {
        const char *a, *b, *ignore; // targets of group_0 and group_1 (NULL: one group)
        int which[9];
        const char *part; // part of the error message; NULL: vLLM finds the same scheme
    } rows[] = {
        {"Linear", NULL, "lm_head", {-1, 0, 0, 0, 0, 0, 0, 0, -1}, NULL},
        {"Linear", NULL, NULL, {-1, 0, 0, 0, 0, 0, 0, 0, 0}, "put lm_head in ignore"},
        {"re:.*down_proj$", "Linear", "lm_head", {-1, 1, 1, 1, 1, 1, 1, 0, -1}, NULL},
        {"re:.*v_proj",
         "Linear",
         "lm_head",
         {-1, 1, 1, 0, 1, 1, 1, 1, -1},
         "m.0.q_proj has group_1"},
        {"re:.*\\.v_proj$",
         "Linear",
         "lm_head",
         {-1, 1, 1, 0, 1, 1, 1, 1, -1},
         "m.0.v_proj has group_0"},
        {"re:.*\\.[qkv]_proj$", NULL, "lm_head", {-1, 0, 0, 0, -1, -1, -1, -1, -1}, NULL},
        {"m.0.q_proj",
         "Linear",
         "lm_head",
         {-1, 0, 1, 1, 1, 1, 1, 1, -1},
         "m.0.q_proj has group_0"},
        {"Linear",
         NULL,
         "re:.*\\.up_proj",
         {-1, 0, 0, 0, 0, 0, -1, 0, -1},
         "ignore takes 1 of its 2 parts"},
        {"Linear",
         NULL,
         "re:.*(gate|up)_proj",
         {-1, 0, 0, 0, 0, -1, -1, 0, 0},
         "lm_head has group_0"},
        {"re:lm_head", "Linear", NULL, {-1, 1, 1, 1, 1, 1, 1, 1, 0}, NULL},
        {"Embedding", "Linear", "lm_head", {0, 1, 1, 1, 1, 1, 1, 1, -1}, NULL},
        {"Linear", "Linear", "lm_head", {-1, 1, 1, 1, 1, 1, 1, 1, -1}, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *a[] = {(char *)rows[i].a}, *b[] = {(char *)rows[i].b}, zero[] = "group_0",
             one[] = "group_1";
        osh_q_scheme s[2] = {{.group_name = zero, .targets = {a, 1}},
                             {.group_name = one, .targets = {b, 1}}};
        osh_status rc = osh_q_vllm_check(
            cx, &(osh_q_groups){s, rows[i].b ? 2 : 1, &rows[i].ignore, rows[i].ignore != NULL},
            &(osh_q_modules){modules, classes, rows[i].which, 9});
        if ((rc == OSH_OK) != (rows[i].part == NULL))
            fail_msg("row %zu: status %d %s", i, rc, osh_error_text(cx));
        if (rc && !strstr(osh_error_text(cx), rows[i].part))
            fail_msg("row %zu: '%s'", i, osh_error_text(cx));
        osh_error_clear(cx);
    }
}

/* vLLM tries the groups in the order of the file. A fused layer gets the group of its first
 * projection, even if its projections are in two groups. */
static void test_vllm_order(void **state)
{
    static const char *const modules[] = {"0.q_proj", "0.k_proj", "0.v_proj", "0.down_proj"};
    char *two[] = {"re:.*down_proj", "re:.*\\.q_proj$"},
         *ten[] = {"re:.*\\.down_proj", "re:.*\\.[kv]_proj$"};
    char name2[] = "group_2", name10[] = "group_10";
    osh_q_scheme s[2] = {{.group_name = name2, .targets = {two, 1}},
                         {.group_name = name10, .targets = {ten, 1}}};
    assert_ok(cx,
              osh_q_vllm_check(cx, &(osh_q_groups){s, 2, NULL, 0},
                               &(osh_q_modules){modules, NULL, (const int[]){-1, -1, -1, 1}, 4}));
    assert_fails(
        cx, OSH_E_UNSUPPORTED,
        osh_q_vllm_check(cx, &(osh_q_groups){s, 2, NULL, 0},
                         &(osh_q_modules){modules, NULL, (const int[]){-1, -1, -1, 0}, 4}),
        "0.down_proj has group_2, but vLLM looks it up as 0.down_proj (RowParallelLinear) "
        "and would take group_10");
    s[0].targets.n = s[1].targets.n = 2;
    assert_fails(cx, OSH_E_UNSUPPORTED,
                 osh_q_vllm_check(cx, &(osh_q_groups){s, 2, NULL, 0},
                                  &(osh_q_modules){modules, NULL, (const int[]){0, 1, 1, 1}, 4}),
                 "0.k_proj has group_10, but vLLM looks it up as 0.qkv_proj "
                 "(QKVParallelLinear) and would take group_2");
}

/* vLLM fuses the first two projections of DeepSeek's attention into one layer. */
static void test_vllm_latent(void **state)
{
    static const char *const modules[] = {"0.q_a_proj", "0.kv_a_proj_with_mqa", "0.kv_b_proj"};
    char *targets[] = {"Linear", "re:.*kv_.*"}, name0[] = "group_0", name1[] = "group_1";
    osh_q_scheme s[2] = {{.group_name = name0, .targets = {targets, 1}},
                         {.group_name = name1, .targets = {targets + 1, 1}}};
    assert_ok(cx,
              osh_q_vllm_check(cx, &(osh_q_groups){s, 1, NULL, 0},
                               &(osh_q_modules){modules, NULL, (const int[]){0, 0, 0}, 3}));
    assert_fails(cx, OSH_E_UNSUPPORTED,
                 osh_q_vllm_check(cx, &(osh_q_groups){s, 2, NULL, 0},
                                  &(osh_q_modules){modules, NULL, (const int[]){0, 1, 1}, 3}),
                 "0.fused_qkv_a_proj");
}

/* Families differ in the projections that they fuse, and in how they fuse them. vLLM looks up every
 * projection of a fused layer, even a projection that the checkpoint does not have. */
static void test_vllm_families(void **state)
{
    static const struct {
        const char *whole, *text, *module, *fused; // fused: NULL if the module is not fused
    } rows[] = {
        {"llama", NULL, "model.layers.0.self_attn.k_proj", "qkv_proj"},
        {"llama", NULL, "model.layers.0.mlp.down_proj", NULL},
        {"k2_horizon", NULL, "model.layers.0.self_attn.k_proj", "qk_proj"},
        {"k2_horizon", NULL, "model.layers.0.self_attn.v_proj", NULL},
        {"whisper", NULL, "model.decoder.layers.0.encoder_attn.k_proj", "kv_proj"},
        {"whisper", NULL, "model.decoder.layers.0.encoder_attn.q_proj", NULL},
        {"whisper", NULL, "model.decoder.layers.0.self_attn.q_proj", "qkv_proj"},
        {"qwen3_5", "qwen3_5_text", "model.layers.0.linear_attn.in_proj_a", "in_proj_ba"},
        {"qwen3_5", "qwen3_5_text", "in_proj_z", "in_proj_qkvz"},
        {"olmo_hybrid", NULL, "model.layers.0.linear_attn.g_proj", "in_proj_qkvg"},
        {"olmo_hybrid", NULL, "model.layers.0.self_attn.q_proj", "qkv_proj"},
        {"minimax_m3_vl", "minimax_m3_vl_text", "layers.0.self_attn.index_k_proj", "qkv_proj"},
        {"minimax_m3_vl_text", NULL, "model.layers.0.self_attn.q_proj", "qkv_proj"},
        {"llama", NULL, "model.layers.0.self_attn.index_k_proj", NULL},
        {"internlm2", NULL, "model.layers.0.feed_forward.w3", "gate_up_proj"},
        {"lfm2", NULL, "model.layers.0.feed_forward.w3", "w13"},
        {"deepseek_v4", NULL, "layers.0.attn.wkv", "fused_wqa_wkv"},
        {"deepseek_v4", NULL, "layers.0.attn.compressor.wkv", NULL},
        {"glm5_next", "glm5_next_text", "layers.0.self_attn.g_a_proj", "in_proj_qkvbfg_a"},
        {"bailing_moe_v3", NULL, "layers.0.attention.b_proj", "qkvb_proj"},
        {"exaone", NULL, "transformer.h.0.mlp.c_fc_1", "gate_up_proj"},
        {"molmo2", NULL, "layers.0.self_attn.wk", "merged_qkv"},
        {"molmo", NULL, "layers.0.mlp.up_proj", "merged_linear"},
        {"chatglm", NULL, "vision.linear_proj.dense_h_to_4h", "merged_proj"},
        {"chatglm", NULL, "layers.0.mlp.dense_h_to_4h", NULL},
        {"ovis2", "qwen2", "vision_tower.layers.0.mlp.fc3", "fc13"},
        {"voxtral", NULL, "layers.0.mlp.fc3", "gate_up_proj"},
        {"cohere_asr", NULL, "layers.0.first_sub_layer.key_net", "qkv_proj"},
        {"cohere_asr", NULL, "layers.0.second_sub_layer.key_net", "kv_proj"},
        {"cohere_asr", NULL, "layers.0.second_sub_layer.query_net", NULL},
        {"x", "bert", "encoder.layer.0.attention.self.key", "qkv_proj"},
        {NULL, NULL, "encoder.layer.0.attention.self.key", NULL},
        {NULL, NULL, "xattn.q", NULL},
        {NULL, NULL, "attn.q", "qkv"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cJSON *whole = NULL, *text = NULL; // own
        if (rows[i].whole)
            assert_ok(cx, osh_model_type_find(cx, &whole, rows[i].whole, NULL, NULL));
        if (rows[i].text) assert_ok(cx, osh_model_type_find(cx, &text, rows[i].text, NULL, NULL));
        const osh_q_fusion f = osh_q_fusion_find((osh_q_family){whole, text}, rows[i].module);
        if (!f.fused != !rows[i].fused || (f.fused && strcmp(f.fused, rows[i].fused) != 0))
            fail_msg("%s of %s: %s", rows[i].module, rows[i].whole, f.fused ? f.fused : "none");
        cJSON_Delete(whole);
        cJSON_Delete(text);
    }
}

static void test_vllm_lacking(void **state)
{
    static const char *const modules[] = {"0.q_proj", "0.k_proj", "1.q_proj"};
    static const char *const two[] = {"0.q_proj", "0.k_proj"}, *const three[] = {"0.q_proj",
                                                                                 "0.k_proj",
                                                                                 "0.v_proj"};
    char *targets[] = {"Linear"}, name[] = "group_0";
    osh_q_scheme s = {.group_name = name, .targets = {targets, 1}};
    osh_q_modules m = {modules, NULL, (const int[]){-1, -1, 0}, 3, {NULL, NULL}};
    (void)state;
    assert_fails(cx, OSH_E_UNSUPPORTED, osh_q_vllm_check(cx, &(osh_q_groups){&s, 1, two, 2}, &m),
                 "0.qkv_proj: ignore takes 2 of its 3 parts, and vLLM fuses them: want all or none "
                 "of them ignored; q_proj, k_proj would be ignored, v_proj would not");
    assert_ok(cx, osh_q_vllm_check(cx, &(osh_q_groups){&s, 1, three, 3}, &m));
}

/* The experts of a layer must have one scheme. Experts of another layer may have another scheme. */
static void test_vllm_experts(void **state)
{
    static const char *const modules[] = {"0.mlp.experts.0.down_proj", "0.mlp.experts.10.down_proj",
                                          "1.mlp.experts.0.down_proj",
                                          "1.mlp.expertsx.1.down_proj"};
    static const char *const down[] = {"0.mlp.experts.10.down_proj"};
    char *targets[] = {"re:.*0\\.mlp.*down_proj", "re:.*1\\.mlp.*down_proj"}, name0[] = "group_0",
         name1[] = "group_1";
    osh_q_scheme s[2] = {{.group_name = name0, .targets = {targets, 1}},
                         {.group_name = name1, .targets = {targets + 1, 1}}};
    assert_ok(cx,
              osh_q_vllm_check(cx, &(osh_q_groups){s, 2, NULL, 0},
                               &(osh_q_modules){modules, NULL, (const int[]){0, 0, 1, 1}, 4}));
    assert_fails(cx, OSH_E_UNSUPPORTED,
                 osh_q_vllm_check(cx, &(osh_q_groups){s, 2, down, 1},
                                  &(osh_q_modules){modules, NULL, (const int[]){0, -1, 1, 1}, 4}),
                 "0.mlp.experts.0.down_proj has group_0 and 0.mlp.experts.10.down_proj has no "
                 "scheme, and vLLM makes "
                 "one layer of them");
}

static void test_print_fills_observers(void **state)
{
    char *linear[] = {"Linear"}, *text = NULL;
    osh_q_scheme s = {.targets = {linear, 1}};
    assert_ok(cx, osh_q_preset(cx, &s, "FP8"));
    s.inputs.observer[0] = '\0';
    assert_ok(cx, osh_q_config_print(cx, &text, &(osh_q_groups){&s, 1, NULL, 0}, NULL));
    assert_non_null(strstr(text, "\"observer\": \"minmax\""));
    assert_non_null(strstr(text, "\"observer\": \"memoryless_minmax\""));
    osh_free(cx, text);
}

static void test_who_loads(void **state)
{
    static const struct {
        const char *preset, *format, *part;
    } rows[] = {
        {"W4A16", "", "vLLM on CUDA 7.5 and later, CPU"},
        {"W8A16", "", "vLLM on CUDA 7.5"},
        {"W3A16", "", "Humming"},
        {"W8A8", "", "vLLM on CUDA, CPU"},
        {"W4A8", "", "CPU"},
        {"W3A8", "", "no kernel of vLLM"},
        {"W3A8", "pack-quantized", "Humming"},
        {"FP8", "", "CPU"},
        {"FP8_BLOCK", "", "CPU with AMX"},
        {"W4AFP8", "", "no kernel"},
        {"W4AFP8", "pack-quantized", "CUDA 9.0"},
        {"W4A16", "int-quantized", "no kernel"},
        {"MXFP4XFP8", "", "mxfp4-pack-quantized: vLLM on CUDA"},
        {"MXFP6A8", "",
         "mxfp6-pack-quantized: no kernel of vLLM (it does not know MXFP6); transformers with "
         "compressed-tensors 0.20"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        osh_q_scheme s = {0};
        assert_ok(cx, osh_q_preset(cx, &s, rows[i].preset));
        snprintf(s.format, sizeof s.format, "%s", rows[i].format);
        char *who = osh_q_who_loads(cx, &s, NULL);
        assert_non_null(who);
        if (!strstr(who, rows[i].part))
            fail_msg("%s: '%s' does not hold '%s'", rows[i].preset, who, rows[i].part);
        osh_free(cx, who);
    }
    static const char *const outputs[] = {"vLLM on CUDA (inputs and outputs rounded",
                                          "static outputs want static inputs",
                                          "which leaves outputs as they are"};
    // k 0: inputs and outputs are static; 1: only outputs are static; 2: both are dynamic
    for (int k = 0; k < 3; k++) {
        osh_q_scheme s = {0};
        assert_ok(cx, osh_q_preset(cx, &s, "W8A8"));
        s.outputs = s.inputs;
        if (k < 2) s.outputs.dynamic = OSH_Q_STATIC, s.outputs.strategy = OSH_Q_TENSOR;
        if (k < 1) s.inputs = s.outputs;
        char *who = osh_q_who_loads(cx, &s, NULL);
        if (!strstr(who, outputs[k])) fail_msg("outputs: '%s' does not hold '%s'", who, outputs[k]);
        osh_free(cx, who);
    }
}

static osh_status round_trip(osh_ctx *c, void *user)
{
    osh_status rc = OSH_OK;
    osh_q_config *q = NULL;
    char *text = NULL;
    cJSON *o = user;
    static const char *const modules[] = {"a.q_proj", "lm_head"}, *const ignore[] = {"lm_head"};
    OSH_TRY(osh_q_config_parse(c, &q, o, "config.json"));
    OSH_TRY(osh_q_config_print(c, &text, &(osh_q_groups){q->schemes, q->n, ignore, 1}, NULL));
    OSH_TRY(
        osh_q_vllm_check(c, &(osh_q_groups){q->schemes, q->n, ignore, 1},
                         &(osh_q_modules){modules, NULL, (const int[]){0, -1}, 2}));
done:
    osh_free(c, text);
    osh_q_config_free(c, q);
    return rc;
}

static void test_torture(void **state)
{
    cJSON *o = cJSON_Parse("{\"ignore\":[\"lm_head\"],\"config_groups\":{\"g\":{\"targets\":["
                           "\"Linear\"],\"weights\":{\"num_bits\":4}}}}");
    assert_true(torture(round_trip, o) > 10);
    cJSON_Delete(o);
}

static void test_names(void **state)
{
    static const char *const others[] = {"W8A8", "INT8"}; // two names of the same arguments
    char name[OSH_Q_NAME];
    for (size_t i = 0; osh_q_preset_name(i); i++) {
        osh_q_scheme s = {0};
        assert_ok(cx, osh_q_preset(cx, &s, osh_q_preset_name(i)));
        osh_q_name(name, &s, osh_q_preset_name(i));
        assert_string_equal(name, osh_q_preset_name(i));
        osh_q_name(name, &s, NULL);
        if (strcmp(name, osh_q_preset_name(i))) assert_string_equal(name, others[0]);
    }
    osh_q_scheme s = {0};
    assert_ok(cx, osh_q_preset(cx, &s, "W4A16"));
    s.weights.group_size = 64;
    osh_q_name(name, &s, "w4a16");
    assert_string_equal(name, "W4A16");
    s.weights.bits = 3, s.weights.symmetric = false;
    osh_q_name(name, &s, "W4A16");
    assert_string_equal(name, "W3A16_ASYM");
    s.weights.strategy = OSH_Q_CHANNEL, s.weights.symmetric = true;
    osh_q_name(name, &s, "W4A16");
    assert_string_equal(name, "W3A16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_args_rules),   cmocka_unit_test(test_normalized),
        cmocka_unit_test(test_presets),      cmocka_unit_test(test_format_of),
        cmocka_unit_test(test_parse_good),   cmocka_unit_test(test_parse_refuses),
        cmocka_unit_test(test_print_order),  cmocka_unit_test(test_vllm_lookup),
        cmocka_unit_test(test_who_loads),    cmocka_unit_test(test_torture),
        cmocka_unit_test(test_vllm_order),   cmocka_unit_test(test_vllm_families),
        cmocka_unit_test(test_vllm_lacking), cmocka_unit_test(test_vllm_experts),
        cmocka_unit_test(test_vllm_latent),  cmocka_unit_test(test_print_fills_observers),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
