/* test_ckpt_experts.c - tests experts that are split from one stacked tensor. Every element must be
 * correct in both layouts of the stacked tensor, whether an expert is read whole or in ranges of
 * rows. A changed file must be detected. Shapes that fit no layout must be refused. Experts that
 * only vLLM finds must be split on request. */
#include <stdio.h>

#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "torture.h"
#include "unit/dir_fixture.h"

enum { E = 2, F = 70, D = 37, N_UP = E * 2 * F * D, N_DOWN = E * F * D };

static char up_name[64] = "model.layers.0.mlp.experts.gate_up_proj",
            down_name[64] = "model.layers.0.mlp.experts.down_proj",
            other_name[] = "model.layers.0.mlp.experts.1.up_proj.weight";

/* Writes the stacked tensors. Element i has the value i in gate_up, and the value -1 - i in
 * down. */
static void put_experts(fixture *f, const char *type, bool transposed, bool bad, bool twice)
{
    int rows[2] = {transposed ? D : 2 * F, transposed ? F : D};
    int columns[2] = {transposed ? 2 * F : D, transposed ? D : F};
    osh_entry e[3] = {
        {.name = up_name, .dtype = OSH_F32, .ndim = 3, .shape = {E, rows[0], columns[0]}},
        {.name = down_name, .dtype = OSH_F32, .ndim = 3, .shape = {E, rows[1], columns[1]}},
        {.name = other_name, .dtype = OSH_F32, .ndim = 1, .shape = {0}}};
    float *data = malloc((N_UP + N_DOWN + 4096) * sizeof *data);
    char *header = NULL, config[128];
    size_t n = 0;
    if (bad) e[0].shape[1] -= 1, e[0].shape[2] += 1;
    assert_int_equal(osh_safetensors_layout_array(f->cx, &header, &n, e, twice ? 3 : 2), OSH_OK);
    memcpy(data, header, n);
    for (int k = 0; k < 3; k++) {
        float *to = (float *)((char *)data + e[k].begin);
        for (int64_t i = 0; i < (e[k].end - e[k].begin) / 4; i++)
            to[i] = e[k].name == up_name ? (float)i : (float)(-1 - i);
    }
    snprintf(config, sizeof config, "{\"architectures\": [\"X\"], \"model_type\": \"%s\"}", type);
    put_text(f, "config.json", config);
    int64_t end = 0;
    for (int k = 0; k < 3; k++) end = e[k].end > end ? e[k].end : end;
    put(f, "model.safetensors", data, (size_t)end);
    osh_free(f->cx, header);
    free(data);
}

/* Returns the element of expert e at row r and column c of gate (0), up (1) or down (2). */
static float want(bool transposed, int e, int part, int r, int c)
{
    if (part == 2) return (float)(-1 - (transposed ? (e * F + c) * D + r : (e * D + r) * F + c));
    return (float)(transposed ? (e * D + c) * 2 * F + part * F + r
                              : (e * 2 * F + part * F + r) * D + c);
}

static void check_part(fixture *f, osh_checkpoint *ck, bool transposed, int e, int part)
{
    static const char *const leaves[] = {"gate", "up", "down"};
    int rows = part == 2 ? D : F, columns = part == 2 ? F : D;
    char name[128];
    osh_tensor *t = NULL;
    snprintf(name, sizeof name, "model.layers.0.mlp.experts.%d.%s_proj.weight", e, leaves[part]);
    assert_int_equal(osh_checkpoint_load(f->cx, &t, ck, name, 2, (int64_t[]){rows, columns}),
                     OSH_OK);
    for (int i = 0; i < rows * columns; i++)
        assert_true(((float *)t->data)[i] == want(transposed, e, part, i / columns, i % columns));
    const osh_ckpt_tensor *at = osh_checkpoint_find(ck, name);
    float some[F * D];
    for (int first = 0; first < rows * columns; first += 101)
        for (int n = 1; first + n <= rows * columns; n = 3 * n + 7) {
            memset(some, 0, sizeof some);
            assert_int_equal(osh_container_read_part(f->cx, some, ck->shards[0], at->e, 4 * first,
                                                     (size_t)(4 * n)),
                             OSH_OK);
            assert_memory_equal(some, (float *)t->data + first, 4 * n);
        }
    osh_tensor_free(f->cx, t);
}

