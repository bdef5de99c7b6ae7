/* test_hf_config.c - tests the reader of config.json. The values must equal the values that
 * transformers reads. Invalid files must be refused. */
#include <math.h>
#include <stdio.h>

#include "io/hf_config.h"
#include "unit/dir_fixture.h"

static osh_hf_config *open_text(fixture *f, const char *text)
{
    osh_hf_config *c = NULL;
    put_text(f, "config.json", text);
    if (osh_hf_config_open(f->cx, &c, f->dir)) fail_msg("%s: %s", text, osh_error_text(f->cx));
    return c;
}

static void check_text(fixture *f, osh_status rc, const char *text, const char *words)
{
    osh_hf_config *c = NULL;
    put_text(f, "config.json", text);
    assert_int_equal(osh_hf_config_open(f->cx, &c, f->dir), rc);
    assert_null(c);
    if (!strstr(osh_error_text(f->cx), words))
        fail_msg("'%s' not in '%s'", words, osh_error_text(f->cx));
    osh_error_clear(f->cx);
}

/* Returns the number `key` of rope_parameters, or dflt if it is absent. 0 counts as absent, because
 * the code of transformers is "x or dflt". */
static double want_num(const cJSON *rope, const char *key, double dflt)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(rope, key);
    return v && cJSON_IsNumber(v) ? v->valuedouble : dflt;
}

static void check_rope(const osh_rope *r, const cJSON *want, int k)
{
    static const char *const types[] = {"default", "linear", "llama3", "dynamic", "yarn",
                                        "longrope", "proportional"};
    const cJSON *truncate = cJSON_GetObjectItemCaseSensitive(want, "truncate");
    const char *type = cJSON_GetObjectItemCaseSensitive(want, "rope_type")->valuestring;

    if (strcmp(types[r->type], type))
        fail_msg("case %d: type %s, wanted %s", k, types[r->type], type);
    const struct {
        const char *key;
        double has, dflt;
    } rows[] = {
        {"rope_theta", r->theta, -1},
        {"factor", r->factor, 1},
        {"partial_rotary_factor", r->partial_rotary_factor, 1},
        {"original_max_position_embeddings", (double)r->original_max_position_embeddings, 0},
        {"low_freq_factor", r->low_freq_factor, 0},
        {"high_freq_factor", r->high_freq_factor, 0},
        {"beta_fast", r->beta_fast, 32},
        {"beta_slow", r->beta_slow, 1},
        {"attention_factor", r->attention_factor, -1},
        {"mscale", r->mscale, 0},
        {"mscale_all_dim", r->mscale_all_dim, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double w = want_num(want, rows[i].key, rows[i].dflt);
        if (rows[i].has != w)
            fail_msg("case %d: %s is %g, wanted %g", k, rows[i].key, rows[i].has, w);
    }
    assert_int_equal(r->truncate, !truncate || cJSON_IsTrue(truncate));
}

static void test_like_transformers(void **state)
{
    fixture *f = *state;
    cJSON *cases = NULL;
    int k = 0;

    if (osh_json_read(f->cx, &cases, OSH_SOURCE_DIR "/tests/golden/hf_config/cases.json", 1 << 20,
                      0))
        fail_msg("%s", osh_error_text(f->cx));
    for (const cJSON *item = cases->child; item; item = item->next, k++) {
        const cJSON *want = cJSON_GetObjectItemCaseSensitive(item, "want");
        const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(want, "dtype");
        char *text = cJSON_Print(cJSON_GetObjectItemCaseSensitive(item, "config"));
        osh_hf_config *c = open_text(f, text);
        if (c->rope_unknown) fail_msg("case %d: %s", k, c->rope_unknown);
        check_rope(&c->rope, cJSON_GetObjectItemCaseSensitive(want, "rope"), k);
        assert_int_equal(c->tie_word_embeddings, cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(
                                                     want, "tie_word_embeddings")));
        assert_int_equal(c->rope.max_position_embeddings,
                         want_num(want, "max_position_embeddings", -1));
        assert_int_equal(c->dtype, cJSON_IsString(dtype) ? osh_dtype_of_name(dtype->valuestring)
                                                         : OSH_DTYPE_NONE);
        osh_hf_config_close(f->cx, c);
        free(text);
    }
    assert_true(k >= 20);
    cJSON_Delete(cases);
}

