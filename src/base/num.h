/* num.h - scalar conversions between f32 and the narrow floating types; round to nearest, ties to even.
 * FP8 is E4M3FN: no infinity, 0x7F/0xFF are NaN, largest 448. f32 -> fp8 saturates at 448 (callers clamp first). */
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
float osh_f32_of_f16(uint16_t h);
uint16_t osh_f16_of_f32(float f);
float osh_f32_of_fp8(uint8_t b);
static inline float osh_f32_of_fp6(uint8_t code) // E2M3, in the lower six bits
{
    int e = code >> 3 & 3;
    float a = (float)((code & 7) | (e ? 8 : 0)) * 0.125f * (float)(1 << (e ? e - 1 : 0));
    return code & 32 ? -a : a;
}
uint8_t osh_fp8_of_f32(float f);
static inline float osh_f32_of_fp4(uint8_t code) // E2M1, in the lower four bits
{
    static const float values[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    return values[code & 15];
}
#endif
