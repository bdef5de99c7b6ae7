/* hf_config.c - reads config.json of transformers 4 and 5 into one form.
 *
 * An absent key has the default of the config class in transformers. The table below lists the
 * defaults of some families. Other families have the defaults of PretrainedConfig in transformers
 * 4, which ties the embeddings. has_tie_word_embeddings is true if the file has the key
 * tie_word_embeddings, at the top level or in text_config. */
#include "io/hf_config.h"
#include "base/file.h"
#include "io/hf_quant.h"
#include "io/hf_rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CONFIG_BYTES = 16 << 20 };

typedef struct family {
    const char *model_type, *architecture;
    osh_rope_defaults rope;
    bool tied; // default of tie_word_embeddings
} family;

static const family families[] = {
    {"llama", "LlamaForCausalLM", {2048}, false},
    {"mistral", "MistralForCausalLM", {4096 * 32}, false},
    {"qwen2", "Qwen2ForCausalLM", {32768}, false},
    {"qwen3", "Qwen3ForCausalLM", {32768}, false},
    {"qwen3_moe", "Qwen3MoeForCausalLM", {32768}, false},
    {"smollm3", "SmolLM3ForCausalLM", {32768, .theta = 2e6}, true},
    {"granite", "GraniteForCausalLM", {2048}, false},
    {"olmo2", "Olmo2ForCausalLM", {2048}, false},
    {"olmo3", "Olmo3ForCausalLM", {2048, .theta = 5e5, .sliding_theta = 5e5}, false},
    {"stablelm", "StableLmForCausalLM", {4096, .partial_rotary_factor = 0.25}, false},
    {"phi3", "Phi3ForCausalLM", {4096, 4096, .longrope = true}, false},
    {"glm4", "Glm4ForCausalLM", {131072, .partial_rotary_factor = 0.5}, false},
    {"ministral3", "Ministral3ForCausalLM", {262144}, false},
    {"gemma2", "Gemma2ForCausalLM", {8192}, true},
    {"gemma3_text", "Gemma3ForCausalLM",
     {131072, .theta = 1e6, .sliding_theta = 1e4, .sliding_key = "rope_local_base_freq"}, true},
    {"rnj1", "Rnj1ForCausalLM",
     {131072, .theta = 1e6, .sliding_theta = 1e4, .sliding_key = "rope_local_base_freq"}, true},
    {"dbrx", "DbrxForCausalLM", {2048}, false},
    {"kimi_linear", "KimiLinearForCausalLM", {1048576}, false},
    {"gemma4_text", "Gemma4ForCausalLM",
     {131072, .theta = 1e6, .sliding_theta = 1e4, .proportional = 0.25}, true},
    {"falcon", "FalconForCausalLM", {2048}, true},
    {"opt", "OPTForCausalLM", {2048}, true},
    {"gpt2", "GPT2LMHeadModel", {1024}, true},
    {"mamba2", "Mamba2ForCausalLM", {0}, false},
    {"llama4_text", "Llama4ForCausalLM", {131072, .theta = 5e5}, false},
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM", {2048}, false},
    {"mixtral", "MixtralForCausalLM", {4096 * 32, .theta = 1e6}, false},
    {"qwen2_moe", "Qwen2MoeForCausalLM", {32768}, false},
    {"glm4_moe", "Glm4MoeForCausalLM", {131072, .partial_rotary_factor = 0.5}, false},
    {"deepseek_v2", "DeepseekV2ForCausalLM", {2048}, false},
    {"deepseek_v3", "DeepseekV3ForCausalLM", {4096}, false},
    {"kimi_k2", "DeepseekV3ForCausalLM", {4096}, false},
    {"olmo_hybrid", "OlmoHybridForCausalLM", {65536}, false},
    {"laguna", "LagunaForCausalLM",
     {131072, .theta = 5e5, .partial_rotary_factor = 0.5, .sliding_theta = 1e4, .whole = true},
     false},
    {"nemotron_h", "NemotronHForCausalLM", {4096}, false},
    {"deepseek_v32", "DeepseekV32ForCausalLM", {163840}, false},
    {"glm_moe_dsa", "GlmMoeDsaForCausalLM", {202752}, false},
    {"gemma", "GemmaForCausalLM", {8192}, true},
    {"glm", "GlmForCausalLM", {131072, .partial_rotary_factor = 0.5}, false},
    {"cohere", "CohereForCausalLM", {8192, .theta = 5e5}, true},
    {"cohere2", "Cohere2ForCausalLM", {8192}, true},
    {"olmoe", "OlmoeForCausalLM", {4096}, false},
    {"flex_olmo", "FlexOlmoForCausalLM", {4096, .theta = 5e5}, false},
    {"seed_oss", "SeedOssForCausalLM", {524288}, false},
    {"exaone4", "Exaone4ForCausalLM", {2048}, false},
    {"ernie4_5", "Ernie4_5ForCausalLM", {131072, .theta = 5e5}, true},
    {"arcee", "ArceeForCausalLM", {4096}, false},
    {"axk1", "AXK1ForCausalLM", {32768}, false},
    {"minicpm3", "MiniCPM3ForCausalLM", {32768}, true},
    {"hy_v3", "HYV3ForCausalLM", {131072, .theta = 11158840}, false},
    {"afmoe", "AfmoeForCausalLM", {16384}, false},
    {"cohere2_moe", "Cohere2MoeForCausalLM", {8192}, true},
    {"mimo_v2_flash", "MiMoV2FlashForCausalLM",
     {131072, .theta = 5e6, .partial_rotary_factor = 0.334, .sliding_theta = 1e4}, false},
    {"longcat_flash", "LongcatFlashForCausalLM", {131072, .theta = 1e7}, false},
    {"granite_swa", "GraniteSWAForCausalLM", {8192}, true},
    {"granitemoe_swa", "GraniteMoeSWAForCausalLM", {2048}, false},
    {"bloom", "BloomForCausalLM", {65536}, true},
    {"mpt", "MptForCausalLM", {65536}, true},
    {"mamba", "MambaForCausalLM", {0}, true},
    {"falcon_mamba", "FalconMambaForCausalLM", {0}, true},
    {"jamba", "JambaForCausalLM", {262144}, false},
    {"olmo", "OlmoForCausalLM", {2048}, false},
    {"apertus", "ApertusForCausalLM", {65536, .theta = 1.2e7, .required = true}, false},
    {"nemotron", "NemotronForCausalLM", {4096, .partial_rotary_factor = 0.5}, false},
    {"phimoe", "PhimoeForCausalLM", {131072, .theta = 1e6}, false},
    {"helium", "HeliumForCausalLM", {4096, .theta = 1e5}, false},
    {"starcoder2", "Starcoder2ForCausalLM", {4096}, true},
    {"phi", "PhiForCausalLM", {2048, .partial_rotary_factor = 0.5}, false},
    {"granitemoe", "GraniteMoeForCausalLM", {2048}, false},
    {"granitemoeshared", "GraniteMoeSharedForCausalLM", {2048}, false},
    {"dots1", "Dots1ForCausalLM", {2048}, false},
    {"glm4_moe_lite", "Glm4MoeLiteForCausalLM", {202752}, false},
    {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM", {131072, .theta = 5e5}, true},
    {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", {2048, .alpha = true}, false},
    {"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", {2048, .alpha = true}, false},
    {"minimax_m2", "MiniMaxM2ForCausalLM", {196608, .theta = 5e6}, false},
    {"gptj", "GPTJForCausalLM", {2048}, false},
    {"codegen", "CodeGenForCausalLM", {2048}, false},
    {"gpt_bigcode", "GPTBigCodeForCausalLM", {1024}, true},
    {"bamba", "BambaForCausalLM", {262144, .partial_rotary_factor = 0.5}, false},
    {"solar_open", "SolarOpenForCausalLM", {131072, .theta = 1e6}, false},
    {"exaone_moe", "ExaoneMoeForCausalLM", {2048}, false},
    {"ministral", "MinistralForCausalLM", {131072}, false},
    {"cwm", "CwmForCausalLM", {131072, .theta = 1e6, .required = true}, false},
    {"vaultgemma", "VaultGemmaForCausalLM", {8192}, true},
    {"lfm2", "Lfm2ForCausalLM", {128000, .theta = 1e6}, true},
    {"lfm2_moe", "Lfm2MoeForCausalLM", {128000, .theta = 1e6}, true},
    {"jais2", "Jais2ForCausalLM", {8192}, false},
    {"falcon_h1", "FalconH1ForCausalLM", {8192}, false},
    {"hyperclovax", "HyperCLOVAXForCausalLM", {2048}, false},
    /* The rows below are for a config.json of transformers 4, without text_config. */
    {"qwen2_5_vl", "Qwen2ForCausalLM", {32768, .theta = 1e6}, false},
    {"qwen2_5_vl_text", "Qwen2ForCausalLM", {32768, .theta = 1e6}, false},
    {"qwen2_vl", "Qwen2ForCausalLM", {32768, .theta = 1e6}, false},
    {"qwen2_vl_text", "Qwen2ForCausalLM", {32768, .theta = 1e6}, false},
    {"qwen3_vl_moe_text", "Qwen3MoeForCausalLM", {128000, .theta = 5e5}, false},
    {"qwen3_vl_text", "Qwen3ForCausalLM", {128000, .theta = 5e5}, false},
    {"glm4v_text", "Glm4ForCausalLM", {32768}, false},
    {"glm_ocr_text", "Glm4ForCausalLM", {131072}, false},
    {"glm4v_moe_text", "Glm4MoeForCausalLM", {65536, .partial_rotary_factor = 0.5}, false},
    {"granite4_vision_text", "GraniteForCausalLM", {2048}, false},
    {"paddleocr_vl_text", "Ernie4_5ForCausalLM", {131072, .theta = 5e5}, false},
    {"hunyuan_vl_text", "HunYuanDenseV1ForCausalLM", {2048, .alpha = true}, false},
    {"gemma4_unified_text", "Gemma4ForCausalLM",
     {262144, .theta = 1e6, .sliding_theta = 1e4, .proportional = 0.25}, false},
    {"qwen2_5_omni_text", "Qwen2ForCausalLM", {32768}, false},
    {"qwen3_omni_moe_text", "Qwen3MoeForCausalLM", {32768}, false},
    {"cosmos3_edge_text", "Cosmos3EdgeTextModel", {131072, .theta = 1e8}, false},
    {"mllama_text_model", "MllamaForCausalLM", {131072, .theta = 5e5}, false},
    {"qwen3_next", "Qwen3NextForCausalLM", {32768, .partial_rotary_factor = 0.25}, false},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", {32768, .partial_rotary_factor = 0.25}, false},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", {32768, .partial_rotary_factor = 0.25}, false},
    {"gpt_oss", "GptOssForCausalLM", {131072, .theta = 1.5e5, .required = true}, false},
    {"gpt_neox", "GPTNeoXForCausalLM",
     {2048, .partial_rotary_factor = 0.25, .theta_key = "rotary_emb_base",
      .partial_key = "rotary_pct"}, false},
};

static const cJSON *hf_member(const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, key) : NULL;
    return v && !cJSON_IsNull(v) ? v : NULL;
}

