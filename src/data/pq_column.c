/* pq_column.c - reads the pages of a column:
 *
 *   [header][dictionary page] [header][data page] [header][data page] ...
 *
 * A header is a struct of Thrift. A data page is the repetition levels, the definition levels and
 * the values. In version 1 the page is compressed as a whole, and each of the two lists of levels
 * begins with its length in 4 bytes. In version 2 only the values are compressed, and the header
 * has the lengths of the levels. */
#include "data/pq_column.h"

#include <string.h>
#include <zlib.h>

#include "data/pq_codec.h"
#include "data/thrift.h"

enum { FIRST_HEAD = 16 << 10, MAX_HEAD = 16 << 20, MAX_PAGE = 256 << 20 };
enum { DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 };

typedef struct page_head {
    /* Sizes in bytes.
     * n_bytes: size of the decompressed page.
     * n_packed: size of the page in the file. */
    int64_t kind, n_bytes, n_packed, crc;
    int64_t n_values, encoding, def_encoding, rep_encoding;
    /* def_bytes, rep_bytes: sizes of the definition and repetition levels; only for DATA_PAGE_V2 */
    int64_t def_bytes, rep_bytes;
    bool has_crc, has_data, is_packed;
} page_head;

static osh_status column_fail(osh_ctx *cx, const osh_pq_column *c, const char *why)
{
    return osh_fail(cx, OSH_E_FORMAT, "%s: %s, in the page that begins before byte %lld", c->what,
                    why, (long long)c->at);
}

/* ---- headers ---- */

static osh_status data_field(osh_thrift *t, void *user, int id, int type)
{
    page_head *h = user;
    int64_t *const to[] = {NULL, &h->n_values, &h->encoding, &h->def_encoding, &h->rep_encoding};
    h->has_data = true;
    return id >= 1 && id <= 4 ? osh_thrift_int(t, to[id], type) : osh_thrift_skip(t, type);
}

static osh_status dictionary_field(osh_thrift *t, void *user, int id, int type)
{
    page_head *h = user;
    h->has_data = true;
    if (id != 1 && id != 2) return osh_thrift_skip(t, type);
    return osh_thrift_int(t, id == 1 ? &h->n_values : &h->encoding, type);
}

static osh_status data2_field(osh_thrift *t, void *user, int id, int type)
{
    page_head *h = user;
    int64_t unused;
    int64_t *const to[] = {NULL,         &h->n_values,  &unused,      &unused,
                           &h->encoding, &h->def_bytes, &h->rep_bytes};
    h->has_data = true;
    if (id == 7) return osh_thrift_bool(t, &h->is_packed, type);
    return id >= 1 && id <= 6 ? osh_thrift_int(t, to[id], type) : osh_thrift_skip(t, type);
}

static osh_status head_field(osh_thrift *t, void *user, int id, int type)
{
    page_head *h = user;
    switch (id) {
    case 1:
        return osh_thrift_int(t, &h->kind, type);
    case 2:
        return osh_thrift_int(t, &h->n_bytes, type);
    case 3:
        return osh_thrift_int(t, &h->n_packed, type);
    case 4:
        h->has_crc = true;
        return osh_thrift_int(t, &h->crc, type);
    case 5:
        return osh_thrift_struct(t, type, data_field, h);
    case 7:
        return osh_thrift_struct(t, type, dictionary_field, h);
    case 8:
        return osh_thrift_struct(t, type, data2_field, h);
    default:
        return osh_thrift_skip(t, type);
    }
}

static osh_status bytes_grow(osh_ctx *cx, uint8_t **p, size_t *cap, size_t n)
{
    if (n <= *cap) return OSH_OK;
    uint8_t *more = osh_realloc(cx, *p, n);
    if (!more) return OSH_E_NOMEM;
    *p = more, *cap = n;
    return OSH_OK;
}

/* Reads the header at c->at, and moves c->at to the end of the header. A header has no length, so
 * more bytes are read until the header is complete. */
