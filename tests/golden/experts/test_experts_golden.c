/* test_experts_golden.c - compares a whole GPTQ run over a tiny Qwen3-MoE with LLM Compressor
 * (gen.py). The scales must have the same bytes, and at least 99.9 % of the codes must be equal.
 * Also checks the planned operations of the passes. Runs under each instruction set
 * (cmake/tests.cmake). Prints the numbers of differing codes. */
#include "golden/job.h"
#include "kernels/kernel_test.h"
#include "budget/cost.h"
#include "plan/plan.h"

enum { D = 32, F = 56, FE = 24, Q = 64, K = 32, E = 6, TOP = 2, TOKENS = 292 };

static osh_tensor *tensor_of(osh_ctx *cx, const osh_container *st, const char *module,
                             const char *leaf)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", module, leaf);
    osh_tensor *t = job_tensor(cx, st, name);
    if (!t) fail_msg("no tensor %s", name);
    return t;
}

/* Counts the codes that differ. Both files have 4 bits per code, the lowest bits first. */
static int64_t compare(osh_ctx *cx, const osh_container *out, const osh_container *want,
                       const char *module, int64_t *n)
{
    osh_tensor *packed = tensor_of(cx, out, module, "weight_packed"),
               *codes = tensor_of(cx, want, module, "codes");
    osh_tensor *scale = tensor_of(cx, out, module, "weight_scale"),
               *theirs = tensor_of(cx, want, module, "scale");
    assert_int_equal(osh_tensor_bytes(scale), osh_tensor_bytes(theirs));
    assert_memory_equal(scale->data, theirs->data, osh_tensor_bytes(scale));
    *n = 2 * osh_tensor_numel(codes);
    assert_int_equal(osh_tensor_bytes(packed) * 2, *n); // no padding: each row fills a whole number
                                                        // of words
    int64_t differ = job_codes_differ(packed->data, codes->data, osh_tensor_bytes(packed));
    osh_tensor_free(cx, packed), osh_tensor_free(cx, codes), osh_tensor_free(cx, scale),
        osh_tensor_free(cx, theirs);
    return differ;
}

static void compare_run(const char *all_experts, const char *golden)
{
    osh_ctx *cx = NULL;
    osh_options opt = {0};
    osh_container *out = NULL, *want = NULL;
    char dir[] = "experts-XXXXXX", path[300];
    int64_t differ = 0, all = 0;
    int modules = 0;
    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    assert_non_null(mkdtemp(dir));
    job_write(cx, &opt, dir, "qwen3_moe");
    assert_ok(cx, osh_option_set(cx, &opt, "moe-calibrate-all-experts", all_experts));
    assert_ok(cx, osh_oneshot(cx, &opt, job_ignore, NULL));
    snprintf(path, sizeof path, "%s/out/model.safetensors", dir);
    assert_ok(cx, osh_container_open(cx, &out, path));
    snprintf(path, sizeof path, "%s/tests/golden/experts/%s", OSH_SOURCE_DIR, golden);
    assert_ok(cx, osh_container_open(cx, &want, path));
    for (int64_t i = 0; i < osh_container_count(want); i++) {
        char module[128];
        const osh_entry *e = osh_container_at(want, i);
        size_t len = strlen(e->name);
        int64_t n = 0;
        if (!tiny_ends(e->name, ".codes")) continue;
        snprintf(module, sizeof module, "%.*s", (int)(len - strlen(".codes")), e->name);
        int64_t k = compare(cx, out, want, module, &n);
        if (k) printf("%s: %lld of %lld codes differ\n", module, (long long)k, (long long)n);
        differ += k, all += n, modules++;
    }
    // number of quantized modules: q, k, v and o of 3 layers; gate, up and down of one MLP and of
    // all experts of 2 layers
    assert_int_equal(modules, 3 * 4 + 3 + 2 * 3 * E);
    printf("%lld of %lld codes differ (limit 0.1 %%)\n", (long long)differ, (long long)all);
    assert_true(differ * 1000 <= all);
    osh_container_close(cx, out), osh_container_close(cx, want);
    tiny_check(cx, osh_dir_remove(cx, dir));
    osh_fields_deinit(cx, osh_option_fields, &opt);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static void codes_of_a_run(void **state) { (void)state, compare_run("true", "codes.safetensors"); }

/* Experts are calibrated with the tokens that the router sends to them. */
static void codes_of_routed_tokens(void **state)
{
    (void)state, compare_run("false", "routed.safetensors");
}

/* In the pass that collects statistics, the experts process all tokens. In later passes, they
 * process only the tokens that the router sends to them. */
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
    job_write(cx, &opt, dir, "qwen3_moe");
    assert_ok(cx, osh_plan_new(cx, &p, &opt));
    assert_ok(cx, osh_cost_new(cx, &c, &n, &p->budget));
    assert_int_equal(n, 1 + 3 + 1);
    for (int s = 0; s < 4; s++) attention += 4.0 * Q * lens[s] * (lens[s] + 1) / 2;
    double before = 2 * N * (2 * D * Q + 2 * D * K) + attention, router = 2 * N * D * E;
    double expert = 2 * N * D * FE,
           hessians = N * (2 * D * (D + 1.0) + Q * (Q + 1.0) + E * FE * (FE + 1.0));
    assert_true(fabs(c[1].flops[OSH_PHASE_OBSERVE] / (before + router + E * 2 * expert + hessians) -
                     1) < 1e-9);
    assert_true(fabs(c[1].flops[OSH_PHASE_PROPAGATE] / (before + router + TOP * 3 * expert) - 1) <
                1e-9);
    double factors = 2.0 / 3 * (2 * pow(D, 3) + pow(Q, 3) + E * pow(FE, 3));
    double solves =
        D * D * (Q + 2.0 * K) + D * Q * (double)Q + E * (2.0 * FE * D * D + D * FE * (double)FE);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(codes_of_a_run),
                                       cmocka_unit_test(codes_of_routed_tokens),
                                       cmocka_unit_test(flops_of_experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
