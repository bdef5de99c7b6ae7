/* journal.h - an append-only file of checksummed records, held by one process at a time.
 *
 *   file    "OSHJRNL1" record record ...
 *   record  | u32 payload bytes | u32 type | u64 number | payload | u64 XXH3 |      little-endian
 *
 * Records are numbered from 0. The checksum is over all of the record before it, seeded with the checksum of the record
 * before (the first: 0), so that no record passes in another place. Reading ends at the first record that is cut or
 * does not agree; what stands behind it is cut off when the next one is appended. */
#ifndef OSH_JOURNAL_H
#define OSH_JOURNAL_H
#include "base/buf.h"

typedef struct osh_journal osh_journal;
typedef struct osh_journal_record {
    uint32_t type, n;
    const uint8_t *data; // view: until osh_journal_drop
} osh_journal_record;

osh_status osh_journal_is_one(osh_ctx *cx, const char *path, bool *is); // the file begins as a journal does
/* Nothing is in it but a part of that beginning, or zeros in its place, as a kill or a loss of power leaves it. */
osh_status osh_journal_is_begun(osh_ctx *cx, const char *path, bool *is);
/* Made where it is absent. *busy: another process has it, and *out is NULL. */
osh_status osh_journal_open(osh_ctx *cx, osh_journal **out, const char *path, bool *busy);
bool osh_journal_is_at(const osh_journal *j, const char *path); // path still names the file that is open
void osh_journal_close(osh_ctx *cx, osh_journal *j);
int64_t osh_journal_count(const osh_journal *j); // records that were read
const osh_journal_record *osh_journal_at(const osh_journal *j, int64_t i);
int64_t osh_journal_damaged(const osh_journal *j); // bytes behind the last good record when it was opened
void osh_journal_drop(osh_ctx *cx, osh_journal *j); // the memory of the records that were read

/* Written at once, so that a killed process loses nothing; on the disk after osh_journal_sync. */
osh_status osh_journal_append(osh_ctx *cx, osh_journal *j, uint32_t type, const void *payload, size_t n);
/* Everything appended so far is on the disk, and is what osh_journal_rewind goes back to. */
osh_status osh_journal_sync(osh_ctx *cx, osh_journal *j);
osh_status osh_journal_rewind(osh_ctx *cx, osh_journal *j);
osh_status osh_journal_clear(osh_ctx *cx, osh_journal *j); // no record is left, on the disk

/* Payloads: little-endian numbers and byte strings, behind each other. */
typedef struct osh_reader {
    const uint8_t *at;
    size_t left;
    bool bad; // something did not fit; everything after reads as 0
} osh_reader;
uint64_t osh_read_u64(osh_reader *r);
uint32_t osh_read_u32(osh_reader *r);
double osh_read_f64(osh_reader *r);
const char *osh_read_text(osh_reader *r, size_t *n); // u32 length, bytes; view, no NUL behind them
osh_status osh_put_u64(osh_ctx *cx, osh_buf *b, uint64_t v);
osh_status osh_put_u32(osh_ctx *cx, osh_buf *b, uint32_t v);
osh_status osh_put_f64(osh_ctx *cx, osh_buf *b, double v);
osh_status osh_put_text(osh_ctx *cx, osh_buf *b, const char *s);
#endif
