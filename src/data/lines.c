/* lines.c - reads a file in chunks, decompresses it, makes a line of each row, and cuts the text at
 * \n. The rows of a .parquet come from its columns (parquet.h).
 *
 * Rows are UTF-8. A byte order mark at the start of a file is removed. UTF-16, UTF-32, NUL bytes
 * and invalid sequences are errors.
 *
 * Limits protect against a small hostile .zst or .gz that becomes very large. A line has at most 64
 * MiB, the whole text 64 GiB, and zstd's window 128 MiB. */
#include "data/lines.h"
#include "base/file.h"
#include "base/name.h"
#include "base/utf8.h"
#include "data/folder.h"
#include "data/parquet.h"
#include "data/shape.h"
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { CHUNK = 1 << 18 };
#define MAX_LINE ((size_t)64 << 20)
#define MAX_TOTAL ((int64_t)64 << 30)

struct osh_lines {
    osh_file *file;     // own
    int64_t at;         // number of bytes read from the current file
    int64_t n_total;    // number of bytes after decompression
    ZSTD_DCtx *zstd;    // own: decompressor; NULL: the file is not a .zst
    z_stream *gz;       // own: decompressor; NULL: the file is not a .gz
    osh_shape *shape;   // own: converter of .json and .csv; NULL: each row of the file is a line
    osh_parquet *parquet; // own: reader of the rows; NULL: the file is not a .parquet
    size_t zstd_bytes;  // bytes of zstd's memory that are counted so far
    char **files;       // own [n_files]: paths, read in order; NULL: there is only `file`
    int64_t *first;     // own [n_files]: number of the first line of each opened file
    size_t n_files, n_open;
    int64_t n_lines;    // number of complete lines of all files
    bool shaped;        // true if osh_shape made lines from the rows
    char head[4]; // first bytes of the current file, which may be a byte order mark
    size_t n_head;
    bool begun;         // true: `head` was checked
    /* Number of bytes of the current file that were processed (with the byte order mark), and
     * number of newlines in these bytes. */
    int64_t part_bytes, part_lines;
    int64_t mark;       // size of the byte order mark in bytes; 0: the file has none
    osh_utf8 utf8;      // UTF-8 decoder for the bytes after the mark
    const char *column; // view: wanted column of a .csv
    bool rows;          // true: opened by osh_lines_open_rows; false: by osh_lines_open
    char last;          // last byte that was appended to `text`
    char *packed;       // own [CHUNK]; compressed bytes
    char *chunk;        // own [CHUNK]
    ZSTD_inBuffer in;   // view: the part of `packed` that is not yet decompressed
    /* true: the last call of zstd filled the chunk, so zstd may have more output. */
    bool more_to_flush;
    bool in_frame;      // true: a zstd frame has begun and not ended, so the file must not end here
    osh_buf text;       // decompressed bytes; the bytes before `start` were used
    size_t start;
    size_t line_bytes;  // bytes of the current line that are before `start`
    size_t newline;     // position of the \n in `text`, if line_ends is true
    bool in_line, shown, line_ends;
    bool file_ends;     // true: the file has no more bytes after `text`
    bool as_they_are;
    int64_t number;
};

static void *gz_alloc(void *cx, unsigned n, unsigned size) { return osh_calloc(cx, n, size); }
static void gz_free(void *cx, void *p) { osh_free(cx, p); }

static osh_status gz_open(osh_ctx *cx, osh_lines *l, const char *path)
{
    enum { GZIP = 16 + MAX_WBITS }; // 16: zlib expects a header and a trailer of gzip
    osh_status rc = OSH_OK;
    OSH_NEW(cx, l->gz, 1);
    *l->gz = (z_stream){.zalloc = gz_alloc, .zfree = gz_free, .opaque = cx};
    if (inflateInit2(l->gz, GZIP) != Z_OK)
        OSH_FAIL(cx, OSH_E_NOMEM, "%s: cannot allocate the decompressor", path);
done:
    return rc;
}

static void part_close(osh_ctx *cx, osh_lines *l)
{
    if (l->gz) inflateEnd(l->gz);
    osh_free(cx, l->gz), l->gz = NULL;
    osh_shape_free(cx, l->shape), l->shape = NULL;
    osh_parquet_close(cx, l->parquet), l->parquet = NULL;
    osh_file_close(cx, l->file), l->file = NULL;
    ZSTD_freeDCtx(l->zstd), l->zstd = NULL;
    osh_mem_uncount(cx, l->zstd_bytes), l->zstd_bytes = 0;
}

