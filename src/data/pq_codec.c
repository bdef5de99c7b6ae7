/* pq_codec.c - decompresses pages with zlib and zstd, and Snappy with the loop below.
 *
 * Snappy's raw format is the number of decompressed bytes, and then elements. The low two bits of
 * the first byte of an element tell its kind:
 *
 *   0   literal: the upper 6 bits are the length - 1 if they are below 60;
 *       60 to 63: the length - 1 is in the next 1 to 4 bytes
 *   1   copy: bits 2 to 4 are the length - 4, and bits 5 to 7 and a byte are the offset
 *   2   copy of 1 to 64 bytes: the upper 6 bits are the length - 1, and 2 bytes are the offset
 *   3   like 2, with an offset of 4 bytes
 *
 * libsnappy is not used: Debian's libsnappy is C++, and no other code of the program needs the C++
 * library at run time. */
#include "data/pq_codec.h"

#include <string.h>
#include <zlib.h>
#include <zstd.h>

static const char *const names[] = {"uncompressed", "Snappy", "gzip", "LZO",
                                    "Brotli",       "LZ4",    "zstd", "LZ4_RAW"};

const char *osh_pq_codec_name(int64_t codec)
{
    return codec >= 0 && codec < 8 ? names[codec] : "an unknown codec";
}

bool osh_pq_codec_is_known(int64_t codec)
{
    return codec == OSH_PQ_PLAIN_BYTES || codec == OSH_PQ_SNAPPY || codec == OSH_PQ_GZIP ||
           codec == OSH_PQ_ZSTD;
}

static osh_status codec_fail(osh_ctx *cx, const char *what, int64_t codec, const char *why)
{
    return osh_fail(cx, OSH_E_FORMAT, "%s: not valid %s: %s", what, osh_pq_codec_name(codec), why);
}

/* ---- Snappy ---- */

typedef struct snappy {
    uint8_t *to;
    size_t n, at; // n: size of the output; at: bytes written so far
    const uint8_t *from, *end;
} snappy;

/* Reads a whole number that is stored in `bytes` bytes. Returns false if the input ends. */
static bool snappy_number(snappy *s, size_t *out, size_t bytes)
{
    *out = 0;
    if ((size_t)(s->end - s->from) < bytes) return false;
    for (size_t i = 0; i < bytes; i++) *out |= (size_t)*s->from++ << 8 * i;
    return true;
}

static bool snappy_literal(snappy *s, uint8_t tag)
{
    size_t len = tag >> 2;
    if (len >= 60 && !snappy_number(s, &len, len - 59)) return false;
    len++;
    if (len > (size_t)(s->end - s->from) || len > s->n - s->at) return false;
    memcpy(s->to + s->at, s->from, len);
    s->from += len, s->at += len;
    return true;
}

static bool snappy_copy(snappy *s, uint8_t tag)
{
    size_t len = (size_t)(tag >> 2) + 1, offset;
    int kind = tag & 3;
    if (!snappy_number(s, &offset, kind == 3 ? 4 : (size_t)kind)) return false;
    if (kind == 1) len = (size_t)(tag >> 2 & 7) + 4, offset |= (size_t)(tag >> 5) << 8;
    if (!offset || offset > s->at || len > s->n - s->at) return false;
    /* Copies byte by byte, because the copied bytes may include bytes that this loop writes. */
    for (; len; len--, s->at++) s->to[s->at] = s->to[s->at - offset];
    return true;
}

