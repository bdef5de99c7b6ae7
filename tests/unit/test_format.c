/* test_format.c - tests the storage formats: examples of packed codes, the tensors of each format,
 * and stored tensors that are refused. */
#include <stdio.h>
#include <stdlib.h>

#include "quant/format.h"
#include "torture.h"

static osh_ctx *cx;

static int setup(void **state)
{
    return osh_ctx_new(&cx, 1);
}
static int teardown(void **state)
{
    int live = osh_mem_live(cx) != 0;
    osh_ctx_free(cx);
    return live;
}

static void test_worked_packings(void **state)
{
    static const struct {
        int bits, n, n_words;
        int8_t q[12];
        uint32_t words[2];
    } rows[] = {
        {4, 10, 2, {-8, -7, -1, 0, 1, 2, 6, 7, 3, -3}, {0xFEA98710, 0x0000005B}},
        {8, 5, 2, {-128, -1, 0, 1, 127}, {0x81807F00, 0x000000FF}},
        {3, 12, 2, {-4, -3, -2, -1, 0, 1, 2, 3, 3, 2, 1, 0}, {0x77FAC688, 0x00000009}},
        {5, 8, 2, {-16, -1, 0, 1, 15, 7, -8, 3}, {0x2FF8C1E0, 0x0000009A}},
        {2, 5, 1, {-2, -1, 0, 1, 1}, {0x000003E4}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t words[3] = {0, 0, 0xdeadbeef};
        int8_t back[13] = {0};
        back[rows[i].n] = 99;
        assert_int_equal(osh_pack_words(rows[i].n, rows[i].bits), rows[i].n_words);
        osh_pack_row(words, 1, rows[i].q, 1, rows[i].n, rows[i].bits);
        for (int w = 0; w < rows[i].n_words; w++) assert_int_equal(words[w], rows[i].words[w]);
        assert_int_equal(words[2], 0xdeadbeef);
        osh_unpack_row(back, 1, words, 1, rows[i].n, rows[i].bits);
        assert_memory_equal(back, rows[i].q, (size_t)rows[i].n);
        assert_int_equal(back[rows[i].n], 99);
    }
}

/* Checks the tensors that the format of a preset has for a weight [O, I]. `want` describes them:
 * "leaf DTYPE [shape];...". */
static void check_tensors(const char *preset, bool symmetric, const char *format, int64_t O,
                          int64_t I, const char *want)
{
    osh_q_scheme s = {0};
    const osh_format *f = NULL;
    osh_format_tensor t[OSH_FORMAT_MAX_TENSORS];
    char text[512] = "";
    int n = 0;
    assert_ok(cx, osh_q_preset(cx, &s, preset));
    s.weights.symmetric = symmetric;
    if (s.inputs.present && !s.inputs.dynamic) s.inputs.symmetric = symmetric;
    snprintf(s.format, sizeof s.format, "%s", format);
    assert_ok(cx, osh_format_infer(cx, &f, &s, "g"));
    assert_ok(cx, f->tensors(cx, t, &n, &(osh_format_weight){&s, O, I, OSH_F16}));
    for (int i = 0; i < n; i++) {
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "%s %s [%lld", t[i].leaf, osh_dtype_name(t[i].dtype),
                 (long long)t[i].shape[0]);
        at = strlen(text);
        if (t[i].ndim == 2)
            snprintf(text + at, sizeof text - at, ",%lld];", (long long)t[i].shape[1]);
        else
            snprintf(text + at, sizeof text - at, "];");
    }
    assert_string_equal(text, want);
}

static void test_tensors(void **state)
{
    check_tensors("W4A16", true, "", 3, 256,
                  "weight_packed I32 [3,32];weight_scale F16 [3,2];weight_shape I64 [2];");
    check_tensors("W3A16", false, "", 33, 256,
                  "weight_packed I32 [33,24];weight_scale F16 [33,2];weight_shape I64 "
                  "[2];weight_zero_point I32 [4,2];");
    check_tensors("W8A8", true, "", 3, 100, "weight I8 [3,100];weight_scale F16 [3,1];");
    check_tensors("W8A8", false, "", 3, 100,
                  "weight I8 [3,100];weight_scale F16 [3,1];weight_zero_point I8 [3,1];");
    check_tensors("W8A8", false, "pack-quantized", 5, 100,
                  "weight_packed I32 [5,25];weight_scale F16 [5,1];weight_shape I64 "
                  "[2];weight_zero_point I32 [2,1];");
    check_tensors("FP8", true, "", 3, 100,
                  "weight F8_E4M3 [3,100];weight_scale F16 [1];input_scale F16 [1];");
    check_tensors("FP8_BLOCK", true, "", 130, 100,
                  "weight F8_E4M3 [130,100];weight_scale F16 [2,1];");
}

