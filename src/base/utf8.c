/* utf8.c - checks UTF-8 byte by byte; eight ASCII bytes are skipped at once. */
#include "base/utf8.h"
#include <string.h>

/* Begins a sequence with the byte b, which is not ASCII. Returns false if no sequence begins with
 * b. If b is E0, ED, F0 or F4, the second byte has narrower limits. They exclude overlong
 * sequences, surrogates and everything above U+10FFFF (RFC 3629). */
static bool sequence_begin(osh_utf8 *u, uint8_t b)
{
    u->start = u->n_bytes, u->lead = b;
    u->wants = b >= 0xF0 ? 3 : b >= 0xE0 ? 2 : 1;
    u->lo = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
    u->hi = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
    return b >= 0xC2 && b <= 0xF4;
}

bool osh_utf8_read(osh_utf8 *u, const char *s, size_t n)
{
    uint64_t word;

    for (size_t i = 0; i < n; i++, u->n_bytes++) {
        uint8_t b = (uint8_t)s[i];
        if (u->wants) {
            if (b < u->lo || b > u->hi) return false;
            u->lo = 0x80, u->hi = 0xBF;
            u->wants--;
        } else if (b >= 0x80) {
            if (!sequence_begin(u, b)) return false;
        } else {
            for (; n - i > 8; i += 8, u->n_bytes += 8) {
                memcpy(&word, s + i, 8);
                if (word & 0x8080808080808080u) break;
            }
            // this byte may begin a new sequence, so the next iteration reads it again
            if ((uint8_t)s[i] >= 0x80) --i, --u->n_bytes;
        }
    }
    return true;
}

bool osh_utf8_ends(const osh_utf8 *u) { return !u->wants; }
