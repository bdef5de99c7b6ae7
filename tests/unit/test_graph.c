/* test_graph.c - tests graphs from templates and config.json: names, values, attributes, and
 * errors. */
#include "golden/models/tiny.h"
#include "graph/exec.h"
#include "graph/models.h"
#include "graph/template.h"
#include "io/model_types.h"
#include "plain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct fixture {
    osh_ctx *cx;
    tiny_case t;
    osh_checkpoint *ck;
    osh_graph *g;
    char dir[32];
} fixture;

static void open_case(fixture *f, const char *name)
{
    memset(f, 0, sizeof *f);
    assert_int_equal(osh_ctx_new(&f->cx, 1), OSH_OK);
    snprintf(f->dir, sizeof f->dir, "graph-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    tiny_open(f->cx, &f->t, name);
}

static osh_status graph_build(fixture *f)
{
    tiny_write(f->cx, &f->t, f->dir, OSH_F32);
    tiny_check(f->cx, osh_checkpoint_open(f->cx, &f->ck, f->dir));
    return osh_graph_new(f->cx, &f->g, f->ck, NULL);
}

static void close_case(fixture *f)
{
    osh_graph_free(f->cx, f->g);
    osh_checkpoint_close(f->cx, f->ck);
    tiny_check(f->cx, osh_dir_remove(f->cx, f->dir));
    tiny_close(&f->t);
    assert_int_equal(osh_mem_live(f->cx), 0);
    osh_ctx_free(f->cx);
}

static cJSON *config_of(fixture *f)
{
    return cJSON_GetObjectItemCaseSensitive(f->t.json, "config");
}

static void set_config(fixture *f, const char *key, cJSON *value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(config_of(f), key);
    if (value) cJSON_AddItemToObject(config_of(f), key, value);
}

static const osh_node *node_of(const osh_graph *g, const char *module)
{
    int m = osh_graph_module(g, module);
    assert_true(m >= 0);
    assert_true(g->modules[m].node >= 0);
    return &g->nodes[g->modules[m].node];
}

/* ---- valid models ---- */

static void modules_and_values(void **state)
{
    fixture f;
    open_case(&f, "llama_default");
    tiny_check(f.cx, graph_build(&f));
    const osh_graph *g = f.g;
    int q = osh_graph_module(g, "model.layers.1.self_attn.q_proj");
    int attn = osh_graph_module(g, "model.layers.1.self_attn");
    assert_string_equal(g->modules[q].cls, "Linear");
    assert_int_equal(g->modules[q].parent, attn);
    assert_string_equal(g->modules[attn].cls, "LlamaAttention");
    assert_int_equal(g->modules[attn].node, -1);
    assert_string_equal(g->modules[g->modules[attn].parent].name, "model.layers.1");
    assert_int_equal(osh_graph_module(g, "model.layers.2"), -1);
    assert_string_equal(g->layer_class, "LlamaDecoderLayer");

    /* q, k and v read one value and are neighbours */
    int first = g->modules[q].node;
    const osh_node *n = &g->nodes[first];
    assert_int_equal(n[0].in[0], n[1].in[0]);
    assert_int_equal(n[0].in[0], n[2].in[0]);
    assert_int_equal(g->values[n->in[0]].first_use, first);
    assert_int_equal(g->values[n->in[0]].last_use, first + 2);
    assert_string_equal(g->values[n->in[0]].name, "model.layers.1.a");
    assert_string_equal(g->weights[n->w[0]].name, "model.layers.1.self_attn.q_proj.weight");
    assert_int_equal(n->w[1], -1);

    assert_int_equal(g->n_layers, 2);
    assert_int_equal(g->n_vocab, 48);
    assert_int_equal(g->max_positions, 128);
    assert_int_equal(g->dtype, OSH_F32);
    assert_int_equal(g->values[g->input_ids].dtype, OSH_I32);
    assert_int_equal(g->values[g->hidden].width, 32);
    assert_ptr_equal(node_of(g, "lm_head"), &g->nodes[g->head]);
    assert_int_equal(g->n_nodes, 1 + 2 * 15 + 2);
    assert_int_equal(g->n_weights, 1 + 2 * 9 + 2);
    close_case(&f);
}

/* The first model has six experts in two of its three layers, and an MLP in the third. The second
 * model has 40 experts in every second layer. */
static void experts_of_sparse_layers(void **state)
{
    fixture f;
    open_case(&f, "qwen3_moe");
    tiny_check(f.cx, graph_build(&f));
    int e = osh_graph_module(f.g, "model.layers.2.mlp.experts.5"), down;
    assert_string_equal(f.g->modules[e].cls, "ExpertMLPWithGate");
    assert_string_equal(f.g->modules[f.g->modules[e].parent].name, "model.layers.2.mlp.experts");
    assert_string_equal(f.g->modules[osh_graph_module(f.g, "model.layers.2.mlp")].cls,
                        "Qwen3MoeSparseMoeBlock");
    assert_string_equal(f.g->modules[osh_graph_module(f.g, "model.layers.1.mlp")].cls,
                        "Qwen3MoeMLP");
    assert_int_equal(osh_graph_module(f.g, "model.layers.1.mlp.experts"), -1);
    assert_int_equal(osh_graph_module(f.g, "model.layers.2.mlp.experts.6"), -1);
    down = f.g->modules[osh_graph_module(f.g, "model.layers.2.mlp.experts.5.down_proj")].node;
    assert_string_equal(f.g->values[f.g->nodes[down].out[0]].name,
                        "model.layers.2.mlp.experts.5.y");
    assert_string_equal(f.g->nodes[down + 1].op->name, "moe_combine");
    assert_int_equal(((osh_moe_combine_attr *)f.g->nodes[down + 1].attr)->expert, 5);
    assert_int_equal(node_of(f.g, "model.layers.2.mlp.experts.0.up_proj")->in[0],
                     node_of(f.g, "model.layers.2.mlp.gate")->in[0]);
    const osh_node *router = node_of(f.g, "model.layers.0.mlp.gate") + 1;
    const osh_moe_router_attr *at = router->attr;
    assert_string_equal(router->op->name, "moe_router");
    assert_true(at->top_k == 2 && at->norm_topk_prob);
    close_case(&f);
    open_case(&f, "qwen3_moe_step");
    tiny_check(f.cx, graph_build(&f));
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.39", i);
        assert_int_equal(osh_graph_module(f.g, name) >= 0, i % 2);
    }
    close_case(&f);
}

