/* test_experts_golden.c - a whole run of GPTQ over a tiny Qwen3-MoE against the same layers gone through with LLM
 * Compressor's quantize_weight and experts (gen.py): scales are the same bytes, at least 99.9 % of the codes the same;
 * and what its passes are said to cost. Under each instruction set (cmake/tests.cmake). Prints the figures. */
#include "golden/models/tiny.h"
#include "kernels/kernel_test.h"
#include "api/api.h"
#include "plan/cost.h"
#include "torture.h"

enum { D = 32, F = 56, FE = 24, Q = 64, K = 32, E = 6, TOP = 2, TOKENS = 292 };

static const char recipe[] =
    "s_stage:\n  q_modifiers:\n    GPTQModifier:\n      ignore: [lm_head]\n      config_groups:\n        g:\n"
    "          targets: [Linear]\n          weights: {num_bits: 4, type: int, symmetric: true, strategy: group, "
    "group_size: 8}\n";

static void write_text(osh_ctx *cx, const char *dir, const char *name, const char *text)
{
    char *path = osh_path_join(cx, dir, name);
    assert_ok(cx, osh_file_write_all(cx, path, text, strlen(text)));
    osh_free(cx, path);
}

/* The case's model, samples and recipe, and the options of a job on them. */
static void write_job(osh_ctx *cx, osh_options *opt, const char *dir)
{
    tiny_case t;
    static char rows[16384], paths[4][64];
    size_t n = 0;
    tiny_open(cx, &t, "qwen3_moe");
    tiny_write(cx, &t, dir, OSH_F32);
    for (int s = 0; s < t.n_samples; s++)
        for (int64_t i = t.offsets[s]; i < t.offsets[s + 1]; i++)
            n += (size_t)snprintf(rows + n, sizeof rows - n, "%s%d%s", i == t.offsets[s] ? "{\"input_ids\": [" : ", ",
                                  t.ids[i], i + 1 == t.offsets[s + 1] ? "]}\n" : "");
    assert_int_equal(t.offsets[t.n_samples], TOKENS);
    tiny_close(&t);
    write_text(cx, dir, "rows.jsonl", rows);
    write_text(cx, dir, "recipe.yaml", recipe);
    const char *const set[][2] = {
        {"model", ""}, {"dataset", "rows.jsonl"}, {"recipe", "recipe.yaml"}, {"output", "out"}};
    assert_ok(cx, osh_fields_default(cx, osh_option_fields, opt));
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", dir, set[i][1]);
        assert_ok(cx, osh_option_set(cx, opt, set[i][0], paths[i]));
    }
    assert_ok(cx, osh_option_set(cx, opt, "device", "cpu"));
    if (getenv("OSH_TEST_ISA")) assert_ok(cx, osh_option_set(cx, opt, "isa", getenv("OSH_TEST_ISA")));
    assert_ok(cx, osh_option_set(cx, opt, "max-seq-length", "128"));
    assert_ok(cx, osh_option_set(cx, opt, "num-calibration-samples", "4"));
    assert_ok(cx, osh_option_set(cx, opt, "threads", "2"));
}

static void ignore(void *user, const char *text, size_t n) { (void)user, (void)text, (void)n; }

static osh_tensor *tensor_of(osh_ctx *cx, const osh_st *st, const char *module, const char *leaf)
{
    char name[128];
    osh_tensor *t = NULL;
    snprintf(name, sizeof name, "%s.%s", module, leaf);
    const osh_st_entry *e = NULL;
    for (int64_t i = 0; i < osh_st_count(st) && !e; i++)
        if (!strcmp(osh_st_at(st, i)->name, name)) e = osh_st_at(st, i);
    if (!e) fail_msg("no tensor %s", name);
    assert_ok(cx, osh_tensor_new(cx, &t, e->dtype, e->ndim, e->shape));
    assert_ok(cx, osh_st_read(cx, t->data, st, e));
    return t;
}

/* Codes that differ: of both 4 bits each, from the lowest on. */
static int64_t compare(osh_ctx *cx, const osh_st *out, const osh_st *want, const char *module, int64_t *n)
{
    int64_t differ = 0;
    osh_tensor *packed = tensor_of(cx, out, module, "weight_packed"), *codes = tensor_of(cx, want, module, "codes");
    osh_tensor *scale = tensor_of(cx, out, module, "weight_scale"), *theirs = tensor_of(cx, want, module, "scale");
    assert_int_equal(osh_tensor_bytes(scale), osh_tensor_bytes(theirs));
    assert_memory_equal(scale->data, theirs->data, osh_tensor_bytes(scale));
    *n = 2 * osh_tensor_numel(codes);
    assert_int_equal(osh_tensor_bytes(packed) * 2, *n); // every row is whole words
    for (int64_t i = 0; i < *n / 2; i++) {
        int x = ((const uint8_t *)packed->data)[i] ^ ((const uint8_t *)codes->data)[i];
        differ += ((x & 15) != 0) + ((x & 240) != 0);
    }
    osh_tensor_free(cx, packed), osh_tensor_free(cx, codes), osh_tensor_free(cx, scale), osh_tensor_free(cx, theirs);
    return differ;
}