static osh_status column_read_head(osh_ctx *cx, osh_pq_column *c, page_head *h)
{
    osh_status rc = OSH_OK;
    int64_t left = c->chunk.from + c->chunk.n_bytes - c->at;
    size_t n = FIRST_HEAD;
    for (;; n *= 8) {
        if (left < (int64_t)n) n = (size_t)left;
        OSH_TRY(bytes_grow(cx, &c->head, &c->head_cap, n));
        OSH_TRY(osh_file_pread(cx, c->file, c->head, n, c->at));
        osh_thrift t = osh_thrift_of(cx, c->head, n, c->what);
        *h = (page_head){.n_values = -1, .n_bytes = -1, .n_packed = -1, .is_packed = true};
        rc = osh_thrift_struct(&t, OSH_THRIFT_STRUCT, head_field, h);
        if (!rc) c->at += (int64_t)t.at;
        if (!rc || !t.short_of || (int64_t)n == left || n >= MAX_HEAD) break;
        osh_error_clear(cx);
    }
    if (rc) goto done;
    left = c->chunk.from + c->chunk.n_bytes - c->at;
    if (h->n_packed < 0 || h->n_packed > left)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: a page of %lld bytes, but the column has %lld more",
                 c->what, (long long)h->n_packed, (long long)left);
    if (h->n_bytes < 0 || h->n_bytes > MAX_PAGE || h->n_packed > MAX_PAGE)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: a page of %lld bytes (%lld as stored), want at most %d", c->what,
                 (long long)h->n_bytes, (long long)h->n_packed, MAX_PAGE);
    if (h->has_data && (h->n_values < 0 || h->n_values > INT32_MAX))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: a page of %lld values, want 0 to %d", c->what,
                 (long long)h->n_values, INT32_MAX);
done:
    return rc;
}

/* ---- pages ---- */

/* Reads the stored bytes of a page into c->packed, and moves c->at to their end. */
static osh_status column_read_packed(osh_ctx *cx, osh_pq_column *c, const page_head *h)
{
    osh_status rc = OSH_OK;
    OSH_TRY(bytes_grow(cx, &c->packed, &c->packed_cap, (size_t)h->n_packed + 1));
    if (h->n_packed) OSH_TRY(osh_file_pread(cx, c->file, c->packed, (size_t)h->n_packed, c->at));
    c->at += h->n_packed;
    if (h->has_crc && (uint32_t)crc32(0, c->packed, (unsigned)h->n_packed) != (uint32_t)h->crc)
        OSH_TRY(column_fail(cx, c, "the checksum of a page differs"));
done:
    return rc;
}

static void dictionary_deinit(osh_ctx *cx, osh_pq_dictionary *d)
{
    osh_free(cx, d->data);
    osh_free(cx, d->at);
    *d = (osh_pq_dictionary){0};
}

static osh_status column_read_dictionary(osh_ctx *cx, osh_pq_column *c, const page_head *h)
{
    osh_status rc = OSH_OK;
    osh_pq_dictionary *d = &c->dictionary;
    size_t size = osh_pq_type_bytes(c->type), each = size ? size : 4;
    if (!h->has_data || d->data || c->n_seen || c->type == OSH_PQ_BOOLEAN)
        OSH_TRY(column_fail(cx, c, "a dictionary that is not the first page"));
    if (h->encoding != OSH_PQ_PLAIN && h->encoding != OSH_PQ_PLAIN_DICTIONARY)
        OSH_TRY(column_fail(cx, c, "a dictionary whose encoding is not PLAIN"));
    OSH_TRY(column_read_packed(cx, c, h));
    d->n_bytes = (size_t)h->n_bytes, d->n = (size_t)h->n_values;
    if (d->n > d->n_bytes / each) OSH_TRY(column_fail(cx, c, "a dictionary that is cut off"));
    OSH_NEW(cx, d->data, d->n_bytes);
    const osh_pq_packed from = {c->packed, (size_t)h->n_packed, c->chunk.codec};
    OSH_TRY(osh_pq_decompress(cx, d->data, d->n_bytes, &from, c->what));
    if (!size) OSH_NEW(cx, d->at, d->n);
    for (size_t i = 0, at = 0; !size && i < d->n; i++) {
        size_t left = d->n_bytes - at, n;
        if (left < 4) OSH_TRY(column_fail(cx, c, "a dictionary that is cut off"));
        n = (size_t)d->data[at] | (size_t)d->data[at + 1] << 8 | (size_t)d->data[at + 2] << 16 |
            (size_t)d->data[at + 3] << 24;
        if (n > left - 4) OSH_TRY(column_fail(cx, c, "a dictionary that is cut off"));
        d->at[i] = (uint32_t)at, at += 4 + n;
    }
done:
    return rc;
}