/* Opens one file: the only file, or the next file of a directory. */
static osh_status part_open(osh_ctx *cx, osh_lines *l, const char *path)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_file_open(cx, &l->file, path));
    l->at = 0, l->in = (ZSTD_inBuffer){0}, l->more_to_flush = l->in_frame = false;
    l->n_head = 0, l->begun = !l->rows, l->part_bytes = l->part_lines = l->mark = 0;
    l->utf8 = (osh_utf8){0};
    if (!l->chunk) OSH_NEW(cx, l->chunk, CHUNK);
    bool gz = osh_before_tail(path, ".gz"), zst = osh_before_tail(path, ".zst");
    if ((gz || zst) && !l->packed) OSH_NEW(cx, l->packed, CHUNK);
    if (gz) OSH_TRY(gz_open(cx, l, path));
    if (zst) {
        l->zstd = ZSTD_createDCtx();
        if (!l->zstd) OSH_FAIL(cx, OSH_E_NOMEM, "%s: cannot allocate the decompressor", path);
    }
    if (l->rows) OSH_TRY(osh_shape_new(cx, &l->shape, path, l->column));
    if (l->rows && osh_before_tail(path, ".parquet"))
        OSH_TRY(osh_parquet_open(cx, &l->parquet, l->file, l->column));
    l->shaped |= l->shape || l->parquet;
    if (l->first) l->first[l->n_open - 1] = l->n_lines + 1;
done:
    return rc;
}

osh_status osh_lines_open(osh_ctx *cx, osh_lines **out, const char *path)
{
    osh_status rc = OSH_OK;
    osh_lines *l = NULL; // own

    OSH_NEW(cx, l, 1);
    osh_buf_init(&l->text, 0);
    OSH_TRY(part_open(cx, l, path));
    *out = l, l = NULL; // give
done:
    osh_lines_close(cx, l);
    return rc;
}

osh_status osh_lines_open_rows(osh_ctx *cx, osh_lines **out, const char *path, const char *column,
                               const char *splits)
{
    osh_status rc = OSH_OK;
    osh_lines *l = NULL; // own
    const char *kind = NULL;
    OSH_NEW(cx, l, 1);
    osh_buf_init(&l->text, 0);
    l->rows = true, l->column = column;
    OSH_TRY(osh_folder_files(cx, &l->files, &l->n_files, &kind, path, splits));
    OSH_NEW(cx, l->first, l->n_files);
    OSH_TRY(part_open(cx, l, l->files[l->n_open++]));
    *out = l, l = NULL; // give
done:
    osh_lines_close(cx, l);
    return rc;
}

void osh_lines_close(osh_ctx *cx, osh_lines *l)
{
    if (!l) return;
    part_close(cx, l);
    osh_strings_free(cx, l->files, l->n_files);
    osh_free(cx, l->first);
    osh_free(cx, l->packed);
    osh_free(cx, l->chunk);
    osh_buf_deinit(cx, &l->text);
    osh_free(cx, l);
}

/* Reads up to CHUNK bytes of the current file. Sets *n to the number of bytes, which is 0 at the
 * end of the file. */
static osh_status part_read(osh_ctx *cx, osh_lines *l, char *to, size_t *n)
{
    int64_t left = osh_file_bytes(l->file) - l->at;

    *n = left > CHUNK ? CHUNK : left > 0 ? (size_t)left : 0;
    if (!*n) return OSH_OK;
    osh_status rc = osh_file_pread(cx, l->file, to, *n, l->at);
    l->at += (int64_t)*n;
    return rc;
}

/* Counts the memory that the decompressor has allocated since the last call. The size of this
 * memory depends on the file, which sets the size of zstd's window. */
static osh_status zstd_count_bytes(osh_ctx *cx, osh_lines *l)
{
    size_t now = ZSTD_sizeof_DCtx(l->zstd);

    if (now <= l->zstd_bytes) return OSH_OK;
    osh_status rc = osh_mem_count(cx, now - l->zstd_bytes);
    if (!rc) l->zstd_bytes = now;
    return rc;
}

