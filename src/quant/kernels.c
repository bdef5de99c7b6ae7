/* kernels.c - implements loops in plain C over a segment of a row (kernels.h). The loops for AVX2
 * and AVX-512 must give the same bytes as the plain loops. Machines without AVX2 run the plain
 * loops.
 *
 *   range    compares bit patterns, so that the result is exact and no NaN is lost
 *   encode   q = clamp(rnd(rnd(x / s) + z), qmin, qmax), then RNE to int, E4M3, E2M3 or E2M1
 *   decode   y = rnd((q - z) * s)
 *   error    adds squares in double
 *
 * Source: compressed_tensors forward_helpers.py _quantize and _dequantize (eager, the CPU path).
 * torch computes each BF16 or F16 operation in f32 and rounds the result, like rnd. */
#include "quant/kernels.h"

#include <math.h>
#include <string.h>

#include "base/isa.h"
#include "base/num.h"

float osh_q_round_to(float x, osh_dtype dt)
{
    if (dt == OSH_BF16) return osh_f32_of_bf16(osh_bf16_of_f32(x));
    if (dt == OSH_F16) return osh_f32_of_f16(osh_f16_of_f32(x));
    return x;
}

osh_q_code osh_q_code_of(const osh_q_args *a, osh_dtype round)
{
    float half = (float)(1 << (a->bits - 1));
    osh_q_code c = {.scale = 1, .qmin = -half, .qmax = half - 1, .round = round};
    if (osh_q_is_fp4(a)) c.kind = OSH_Q_CODE_FP4, c.qmin = -6, c.qmax = 6;
    else if (osh_q_is_fp6(a)) c.kind = OSH_Q_CODE_FP6, c.qmin = -7.5f, c.qmax = 7.5f;
    else if (a->type == OSH_Q_FLOAT) c.kind = OSH_Q_CODE_FP8, c.qmin = -448, c.qmax = 448;
    return c;
}

float osh_q_scale_e8m0(float min, float max, const osh_q_args *a, osh_dtype dt)
{
    float amax = -min > max ? -min : max;
    uint32_t bits = osh_bits_of_f32(amax > 0 ? amax : 0);
    // top: exponent of the largest code. The largest codes are 6 = 1.5 * 2^2, 7.5 = 1.875 * 2^2 and
    // 448 = 1.75 * 2^8.
    int top = a->bits == 8 ? 8 : 2;
    // A significand of at least 1.9375 (FP6) or 1.75 (other types) is rounded up to the next power
    // of two.
    int e = (int)((bits + (osh_q_is_fp6(a) ? 1u << 19 : 1u << 21)) >> 23) - top;
    e = e < 0 ? 0 : e > 255 ? 255 : e;
    float s = osh_q_round_to(ldexpf(1, e - 127), dt);
    // s is 0 if the power of two is below the range of F16; the scale is then 1
    return s == 0 ? 1 : s;
}

uint8_t osh_q_scale_e4m3(float min, float max, float global, osh_dtype dt)
{
    float amax = -min > max ? -min : max,
          s = global * osh_q_round_to((amax > 0 ? amax : 0) / 6, dt);
    uint8_t code = osh_fp8_of_f32(s > 448 ? 448 : s);
    return code ? code : 0x20; // a scale of 0 is replaced by 0.125, which has the code 0x20
}

float osh_q_global_scale(float amax, osh_dtype dt)
{
    float least = dt == OSH_F16 ? 0x1p-14f : 0x1p-126f;
    float s =
        osh_q_round_to(osh_q_round_to(1 / (amax > least ? amax : least), dt) * (448.0f * 6), dt);
    return isfinite(s) ? s : 1;
}

static inline float load_f32(const void *x, osh_dtype dt, int64_t i)
{
    if (dt == OSH_BF16) return osh_f32_of_bf16(((const uint16_t *)x)[i]);
    if (dt == OSH_F16) return osh_f32_of_f16(((const uint16_t *)x)[i]);
    return ((const float *)x)[i];
}

