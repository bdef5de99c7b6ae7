/* wordsum.h - computes a checksum that is as fast as reading the memory, on the host and on a GPU.
 *
 *   sum of mix(w[i] ^ i K) over all words w[i] of 8 bytes, mod 2^64
 *
 * The last word is padded with zeros. K is an odd constant, and mix is a permutation of all 64-bit
 * words. So a change of one word always changes the sum. Words may be added in any order, by any
 * number of threads. */
#ifndef OSH_WORDSUM_H
#define OSH_WORDSUM_H
#include "tensor/device.h"

/* Returns the sum of n_bytes bytes at p. */
uint64_t osh_wordsum(const void *p, size_t n_bytes);

#define OSH_WORDSUM_K 0x9e3779b97f4a7c15ull
/* Replaces x by mix(x) of the formula. This is the finalizer of MurmurHash3's 64-bit variant. */
#define OSH_WORDSUM_MIX(x)                                                                         \
    do {                                                                                           \
        (x) ^= (x) >> 33, (x) *= 0xff51afd7ed558ccdull;                                            \
        (x) ^= (x) >> 33, (x) *= 0xc4ceb9fe1a85ec53ull;                                            \
        (x) ^= (x) >> 33;                                                                          \
    } while (0)
#endif
