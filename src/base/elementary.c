/* elementary.c - computes exp and log by range reduction and Taylor series, and erfc by a Chebyshev
 * series.
 *
 *   exp   x = n ln 2 + r, |r| <= ln 2 / 2
 *         e^x = 2^n (1 + r + r^2/2! + ... + r^13/13!), error below 5e-18
 *   log   x = 2^k m, sqrt(1/2) <= m < sqrt 2
 *         log m = 2 atanh s = 2 (s + s^3/3 + ... + s^21/21), s = (m - 1) / (m + 1)
 *   erfc  x >= 0: t e^(-x^2) C(2t - 1), t = 2 / (2 + x),
 *         where C is the Chebyshev series of erfc(x) e^(x^2) / t
 *
 * The constants were computed with mpmath at 200 bits. */
#include "base/elementary.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* ln2_hi has 36 significant bits, so the product n * ln2_hi is exact. */
static const double ln2_hi = 0x1.62e42fefap-1;
static const double ln2_lo = 0x1.cf79abc9e3b3ap-40;

static double f64_of_bits(uint64_t u)
{
    double d;
    memcpy(&d, &u, sizeof d);
    return d;
}

static uint64_t bits_of_f64(double d)
{
    uint64_t u;
    memcpy(&u, &d, sizeof u);
    return u;
}

/* Returns 2^n for -1022 <= n <= 1023. */
static double power_of_2(int n) { return f64_of_bits((uint64_t)(n + 1023) << 52); }

double osh_math_exp(double x)
{
    static const double c[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                               1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
                               1.0 / 120,        1.0 / 24,        1.0 / 6,        1.0 / 2};
    // 1.5 * 2^52: a double plus this number is rounded to a whole number
    const double round = 6755399441055744.0;
    if (x != x) return x;
    if (x < -746) return 0;
    if (x > 709.79) return INFINITY;
    double n = (x * 1.44269504088896340736 + round) - round;
    double r = (x - n * ln2_hi) - n * ln2_lo, p = c[0];
    for (size_t i = 1; i < sizeof c / sizeof *c; i++) p = p * r + c[i];
    p = 1 + (r + p * r * r);
    // multiplies by 2^k in two steps, because 2^k alone may be out of range
    int k = (int)n, half = k / 2;
    return p * power_of_2(half) * power_of_2(k - half);
}

double osh_math_log(double x)
{
    if (x != x || x == INFINITY) return x;
    if (x == 0) return -INFINITY;
    if (x < 0) return NAN;
    int k = 0;
    if (x < 0x1p-1022) x *= 0x1p54, k = -54;
    uint64_t u = bits_of_f64(x);
    k += (int)(u >> 52) - 1023;
    double m = f64_of_bits((u & 0xfffffffffffffu) | 0x3ff0000000000000u); // in [1, 2)
    if (m > 1.41421356237309504880) m *= 0.5, k++;
    double f = m - 1, s = f / (2 + f), z = s * s, p = 0;
    for (int i = 21; i >= 3; i -= 2) p = (p + 1.0 / i) * z;
    /* f is exact, so little precision is lost near x = 1:
     *   f = m - 1
     *   z = s^2
     *   log m = f - f^2/2 + s (f^2/2 + 2 (z/3 + ...)) */
    double square = 0.5 * f * f;
    return k * ln2_hi + (f - (square - (s * (square + 2 * p) + k * ln2_lo)));
}

double osh_math_pow(double x, double y) { return osh_math_exp(y * osh_math_log(x)); }

double osh_math_erfc(double x)
{
    static const double c[] = {
        1.1540674772329393,      0.3554369212704984,      0.06509515882878657,
        0.003671142395836595,    -0.0011128447433525934,  -0.0001607582991538135,
        3.2780315741756763e-05,  5.4424416454877054e-06,  -1.515466555308444e-06,
        -1.4297608181153872e-07, 8.234608826518585e-08,   -1.2962846676591387e-09,
        -4.154721656599738e-09,  6.34705860638889e-10,    1.4320818811766153e-10,
        -6.160385704992438e-11,  2.0611662131511665e-12,  3.5715429644091757e-12,
        -8.586927416017054e-13,  -6.140645191371228e-14,  7.414013251303678e-14,
        -1.2851783848450213e-14, -2.3968001658015444e-15, 1.6046668408332938e-15,
        -2.5226073018690087e-16, -4.672491625080769e-17};
    if (x != x) return x;
    double a = fabs(x), t = 2 / (2 + a), y = 2 * t - 1, b0 = 0, b1 = 0, b2 = 0;
    for (int j = (int)(sizeof c / sizeof *c) - 1; j > 0; j--) { // Clenshaw's recurrence
        b2 = b1, b1 = b0;
        b0 = 2 * y * b1 - b2 + c[j];
    }
    double tail = a > 27.5 ? 0 : t * osh_math_exp(-a * a) * (y * b0 - b1 + 0.5 * c[0]);
    return x < 0 ? 2 - tail : tail;
}

/* Computes cos(pi u) = sin(pi (1/2 - u)) by the Taylor series of sin. */
double osh_math_cos_pi(double u)
{
    double x = M_PI * (0.5 - u), term = x, sum = x;
    for (int k = 1; k < 12; k++) sum += term *= -x * x / (double)(2 * k * (2 * k + 1));
    return sum;
}