static void test_fields(void **state)
{
    fixture *f = *state;
    bool found = false;
    double d = -1;
    osh_hf_config *c =
        open_text(f, "{\"architectures\": [\"MambaForCausalLM\"], \"hidden_act\": \"silu\","
                     " \"eps\": 1e-5, \"use\": true, \"none\": null, \"list\": [1],"
                     " \"compression_config\": {\"q\": 1}}");
    assert_string_equal(c->architecture, "MambaForCausalLM");
    assert_true(c->tie_word_embeddings &&
                !c->has_tie_word_embeddings); // the default for unknown families is the default of
                                              // transformers 4
    assert_int_equal(c->rope.max_position_embeddings, 0);
    // a type with a record, but without a template
    osh_hf_config *other = open_text(f, "{\"architectures\": [\"OpenAIGPTLMHeadModel\"],"
                                        " \"model_type\": \"openai-gpt\"}");
    assert_true(other->tie_word_embeddings && osh_hf_config_has_conv1d(other));
    osh_hf_config_close(f->cx, other);
    assert_int_equal(c->dtype, OSH_DTYPE_NONE);
    assert_non_null(c->quantization_config);
    assert_string_equal(osh_hf_config_str(c, "hidden_act"), "silu");
    assert_null(osh_hf_config_str(c, "eps"));
    assert_null(osh_hf_config_str(c, "none"));
    assert_int_equal(osh_hf_config_num(f->cx, &d, &found, c, "eps"), OSH_OK);
    assert_true(found && d == 1e-5);
    assert_int_equal(osh_hf_config_num(f->cx, &d, &found, c, "use"), OSH_OK);
    assert_true(found && d == 1);
    assert_int_equal(osh_hf_config_num(f->cx, &d, &found, c, "none"), OSH_OK);
    assert_false(found);
    assert_int_equal(osh_hf_config_num(f->cx, &d, &found, c, "list"), OSH_E_FORMAT);
    assert_non_null(strstr(osh_error_text(f->cx), "'list' is an array"));
    osh_error_clear(f->cx);
    osh_hf_config_close(f->cx, c);

    c = open_text(
        f,
        "{\"architectures\": [\"Qwen3ForCausalLM\"], \"quantization_config\": {\"a\": 1},"
        " \"text_config\": {\"quantization_config\": {\"b\": 1}}, \"tie_word_embeddings\": null}");
    assert_true(!c->tie_word_embeddings && !c->has_tie_word_embeddings);
    assert_non_null(cJSON_GetObjectItemCaseSensitive(c->quantization_config, "a"));
    osh_hf_config_close(f->cx, c);
    c = open_text(f, "{\"text_config\": {\"quantization_config\": {\"b\": 1}}, "
                     "\"compression_config\": {\"c\": 1}}");
    assert_non_null(cJSON_GetObjectItemCaseSensitive(c->quantization_config, "b"));
    assert_null(c->architecture);
    osh_hf_config_close(f->cx, c);
}

/* A change of text_config must not change any other byte. For example, 1.0 must not become 1,
 * because transformers refuses an integer there. */
