/* grid.h - declares number grids. A grid has the values that codes represent before a zero point
 * and a scale are applied.
 *
 *   int4      -8 ... 7, whole numbers
 *             {.lo = -8, .hi = 7, .bits = 4}
 *   FP8 E4M3  4 significant bits, multiples of 2^-9
 *             {.lo = -448, .hi = 448, .bits = 8, .digits = 4, .least = -9}
 *   FP6 E2M3  4 significant bits, multiples of 2^-3
 *             {.lo = -7.5, .hi = 7.5, .bits = 6, .digits = 4, .least = -3}
 *   FP4 E2M1  2 significant bits, multiples of 2^-1
 *             {.lo = -6, .hi = 6, .bits = 4, .digits = 2, .least = -1}
 *
 * A code of a whole number is two's complement. A code of a float has a sign, an exponent and a
 * fraction, together `bits` bits. */
#ifndef OSH_GRID_H
#define OSH_GRID_H
#include "base/num.h"

#include <math.h>
#include <stdbool.h>

#ifdef __CUDACC__ // CUDA kernels call these functions, too
#define OSH_EVERYWHERE __host__ __device__ static inline
#else
#define OSH_EVERYWHERE static inline
#endif

typedef struct osh_grid {
    float lo, hi;
    int bits;   // number of bits of a code
    int digits; // number of significant bits of a float; 0: the grid has whole numbers
    int least;  // the values of a grid of floats are multiples of `2^least`
} osh_grid;

/* Returns the grid for codes of `bits` bits. It is a grid of floats if `floats` is true, else of
 * whole numbers. */
static inline osh_grid osh_grid_of(int bits, bool floats)
{
    float steps = (float)(1 << (bits - 1));
    osh_grid whole = {-steps, steps - 1, bits, 0, 0}, e4m3 = {-448, 448, 8, 4, -9};
    osh_grid e2m3 = {-7.5f, 7.5f, 6, 4, -3}, e2m1 = {-6, 6, 4, 2, -1};
    return !floats ? whole : bits == 4 ? e2m1 : bits == 6 ? e2m3 : e4m3;
}

/* Returns the value of the grid that is nearest to x. x must be in [lo, hi]. If two values are
 * equally near, returns the value whose last significant bit is 0. */
static inline float osh_grid_nearest(const osh_grid *g, float x)
{
    if (!g->digits) return nearbyintf(x);
    int e = 0;
    frexpf(x, &e); // sets e so that |x| is in [2^(e-1), 2^e)
    int step = e - g->digits > g->least ? e - g->digits : g->least;
    return ldexpf(nearbyintf(ldexpf(x, -step)), step);
}

static inline int8_t osh_grid_code(const osh_grid *g, float value)
{
    if (!g->digits) return (int8_t)value;
    int e = 0, fraction = g->digits - 1;
    float a = fabsf(value);
    frexpf(a, &e);
    /* Near |value|, two neighbouring values of the grid differ by `2^(least + above)`. If `above`
     * is negative, they differ by `2^least`. */
    int above = e - g->digits - g->least;
    bool whole = above < 0 || a == 0;
    int bits = whole ? (int)ldexpf(a, -g->least)
                     : (above << fraction) + (int)ldexpf(a, -(g->least + above));
    return (int8_t)(bits | (signbit(value) ? 1 << (g->bits - 1) : 0));
}

static inline float osh_grid_value(const osh_grid *g, int8_t code)
{
    if (!g->digits) return code;
    int fraction = g->digits - 1, bits = code & ((1 << (g->bits - 1)) - 1), e = bits >> fraction;
    int digits = bits & ((1 << fraction) - 1);
    float a = e ? ldexpf((float)(digits | 1 << fraction), g->least + e - 1)
                : ldexpf((float)digits, g->least);
    return code & 1 << (g->bits - 1) ? -a : a;
}
#endif
