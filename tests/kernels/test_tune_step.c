/* test_tune_step.c - compares a step of Adam on codes (solver/tune.c) with the formulas, one code
 * after the other. The results must be equal to the last bit, with each instruction set, for groups
 * with any number of columns. On a GPU, the sum of a group has another order, so scales may differ
 * in the last bits. The bytes there do not depend on the order of the threads. */
#include "on_gpu.h"

#include "base/elementary.h"
#include "solver/tune.h"

#include <math.h>

enum { ROWS = 3, MOST = 3 * 260, STEPS = 3 };

typedef struct numbers { // the numbers of osh_tune_codes, for [ROWS, I] codes and [ROWS, G] scales
    float v[ROWS * MOST], mean[ROWS * MOST], square[ROWS * MOST], grad[ROWS * MOST];
    float s0[ROWS * 3], d[ROWS * 3], d_mean[ROWS * 3], d_square[ROWS * 3], w[ROWS * MOST];
} numbers;

static float step_draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / (float)(1 << 24) - 0.5f;
}

static float step_move(float *mean, float *square, float g, const float part[2])
{
    *mean = 0.9f * *mean + 0.1f * g;
    *square = 0.95f * *square + 0.05f * g * g;
    return *mean / part[0] / (sqrtf(*square / part[1]) + 1e-12f);
}

static float code_of(float v) { return (float)(int)nearbyintf(v < -8 ? -8 : v > 7 ? 7 : v); }

/* Does a step on one group by the formulas of solver/tune.c. The sum of g (q - z) has eight
 * parts. Part k sums the columns k, k + 8, ..., and the parts are added in order. */
static void group_by_hand(numbers *s, int64_t k, int64_t at, int64_t n, float z,
                          const osh_tune_step *step)
{
    double t = (double)step->n;
    float part[2] = {(float)(1 - osh_math_pow(0.9, t)), (float)(1 - osh_math_pow(0.95, t))};
    float sums[8] = {0}, sum = 0, scale = s->s0[k] * (1 + s->d[k]);
    for (int64_t i = 0; i < n; i++) {
        float v = s->v[at + i], g = s->grad[at + i];
        sums[i % 8] += g * (code_of(v) - z);
        g = v >= -8 && v <= 7 ? g * scale : 0;
        float move = step_move(&s->mean[at + i], &s->square[at + i], g, part);
        s->v[at + i] = v - step->code_rate * move, s->grad[at + i] = 0;
    }
    for (int i = 0; i < 8; i++) sum += sums[i];
    s->d[k] -= step->rate * step_move(&s->d_mean[k], &s->d_square[k], sum * s->s0[k], part);
    scale = s->s0[k] * (1 + s->d[k]);
    for (int64_t i = 0; i < n; i++) s->w[at + i] = (code_of(s->v[at + i]) - z) * scale;
}

static void step_check(int64_t n, int64_t G, bool zeros)
{
    static numbers got, want;
    int8_t zero[ROWS * 3];
    osh_ctx *cx = NULL;
    uint32_t seed = (uint32_t)(n * 7 + G);
    int64_t I = n * G;
    assert_int_equal(osh_ctx_new(&cx, 2), OSH_OK);
    memset(&got, 0, sizeof got);
    for (int64_t i = 0; i < ROWS * I; i++) got.v[i] = 20 * step_draw(&seed);
    for (int64_t k = 0; k < ROWS * G; k++)
        got.s0[k] = 0.1f + step_draw(&seed) / 10, zero[k] = (int8_t)(8 * step_draw(&seed));
    want = got;
    osh_tensor w = osh_tensor_view(OSH_F32, 2, (int64_t[]){ROWS, I}, got.w);
    osh_tune_codes c = {.v = got.v, .mean = got.mean, .square = got.square, .grad = got.grad,
                        .s0 = got.s0, .d = got.d, .d_mean = got.d_mean, .d_square = got.d_square,
                        .zero = zeros ? zero : NULL, .O = ROWS, .I = I, .G = G, .lo = -8, .hi = 7,
                        .w = &w};
    for (int t = 1; t <= STEPS; t++) {
        osh_tune_step step = {t, 0.3f, 0.05f};
        for (int64_t i = 0; i < ROWS * I; i++) want.grad[i] = got.grad[i] = step_draw(&seed);
        assert_int_equal(osh_tune_codes_step(cx, &c, &step), OSH_OK);
        for (int64_t k = 0; k < ROWS * G; k++)
            group_by_hand(&want, k, k * n, n, zeros ? zero[k] : 0, &step);
        if (memcmp(&got, &want, sizeof got))
            fail_msg("groups of %lld columns, %lld groups, zeros %d, step %d: other bytes",
                     (long long)n, (long long)G, zeros, t);
    }
    osh_ctx_free(cx);
}

static void test_step(void **state)
{
    (void)state;
    if (gpu_alone()) return;
    const int64_t columns[] = {1, 7, 8, 12, 64, 129, 260};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        for (int G = 1; G <= 3; G += 2)
            for (int zeros = 0; zeros < 2; zeros++) step_check(columns[i], G, zeros);
}

/* ---- on a GPU ---- */

enum { O = 6, I = 40 };

typedef struct side { // a learner on the host (d is NULL) or on a GPU
    osh_device *d;
    osh_tensor *room, *zero, *w; // own
    osh_tune_codes c;
    osh_tune_norm n;
} side;

/* Copies n floats to s->room, from element `at` on. */
static void side_put(osh_ctx *cx, side *s, int64_t at, const float *from, int64_t n)
{
    assert_int_equal(osh_tensor_put(cx, s->room, (size_t)at * sizeof *from, from,
                                    (size_t)n * sizeof *from), OSH_OK);
}

