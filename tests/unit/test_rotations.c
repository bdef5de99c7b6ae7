/* test_rotations.c - tests rotations. The matrices must be orthogonal and have the documented form.
 * A rotation of the weights must not change the outputs of a model. Weights that cannot be rotated
 * must be refused with a reason. */
#include "golden/models/tiny.h"
#include "modifiers/rotate.h"
#include "plan/plan.h"
#include "rewrite/rotations.h"
#include "torture.h"

#include <unistd.h>

/* ---- matrices ---- */

/* Computes the rotation matrix M, or its transpose, by rotating the unit vectors. Returns the
 * matrix (own, [n, n]). */
static double *matrix(osh_ctx *cx, const osh_rotation *r, bool transposed, bool columns)
{
    int64_t n = r->n;
    float *x = calloc((size_t)(n * n), sizeof *x);
    double *m = malloc((size_t)(n * n) * sizeof *m);
    for (int64_t i = 0; i < n; i++) x[i * n + i] = 1;
    osh_tensor t = osh_tensor_view(OSH_F32, 2, (int64_t[]){n, n}, x);
    assert_ok(cx, (columns ? osh_rotate_columns : osh_rotate_rows)(cx, &t, r, transposed));
    for (int64_t i = 0; i < n * n; i++) m[i] = x[i];
    free(x);
    return m;
}

/* Checks that a matrix is orthogonal. Its elements are rounded to f32, so a sum of n products has
 * an error of at most n 2^-23. */
static void check_matrix(osh_ctx *cx, osh_rotation_kind kind, int64_t n, int64_t factor)
{
    osh_rotation r;
    assert_ok(cx, osh_rotation_init(cx, &r, kind, n, 3, "a test"));
    if (r.factor != factor) fail_msg("kind %d, n %ld: factor %ld", kind, (long)n, (long)r.factor);
    double *m = matrix(cx, &r, false, false), *t = matrix(cx, &r, true, false),
           *c = matrix(cx, &r, false, true);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++) {
            double dot = 0, want = i == k;
            for (int64_t j = 0; j < n; j++) dot += m[i * n + j] * m[k * n + j];
            if (!(fabs(dot - want) < (double)n * 1.2e-7))
                fail_msg("kind %d, n %ld: row %ld by %ld: %g", kind, (long)n, (long)i, (long)k,
                         dot);
            assert_true(m[i * n + k] == t[k * n + i] && m[i * n + k] == c[k * n + i]);
            // the elements of a Hadamard matrix are 1 and -1, scaled
            bool flat = fabs(fabs(m[i * n + k]) * sqrt((double)n) - 1) < 1e-6;
            if (kind != OSH_ROTATION_RANDOM_MATRIX && !flat)
                fail_msg("n %ld: %g is no sign", (long)n, m[i * n + k]);
            if (kind == OSH_ROTATION_HADAMARD)
                assert_true((m[i * n + k] < 0) ==
                            (__builtin_popcountll((unsigned long long)(i & k)) % 2 == 1));
        }
    free(m);
    free(t);
    free(c);
    osh_rotation_deinit(cx, &r);
}

