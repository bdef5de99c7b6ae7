/* utf8.h - checks that a text is UTF-8, decodes and encodes its characters. The check may read the
 * text in chunks. */
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
/* Decodes the character at s (n > 0). Returns its size in bytes, or 0 if the bytes are not valid
 * UTF-8. */
size_t osh_utf8_decode(const char *s, size_t n, uint32_t *cp);
/* Decodes like osh_utf8_decode, but never returns 0. Invalid bytes count as U+FFFD, as with
 * Python's errors="replace": the longest prefix of a valid character is one U+FFFD ("maximal
 * subpart" in section 3.9 of the Unicode standard). If there is no such prefix, one byte is one
 * U+FFFD. */
size_t osh_utf8_next(const char *s, size_t n, uint32_t *cp);
size_t osh_utf8_encode(char *to, uint32_t cp); // returns the size: 1 to 4 bytes
/* Returns the start of the valid character that ends at `at` (> 0). */
size_t osh_utf8_before(const char *s, size_t at);
#endif
