/* test_folds.c - tests which layers are divided by factors, and which Linears are multiplied by
 * them. The pairs come from the graph or from mappings of the recipe, and layers can be ignored.
 *
 * Folds that change the model are refused. A cut of the graph does not separate a norm from its
 * readers. After a fold with any factors, the logits of the model are the same. */
#include "golden/models/tiny.h"
#include "plan/plan.h"
#include "rewrite/folds.h"
#include "torture.h"

#include <unistd.h>

typedef struct fixture {
    osh_ctx *cx;
    char dir[16];
    tiny_case t;
    osh_checkpoint *ck;
    osh_options opt;
    osh_plan p;
} fixture;

static void fixture_open(fixture *f, const char *model, const char *keys)
{
    char text[1024];
    memset(f, 0, sizeof *f);
    osh_plan_join(&f->p);
    strcpy(f->dir, "folds-XXXXXX");
    assert_int_equal(osh_ctx_new(&f->cx, 1), OSH_OK);
    osh_log_setup(f->cx, OSH_LOG_ERROR, OSH_PROGRESS_NONE);
    assert_non_null(mkdtemp(f->dir));
    tiny_open(f->cx, &f->t, model);
    tiny_write(f->cx, &f->t, f->dir, OSH_F32);
    assert_ok(f->cx, osh_checkpoint_open(f->cx, &f->ck, f->dir));
    assert_ok(f->cx, osh_graph_new(f->cx, &f->p.in.graph, f->ck, NULL));
    snprintf(text, sizeof text,
             "s_modifiers: {SmoothQuantModifier: {%s}, QuantizationModifier: {scheme: W8A8}}",
             keys);
    assert_ok(f->cx, osh_recipe_parse(f->cx, &f->p.in.recipe, text, strlen(text), "r.yaml"));
    f->p.in.ck = f->ck, f->p.in.opt = &f->opt, f->p.in.propagate_error = true;
}

static void fixture_close(fixture *f)
{
    osh_plan_folds_free(f->cx, &f->p.rewrites);
    osh_partition_free(f->cx, f->p.schedule.parts);
    osh_free(f->cx, f->p.schedule.passes);
    osh_free(f->cx, f->p.match.readers);
    osh_free(f->cx, f->p.match.users);
    osh_recipe_free(f->cx, f->p.in.recipe);
    osh_graph_free(f->cx, f->p.in.graph);
    osh_checkpoint_close(f->cx, f->ck);
    assert_ok(f->cx, osh_dir_remove(f->cx, f->dir));
    tiny_close(&f->t);
    assert_int_equal(osh_mem_live(f->cx), 0);
    osh_ctx_free(f->cx);
}

/* Describes the folds of one layer: "input_layernorm: q_proj k_proj v_proj; ...". */
static void describe(char *to, size_t room, const fixture *f, int layer)
{
    char prefix[32];
    size_t n = (size_t)snprintf(prefix, sizeof prefix, "model.layers.%d.", layer), at = 0;
    to[0] = 0;
    for (int i = 0; i < f->p.rewrites.n_folds; i++) {
        const osh_fold *o = &f->p.rewrites.folds[i];
        const char *name = f->p.in.graph->modules[o->module].name;
        if (strncmp(name, prefix, n)) continue;
        at += (size_t)snprintf(to + at, room - at, "%s%s:", at ? "; " : "", strrchr(name, '.') + 1);
        for (int k = 0; k < o->n_takes; k++) {
            char w[128], *dot;
            snprintf(w, sizeof w, "%s", f->p.in.graph->weights[o->takes[k]].name);
            *strrchr(w, '.') = 0, dot = strrchr(w, '.');
            at += (size_t)snprintf(to + at, room - at, " %s", dot + 1);
        }
    }
}