/* Returns the row of the table for the model_type of config.json, or for its architecture if
 * config.json has no model_type. Returns NULL if the table has no such row. */
static const family *find_family(const osh_hf_config *c)
{
    const cJSON *v = hf_member(c->model, "model_type");
    const char *type = cJSON_IsString(v) ? v->valuestring : NULL;

    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (type && !strcmp(type, families[i].model_type)) return &families[i];
        if (!type && c->architecture && !strcmp(c->architecture, families[i].architecture))
            return &families[i];
    }
    return NULL;
}

/* Reads the dtype. "dtype" has precedence over "torch_dtype", as in transformers 5. */
static osh_status take_dtype(osh_ctx *cx, osh_hf_config *c)
{
    const cJSON *json =
        hf_member(c->json, "dtype") || hf_member(c->json, "torch_dtype") ? c->json : c->model;
    const char *key = hf_member(json, "dtype") ? "dtype" : "torch_dtype", *name = NULL;
    osh_status rc = OSH_OK;

    c->dtype = OSH_DTYPE_NONE;
    OSH_TRY(osh_json_str_or(cx, &name, json, key, NULL, c->path));
    if (!name) goto done;
    c->dtype = osh_dtype_of_name(name);
    if (c->dtype == OSH_DTYPE_NONE)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: unknown %s '%.60s'", c->path, key, name);
done:
    return rc;
}

