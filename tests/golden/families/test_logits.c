/* test_logits.c - compares F32 logits of a tiny random checkpoint of each family in logits/ with
 * transformers (gen_logits.py). max |difference| must be at most 5e-6 times max |logit|. Keys with
 * default values are absent from each config.json, so the defaults of the templates are tested,
 * too. */
#include "eval/decode.h"
#include "golden/models/logits.h"
#include "torture.h"
#include "unit/dir_fixture.h"

#define DIR_LOGITS OSH_SOURCE_DIR "/tests/golden/families/logits"

/* Computes the NLL of each token in two ways: as -log softmax(logits)[next token], and as eval does
 * from the inputs and the weights of the head. Returns the largest difference. This also tests a
 * bias of the head. */
static double nll_distance(fixture *x, const tiny_case *t, const float *logits, int64_t vocab)
{
    osh_forward *f = NULL;                   // own
    osh_tensor *targets = NULL, *nll = NULL; // own
    int64_t n = t->offsets[t->n_samples], at = 0;
    osh_dataset d = {.n = t->n_samples, .ids = (int32_t *)t->ids, .offsets = (int64_t *)t->offsets};
    osh_progress pr = {.error = -1};
    double worst = 0;
    assert_ok(x->cx, osh_forward_open(x->cx, &f, x->dir, NULL, NULL));
    assert_ok(x->cx, osh_forward_run(x->cx, f, &d, d.n, true, &pr));
    assert_ok(x->cx, osh_next_tokens(x->cx, &targets, &d, 0, d.n));
    assert_ok(x->cx, osh_tensor_new(x->cx, &nll, OSH_F32, 1, &n));
    osh_vocab_attr rules = osh_forward_rules(f, NULL);
    osh_op_args a = {.in = {f->batches[0]->values[f->graph->hidden], f->head, targets},
                     .out = {nll},
                     .attr = &rules,
                     .seqs = &f->batches[0]->seqs};
    assert_ok(x->cx, osh_op_run(x->cx, &osh_op_nll, &a));
    for (; at < n; at++) {
        int32_t next = ((const int32_t *)targets->data)[at];
        const float *row = logits + at * vocab;
        double sum = 0;
        for (int64_t v = 0; v < vocab; v++) sum += exp((double)row[v] - row[0]);
        double want = next < 0 ? 0 : log(sum) + row[0] - row[next];
        worst = fmax(worst, fabs(want - ((const float *)nll->data)[at]));
    }
    osh_tensor_free(x->cx, targets), osh_tensor_free(x->cx, nll);
    osh_forward_close(x->cx, f);
    return worst;
}

/* Computes the logits of the first sample's last token as generate does, and compares them with
 * `logits`. Returns max |difference|. */
static double generate_distance(fixture *x, const tiny_case *t, const float *logits, int64_t vocab)
{
    osh_forward *f = NULL; // own
    osh_decode *d = NULL;  // own
    int64_t n = t->offsets[1];
    float *got = malloc((size_t)vocab * sizeof *got);
    double worst = 0;
    assert_ok(x->cx, osh_forward_open(x->cx, &f, x->dir, NULL, NULL));
    assert_ok(x->cx, osh_decode_open(x->cx, &d, f,
                                     &(osh_decode_want){.n_prompt = n, .room = n, .round = true}));
    assert_ok(x->cx, osh_decode_run(x->cx, d, got, t->ids, n, NULL));
    for (int64_t v = 0; v < vocab; v++)
        worst = fmax(worst, fabs((double)got[v] - logits[(n - 1) * vocab + v]));
    free(got);
    osh_decode_close(x->cx, d);
    osh_forward_close(x->cx, f);
    return worst;
}

/* Returns max |difference| / max |logit| of a family. */
static double family_distance(fixture *x, const char *name)
{
    tiny_case t;
    char *file = NULL;
    size_t n = 0;
    int64_t vocab = 0;
    double worst = 0, largest = 0;
    tiny_open(x->cx, &t, name);
    const float *want = tiny_npy(x->cx, &file, &n, name, ".npy");
    tiny_write(x->cx, &t, x->dir, OSH_F32);
    float *got = logits_of(x->cx, x->dir, NULL, t.ids, t.offsets, t.n_samples, &vocab);
    assert_int_equal(n, t.offsets[t.n_samples] * vocab);
    for (size_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs((double)got[i] - want[i]));
        largest = fmax(largest, fabs((double)want[i]));
    }
    worst = fmax(worst, nll_distance(x, &t, want, vocab));
    worst = fmax(worst, generate_distance(x, &t, want, vocab));
    free(got);
    osh_free(x->cx, file);
    tiny_close(&t);
    return worst / largest;
}