static void test_edit_text_config(void **state)
{
    fixture *f = *state;
    static const char before[] =
        "{\"architectures\": [\"LlavaForConditionalGeneration\"],"
        " \"text_config\": {\"model_type\": \"llama\", \"logit_scale\": 1.0,"
        " \"big\":9007199254740993, \"intermediate_size\" : 96,\n \"tie_word_embeddings\": true, "
        "\"nan\": NaN,"
        " \"quantization_config\": {}},\n\"tie_word_embeddings\": true}";
    static const char after[] =
        "{\"architectures\": [\"LlavaForConditionalGeneration\"],"
        " \"text_config\": {\"model_type\": \"llama\", \"logit_scale\": 1.0,"
        " \"big\":9007199254740993, \"intermediate_size\" : 128,\n \"tie_word_embeddings\": false, "
        "\"nan\": NaN},\n"
        "\"tie_word_embeddings\": false}";
    char *text = NULL; // own
    osh_hf_config *c = open_text(f, before);
    assert_int_equal(osh_hf_config_set_size(f->cx, c, "intermediate_size", 128), OSH_OK);
    assert_int_equal(osh_hf_config_with_quantization(f->cx, &text, c, "", true), OSH_OK);
    assert_string_equal(text, after);
    osh_free(f->cx, text);
    osh_hf_config_close(f->cx, c);
}

/* Tests unknown kinds of rope. A graph must refuse them; a recipe without data must accept them. */
static void test_rope_unknown(void **state)
{
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1]}}", "longrope"},
        {"{\"rope_scaling\": {\"type\": \"su\"}}", "su"},
        {"{\"model_type\": \"phi3\", \"rope_scaling\": {\"type\": \"su\"}}",
         "longrope: 'short_factor' is not a list of numbers"},
        {"{\"model_type\": \"phi3\", \"rope_scaling\": {\"type\": \"yarn\", \"short_factor\": [1],"
         " \"long_factor\": [0]}}",
         "longrope: 'long_factor' is not a list of numbers above 0"},
        {"{\"model_type\": \"gemma3_text\", \"rope_local_base_freq\": 0}",
         "'rope_theta' is not above 0"},
        {"{\"rope_theta\": [1, 2]}", "'rope_theta' is not a finite number"},
        {"{\"rope_theta\": 0}", "'rope_theta' is not above 0"},
        {"{\"rope_scaling\": \"linear\"}", "is not an object"},
        {"{\"rope_parameters\": 3}", "'rope_parameters' is not an object"},
        {"{\"model_type\": \"gemma3_text\", \"rope_parameters\": []}",
         "'rope_parameters' is not an object"},
        {"{\"rope_scaling\": {\"rope_type\": 7}}", "'rope_type' is not a string"},
        {"{\"rope_scaling\": {\"rope_type\": \"linear\"}}", "linear: 'factor' is missing"},
        {"{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": null}}",
         "linear: 'factor' is missing"},
        {"{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": -2}}",
         "linear: 'factor' is not above 0"},
        {"{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": \"2\"}}",
         "'factor' is not a finite number"},
        {"{\"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 2}}",
         "'max_position_embeddings' is missing"},
        {"{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 2}}",
         "llama3: 'low_freq_factor' is missing"},
        {"{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 2, \"low_freq_factor\": 4,"
         " \"high_freq_factor\": 4}, \"max_position_embeddings\": 9}",
         "is not above low_freq_factor"},
        {"{\"rope_scaling\": {\"rope_type\": \"yarn\"}, \"max_position_embeddings\": 9}",
         "yarn: 'factor' is missing"},
        {"{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2, \"truncate\": 1},"
         " \"max_position_embeddings\": 9}",
         "yarn: 'truncate'"},
        {"{\"max_position_embeddings\": 1.5}", "is not a whole number above 0"},
        {"{\"partial_rotary_factor\": 2}", "is not in (0, 1]"},
        {"{\"rope_parameters\": {\"full\": {\"rope_theta\": 1.5}, \"sliding\": {\"rope_theta\": "
         "2}}}",
         "differ between layer types"},
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        osh_hf_config *c = open_text(f, rows[i].text);
        if (!c->rope_unknown || !strstr(c->rope_unknown, rows[i].words))
            fail_msg("%s: '%s', wanted '%s'", rows[i].text,
                     c->rope_unknown ? c->rope_unknown : "(fine)", rows[i].words);
        osh_hf_config_close(f->cx, c);
    }
    osh_hf_config *c = open_text(
        f,
        "{\"rope_parameters\": {\"full\": {\"rope_theta\": 5}, \"sliding\": {\"rope_theta\": 5}}}");
    assert_null(c->rope_unknown);
    assert_true(c->rope.theta == 5);
    osh_hf_config_close(f->cx, c);
    c = open_text(f, "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": null, "
                     "\"original_max_position_embeddings\": 50},"
                     " \"max_position_embeddings\": 400}");
    assert_true(!c->rope_unknown && c->rope.factor == 8);
    osh_hf_config_close(f->cx, c);
    c = open_text(f,
                  "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"x\": {\"y\": 1}}}");
    // an object that is not the rope of a layer type is ignored
    assert_true(!c->rope_unknown && c->rope.factor == 2);
    osh_hf_config_close(f->cx, c);
}