static void compare_run(const char *all_experts, const char *golden)
{
    osh_ctx *cx = NULL;
    osh_options opt = {0};
    osh_st *out = NULL, *want = NULL;
    char dir[] = "experts-XXXXXX", path[300];
    int64_t differ = 0, all = 0;
    int modules = 0;
    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    assert_non_null(mkdtemp(dir));
    write_job(cx, &opt, dir);
    assert_ok(cx, osh_option_set(cx, &opt, "moe-calibrate-all-experts", all_experts));
    assert_ok(cx, osh_oneshot(cx, &opt, ignore, NULL));
    snprintf(path, sizeof path, "%s/out/model.safetensors", dir);
    assert_ok(cx, osh_st_open(cx, &out, path));
    snprintf(path, sizeof path, "%s/tests/golden/experts/%s", OSH_SOURCE_DIR, golden);
    assert_ok(cx, osh_st_open(cx, &want, path));
    for (int64_t i = 0; i < osh_st_count(want); i++) {
        char module[128];
        const osh_st_entry *e = osh_st_at(want, i);
        size_t len = strlen(e->name);
        int64_t n = 0;
        if (!tiny_ends(e->name, ".codes")) continue;
        snprintf(module, sizeof module, "%.*s", (int)(len - strlen(".codes")), e->name);
        int64_t k = compare(cx, out, want, module, &n);
        if (k) printf("%s: %lld of %lld codes differ\n", module, (long long)k, (long long)n);
        differ += k, all += n, modules++;
    }
    assert_int_equal(modules, 3 * 4 + 3 + 2 * 3 * E); // attention, an MLP, experts
    printf("%lld of %lld codes differ (limit 0.1 %%)\n", (long long)differ, (long long)all);
    assert_true(differ * 1000 <= all);
    osh_st_close(cx, out), osh_st_close(cx, want);
    tiny_check(cx, osh_dir_remove(cx, dir));
    osh_fields_deinit(cx, osh_option_fields, &opt);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static void codes_of_a_run(void **state) { (void)state, compare_run("true", "codes.safetensors"); }

/* Experts see the tokens that the router sends to them. */
static void codes_of_routed_tokens(void **state) { (void)state, compare_run("false", "routed.safetensors"); }

/* All tokens go through the experts where their statistics are collected, and through the router, whose choices are
 * counted; behind them those that are routed count. */
static void flops_of_experts(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    osh_options opt = {0};
    osh_plan *p = NULL;
    osh_cost *c = NULL;
    char dir[] = "experts-XXXXXX";
    int n = 0;
    double N = TOKENS, lens[] = {96, 20, 80, 96}, attention = 0;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    assert_non_null(mkdtemp(dir));
    write_job(cx, &opt, dir);
    assert_ok(cx, osh_plan_new(cx, &p, &opt));
    assert_ok(cx, osh_cost_new(cx, &c, &n, p));
    assert_int_equal(n, 1 + 3 + 1);
    for (int s = 0; s < 4; s++) attention += 4.0 * Q * lens[s] * (lens[s] + 1) / 2;
    double before = 2 * N * (2 * D * Q + 2 * D * K) + attention, router = 2 * N * D * E;
    double expert = 2 * N * D * FE, hessians = N * (2 * D * (D + 1.0) + Q * (Q + 1.0) + E * FE * (FE + 1.0));
    assert_true(fabs(c[1].flops[OSH_PHASE_OBSERVE] / (before + router + E * 2 * expert + hessians) - 1) < 1e-9);
    assert_true(fabs(c[1].flops[OSH_PHASE_PROPAGATE] / (before + router + TOP * 3 * expert) - 1) < 1e-9);
    double factors = 2.0 / 3 * (2 * pow(D, 3) + pow(Q, 3) + E * pow(FE, 3));
    double solves = D * D * (Q + 2.0 * K) + D * Q * (double)Q + E * (2.0 * FE * D * D + D * FE * (double)FE);
    assert_true(fabs(c[1].flops[OSH_PHASE_SOLVE] / (factors + 2 * solves) - 1) < 1e-9);
    osh_free(cx, c);
    osh_plan_free(cx, p);
    tiny_check(cx, osh_dir_remove(cx, dir));
    osh_fields_deinit(cx, osh_option_fields, &opt);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

int main(void)
{
    int unable = pin_isa();
    if (unable) return unable;
    const struct CMUnitTest tests[] = {cmocka_unit_test(codes_of_a_run), cmocka_unit_test(codes_of_routed_tokens),
                                       cmocka_unit_test(flops_of_experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
