/* utf8.h - checks that a text is UTF-8. The text may be read in chunks. */
#ifndef OSH_UTF8_H
#define OSH_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* State of the check; all members are zero at the beginning of a text. */
typedef struct osh_utf8 {
    int64_t n_bytes; // number of bytes read so far
    int64_t start;   // position of the last sequence of several bytes
    uint8_t lead;    // first byte of the sequence at `start`
    uint8_t wants;   // number of bytes that the sequence at `start` still needs
    uint8_t lo, hi;  // limits of the next byte of that sequence
} osh_utf8;

/* Reads n more bytes. Returns false at the first sequence that is not UTF-8, such as a surrogate or
 * an overlong one. Then u->start is its position, and u->lead is its first byte. */
bool osh_utf8_read(osh_utf8 *u, const char *s, size_t n);
/* Returns true if the text may end here. If not, u->start is the position of the incomplete
 * sequence, and u->lead is its first byte. */
bool osh_utf8_ends(const osh_utf8 *u);
#endif
