/* sha.h - SHA-256, and SHA-1 as git names small files by it; fed in pieces. */
#ifndef OSH_HUB_SHA_H
#define OSH_HUB_SHA_H
#include <stddef.h>
#include <stdint.h>

typedef struct osh_sha {
    int n_words;       // 5: SHA-1, 8: SHA-256
    uint32_t state[8];
    uint64_t n_bytes;  // so far
    uint8_t block[64]; // the last n_bytes % 64
} osh_sha;
void osh_sha1_begin(osh_sha *s);
void osh_sha256_begin(osh_sha *s);
void osh_sha_feed(osh_sha *s, const void *p, size_t n);
void osh_sha_end(osh_sha *s, char hex[65]); // 40 or 64 digits
#endif
