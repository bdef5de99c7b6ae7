/* journal.c - reads, checks and writes the records of a journal. */
#include "io/journal.h"

#include <string.h>

#include "base/file.h"
#include "base/inode.h"
#include "base/xxh3.h"

enum { MAGIC_BYTES = 8, HEAD_BYTES = 16, SUM_BYTES = 8, MAX_PAYLOAD = 64 << 20 };
static const char magic[] = "OSHJRNL1";
#define MAX_BYTES ((int64_t)1 << 31)

struct osh_journal {
    osh_file *f;                 // own
    uint8_t *bytes;              // own: content that the journal had when it was opened
    osh_journal_record *records; // own
    int64_t n, cap;
    /* end: offset after the last valid record.
     * damaged: number of bytes of the file after `end`. */
    int64_t end, damaged;
    uint64_t number, sum; // number: number of the next record; sum: checksum of the last record
    struct { int64_t end; uint64_t number, sum; } synced;
};

static uint64_t u64_at(const uint8_t *p)
{
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

static uint32_t u32_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void put_u64(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++) p[i] = (uint8_t)(v >> (8 * i));
}

static void put_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (8 * i));
}

uint64_t osh_read_u64(osh_reader *r)
{
    if (r->bad || r->left < 8) return r->bad = true, 0;
    r->at += 8, r->left -= 8;
    return u64_at(r->at - 8);
}

uint32_t osh_read_u32(osh_reader *r)
{
    if (r->bad || r->left < 4) return r->bad = true, 0;
    r->at += 4, r->left -= 4;
    return u32_at(r->at - 4);
}

double osh_read_f64(osh_reader *r)
{
    uint64_t v = osh_read_u64(r);
    double d;
    memcpy(&d, &v, sizeof d);
    return d;
}

const char *osh_read_text(osh_reader *r, size_t *n)
{
    *n = osh_read_u32(r);
    if (r->bad || r->left < *n) return r->bad = true, *n = 0, "";
    r->at += *n, r->left -= *n;
    return (const char *)r->at - *n;
}

osh_status osh_put_u64(osh_ctx *cx, osh_buf *b, uint64_t v)
{
    uint8_t p[8];
    put_u64(p, v);
    return osh_buf_append(cx, b, p, sizeof p);
}

osh_status osh_put_u32(osh_ctx *cx, osh_buf *b, uint32_t v)
{
    uint8_t p[4];
    put_u32(p, v);
    return osh_buf_append(cx, b, p, sizeof p);
}

osh_status osh_put_f64(osh_ctx *cx, osh_buf *b, double v)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    return osh_put_u64(cx, b, u);
}

osh_status osh_put_text(osh_ctx *cx, osh_buf *b, const char *s)
{
    size_t n = strlen(s);
    osh_status rc = osh_put_u32(cx, b, (uint32_t)n);
    return rc ? rc : osh_buf_append(cx, b, s, n);
}

/* Checks the record at p. The file has `left` bytes from p on. Returns the number of bytes of its
 * payload. Returns -1 if the record is incomplete, or if its number or its checksum is wrong. Sets
 * *sum to the checksum of the record. */
static int64_t record_check(const uint8_t *p, int64_t left, uint64_t number, uint64_t *sum)
{
    if (left < HEAD_BYTES + SUM_BYTES) return -1;
    int64_t n = u32_at(p);
    if (n > MAX_PAYLOAD || left < HEAD_BYTES + n + SUM_BYTES || u64_at(p + 8) != number) return -1;
    uint64_t want = XXH3_64bits_withSeed(p, (size_t)(HEAD_BYTES + n), *sum);
    if (u64_at(p + HEAD_BYTES + n) != want) return -1;
    *sum = want;
    return n;
}

static osh_status journal_add_record(osh_ctx *cx, osh_journal *j, osh_journal_record r)
{
    osh_status rc = OSH_OK;
    if (j->n == j->cap) {
        int64_t cap = j->cap ? 2 * j->cap : 64;
        osh_journal_record *more = osh_realloc(cx, j->records, (size_t)cap * sizeof *more);
        if (!more) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for the records of a journal");
        j->records = more, j->cap = cap;
    }
    j->records[j->n++] = r;
done:
    return rc;
}

static osh_status journal_read_records(osh_ctx *cx, osh_journal *j)
{
    osh_status rc = OSH_OK;
    int64_t size = osh_file_bytes(j->f);
    if (size > MAX_BYTES)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s has %lld bytes, at most %lld are read", osh_file_path(j->f),
                 (long long)size, (long long)MAX_BYTES);
    OSH_NEW(cx, j->bytes, size);
    if (size) OSH_TRY(osh_file_pread(cx, j->f, j->bytes, (size_t)size, 0));
    if (size >= MAGIC_BYTES && !memcmp(j->bytes, magic, MAGIC_BYTES)) j->end = MAGIC_BYTES;
    while (j->end) {
        const uint8_t *p = j->bytes + j->end;
        int64_t n = record_check(p, size - j->end, j->number, &j->sum);
        if (n < 0) break;
        OSH_TRY(journal_add_record(
            cx, j, (osh_journal_record){u32_at(p + 4), (uint32_t)n, p + HEAD_BYTES}));
        j->end += HEAD_BYTES + n + SUM_BYTES;
        j->number++;
    }
    j->damaged = size - j->end;
    j->synced.end = j->end, j->synced.number = j->number, j->synced.sum = j->sum;
done:
    return rc;
}