static void logits_are_those_of_transformers(void **state)
{
    fixture *x = *state;
    char **names = NULL; // own
    size_t n = 0, n_families = 0, wrong = 0;
    tiny_dir = DIR_LOGITS;
    assert_ok(x->cx, osh_dir_list(x->cx, &names, &n, DIR_LOGITS));
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(names[i]);
        if (!tiny_ends(names[i], ".json") || !strcmp(names[i], "MANIFEST.json")) continue;
        names[i][length - 5] = 0;
        double off = family_distance(x, names[i]);
        printf("%-24s max |diff| / max |logit| %.2e (limit 5e-6)\n", names[i], off);
        n_families++, wrong += !(off <= 5e-6);
    }
    osh_strings_free(x->cx, names, n);
    assert_true(n_families > 0);
    assert_int_equal(wrong, 0);
}

/* Sets a member of config.json to a JSON text, or removes the member if `json` is NULL. */
static void config_set(const tiny_case *t, const char *key, const char *json)
{
    cJSON *config = cJSON_GetObjectItemCaseSensitive(t->json, "config");
    cJSON_DeleteItemFromObjectCaseSensitive(config, key);
    if (json) cJSON_AddItemToObject(config, key, cJSON_Parse(json));
}

static void settings_without_a_template_are_refused(void **state)
{
    static const struct {
        const char *family, *key, *json, *says;
    } rows[] = {
        {"cohere", "use_qk_norm", "true", "use_qk_norm is true: want false"},
        {"gemma3n_text", "altup_num_inputs", "3", "altup_num_inputs is not 4: want 4"},
        {"gemma3n_text", "num_kv_shared_layers", "4", "is not less than num_hidden_layers"},
        {"zamba2", "use_long_context", "true", "use_long_context is true: want false"},
        {"zamba2", "layers_block_type", NULL, "is not a list, want a word for each layer"},
        {"zamba2", "num_mem_blocks", "0", "num_mem_blocks is 0"},
        {"gemma", "use_bidirectional_attention", "true", "want false"},
        {"laguna", "moe_router_logit_softcapping", "3", "routers with a soft cap"},
        {"kimi_linear", "q_lora_rank", "32", "q_lora_rank is set: want null"},
        {"chatglm", "rmsnorm", "false", "rmsnorm is false: want true"},
        {"bailing_moe", "norm_head", "true", "norm_head is true: want false"},
        {"deepseek", "scoring_func", "\"sigmoid\"", "scoring_func is not softmax"},
        {"minicpm", "num_experts", "8", "MiniCPM-MoE is not supported"},
        {"dbrx", "ffn_config", "{\"moe_normalize_expert_weights\": 2}", "want 1 or null"},
        {"hy_v4", "swiglu_limit", "0", "swiglu_limit is 0: want a number above 0"},
        {"deepseek_v4", "swiglu_limit", "0", "swiglu_limit is 0: want a number above 0"},
        {"deepseek_v4", "index_topk", "2.5", "index_topk is 2.5, want a whole number"},
        {"deepseek_v4", "hidden_act", "\"gelu\"", "hidden_act is not silu"},
        {"deepseek_v4", "mlp_bias", "true", "mlp_bias is true: want false"},
        {"deepseek_v4", "scoring_func", "\"sigmoid\"", "scoring_func is not sqrtsoftplus"},
        {"exaone4", "layer_types", NULL, "sliding_window is set without layer_types"},
        {"cwm", "layer_types", NULL, "layer_types is missing"},
        {"cwm", "rope_parameters", NULL, "'rope_parameters' is missing"},
        {"lfm2_moe", "layer_types", NULL, "layer_types is missing"},
        {"gptj", "rotary_dim", "18", "rotary_dim is 18, want at most 16"},
        {"gptj", "rotary_dim", "null", "rotary_dim is null"},
        {"minimax_m3_vl_text", "swiglu_beta", "2", "swiglu_beta is not 1"},
        {"gpt_bigcode", "scale_attn_weights", "false", "scale_attn_weights is false"},
        {"bamba", "hidden_act", "\"gelu\"", "hidden_act is not silu"},
        {"ernie4_5", "partial_rotary_factor", "0.5", "partial_rotary_factor is 0.5, want 1"},
        {"hunyuan_v1_dense", "rope_parameters",
         "{\"rope_type\": \"dynamic\", \"alpha\": -1, \"factor\": 1}", "'alpha' is not above 0"},
    };
    fixture *x = *state;
    tiny_dir = DIR_LOGITS;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tiny_case t;
        osh_checkpoint *ck = NULL; // own
        osh_graph *g = NULL;
        tiny_open(x->cx, &t, rows[i].family);
        config_set(&t, rows[i].key, rows[i].json);
        tiny_write(x->cx, &t, x->dir, OSH_F32);
        assert_ok(x->cx, osh_checkpoint_open(x->cx, &ck, x->dir));
        osh_status rc = osh_graph_new(x->cx, &g, ck, NULL);
        if (!rc || !strstr(osh_error_text(x->cx), rows[i].says))
            fail_msg("%s, %s: status %d, %s", rows[i].family, rows[i].key, rc,
                     osh_error_text(x->cx));
        osh_error_clear(x->cx);
        osh_checkpoint_close(x->cx, ck);
        tiny_close(&t);
    }
}

