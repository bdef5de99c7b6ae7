/* scalar.h - defines arithmetic on single numbers for all kernels: minimum, maximum, division that
 * rounds up, rounding to a dtype, and the address of an element. */
#ifndef OSH_SCALAR_H
#define OSH_SCALAR_H
#include "base/num.h"
#include "tensor/tensor.h"

static inline int64_t osh_min64(int64_t a, int64_t b) { return a < b ? a : b; }
/* Returns the greatest common divisor of a and b. If one of them is 0, returns the other. */
static inline int64_t osh_gcd64(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}
static inline int64_t osh_max64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t osh_div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Rounds f to the nearest value of dt, ties to even, if dt is BF16 or F16. Returns f for other
 * dtypes. */
static inline float osh_round_to(float f, osh_dtype dt)
{
    if (dt == OSH_BF16) return osh_f32_of_bf16(osh_bf16_of_f32(f));
    if (dt == OSH_F16) return osh_f32_of_f16(osh_f16_of_f32(f));
    return f;
}

static inline int64_t osh_rows(const osh_tensor *t) { return t->shape[0]; }
static inline int64_t osh_width(const osh_tensor *t) { return t->ndim < 2 ? 1 : t->shape[1]; }
static inline void *osh_elem(const osh_tensor *t, int64_t i) // returns the address of element i
{
    return (char *)t->data + (size_t)i * osh_dtype_bytes(t->dtype);
}

#endif