/* Converts the bits of a float to an integer, and back. The integers have the order of the floats,
 * with NaNs below or above all other values. */
static inline int16_t key16(uint16_t u)
{
    return (int16_t)(u & 0x8000 ? u ^ 0x7fff : u);
}
static inline int32_t key32(uint32_t u)
{
    return (int32_t)(u & 0x80000000u ? u ^ 0x7fffffffu : u);
}

static void range_c(float *min, float *max, const void *x, osh_dtype dt, int64_t n)
{
    if (dt == OSH_F32) {
        const uint32_t *p = x;
        int32_t lo = INT32_MAX, hi = INT32_MIN;
        for (int64_t i = 0; i < n; i++) {
            int32_t k = key32(p[i]);
            lo = k < lo ? k : lo;
            hi = k > hi ? k : hi;
        }
        *min = osh_f32_of_bits((uint32_t)key32((uint32_t)lo));
        *max = osh_f32_of_bits((uint32_t)key32((uint32_t)hi));
        return;
    }
    const uint16_t *p = x;
    int16_t lo = INT16_MAX, hi = INT16_MIN;
    for (int64_t i = 0; i < n; i++) {
        int16_t k = key16(p[i]);
        lo = k < lo ? k : lo;
        hi = k > hi ? k : hi;
    }
    uint16_t l = (uint16_t)key16((uint16_t)lo), h = (uint16_t)key16((uint16_t)hi);
    *min = dt == OSH_BF16 ? osh_f32_of_bf16(l) : osh_f32_of_f16(l);
    *max = dt == OSH_BF16 ? osh_f32_of_bf16(h) : osh_f32_of_f16(h);
}

static void ranges_c(float *min, float *max, const void *x, osh_dtype dt, int64_t seg, int64_t n)
{
    size_t bytes = (size_t)seg * osh_dtype_bytes(dt);
    for (int64_t i = 0; i < n; i++) {
        float lo, hi;
        range_c(&lo, &hi, (const uint8_t *)x + (size_t)i * bytes, dt, seg);
        osh_q_widen(&min[i], &max[i], lo, hi);
    }
}

/* Returns the E2M1 code nearest to y. Ties go to the even index. If y < 0 is rounded to 0, the
 * result is the code of -0. But if y is -0 itself, the result is the code of +0. */
static uint8_t fp4_of_f32(float y)
{
    float a = y < 0 ? -y : y;
    int index = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) +
                (a > 5);
    return (uint8_t)(index | (y < 0 ? 8 : 0));
}

/* Returns the E2M3 code nearest to |y|, with the sign bit if `negative` is true. The distance
 * between values is 1/8 below 2, 1/4 below 4, and 1/2 up to 7.5, so each binade has 8 codes. */
static uint8_t fp6_of_f32(float y, bool negative)
{
    float a = fabsf(y);
    int binade = (a >= 2) + (a >= 4), index = (int)nearbyintf(ldexpf(a, 3 - binade)) + 8 * binade;
    return (uint8_t)(index | (negative ? 32 : 0));
}

static void encode_c(uint8_t *codes, const void *x, osh_dtype dt, int64_t n, const osh_q_code *c)
{
    for (int64_t i = 0; i < n; i++) {
        float y = osh_q_round_to(load_f32(x, dt, i) / c->scale, c->round);
        // The addition also matters for a zero point of 0: it changes -0 to +0, as in the
        // reference.
        y = osh_q_round_to(y + c->zero, c->round);
        y = y < c->qmin ? c->qmin : y > c->qmax ? c->qmax : y;
        codes[i] = c->kind == OSH_Q_CODE_FP8   ? osh_fp8_of_f32(y)
                   : c->kind == OSH_Q_CODE_FP6 ? fp6_of_f32(y, signbit(load_f32(x, dt, i)))
                   : c->kind == OSH_Q_CODE_FP4 ? fp4_of_f32(y)
                                               : (uint8_t)(int8_t)nearbyintf(y);
    }
}