static void test_layouts(void **state)
{
    fixture *f = *state;
    for (int transposed = 0; transposed < 2; transposed++) {
        osh_checkpoint *ck = NULL;
        put_experts(f, transposed ? "llama4_text" : "qwen3_moe", transposed, false, false);
        assert_int_equal(osh_checkpoint_open(f->cx, &ck, f->dir), OSH_OK);
        assert_int_equal(ck->n_tensors, 3 * E);
        assert_null(osh_checkpoint_find(ck, up_name));
        assert_null(osh_checkpoint_find(ck, down_name));
        for (int i = 0; i < 3 * E; i++) check_part(f, ck, transposed, i / 3, i % 3);
        osh_checkpoint_close(f->cx, ck);
    }
}

/* The checksum of an expert is computed from the bytes that are read for the expert. If one element
 * of the file changes, the checksum of one expert must change. */
static void test_sums(void **state)
{
    fixture *f = *state;
    for (int transposed = 0; transposed < 2; transposed++) {
        osh_checkpoint *ck = NULL;
        osh_tensor *t = NULL;
        osh_stamp stamp;
        char *diff = NULL, path[128];
        put_experts(f, "qwen3_moe", transposed, false, false);
        assert_int_equal(osh_checkpoint_open(f->cx, &ck, f->dir), OSH_OK);
        assert_int_equal(osh_checkpoint_watch(f->cx, ck), OSH_OK);
        for (int64_t i = 0; i < ck->n_tensors; i++) {
            assert_int_equal(osh_checkpoint_see(f->cx, ck, i), OSH_OK);
            assert_int_equal(osh_checkpoint_load(f->cx, &t, ck, ck->tensors[i].e->name, -1, NULL),
                             OSH_OK);
            osh_tensor_free(f->cx, t), t = NULL;
        }
        assert_int_equal(osh_checkpoint_reread(f->cx, &diff, &stamp, ck, 0), OSH_OK);
        assert_null(diff);
        const osh_entry *e =
            osh_checkpoint_find(ck, "model.layers.0.mlp.experts.1.up_proj.weight")->e;
        osh_file *file = NULL;
        snprintf(path, sizeof path, "%s/model.safetensors", f->dir);
        assert_int_equal(osh_file_open_rw(f->cx, &file, path), OSH_OK);
        assert_int_equal(
            osh_file_pwrite(f->cx, file, "x", 1, e->row ? e->at + e->column : e->begin + 4),
            OSH_OK);
        osh_file_close(f->cx, file);
        assert_int_equal(osh_checkpoint_reread(f->cx, &diff, &stamp, ck, 0), OSH_OK);
        assert_non_null(diff);
        assert_non_null(strstr(diff, "experts.1.up_proj.weight"));
        osh_free(f->cx, diff);
        osh_checkpoint_close(f->cx, ck);
    }
}

static void check_refused(fixture *f, const char *words)
{
    osh_checkpoint *ck = NULL;
    assert_int_equal(osh_checkpoint_open(f->cx, &ck, f->dir), OSH_E_FORMAT);
    if (!strstr(osh_error_text(f->cx), words))
        fail_msg("no '%s' in: %s", words, osh_error_text(f->cx));
    osh_error_clear(f->cx);
}

static void test_refused(void **state)
{
    fixture *f = *state;
    osh_checkpoint *ck = NULL;
    put_experts(f, "qwen3_moe", false, true, false);
    check_refused(f,
                  "are not experts of one size: want [E, 2F, D] and [E, D, F], or both transposed");
    put_experts(f, "qwen3_moe", false, false, true);
    check_refused(f,
                  "experts.1.up_proj.weight is stored twice: alone, and in one tensor with others");
    // gpt_oss stays stacked, because its loaders need one tensor for all experts
    put_experts(f, "gpt_oss", true, false, false);
    assert_int_equal(osh_checkpoint_open(f->cx, &ck, f->dir), OSH_OK);
    assert_int_equal(ck->n_tensors, 2);
    osh_checkpoint_close(f->cx, ck);
}

static void check_elements(fixture *f, osh_checkpoint *ck, const char *name, bool transposed, int e,
                           int part)
{
    int rows = part == 2 ? D : part == 3 ? 2 * F : F, columns = part == 2 ? F : D;
    osh_tensor *t = NULL;
    assert_int_equal(osh_checkpoint_load(f->cx, &t, ck, name, 2, (int64_t[]){rows, columns}),
                     OSH_OK);
    for (int i = 0; i < rows * columns; i++) // part 3: gate and up in one tensor
        assert_true(((float *)t->data)[i] ==
                    want(transposed, e, part == 3 ? 0 : part, i / columns, i % columns));
    osh_tensor_free(f->cx, t);
}

