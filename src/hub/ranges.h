/* ranges.h - which bytes of a file have come, while several threads fetch it:
 *
 *   0              12 MB            24 MB                    96 MB
 *   [=====>         [======>         [==>                     ]     part 0, 1, 2: each grows to its end
 *
 * Who has nothing to do takes the second half of what is left of the largest part. No lock in here. */
#ifndef OSH_HUB_RANGES_H
#define OSH_HUB_RANGES_H
#include "base/base.h"

enum { OSH_MOST_PARTS = 64 };
#define OSH_LEAST_PART ((int64_t)8 << 20)
typedef struct osh_part {
    int64_t at, end; // the next byte that is wanted of it; the first of the next part
    bool busy;       // a thread is at it
} osh_part;
typedef struct osh_ranges {
    int64_t n_bytes; // of the file
    int n;
    osh_part parts[OSH_MOST_PARTS]; // in no order; together they are the file
} osh_ranges;

void osh_ranges_init(osh_ranges *s, int64_t n_bytes, int64_t at); // one part, which has its first `at` bytes
int osh_ranges_take(osh_ranges *s);                               // a part that is busy now; -1: there is none to take
int64_t osh_ranges_done(const osh_ranges *s);                     // bytes
/* As bytes of a file, and back; false: they are of no such file. */
enum { OSH_RANGES_BYTES = 16 + 16 * OSH_MOST_PARTS };
size_t osh_ranges_write(char to[OSH_RANGES_BYTES], const osh_ranges *s);
bool osh_ranges_read(osh_ranges *s, const char *from, size_t n, int64_t n_bytes);
#endif
