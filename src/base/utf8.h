/* utf8.h - checks that bytes which come in pieces are UTF-8. */
#ifndef OSH_UTF8_H
#define OSH_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero: the beginning of a text. */
typedef struct osh_utf8 {
    int64_t n_bytes; // read so far
    int64_t start;   // first byte of the last sequence of several bytes
    uint8_t lead;    // that byte
    uint8_t wants;   // bytes that this sequence still wants
    uint8_t lo, hi;  // limits of the next one
} osh_utf8;

/* Reads n more bytes. Returns false at the first sequence that is not UTF-8 (surrogates and
 * overlong sequences are not): u->start and u->lead are its first byte. */
bool osh_utf8_read(osh_utf8 *u, const char *s, size_t n);
/* True if the text may end here; else u->start and u->lead are the sequence that is cut. */
bool osh_utf8_ends(const osh_utf8 *u);
#endif
