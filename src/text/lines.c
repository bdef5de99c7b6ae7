/* lines.c - a file in chunks, decompressed on the way, cut at \n.
 *
 * Caps keep a small hostile .zst from becoming all of the memory or an endless run: 64 MiB for a line, 64 GiB in all,
 * and zstd's own 128 MiB for its window. */
#include "text/lines.h"
#include "base/file.h"
#include <string.h>
#include <zstd.h>

enum { CHUNK = 1 << 18 };
#define MAX_LINE ((size_t)64 << 20)
#define MAX_TOTAL ((int64_t)64 << 30)

struct osh_lines {
    osh_file *file;     // own
    int64_t at;         // bytes of the file that were read
    int64_t n_total;    // bytes that came out
    ZSTD_DCtx *zstd;    // own; NULL: not compressed
    char *packed;       // own [CHUNK]; compressed bytes
    char *chunk;        // own [CHUNK]
    ZSTD_inBuffer in;   // view of packed
    bool more_to_flush; // the last call filled the chunk
    bool in_frame;      // the end of the file may not come here
    osh_buf text;       // bytes that came out and were not given yet, from start on
    size_t start, searched;
    int64_t number;
};

osh_status osh_lines_open(osh_ctx *cx, osh_lines **out, const char *path)
{
    osh_status rc = OSH_OK;
    osh_lines *l = NULL; // own
    size_t len = strlen(path);

    OSH_NEW(cx, l, 1);
    osh_buf_init(&l->text, 0);
    OSH_TRY(osh_file_open(cx, &l->file, path));
    OSH_NEW(cx, l->chunk, CHUNK);
    if (len > 4 && !strcmp(path + len - 4, ".zst")) {
        OSH_NEW(cx, l->packed, CHUNK);
        l->zstd = ZSTD_createDCtx();
        if (!l->zstd) OSH_FAIL(cx, OSH_E_NOMEM, "%s: cannot allocate the decompressor", path);
    }
    *out = l, l = NULL; // give
done:
    osh_lines_close(cx, l);
    return rc;
}

void osh_lines_close(osh_ctx *cx, osh_lines *l)
{
    if (!l) return;
    osh_file_close(cx, l->file);
    ZSTD_freeDCtx(l->zstd);
    osh_free(cx, l->packed);
    osh_free(cx, l->chunk);
    osh_buf_deinit(cx, &l->text);
    osh_free(cx, l);
}

/* Up to CHUNK bytes of the file; *n 0: its end. */
static osh_status read_file(osh_ctx *cx, osh_lines *l, char *to, size_t *n)
{
    int64_t left = osh_file_bytes(l->file) - l->at;

    *n = left > CHUNK ? CHUNK : left > 0 ? (size_t)left : 0;
    if (!*n) return OSH_OK;
    osh_status rc = osh_file_pread(cx, l->file, to, *n, l->at);
    l->at += (int64_t)*n;
    return rc;
}

static osh_status decompress(osh_ctx *cx, osh_lines *l, size_t *n)
{
    osh_status rc = OSH_OK;
    const char *path = osh_file_path(l->file);
    ZSTD_outBuffer out = {.dst = l->chunk, .size = CHUNK};

    while (!out.pos) {
        if (l->in.pos == l->in.size && !l->more_to_flush) {
            size_t got = 0;
            OSH_TRY(read_file(cx, l, l->packed, &got));
            l->in = (ZSTD_inBuffer){.src = l->packed, .size = got};
            if (!got) break;
        }
        size_t code = ZSTD_decompressStream(l->zstd, &out, &l->in);
        if (ZSTD_isError(code))
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: not valid zstd: %s", path, ZSTD_getErrorName(code));
        l->in_frame = code != 0;
        l->more_to_flush = code != 0 && out.pos == out.size;
    }
    if (!out.pos && l->in_frame)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: ends inside a zstd frame: the file is cut off", path);
    *n = out.pos;
done:
    return rc;
}

/* Appends what comes next to l->text; *end: nothing did. */
static osh_status fill(osh_ctx *cx, osh_lines *l, bool *end)
{
    osh_status rc = OSH_OK;
    size_t n = 0;

    if (l->start) { // what was given goes
        memmove(l->text.data, l->text.data + l->start, l->text.len - l->start);
        l->text.len -= l->start;
        l->searched -= l->start;
        l->start = 0;
    }
    if (l->zstd) OSH_TRY(decompress(cx, l, &n));
    else OSH_TRY(read_file(cx, l, l->chunk, &n));
    l->n_total += (int64_t)n;
    if (l->n_total > MAX_TOTAL)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: more than 64 GiB of text", osh_file_path(l->file));
    OSH_TRY(osh_buf_append(cx, &l->text, l->chunk, n));
    *end = n == 0;
done:
    return rc;
}

static void give_line(osh_lines *l, size_t end, size_t after, const char **text, size_t *n)
{
    *text = l->text.data + l->start;
    *n = end - l->start;
    if (*n && (*text)[*n - 1] == '\r') --*n;
    l->start = l->searched = after;
    l->number++;
}

osh_status osh_lines_next(osh_ctx *cx, osh_lines *l, const char **text, size_t *n)
{
    osh_status rc = OSH_OK;
    bool end = false;

    *text = NULL;
    *n = 0;
    for (;;) {
        const char *newline = NULL;
        if (l->searched < l->text.len)
            newline = memchr(l->text.data + l->searched, '\n', l->text.len - l->searched);
        if (newline) {
            size_t at = (size_t)(newline - l->text.data);
            give_line(l, at, at + 1, text, n);
            goto done;
        }
        l->searched = l->text.len;
        if (l->searched - l->start > MAX_LINE)
            OSH_FAIL(cx, OSH_E_FORMAT, "%s: line %lld is longer than 64 MiB", osh_file_path(l->file),
                     (long long)l->number + 1);
        OSH_TRY(fill(cx, l, &end));
        if (!end) continue;
        if (l->start < l->text.len) give_line(l, l->text.len, l->text.len, text, n);
        goto done;
    }
done:
    return rc;
}

int64_t osh_lines_number(const osh_lines *l) { return l->number; }

osh_status osh_lines_rest(osh_ctx *cx, osh_lines *l, osh_buf *b)
{
    osh_status rc = OSH_OK;
    bool end = false;

    while (!end) {
        if (l->start < l->text.len)
            OSH_TRY(osh_buf_append(cx, b, l->text.data + l->start, l->text.len - l->start));
        l->start = l->searched = l->text.len;
        OSH_TRY(fill(cx, l, &end));
    }
done:
    if (rc) osh_note(cx, "reading %s", osh_file_path(l->file));
    return rc;
}