static void decode_c(void *y, osh_dtype dt, const uint8_t *codes, int64_t n, const osh_q_code *c)
{
    for (int64_t i = 0; i < n; i++) {
        float q = c->kind == OSH_Q_CODE_FP8   ? osh_f32_of_fp8(codes[i])
                  : c->kind == OSH_Q_CODE_FP6 ? osh_f32_of_fp6(codes[i])
                  : c->kind == OSH_Q_CODE_FP4 ? osh_f32_of_fp4(codes[i])
                                              : (float)(int8_t)codes[i];
        /* q - zero has at most 8 significant bits, so it is exact in every dtype */
        q = (q - c->zero) * c->scale;
        if (dt == OSH_BF16)
            ((uint16_t *)y)[i] = osh_bf16_of_f32(q);
        else if (dt == OSH_F16)
            ((uint16_t *)y)[i] = osh_f16_of_f32(q);
        else
            ((float *)y)[i] = q;
    }
}

void osh_q_encode_each(uint8_t *codes, const void *x, osh_dtype dt, const osh_q_run *r,
                       const osh_q_code *c, const osh_q_kernels *k)
{
    size_t bytes = (size_t)r->seg * osh_dtype_bytes(dt);
    osh_q_code one = *c;
    for (int64_t i = 0; i < r->n; i++) {
        one.scale = r->scale[i], one.zero = r->zero[i];
        k->encode(codes + i * r->seg, (const uint8_t *)x + (size_t)i * bytes, dt, r->seg, &one);
    }
}

void osh_q_decode_each(void *y, osh_dtype dt, const uint8_t *codes, const osh_q_run *r,
                       const osh_q_code *c, const osh_q_kernels *k)
{
    size_t bytes = (size_t)r->seg * osh_dtype_bytes(dt);
    osh_q_code one = *c;
    for (int64_t i = 0; i < r->n; i++) {
        one.scale = r->scale[i], one.zero = r->zero[i];
        k->decode((uint8_t *)y + (size_t)i * bytes, dt, codes + i * r->seg, r->seg, &one);
    }
}

static void encode_run_c(uint8_t *codes, const void *x, osh_dtype dt, const osh_q_run *r,
                         const osh_q_code *c)
{
    osh_q_encode_each(codes, x, dt, r, c, &osh_q_kernels_c);
}

static void decode_run_c(void *y, osh_dtype dt, const uint8_t *codes, const osh_q_run *r,
                         const osh_q_code *c)
{
    osh_q_decode_each(y, dt, codes, r, c, &osh_q_kernels_c);
}

static void error_c(double sum[2], const void *a, const void *b, osh_dtype dt, int64_t n)
{
    // number of independent partial sums; additions to different sums do not wait for each other
    enum { LANES = 8 };
    double err[LANES] = {0}, ref[LANES] = {0};
    for (int64_t i = 0; i < n; i++) {
        double x = load_f32(a, dt, i), d = x - load_f32(b, dt, i);
        err[i % LANES] += d * d, ref[i % LANES] += x * x;
    }
    sum[0] = sum[1] = 0;
    for (int k = 0; k < LANES; k++) sum[0] += err[k], sum[1] += ref[k];
}

static int64_t params_c(void *scale, int8_t *zp, const float *min, const float *max, int64_t n,
                        const osh_q_scale_rule *rule)
{
    return 0; // converts no ranges, so the caller in arith.c converts all of them
}

const osh_q_kernels osh_q_kernels_c = {
    .name = "c",
    .range = range_c,
    .ranges = ranges_c,
    .params = params_c,
    .encode = encode_c,
    .decode = decode_c,
    .encode_run = encode_run_c,
    .decode_run = decode_run_c,
    .error = error_c,
};

const osh_q_kernels *osh_q_kernels_best(void)
{
    osh_isa isa = osh_isa_used();
    const osh_q_kernels *k = isa >= OSH_ISA_AVX512 ? osh_q_kernels_avx512()
                             : isa >= OSH_ISA_AVX2 ? osh_q_kernels_avx2()
                                                   : NULL;
    return k ? k : &osh_q_kernels_c;
}