static void test_matrices(void **state)
{
    static const struct {
        osh_rotation_kind kind;
        int64_t n, factor;
    } rows[] = {
        {OSH_ROTATION_HADAMARD, 1, 1},          {OSH_ROTATION_HADAMARD, 64, 1},
        {OSH_ROTATION_RANDOM_HADAMARD, 32, 1},  {OSH_ROTATION_RANDOM_HADAMARD, 12, 12},
        /* The factor 28 needs a construction from the finite field with 27 elements. */
        {OSH_ROTATION_RANDOM_HADAMARD, 24, 12}, {OSH_ROTATION_RANDOM_HADAMARD, 28, 28},
        /* The factors 36 and 100 need constructions from the finite fields with 17 and 49
         * elements. */
        {OSH_ROTATION_RANDOM_HADAMARD, 72, 36}, {OSH_ROTATION_RANDOM_HADAMARD, 100, 100},
        /* The factors 52 and 344 need constructions from the finite fields with 25 and 343
         * elements. */
        {OSH_ROTATION_RANDOM_HADAMARD, 52, 52}, {OSH_ROTATION_RANDOM_HADAMARD, 344, 344},
        {OSH_ROTATION_RANDOM_MATRIX, 7, 7},     {OSH_ROTATION_RANDOM_MATRIX, 40, 5},
        {OSH_ROTATION_RANDOM_MATRIX, 16, 1},
    };
    osh_ctx *cx = NULL;
    (void)state;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_matrix(cx, rows[i].kind, rows[i].n, rows[i].factor);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static void test_no_matrix(void **state)
{
    static const struct {
        osh_rotation_kind kind;
        int64_t n;
        const char *part;
    } rows[] = {
        {OSH_ROTATION_HADAMARD, 576, "wants a power of two: want random-hadamard or random-matrix"},
        {OSH_ROTATION_RANDOM_HADAMARD, 92, "92 channels, 23 times a power of two"},
        {OSH_ROTATION_RANDOM_HADAMARD, 9, "9 channels"}};
    osh_ctx *cx = NULL;
    (void)state;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        osh_rotation r;
        assert_true(osh_rotation_init(cx, &r, rows[i].kind, rows[i].n, 0, "R1") < 0);
        if (!strstr(osh_error_text(cx), rows[i].part)) fail_msg("'%s'", osh_error_text(cx));
        osh_error_clear(cx);
    }
    osh_ctx_free(cx);
}

/* ---- models ---- */

typedef struct fixture {
    osh_ctx *cx;
    char dir[24];
    tiny_case t;
    osh_options opt;
    osh_plan p;
} fixture;

static void fixture_open(fixture *f, const char *model, const char *keys)
{
    char text[512];
    memset(f, 0, sizeof *f);
    osh_plan_join(&f->p);
    strcpy(f->dir, "rotations-XXXXXX");
    assert_int_equal(osh_ctx_new(&f->cx, 1), OSH_OK);
    osh_log_setup(f->cx, OSH_LOG_ERROR, OSH_PROGRESS_NONE);
    assert_non_null(mkdtemp(f->dir));
    tiny_open(f->cx, &f->t, model);
    tiny_write(f->cx, &f->t, f->dir, OSH_F32);
    assert_ok(f->cx, osh_checkpoint_open(f->cx, &f->p.in.ck, f->dir));
    assert_ok(f->cx, osh_graph_new(f->cx, &f->p.in.graph, f->p.in.ck, NULL));
    bool quip = !strncmp(keys, "QuIP ", 5);
    snprintf(text, sizeof text, "s_modifiers: {%sModifier: {%s}}", quip ? "QuIP" : "SpinQuant",
             keys + (quip ? 5 : 0));
    assert_ok(f->cx, osh_recipe_parse(f->cx, &f->p.in.recipe, text, strlen(text), "r.yaml"));
    f->p.in.opt = &f->opt;
}