static void tied_head_is_one_weight(void **state)
{
    fixture f;
    open_case(&f, "llama_tied");
    tiny_check(f.cx, graph_build(&f));
    assert_int_equal(f.g->nodes[f.g->head].w[0], node_of(f.g, "model.embed_tokens")->w[0]);
    assert_string_equal(f.g->weights[f.g->nodes[f.g->head].w[0]].name, "model.embed_tokens.weight");
    close_case(&f);
}

static void windows_per_layer(void **state)
{
    static const struct {
        const char *name;
        int64_t window[3];
    } rows[] = {
        {"mistral_window", {16, 16}},  {"mistral_no_window", {0, 0}},     {"qwen2", {0, 0}},
        {"qwen2_window", {0, 16, 16}}, {"qwen3_layer_types", {0, 16, 0}}, {"llama_default", {0, 0}},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        fixture f;
        int layer = 0;
        open_case(&f, rows[r].name);
        tiny_check(f.cx, graph_build(&f));
        for (int i = 0; i < f.g->n_nodes; i++) {
            if (strcmp(f.g->nodes[i].op->name, "attention") != 0) continue;
            const osh_attention_attr *a = f.g->nodes[i].attr;
            assert_int_equal(a->sliding_window, rows[r].window[layer++]);
        }
        assert_int_equal(layer, f.g->n_layers);
        close_case(&f);
    }
}

static void defaults_of_the_classes(void **state)
{
    fixture f;
    open_case(&f, "llama_default");
    // the default of head_dim is hidden_size / num_attention_heads
    set_config(&f, "head_dim", cJSON_CreateNull());
    set_config(&f, "rms_norm_eps", NULL);            // the default of rms_norm_eps is 1e-6
    set_config(&f, "max_position_embeddings", NULL); // the default of max_position_embeddings is
                                                     // 2048
    set_config(&f, "hidden_act", NULL);
    tiny_check(f.cx, graph_build(&f));
    const osh_rms_norm_attr *norm = node_of(f.g, "model.norm")->attr;
    assert_true(norm->eps == 1e-6);
    assert_int_equal(f.g->max_positions, 2048);
    close_case(&f);
}

static void dynamic_rope_lengthens(void **state)
{
    fixture f;
    open_case(&f, "llama_dynamic");
    tiny_check(f.cx, graph_build(&f));
    assert_int_equal(f.g->max_positions, 4 * 32);
    close_case(&f);
}

static void dot_names_parts(void **state)
{
    fixture f;
    char *dot = NULL;
    osh_partition *p = NULL;
    open_case(&f, "llama_default");
    tiny_check(f.cx, graph_build(&f));
    tiny_check(f.cx, osh_partition_new(f.cx, &p, f.g, NULL, 0, 1));
    tiny_check(f.cx, osh_graph_dot(f.cx, &dot, f.g, p));
    assert_non_null(strstr(dot, "cluster_2"));
    assert_non_null(strstr(dot, "2: model.layers.1"));
    assert_non_null(strstr(dot, "lm_head\\nlinear"));
    osh_free(f.cx, dot);
    tiny_check(f.cx, osh_graph_dot(f.cx, &dot, f.g, NULL));
    assert_null(strstr(dot, "cluster"));
    osh_free(f.cx, dot);
    osh_partition_free(f.cx, p);
    close_case(&f);
}

/* ---- refusals ---- */

typedef struct bad_row {
    const char *model, *key, *value; // value: JSON text; NULL: the key is removed
    osh_status rc;
    const char *says;
} bad_row;