/* Tests older names of keys, defaults of families, and a separate rope for sliding layers. */
static void test_rope_of_families(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *text;
        double theta, sliding, partial;
    } rows[] = {
        {"{}", 1e4, 1e4, 1},
        {"{\"model_type\": \"smollm3\"}", 2e6, 2e6, 1},
        {"{\"model_type\": \"stablelm\"}", 1e4, 1e4, 0.25},
        {"{\"model_type\": \"stablelm\", \"partial_rotary_factor\": 0.5}", 1e4, 1e4, 0.5},
        {"{\"model_type\": \"gpt_neox\", \"rotary_emb_base\": 500, \"rotary_pct\": 0.75}", 500, 500,
         0.75},
        {"{\"model_type\": \"gpt_neox\", \"rope_parameters\": {\"rope_theta\": 7}}", 7, 7, 0.25},
        {"{\"model_type\": \"gemma3_text\"}", 1e6, 1e4, 1},
        {"{\"model_type\": \"gemma3_text\", \"rope_theta\": 5, \"rope_local_base_freq\": 6}", 5, 6,
         1},
        {"{\"model_type\": \"gemma3_text\", \"rope_parameters\": {\"full_attention\": "
         "{\"rope_theta\": 5},"
         " \"sliding_attention\": {\"rope_theta\": 6}}}",
         5, 6, 1},
        {"{\"model_type\": \"olmo3\", \"rope_theta\": 5}", 5, 5e5, 1},
        {"{\"model_type\": \"deepseek_v4\", \"rope_parameters\": {\"main\": {\"rope_theta\": 5},"
         " \"compress\": {\"rope_theta\": 6}}}",
         6, 5, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        osh_hf_config *c = open_text(f, rows[i].text);
        if (c->rope_unknown || c->rope.theta != rows[i].theta ||
            c->rope_sliding.theta != rows[i].sliding ||
            c->rope.partial_rotary_factor != rows[i].partial)
            fail_msg("%s: theta %g, sliding %g, partial %g", rows[i].text, c->rope.theta,
                     c->rope_sliding.theta, c->rope.partial_rotary_factor);
        osh_hf_config_close(f->cx, c);
    }
    osh_hf_config *c =
        open_text(f, "{\"model_type\": \"gemma3_text\", \"max_position_embeddings\": 64,"
                     " \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8}}");
    /* only the full layers have the linear rope */
    assert_true(c->rope.type == OSH_ROPE_LINEAR && c->rope_sliding.type == OSH_ROPE_DEFAULT);
    osh_hf_config_close(f->cx, c);
    /* DeepSeek V4 has other names for the types of layers, and yarn does not scale its cosines. */
    static const char *const own[] = {"rope_scaling", "rope_parameters"};
    for (int i = 0; i < 2; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "{\"model_type\": \"deepseek_v4\", \"%s\": {\"type\": \"yarn\", \"factor\": 16, "
                 "\"original_max_position_embeddings\": 50}}",
                 own[i]);
        c = open_text(f, text);
        assert_true(!c->rope_unknown && c->rope.type == OSH_ROPE_YARN && c->rope.factor == 16);
        assert_true(c->rope.attention_factor == 1 && c->rope_sliding.type == OSH_ROPE_DEFAULT);
        osh_hf_config_close(f->cx, c);
    }
    c = open_text(
        f, "{\"model_type\": \"phi3\", \"max_position_embeddings\": 8192,"
           " \"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1], \"long_factor\": [2]}}");
    assert_true(!c->rope_unknown && c->rope.type == OSH_ROPE_LONGROPE && c->rope.factor == 2);
    assert_true(c->rope.original_max_position_embeddings == 4096 && !c->tie_word_embeddings);
    osh_hf_config_close(f->cx, c);
}