static void fixture_close(fixture *f)
{
    osh_recipe_free(f->cx, f->p.in.recipe);
    osh_graph_free(f->cx, f->p.in.graph);
    osh_checkpoint_close(f->cx, f->p.in.ck);
    osh_plan_rotations_free(f->cx, &f->p.rewrites);
    osh_free(f->cx, f->p.rewrites.folded);
    assert_ok(f->cx, osh_dir_remove(f->cx, f->dir));
    tiny_close(&f->t);
    assert_int_equal(osh_mem_live(f->cx), 0);
    osh_ctx_free(f->cx);
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
    assert_ok(f->cx, osh_weights_load(f->cx, w, g, f->p.in.ck, 0, g->n_nodes));
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

/* Checks that a rotation of an F32 model changes the logits only by rounding errors. Such an error
 * is about 1e-7 of the logit. */
static void same_model(const char *model, const char *keys)
{
    fixture f;
    fixture_open(&f, model, keys);
    float *before = logits(&f), most = 0, differ = 0;
    assert_ok(f.cx, osh_plan_rotations(f.cx, &f.p.rewrites, &f.p.in));
    assert_true(f.p.rewrites.rotated->n_weights > 10);
    float *after = logits(&f);
    for (int64_t i = 0; i < f.t.offsets[2] * f.p.in.graph->n_vocab; i++) {
        if (fabsf(before[i]) > most) most = fabsf(before[i]);
        if (fabsf(before[i] - after[i]) > differ) differ = fabsf(before[i] - after[i]);
    }
    if (!(differ > 0 && differ < 1e-5f * most))
        fail_msg("%s {%s}: logits up to %g differ by %g", model, keys, (double)most,
                 (double)differ);
    free(before);
    free(after);
    fixture_close(&f);
}

static void test_same_model(void **state)
{
    (void)state;
    same_model("llama_default", "");
    same_model("llama_default", "rotations: [R1], transform_type: random-matrix");
    same_model("llama_default", "rotations: R2");
    same_model("llama_default", "transform_block_size: 8");
    same_model("llama_bias", "transform_type: random-hadamard, seed: 7"); // the heads of llama_bias
                                                                          // have 12 channels
    same_model("llama_tied", "");
    same_model("qwen2", "transform_type: random-hadamard");
    same_model("qwen3", "");
    same_model("granite", "transform_type: random-hadamard"); // the hidden size of granite is 40
    same_model("qwen3_moe", "transform_type: random-hadamard");
    same_model("mixtral", "");
    same_model("qwen3_moe_stacked", ""); // qwen3_moe_stacked has all experts of a layer in one
                                         // tensor
    same_model("smollm3", "");
    same_model("ministral3", "transform_type: random-hadamard");
    same_model("mistral_window", "");
    same_model("glm4_moe", "transform_type: random-hadamard");
    same_model("qwen2_moe", ""); // the shared expert of qwen2_moe has a gate
    same_model("deepseek_v2", "rotations: [R1], transform_type: random-matrix");
    /* Rotations that are computed in the forward pass (R4, R3) must not change the logits
     * either. */
    same_model("llama_default", "rotations: [R1, R2, R4], transform_type: random-hadamard");
    same_model("llama_default", "rotations: [R3]");
    same_model("qwen3", "rotations: [R1, R2, R3, R4], transform_type: random-hadamard, seed: 4");
    same_model("llama_bias", "rotations: [R3], transform_type: random-hadamard"); // the heads of
                                                                                  // llama_bias have
                                                                                  // 12 channels
    same_model("smollm3", "rotations: [R2, R3]"); // some layers of smollm3 have no rope
    same_model("llama_tied",
               "rotations: [R4], transform_type: random-hadamard, transform_block_size: 4");
    same_model("llama_default",
               "QuIP rotations: v, transform_type: hadamard, transform_block_size: 8");
    same_model("llama_tied", "QuIP rotations: [v, u], seed: 3");
    same_model("qwen3",
               "QuIP rotations: u, transform_block_size: 4, ignore: [lm_head, 're:.*k_proj']");
}

/* Some rotations are computed in each forward pass of the model. The output must have one matrix
 * for each size of these rotations, and config.json must list the modules that use the matrix. */
static void test_matrices_of_outputs(void **state)
{
    fixture f;
    osh_tensor *t = NULL;
    char *text = NULL;
    (void)state;
    fixture_open(&f, "llama_default", "QuIP rotations: [v, u], seed: 5, precision: float32");
    assert_ok(f.cx, osh_plan_rotations(f.cx, &f.p.rewrites, &f.p.in));
    const osh_online *o = &f.p.rewrites.rotated->online;
    assert_true(o->n_matrices > 2);
    for (int i = 0; i < o->n_matrices; i++) {
        const osh_online_matrix *m = &o->matrices[i];
        assert_ok(f.cx,
                  osh_checkpoint_load(f.cx, &t, f.p.in.ck, m->name, 2, (int64_t[]){m->n, m->n}));
        assert_int_equal(t->dtype, OSH_F32);
        double *of = matrix(f.cx, &m->r, false, false), root = sqrt((double)m->n);
        for (int64_t k = 0; k < m->n * m->n; k++) {
            float sign = ((const float *)t->data)[k];
            if (fabsf(sign) != 1 || fabs(of[k] * root - sign) > 1e-5)
                fail_msg("%s[%ld]: %g", m->name, (long)k, sign);
        }
        free(of);
        osh_tensor_free(f.cx, t);
    }
    assert_string_equal(o->matrices[0].name, "model.layers.0.self_attn.q_proj.v_input.weight");
    assert_true(osh_q_is_matrix(&f.p.rewrites.rotated->transforms, o->matrices[0].name));
    assert_false(osh_q_is_matrix(&f.p.rewrites.rotated->transforms,
                                 "model.layers.0.self_attn.q_proj.weight"));
    assert_ok(f.cx, osh_q_transforms_print(f.cx, &text, &f.p.rewrites.rotated->transforms));
    static const char *const parts[] = {"\"precision\": \"torch.float32\"",
                                        "\"location\": \"weight_output\"",
                                        "\"type\": \"random-hadamard\"", "\"head_dim\": null"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(text, parts[i])) fail_msg("no %s in %s", parts[i], text);
    osh_free(f.cx, text);
    fixture_close(&f);
}

/* R3 rotates queries and keys by one matrix. The matrix has the name of the queries. */
static void test_heads(void **state)
{
    fixture f;
    char *text = NULL;
    (void)state;
    fixture_open(&f, "llama_default", "rotations: [R3]");
    assert_ok(f.cx, osh_plan_rotations(f.cx, &f.p.rewrites, &f.p.in));
    const osh_online *o = &f.p.rewrites.rotated->online;
    assert_int_equal(o->n_matrices, 1);
    assert_string_equal(o->matrices[0].name, "model.layers.0.self_attn.R3_q_attn.weight");
    assert_true(osh_q_is_matrix(&f.p.rewrites.rotated->transforms, o->matrices[0].name));
    assert_true(osh_online_attends(&f.p.rewrites));
    /* `turns` has a rotation of queries, then one of keys, and so on. */
    for (int i = 0; i < o->n_turns; i++) assert_int_equal(o->turns[i].in, i % 2);
    assert_ok(f.cx, osh_q_transforms_print(f.cx, &text, &f.p.rewrites.rotated->transforms));
    static const char *const parts[] = {"\"location\": \"q_attn\"", "\"location\": \"k_cache\"",
                                        "re:.*self_attn$"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(text, parts[i])) fail_msg("no %s in %s", parts[i], text);
    osh_free(f.cx, text);
    fixture_close(&f);
}

/* A loader ties the head if config.json says so, even if the checkpoint has a head. So a rotated
 * head must be untied in config.json. */
static void test_untied(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        fixture f;
        fixture_open(&f, k ? "llama_default" : "llama_tied", "");
        if (k == 1) f.p.in.ck->config->tie_word_embeddings = true;
        assert_ok(f.cx, osh_plan_rotations(f.cx, &f.p.rewrites, &f.p.in));
        assert_int_equal(osh_is_untied(&f.p.rewrites), k < 2);
        assert_non_null(osh_checkpoint_find(f.p.in.ck, "lm_head.weight"));
        fixture_close(&f);
    }
}

