/* pq_values.c - decodes the encodings of Parquet's levels and values. */
#include "data/pq_values.h"

#include <string.h>

enum { MAX_MINI = 1 << 16, MAX_BLOCK = 1 << 24 };

static size_t bytes_left(const osh_pq_bytes *b)
{
    return (size_t)(b->end - b->at);
}

static bool bytes_varint(osh_pq_bytes *b, uint64_t *v)
{
    uint8_t c = 128;
    *v = 0;
    for (int shift = 0; c & 128; shift += 7) {
        if (shift > 63 || b->at == b->end) return false;
        c = *b->at++;
        *v |= (uint64_t)(c & 127) << shift;
    }
    return true;
}

static bool bytes_zigzag(osh_pq_bytes *b, uint64_t *v)
{
    if (!bytes_varint(b, v)) return false;
    *v = *v >> 1 ^ (0 - (*v & 1));
    return true;
}

static uint64_t bytes_number(const uint8_t *s, size_t n) // little-endian
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) v |= (uint64_t)s[i] << 8 * i;
    return v;
}

/* Reads `width` bits (0 to 64) at the position `bit`. The caller has checked that the input has
 * these bits. */
static uint64_t bits_read(const uint8_t *s, uint64_t bit, int width)
{
    uint64_t v = 0;
    for (int got = 0; got < width;) {
        int in = (int)(bit & 7), take = 8 - in < width - got ? 8 - in : width - got;
        v |= (uint64_t)((unsigned)s[bit >> 3] >> in & ((1u << take) - 1)) << got;
        got += take, bit += (uint64_t)take;
    }
    return v;
}

/* ---- runs ---- */

static bool hybrid_run(osh_pq_hybrid *h)
{
    uint64_t head;
    if (!bytes_varint(&h->b, &head)) return false;
    size_t room = bytes_left(&h->b), width = (size_t)h->width;
    h->packed = head & 1, h->left = head >> 1;
    if (!h->packed) {
        size_t n = (width + 7) / 8;
        if (n > room) return false;
        h->value = (uint32_t)bytes_number(h->b.at, n);
        h->b.at += n;
        return true;
    }
    if (h->left > UINT32_MAX) return false;
    /* A run of packed values has groups of 8 values, so each group takes `width` bytes. */
    uint64_t n = h->left * width;
    h->left *= 8;
    /* Some writers cut off the unused end of the last group. */
    if (n > room) h->left = room * 8 / width, n = room;
    h->bits = h->b.at, h->bit = 0, h->b.at += n;
    return true;
}

bool osh_pq_hybrid_next(osh_pq_hybrid *h, uint32_t *v)
{
    while (!h->left)
        if (!hybrid_run(h)) return false;
    h->left--;
    *v = h->value;
    if (h->packed) {
        *v = (uint32_t)bits_read(h->bits, h->bit, h->width);
        h->bit += (uint64_t)h->width;
    }
    return true;
}

/* ---- differences ---- */

bool osh_pq_delta_open(osh_pq_delta *d, osh_pq_bytes b)
{
    uint64_t block;
    *d = (osh_pq_delta){.b = b};
    if (!bytes_varint(&d->b, &block) || !bytes_varint(&d->b, &d->n_mini) ||
        !bytes_varint(&d->b, &d->n) || !bytes_zigzag(&d->b, &d->last))
        return false;
    if (!d->n_mini || d->n_mini > MAX_MINI || !block || block > MAX_BLOCK || block % d->n_mini)
        return false;
    d->per = block / d->n_mini, d->mini = d->n_mini;
    return d->per % 8 == 0;
}

/* Begins the next miniblock. */
static bool delta_mini(osh_pq_delta *d)
{
    if (d->mini == d->n_mini) {
        if (!bytes_zigzag(&d->b, &d->least) || bytes_left(&d->b) < d->n_mini) return false;
        d->widths = d->b.at, d->b.at += d->n_mini, d->mini = 0;
    }
    d->width = d->widths[d->mini++];
    if (d->width > 64) return false;
    size_t n = (size_t)d->per * (size_t)d->width / 8, room = bytes_left(&d->b);
    d->bits = d->b.at, d->bit = 0, d->in = d->per;
    /* Some writers cut off the unused end of the last miniblock. */
    if (n > room) d->in = room * 8 / (size_t)d->width, n = room;
    d->b.at += n;
    return d->in > 0;
}

