/* elementary.h - computes exp, log, power, erfc and cos without the C library. It uses only IEEE
 * additions, multiplications, divisions and bit operations, so every C library, compiler and
 * instruction set gives the same bits. (sqrt, floor and ceil are exact in any library.)
 *
 * Errors that tests/unit/test_elementary.c measures:
 *
 *   exp, log   1 unit in the last place of a double
 *   pow        1e-14, relative
 *   erfc       1e-13, relative */
#ifndef OSH_ELEMENTARY_H
#define OSH_ELEMENTARY_H

double osh_math_exp(double x);           // returns e^x; 0 for x below -746, infinity above 709.79
double osh_math_log(double x);           // returns ln x; NaN for x < 0, -infinity for 0
double osh_math_pow(double x, double y); // returns e^(y log x), for x > 0
/* Returns erfc x: 2 / sqrt(pi) times the integral of e^(-t^2) from x to infinity. */
double osh_math_erfc(double x);
double osh_math_cos_pi(double u);        // returns cos(pi u), for 0 <= u <= 1
#endif