static osh_status zstd_decompress(osh_ctx *cx, osh_lines *l, size_t *n)
{
    osh_status rc = OSH_OK;
    const char *path = osh_file_path(l->file);
    ZSTD_outBuffer out = {.dst = l->chunk, .size = CHUNK};

    while (!out.pos) {
        if (l->in.pos == l->in.size && !l->more_to_flush) {
            size_t got = 0;
            OSH_TRY(part_read(cx, l, l->packed, &got));
            l->in = (ZSTD_inBuffer){.src = l->packed, .size = got};
            if (!got) break;
        }
        size_t code = ZSTD_decompressStream(l->zstd, &out, &l->in);
        if (ZSTD_isError(code))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: not valid zstd: %s", path, ZSTD_getErrorName(code));
        OSH_TRY(zstd_count_bytes(cx, l));
        l->in_frame = code != 0;
        l->more_to_flush = code != 0 && out.pos == out.size;
    }
    if (!out.pos && l->in_frame)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: ends inside a zstd frame: the file is cut off", path);
    *n = out.pos;
done:
    return rc;
}

/* Decompresses the next bytes of a .gz to l->chunk. Sets *n to the number of decompressed bytes,
 * which is 0 at the end of the file. A .gz may have several members, one after the other. */
static osh_status gz_inflate(osh_ctx *cx, osh_lines *l, size_t *n)
{
    osh_status rc = OSH_OK;
    const char *path = osh_file_path(l->file);
    z_stream *z = l->gz;

    z->next_out = (unsigned char *)l->chunk, z->avail_out = CHUNK;
    while (z->avail_out == CHUNK) {
        if (!z->avail_in) {
            size_t got = 0;
            OSH_TRY(part_read(cx, l, l->packed, &got));
            if (!got) break;
            z->next_in = (unsigned char *)l->packed, z->avail_in = (unsigned)got;
        }
        if (!l->in_frame) inflateReset(z), l->in_frame = true;
        int code = inflate(z, Z_NO_FLUSH);
        if (code == Z_STREAM_END) l->in_frame = false;
        else if (code == Z_MEM_ERROR)
            OSH_FAIL(cx, OSH_E_NOMEM, "%s: no memory to decompress it", path);
        else if (code != Z_OK && code != Z_BUF_ERROR)
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: not valid gzip: %s", path,
                     z->msg ? z->msg : "it needs a dictionary");
    }
    *n = CHUNK - z->avail_out;
    if (!*n && l->in_frame)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: ends inside a gzip member: the file is cut off", path);
done:
    return rc;
}

void osh_lines_as_they_are(osh_lines *l) { l->as_they_are = true; }

/* Opens the next file of a directory. If the previous file does not end with a newline, appends a
 * newline. */
static osh_status lines_next_part(osh_ctx *cx, osh_lines *l)
{
    osh_status rc = OSH_OK;
    if (l->last && l->last != '\n') {
        OSH_TRY(osh_buf_append(cx, &l->text, "\n", 1));
        l->n_lines++;
    }
    l->last = '\n';
    part_close(cx, l);
    OSH_TRY(part_open(cx, l, l->files[l->n_open++]));
done:
    return rc;
}

static int64_t count_newlines(const char *s, size_t n)
{
    int64_t k = 0;
    for (const char *end = s + n; (s = memchr(s, '\n', (size_t)(end - s))); s++) k++;
    return k;
}

static osh_status refuse_nul(osh_ctx *cx, const osh_lines *l, const char *bytes, size_t at)
{
    return osh_fail(cx, OSH_E_FORMAT,
                    "%s: a NUL in line %lld, at byte %lld of the text: want text in UTF-8 (UTF-16, "
                    "UTF-32 and binary files hold NULs)",
                    osh_file_path(l->file),
                    (long long)(l->part_lines + count_newlines(bytes, at) + 1),
                    (long long)l->part_bytes + (long long)at);
}