static osh_status snappy_unpack(osh_ctx *cx, uint8_t *to, size_t n, const osh_pq_packed *from,
                                const char *what)
{
    snappy s = {.to = to, .n = n, .from = from->s, .end = from->s + from->n};
    size_t size = 0;
    uint8_t b = 128;
    for (int shift = 0; b & 128; shift += 7) {
        if (shift > 28 || s.from == s.end)
            return codec_fail(cx, what, OSH_PQ_SNAPPY, "the size is missing");
        b = *s.from++;
        size |= (size_t)(b & 127) << shift;
    }
    if (size != n)
        return codec_fail(cx, what, OSH_PQ_SNAPPY, "its size differs from the page header");
    while (s.from < s.end) {
        uint8_t tag = *s.from++;
        if (!(tag & 3 ? snappy_copy(&s, tag) : snappy_literal(&s, tag)))
            return codec_fail(cx, what, OSH_PQ_SNAPPY, "an element reaches outside of the page");
    }
    return s.at == n ? OSH_OK : codec_fail(cx, what, OSH_PQ_SNAPPY, "too few bytes");
}

/* ---- gzip, zstd ---- */

static void *zlib_alloc(void *cx, unsigned n, unsigned size)
{
    return osh_calloc(cx, n, size);
}
static void zlib_free(void *cx, void *p)
{
    osh_free(cx, p);
}

static osh_status gzip_unpack(osh_ctx *cx, uint8_t *to, size_t n, const osh_pq_packed *from,
                              const char *what)
{
    /* 32: zlib finds out from the header if the data is in the format of zlib or of gzip. */
    enum { ZLIB_OR_GZIP = 32 + MAX_WBITS };
    osh_status rc = OSH_OK;
    z_stream z = {.zalloc = zlib_alloc,
                  .zfree = zlib_free,
                  .opaque = cx,
                  .next_in = (unsigned char *)(uintptr_t)from->s,
                  .avail_in = (unsigned)from->n,
                  .next_out = to,
                  .avail_out = (unsigned)n};
    int code = inflateInit2(&z, ZLIB_OR_GZIP);
    if (code != Z_OK) OSH_FAIL(cx, OSH_E_NOMEM, "%s: cannot allocate the decompressor", what);
    while ((code = inflate(&z, Z_FINISH)) == Z_STREAM_END && z.avail_in && z.avail_out)
        inflateReset(&z); // gzip data may have several members, one after the other
    if (code == Z_MEM_ERROR)
        rc = osh_fail(cx, OSH_E_NOMEM, "%s: no memory to decompress it", what);
    else if (code != Z_STREAM_END || z.avail_out)
        rc = codec_fail(cx, what, OSH_PQ_GZIP,
                        z.msg ? z.msg : "its size differs from the page header");
    inflateEnd(&z);
done:
    return rc;
}

static osh_status zstd_unpack(osh_ctx *cx, uint8_t *to, size_t n, const osh_pq_packed *from,
                              const char *what)
{
    size_t got = ZSTD_decompress(to, n, from->s, from->n);
    if (ZSTD_isError(got)) return codec_fail(cx, what, OSH_PQ_ZSTD, ZSTD_getErrorName(got));
    return got == n ? OSH_OK : codec_fail(cx, what, OSH_PQ_ZSTD, "too few bytes");
}

osh_status osh_pq_decompress(osh_ctx *cx, void *to, size_t n, const osh_pq_packed *from,
                             const char *what)
{
    int64_t codec = from->codec;
    /* A page without values has no data to decompress. */
    if (!n && osh_pq_codec_is_known(codec)) return OSH_OK;
    switch (codec) {
    case OSH_PQ_SNAPPY:
        return snappy_unpack(cx, to, n, from, what);
    case OSH_PQ_GZIP:
        return gzip_unpack(cx, to, n, from, what);
    case OSH_PQ_ZSTD:
        return zstd_unpack(cx, to, n, from, what);
    default:
        break;
    }
    if (codec != OSH_PQ_PLAIN_BYTES)
        return osh_fail(cx, OSH_E_UNSUPPORTED,
                        "%s: is compressed with %s, want Snappy, gzip, zstd or no compression",
                        what, osh_pq_codec_name(codec));
    if (n != from->n) return codec_fail(cx, what, codec, "its size differs from the page header");
    memcpy(to, from->s, n);
    return OSH_OK;
}