static void test_found(void **state)
{
    (void)state;
    static const char both[] =
        "input_layernorm: q_proj k_proj v_proj; post_attention_layernorm: gate_proj up_proj";
    static const char first[] = "input_layernorm: q_proj k_proj v_proj";
    static const struct {
        const char *model, *keys, *layer[3];
    } rows[] = {
        {"llama_default", "", {both, both, ""}},
        {"qwen3_moe", "", {first, first, first}}, // layer 1 of qwen3_moe has no experts
        {"llama_default", "ignore: [model.layers.0.input_layernorm]", {both, both}},
        {"llama_default",
         "ignore: ['re:.*layers\\.0\\.input_layernorm', 're:.*layers\\.0\\.self_attn.*']",
         {"post_attention_layernorm: gate_proj up_proj", both}},
        {"llama_default", "mappings: [[['re:.*down_proj'], 're:.*up_proj']]",
         {"up_proj: down_proj", "up_proj: down_proj"}},
        {"llama_bias", "mappings: [[['re:.*o_proj'], 're:.*v_proj']]",
         {"v_proj: o_proj", "v_proj: o_proj"}},
        {"qwen3_moe",
         "mappings: [[['re:.*mlp\\.gate$', 're:.*experts.*gate_proj', 're:.*experts.*up_proj'], "
         "'re:.*layers\\.0\\.post_attention_layernorm']]",
         {"post_attention_layernorm: gate gate_proj up_proj gate_proj up_proj gate_proj up_proj "
          "gate_proj "
          "up_proj gate_proj up_proj gate_proj up_proj",
          ""}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fixture f;
        fixture_open(&f, rows[i].model, rows[i].keys);
        assert_ok(f.cx, osh_plan_folds(f.cx, &f.p.rewrites));
        for (int layer = 0; layer < 3; layer++) {
            char got[512];
            const char *want = rows[i].layer[layer] ? rows[i].layer[layer] : "";
            describe(got, sizeof got, &f, layer);
            if (strcmp(got, want))
                fail_msg("%s {%s}, layer %d: '%s', want '%s'", rows[i].model, rows[i].keys, layer,
                         got, want);
        }
        fixture_close(&f);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *model, *keys, *part;
    } rows[] = {
        {"llama_default", "mappings: [[['re:.*o_proj'], 're:.*v_proj']]",
         "self_attn (attention) also reads its output"},
        {"llama_default", "mappings: [[['re:.*down_proj'], 're:.*gate_proj']]",
         "mlp (glu) also reads its output"},
        {"llama_default", "mappings: [[['re:.*q_proj', 're:.*v_proj'], 're:.*input_layernorm']]",
         "k_proj (linear) also reads"},
        {"llama_default", "mappings: [[['re:.*q_proj'], 're:.*norm2']]",
         "re:.*norm2 matches no module"},
        {"llama_default", "mappings: [[['re:.*w1'], 're:.*input_layernorm']]",
         "match all of its balance layers (re:.*w1"},
        {"llama_default", "mappings: [[['lm_head'], 're:.*input_layernorm']]",
         "no modules next to"},
        {"llama_default", "mappings: [[[LlamaRMSNorm], 're:.*v_proj']]",
         "is a LlamaRMSNorm: want a Linear"},
        {"llama_default", "mappings: [[['re:.*q_proj'], model.embed_tokens]]",
         "want a norm of whole rows, or a Linear"},
        {"llama_default",
         "mappings: [[['re:.*down_proj'], 're:.*up_proj'], [['re:.*down_proj'], 're:.*up_proj']]",
         "want each layer in one of them"},
        {"llama_tied", "mappings: [[[lm_head], model.norm]]", "which is the weight of 2 modules"},
        {"qwen3_moe",
         "mappings: [[['re:.*experts.*gate_proj', 're:.*experts.*up_proj'], "
         "'re:.*layers\\.0\\.post_attention_layernorm']]",
         "mlp.gate (linear) also reads its output"},
        {"qwen3", "mappings: [[['re:.*o_proj'], 're:.*q_norm']]",
         "want a norm of whole rows, or a Linear"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fixture f;
        fixture_open(&f, rows[i].model, rows[i].keys);
        osh_status rc = osh_plan_folds(f.cx, &f.p.rewrites);
        if (!rc || !strstr(osh_error_text(f.cx), rows[i].part))
            fail_msg("%s {%s}: '%s', want '%s'", rows[i].model, rows[i].keys,
                     rc ? osh_error_text(f.cx) : "", rows[i].part);
        fixture_close(&f);
    }
}

/* If the sequential targets are Linears, the subgraph of a Linear must begin with the norm before
 * the Linear. */
static void test_cut(void **state)
{
    (void)state;
    char linear[] = "Linear", *items[] = {linear};
    fixture f;
    fixture_open(&f, "llama_default", "");
    assert_ok(f.cx, osh_plan_folds(f.cx, &f.p.rewrites));
    assert_ok(f.cx, osh_plan_cut(f.cx, &f.p.schedule, &f.p.match, &f.p.rewrites,
                                 &(osh_strs){items, 1}, 1));
    assert_int_equal(f.p.rewrites.n_folds, 4);
    for (int i = 0; i < f.p.rewrites.n_folds; i++) {
        const osh_fold *o = &f.p.rewrites.folds[i];
        const osh_subgraph *s = &f.p.schedule.parts->parts[o->subgraph];
        int norm = f.p.in.graph->modules[o->module].node;
        assert_int_equal(s->first, norm);
        assert_true(f.p.schedule.passes[o->subgraph].fold);
        for (int n = norm + 1; n <= norm + o->n_takes; n++) assert_true(n < s->first + s->n_nodes);
    }
    fixture_close(&f);
}

static float *logits(fixture *f)
{
    const osh_graph *g = f->p.in.graph;
    osh_weights *w = NULL;
    osh_batch *b = NULL;
    int out = g->nodes[g->head].out[0];
    bool *keep = calloc((size_t)g->n_values, sizeof *keep);
    keep[out] = true;
    assert_ok(f->cx, osh_weights_new(f->cx, &w, g));
    assert_ok(f->cx, osh_weights_load(f->cx, w, g, f->ck, 0, g->n_nodes));
    assert_ok(f->cx, osh_batch_new(f->cx, &b, g, f->t.ids, f->t.offsets, 2));
    assert_ok(f->cx, osh_exec_run(f->cx, &(osh_exec_span){g, 0, g->n_nodes, NULL, keep}, w, b, NULL,
                                  true));
    float *to = malloc(osh_tensor_bytes(b->values[out]));
    memcpy(to, b->values[out]->data, osh_tensor_bytes(b->values[out]));
    osh_batch_free(f->cx, b);
    osh_weights_free(f->cx, w);
    free(keep);
    return to;
}

/* Folds factors from 1/4 to 4 that are not powers of two, so each weight is rounded with a relative
 * error of about 1e-7. A factor that is missing or in the wrong channel causes a large error. */
static void same_model(const char *model, const char *keys, int n)
{
    fixture f;
    fixture_open(&f, model, keys);
    assert_ok(f.cx, osh_plan_folds(f.cx, &f.p.rewrites));
    if (f.p.rewrites.n_folds != n)
        fail_msg("%s: %d layers give factors, want %d", model, f.p.rewrites.n_folds, n);
    float *before = logits(&f), most = 0, differ = 0;
    for (int i = 0; i < f.p.rewrites.n_folds; i++) {
        osh_fold *o = &f.p.rewrites.folds[i];
        for (int64_t c = 0; c < o->n; c++)
            o->s[c] = (float)exp2(2 * osh_rng_sym(5, (uint64_t)i, (uint64_t)c));
        assert_ok(f.cx, osh_fold_known(f.cx, &f.p.rewrites, i));
    }
    float *after = logits(&f);
    for (int64_t i = 0; i < f.t.offsets[2] * f.p.in.graph->n_vocab; i++) {
        if (fabsf(before[i]) > most) most = fabsf(before[i]);
        if (fabsf(before[i] - after[i]) > differ) differ = fabsf(before[i] - after[i]);
    }
    if (!(differ > 0 && differ < 1e-5f * most))
        fail_msg("%s: logits up to %g differ by %g", model, (double)most, (double)differ);
    free(before);
    free(after);
    fixture_close(&f);
}

static void test_same_model(void **state)
{
    (void)state;
    same_model("llama_bias",
               "mappings: [[['re:.*[qkv]_proj'], 're:.*input_layernorm'], [['re:.*o_proj'], "
               "'re:.*v_proj'], "
               "[['re:.*gate_proj', 're:.*up_proj'], 're:.*post_attention_layernorm'], "
               "[['re:.*down_proj'], 're:.*up_proj']]",
               8);
    same_model("qwen3_moe", "", 3);
    same_model("gemma2", "", 4);   // the norms of Gemma 2 multiply by 1 + weight
    same_model("gemma3", "", 6);
    same_model("gpt_neox", "", 4); // in GPT-NeoX, two norms with biases read the same value
    same_model("stablelm_parallel", "", 2);
    same_model("phi3", "", 4);     // in Phi-3, one Linear has the rows of q, k and v
    same_model("granite", "", 4);
}

static osh_status make_again(osh_ctx *cx, void *user)
{
    fixture *f = user;
    osh_plan p = f->p;
    osh_plan_join(&p);
    int *joined = p.in.graph->joined;
    p.in.graph->joined = NULL;
    osh_status rc = osh_plan_folds(cx, &p.rewrites);
    osh_plan_folds_free(cx, &p.rewrites);
    osh_free(cx, p.in.graph->joined);
    p.in.graph->joined = joined;
    osh_checkpoint_free_changes(cx, p.in.ck);
    return rc;
}

static void test_torture(void **state)
{
    (void)state;
    for (int given = 0; given < 2; given++) {
        fixture f;
        fixture_open(&f, "llama_default",
                     given ? "mappings: [[['re:.*down_proj'], 're:.*up_proj']]" : "");
        assert_true(torture(make_again, &f) > 10);
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_cut),     cmocka_unit_test(test_same_model),
        cmocka_unit_test(test_torture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