/* Fails if the next n bytes of the file are not UTF-8. If n is 0, the file has ended. */
static osh_status part_check(osh_ctx *cx, osh_lines *l, const char *bytes, size_t n)
{
    const char *nul = n ? memchr(bytes, 0, n) : NULL;
    if (nul) return refuse_nul(cx, l, bytes, (size_t)(nul - bytes));
    if (n ? osh_utf8_read(&l->utf8, bytes, n) : osh_utf8_ends(&l->utf8)) return OSH_OK;
    // if `here` is below 0, the wrong character begins before `bytes`
    int64_t here = l->mark + l->utf8.start - l->part_bytes;
    int64_t line = l->part_lines + 1 + count_newlines(bytes, here > 0 && n ? (size_t)here : 0);
    return osh_fail(cx, OSH_E_FORMAT,
                    "%s: byte 0x%02X in line %lld, at byte %lld of the text, is not UTF-8: want "
                    "text in UTF-8, not in Latin-1 or Windows-1252",
                    osh_file_path(l->file), l->utf8.lead, (long long)line,
                    (long long)(l->mark + l->utf8.start));
}

/* Appends n bytes to l->text. They come after the byte order mark. If n is 0, the file has
 * ended. */
static osh_status part_put(osh_ctx *cx, osh_lines *l, const char *bytes, size_t n)
{
    osh_status rc = OSH_OK;
    size_t had = l->text.len;
    if (l->rows) OSH_TRY(part_check(cx, l, bytes, n));
    if (l->shape) OSH_TRY(osh_shape_feed(cx, l->shape, &l->text, bytes, n));
    else OSH_TRY(osh_buf_append(cx, &l->text, bytes, n));
    if (!l->rows) goto done;
    l->part_bytes += (int64_t)n, l->part_lines += count_newlines(bytes, n);
    if (l->text.len > had) l->n_lines += count_newlines(l->text.data + had, l->text.len - had);
done:
    return rc;
}

/* Removes the byte order mark of UTF-8 from the head of a file, and refuses other byte order marks.
 * The function is called when the head is complete or the file has ended. */
static osh_status head_put(osh_ctx *cx, osh_lines *l)
{
    osh_status rc = OSH_OK;
    const char *s = l->head;
    size_t n = l->n_head, mark = n >= 3 && !memcmp(s, "\xef\xbb\xbf", 3) ? 3 : 0;
    bool wide = n >= 4 && (!memcmp(s, "\0\0\xfe\xff", 4) || !memcmp(s, "\xff\xfe\0\0", 4));
    l->begun = true;
    if (wide || (n >= 2 && (!memcmp(s, "\xfe\xff", 2) || !memcmp(s, "\xff\xfe", 2))))
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: begins with the byte order mark of UTF-%s, want text in UTF-8",
                 osh_file_path(l->file), wide ? "32" : "16");
    l->part_bytes = l->mark = (int64_t)mark;
    if (n > mark) OSH_TRY(part_put(cx, l, s + mark, n - mark));
done:
    return rc;
}

/* Processes the next n bytes of the file after decompression. If n is 0, the file has ended. */
static osh_status part_feed(osh_ctx *cx, osh_lines *l, const char *bytes, size_t n)
{
    osh_status rc = OSH_OK;
    size_t at = 0;
    while (!l->begun && l->n_head < sizeof l->head && at < n) l->head[l->n_head++] = bytes[at++];
    if (!l->begun && (!n || l->n_head == sizeof l->head)) OSH_TRY(head_put(cx, l));
    if (at < n || !n) OSH_TRY(part_put(cx, l, bytes + at, n - at));
done:
    return rc;
}

/* Appends the next rows of a .parquet. Sets *n to the number of appended bytes, which is 0 at the
 * end of the file. */
static osh_status parquet_feed(osh_ctx *cx, osh_lines *l, size_t *n)
{
    size_t had = l->text.len;
    osh_status rc = osh_parquet_rows(cx, l->parquet, &l->text);
    *n = l->text.len - had;
    if (*n) l->n_lines += count_newlines(l->text.data + had, *n);
    return rc;
}

