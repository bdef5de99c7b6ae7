/* pq_codec.h - decompresses pages of Parquet files. */
#ifndef OSH_PQ_CODEC_H
#define OSH_PQ_CODEC_H
#include "base/base.h"

/* Numbers of the codecs in Parquet files. */
enum { OSH_PQ_PLAIN_BYTES, OSH_PQ_SNAPPY, OSH_PQ_GZIP, OSH_PQ_ZSTD = 6 };
/* True if the program can read the codec. */
bool osh_pq_codec_is_known(int64_t codec);
/* Returns a name for messages, also for codecs that are not supported. */
const char *osh_pq_codec_name(int64_t codec);
typedef struct osh_pq_packed {                // compressed bytes
    const uint8_t *s;                         // view
    size_t n;
    int64_t codec;
} osh_pq_packed;
/* Decompresses `from` to exactly n bytes. The message of an error begins with `what`. */
osh_status osh_pq_decompress(osh_ctx *cx, void *to, size_t n, const osh_pq_packed *from,
                             const char *what);
#endif
