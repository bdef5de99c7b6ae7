/* ranges.h - records which ranges of a file several threads have fetched so far:
 *
 *   0              12 MB            24 MB                    96 MB
 *   [=====>         [======>         [==>                     ] parts 0 to 2; each grows to its end
 *
 * An idle thread takes a part that no thread fetches, or else the second half of the missing bytes
 * of the largest part. The caller holds a lock during each call. */
#ifndef OSH_HUB_RANGES_H
#define OSH_HUB_RANGES_H
#include "base/base.h"

enum { OSH_MOST_PARTS = 64 };
#define OSH_LEAST_PART ((int64_t)8 << 20)
typedef struct osh_part {
    /* at: offset of the next byte to fetch.
     * end: offset of the first byte after the part. */
    int64_t at, end;
    bool busy;       // true if a thread is fetching the part
} osh_part;
typedef struct osh_ranges {
    int64_t n_bytes; // size of the file in bytes
    int n;
    /* The parts, in any order. Together they cover the missing bytes of the file. */
    osh_part parts[OSH_MOST_PARTS];
} osh_ranges;

/* Initializes *s to one part, of which the first `at` bytes are already fetched. */
void osh_ranges_init(osh_ranges *s, int64_t n_bytes, int64_t at);
/* Marks a part as busy and returns its index. Returns -1 if no part is free and none is large
 * enough to split. */
int osh_ranges_take(osh_ranges *s);
int64_t osh_ranges_done(const osh_ranges *s); // returns the number of bytes that are fetched
/* osh_ranges_write converts the ranges to bytes for a record, and osh_ranges_read converts the
 * bytes back. osh_ranges_read returns false if the bytes are not the ranges of a file of
 * n_bytes. */
enum { OSH_RANGES_BYTES = 16 + 16 * OSH_MOST_PARTS };
size_t osh_ranges_write(char to[OSH_RANGES_BYTES], const osh_ranges *s);
bool osh_ranges_read(osh_ranges *s, const char *from, size_t n, int64_t n_bytes);
#endif