static osh_status take_architecture(osh_ctx *cx, osh_hf_config *c)
{
    const cJSON *list = hf_member(c->json, "architectures");

    if (!list) return OSH_OK;
    if (!cJSON_IsArray(list) || (list->child && !cJSON_IsString(list->child)))
        return osh_fail(cx, OSH_E_FORMAT, "%s: architectures is not a list of names", c->path);
    c->architecture = list->child ? list->child->valuestring : NULL;
    return OSH_OK;
}

/* For a model that contains a text model: true if transformers 5.17 ties head and embedding when
 * config.json has no tie_word_embeddings. */
static bool ties_by_default(const osh_hf_config *c)
{
    static const char *const tied[] = {"aya_vision",
                                       "blip",
                                       "cohere2_vision",
                                       "deepseek_vl",
                                       "deepseek_vl_hybrid",
                                       "diffusion_gemma",
                                       "ernie4_5_vl_moe",
                                       "florence2",
                                       "fun_asr_nano",
                                       "gemma3",
                                       "gemma3n",
                                       "gemma4",
                                       "gemma4_unified",
                                       "glmasr",
                                       "got_ocr2",
                                       "granite_speech",
                                       "granite_speech_plus",
                                       "hunyuan_vl",
                                       "internvl",
                                       "janus",
                                       "kimi_k25",
                                       "kosmos-2",
                                       "kosmos-2.5",
                                       "lfm2_vl",
                                       "lighton_ocr",
                                       "mistral3",
                                       "ovis2",
                                       "paddleocr_vl",
                                       "paligemma",
                                       "pp_chart2table",
                                       "qwen3_asr",
                                       "shieldgemma2",
                                       "voxtral_realtime"};
    const char *type = osh_hf_config_str(c, "model_type");
    for (size_t i = 0; i < sizeof tied / sizeof *tied; i++)
        if (type && !strcmp(type, tied[i])) return true;
    return false;
}

