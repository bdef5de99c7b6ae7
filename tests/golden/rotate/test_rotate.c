/* test_rotate.c - compares rotated weights with LLM Compressor's SpinQuantModifier. R1 and R2 are
 * Sylvester's Hadamard matrices, norms are fused, and embeddings are centred or not. Each step is
 * rounded to the dtype of the weight. Both programs add in f64, but in different orders, so sums
 * have relative errors of 1e-16. After rounding, one element in 1e8 (F32) or in 1e13 (BF16) could
 * differ. In the cases of this test all elements are equal. */
#include "golden/models/tiny.h"
#include "plan/plan.h"
#include "rewrite/rotations.h"
#include "torture.h"

#include <unistd.h>

static osh_ctx *cx;
static osh_container *st;

static int compare(osh_plan *p, const char *dtype, const char *leaf, const osh_entry *want)
{
    osh_tensor *got = NULL;
    size_t n = (size_t)(want->end - want->begin);
    void *raw = malloc(n);
    assert_ok(cx, osh_checkpoint_load(cx, &got, p->in.ck, leaf, want->ndim, want->shape));
    assert_ok(cx, osh_container_read(cx, raw, st, want));
    assert_int_equal(got->dtype, want->dtype);
    for (size_t i = 0; i < n; i++)
        if (((uint8_t *)raw)[i] != ((uint8_t *)got->data)[i])
            fail_msg("%s/%s: byte %zu differs", dtype, leaf, i);
    osh_tensor_free(cx, got);
    free(raw);
    return 1;
}

static int case_of(const char *dtype, osh_dtype dt, bool centred)
{
    osh_plan p = {0};
    osh_options opt = {0};
    tiny_case t;
    char dir[] = "rotate-XXXXXX", text[300];
    size_t n_prefix = strlen(dtype) + 1;
    int n = 0;
    assert_non_null(mkdtemp(dir));
    tiny_open(cx, &t, "qwen2");
    tiny_write(cx, &t, dir, dt);
    assert_ok(cx, osh_checkpoint_open(cx, &p.in.ck, dir));
    assert_ok(cx, osh_graph_new(cx, &p.in.graph, p.in.ck, NULL));
    snprintf(text, sizeof text,
             "s_modifiers: {SpinQuantModifier: {transform_block_size: 16, center_embeddings: %s}}",
             centred ? "true" : "false");
    assert_ok(cx, osh_recipe_parse(cx, &p.in.recipe, text, strlen(text), "r.yaml"));
    p.in.opt = &opt;
    osh_plan_join(&p);
    assert_ok(cx, osh_plan_rotations(cx, &p.rewrites, &p.in));
    for (int64_t i = 0; i < osh_container_count(st); i++) {
        const osh_entry *e = osh_container_at(st, i);
        if (strncmp(e->name, dtype, n_prefix - 1) || e->name[n_prefix - 1] != '/') continue;
        if (strcmp(e->name + n_prefix, "centred") == 0) {
            if (centred) n += compare(&p, dtype, "model.embed_tokens.weight", e);
        } else if (!centred) {
            n += compare(&p, dtype, e->name + n_prefix, e);
        }
    }
    osh_recipe_free(cx, p.in.recipe);
    osh_graph_free(cx, p.in.graph);
    osh_checkpoint_close(cx, p.in.ck);
    osh_plan_rotations_free(cx, &p.rewrites);
    osh_free(cx, p.rewrites.folded);
    assert_ok(cx, osh_dir_remove(cx, dir));
    tiny_close(&t);
    return n;
}

static void test_weights(void **state)
{
    (void)state;
    assert_int_equal(case_of("BF16", OSH_BF16, false), 15);
    assert_int_equal(case_of("F32", OSH_F32, false), 4);
    assert_int_equal(case_of("BF16", OSH_BF16, true), 1);
    assert_int_equal(case_of("F32", OSH_F32, true), 1);
}

static int setup(void **state)
{
    (void)state;
    static const char path[] = OSH_SOURCE_DIR "/tests/golden/rotate/weights.safetensors";
    if (osh_ctx_new(&cx, 1) || osh_container_open(cx, &st, path)) return 1;
    osh_log_setup(cx, OSH_LOG_ERROR, OSH_PROGRESS_NONE);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    osh_container_close(cx, st);
    int live = osh_mem_live(cx) != 0;
    osh_ctx_free(cx);
    return live;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_weights)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