static void test_static_inputs(void **state)
{
    osh_q_scheme s = {
        .weights = {.present = true, .bits = 8, .strategy = OSH_Q_TENSOR, .symmetric = true},
        .inputs = {.present = true, .bits = 8, .strategy = OSH_Q_TENSOR}};
    const osh_format *f = osh_format_find("int-quantized");
    osh_format_tensor t[OSH_FORMAT_MAX_TENSORS];
    uint16_t scale[] = {0x3f80}, in[] = {0x4000}, got[2] = {0};
    int8_t zero[] = {-5}, got_zero = 0, codes[] = {1, 2, 3, 4}, weight[4];
    osh_tensor ts = osh_tensor_view(OSH_BF16, 1, (int64_t[]){1}, scale),
               ti = osh_tensor_view(OSH_BF16, 1, (int64_t[]){1}, in),
               tz = osh_tensor_view(OSH_I8, 1, (int64_t[]){1}, zero);
    osh_qparams p = {.scale = &ts};
    void *data[] = {weight, &got[0], &got[1], &got_zero};
    int n = 0;
    assert_ok(cx, f->tensors(cx, t, &n, &(osh_format_weight){&s, 2, 2, OSH_BF16}));
    assert_int_equal(n, 4);
    assert_string_equal(t[3].leaf, "input_zero_point");
    assert_ok(cx, f->pack(cx, data, &(osh_format_weight){&s, 2, 2, OSH_BF16}, codes, &p,
                          &(osh_format_input){&ti, &tz}));
    assert_memory_equal(weight, codes, 4);
    assert_int_equal(got[0], 0x3f80);
    assert_int_equal(got[1], 0x4000);
    assert_int_equal(got_zero, -5);
    assert_fails(cx, OSH_E_INTERNAL,
                 f->pack(cx, data, &(osh_format_weight){&s, 2, 2, OSH_BF16}, codes, &p, NULL),
                 "input_scale was not computed");
    assert_fails(cx, OSH_E_INTERNAL,
                 f->pack(cx, data, &(osh_format_weight){&s, 2, 2, OSH_BF16}, codes, &p,
                         &(osh_format_input){&ti, NULL}),
                 "input_zero_point was not");
}

/* Wrong tensors for a packed Linear [2, 32] must be refused. */
static void test_bad_stored(void **state)
{
    uint32_t words[8] = {0};
    uint16_t scales[2] = {0x3f80, 0x3f80};
    float scales32[2] = {1, 2};
    int64_t shape[2] = {2, 32};
    int8_t codes[64];
    osh_q_scheme s = {
        .weights = {.present = true, .bits = 4, .strategy = OSH_Q_CHANNEL, .symmetric = true}};
    const osh_format *f = osh_format_find("pack-quantized");
    osh_tensor packed = osh_tensor_view(OSH_I32, 2, (int64_t[]){2, 4}, words),
               scale = osh_tensor_view(OSH_BF16, 2, (int64_t[]){2, 1}, scales),
               dims = osh_tensor_view(OSH_I64, 1, (int64_t[]){2}, shape);
    const osh_tensor *data[] = {&packed, &scale, &dims};
    osh_qparams p = {0};
    assert_ok(cx, f->unpack(cx, codes, &p, &(osh_format_weight){&s, 2, 32, OSH_BF16}, data));
    assert_int_equal(codes[63], -8);
    osh_qparams_deinit(cx, &p);
    packed.shape[1] = 5;
    assert_fails(cx, OSH_E_FORMAT,
                 f->unpack(cx, codes, &p, &(osh_format_weight){&s, 2, 32, OSH_BF16}, data),
                 "weight_packed has the shape [2, 5], want [2, 4]");
    packed.shape[1] = 4, packed.dtype = OSH_U8;
    assert_fails(cx, OSH_E_FORMAT,
                 f->unpack(cx, codes, &p, &(osh_format_weight){&s, 2, 32, OSH_BF16}, data),
                 "weight_packed is U8, want I32");
    packed.dtype = OSH_I32, scale.ndim = 1;
    assert_fails(cx, OSH_E_FORMAT,
                 f->unpack(cx, codes, &p, &(osh_format_weight){&s, 2, 32, OSH_BF16}, data),
                 "weight_scale has the shape [2], want [2, 1]");
    scale.ndim = 2, shape[0] = 3;
    assert_fails(cx, OSH_E_FORMAT,
                 f->unpack(cx, codes, &p, &(osh_format_weight){&s, 2, 32, OSH_BF16}, data),
                 "weight_shape is [3, 32], want [2, 32]");
    shape[0] = 2, data[1] = NULL;
    assert_fails(cx, OSH_E_FORMAT,
                 f->unpack(cx, codes, &p, &(osh_format_weight){&s, 2, 32, OSH_BF16}, data),
                 "weight_scale is missing");
    scale.dtype = OSH_F32, scale.data = scales32, data[1] = &scale; // other tools write F32 scales
    assert_ok(cx, f->unpack(cx, codes, &p, &(osh_format_weight){&s, 2, 32, OSH_BF16}, data));
    assert_int_equal(p.scale->dtype, OSH_F32);
    osh_qparams_deinit(cx, &p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worked_packings),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_static_inputs),
        cmocka_unit_test(test_bad_stored),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