bool osh_hf_config_has_conv1d(const osh_hf_config *c)
{
    static const char *const types[] = {"gpt2", "openai-gpt", "imagegpt", "decision_transformer",
                                        "clvp"};
    const cJSON *type = hf_member(c->model, "model_type");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (cJSON_IsString(type) && !strcmp(type->valuestring, types[i])) return true;
    return false;
}

/* Reads tie_word_embeddings, which config.json has for the whole model or for the text model.
 * transformers reads one of the two values, depending on the family. This function sets the result
 * to true if at least one of them is true. */
static osh_status take_ties(osh_ctx *cx, osh_hf_config *c, const family *fam)
{
    osh_status rc = OSH_OK;
    static const char key[] = "tie_word_embeddings";
    bool inside = c->model != c->json, inner = false;
    OSH_TRY(osh_json_bool_or(cx, &c->tie_word_embeddings, c->json, key,
                             inside ? ties_by_default(c)
                             : fam  ? fam->tied
                                    : true,
                             c->path));
    if (inside) OSH_TRY(osh_json_bool_or(cx, &inner, c->model, key, false, c->path));
    c->tie_word_embeddings |= inner;
    c->has_tie_word_embeddings = hf_member(c->json, key) || hf_member(c->model, key);
done:
    return rc;
}

static osh_status take_all(osh_ctx *cx, osh_hf_config *c)
{
    osh_status rc = OSH_OK;
    const osh_rope_defaults none = {0};
    const family *fam;
    const cJSON *text = hf_member(c->json, "text_config");
    osh_rope rope[2];

    /* Omni models have the parts that read and answer inside thinker_config. */
    if (!text) text = hf_member(hf_member(c->json, "thinker_config"), "text_config");
    c->model = cJSON_IsObject(text) ? text : c->json;
    OSH_TRY(take_architecture(cx, c));
    OSH_TRY(take_dtype(cx, c));
    OSH_TRY(osh_hf_quant_read(cx, c));
    fam = find_family(c);
    c->text_architecture = fam ? fam->architecture : NULL;
    OSH_TRY(take_ties(cx, c, fam));
    OSH_TRY(osh_hf_rope_read(cx, rope, &c->rope_unknown, c->model, fam ? &fam->rope : &none));
    c->rope = rope[0], c->rope_sliding = rope[1];
done:
    return rc;
}