/* Drops the bytes of l->text before l->start, then appends the next bytes of the file. */
static osh_status lines_fill(osh_ctx *cx, osh_lines *l)
{
    osh_status rc = OSH_OK;
    size_t n = 0;

    if (l->start) { // drops the bytes that the caller has used
        memmove(l->text.data, l->text.data + l->start, l->text.len - l->start);
        l->text.len -= l->start;
        l->start = 0;
    }
    size_t had = l->text.len;
    do {
        if (osh_interrupted(cx))
            OSH_FAIL(cx, OSH_E_INTERRUPTED, "interrupted while reading %s", osh_file_path(l->file));
        if (l->parquet) OSH_TRY(parquet_feed(cx, l, &n));
        else if (l->zstd) OSH_TRY(zstd_decompress(cx, l, &n));
        else if (l->gz) OSH_TRY(gz_inflate(cx, l, &n));
        else OSH_TRY(part_read(cx, l, l->chunk, &n));
        l->n_total += (int64_t)n;
        if (l->n_total > MAX_TOTAL)
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: more than 64 GiB of text", osh_file_path(l->file));
        if (!l->parquet) OSH_TRY(part_feed(cx, l, l->chunk, n));
        if (l->text.len > had) l->last = l->text.data[l->text.len - 1];
        l->file_ends = n == 0 && l->n_open >= l->n_files;
        if (!n && !l->file_ends) OSH_TRY(lines_next_part(cx, l));
        /* A chunk of a .csv gives no bytes if it is inside of an unwanted column. */
    } while (l->text.len == had && !l->file_ends);
done:
    return rc;
}

osh_status osh_lines_bytes(osh_ctx *cx, osh_lines *l, const char **text, size_t *n)
{
    osh_status rc = OSH_OK;

    l->start = l->text.len;
    OSH_TRY(lines_fill(cx, l));
    *text = l->text.data;
    *n = l->text.len;
done:
    if (rc) osh_note(cx, "reading %s", osh_file_path(l->file));
    return rc;
}

osh_status osh_lines_more(osh_ctx *cx, osh_lines *l, size_t used, const char **text, size_t *n,
                          bool *end)
{
    osh_status rc = OSH_OK;
    size_t from = l->start, to;

    l->start += used;
    l->line_bytes += used;
    if (l->shown && !l->line_ends) {
        size_t had = l->text.len - l->start;
        OSH_TRY(lines_fill(cx, l));
        from = l->start + had;
    }
    l->shown = true;
    if (!l->line_ends) {
        const char *at =
            from < l->text.len ? memchr(l->text.data + from, '\n', l->text.len - from) : NULL;
        l->line_ends = at != NULL;
        l->newline = at ? (size_t)(at - l->text.data) : l->text.len;
    }
    to = l->newline;
    *end = l->line_ends || l->file_ends;
    if (!l->as_they_are && l->line_bytes + (to - l->start) > MAX_LINE) {
        osh_place place = osh_lines_place(l);
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: %s %lld is longer than 64 MiB", place.path, place.what,
                 (long long)place.number);
    }
    /* A \r at the end of the text is not returned yet. If a \n follows, the \r belongs to the line
     * end. If not, the next call returns the \r. */
    if (!l->as_they_are && to > l->start && l->text.data[to - 1] == '\r') to--;
    *text = l->text.data + l->start;
    *n = to - l->start;
done:
    return rc;
}

bool osh_is_blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!s[i] || !strchr(" \t\r\n\v\f", s[i])) return false;
    return true;
}

osh_status osh_lines_skip(osh_ctx *cx, osh_lines *l, bool *blank)
{
    osh_status rc = OSH_OK;
    const char *text = NULL;
    size_t n = 0;
    bool end = false;

    *blank = true;
    while (!end) {
        OSH_TRY(osh_lines_more(cx, l, n, &text, &n, &end));
        *blank = *blank && osh_is_blank(text, n);
    }
done:
    return rc;
}

osh_status osh_lines_begin(osh_ctx *cx, osh_lines *l, bool *any)
{
    osh_status rc = OSH_OK;
    bool blank;

    if (l->in_line && !l->line_ends && !l->file_ends) OSH_TRY(osh_lines_skip(cx, l, &blank));
    if (l->in_line) l->start = l->line_ends ? l->newline + 1 : l->text.len;
    while (l->start == l->text.len && !l->file_ends) OSH_TRY(lines_fill(cx, l));
    *any = l->in_line = l->start < l->text.len;
    l->line_bytes = 0;
    l->shown = l->line_ends = false;
    l->number += *any;
done:
    return rc;
}

osh_place osh_lines_place(const osh_lines *l)
{
    size_t k = l->n_open; // after the loop, k - 1 is the index of the file that has the line
    if (!l->files) return (osh_place){osh_file_path(l->file), "line", l->number};
    while (k > 1 && l->first[k - 1] > l->number) k--;
    return (osh_place){l->files[k - 1], l->shaped ? "row" : "line",
                       l->number - l->first[k - 1] + 1};
}
