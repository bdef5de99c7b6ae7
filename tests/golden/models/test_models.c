/* test_models.c - compares logits of tiny random checkpoints of every architecture and rope type
 * with transformers.
 *
 * F32: max |difference| must be at most 5e-6 times max |logit|.
 * BF16, F16: the error of a case is the mean |difference| between the NLL and the NLL in f32. This
 * error must be at most 1.25 times the error of transformers, plus 1e-4. On average over all cases,
 * the error must be at most 0.96 times the error of transformers.
 *
 * Runs under each instruction set (cmake/tests.cmake). Prints the errors. gen.py makes the files.
 * `test_models DIR CASE` prints the errors of BF16 and F16 for other weights (noise.py). */
#include "golden/models/logits.h"
#include "kernels/kernel_test.h"

#include <unistd.h>

static void compare_f32(osh_ctx *cx, const tiny_case *t, const char *name, const char *dir)
{
    char *file = NULL;
    size_t n = 0;
    int64_t vocab = 0;
    double worst = 0, largest = 0;
    const float *want = tiny_npy(cx, &file, &n, name, ".npy");
    tiny_write(cx, t, dir, OSH_F32);
    float *got = logits_of(cx, dir, NULL, t->ids, t->offsets, t->n_logit_samples, &vocab);
    assert_int_equal(n, t->offsets[t->n_logit_samples] * vocab);
    for (size_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs((double)got[i] - want[i]));
        largest = fmax(largest, fabs((double)want[i]));
    }
    printf("%-28s f32  max |diff| / max |logit| %.2e (limit 5e-6)\n", name, worst / largest);
    assert_true(worst <= 5e-6 * largest);
    free(got);
    osh_free(cx, file);
}

static bool drawn; // true if noise.py has drawn other weights than those of gen.py
/* The sums of log(our error / transformers' error) over the cases, for BF16 and for F16. */
static double log_ratios[2];
static int n_ratios;

/* Compares the NLL of each token with <case>.nll.npy. `row` is 0 for BF16, 2 for F16. In the file,
 * row `row` has the NLL of transformers in f32. The next row has the NLL of transformers in the
 * narrow dtype. */
static void compare_half(osh_ctx *cx, const tiny_case *t, const char *name, const char *dir,
                         osh_dtype dt, int row)
{
    char *file = NULL;
    size_t n = 0, scored = 0;
    int64_t vocab = 0;
    double ours = 0, theirs = 0;
    const float *rows = tiny_npy(cx, &file, &n, name, ".nll.npy");
    n /= 4;
    tiny_write(cx, t, dir, dt);
    float *logits = logits_of(cx, dir, NULL, t->ids, t->offsets, t->n_samples, &vocab);
    for (int s = 0; s < t->n_samples; s++)
        for (int64_t i = t->offsets[s]; i + 1 < t->offsets[s + 1]; i++, scored++) {
            const float *x = logits + i * vocab;
            double max = x[0], sum = 0, truth = rows[(size_t)row * n + scored];
            for (int64_t v = 1; v < vocab; v++) max = fmax(max, x[v]);
            for (int64_t v = 0; v < vocab; v++) sum += exp(x[v] - max);
            ours += fabs(max + log(sum) - x[t->ids[i + 1]] - truth);
            theirs += fabs(rows[(size_t)(row + 1) * n + scored] - truth);
        }
    assert_int_equal(scored, n);
    ours /= (double)n, theirs /= (double)n;
    printf("%-28s %-4s mean |NLL diff| %.6f, transformers %.6f, ratio %.3f (limit 1.25)\n", name,
           dt == OSH_BF16 ? "bf16" : "f16", ours, theirs, ours / theirs);
    if (!drawn) assert_true(ours <= 1.25 * theirs + 1e-4);
    log_ratios[dt == OSH_F16] += log(ours / theirs), n_ratios++;
    free(logits);
    osh_free(cx, file);
}

static void run_case(void **state)
{
    const char *name = *state;
    char dir[] = "models-XXXXXX";
    tiny_case t;
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    assert_non_null(mkdtemp(dir));
    tiny_open(cx, &t, name);
    if (!drawn) compare_f32(cx, &t, name, dir);
    compare_half(cx, &t, name, dir, OSH_BF16, 0);
    compare_half(cx, &t, name, dir, OSH_F16, 2);
    tiny_check(cx, osh_dir_remove(cx, dir));
    tiny_close(&t);
    assert_int_equal(osh_mem_live(cx), 0);
    osh_ctx_free(cx);
}

/* On average over all cases, the error must be smaller than that of transformers, because attention
 * scores are f32. */
static void test_mean_ratio(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        double mean = exp(log_ratios[i] / (n_ratios / 2));
        printf("%s: geometric mean of the ratios %.3f (limit 0.96)\n", i ? "f16" : "bf16", mean);
        assert_true(mean <= 0.96);
    }
}

#define CASE(x) TINY_CASE(run_case, x)
int main(int argc, char **argv)
{
    if (argc == 3) {
        void *name = argv[2];
        drawn = true, tiny_dir = argv[1];
        run_case(&name);
        return 0;
    }
    int unable = pin_isa();
    if (unable) return unable;
    const struct CMUnitTest tests[] = {
        CASE(llama_default),
        CASE(llama_linear),
        CASE(llama_llama3),
        CASE(llama_dynamic),
        CASE(llama_yarn),
        CASE(llama_yarn_mscale),
        CASE(llama_yarn_attention_factor),
        CASE(llama_bias),
        CASE(llama_tied),
        CASE(mistral_window),
        CASE(mistral_no_window),
        CASE(qwen2),
        CASE(qwen2_window),
        CASE(qwen3),
        CASE(qwen3_layer_types),
        CASE(qwen3_moe),
        CASE(qwen3_moe_step),
        CASE(qwen3_moe_stacked),
        CASE(smollm3),
        CASE(granite),
        CASE(olmo2),
        CASE(olmo3),
        CASE(ministral3),
        CASE(stablelm),
        CASE(stablelm_parallel),
        CASE(phi3),
        CASE(phi3_longrope),
        CASE(glm4),
        CASE(gemma2),
        CASE(gemma3),
        CASE(gpt_neox),
        CASE(gpt_neox_serial),
        CASE(opt),
        CASE(opt_after),
        CASE(gpt2),
        CASE(llama4),
        CASE(llama4_two),
        CASE(gemma4),
        CASE(gemma4_k_eq_v),
        CASE(gemma4_moe),
        CASE(gemma4_vision),
        CASE(mamba2),
        CASE(mamba2_limit),
        CASE(granite_hybrid),
        CASE(granite_hybrid_moe),
        CASE(falcon),
        CASE(falcon_new),
        CASE(falcon_old),
        CASE(mixtral),
        CASE(qwen2_moe),
        CASE(glm4_moe),
        CASE(deepseek_v2),
        CASE(deepseek_v3),
        CASE(gpt_oss),
        CASE(qwen3_next),
        CASE(qwen3_5),
        CASE(qwen3_5_moe),
        CASE(llava),
        CASE(gemma3_vision),
        CASE(qwen2_5_vl),
        CASE(qwen3_vl),
        CASE(mllama),
        cmocka_unit_test(test_mean_ratio), // must run last, because it checks the means over all
                                           // cases
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
