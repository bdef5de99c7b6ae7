/* test_families.c - plans checkpoints of many families without their templates. The tensors have
 * the names and shapes that transformers writes (gen.py). A job without data must quantize no other
 * tensors than Linears and experts of transformers. Routers, tables and Conv1D modules must
 * stay dense. The table below lists the Linears of decoder blocks that stay dense. */
#include "golden/models/tiny.h"
#include "match/dense.h"
#include "plan/plan.h"
#include "torture.h"
#include "unit/dir_fixture.h"

enum { MAX_DENSE = 4 };
typedef struct family {
    const char *name;
    const char *row;              // expected text of a line of the plan: the number of dense
                                  // modules and the reason
    const char *dense[MAX_DENSE]; // Linears of decoder blocks stay dense if one of these texts is
                                  // a part of their name
    bool warned;                  // true if more than a tenth of the weights in decoder blocks
                                  // stays dense
    bool refused;                 // true if nothing is left to quantize; the message then contains
                                  // `row`
} family;

#define STACKED                                                                                    \
    "experts in one tensor; transformers does not find their codes, vLLM does (--target vllm)"
static const family families[] = {
    {"mixtral", "model.layers.*.block_sparse_moe.gate: a router",
     {0}, false, false},
    {"qwen2_moe", "model.layers.*.mlp.shared_expert_gate: a router",
     {"shared_expert_gate"}, false, false},
    {"qwen3_next", "model.layers.*.mlp.gate: a router",
     {"shared_expert_gate"}, false, false},
    {"qwen3_5_moe_text", "model.layers.*.mlp.gate: a router",
     {"shared_expert_gate"}, false, false},
    {"deepseek_v2", "model.layers.*.mlp.gate: a router",
     {0}, false, false},
    {"deepseek_v3", "model.layers.*.mlp.gate: a router",
     {0}, false, false},
    {"glm4", "lm_head: a head",
     {0}, false, false},
    {"glm4_moe", "model.layers.*.mlp.gate: a router",
     {0}, false, false},
    {"minimax", "model.layers.*.self_attn.output_gate: a gate",
     {"output_gate"}, false, false},
    {"minimax_m2", "model.layers.*.block_sparse_moe.gate: a router",
     {0}, false, false},
    {"gpt_oss", "model.layers.*.mlp.experts.gate_up_proj: " STACKED,
     {0}, true, false},
    {"llama4", "model.layers.*.feed_forward.router: a router",
     {0}, false, false},
    {"llava", "language_model.lm_head: a head",
     {0}, false, false},
    {"phimoe", "model.layers.*.block_sparse_moe.gate: a router",
     {0}, false, false},
    {"granitemoehybrid", "model.layers.*.block_sparse_moe.input_linear: " STACKED,
     {0}, true, false},
    {"jamba", "model.layers.*.mamba.dt_proj: a part of a state-space scan, which reads its weight",
     {"dt_proj", "x_proj", ".router"}, false, false},
    {"hunyuan_v1_moe", "model.layers.*.mlp.gate.wg: a router",
     {"gate.wg"}, false, false},
    {"lfm2", "model.layers.*.conv.conv: a convolution",
     {0}, false, false},
    {"opt", "model.decoder.embed_positions: a table of positions",
     {0}, false, false},
    {"gpt_neox", "embed_out: a head",
     {0}, false, false},
    {"gpt_neo", "transformer.wpe: a table of positions",
     {0}, false, false},
    {"gptj", "lm_head: a head",
     {0}, false, false},
    {"gpt2", "transformer.h.*.mlp.c_fc: a Conv1D, stored transposed",
     {0}, false, true},
    {"gpt_bigcode", "transformer.h.*.attn.c_proj: perhaps a Conv1D, stored transposed",
     {"attn.c_proj"}, false, false},
    {"openai-gpt", "transformer.h.*.mlp.c_fc: a Conv1D, stored transposed",
     {0}, false, true},
    {"falcon", "transformer.h.*.mlp.dense_4h_to_h: a FalconLinear, which reads its weight",
     {0}, false, true},
    {"phi", "lm_head: a head",
     {0}, false, false},
    {"phi3", "lm_head: a head",
     {0}, false, false},
    {"stablelm", "lm_head: a head",
     {0}, false, false},
    {"cohere", "model.embed_tokens: an embedding",
     {0}, false, false},
    {"gemma2", "model.embed_tokens: an embedding",
     {0}, false, false},
    {"gemma3_text", "model.embed_tokens: an embedding",
     {0}, false, false},
    {"gemma3n_text", "model.embed_tokens_per_layer: an embedding",
     {"altup", "laurel", "per_layer_input_gate", "per_layer_projection"}, true, false},
    {"bloom", "transformer.word_embeddings: an embedding",
     {0}, false, false},
    {"mpt", "transformer.wte: an embedding",
     {0}, false, false},
    {"mamba",
     "backbone.layers.*.mixer.x_proj: a part of a state-space scan, which reads its weight",
     {"x_proj", "dt_proj"}, true, false},
    {"mamba2", "backbone.embeddings: an embedding",
     {0}, false, false},
    {"rwkv", "rwkv.blocks.*.attention.receptance: not a name that only Linears have",
     {"receptance", "attention.output"}, true, false},
    {"t5", "decoder.block.*.layer.*.DenseReluDense.wi: not a name that only Linears have",
     {"Attention", "DenseReluDense"}, false, true},
    {"bert", "bert.embeddings.position_embeddings: a table of positions",
     {0}, false, false},
    {"distilbert", "distilbert.embeddings.position_embeddings: a table of positions",
     {0}, false, false},
};