osh_status osh_hf_config_open(osh_ctx *cx, osh_hf_config **out, const char *dir)
{
    osh_status rc = OSH_OK;
    osh_hf_config *c = NULL; // own

    OSH_NEW(cx, c, 1);
    c->path = osh_path_join(cx, dir, "config.json");
    if (!c->path) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    OSH_TRY(osh_file_read_all(cx, &c->text, &c->n_text, c->path, MAX_CONFIG_BYTES));
    OSH_TRY(osh_json_parse(cx, &c->json, c->text, c->n_text, c->path, OSH_JSON_NAN));
    if (!cJSON_IsObject(c->json)) OSH_FAIL(cx, OSH_E_FORMAT, "%s: is not a JSON object", c->path);
    OSH_TRY(take_all(cx, c));
    *out = c, c = NULL; // give
done:
    osh_hf_config_close(cx, c);
    return rc;
}

void osh_hf_config_close(osh_ctx *cx, osh_hf_config *c)
{
    if (!c) return;
    cJSON_Delete(c->json);
    cJSON_Delete(c->quantization_json);
    osh_free(cx, c->quantization_path);
    osh_free(cx, c->rope_unknown);
    osh_free(cx, c->text);
    osh_free(cx, c->path);
    osh_free(cx, c);
}

osh_status osh_hf_config_num(osh_ctx *cx, double *out, bool *found, const osh_hf_config *c,
                             const char *key)
{
    const cJSON *v = hf_member(c->json, key);

    *found = v != NULL;
    *out = 0;
    if (!v) return OSH_OK;
    if (cJSON_IsBool(v)) {
        *out = cJSON_IsTrue(v) ? 1 : 0;
        return OSH_OK;
    }
    return osh_json_num_or(cx, out, c->json, key, 0, c->path);
}

const char *osh_hf_config_str(const osh_hf_config *c, const char *key)
{
    const cJSON *v = hf_member(c->json, key);
    return v && cJSON_IsString(v) ? v->valuestring : NULL;
}

static osh_status edit_again(osh_ctx *cx, char **text, const char *key, const char *value,
                             const char *path)
{
    char *old = *text; // own
    *text = NULL;
    osh_status rc = osh_json_edit(cx, text, old, strlen(old), (osh_json_member){key, value}, path);
    osh_free(cx, old);
    return rc;
}

/* Removes quantization_config from text_config. If `untie` is true, sets tie_word_embeddings in
 * text_config to false. If this or osh_hf_config_set_size changes anything, replaces the old
 * text_config in *text by the new one. */
static osh_status edit_text_config(osh_ctx *cx, char **text, const osh_hf_config *c, bool untie)
{
    osh_status rc = OSH_OK;
    const cJSON *inner = hf_member(c->json, "text_config");
    cJSON *copy = NULL;    // own
    char *printed = NULL;  // own
    untie &= cJSON_IsTrue(hf_member(inner, "tie_word_embeddings"));
    bool sized = inner && c->n_sizes;
    if (!hf_member(inner, "quantization_config") && !untie && !sized) goto done;
    if (!(copy = cJSON_Duplicate(inner, 1))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for config.json");
    cJSON_DeleteItemFromObjectCaseSensitive(copy, "quantization_config");
    if (untie &&
        !cJSON_ReplaceItemInObjectCaseSensitive(copy, "tie_word_embeddings", cJSON_CreateFalse()))
        OSH_FAIL(cx, OSH_E_NOMEM, "no memory for config.json");
    OSH_TRY(osh_json_print(cx, &printed, copy, 2));
    OSH_TRY(edit_again(cx, text, "text_config", printed, c->path));
done:
    cJSON_Delete(copy);
    osh_free(cx, printed);
    return rc;
}

/* Keys with which config.json can state the number of experts. */
static const char *const expert_keys[] = {"num_experts", "num_local_experts", "moe_num_experts",
                                          "n_routed_experts"};
enum { N_EXPERT_KEYS = sizeof expert_keys / sizeof *expert_keys };

osh_status osh_hf_config_set_experts(osh_ctx *cx, osh_hf_config *c, int64_t n_all, int64_t n)
{
    osh_status rc = OSH_OK;
    int n_set = 0;
    if (c->model != c->json)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: has its number of experts in text_config, want it at the top level",
                 c->path);
    for (int k = 0; k < N_EXPERT_KEYS; k++) {
        cJSON *v = cJSON_GetObjectItemCaseSensitive(c->json, expert_keys[k]);
        if (!cJSON_IsNumber(v) || v->valuedouble != (double)n_all) continue;
        cJSON_SetNumberValue(v, (double)n);
        n_set++;
    }
    if (!n_set)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: does not say that there are %lld experts: want num_experts or "
                 "num_local_experts",
                 c->path, (long long)n_all);
    c->n_experts = n;