static int level_width(int max)
{
    int width = 0;
    for (; max; max >>= 1) width++;
    return width;
}

/* Opens the decoder *h for levels, which are the first `n` bytes of *b. Moves b->at to the end of
 * the levels. max: largest level. */
static bool levels_open(osh_pq_hybrid *h, osh_pq_bytes *b, int64_t n, int max)
{
    if (n < 0 || n > b->end - b->at) return false;
    *h = (osh_pq_hybrid){.b = {b->at, b->at + n}, .width = level_width(max)};
    b->at += n;
    return true;
}

/* Opens the decoder of the levels of a version 1 page. The levels begin with their length in 4
 * bytes. */
static bool levels_open_1(osh_pq_hybrid *h, osh_pq_bytes *b, int max)
{
    if (!max) return *h = (osh_pq_hybrid){0}, true;
    if (b->end - b->at < 4) return false;
    int64_t n = b->at[0] | b->at[1] << 8 | b->at[2] << 16 | (int64_t)b->at[3] << 24;
    b->at += 4;
    return levels_open(h, b, n, max);
}

/* Reads a data page into c->page, and opens the decoders of its levels and values. In version 2,
 * the levels are not compressed. */
static osh_status column_read_data(osh_ctx *cx, osh_pq_column *c, const page_head *h)
{
    osh_status rc = OSH_OK;
    bool second = h->kind == DATA_PAGE_V2, right;
    int64_t levels = second ? h->rep_bytes + h->def_bytes : 0;
    bool rle = (!c->max_rep || h->rep_encoding == OSH_PQ_RLE) &&
               (!c->max_def || h->def_encoding == OSH_PQ_RLE);
    if (!h->has_data) OSH_TRY(column_fail(cx, c, "a data page without its header"));
    if (!second && !rle)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: levels with the encodings %lld and %lld, want RLE (3)",
                 c->what, (long long)h->rep_encoding, (long long)h->def_encoding);
    if (h->encoding < 0 || h->encoding > 32 || !osh_pq_encoding_is_known(c->type, (int)h->encoding))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: values with the encoding %lld, want PLAIN, a dictionary, RLE, DELTA or "
                 "BYTE_STREAM_SPLIT as their type allows",
                 c->what, (long long)h->encoding);
    if (h->rep_bytes < 0 || h->def_bytes < 0 || h->rep_bytes > h->n_packed ||
        h->def_bytes > h->n_packed || levels > h->n_packed || levels > h->n_bytes)
        OSH_TRY(column_fail(cx, c, "levels that are longer than the page"));
    OSH_TRY(column_read_packed(cx, c, h));
    OSH_TRY(bytes_grow(cx, &c->page, &c->page_cap, (size_t)h->n_bytes + 1));
    if (levels) memcpy(c->page, c->packed, (size_t)levels);
    const osh_pq_packed from = {c->packed + levels, (size_t)(h->n_packed - levels),
                                second && !h->is_packed ? OSH_PQ_PLAIN_BYTES : c->chunk.codec};
    OSH_TRY(osh_pq_decompress(cx, c->page + levels, (size_t)(h->n_bytes - levels), &from, c->what));
    osh_pq_bytes b = {c->page, c->page + h->n_bytes};
    if (second)
        right = levels_open(&c->reps, &b, h->rep_bytes, c->max_rep) &&
                levels_open(&c->defs, &b, h->def_bytes, c->max_def);
    else
        right = levels_open_1(&c->reps, &b, c->max_rep) && levels_open_1(&c->defs, &b, c->max_def);
    const osh_pq_dictionary *d = c->dictionary.data ? &c->dictionary : NULL;
    if (!right || !osh_pq_values_open(&c->values, b, c->type, (int)h->encoding, d))
        OSH_TRY(column_fail(cx, c, "levels or values that are cut off"));
    c->n_left = h->n_values;