static void bad_configs(void **state)
{
    static const bad_row rows[] = {
        {"llama_default", "architectures", "[\"GPT9ForCausalLM\"]", OSH_E_UNSUPPORTED,
         "oneshot help models"},
        {"llama_default", "architectures", "[]", OSH_E_UNSUPPORTED, "no architecture"},
        {"llama_default", "hidden_act", "\"relu6\"", OSH_E_UNSUPPORTED, "relu6"},
        {"llama_default", "hidden_act", "3", OSH_E_FORMAT, "hidden_act"},
        {"llama_default", "hidden_size", NULL, OSH_E_FORMAT, "hidden_size is missing"},
        {"llama_default", "hidden_size", "null", OSH_E_FORMAT, "hidden_size is null"},
        {"llama_default", "hidden_size", "\"32\"", OSH_E_FORMAT, "hidden_size is not a number"},
        {"llama_default", "hidden_size", "32.5", OSH_E_FORMAT, "whole number"},
        {"llama_default", "hidden_size", "64", OSH_E_FORMAT, "tensor model.embed_tokens.weight"},
        {"llama_default", "vocab_size", "49", OSH_E_FORMAT, "wants [49, 32]"},
        {"llama_default", "num_hidden_layers", "3", OSH_E_FORMAT,
         "model.layers.2.input_layernorm.weight is missing"},
        {"llama_default", "num_hidden_layers", "0", OSH_E_FORMAT, "num_hidden_layers"},
        {"llama_default", "num_hidden_layers", "1000000", OSH_E_FORMAT, "65536 at most"},
        {"llama_default", "num_hidden_layers", "1e30", OSH_E_FORMAT, "num_hidden_layers"},
        {"llama_default", "num_key_value_heads", "3", OSH_E_FORMAT, "k_proj.weight"},
        {"llama_default", "num_attention_heads", "0", OSH_E_FORMAT, ""},
        {"llama_default", "attention_bias", "true", OSH_E_FORMAT, "q_proj.bias is missing"},
        {"llama_default", "max_position_embeddings", "0", OSH_E_FORMAT, "max_position_embeddings"},
        {"llama_default", "rope_parameters", "{\"rope_type\": \"spiral\", \"rope_theta\": 1e4}",
         OSH_E_UNSUPPORTED, "spiral"},
        {"llama_default", "rope_parameters", "{\"rope_type\": \"yarn\", \"rope_theta\": 1e4}",
         OSH_E_UNSUPPORTED, "factor"},
        {"qwen3_layer_types", "layer_types", "[\"full_attention\"]", OSH_E_UNSUPPORTED,
         "layer_types[1]"},
        {"qwen3_layer_types", "layer_types",
         "[\"chunked_attention\", \"full_attention\", \"full_attention\"]", OSH_E_UNSUPPORTED,
         "chunked_attention"},
        {"qwen3_moe", "num_experts", "7", OSH_E_FORMAT, "wants [7, 32]"},
        {"qwen3_moe", "num_experts", "5000", OSH_E_FORMAT, "mlp.gate.weight"},
        {"qwen3_moe", "num_experts_per_tok", "7", OSH_E_UNSUPPORTED, "7 of 6 experts"},
        {"qwen3_moe", "num_experts_per_tok", "0", OSH_E_FORMAT, "top_k"},
        {"qwen3_moe", "moe_intermediate_size", "25", OSH_E_FORMAT, "experts.0.gate_proj.weight"},
        {"qwen3_moe", "decoder_sparse_step", "0", OSH_E_FORMAT, "decoder_sparse_step"},
        {"qwen3_moe", "mlp_only_layers", "1", OSH_E_FORMAT, "mlp_only_layers is not a list"},
        {"qwen3_moe", "mlp_only_layers", "[\"1\"]", OSH_E_FORMAT,
         "mlp_only_layers has an item that is not a number"},
        {"glm4_moe", "n_group", "4", OSH_E_UNSUPPORTED, "2 of 6 experts, in 1 of 4 groups"},
        {"glm4_moe", "num_experts_per_tok", "4", OSH_E_UNSUPPORTED,
         "4 of 6 experts, in 1 of 2 groups"},
        {"glm4_moe", "first_k_dense_replace", "0", OSH_E_FORMAT,
         "model.layers.0.mlp.gate.weight is missing"},
        {"deepseek_v3", "q_lora_rank", "null", OSH_E_FORMAT, "q_proj.weight is missing"},
        {"llava", "text_config", "{\"model_type\": \"bert\"}", OSH_E_UNSUPPORTED,
         "no template serves"},
        {"llava", "text_config", "{\"model_type\": \"llama\"}", OSH_E_FORMAT,
         "wants [32000, 4096]"},
        {"qwen3_moe", "mlp_only_layers", "[]", OSH_E_FORMAT,
         "model.layers.1.mlp.gate.weight is missing"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        fixture f;
        open_case(&f, rows[r].model);
        set_config(&f, rows[r].key, rows[r].value ? cJSON_Parse(rows[r].value) : NULL);
        osh_status rc = graph_build(&f);
        if (rc != rows[r].rc || !strstr(osh_error_text(f.cx), rows[r].says))
            fail_msg("%s = %s: status %d, %s", rows[r].key, rows[r].value, rc,
                     osh_error_text(f.cx));
        close_case(&f);
    }
}

static cJSON *tensor_row(fixture *f, const char *name)
{
    cJSON *row;
    cJSON_ArrayForEach(
        row, cJSON_GetObjectItemCaseSensitive(
                 f->t.json, "tensors")) if (strcmp(cJSON_GetArrayItem(row, 0)->valuestring, name) ==
                                            0) return row;
    fail_msg("no tensor %s", name);
    return NULL;
}

static void missing_and_misshapen_tensors(void **state)
{
    fixture f;
    open_case(&f, "llama_default");
    cJSON_SetValuestring(cJSON_GetArrayItem(tensor_row(&f, "model.layers.1.mlp.up_proj.weight"), 0),
                         "x");
    assert_int_equal(graph_build(&f), OSH_E_FORMAT);
    assert_non_null(strstr(osh_error_text(f.cx), "model.layers.1.mlp.up_proj.weight is missing"));
    close_case(&f);

    open_case(&f, "llama_default");
    cJSON *shape = cJSON_GetArrayItem(tensor_row(&f, "model.layers.0.mlp.down_proj.weight"), 1);
    cJSON_SetNumberValue(cJSON_GetArrayItem(shape, 0), 31);
    assert_int_equal(graph_build(&f), OSH_E_FORMAT);
    assert_non_null(strstr(osh_error_text(f.cx), "[31, 56"));
    close_case(&f);

    // without lm_head.weight the graph has no head, and jobs that need logits report an error
    open_case(&f, "llama_default");
    cJSON_SetValuestring(cJSON_GetArrayItem(tensor_row(&f, "lm_head.weight"), 0), "x");
    tiny_check(f.cx, graph_build(&f));
    assert_true(f.g->headless);
    assert_int_equal(osh_graph_need_head(f.cx, f.g, f.ck, "logits"), OSH_E_UNSUPPORTED);
    assert_non_null(strstr(osh_error_text(f.cx), "has no lm_head.weight"));
    close_case(&f);

    open_case(&f, "llama_default"); // without the key tie_word_embeddings, a missing head means
                                    // that the head is tied
    cJSON_SetValuestring(cJSON_GetArrayItem(tensor_row(&f, "lm_head.weight"), 0), "x");
    set_config(&f, "tie_word_embeddings", NULL);
    tiny_check(f.cx, graph_build(&f));
    close_case(&f);
}

static void integers_are_no_weights(void **state)
{
    fixture f;
    char path[64], *text = NULL, *at;
    size_t n = 0;
    open_case(&f, "llama_default");
    tiny_write(f.cx, &f.t, f.dir, OSH_F32);
    snprintf(path, sizeof path, "%s/model.safetensors", f.dir);
    tiny_check(f.cx, osh_file_read_all(f.cx, &text, &n, path, 1 << 24));
    at = memmem(text, n, "\"F32\"", 5);
    assert_non_null(at);
    at[1] = 'I';
    tiny_check(f.cx, osh_file_write_all(f.cx, path, text, n));
    osh_free(f.cx, text);
    tiny_check(f.cx, osh_checkpoint_open(f.cx, &f.ck, f.dir));
    assert_int_equal(osh_graph_new(f.cx, &f.g, f.ck, NULL), OSH_E_FORMAT);
    assert_non_null(strstr(osh_error_text(f.cx), "is I32, want BF16, F16 or F32"));
    close_case(&f);
}

/* ---- templates ---- */

static void broken_templates(void **state)
{
    static const struct {
        const char *from, *to, *says;
    } rows[] = {
        {"\"op\": \"glu\"", "\"op\": \"blu\"", "no op blu"},
        {"[\"gate\", \"up\"]", "[\"gate\", \"down\"]", "input 1"},
        {"[\"gate\", \"up\"]", "[\"gate\"]", "wants 2 inputs"},
        {"[\"F\", \"D\"]", "[\"F\", \"E\"]", "E is missing"},
        {"[\"F\", \"D\"]", "[\"F\", \"F\"]", "dims differ from the dims"},
        {"[\"F\", \"D\"]", "[\"F\", \"D%1\"]", "is not a sum of products"},
        {"[\"F\", \"D\"]", "[\"F\", \"sqrt(D\"]", "does not begin with a name, a number, or sqrt"},
        {"[\"F\", \"D\"]", "[\"F\", \"ceil(D+\"]", "does not begin with a name, a number, or sqrt"},
        {"[\"F\", \"D\"]", "[\"F\", \"D+\"]", "does not begin with a name, a number, or sqrt"},
        {"[\"F\", \"D\"]", "[\"F\", \"D-D\"]", "whole number of at least 1"},
        {"\"head\":", "\"logits\": {\"cap\": \"D-D-D\"}, \"head\":", "capped at -"},
        {"\"head\":", "\"flags\": {\"F\": {\"every\": 2}}, \"head\":", "a flag without \"list\""},
        {"\"F\": \"intermediate_size\"", "\"F\": {\"layers\": \"x\"}", "are not words"},
        {"\"head\":", "\"flags\": {\"F\": {\"period\": \"D/3\", \"offset\": 0}}, \"head\":",
         "want a whole number from 1"},
        {"\"head\":", "\"flags\": {\"F\": {\"period\": \"F\", \"offset\": 0}}, \"head\":",
         "defined by itself"},
        {"\"head\":",
         "\"flags\": {\"F\": {\"list\": \"x\", \"pattern\": \"hidden_act\", \"letter\": \"M\"}}, "
         "\"head\":", "whole number of at least 1"},
        {"\"F\": \"intermediate_size\"", "\"F\": {\"items\": \"hidden_act\"}", "is not a list"},
        {"\"head\":", "\"flags\": {\"F\": {\"list\": \"architectures\"}}, \"head\":",
         "architectures[0] is not a number"},
        {"\"F\": \"intermediate_size\"",
         "\"F\": {\"list\": \"architectures\", \"at\": 0, \"else\": 1}",
         "architectures[0] is not a number"},
        {"\"F\": \"intermediate_size\"", "\"F\": {\"list\": \"x\", \"at\": 0}",
         "want a number or an expression"},
        {"\"head\":", "\"flags\": {\"F\": {\"list\": \"x\", \"every\": \"D/3\"}}, \"head\":",
         "want a whole number from 1"},
        {"[\"F\", \"D\"]", "[\"F\", \"D/3\"]", "whole number"},
        {"\"F\": \"intermediate_size\"", "\"F\": \"F\"", "defined by itself"},
        {"{\"eps\": \"rms_norm_eps\"}", "{\"epsilon\": \"rms_norm_eps\"}", "no attribute epsilon"},
        {"model.layers.{i}", "model.layers", "{i}"},
        /* f is a value inside of a layer, so a node after the layers cannot read it */
        {"\"in\": [\"n\"]", "\"in\": [\"f\"]", "input 0"},
        {"\"head\": \"lm_head\"", "\"head\": \"model.norm\"", "names no linear"},
        {"\"name\": \"mlp.up_proj\"", "\"name\": \"mlp.gate_proj\"", "twice"},
        {"{\"of\": \"mlp\"", "{\"of\": \"mpl\"", "a module of that name"},
        {"\"name\": \"mlp.up_proj\"", "\"name\": \"mlp.{up_proj\"", "no } in \"mlp.{up_proj\""},
        {"\"name\": \"mlp.up_proj\"", "\"name\": \"mlp.{}\"", "does not begin with a name"},
        {"\"name\": \"mlp.up_proj\"", "\"name\": \"mlp.{E}\"", "E is missing"},
        {"\"F\": \"intermediate_size\"",
         "\"F\": {\"find\": \"architectures\", \"is\": \"x\", \"number\": 0}",
         "architectures has only 0 words of this kind, want more than 0"},
        {"\"architectures\"", "\"architects\"", "architectures"},
    };
    const osh_embedded_model *m = NULL;
    for (size_t i = 0; i < osh_n_embedded_models; i++)
        if (strcmp(osh_embedded_models[i].name, "llama") == 0) m = &osh_embedded_models[i];
    assert_non_null(m);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        fixture f;
        char path[64], text[8192];
        open_case(&f, "llama_default");
        tiny_write(f.cx, &f.t, f.dir, OSH_F32);
        tiny_check(f.cx, osh_checkpoint_open(f.cx, &f.ck, f.dir));
        const char *at = memmem(m->text, m->n, rows[r].from, strlen(rows[r].from));
        assert_non_null(at);
        int before = (int)(at - m->text), skip = before + (int)strlen(rows[r].from);
        snprintf(text, sizeof text, "%.*s%s%.*s", before, m->text, rows[r].to, (int)m->n - skip,
                 m->text + skip);
        snprintf(path, sizeof path, "%s/mine", f.dir);
        tiny_check(f.cx, osh_dir_make(f.cx, path));
        snprintf(path, sizeof path, "%s/mine/llama.json", f.dir);
        tiny_check(f.cx, osh_file_write_all(f.cx, path, text, strlen(text)));
        snprintf(path, sizeof path, "%s/mine", f.dir);
        /* files have precedence over embedded templates */
        osh_status rc = osh_graph_new(f.cx, &f.g, f.ck, path);
        if (rc != OSH_E_FORMAT || !strstr(osh_error_text(f.cx), rows[r].says))
            fail_msg("%s: status %d, %s", rows[r].to, rc, osh_error_text(f.cx));
        close_case(&f);
    }
}