done:
    return rc;
}

static osh_status edit_experts(osh_ctx *cx, char **text, const osh_hf_config *c)
{
    osh_status rc = OSH_OK;
    char n[24];
    snprintf(n, sizeof n, "%lld", (long long)c->n_experts);
    for (int k = 0; c->n_experts && k < N_EXPERT_KEYS; k++) {
        const cJSON *v = hf_member(c->json, expert_keys[k]);
        if (cJSON_IsNumber(v) && v->valuedouble == (double)c->n_experts)
            OSH_TRY(edit_again(cx, text, expert_keys[k], n, c->path));
    }
done:
    return rc;
}

osh_status osh_hf_config_set_size(osh_ctx *cx, osh_hf_config *c, const char *key, int64_t to)
{
    osh_status rc = OSH_OK;
    cJSON *v = cJSON_GetObjectItemCaseSensitive(c->model, key);
    int i = 0;
    if (!cJSON_IsNumber(v))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s is not a number", c->path, key);
    if (c->model != c->json && c->model != hf_member(c->json, "text_config"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: has %s in thinker_config, want it at the top level or in text_config",
                 c->path, key);
    while (i < c->n_sizes && strcmp(c->sizes[i].key, key)) i++;
    if (i == OSH_HF_SIZES)
        OSH_FAIL(cx, OSH_E_INTERNAL, "%s: more than %d changed sizes", c->path, OSH_HF_SIZES);
    if (i == c->n_sizes) c->sizes[c->n_sizes++] = (osh_hf_size){key, (int64_t)v->valuedouble, to};
    c->sizes[i].to = to;
    if (c->sizes[i].from == to) c->sizes[i] = c->sizes[--c->n_sizes];
    cJSON_SetNumberValue(v, (double)to);
done:
    return rc;
}

static osh_status edit_sizes(osh_ctx *cx, char **text, const osh_hf_config *c)
{
    osh_status rc = OSH_OK;
    char n[24];
    for (int i = 0; c->model == c->json && i < c->n_sizes; i++) {
        snprintf(n, sizeof n, "%lld", (long long)c->sizes[i].to);
        OSH_TRY(edit_again(cx, text, c->sizes[i].key, n, c->path));
    }
done:
    return rc;
}

osh_status osh_hf_config_with_quantization(osh_ctx *cx, char **out, const osh_hf_config *c,
                                           const char *quantization_json, bool untie)
{
    osh_status rc = OSH_OK;
    char *text = NULL; // own

    OSH_TRY(osh_json_edit(cx, &text, c->text, c->n_text,
                          (osh_json_member){"quantization_config",
                                            *quantization_json ? quantization_json : NULL},
                          c->path));
    OSH_TRY(edit_again(cx, &text, "compression_config", NULL, c->path));
    OSH_TRY(edit_text_config(cx, &text, c, untie));
    OSH_TRY(edit_experts(cx, &text, c));
    OSH_TRY(edit_sizes(cx, &text, c));
    if (untie) OSH_TRY(edit_again(cx, &text, "tie_word_embeddings", "false", c->path));
    *out = text, text = NULL; // give
done:
    osh_free(cx, text);
    return rc;
}
