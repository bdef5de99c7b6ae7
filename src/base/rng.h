/* rng.h - declares a counter-based random number generator: value i of stream s with seed k depends
 * only on (k, s, i), so C and Python give the same value.
 *
 *   x = k + 0x9E3779B97F4A7C15 * (s * 2^32 + i + 1), then splitmix64's finalizer, modulo 2^64:
 *   x ^= x >> 30; x *= 0xBF58476D1CE4E5B9; x ^= x >> 27; x *= 0x94D049BB133111EB; x ^= x >> 31 */
#ifndef OSH_RNG_H
#define OSH_RNG_H
#include <stdint.h>
static inline uint64_t osh_rng_u64(uint64_t k, uint64_t s, uint64_t i)
{
    uint64_t x = k + 0x9E3779B97F4A7C15ull * ((s << 32) + i + 1);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}
/* Returns a uniform number in [-1, 1), exact in f32: the top 24 bits / 2^23 - 1. */
static inline float osh_rng_sym(uint64_t k, uint64_t s, uint64_t i)
{
    return (float)(osh_rng_u64(k, s, i) >> 40) * (1.0f / 8388608.0f) - 1.0f;
}
#endif
