/* test_recipes.c - plans each recipe of tests/recipes on the small model in examples/. The first
 * line of a recipe says the expected result:
 *
 *   # planned             the recipe is planned, and the log has no message about a key
 *   # noted: TEXT         the recipe is planned, and the log has TEXT, about a key without effect
 *   # refused: TEXT       the recipe is refused, and the error has TEXT
 *
 * Every key of LLM Compressor's modifiers, schemes and arguments is in some recipe. */
#include "torture.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "plan/plan.h"

static const char folder[] = OSH_SOURCE_DIR "/tests/recipes";
static const char model[] = OSH_SOURCE_DIR "/examples/docs-llama-3m";

typedef struct heard {
    char text[8192];
    size_t n;
} heard;

static void hear(void *user, osh_log_level level, const char *text)
{
    heard *h = user;
    if (level > OSH_LOG_INFO || h->n + strlen(text) + 2 > sizeof h->text) return;
    h->n += (size_t)snprintf(h->text + h->n, sizeof h->text - h->n, "%s\n", text);
}

/* Plans a recipe. Sets *said to the error or the log messages. */
static osh_status plan_one(osh_ctx *cx, const char *path, heard *said)
{
    osh_options opt = {0};
    osh_plan *p = NULL;
    char data[512], recipe[512], dir[512];
    snprintf(data, sizeof data, "%s/data/calibration.jsonl", model);
    snprintf(recipe, sizeof recipe, "%s", path);
    snprintf(dir, sizeof dir, "%s", model);
    said->n = 0, said->text[0] = 0;
    assert_ok(cx, osh_fields_default(cx, osh_option_fields, &opt));
    char *sets[] = {data};
    opt.model = dir, opt.dataset = (osh_strs){sets, 1}, opt.recipe = recipe;
    opt.num_calibration_samples = 1, opt.max_seq_length = 16;
    osh_log_setup(cx, OSH_LOG_INFO, OSH_PROGRESS_NONE);
    osh_log_tell(cx, hear, said);
    osh_status rc = osh_plan_new(cx, &p, &opt);
    if (rc) snprintf(said->text, sizeof said->text, "%s", osh_error_text(cx));
    osh_error_clear(cx);
    osh_plan_free(cx, p);
    opt.model = opt.recipe = NULL, opt.dataset = (osh_strs){0};
    osh_fields_deinit(cx, osh_option_fields, &opt);
    return rc;
}

static void outcome_check(osh_ctx *cx, const char *name, const char *path, const char *line,
                          int *count)
{
    heard said;
    osh_status rc = plan_one(cx, path, &said);
    const char *text = strstr(line, ": ") ? strstr(line, ": ") + 2 : "";
    int kind = !strncmp(line, "# planned", 9) ? 0 : !strncmp(line, "# noted: ", 9) ? 1 : 2;
    if (kind == 2 && strncmp(line, "# refused: ", 11))
        fail_msg("%s: '%s' is no outcome", name, line);
    if (kind < 2 && rc) fail_msg("%s: refused: %s", name, said.text);
    if (kind == 2 && !rc) fail_msg("%s: planned", name);
    if (kind && !strstr(said.text, text))
        fail_msg("%s: '%s' does not hold '%s'", name, said.text, text);
    if (kind == 0 && strstr(said.text, "has no effect")) fail_msg("%s: '%s'", name, said.text);
    if (kind == 2 && rc != OSH_E_USAGE && rc != OSH_E_UNSUPPORTED && rc != OSH_E_FORMAT)
        fail_msg("%s: %d", name, rc);
    count[kind]++;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *all_text; // own: text of all recipes

static void test_outcomes(void **state)
{
    enum { MOST = 1000 };
    char *names[MOST]; // own
    int n = 0, count[3] = {0};
    size_t n_text = 0, len;
    (void)state;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) && n < MOST;)
        if (strstr(e->d_name, ".yaml")) names[n++] = strdup(e->d_name);
    closedir(d);
    qsort(names, (size_t)n, sizeof *names, by_name);
    for (int i = 0; i < n; i++) {
        osh_ctx *cx = NULL;
        char path[512], line[200], *text = NULL;
        assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_ok(cx, osh_file_read_all(cx, &text, &len, path, 1 << 16));
        snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
        all_text = realloc(all_text, n_text + len + 1);
        memcpy(all_text + n_text, text, len + 1), n_text += len;
        osh_free(cx, text);
        outcome_check(cx, names[i], path, line, count);
        assert_int_equal(osh_mem_live(cx), 0);
        osh_ctx_free(cx);
        free(names[i]);
    }
    printf("%d planned, %d with a note, %d refused with a reason\n", count[0], count[1], count[2]);
    assert_true(n >= 100);
}