/* The record of a wrapper names the key of the text model's config. The text model has its own
 * record. If an output unties the head, the text model's config is edited. */
static void test_text_model(void **state)
{
    static const char text[] = "{\"model_type\": \"smollm3\", \"vocab_size\": 9, "
                               "\"tie_word_embeddings\": true, \"quantization_config\": {}}";
    static const struct { const char *type, *open, *close; } rows[] = {
        {"llava", "\"text_config\": ", ""},
        {"internvl_chat", "\"llm_config\": ", ""},
        {"qwen2_5_omni", "\"thinker_config\": {\"text_config\": ", "}"},
        {"unheard_of", "\"text_config\": ", ""},
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char whole[512], *out = NULL;
        snprintf(whole, sizeof whole, "{\"model_type\": \"%s\", %s%s%s}", rows[i].type,
                 rows[i].open, text, rows[i].close);
        osh_hf_config *c = open_text(f, whole);
        assert_string_equal(c->text_architecture, "SmolLM3ForCausalLM");
        assert_true(c->rope.theta == 2e6 && c->tie_word_embeddings && c->quantization_config);
        assert_true(osh_hf_config_member(c, "vocab_size")->valuedouble == 9);
        assert_int_equal(osh_hf_config_with_quantization(f->cx, &out, c, "", true), OSH_OK);
        if (!*rows[i].close) assert_null(strstr(out, "quantization_config"));
        if (!*rows[i].close) assert_null(strstr(out, "true"));
        osh_free(f->cx, out);
        osh_hf_config_close(f->cx, c);
    }
    /* without a model_type, the architecture decides the defaults */
    osh_hf_config *c = open_text(f, "{\"architectures\": [\"SmolLM3ForCausalLM\"]}");
    assert_true(c->rope.theta == 2e6 && c->tie_word_embeddings);
    osh_hf_config_close(f->cx, c);
    c = open_text(
        f, "{\"architectures\": [\"LlavaForConditionalGeneration\"], \"text_config\": {}}");
    assert_null(c->text_architecture);
    osh_hf_config_close(f->cx, c);
}

static void test_refused(void **state)
{
    fixture *f = *state;
    check_text(f, OSH_E_FORMAT, "[]", "not a JSON object");
    check_text(f, OSH_E_FORMAT, "{\"a\": }", "line 1");
    check_text(f, OSH_E_FORMAT, "{\"a\": 1, \"a\": 2}", "'a' occurs twice");
    check_text(f, OSH_E_FORMAT, "{\"a\": \"x\\u0000y\"}", "NUL");
    check_text(f, OSH_E_FORMAT, "{\"architectures\": \"X\"}", "architectures is not a list");
    check_text(f, OSH_E_FORMAT, "{\"architectures\": [7]}", "architectures is not a list");
    check_text(f, OSH_E_UNSUPPORTED, "{\"torch_dtype\": \"bfloat17\"}",
               "unknown torch_dtype 'bfloat17'");
    check_text(f, OSH_E_FORMAT, "{\"dtype\": 16}", "'dtype' is a number");
    check_text(f, OSH_E_FORMAT, "{\"tie_word_embeddings\": \"no\"}",
               "'tie_word_embeddings' is a string");
    check_text(f, OSH_E_FORMAT, "{\"quantization_config\": []}",
               "quantization_config is not an object");

    osh_hf_config *c = NULL;
    drop(f, "config.json");
    assert_int_equal(osh_hf_config_open(f->cx, &c, f->dir), OSH_E_IO);
    assert_non_null(strstr(osh_error_text(f->cx), f->dir));
    assert_non_null(strstr(osh_error_text(f->cx), "/config.json"));
    osh_error_clear(f->cx);
}

