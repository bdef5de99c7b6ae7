/* test_runs.c - compares the codes of whole GPTQ runs with those of LLM Compressor (gen.py). A run
 * is in F32, over a tiny model of one family, with the pipeline basic. Every family is tested under
 * each instruction set (cmake/tests.cmake). Prints the numbers of differing codes.
 *
 * At most 1 in 10,000 of all codes may differ, in at most LOOSE_ROWS rows of all families. In such
 * a row, a value is close to the middle between two codes. Because LLM Compressor sums in a
 * different order, it rounds the value to the other code. The changed error then changes some codes
 * of later columns.
 *
 * In this program, as in the source, the Linears of Mixtral's experts are named w1, w2 and w3. In
 * LLM Compressor they are named gate_proj, down_proj and up_proj. LLM Compressor also quantizes
 * modules that this program leaves dense: modules without data, modules in towers, and experts
 * that loaders do not find. */
#include "golden/job.h"
#include "kernels/kernel_test.h"

enum { LOOSE_ROWS = 2 };
static int64_t all_codes, all_differ;
static int n_cases;

/* Returns the number of rows in which a and b have different codes. Both have the shape [rows,
 * packed words]. */
static int rows_differ(const osh_tensor *a, const osh_tensor *b)
{
    int n = 0;
    size_t row = (size_t)a->shape[1] * sizeof(int32_t);
    for (int64_t r = 0; r < a->shape[0]; r++)
        n += memcmp((const char *)a->data + (size_t)r * row,
                    (const char *)b->data + (size_t)r * row, row) != 0;
    return n;
}

/* Returns LLM Compressor's tensor for a tensor of the output (own), or NULL if there is none.
 * Translates the names of Mixtral's experts. */
static osh_tensor *find_theirs(osh_ctx *cx, const osh_container *want, const char *tensor)
{
    static const char *const names[][2] = {
        {".w1.", ".gate_proj."}, {".w2.", ".down_proj."}, {".w3.", ".up_proj."}};
    osh_tensor *t = job_tensor(cx, want, tensor);
    for (size_t i = 0; !t && i < sizeof names / sizeof *names; i++) {
        const char *at = strstr(tensor, names[i][0]);
        char *name =
            at ? osh_sprintf(cx, "%.*s%s%s", (int)(at - tensor), tensor, names[i][1], at + 4)
               : NULL; // own
        if (name) t = job_tensor(cx, want, name);
        osh_free(cx, name);
    }
    return t;
}

/* Checks that every quantized module of the output is quantized in LLM Compressor, and compares the
 * codes. Adds the number of rows that differ to *loose. */
static void compare_all(osh_ctx *cx, const char *name, const osh_container *out,
                        const osh_container *want, int *loose)
{
    int64_t codes = 0, differ = 0;
    int modules = 0;
    for (int64_t i = 0; i < osh_container_count(out); i++) {
        const char *tensor = osh_container_at(out, i)->name;
        if (!tiny_ends(tensor, ".weight_packed")) continue;
        osh_tensor *a = job_tensor(cx, out, tensor), *b = find_theirs(cx, want, tensor); // own
        if (!b) fail_msg("%s: %s has codes here alone", name, tensor);
        assert_int_equal(osh_tensor_bytes(a), osh_tensor_bytes(b));
        int64_t k = job_codes_differ(a->data, b->data, osh_tensor_bytes(a));
        if (k)
            printf("%s: %s: %lld codes of %d rows differ\n", name, tensor, (long long)k,
                   rows_differ(a, b));
        *loose += rows_differ(a, b), differ += k, codes += 2 * (int64_t)osh_tensor_bytes(a),
            modules++;
        osh_tensor_free(cx, a), osh_tensor_free(cx, b);
    }
    printf("%-20s %lld of %lld codes differ, %d modules\n", name, (long long)differ,
           (long long)codes, modules);
    assert_true(modules >= 4 && codes > 8000);
    all_codes += codes, all_differ += differ, n_cases++;
}

static void run_case(void **state)
{
    const char *name = *state;
    osh_ctx *cx = NULL;
    osh_options opt = {0};
    osh_container *out = NULL, *want = NULL;
    char dir[] = "runs-XXXXXX", path[300];
    int loose = 0;
    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    osh_log_setup(cx, OSH_LOG_ERROR, OSH_PROGRESS_NONE);
    assert_non_null(mkdtemp(dir));
    job_write(cx, &opt, dir, name);
    assert_ok(cx, osh_option_set(cx, &opt, "pipeline", "basic"));
    assert_ok(cx, osh_oneshot(cx, &opt, job_ignore, NULL));
    snprintf(path, sizeof path, "%s/out/model.safetensors", dir);
    assert_ok(cx, osh_container_open(cx, &out, path));
    snprintf(path, sizeof path, "%s/tests/golden/runs/%s.safetensors", OSH_SOURCE_DIR, name);
    assert_ok(cx, osh_container_open(cx, &want, path));
    compare_all(cx, name, out, want, &loose);
    assert_true(loose <= LOOSE_ROWS);
    osh_container_close(cx, out), osh_container_close(cx, want);
    tiny_check(cx, osh_dir_remove(cx, dir));
    osh_fields_deinit(cx, osh_option_fields, &opt);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

static void test_all_codes(void **state)
{
    (void)state;
    printf("%lld of %lld codes of %d models differ (limit 1 in 10,000)\n", (long long)all_differ,
           (long long)all_codes, n_cases);
    assert_true(all_differ * 10000 <= all_codes);
}

#define CASE(x) TINY_CASE(run_case, x)
int main(void)
{
    int unable = pin_isa();
    if (unable) return unable;
    const struct CMUnitTest tests[] = {
        CASE(llama_default),
        CASE(mistral_window),
        CASE(ministral3),
        CASE(qwen2),
        CASE(qwen3),
        CASE(gemma2),
        CASE(gemma3),
        CASE(gemma4),
        CASE(gemma4_k_eq_v),
        CASE(gemma4_moe),
        CASE(gemma4_vision),
        CASE(phi3),
        CASE(phi3_longrope),
        CASE(granite),
        CASE(olmo2),
        CASE(olmo3),
        CASE(glm4),
        CASE(smollm3),
        CASE(stablelm),
        CASE(stablelm_parallel),
        CASE(falcon),
        CASE(falcon_new),
        CASE(falcon_old),
        CASE(opt),
        CASE(opt_after),
        CASE(gpt_neox),
        CASE(gpt_neox_serial),
        CASE(mixtral),
        CASE(qwen2_moe),
        CASE(qwen3_moe),
        CASE(qwen3_moe_stacked),
        CASE(glm4_moe),
        CASE(deepseek_v2),
        CASE(deepseek_v3),
        CASE(gpt_oss),
        CASE(qwen3_next),
        CASE(qwen3_5),
        CASE(qwen3_5_moe),
        CASE(granite_hybrid),
        CASE(granite_hybrid_moe),
        CASE(mamba2),
        CASE(llava),
        CASE(gemma3_vision),
        CASE(qwen2_5_vl),
        CASE(qwen3_vl),
        CASE(mllama),
        cmocka_unit_test(test_all_codes), // must run last, because it checks the sums over all
                                          // cases
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