static void test_every_key(void **state)
{
    static const char *const keys[] = {
        // keys and arguments of LLM Compressor 0.14 and compressed-tensors 0.19
        "config_groups",
        "targets",
        "ignore",
        "scheme",
        "kv_cache_scheme",
        "weight_observer",
        "input_observer",
        "output_observer",
        "observer",
        "bypass_divisibility_checks",
        "requires_calibration_data",
        "index",
        "start",
        "end",
        "update",
        "block_size",
        "dampening_frac",
        "actorder",
        "batched_quantization",
        "mappings",
        "offload_device",
        "duo_scaling",
        "n_grid",
        "smoothing_strength",
        "num_calibration_steps",
        "calibration_function",
        "algorithm",
        "sparsity",
        "sparsity_profile",
        "mask_structure",
        "owl_m",
        "owl_lmbda",
        "sequential_update",
        "preserve_sparsity_mask",
        "offload_hessians",
        "init_sparsity",
        "final_sparsity",
        "update_scheduler",
        "scheduler_args",
        "leave_enabled",
        "apply_globally",
        "rotations",
        "transform_type",
        "report_path",
        "num_bits",
        "type",
        "symmetric",
        "group_size",
        "strategy",
        "block_structure",
        "dynamic",
        "scale_dtype",
        "zp_dtype",
        "observer_kwargs",
        "weights",
        "input_activations",
        "output_activations",
        "format",
    };
    static const char *const values[] = {
        "tensor",
        "channel",
        "group",
        "block",
        "token",
        "tensor_group",
        "attn_head",
        "local",
        "memoryless_minmax",
        "static_minmax",
        "minmax",
        "mse",
        "memoryless_mse",
        "imatrix_mse",
        "fouroversix",
        "W4A16",
        "W4A16_ASYM",
        "W8A8",
        "INT8",
        "W4AFP8",
        "FP8",
        "FP8_DYNAMIC",
        "FP8_BLOCK",
        "NVFP4A16",
        "NVFP4",
        "MXFP4A16",
        "MXFP4",
        "MXFP8A16",
        "MXFP8",
        "MXFP6A16",
        "MXFP6A8",
        "MXFP4XFP8",
        "W2A4",
        "W2A8",
        "W2A16",
        "W3A4",
        "W3A8",
        "W3A16",
        "W4A4",
        "W4A8",
        "W5A8",
        "W5A16",
        "W6A8",
        "W6A16",
        "W7A8",
        "W7A16",
        "W8A16",
        "UNQUANTIZED",
        "torch.uint8",
        "torch.float8_e4m3fn",
    };
    (void)state;
    assert_non_null(all_text);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s:", keys[i]);
        if (!strstr(all_text, key)) fail_msg("no recipe has %s", key);
    }
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        const char *at = all_text;
        size_t n = strlen(values[i]);
        while ((at = strstr(at, values[i])) &&
               !(strchr(" [{,:", at[-1]) && strchr("\n,]}: ", at[n])))
            at++;
        if (!at) fail_msg("no recipe has the value %s", values[i]);
    }
    free(all_text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_outcomes),
                                       cmocka_unit_test(test_every_key)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
