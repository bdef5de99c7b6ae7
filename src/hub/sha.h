/* sha.h - computes SHA-256, and git's SHA-1 of small files, of bytes that come in pieces. */
#ifndef OSH_HUB_SHA_H
#define OSH_HUB_SHA_H
#include "base/base.h"

typedef struct osh_sha osh_sha;
osh_status osh_sha_new(osh_ctx *cx, osh_sha **out, int bits); // bits of the hash: 160 or 256
void osh_sha_free(osh_ctx *cx, osh_sha *s);
void osh_sha_feed(osh_sha *s, const void *p, size_t n);
/* Returns the hash as 40 or 64 hex digits. No bytes can be added after this call. */
osh_status osh_sha_end(osh_ctx *cx, osh_sha *s, char hex[65]);
#endif
