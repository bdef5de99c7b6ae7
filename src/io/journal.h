/* journal.h - declares the journal: an append-only file of checksummed records, locked by one
 * process at a time.
 *
 *   file    "OSHJRNL1" record record ...
 *   record  | u32 payload bytes | u32 type | u64 number | payload | u64 XXH3 |      little-endian
 *
 * Records are numbered from 0. The checksum is computed over all earlier bytes of the record. Its
 * seed is the checksum of the previous record (0 for the first record), so a record is valid only
 * after this previous record. Reading ends at the first record that is incomplete or has a wrong
 * number or checksum. The next append removes this record and all bytes after it. */
#ifndef OSH_JOURNAL_H
#define OSH_JOURNAL_H
#include "base/buf.h"

typedef struct osh_journal osh_journal;
typedef struct osh_journal_record {
    uint32_t type, n;
    const uint8_t *data; // view: payload; valid until osh_journal_drop
} osh_journal_record;

/* Sets *is to true if the file begins with the magic "OSHJRNL1". */
osh_status osh_journal_is_one(osh_ctx *cx, const char *path, bool *is);
/* Sets *is to true if the file has only the first bytes of the magic, or zeros instead of the
 * magic. A kill or a loss of power can leave such a file. */
osh_status osh_journal_is_begun(osh_ctx *cx, const char *path, bool *is);
/* Opens the journal, or creates it if it is absent. If another process has the journal open, sets
 * *busy to true and *out to NULL. */
osh_status osh_journal_open(osh_ctx *cx, osh_journal **out, const char *path, bool *busy);
/* True if the path still names the file that this journal has open. */
bool osh_journal_is_at(const osh_journal *j, const char *path);
/* Closes the file, which releases the lock. Accepts NULL. */
void osh_journal_close(osh_ctx *cx, osh_journal *j);
/* Returns the number of records that osh_journal_open has read. */
int64_t osh_journal_count(const osh_journal *j);
/* Returns record i of the records that osh_journal_open has read (a view of j). */
const osh_journal_record *osh_journal_at(const osh_journal *j, int64_t i);
/* Returns the number of bytes after the last valid record when the journal was opened. */
int64_t osh_journal_damaged(const osh_journal *j);
/* Frees the records that osh_journal_open has read. */
void osh_journal_drop(osh_ctx *cx, osh_journal *j);

/* Appends a record by a write to the file. A kill of the process does not lose the record. A loss
 * of power may lose the record, until osh_journal_sync has put it on the disk. */
osh_status osh_journal_append(osh_ctx *cx, osh_journal *j, uint32_t type, const void *payload,
                              size_t n);
/* osh_journal_sync puts all records on the disk. osh_journal_rewind removes the records that were
 * appended after the last osh_journal_sync. */
osh_status osh_journal_sync(osh_ctx *cx, osh_journal *j);
osh_status osh_journal_rewind(osh_ctx *cx, osh_journal *j);
osh_status osh_journal_clear(osh_ctx *cx, osh_journal *j); // removes all records, also on the disk

/* The part of a payload that is not read yet: little-endian numbers and byte strings, one after the
 * other. */
typedef struct osh_reader {
    const uint8_t *at;
    size_t left;
    bool bad; // true if the payload ended inside a value; all later reads return 0
} osh_reader;
/* The next functions read or append little-endian numbers. */
uint64_t osh_read_u64(osh_reader *r);
uint32_t osh_read_u32(osh_reader *r);
double osh_read_f64(osh_reader *r);
/* Reads a u32 length n and returns a view of the n bytes after it, without a NUL at the end. */
const char *osh_read_text(osh_reader *r, size_t *n);
osh_status osh_put_u64(osh_ctx *cx, osh_buf *b, uint64_t v);
osh_status osh_put_u32(osh_ctx *cx, osh_buf *b, uint32_t v);
osh_status osh_put_f64(osh_ctx *cx, osh_buf *b, double v);
/* Appends a u32 length and the bytes of s, without its NUL. */
osh_status osh_put_text(osh_ctx *cx, osh_buf *b, const char *s);
#endif