/* Tests templates with the key "extends". `says` of a row is a part of the expected error. If
 * `says` is NULL, the graph must have `n_nodes` nodes more than the graph of Llama. */
static void extended_templates(void **state)
{
#define EXTENDS(rest) "{\"architectures\": [\"LlamaForCausalLM\"], \"extends\": " rest "}"
    static const struct {
        const char *text, *says;
        int n_nodes;
    } rows[] = {
        {EXTENDS("\"MistralForCausalLM\", \"window\": null"), NULL, 0},
        {EXTENDS("\"MistralForCausalLM\", \"entries\": {\"self_attn.o_proj\": ["
                 "{\"of\": \"self_attn\", \"op\": \"clamp\", \"in\": [\"c\"], \"out\": \"c\", "
                 "\"attr\": {\"limit\": 3}}, {\"name\": \"self_attn.o_proj\", \"class\": "
                 "\"Linear\", \"op\": \"linear\", \"in\": [\"c\"], \"out\": \"o\", \"weight\": "
                 "[\"D\", \"H*Dh\"]}]}"),
         NULL, 1},
        {EXTENDS("\"MistralForCausalLM\", \"entries\": {\"rope kr\": null, \"attention c\": "
                 "{\"in\": [\"qr\", \"k\", \"v\"]}}"),
         NULL, -1},
        {EXTENDS("\"MistralForCausalLM\", \"renames\": [[\"mlp\", \"ffn\"], [\"gate_proj\", "
                 "\"w1\"]]"),
         "tensor model.layers.0.ffn.w1.weight is missing", 0},
        {EXTENDS("\"MistralForCausalLM\", \"renames\": [[\"mlp\", \"\"]]"),
         "tensor model.layers.0.gate_proj.weight is missing", 0},
        {EXTENDS("\"MistralForCausalLM\", \"defaults\": {\"rms_norm_eps\": null}, \"entries\": "
                 "{\"input_layernorm\": {\"attr\": {\"eps\": \"epsilon\"}}}"),
         "epsilon is missing", 0},
        {EXTENDS("\"MistralForCausalLM\", \"entries\": {\"rope k\": null}"),
         "the template that it extends has no entry 'rope k'", 0},
        {EXTENDS("\"MistralForCausalLM\", \"entries\": [{}]"), "\"entries\" is not an object", 0},
        {EXTENDS("\"MistralForCausalLM\", \"renames\": [[\"\", \"x\"]]"), NULL, 0},
        {EXTENDS("\"MistralForCausalLM\", \"entries\": {\"lm_head\": 1}"),
         "entries.lm_head is not an object, a list or null", 0},
        {EXTENDS("\"LlamaForCausalLM\""), "more than 16 templates extend each other", 0},
        {EXTENDS("\"TinyForCausalLM\""), "no template has the architecture TinyForCausalLM", 0},
        {EXTENDS("7"), "\"extends\" is not the name of an architecture", 0},
    };
#undef EXTENDS
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        fixture f;
        char path[64];
        open_case(&f, "llama_default");
        tiny_write(f.cx, &f.t, f.dir, OSH_F32);
        tiny_check(f.cx, osh_checkpoint_open(f.cx, &f.ck, f.dir));
        tiny_check(f.cx, osh_graph_new(f.cx, &f.g, f.ck, NULL));
        int want = f.g->n_nodes + rows[r].n_nodes * (int)f.g->n_layers;
        osh_graph_free(f.cx, f.g), f.g = NULL;
        snprintf(path, sizeof path, "%s/mine", f.dir);
        tiny_check(f.cx, osh_dir_make(f.cx, path));
        snprintf(path, sizeof path, "%s/mine/tiny.json", f.dir);
        tiny_check(f.cx, osh_file_write_all(f.cx, path, rows[r].text, strlen(rows[r].text)));
        snprintf(path, sizeof path, "%s/mine", f.dir);
        osh_status rc = osh_graph_new(f.cx, &f.g, f.ck, path);
        if (rows[r].says ? rc != OSH_E_FORMAT || !strstr(osh_error_text(f.cx), rows[r].says)
                         : rc || f.g->n_nodes != want)
            fail_msg("row %d: status %d, %s", (int)r, rc, osh_error_text(f.cx));
        close_case(&f);
    }
}