bool osh_pq_delta_next(osh_pq_delta *d, int64_t *v)
{
    if (d->i == d->n) return false;
    if (d->i++) {
        if (!d->in && !delta_mini(d)) return false;
        d->in--;
        /* The sum wraps around, as in programs that write the format. */
        d->last += d->least + bits_read(d->bits, d->bit, d->width);
        d->bit += (uint64_t)d->width;
    }
    *v = (int64_t)d->last;
    return true;
}

bool osh_pq_delta_end(const osh_pq_delta *d, const uint8_t **end)
{
    osh_pq_delta copy = *d;
    for (uint64_t left = copy.n ? copy.n - 1 : 0; left;) {
        if (!delta_mini(&copy)) return false;
        left -= copy.in < left ? copy.in : left;
    }
    *end = copy.b.at;
    return true;
}

/* ---- values ---- */

size_t osh_pq_type_bytes(int type)
{
    return type == OSH_PQ_INT32 || type == OSH_PQ_FLOAT    ? 4
           : type == OSH_PQ_INT64 || type == OSH_PQ_DOUBLE ? 8
                                                           : 0;
}

bool osh_pq_encoding_is_known(int type, int encoding)
{
    bool whole = type == OSH_PQ_INT32 || type == OSH_PQ_INT64;
    switch (encoding) {
    case OSH_PQ_PLAIN:
        return true;
    case OSH_PQ_PLAIN_DICTIONARY:
    case OSH_PQ_RLE_DICTIONARY:
        return type != OSH_PQ_BOOLEAN;
    case OSH_PQ_RLE:
        return type == OSH_PQ_BOOLEAN;
    case OSH_PQ_DELTA_BINARY_PACKED:
        return whole;
    case OSH_PQ_BYTE_STREAM_SPLIT:
        return osh_pq_type_bytes(type) != 0;
    case OSH_PQ_DELTA_LENGTH_BYTE_ARRAY:
    case OSH_PQ_DELTA_BYTE_ARRAY:
        return type == OSH_PQ_BYTE_ARRAY;
    default:
        return false;
    }
}

/* Opens the decoder `d` of lengths, and moves v->b to the first byte after the lengths. */
static bool values_open_lengths(osh_pq_values *v, osh_pq_delta *d)
{
    return osh_pq_delta_open(d, v->b) && osh_pq_delta_end(d, &v->b.at);
}

bool osh_pq_values_open(osh_pq_values *v, osh_pq_bytes b, int type, int encoding,
                        const osh_pq_dictionary *dictionary)
{
    *v = (osh_pq_values){.type = type,
                         .encoding = encoding,
                         .b = b,
                         .last = v->last,
                         .size = osh_pq_type_bytes(type),
                         .dictionary = dictionary};
    osh_buf_clear(&v->last);
    /* If the page has no bytes, all values are null. */
    if (b.at == b.end && osh_pq_encoding_is_known(type, encoding)) return true;
    switch (encoding) {
    case OSH_PQ_PLAIN_DICTIONARY:
    case OSH_PQ_RLE_DICTIONARY:
        v->hybrid = (osh_pq_hybrid){.b = {b.at + 1, b.end}, .width = b.at[0]};
        return dictionary && b.at[0] <= 32;
    case OSH_PQ_RLE:
        if (bytes_left(&b) < 4 || bytes_number(b.at, 4) > bytes_left(&b) - 4) return false;
        v->hybrid = (osh_pq_hybrid){.b = {b.at + 4, b.at + 4 + bytes_number(b.at, 4)}, .width = 1};
        return true;
    case OSH_PQ_DELTA_BINARY_PACKED:
        return osh_pq_delta_open(&v->lengths, b);
    case OSH_PQ_DELTA_LENGTH_BYTE_ARRAY:
        return values_open_lengths(v, &v->lengths);
    case OSH_PQ_DELTA_BYTE_ARRAY:
        return values_open_lengths(v, &v->prefixes) && values_open_lengths(v, &v->lengths);
    case OSH_PQ_BYTE_STREAM_SPLIT:
        v->n_split = bytes_left(&b) / v->size;
        return bytes_left(&b) % v->size == 0;
    default:
        return encoding == OSH_PQ_PLAIN;
    }
}

