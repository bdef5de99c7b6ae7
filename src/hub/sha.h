/* sha.h - computes the SHA-256 or SHA-1 hash of bytes that are added in chunks. */
#ifndef OSH_HUB_SHA_H
#define OSH_HUB_SHA_H
#include "base/base.h"

typedef struct osh_sha osh_sha;
osh_status osh_sha_new(osh_ctx *cx, osh_sha **out, int bits); // bits of the hash: 160 or 256
/* Frees s, which may be NULL. */
void osh_sha_free(osh_ctx *cx, osh_sha *s);
/* Adds n bytes to the hash. osh_sha_end reports failures. */
void osh_sha_feed(osh_sha *s, const void *p, size_t n);
/* Writes the hash to `hex`, as 40 or 64 hex digits. The caller adds no bytes after this call. */
osh_status osh_sha_end(osh_ctx *cx, osh_sha *s, char hex[65]);
#endif