static void test_refused(void **state)
{
    static const struct {
        const char *model, *keys, *part;
    } rows[] = {
        {"gemma2", "",
         "post_attention_layernorm (rms_norm) is between a Linear and the residual stream"},
        {"gpt_neox", "", "(layer_norm) subtracts means"},
        {"llama_default", "transform_block_size: 12", "12 does not divide the hidden size 32"},
        {"granite", "", "transform_block_size is not given; 8 divides them"},
        {"phi3", "transform_type: random-hadamard",
         "R2 cannot rotate the values of model.layers.0.self_attn"},
        {"deepseek_v2", "transform_type: random-matrix", "R2 cannot rotate the values"},
        {"llava", "", "has a tower whose outputs join the residual stream"},
        {"opt", "", "(positions) reads it"},
        {"gpt_oss", "transform_type: random-hadamard", "a part of a tensor that must not change"},
        {"olmo2", "", "(linear) reads it"},
        {"llama_default", "QuIP ignore: []",
         "v acts on lm_head while the model runs, and no loader rotates the input"},
        {"llama_default", "QuIP ignore: [lm_head, 're:.*k_proj']",
         "so want both as targets, or none of them"},
        {"llama_default", "QuIP targets: Embedding", "match no Linear"},
        {"llama_default", "QuIP transform_block_size: 5",
         "32 channels, and blocks of 5 do not divide them"},
        {"qwen2", "QuIP ", "vLLM does not rotate at a Linear with a bias"},
        {"mixtral", "QuIP ignore: [lm_head, 're:.*gate']",
         "the kernels of vLLM for experts do not rotate"},
        {"mixtral", "rotations: [R4], transform_block_size: 8",
         "the kernels of vLLM for experts do not rotate"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fixture f;
        fixture_open(&f, rows[i].model, rows[i].keys);
        osh_status rc = osh_plan_rotations(f.cx, &f.p.rewrites, &f.p.in);
        if (!rc || !strstr(osh_error_text(f.cx), rows[i].part))
            fail_msg("%s {%s}: '%s', want '%s'", rows[i].model, rows[i].keys,
                     rc ? osh_error_text(f.cx) : "", rows[i].part);
        fixture_close(&f);
    }
}

static osh_status make_again(osh_ctx *cx, void *user)
{
    fixture *f = user;
    osh_tensor *t = NULL;
    osh_status rc = osh_plan_rotations(cx, &f->p.rewrites, &f->p.in);
    if (!rc)
        rc = osh_checkpoint_load(cx, &t, f->p.in.ck, "model.layers.0.self_attn.v_proj.weight", -1,
                                 NULL);
    osh_tensor_free(cx, t);
    osh_plan_rotations_free(cx, &f->p.rewrites);
    osh_free(cx, f->p.rewrites.folded), f->p.rewrites.folded = NULL;
    osh_checkpoint_free_changes(cx, f->p.in.ck);
    return rc;
}

static void test_torture(void **state)
{
    fixture f;
    (void)state;
    fixture_open(&f, "llama_default", "transform_type: random-hadamard");
    assert_true(torture(make_again, &f) > 10);
    fixture_close(&f);
}

/* Makes a plan with a rotation that is computed in each forward pass. The rotation changes the
 * graph and the checkpoint, so each attempt opens the model again. */
static osh_status act_again(osh_ctx *cx, void *user)
{
    fixture *f = user;
    osh_checkpoint *ck = NULL;
    osh_plan p = {.in.recipe = f->p.in.recipe, .in.opt = &f->opt};
    osh_plan_join(&p);
    osh_status rc = osh_checkpoint_open(cx, &ck, f->dir);
    p.in.ck = ck;
    if (!rc) rc = osh_graph_new(cx, &p.in.graph, ck, NULL);
    if (!rc) rc = osh_plan_rotations(cx, &p.rewrites, &p.in);
    osh_graph_free(cx, p.in.graph);
    osh_checkpoint_close(cx, ck);
    osh_plan_rotations_free(cx, &p.rewrites);
    osh_free(cx, p.rewrites.folded);
    return rc;
}

static void test_torture_of_what_acts(void **state)
{
    fixture f;
    (void)state;
    fixture_open(&f, "llama_default", "QuIP rotations: [v, u]");
    assert_true(torture(act_again, &f) > 10);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrices),
        cmocka_unit_test(test_no_matrix),
        cmocka_unit_test(test_same_model),
        cmocka_unit_test(test_untied),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_torture),
        cmocka_unit_test(test_matrices_of_outputs),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_torture_of_what_acts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