/* Converts the stored bytes of an integer or a float to *out. */
static void value_of_bytes(osh_pq_value *out, const uint8_t *s, int type)
{
    uint64_t bits = bytes_number(s, osh_pq_type_bytes(type));
    uint32_t low = (uint32_t)bits;
    float f;
    if (type == OSH_PQ_INT32)
        out->u.i = (int32_t)low;
    else if (type == OSH_PQ_INT64)
        out->u.i = (int64_t)bits;
    else if (type == OSH_PQ_DOUBLE)
        memcpy(&out->u.d, &bits, sizeof bits);
    else
        memcpy(&f, &low, sizeof f), out->u.d = (double)f;
}

static bool values_plain(osh_pq_values *v, osh_pq_value *out)
{
    size_t left = bytes_left(&v->b);
    if (v->type == OSH_PQ_BOOLEAN) {
        if (v->bit >> 3 >= left) return false;
        out->u.i = (int64_t)bits_read(v->b.at, v->bit++, 1);
        return true;
    }
    if (v->size) {
        if (left < v->size) return false;
        value_of_bytes(out, v->b.at, v->type);
        v->b.at += v->size;
        return true;
    }
    if (left < 4) return false;
    out->n = (size_t)bytes_number(v->b.at, 4);
    if (out->n > left - 4) return false;
    out->s = v->b.at + 4;
    v->b.at += 4 + out->n;
    return true;
}

static bool values_lookup(osh_pq_values *v, osh_pq_value *out)
{
    const osh_pq_dictionary *d = v->dictionary;
    uint32_t i;
    if (!v->hybrid.b.at || !osh_pq_hybrid_next(&v->hybrid, &i) || i >= d->n) return false;
    if (v->size) return value_of_bytes(out, d->data + i * v->size, v->type), true;
    out->n = (size_t)bytes_number(d->data + d->at[i], 4);
    out->s = d->data + d->at[i] + 4;
    return true;
}

/* Sets *out to the bytes of the next value, whose length comes from `lengths`. */
static bool values_take(osh_pq_values *v, osh_pq_value *out)
{
    int64_t n;
    if (!osh_pq_delta_next(&v->lengths, &n) || n < 0 || (uint64_t)n > bytes_left(&v->b))
        return false;
    out->s = v->b.at, out->n = (size_t)n;
    v->b.at += n;
    return true;
}

/* Decodes a value of DELTA_BYTE_ARRAY: a prefix of the value before it, then new bytes. */
static bool values_join(osh_ctx *cx, osh_pq_values *v, osh_pq_value *out, osh_status *rc)
{
    int64_t prefix;
    if (!osh_pq_delta_next(&v->prefixes, &prefix) || !values_take(v, out) || prefix < 0 ||
        (uint64_t)prefix > v->last.len)
        return false;
    v->last.len = (size_t)prefix;
    if ((*rc = osh_buf_append(cx, &v->last, out->s, out->n))) return false;
    out->s = (const uint8_t *)v->last.data, out->n = v->last.len;
    return true;
}

bool osh_pq_values_next(osh_ctx *cx, osh_pq_values *v, osh_pq_value *out, osh_status *rc)
{
    uint8_t bytes[8];
    uint32_t bit;
    *out = (osh_pq_value){0}, *rc = OSH_OK;
    switch (v->encoding) {
    case OSH_PQ_PLAIN:
        return values_plain(v, out);
    case OSH_PQ_PLAIN_DICTIONARY:
    case OSH_PQ_RLE_DICTIONARY:
        return values_lookup(v, out);
    case OSH_PQ_RLE:
        if (!v->hybrid.b.at || !osh_pq_hybrid_next(&v->hybrid, &bit)) return false;
        return out->u.i = bit, true;
    case OSH_PQ_DELTA_BINARY_PACKED:
        if (!osh_pq_delta_next(&v->lengths, &out->u.i)) return false;
        if (v->type == OSH_PQ_INT32) out->u.i = (int32_t)(uint32_t)(uint64_t)out->u.i;
        return true;
    case OSH_PQ_DELTA_LENGTH_BYTE_ARRAY:
        return values_take(v, out);
    case OSH_PQ_DELTA_BYTE_ARRAY:
        return values_join(cx, v, out, rc);
    default:
        break;
    }
    if (v->i >= v->n_split) return false;
    for (size_t k = 0; k < v->size; k++) bytes[k] = v->b.at[k * v->n_split + v->i];
    v->i++;
    value_of_bytes(out, bytes, v->type);
    return true;
}