/* A template that extends another template may have "renames". The renames must also apply to names
 * in lists. */
static void renamed_lists(void **state)
{
    static const char text[] =
        "{\"architectures\": [\"TinyForCausalLM\"], \"extends\": \"OlmoHybridForCausalLM\","
        " \"renames\": [[\"feedforward_layer_norm\", \"ffn_norm\"]]}";
    fixture f;
    osh_template *t = NULL;
    char *all = NULL;
    (void)state;
    open_case(&f, "llama_default");
    tiny_check(f.cx, osh_template_parse(f.cx, &t, "tiny.json", text, sizeof text - 1));
    tiny_check(f.cx, osh_template_complete(f.cx, t, NULL));
    tiny_check(f.cx, osh_json_print(f.cx, &all, t->json, 0));
    assert_non_null(strstr(all, "\"ffn_norm\""));
    assert_null(strstr(all, "feedforward_layer_norm"));
    osh_free(f.cx, all);
    osh_template_free(f.cx, t);
    close_case(&f);
}

/* A file of models_dir has facts about a model_type for the reader of config.json: the defaults and
 * the names of keys. */
static void types_of_a_directory(void **state)
{
    static const char start[] = "{\"architectures\": [\"LlamaForCausalLM\"], "
                                "\"extends\": \"MistralForCausalLM\", \"window\": null, "
                                "\"model_types\": {\"llama\": ";
    static const struct {
        const char *record, *says;
        double theta;
    } rows[] = {
        {"{\"rope_theta\": 77}", NULL, 77},
        {"{\"keys\": {\"rope_theta\": \"vocab_size\"}}", NULL, 0},
        {"{\"keys\": {\"rope_theta\": 1}}", "model_types.llama.keys to be an object of texts", 0},
        {"{\"tied\": 1}", "model_types.llama.tied to be true or false", 0},
        {"{\"rope_theta\": 0}", "model_types.llama.rope_theta to be a number above 0", 0},
        {"{\"towers\": {\"a\": 1}}", "towers to be an object of lists of texts", 0},
        {"{\"head\": []}", "model_types.llama.head to be a text", 0},
        {"{\"dense_entries\": [1]}", "dense_entries to be a list of texts", 0},
        {"{\"thea\": 1}", "model_types.llama.thea to be absent", 0},
        {"{\"doubt\": 1}", "model_types.llama.doubt to be a text", 0},
        {"{\"rope_theta\": 7, \"fusions\": [{\"parts\": [\"b\"], \"enough\": 1}]}", NULL, 7},
        {"{\"fusions\": {}}", "model_types.llama.fusions to be a list of objects", 0},
        {"{\"fusions\": [{\"parts\": []}]}", "llama.fusions to be a list of objects", 0},
        {"{\"fusions\": [{\"parts\": [\"b\"], \"enough\": 2}]}", "llama.fusions to be", 0},
        {"{\"fusions\": [{\"parts\": [\"b\"], \"im\": \"c\"}]}", "llama.fusions to be", 0},
        {"[]", "model_types.llama is not an object", 0},
    };
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        fixture f;
        char path[64], text[512];
        osh_hf_config c = {0};
        open_case(&f, "llama_default");
        set_config(&f, "rope_parameters", NULL);
        tiny_write(f.cx, &f.t, f.dir, OSH_F32);
        tiny_check(f.cx, osh_checkpoint_open(f.cx, &f.ck, f.dir));
        snprintf(path, sizeof path, "%s/mine", f.dir);
        tiny_check(f.cx, osh_dir_make(f.cx, path));
        snprintf(path, sizeof path, "%s/mine/tiny.json", f.dir);
        snprintf(text, sizeof text, "%s%s}}", start, rows[r].record);
        tiny_check(f.cx, osh_file_write_all(f.cx, path, text, strlen(text)));
        snprintf(path, sizeof path, "%s/mine", f.dir);
        osh_status rc = osh_graph_new(f.cx, &f.g, f.ck, path);
        if (rows[r].says ? rc != OSH_E_FORMAT || !strstr(osh_error_text(f.cx), rows[r].says) : rc)
            fail_msg("row %d: status %d, %s", (int)r, rc, osh_error_text(f.cx));
        if (!rc) tiny_check(f.cx, osh_hf_config_in(f.cx, &c, f.ck->config, path));
        cJSON *vocab = cJSON_GetObjectItemCaseSensitive(f.ck->config->json, "vocab_size");
        if (!rc) assert_true(c.rope.theta == (rows[r].theta ? rows[r].theta : vocab->valuedouble));
        osh_hf_config_drop(f.cx, &c);
        close_case(&f);
    }
}