/* Tests the names of experts for vLLM. Granite's experts have unusual names in the checkpoint. Gate
 * and up of a gpt-oss expert stay in one tensor, and the codes of this tensor have another name in
 * the output. */
static void test_for_vllm(void **state)
{
    fixture *f = *state;
    osh_checkpoint *ck = NULL;
    char was[2][64], *name;
    memcpy(was[0], up_name, 64), memcpy(was[1], down_name, 64);
    strcpy(up_name, "model.layers.0.block_sparse_moe.input_linear.weight");
    strcpy(down_name, "model.layers.0.block_sparse_moe.output_linear.weight");
    put_experts(f, "granitemoe", false, false, false);
    assert_int_equal(osh_checkpoint_open(f->cx, &ck, f->dir), OSH_OK);
    assert_int_equal(ck->n_tensors, 2);
    assert_int_equal(osh_checkpoint_part_for_vllm(f->cx, ck), OSH_OK);
    assert_int_equal(ck->n_tensors, 3 * E);
    check_elements(f, ck, "model.layers.0.block_sparse_moe.experts.1.up_proj.weight", false, 1, 1);
    check_elements(f, ck, "model.layers.0.block_sparse_moe.experts.0.down_proj.weight", false, 0,
                   2);
    osh_checkpoint_close(f->cx, ck), ck = NULL;

    memcpy(up_name, was[0], 64), memcpy(down_name, was[1], 64);
    put_experts(f, "gpt_oss", true, false, false);
    assert_int_equal(osh_checkpoint_open(f->cx, &ck, f->dir), OSH_OK);
    assert_int_equal(osh_checkpoint_part_for_vllm(f->cx, ck), OSH_OK);
    assert_int_equal(ck->n_tensors, 2 * E);
    check_elements(f, ck, "model.layers.0.mlp.experts.1.gate_up_proj.weight", true, 1, 3);
    check_elements(f, ck, "model.layers.0.mlp.experts.1.down_proj.weight", true, 1, 2);
    name = osh_checkpoint_name_of(f->cx, ck, "a.experts.1.gate_up_proj", "weight_packed");
    assert_string_equal(name, "a.experts.1.w13_weight_packed");
    osh_free(f->cx, name);
    name = osh_checkpoint_name_of(f->cx, ck, "a.experts.1.gate_up_proj", "weight_scale");
    assert_string_equal(name, "a.experts.1.gate_up_proj.weight_scale");
    osh_free(f->cx, name);
    osh_checkpoint_close(f->cx, ck), ck = NULL;

    strcpy(up_name, "model.layers.0.mlp.experts.3.w13_weight_packed");
    put_experts(f, "gpt_oss", true, false, false);
    assert_int_equal(osh_checkpoint_open(f->cx, &ck, f->dir), OSH_OK);
    memcpy(up_name, was[0], 64);
    const osh_ckpt_tensor *t =
        osh_checkpoint_find(ck, "model.layers.0.mlp.experts.3.gate_up_proj.weight_packed");
    assert_non_null(t);
    assert_ptr_equal(t, osh_checkpoint_find(ck, "model.layers.0.mlp.experts.3.w13_weight_packed"));
    assert_string_equal(osh_checkpoint_name_in_file(ck, t - ck->tensors),
                        "model.layers.0.mlp.experts.3.w13_weight_packed");
    osh_checkpoint_close(f->cx, ck);
}

static osh_status open_it(osh_ctx *cx, void *user)
{
    osh_checkpoint *ck = NULL;
    osh_status rc = osh_checkpoint_open(cx, &ck, user);
    if (!rc) rc = osh_checkpoint_part_for_vllm(cx, ck);
    osh_checkpoint_close(cx, ck);
    return rc;
}

static void test_torture(void **state)
{
    fixture *f = *state;
    put_experts(f, "qwen3_moe", true, false, false);
    torture(open_it, f->dir);
    put_experts(f, "gpt_oss", true, false, false);
    torture(open_it, f->dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_layouts, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_sums, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_refused, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_for_vllm, setup_dir, teardown_dir),
        cmocka_unit_test_setup_teardown(test_torture, setup_dir, teardown_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
