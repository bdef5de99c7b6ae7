/* elementary.h - exp, log, power and erfc without the C library: IEEE additions, multiplications,
 * divisions and bit moves only, so every C library, compiler and instruction set gives the same
 * bits. (sqrt, floor and ceil are exact in any library.)
 *
 * Errors against the true value, measured by tests/unit/test_elementary.c: exp and log 1 unit in
 * the last place of a double; pow a relative 1e-14, erfc 1e-13. */
#ifndef OSH_ELEMENTARY_H
#define OSH_ELEMENTARY_H

double osh_math_exp(double x);           // 0 below -746, infinite above 709.79
double osh_math_log(double x);           // NaN below 0, -infinity at 0
double osh_math_pow(double x, double y); // e^(y log x), for x > 0
double osh_math_erfc(double x);          // 2 / sqrt(pi) * integral of e^(-t^2) from x to infinity
double osh_math_cos_pi(double u);        // cos(pi u), 0 <= u <= 1
#endif
