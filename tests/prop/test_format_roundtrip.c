/* test_format_roundtrip.c - packs and unpacks weights in every format, width, strategy and dtype.
 *
 * Unpacked codes must equal the packed codes. A decoded element that is not clamped may differ from
 * the original by at most half a scale. With asymmetric codes it may differ by one scale, because
 * the zero point is rounded, too. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/num.h"
#include "base/rng.h"
#include "quant/format.h"
#include "torture.h"

static osh_ctx *cx;
static int n_cases;

static double value(const osh_tensor *t, int64_t i)
{
    float v;
    osh_to_f32(&v, (const uint8_t *)t->data + (size_t)i * osh_dtype_bytes(t->dtype), t->dtype, 1);
    return v;
}

static int64_t scale_index(const osh_q_args *a, const osh_tensor *scale, int64_t r, int64_t c)
{
    switch (a->strategy) {
    case OSH_Q_TENSOR:
        return 0;
    case OSH_Q_CHANNEL:
        return r;
    case OSH_Q_GROUP:
    case OSH_Q_TENSOR_GROUP:
        return r * scale->shape[1] + c / a->group_size;
    default:
        return r / a->block[0] * scale->shape[1] + c / a->block[1];
    }
}

static void check_error(const osh_tensor *w, const osh_tensor *back, const osh_qparams *p,
                        const osh_q_args *a, const char *name)
{
    for (int64_t i = 0; i < osh_tensor_numel(w); i++) {
        double x = value(w, i), y = value(back, i);
        double s = value(p->scale, scale_index(a, p->scale, i / w->shape[1], i % w->shape[1]));
        if (p->global) s /= p->global;
        double slack = w->dtype == OSH_F32   ? 1e-6
                       : w->dtype == OSH_F16 ? 2e-3
                                             : 1.6e-2; // multiples of the scale are rounded to the
                                                       // dtype
        /* For FP4: half of the distance between the two largest values, 4 and 6. */
        double ulp = osh_q_is_fp4(a)          ? s
                     : osh_q_is_fp6(a)        ? fmax(fabs(x) / 16, s / 16)
                     : a->type == OSH_Q_FLOAT ? fmax(fabs(x) / 16, s / 1024)
                     : a->symmetric         ? s / 2
                                            : s;
        if (fabs(x - y) > ulp + slack * (fabs(x) + 2 * s))
            fail_msg("%s: element %lld is %g, was %g (scale %g)", name, (long long)i, y, x, s);
    }
}