/* True if a part of the name is a number, as for a layer, and the module is not in a vision
 * tower. */
static bool is_in_list(const char *name)
{
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t n = strspn(dot + 1, "0123456789");
        if (n && dot[1 + n] == '.') return !strstr(name, "vision");
    }
    return false;
}

/* Writes a checkpoint of the family, but with the name of an architecture without a template. */
static void write_family(osh_ctx *cx, const char *dir, const cJSON *f)
{
    tiny_case t = {.json = cJSON_CreateObject()};
    char name[128];
    cJSON *list = cJSON_AddArrayToObject(t.json, "tensors");
    cJSON_AddItemToObject(t.json, "config",
                          cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(f, "config"), 1));
    cJSON *architectures =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItem(t.json, "config"), "architectures");
    if (architectures) {
        snprintf(name, sizeof name, "Unknown%s", architectures->child->valuestring);
        cJSON_ReplaceItemInArray(architectures, 0, cJSON_CreateString(name));
    }
    for (const cJSON *e = cJSON_GetObjectItemCaseSensitive(f, "tensors")->child; e; e = e->next) {
        cJSON *row = cJSON_CreateArray(), *shape = cJSON_Duplicate(e, 1);
        // The first item of e is the class of the module. The others are the shape of the tensor.
        // The copy keeps only the shape.
        cJSON_DeleteItemFromArray(shape, 0);
        cJSON_AddItemToArray(row, cJSON_CreateString(e->string));
        cJSON_AddItemToArray(row, shape);
        cJSON_AddItemToArray(list, row);
    }
    tiny_write(cx, &t, dir, OSH_BF16);
    tiny_close(&t);
}

static bool is_quantized(const osh_plan *p, const char *tensor)
{
    for (int i = 0; i < p->match.n_linears; i++)
        if (!strcmp(p->in.ck->tensors[p->match.linears[i].tensor].e->name, tensor)) return true;
    return false;
}

static void check_tensor(const family *f, const osh_plan *p, const cJSON *e)
{
    const char *cls = e->child->valuestring;
    bool weight = cJSON_GetArraySize(e) == 3 && tiny_ends(e->string, ".weight");
    bool linear = weight && (!strcmp(cls, "Linear") || tiny_ends(cls, "Experts"));
    bool known = false;
    if (is_quantized(p, e->string)) {
        if (!linear || strstr(e->string, "shared_expert_gate") || strstr(e->string, "router"))
            fail_msg("%s: %s is quantized and is a %s", f->name, e->string, cls);
        return;
    }
    for (int i = 0; i < MAX_DENSE && f->dense[i]; i++)
        known |= strstr(e->string, f->dense[i]) != NULL;
    if (linear && is_in_list(e->string) && !known)
        fail_msg("%s: %s is a %s and stays dense", f->name, e->string, cls);
}

/* Checks the lines of the plan about dense modules. If there are many dense modules, the last line
 * must be a warning. */
static void check_lines(osh_ctx *cx, const family *f, const osh_plan *p)
{
    bool found = f->row == NULL;
    osh_buf b;
    osh_buf_init(&b, 0);
    for (int64_t i = 0; i < p->match.n_dense; i++) {
        osh_buf_clear(&b);
        assert_ok(cx,
                  osh_buf_printf(cx, &b, "%s: %s", p->match.dense[i].names, p->match.dense[i].why));
        found |= f->row && !strcmp(b.data, f->row);
    }
    if (!found) fail_msg("%s: no line '%s'", f->name, f->row);
    osh_buf_clear(&b);
    assert_ok(cx, osh_dense_warning(cx, &b, &p->match));
    if ((b.len > 0) != f->warned)
        fail_msg("%s: %.3f of its blocks stay dense", f->name, p->match.dense_share);
    osh_buf_deinit(cx, &b);
}

