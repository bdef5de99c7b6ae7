/* sha.c - FIPS 180-4. SHA-256 of 1 GB takes about three seconds; each file has a thread of its own. */
#include "hub/sha.h"

#include <stdio.h>
#include <string.h>

static const uint32_t k256[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t right(uint32_t x, int n) { return x >> n | x << (32 - n); }

/* One round: a is the first of the eight words, which change places from round to round. */
static inline void round256(uint32_t *v, int first, uint32_t k, uint32_t w)
{
#define WORD(j) v[(first + (j)) & 7]
    uint32_t e = WORD(4), a = WORD(0);
    uint32_t t = WORD(7) + (right(e, 6) ^ right(e, 11) ^ right(e, 25)) + (WORD(6) ^ (e & (WORD(5) ^ WORD(6)))) + k + w;
    WORD(3) += t;
    WORD(7) = t + (right(a, 2) ^ right(a, 13) ^ right(a, 22)) + ((a & (WORD(1) | WORD(2))) | (WORD(1) & WORD(2)));
#undef WORD
}

static void sha256_block(uint32_t *h, const uint32_t *block)
{
    uint32_t w[64], v[8];
    memcpy(w, block, 64);
    memcpy(v, h, sizeof v);
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (right(a, 7) ^ right(a, 18) ^ a >> 3) + (right(b, 17) ^ right(b, 19) ^ b >> 10);
    }
    for (int i = 0; i < 64; i += 8) { // written out, so that the eight words stay in registers
        round256(v, 0, k256[i], w[i]), round256(v, 7, k256[i + 1], w[i + 1]);
        round256(v, 6, k256[i + 2], w[i + 2]), round256(v, 5, k256[i + 3], w[i + 3]);
        round256(v, 4, k256[i + 4], w[i + 4]), round256(v, 3, k256[i + 5], w[i + 5]);
        round256(v, 2, k256[i + 6], w[i + 6]), round256(v, 1, k256[i + 7], w[i + 7]);
    }
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

static void sha1_block(uint32_t *h, const uint32_t *block)
{
    static const uint32_t k[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    uint32_t w[80], v[5];
    memcpy(w, block, 64);
    memcpy(v, h, sizeof v);
    for (int i = 16; i < 80; i++) w[i] = right(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 31);
    for (int i = 0; i < 80; i++) {
        uint32_t b = v[1], c = v[2], d = v[3];
        uint32_t f = i < 20 ? (b & c) | (~b & d) : i < 40 || i >= 60 ? b ^ c ^ d : (b & c) | (b & d) | (c & d);
        uint32_t t = right(v[0], 27) + f + v[4] + k[i / 20] + w[i];
        v[4] = d, v[3] = c, v[2] = right(b, 2), v[1] = v[0], v[0] = t;
    }
    for (int i = 0; i < 5; i++) h[i] += v[i];
}

static void one_block(osh_sha *s, const uint8_t *p)
{
    uint32_t w[16];
    for (int i = 0; i < 16; i++, p += 4)
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    (s->n_words == 5 ? sha1_block : sha256_block)(s->state, w);
}

void osh_sha1_begin(osh_sha *s)
{
    *s = (osh_sha){.n_words = 5, .state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}};
}

void osh_sha256_begin(osh_sha *s)
{
    *s = (osh_sha){.n_words = 8, .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                                           0x1f83d9ab, 0x5be0cd19}};
}

void osh_sha_feed(osh_sha *s, const void *from, size_t n)
{
    const uint8_t *p = from;
    size_t at = s->n_bytes % 64;
    s->n_bytes += n;
    if (at) {
        size_t k = n < 64 - at ? n : 64 - at;
        memcpy(s->block + at, p, k);
        p += k, n -= k;
        if (at + k < 64) return;
        one_block(s, s->block);
    }
    for (; n >= 64; p += 64, n -= 64) one_block(s, p);
    memcpy(s->block, p, n);
}

void osh_sha_end(osh_sha *s, char hex[65])
{
    uint8_t length[8], end[64] = {0x80};
    uint64_t bits = s->n_bytes * 8;
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
    osh_sha_feed(s, end, 1 + (119 - s->n_bytes % 64) % 64);
    osh_sha_feed(s, length, 8);
    for (int i = 0; i < s->n_words; i++) snprintf(hex + 8 * i, 9, "%08x", s->state[i]);
}