static void check_edit(fixture *f, const char *text, bool untie, const char *want)
{
    char *out = NULL;
    osh_hf_config *c = open_text(f, text);
    if (osh_hf_config_with_quantization(f->cx, &out, c, "{\"q\": 1}", untie))
        fail_msg("%s", osh_error_text(f->cx));
    assert_string_equal(out, want);
    osh_free(f->cx, out);
    osh_hf_config_close(f->cx, c);
}

/* Adds quantization_config to a config.json. All other bytes stay: order, spaces and spelling of
 * numbers. */
static void test_with_quantization(void **state)
{
    fixture *f = *state;
    check_edit(
        f, "{\n  \"b\": 1.50,\n  \"quantization_config\": {\"x\": [1, 2]},\n  \"a\":  1e-05\n}\n",
        false, "{\n  \"b\": 1.50,\n  \"quantization_config\": {\"q\": 1},\n  \"a\":  1e-05\n}\n");
    check_edit(f, "{\"tie_word_embeddings\":true,\"quantization_config\":null}", true,
               "{\"tie_word_embeddings\":false,\"quantization_config\":{\"q\": 1}}");
    check_edit(
        f, "{\"initializer_range\": NaN, \"x\": [-Infinity]}", false,
        "{\"initializer_range\": NaN, \"x\": [-Infinity], \"quantization_config\": {\"q\": 1}}");
    put_text(f, "config.json", "{\n  \"z\": 1\n}\n");
    osh_hf_config *c = NULL;
    char *out = NULL;
    cJSON *tree = NULL;
    assert_int_equal(osh_hf_config_open(f->cx, &c, f->dir), OSH_OK);
    assert_int_equal(osh_hf_config_with_quantization(f->cx, &out, c, "{\"q\": 1}", true), OSH_OK);
    assert_int_equal(osh_json_parse(f->cx, &tree, out, strlen(out), "edited", 0), OSH_OK);
    assert_true(cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(tree, "quantization_config")));
    assert_true(cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(tree, "tie_word_embeddings")));
    assert_int_equal(cJSON_GetArraySize(tree), 3);
    cJSON_Delete(tree);
    osh_free(f->cx, out);
    osh_hf_config_close(f->cx, c);
}

static void test_torture(void **state)
{
    fixture *f = *state;
    put_text(f, "config.json",
             "{\"architectures\": [\"LlamaForCausalLM\"], \"rope_scaling\": {\"type\": \"linear\", "
             "\"factor\": 0}}");
    for (int64_t k = 1;; k++) {
        osh_hf_config *c = NULL;
        char *out = NULL;
        osh_mem_fail_after(f->cx, k);
        osh_status rc = osh_hf_config_open(f->cx, &c, f->dir);
        if (!rc) rc = osh_hf_config_with_quantization(f->cx, &out, c, "{}", true);
        osh_mem_fail_after(f->cx, -1);
        osh_free(f->cx, out);
        osh_hf_config_close(f->cx, c);
        assert_int_equal(osh_mem_live(f->cx), 0);
        if (!rc) {
            assert_true(k > 4);
            break;
        }
        assert_int_equal(rc, OSH_E_NOMEM);
        osh_error_clear(f->cx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_like_transformers, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_fields, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_edit_text_config, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_rope_unknown, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_rope_of_families, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_text_model, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_refused, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_with_quantization, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_torture, setup_dir, teardown_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