static void check_case(const osh_format *f, const osh_q_scheme *s, osh_dtype dt, int64_t O,
                       int64_t I)
{
    osh_tensor *w = NULL, *back = NULL, stored[OSH_FORMAT_MAX_TENSORS];
    const osh_tensor *views[OSH_FORMAT_MAX_TENSORS];
    osh_qparams p = {0}, q = {0};
    osh_format_tensor t[OSH_FORMAT_MAX_TENSORS];
    void *data[OSH_FORMAT_MAX_TENSORS];
    uint8_t *codes = malloc((size_t)(O * I)), *again = malloc((size_t)(O * I));
    char name[96];
    int n = 0;

    snprintf(name, sizeof name, "%s %s bits %d strategy %d %s [%lld, %lld]", f->name,
             osh_dtype_name(dt), s->weights.bits, s->weights.strategy,
             s->weights.symmetric ? "sym" : "asym", (long long)O, (long long)I);
    assert_ok(cx, osh_tensor_new(cx, &w, dt, 2, (int64_t[]){O, I}));
    assert_ok(cx, osh_tensor_new(cx, &back, dt, 2, (int64_t[]){O, I}));
    for (int64_t i = 0; i < O * I; i++) {
        float v = osh_rng_sym(11, (uint64_t)n_cases, (uint64_t)i);
        osh_from_f32((uint8_t *)w->data + (size_t)i * osh_dtype_bytes(dt), dt, &v, 1);
    }
    assert_ok(cx, osh_q_weight_params(cx, &p, w, &s->weights, OSH_ARITH_REFERENCE, name));
    assert_ok(cx, osh_q_encode(cx, codes, w, &p, &s->weights, OSH_ARITH_REFERENCE));
    assert_ok(cx, f->tensors(cx, t, &n, &(osh_format_weight){s, O, I, dt}));
    for (int i = 0; i < n; i++) {
        stored[i] = osh_tensor_view(t[i].dtype, t[i].ndim, t[i].shape, NULL);
        data[i] = stored[i].data =
            malloc(osh_tensor_bytes(&stored[i])); // allocates the exact size, so a sanitizer
                                                  // detects accesses past the end
        memset(data[i], 0xff, osh_tensor_bytes(&stored[i])); // packing must write every byte
        views[i] = &stored[i];
    }
    assert_ok(cx, f->pack(cx, data, &(osh_format_weight){s, O, I, dt}, codes, &p, NULL));
    assert_ok(cx, f->unpack(cx, again, &q, &(osh_format_weight){s, O, I, OSH_BF16}, views));
    assert_memory_equal(codes, again, (size_t)(O * I));
    for (int64_t i = 0; i < osh_tensor_numel(p.scale); i++)
        assert_true(value(p.scale, i) == value(q.scale, i));
    assert_true(p.global == q.global);
    if (p.zero) assert_memory_equal(p.zero->data, q.zero->data, osh_tensor_bytes(p.zero));
    assert_ok(cx, osh_q_decode(cx, back, again, &q, &s->weights));
    check_error(w, back, &p, &s->weights, name);
    if (!strcmp(f->name, "pack-quantized")) { // bits after the last code of a row must be 0
        int used = (int)(I * s->weights.bits % 32);
        int64_t words = t[0].shape[1];
        for (int64_t r = 0; used && r < O; r++)
            assert_int_equal(((uint32_t *)data[0])[(r + 1) * words - 1] >> used, 0);
    }
    for (int i = 0; i < n; i++) free(data[i]);
    free(codes), free(again);
    osh_qparams_deinit(cx, &p);
    osh_qparams_deinit(cx, &q);
    osh_tensor_free(cx, w);
    osh_tensor_free(cx, back);
    n_cases++;
}

static void test_round_trip(void **state)
{
    static const osh_dtype dts[] = {OSH_BF16, OSH_F16, OSH_F32};
    static const int64_t shapes[][2] = {{1, 1}, {7, 33}, {129, 31}, {3, 96}, {33, 160}};
    for (int fi = 0; osh_formats[fi]; fi++)
        for (int bits = 2; bits <= 9; bits++) // 9 bits stand for FP8
            for (int strategy = OSH_Q_TENSOR; strategy <= OSH_Q_BLOCK; strategy++)
                for (int k = 0; k < 2 * 3 * 5; k++) {
                    const int64_t *shape = shapes[k / 6];
                    osh_q_scheme s = {.weights = {.present = true,
                                                  .bits = bits < 9 ? bits : 8,
                                                  .type = bits < 9 ? OSH_Q_INT : OSH_Q_FLOAT,
                                                  .strategy = (osh_q_strategy)strategy,
                                                  .symmetric = k % 2}};
                    const osh_format *f = NULL;
                    if (strategy == OSH_Q_GROUP) s.weights.group_size = 32;
                    if (strategy == OSH_Q_BLOCK) s.weights.block[0] = 8, s.weights.block[1] = 24;
                    if ((bits == 9 && !s.weights.symmetric) ||
                        (strategy == OSH_Q_GROUP && shape[1] % 32))
                        continue;
                    snprintf(s.format, sizeof s.format, "%s", osh_formats[fi]->name);
                    if (osh_format_infer(cx, &f, &s, "case"))
                        osh_error_clear(cx); // some formats cannot store some types of codes, so
                                             // osh_format_infer may fail
                    else
                        check_case(f, &s, dts[k / 2 % 3], shape[0], shape[1]);
                }
    assert_true(n_cases > 1000);
    static const char *const presets[] = {"NVFP4A16", "MXFP4A16", "MXFP6A16", "MXFP8A16"};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 3 * 2; k++) {
            osh_q_scheme s = {0};
            const osh_format *f = NULL;
            const int64_t *shape = shapes[3 + k % 2];
            assert_ok(cx, osh_q_preset(cx, &s, presets[i]));
            assert_ok(cx, osh_format_infer(cx, &f, &s, "case"));
            check_case(f, &s, dts[k / 2], shape[0], shape[1]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip)};
    if (osh_ctx_new(&cx, 2)) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    failed += osh_mem_live(cx) != 0;
    osh_ctx_free(cx);
    return failed;
}