/* Each embedded record has only known keys, with values of the right types. */
static void types_that_are_embedded(void **state)
{
    fixture f;
    (void)state;
    open_case(&f, "llama_default");
    assert_true(osh_n_embedded_types > 150);
    for (size_t i = 0; i < osh_n_embedded_models; i++) {
        const osh_embedded_model *m = &osh_embedded_models[i];
        cJSON *json = NULL;
        tiny_check(f.cx, osh_json_parse(f.cx, &json, m->text, m->n, m->name, 0));
        tiny_check(f.cx, osh_model_types_check(f.cx, json, m->name));
        cJSON_Delete(json);
    }
    close_case(&f);
}

/* The outputs of the Mamba 2 scan and the residual stream are F32; all other values have the
 * compute dtype. An op that needs its input in the compute dtype is refused if the input is F32. */
static void values_in_f32(void **state)
{
    fixture f;
    char *text = NULL, dir[64], path[512], *at;
    const char in[] = "\"gated_norm\", \"in\": [\"y\", \"z\"]";
    size_t n = 0;
    int wide = 0;
    (void)state;
    open_case(&f, "mamba2");
    tiny_write(f.cx, &f.t, f.dir, OSH_BF16);
    tiny_check(f.cx, osh_checkpoint_open(f.cx, &f.ck, f.dir));
    tiny_check(f.cx, osh_graph_new(f.cx, &f.g, f.ck, NULL));
    for (int v = 0; v < f.g->n_values; v++) {
        const osh_value *x = &f.g->values[v];
        const osh_node *by = x->producer < 0 ? NULL : &f.g->nodes[x->producer];
        bool f32 = by && (by->op == &osh_op_ssm_scan || by->op == &osh_op_add_f32);
        assert_int_equal(x->dtype, v == f.g->input_ids ? OSH_I32 : f32 ? OSH_F32 : OSH_BF16);
        assert_int_equal(osh_value_bytes(f.g, v),
                         (size_t)x->width * (f32 || v == f.g->input_ids ? 4 : 2));
        wide += f32;
    }
    assert_int_equal(wide, 4);
    osh_graph_free(f.cx, f.g), f.g = NULL;

    snprintf(path, sizeof path, "%s/models/mamba2.json", OSH_SOURCE_DIR);
    tiny_check(f.cx, osh_file_read_all(f.cx, &text, &n, path, 1 << 20));
    at = memmem(text, n, in, sizeof in - 1);
    assert_non_null(at);
    memcpy(at, "\"gated_norm\", \"in\": [\"z\", \"y\"]", sizeof in - 1);
    snprintf(dir, sizeof dir, "%s/models", f.dir);
    snprintf(path, sizeof path, "%s/mamba2.json", dir);
    tiny_check(f.cx, osh_dir_make(f.cx, dir));
    tiny_check(f.cx, osh_file_write_all(f.cx, path, text, n));
    osh_free(f.cx, text);
    assert_int_equal(osh_graph_new(f.cx, &f.g, f.ck, dir), OSH_E_FORMAT);
    if (!strstr(osh_error_text(f.cx), "input 1, y, is F32: op gated_norm wants BF16 there"))
        fail_msg("%s", osh_error_text(f.cx));
    close_case(&f);
}