done:
    return rc;
}

/* Reads the next data page that has values. If a dictionary page comes before this page, reads it,
 * too. */
static osh_status column_next_page(osh_ctx *cx, osh_pq_column *c)
{
    osh_status rc = OSH_OK;
    page_head h;
    while (!c->n_left) {
        if (c->at >= c->chunk.from + c->chunk.n_bytes)
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: ends after %lld values, want %lld", c->what,
                     (long long)c->n_seen, (long long)c->chunk.n_values);
        OSH_TRY(osh_check_interrupt(cx));
        OSH_TRY(column_read_head(cx, c, &h));
        if (h.kind == DICTIONARY_PAGE)
            OSH_TRY(column_read_dictionary(cx, c, &h));
        else if (h.kind == DATA_PAGE || h.kind == DATA_PAGE_V2)
            OSH_TRY(column_read_data(cx, c, &h));
        else
            c->at += h.n_packed; // pages of other kinds are skipped, as the format requires
        if (c->n_left > c->chunk.n_values - c->n_seen)
            OSH_TRY(column_fail(cx, c, "more values than the footer counts"));
    }
    c->n_seen += c->n_left;
done:
    return rc;
}

void osh_pq_column_begin(osh_ctx *cx, osh_pq_column *c, const osh_pq_chunk *chunk)
{
    dictionary_deinit(cx, &c->dictionary);
    c->chunk = *chunk, c->at = chunk->from, c->n_seen = c->n_left = 0;
    c->ready = c->ended = false;
}

void osh_pq_column_deinit(osh_ctx *cx, osh_pq_column *c)
{
    dictionary_deinit(cx, &c->dictionary);
    osh_free(cx, c->head);
    osh_free(cx, c->packed);
    osh_free(cx, c->page);
    osh_free(cx, c->what);
    osh_buf_deinit(cx, &c->values.last);
}

osh_status osh_pq_column_peek(osh_ctx *cx, osh_pq_column *c)
{
    osh_status rc = OSH_OK;
    uint32_t rep = 0, def = 0;
    if (c->ready) goto done;
    if (!c->n_left && c->n_seen >= c->chunk.n_values) {
        c->ready = c->ended = true, c->rep = c->def = 0;
        goto done;
    }
    if (!c->n_left) OSH_TRY(column_next_page(cx, c));
    if ((c->max_rep && !osh_pq_hybrid_next(&c->reps, &rep)) ||
        (c->max_def && !osh_pq_hybrid_next(&c->defs, &def)))
        OSH_TRY(column_fail(cx, c, "levels that are cut off"));
    if (rep > (uint32_t)c->max_rep || def > (uint32_t)c->max_def)
        OSH_TRY(column_fail(cx, c, "a level that is larger than its maximum"));
    c->n_left--, c->ready = true, c->rep = (int)rep, c->def = (int)def;
done:
    return rc;
}

osh_status osh_pq_column_take(osh_ctx *cx, osh_pq_column *c, osh_pq_value *out)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_pq_column_peek(cx, c));
    if (c->ended) OSH_TRY(column_fail(cx, c, "fewer values than rows"));
    *out = (osh_pq_value){0};
    if (c->def == c->max_def && !osh_pq_values_next(cx, &c->values, out, &rc) && !rc)
        OSH_TRY(column_fail(cx, c, "values that are cut off or out of range"));
    if (!rc) c->ready = false;
done:
    return rc;
}
