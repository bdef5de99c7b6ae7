/* test_tune_step.c - compares a step of Adam on codes (solver/tune.c) with the formulas, one code
 * after the other. The results must be equal to the last bit, with each instruction set, for groups
 * with any number of columns. */
#include "kernel_test.h"

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
    const int64_t columns[] = {1, 7, 8, 12, 64, 129, 260};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        for (int G = 1; G <= 3; G += 2)
            for (int zeros = 0; zeros < 2; zeros++) step_check(columns[i], G, zeros);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_step)};
    int rc = pin_isa();
    return rc ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
