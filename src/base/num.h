/* num.h - converts scalars between f32 and the narrow floating types. Rounds to nearest, and ties
 * to even. FP8 is E4M3FN: a sign bit, 4 bits of exponent (bias 7) and 3 bits of mantissa. It has no
 * infinity; 0x7F and 0xFF are NaN; the largest number is 448. Larger f32 numbers become 448. */
#ifndef OSH_NUM_H
#define OSH_NUM_H
#include <stdint.h>
#include <string.h>

static inline float osh_f32_of_bits(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
static inline uint32_t osh_bits_of_f32(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
static inline float osh_f32_of_bf16(uint16_t h) { return osh_f32_of_bits((uint32_t)h << 16); }
static inline uint16_t osh_bf16_of_f32(float f)
{
    uint32_t u = osh_bits_of_f32(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40); // NaN stays NaN
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}
/* Converts an F16, given as its bits, to f32. The result is exact. */
float osh_f32_of_f16(uint16_t h);
/* Rounds f to F16 and returns its bits. Numbers that are too large become infinity. */
uint16_t osh_f16_of_f32(float f);
static inline float osh_f32_of_fp8(uint8_t b)
{
    uint32_t sign = (uint32_t)(b & 0x80u) << 24, a = b & 0x7fu;
    if (a == 0x7fu) return osh_f32_of_bits(sign | 0x7fc00000u);
    if (a < 8) return osh_f32_of_bits(osh_bits_of_f32((float)a * 0x1p-9f) | sign);
    return osh_f32_of_bits(((a << 20) + (120u << 23)) | sign);
}
static inline float osh_f32_of_fp6(uint8_t code) // code: E2M3 in the lower six bits
{
    int e = code >> 3 & 3;
    float a = (float)((code & 7) | (e ? 8 : 0)) * 0.125f * (float)(1 << (e ? e - 1 : 0));
    return code & 32 ? -a : a;
}
static inline uint8_t osh_fp8_of_f32(float f)
{
    uint32_t u = osh_bits_of_f32(f), a = u & 0x7fffffffu, sign = (u >> 24) & 0x80u;
    if (a > 0x7f800000u) return (uint8_t)(sign | 0x7fu);  // NaN stays NaN
    if (a >= 0x43e00000u) return (uint8_t)(sign | 0x7eu); // 448 and more, and Inf, become 448
    /* The sum of |f| and 0x1p14f is rounded to a multiple of 2^-9. The number 2^-9 is a unit in the
     * last place of 0x1p14f, and also the distance of neighbouring subnormal FP8 numbers. */
    if (a < 0x3c800000u) return (uint8_t)(sign | osh_bits_of_f32(osh_f32_of_bits(a) + 0x1p14f));
    return (uint8_t)(sign | (((a + 0x7ffffu + (a >> 20 & 1)) >> 20) - (120u << 3)));
}
static inline float osh_f32_of_fp4(uint8_t code) // code: E2M1 in the lower four bits
{
    static const float values[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                     -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    return values[code & 15];
}
#endif