osh_status osh_journal_is_one(osh_ctx *cx, const char *path, bool *is)
{
    osh_status rc = OSH_OK;
    osh_file *f = NULL; // own
    char begin[MAGIC_BYTES];
    *is = false;
    OSH_TRY(osh_file_open(cx, &f, path));
    if (osh_file_bytes(f) < MAGIC_BYTES) goto done;
    OSH_TRY(osh_file_pread(cx, f, begin, MAGIC_BYTES, 0));
    *is = !memcmp(begin, magic, MAGIC_BYTES);
done:
    osh_file_close(cx, f);
    return rc;
}

osh_status osh_journal_is_begun(osh_ctx *cx, const char *path, bool *is)
{
    osh_status rc = OSH_OK;
    osh_file *f = NULL; // own
    char begin[MAGIC_BYTES] = {0};
    osh_inode at = osh_inode_at(path);
    *is = at.kind == OSH_INODE_FILE && at.n_names == 1 && at.n_bytes <= MAGIC_BYTES;
    if (!*is) goto done;
    OSH_TRY(osh_file_open(cx, &f, path));
    OSH_TRY(osh_file_pread(cx, f, begin, (size_t)at.n_bytes, 0));
    for (int i = 0; i < MAGIC_BYTES; i++) *is &= !begin[i] || begin[i] == magic[i];
done:
    osh_file_close(cx, f);
    return rc;
}

osh_status osh_journal_open(osh_ctx *cx, osh_journal **out, const char *path, bool *busy)
{
    osh_status rc = OSH_OK;
    osh_journal *j = NULL; // own
    bool taken = false;
    *out = NULL, *busy = false;
    OSH_NEW(cx, j, 1);
    OSH_TRY(osh_file_open_or_create(cx, &j->f, path));
    OSH_TRY(osh_file_lock(cx, j->f, &taken));
    /* another process may have renamed or removed the file before it released the lock */
    if (!taken || !osh_file_is_at(j->f, path)) {
        *busy = true;
        goto done;
    }
    OSH_TRY(journal_read_records(cx, j));
    *out = j, j = NULL; // give
done:
    osh_journal_close(cx, j);
    return rc;
}

void osh_journal_close(osh_ctx *cx, osh_journal *j)
{
    if (!j) return;
    osh_journal_drop(cx, j);
    osh_file_close(cx, j->f);
    osh_free(cx, j);
}

bool osh_journal_is_at(const osh_journal *j, const char *path)
{
    return osh_file_is_at(j->f, path);
}
int64_t osh_journal_count(const osh_journal *j) { return j->n; }
const osh_journal_record *osh_journal_at(const osh_journal *j, int64_t i) { return &j->records[i]; }
int64_t osh_journal_damaged(const osh_journal *j) { return j->damaged; }

void osh_journal_drop(osh_ctx *cx, osh_journal *j)
{
    osh_free(cx, j->bytes);
    osh_free(cx, j->records);
    j->bytes = NULL, j->records = NULL, j->n = j->cap = 0;
}

/* Removes the bytes after the last valid record. Otherwise a shorter new record could leave the end
 * of a damaged record in the file. Writes the magic to an empty file. */
static osh_status journal_cut_tail(osh_ctx *cx, osh_journal *j)
{
    osh_status rc = OSH_OK;
    if (osh_file_bytes(j->f) > j->end) OSH_TRY(osh_file_truncate(cx, j->f, j->end));
    if (j->end) goto done;
    OSH_TRY(osh_file_pwrite(cx, j->f, magic, MAGIC_BYTES, 0));
    j->end = MAGIC_BYTES;
done:
    return rc;
}

osh_status osh_journal_append(osh_ctx *cx, osh_journal *j, uint32_t type, const void *payload,
                              size_t n)
{
    osh_status rc = OSH_OK;
    uint8_t *p = NULL; // own
    size_t all = HEAD_BYTES + n + SUM_BYTES;
    if (n > MAX_PAYLOAD) OSH_FAIL(cx, OSH_E_INTERNAL, "a journal record of %zu bytes", n);
    if (!(p = osh_alloc(cx, all))) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a journal record");
    OSH_TRY(journal_cut_tail(cx, j));
    put_u32(p, (uint32_t)n);
    put_u32(p + 4, type);
    put_u64(p + 8, j->number);
    if (n) memcpy(p + HEAD_BYTES, payload, n);
    uint64_t sum = XXH3_64bits_withSeed(p, HEAD_BYTES + n, j->sum);
    put_u64(p + HEAD_BYTES + n, sum);
    OSH_TRY(osh_file_pwrite(cx, j->f, p, all, j->end));
    j->end += (int64_t)all, j->number++, j->sum = sum;
done:
    osh_free(cx, p);
    return rc;
}

osh_status osh_journal_sync(osh_ctx *cx, osh_journal *j)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_file_sync_data(cx, j->f));
    j->synced.end = j->end, j->synced.number = j->number, j->synced.sum = j->sum;
done:
    return rc;
}

osh_status osh_journal_rewind(osh_ctx *cx, osh_journal *j)
{
    osh_status rc = OSH_OK;
    OSH_TRY(osh_file_truncate(cx, j->f, j->synced.end));
    j->end = j->synced.end, j->number = j->synced.number, j->sum = j->synced.sum;
done:
    return rc;
}

osh_status osh_journal_clear(osh_ctx *cx, osh_journal *j)
{
    osh_status rc = OSH_OK;
    osh_journal_drop(cx, j);
    j->end = 0, j->number = 0, j->sum = 0, j->damaged = 0;
    OSH_TRY(osh_file_truncate(cx, j->f, 0));
    // writes the magic, by which a later run recognizes a partial directory
    OSH_TRY(journal_cut_tail(cx, j));
    OSH_TRY(osh_journal_sync(cx, j));
done:
    return rc;
}