static void knows_architectures(void **state)
{
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_true(osh_graph_knows(cx, "MistralForCausalLM", NULL));
    assert_false(osh_graph_knows(cx, "Mistral", NULL));
    assert_false(osh_graph_knows(cx, NULL, NULL));
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

/* Makes allocation `first` fail, then `first + step`, and so on, until no allocation fails. */
static void out_of_memory_of(const char *name, int64_t first, int64_t step)
{
    fixture f;
    osh_status rc = OSH_E_NOMEM;
    open_case(&f, name);
    tiny_write(f.cx, &f.t, f.dir, OSH_F32);
    tiny_check(f.cx, osh_checkpoint_open(f.cx, &f.ck, f.dir));
    size_t before = osh_mem_live(f.cx);
    int64_t n = first - step;
    while (rc == OSH_E_NOMEM) {
        osh_partition *p = NULL;
        osh_error_clear(f.cx);
        osh_mem_fail_after(f.cx, n += step);
        rc = osh_graph_new(f.cx, &f.g, f.ck, NULL);
        if (!rc) { // adds the nodes of the original model
            static int moved[512];
            static bool changed[512];
            assert_true(f.g->n_nodes <= 512);
            changed[f.g->n_nodes / 2] = true;
            rc = osh_graph_add_original(f.cx, f.g, changed, moved);
            changed[f.g->n_nodes / 2] = false;
        }
        if (!rc) rc = osh_partition_new(f.cx, &p, f.g, NULL, 0, 1);
        osh_mem_fail_after(f.cx, -1);
        osh_partition_free(f.cx, p);
        osh_graph_free(f.cx, f.g), f.g = NULL;
        size_t live = osh_mem_live(f.cx);
        osh_error_clear(f.cx);
        if (osh_mem_live(f.cx) != before)
            fail_msg("allocation %lld leaks (%zu, %zu)", (long long)n, live, before);
    }
    assert_int_equal(rc, OSH_OK);
    assert_true(n > 100);
    close_case(&f);
}

static void out_of_memory(void **state)
{
    (void)state;
    /* Most allocations occur in all three models. With sanitizers only every third allocation
     * fails. */
    int64_t step = SANITIZED ? 3 : 1;
    out_of_memory_of("qwen3_layer_types", 1, step);
    out_of_memory_of("qwen3_moe", SANITIZED ? 2 : 1, step);
    out_of_memory_of("llava", SANITIZED ? 3 : 1, step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modules_and_values),
        cmocka_unit_test(experts_of_sparse_layers),
        cmocka_unit_test(tied_head_is_one_weight),
        cmocka_unit_test(windows_per_layer),
        cmocka_unit_test(defaults_of_the_classes),
        cmocka_unit_test(dynamic_rope_lengthens),
        cmocka_unit_test(dot_names_parts),
        cmocka_unit_test(bad_configs),
        cmocka_unit_test(missing_and_misshapen_tensors),
        cmocka_unit_test(integers_are_no_weights),
        cmocka_unit_test(broken_templates),
        cmocka_unit_test(extended_templates),
        cmocka_unit_test(renamed_lists),
        cmocka_unit_test(types_of_a_directory),
        cmocka_unit_test(types_that_are_embedded),
        cmocka_unit_test(values_in_f32),
        cmocka_unit_test(knows_architectures),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