/* Makes the state of a weight [O, I] with G scales per row, and of a norm with I numbers. */
static void side_init(osh_ctx *cx, side *s, osh_device *d, osh_dtype dt, int64_t G, bool zeros)
{
    osh_where where = {d, OSH_LIFE_LONG};
    const int64_t shape[2] = {O, I}, all = 4 * O * I + 4 * O * G;
    float room[4 * O * I + 4 * O * I];
    int8_t zero[O * I];
    uint32_t seed = 5;
    *s = (side){.d = d};
    assert_int_equal(osh_tensor_new_on(cx, &s->room, where, OSH_F32, 1, &all), OSH_OK);
    assert_int_equal(osh_tensor_new_on(cx, &s->zero, where, OSH_I8, 1, (int64_t[]){O * G}), OSH_OK);
    assert_int_equal(osh_tensor_new_on(cx, &s->w, where, dt, 2, shape), OSH_OK);
    assert_int_equal(osh_tensor_zero(cx, s->w), OSH_OK);
    for (int64_t i = 0; i < all; i++) room[i] = i < O * I ? 20 * step_draw(&seed) : 0;
    for (int64_t k = 0; k < O * G; k++)
        room[4 * O * I + k] = 0.1f + step_draw(&seed) / 10,
        zero[k] = (int8_t)(8 * step_draw(&seed));
    side_put(cx, s, 0, room, all);
    assert_int_equal(osh_tensor_put(cx, s->zero, 0, zero, (size_t)(O * G)), OSH_OK);
    float *r = s->room->data, *g = r + 4 * O * I;
    s->c = (osh_tune_codes){.v = r, .mean = r + O * I, .square = r + 2 * O * I,
                            .grad = r + 3 * O * I, .s0 = g, .d = g + O * G,
                            .d_mean = g + 2 * O * G, .d_square = g + 3 * O * G,
                            .zero = zeros ? s->zero->data : NULL, .O = O, .I = I, .G = G, .lo = -8,
                            .hi = 7, .w = s->w};
    // the norm has I numbers, so that its arrays fit in the arrays of the weight
    s->n = (osh_tune_norm){.w0 = r, .d = r + O * I + I, .mean = r + O * I, .square = r + 2 * O * I,
                           .grad = r + 3 * O * I, .offset = zeros, .n = I, .w = s->w};
}

static void side_deinit(osh_ctx *cx, side *s)
{
    osh_tensor_free(cx, s->room), osh_tensor_free(cx, s->zero), osh_tensor_free(cx, s->w);
}

/* Fails if the numbers or the weights of the two sides are not near each other. */
static void sides_compare(osh_ctx *cx, const side *s, int t)
{
    for (int k = 0; k < 2; k++) {
        const osh_tensor *want = k ? s[0].w : s[0].room, *x = k ? s[1].w : s[1].room;
        osh_tensor *got = NULL;
        assert_int_equal(osh_tensor_new(cx, &got, x->dtype, x->ndim, x->shape), OSH_OK);
        assert_int_equal(osh_tensor_copy(cx, got, x), OSH_OK);
        for (int64_t i = 0; i < osh_tensor_numel(x); i++) {
            float a = osh_tensor_at(got, i), b = osh_tensor_at(want, i);
            if (!(fabsf(a - b) <= 1e-5f + fabsf(b) * (k && x->dtype != OSH_F32 ? 1e-2f : 1e-5f)))
                fail_msg("step %d, %s %ld: %.9g on the GPU, %.9g on the host", t,
                         k ? "weight" : "number", (long)i, (double)a, (double)b);
        }
        osh_tensor_free(cx, got);
    }
}

static void gpu_check(osh_ctx *cx, osh_device *d, osh_dtype dt, int64_t G, bool zeros, bool norm)
{
    side s[2];
    float grad[O * I];
    uint32_t seed = 9;
    side_init(cx, &s[0], NULL, dt, G, zeros), side_init(cx, &s[1], d, dt, G, zeros);
    for (int t = 0; t <= STEPS; t++) {
        osh_tune_step step = {t, 0.3f, 0.05f}, *at = t ? &step : NULL;
        for (int64_t i = 0; i < O * I; i++) grad[i] = step_draw(&seed);
        if (t) gpu_order(t % 2 ? 0 : gpu_orders() - 1);
        for (int k = 0; k < 2; k++) {
            side_put(cx, &s[k], 3 * O * I, grad, norm ? I : O * I);
            assert_int_equal(norm ? osh_tune_norm_step(cx, &s[k].n, at)
                                  : osh_tune_codes_step(cx, &s[k].c, at), OSH_OK);
        }
        if (!t && !norm) { // the gradient stays without a step
            memset(grad, 0, sizeof grad);
            for (int k = 0; k < 2; k++) side_put(cx, &s[k], 3 * O * I, grad, O * I);
        }
        sides_compare(cx, s, t);
    }
    gpu_order(0);
    side_deinit(cx, &s[0]), side_deinit(cx, &s[1]);
}

static void test_gpu(void **state)
{
    (void)state;
    osh_ctx *cx = NULL;
    assert_int_equal(osh_ctx_new(&cx, 1), OSH_OK);
    osh_device *d = gpu_open(cx, GPU_BYTES);
    for (int k = 0; d && k < 8; k++)
        gpu_check(cx, d, k % 2 ? OSH_BF16 : OSH_F32, k & 4 ? 1 : 5, k & 2, false),
            gpu_check(cx, d, k % 2 ? OSH_F16 : OSH_F32, 1, k & 2, true);
    osh_device_close(cx, d);
    osh_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_step), cmocka_unit_test(test_gpu)};
    int rc = pin_isa();
    return rc ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
