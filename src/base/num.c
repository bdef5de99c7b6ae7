/* num.c - converts between f16 and f32, rounding to nearest, ties to even, with subnormals.
 *
 * Bits of an f16: a sign, 5 bits of the exponent e, 10 bits of the mantissa. The bias of e is 15,
 * and e = 31 stands for Inf and NaN. */
#include "base/num.h"

/* `a` has the bits of a finite f32. Rounds this number to a narrow float with n_man mantissa bits,
 * and returns the bits of the result. The exponent of the result may be too large for the type. */
static uint32_t f32_narrow(uint32_t a, int n_man, int bias)
{
    /* e_min: f32 exponent field of the smallest normal number of the narrow type. */
    uint32_t e = a >> 23, e_min = (uint32_t)(128 - bias);
    uint32_t shift = (uint32_t)(23 - n_man), v;

    if (e >= e_min) {
        v = a - ((uint32_t)(127 - bias) << 23);
    } else { // subnormal: the implicit leading 1 becomes explicit
        shift += e_min - e;
        if (e == 0 || shift > 24) return 0;
        v = (a & 0x7fffffu) | 0x800000u;
    }
    /* a carry out of the mantissa increases the exponent, which is correct */
    return (v + (1u << (shift - 1)) - 1 + ((v >> shift) & 1)) >> shift;
}

static float f32_widen(uint32_t h, int n_man, int bias)
{
    uint32_t e = h >> n_man, m = h & ((1u << n_man) - 1);
    if (e == 0) // subnormal: m * 2^(1 - bias - n_man), exact
        return (float)m * osh_f32_of_bits((uint32_t)(127 + 1 - bias - n_man) << 23);
    return osh_f32_of_bits(((e + 127 - (uint32_t)bias) << 23) | (m << (23 - n_man)));
}

static float with_sign(float f, uint32_t sign_bit)
{
    return osh_f32_of_bits(osh_bits_of_f32(f) | sign_bit);
}

float osh_f32_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, a = h & 0x7fffu;
    if (a >= 0x7c00u) return osh_f32_of_bits(sign | 0x7f800000u | ((a & 0x3ffu) << 13));
    return with_sign(f32_widen(a, 10, 15), sign);
}

uint16_t osh_f16_of_f32(float f)
{
    uint32_t u = osh_bits_of_f32(f), a = u & 0x7fffffffu, sign = (u >> 16) & 0x8000u;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((a >> 13) & 0x3ffu)); // NaN stays NaN
    /* 65536 and more, and Inf, become Inf */
    if (a >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);
    uint32_t h = f32_narrow(a, 10, 15);
    return (uint16_t)(sign | (h > 0x7c00u ? 0x7c00u : h));
}
