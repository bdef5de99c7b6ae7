/* test_sources.c - dequantizes quantized sources, and compares the weights with those of
 * transformers and compressed-tensors (gen.py), bit for bit. Reads whole tensors. Also reads ranges
 * of elements that begin and end inside a row, inside a block, or inside a word of zero points. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "quant/source.h"
#include "torture.h"

static void path_of(char to[300], const char *name, const char *file)
{
    snprintf(to, 300, "%s/tests/golden/sources/%s%s%s", OSH_SOURCE_DIR, name, file ? "/" : "",
             file ? file : "");
}

/* Compares elements [first, first + n) of a tensor. */
static void compare_part(osh_ctx *cx, const osh_checkpoint *ck, const osh_ckpt_tensor *t,
                         const char *want, int64_t first, int64_t n)
{
    int64_t size = (int64_t)osh_dtype_bytes(t->e->dtype);
    char *part = osh_alloc(cx, (size_t)(n * size));
    assert_ok(cx, osh_checkpoint_read_part(cx, part, ck, t, first * size, (size_t)(n * size)));
    if (memcmp(part, want + first * size, (size_t)(n * size)))
        fail_msg("%s: elements [%ld, %ld) differ", t->e->name, (long)first, (long)(first + n));
    osh_free(cx, part);
}

static void compare_tensor(osh_ctx *cx, const osh_checkpoint *ck, const osh_container *st,
                           const osh_entry *e)
{
    osh_tensor *has = NULL;
    char *want = osh_alloc(cx, (size_t)(e->end - e->begin));
    int64_t numel = 0, steps[] = {1, 7, 61, 1000};
    assert_ok(cx, osh_checkpoint_load(cx, &has, ck, e->name, e->ndim, e->shape));
    assert_int_equal(has->dtype, e->dtype);
    assert_ok(cx, osh_container_read(cx, want, st, e));
    assert_memory_equal(has->data, want, (size_t)(e->end - e->begin));
    osh_shape_numel(&numel, e->ndim, e->shape);
    for (size_t k = 0; k < sizeof steps / sizeof *steps; k++)
        for (int64_t at = 0; at < numel; at += k ? steps[k] : numel / 9 + 1)
            compare_part(cx, ck, osh_checkpoint_find(ck, e->name), want, at,
                         numel - at < steps[k] ? numel - at : steps[k]);
    osh_tensor_free(cx, has);
    osh_free(cx, want);
}

static osh_status compare_source(osh_ctx *cx, const char *name, const char *adapter)
{
    osh_status rc = OSH_OK;
    osh_source *s = NULL; // own
    osh_container *st = NULL; // own
    char path[300], with[300];
    path_of(path, name, NULL);
    if (adapter) path_of(with, name, adapter);
    OSH_TRY(osh_source_open_merged(cx, &s, path, adapter ? with : NULL));
    path_of(path, name, "expected.safetensors");
    OSH_TRY(osh_container_open(cx, &st, path));
    const osh_checkpoint *ck = osh_source_checkpoint(s);
    // the checkpoint lists weights, not the stored tensors of quantized weights
    assert_int_equal(ck->n_tensors, osh_container_count(st));
    for (int64_t i = 0; i < osh_container_count(st); i++)
        compare_tensor(cx, ck, st, osh_container_at(st, i));
done:
    osh_container_close(cx, st);
    osh_source_close(cx, s);
    return rc;
}

static void test_all(void **state)
{
    static const char *const names[] = {"fp8_block",
                                        "fp8_scales",
                                        "fp8_ue8m0",
                                        "mxfp4",
                                        "packed",
                                        "fp8_experts",
                                        "fp8_experts_apart",
                                        "fp8_llama4",
                                        "scales_bfloat16",
                                        "scales_float16",
                                        "gptq_v1",
                                        "gptq_v2",
                                        "gptq_file",
                                        "awq_gemm",
                                        "awq_file",
                                        "awq_gemv",
                                        "awq_gemv_rows",
                                        "modelopt_nvfp4",
                                        "modelopt_nvfp4_file",
                                        "modelopt_fp8",
                                        "bnb_nf4",
                                        "bnb_nf4_nested",
                                        "bnb_fp4",
                                        "bnb_int8",
                                        "fp8_deepseek_v4"};
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_ok(cx, compare_source(cx, names[i], NULL));
    osh_ctx_free(cx);
}

/* Compares merged LoRA adapters with PEFT's result (tests/golden/adapter/gen.py). */
static void test_adapters(void **state)
{
    static const char *const names[] = {"../adapter/llama", "../adapter/llama_rs",
                                        "../adapter/gpt2"};
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_ok(cx, compare_source(cx, names[i], "adapter"));
    osh_ctx_free(cx);
}

static osh_status open_and_read(osh_ctx *cx, void *user)
{
    osh_status rc = OSH_OK;
    osh_source *s = NULL; // own
    osh_tensor *t = NULL; // own
    const char *const *what = user;
    char path[300];
    char with[300];
    path_of(path, what[0], NULL);
    path_of(with, what[0], "adapter");
    OSH_TRY(osh_source_open_merged(cx, &s, path, strstr(what[0], "adapter") ? with : NULL));
    OSH_TRY(osh_checkpoint_load(cx, &t, osh_source_checkpoint(s), what[1], -1, NULL));
done:
    osh_tensor_free(cx, t);
    osh_source_close(cx, s);
    return rc;
}

static void test_torture(void **state)
{
    static const char *const what[][2] = {
        {"fp8_block", "model.b.weight"}, {"fp8_ue8m0", "model.a.weight"},
        {"mxfp4", "mlp.experts.up_proj"}, {"packed", "x.weight"},
        {"fp8_deepseek_v4", "layers.0.ffn.experts.3.w1.weight"},
        {"../adapter/llama", "model.layers.1.mlp.down_proj.weight"},
        {"bnb_nf4_nested", "model.layers.1.mlp.up_proj.weight"},
        {"awq_gemm", "model.layers.1.mlp.up_proj.weight"},
        {"awq_gemv", "model.layers.1.mlp.up_proj.weight"},
        {"gptq_file", "model.layers.1.mlp.up_proj.weight"},
        {"fp8_experts", "mlp.experts.gate_up_proj"},
        {"fp8_experts_apart", "model.layers.1.mlp.experts.1.up_proj.weight"}};
    for (size_t i = 0; i < sizeof what / sizeof *what; i++) torture(open_and_read, (void *)what[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all), cmocka_unit_test(test_adapters),
                                       cmocka_unit_test(test_torture)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
