/* wordsum.c - computes the checksum of wordsum.h on the host. */
#include "ops/wordsum.h"

#include <string.h>

uint64_t osh_wordsum(const void *p, size_t n_bytes)
{
    uint64_t sum = 0, x;
    size_t n = n_bytes / sizeof x, rest = n_bytes % sizeof x;
    for (size_t i = 0; i < n; i++) {
        memcpy(&x, (const char *)p + i * sizeof x, sizeof x);
        x ^= i * OSH_WORDSUM_K;
        OSH_WORDSUM_MIX(x);
        sum += x;
    }
    if (rest) {
        x = 0;
        memcpy(&x, (const char *)p + n * sizeof x, rest);
        x ^= n * OSH_WORDSUM_K;
        OSH_WORDSUM_MIX(x);
        sum += x;
    }
    return sum;
}