/* The program computes sparse attention as full attention. This is exact only for samples of at
 * most index_topk tokens, or of at most index_topk_blocks blocks. So the graph must limit the
 * length of samples. */
static void sparse_attention_limits_samples(void **state)
{
    static const struct {
        const char *family, *key, *json;
        int64_t longest;
    } rows[] = {
        {"deepseek_v32", "index_topk", "77", 77},
        {"minimax_m3_vl_text", "index_topk_blocks", "3", 48},
        {"minimax_m3_vl_text", "sparse_attention_config",
         "{\"sparse_block_size\": 8, \"sparse_topk_blocks\": 5}", 40},
    };
    fixture *x = *state;
    tiny_dir = DIR_LOGITS;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tiny_case t;
        osh_checkpoint *ck = NULL; // own
        osh_graph *g = NULL;       // own
        tiny_open(x->cx, &t, rows[i].family);
        config_set(&t, rows[i].key, rows[i].json);
        config_set(&t, "max_position_embeddings", "100");
        tiny_write(x->cx, &t, x->dir, OSH_F32);
        assert_ok(x->cx, osh_checkpoint_open(x->cx, &ck, x->dir));
        assert_ok(x->cx, osh_graph_new(x->cx, &g, ck, NULL));
        assert_int_equal(g->max_positions, rows[i].longest);
        assert_true(g->sparse_limit);
        osh_graph_free(x->cx, g);
        osh_checkpoint_close(x->cx, ck);
        tiny_close(&t);
    }
}

/* Released files of MiniMax M3 have other keys than the files that transformers writes. Both sets
 * of keys must give the same layers. */
static void minimax_m3_has_two_sets_of_keys(void **state)
{
    fixture *x = *state;
    int n_nodes[2];
    tiny_dir = DIR_LOGITS;
    for (int released = 0; released < 2; released++) {
        tiny_case t;
        osh_checkpoint *ck = NULL; // own
        osh_graph *g = NULL;       // own
        tiny_open(x->cx, &t, "minimax_m3_vl_text");
        if (released) {
            config_set(&t, "layer_types", NULL);
            config_set(&t, "mlp_layer_types", NULL);
            config_set(&t, "index_n_heads", NULL);
            config_set(&t, "index_head_dim", NULL);
            config_set(&t, "moe_layer_freq", "[0, 1]");
            config_set(&t, "hidden_act", "\"swigluoai\"");
            config_set(&t, "sparse_attention_config",
                       "{\"sparse_attention_freq\": [0, 1], \"sparse_num_index_heads\": 2, "
                       "\"sparse_index_dim\": 16}");
        }
        tiny_write(x->cx, &t, x->dir, OSH_F32);
        assert_ok(x->cx, osh_checkpoint_open(x->cx, &ck, x->dir));
        assert_ok(x->cx, osh_graph_new(x->cx, &g, ck, NULL));
        n_nodes[released] = g->n_nodes;
        osh_graph_free(x->cx, g);
        osh_checkpoint_close(x->cx, ck);
        tiny_close(&t);
    }
    assert_int_equal(n_nodes[0], n_nodes[1]);
}

/* Builds graphs in which each expert gets only its routed tokens. Another node must read the output
 * of each moe_combine node, also if the expert is the identity, which has no Linears. */
static void combines_are_read_by_route(void **state)
{
    fixture *x = *state;
    const char *const families[] = {"longcat_flash", "longcat_flash_zero"};
    tiny_dir = DIR_LOGITS;
    for (int i = 0; i < 2; i++) {
        tiny_case t;
        osh_checkpoint *ck = NULL; // own
        osh_graph *g = NULL;       // own
        int n_combines = 0, n_routes = 0;
        tiny_open(x->cx, &t, families[i]);
        tiny_write(x->cx, &t, x->dir, OSH_F32);
        assert_ok(x->cx, osh_checkpoint_open(x->cx, &ck, x->dir));
        assert_ok(x->cx, osh_graph_new_by_route(x->cx, &g, ck, NULL));
        for (int k = 0; k < g->n_nodes; k++) {
            n_routes += !strcmp(g->nodes[k].op->name, "routed_rows");
            if (!osh_node_is(&g->nodes[k], OSH_OP_COMBINES)) continue;
            n_combines++;
            if (g->values[g->nodes[k].out[0]].last_use < 0)
                fail_msg("%s: nothing reads the output of node %d", families[i], k);
        }
        printf("%s: %d experts, %d of them with routed rows\n", families[i], n_combines, n_routes);
        assert_true(n_routes > 0 && (i ? n_routes < n_combines : n_routes == n_combines));
        osh_graph_free(x->cx, g);
        osh_checkpoint_close(x->cx, ck);
        tiny_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(logits_are_those_of_transformers, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(settings_without_a_template_are_refused, setup_dir,
                                        teardown_dir),
        cmocka_unit_test_setup_teardown(sparse_attention_limits_samples, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(minimax_m3_has_two_sets_of_keys, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(combines_are_read_by_route, setup_dir, teardown_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