static void check_family(fixture *x, const cJSON *all, const family *f)
{
    osh_options opt = {0}; // own
    osh_plan *p = NULL;    // own
    const cJSON *json = cJSON_GetObjectItemCaseSensitive(all, f->name);
    assert_non_null(json);
    write_family(x->cx, x->dir, json);
    assert_ok(x->cx, osh_fields_default(x->cx, osh_option_fields, &opt));
    assert_ok(x->cx, osh_option_set(x->cx, &opt, "model", x->dir));
    assert_ok(x->cx, osh_option_set(x->cx, &opt, "scheme", "FP8_DYNAMIC"));
    if (f->refused) {
        assert_fails(x->cx, OSH_E_USAGE, osh_plan_new(x->cx, &p, &opt), f->row);
    } else {
        assert_ok(x->cx, osh_plan_new(x->cx, &p, &opt));
        for (const cJSON *e = cJSON_GetObjectItemCaseSensitive(json, "tensors")->child; e;
             e = e->next)
            check_tensor(f, p, e);
        check_lines(x->cx, f, p);
    }
    osh_plan_free(x->cx, p);
    osh_fields_deinit(x->cx, osh_option_fields, &opt);
}

static void only_linears_are_quantized(void **state)
{
    fixture *x = *state;
    cJSON *all = NULL; // own
    assert_ok(x->cx,
              osh_json_read(x->cx, &all, OSH_SOURCE_DIR "/tests/golden/families/families.json",
                            1 << 20, 0));
    assert_int_equal(cJSON_GetArraySize(all), sizeof families / sizeof *families);
    osh_log_setup(x->cx, OSH_LOG_ERROR, OSH_PROGRESS_NONE);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        check_family(x, all, &families[i]);
    cJSON_Delete(all);
}

/* Pruning Llama 4's experts without quantization must be refused, because transformers expects all
 * experts in one tensor. */
static void experts_apart_want_codes(void **state)
{
    fixture *x = *state;
    cJSON *all = NULL;     // own
    osh_options opt = {0}; // own
    osh_plan *p = NULL;
    char recipe[128];
    assert_ok(x->cx,
              osh_json_read(x->cx, &all, OSH_SOURCE_DIR "/tests/golden/families/families.json",
                            1 << 20, 0));
    write_family(x->cx, x->dir, cJSON_GetObjectItemCaseSensitive(all, "llama4"));
    put_text(x, "recipe.yaml",
             "quant_stage:\n  quant_modifiers:\n    MagnitudePruningModifier: {init_sparsity: 0.0, "
             "final_sparsity: 0.5, targets: ['re:.*proj']}\n");
    snprintf(recipe, sizeof recipe, "%s/recipe.yaml", x->dir);
    assert_ok(x->cx, osh_fields_default(x->cx, osh_option_fields, &opt));
    assert_ok(x->cx, osh_option_set(x->cx, &opt, "model", x->dir));
    assert_ok(x->cx, osh_option_set(x->cx, &opt, "recipe", recipe));
    assert_fails(x->cx, OSH_E_UNSUPPORTED, osh_plan_new(x->cx, &p, &opt),
                 "want a recipe that quantizes");
    osh_fields_deinit(x->cx, osh_option_fields, &opt);
    cJSON_Delete(all);
}

/* The LoRA weights of Phi-4-multimodal must stay dense, with and without data, because they are not
 * Linears of the model. */
static void adapters_stay_dense(void **state)
{
    fixture *x = *state;
    osh_options opt = {0}; // own
    osh_plan *p = NULL;    // own
    tiny_case t;
    int n_adapters = 0;
    tiny_dir = OSH_SOURCE_DIR "/tests/golden/families/logits";
    tiny_open(x->cx, &t, "phi4mm");
    tiny_write(x->cx, &t, x->dir, OSH_BF16);
    assert_ok(x->cx, osh_fields_default(x->cx, osh_option_fields, &opt));
    assert_ok(x->cx, osh_option_set(x->cx, &opt, "model", x->dir));
    assert_ok(x->cx, osh_option_set(x->cx, &opt, "scheme", "FP8_DYNAMIC"));
    assert_ok(x->cx, osh_plan_new(x->cx, &p, &opt));
    assert_int_equal(p->match.n_linears, 8);
    for (int64_t i = 0; i < p->in.ck->n_tensors; i++) {
        const char *name = p->in.ck->tensors[i].e->name;
        n_adapters += strstr(name, ".lora_") != NULL;
        assert_int_equal(is_quantized(p, name), tiny_ends(name, ".base_layer.weight"));
    }
    assert_int_equal(n_adapters, 32);
    osh_plan_free(x->cx, p);
    osh_fields_deinit(x->cx, osh_option_fields, &opt);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_linears_are_quantized, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(experts_apart_want_codes, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(adapters_stay_dense, setup_dir, teardown_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
