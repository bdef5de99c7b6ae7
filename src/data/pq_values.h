/* pq_values.h - decodes the levels and values of one page of a Parquet file, one after the other. A
 * decoder stores only its position, so its memory does not depend on the number of values. All
 * functions return false if the bytes are not valid. */
#ifndef OSH_PQ_VALUES_H
#define OSH_PQ_VALUES_H
#include "base/buf.h"

enum { // numbers of the encodings in Parquet files
    OSH_PQ_PLAIN = 0,
    OSH_PQ_PLAIN_DICTIONARY = 2,
    OSH_PQ_RLE = 3,
    OSH_PQ_DELTA_BINARY_PACKED = 5,
    OSH_PQ_DELTA_LENGTH_BYTE_ARRAY = 6,
    OSH_PQ_DELTA_BYTE_ARRAY = 7,
    OSH_PQ_RLE_DICTIONARY = 8,
    OSH_PQ_BYTE_STREAM_SPLIT = 9
};
enum { // physical types
    OSH_PQ_BOOLEAN,
    OSH_PQ_INT32,
    OSH_PQ_INT64,
    OSH_PQ_INT96,
    OSH_PQ_FLOAT,
    OSH_PQ_DOUBLE,
    OSH_PQ_BYTE_ARRAY,
    OSH_PQ_FIXED
};

typedef struct osh_pq_bytes {
    const uint8_t *at, *end;
} osh_pq_bytes; // views

/* A decoder of levels, booleans and indices into a dictionary. These values are stored in runs of
 * equal values and runs of packed values:
 *
 *   run     varint: n << 1,             then the value in ceil(width / 8) bytes
 *   packed  varint: n / 8 << 1 | 1,     then n values of `width` bits, the lowest bits first */
typedef struct osh_pq_hybrid {
    osh_pq_bytes b;
    int width;     // number of bits of a packed value, 0 to 32
    uint64_t left; // values of the current run that were not yet read
    bool packed;
    uint32_t value; // the value that a run of equal values repeats
    uint64_t bit;   // position of the next packed value in `bits`, in bits
    const uint8_t *bits;
} osh_pq_hybrid;
/* Sets *v to the next value. Returns false at the end of the bytes. */
bool osh_pq_hybrid_next(osh_pq_hybrid *h, uint32_t *v);

/* A decoder of integers that are stored as differences of successive integers, in blocks. A block
 * begins with its smallest difference, which is subtracted from all differences of the block. The
 * results are stored in miniblocks. Each miniblock has its own width in bits. */
typedef struct osh_pq_delta {
    osh_pq_bytes b;
    uint64_t n, i;        // n: number of values; i: index of the next value
    /* n_mini: number of miniblocks in a block; per: number of values in a miniblock. */
    uint64_t n_mini, per;
    /* mini: index of the next miniblock; in: values of the current miniblock not yet read. */
    uint64_t mini, in;
    const uint8_t *widths, *bits;
    uint64_t bit;
    int width;
    uint64_t last, least;
} osh_pq_delta;
/* Begins to decode the bytes b. Returns false if their header is wrong. */
bool osh_pq_delta_open(osh_pq_delta *d, osh_pq_bytes b);
/* Sets *v to the next value. Returns false if there is none. */
bool osh_pq_delta_next(osh_pq_delta *d, int64_t *v);
/* Sets *end to the first byte after all values that `d` decodes. Does not change `d`. */
bool osh_pq_delta_end(const osh_pq_delta *d, const uint8_t **end);

typedef struct osh_pq_dictionary { // the values of a dictionary page
    uint8_t *data;                 // own
    uint32_t *at;                  // own [n]: position of each BYTE_ARRAY; NULL: values of one size
    size_t n_bytes, n;
} osh_pq_dictionary;

typedef struct osh_pq_value {
    const uint8_t *s; // bytes of a BYTE_ARRAY; view: valid until the next value
    size_t n;
    union {
        int64_t i;
        double d;
    } u; // i: value of a BOOLEAN, INT32 or INT64; d: value of a FLOAT or DOUBLE
} osh_pq_value;

typedef struct osh_pq_values { // decoder of the values of a page
    int type, encoding;
    osh_pq_bytes b;
    osh_pq_hybrid hybrid;
    osh_pq_delta lengths, prefixes; // `lengths` also decodes integers
    osh_buf last;                   // own: the value decoded last, for DELTA_BYTE_ARRAY
    /* size: number of bytes of a value.
     * n_split: for the encoding BYTE_STREAM_SPLIT: number of values.
     * i: for the encoding BYTE_STREAM_SPLIT: index of the next value. */
    size_t size, n_split, i;
    uint64_t bit;            // for BOOLEAN in PLAIN: position of the next bit
    const osh_pq_dictionary *dictionary; // view
} osh_pq_values;
/* Returns the size of a value of the type in bytes. Returns 0 if the sizes of values differ, or if
 * the type is unknown. */
size_t osh_pq_type_bytes(int type);
/* True if the program can decode values of this type in this encoding. */
bool osh_pq_encoding_is_known(int type, int encoding);
/* Begins to decode the values of a page. Resets all members of *v except `last`. */
bool osh_pq_values_open(osh_pq_values *v, osh_pq_bytes b, int type, int encoding,
                        const osh_pq_dictionary *dictionary);
/* Decodes the next value. *rc is not OSH_OK if there is no memory. */
bool osh_pq_values_next(osh_ctx *cx, osh_pq_values *v, osh_pq_value *out, osh_status *rc);
#endif
