/* utf8.c - checks, decodes and encodes UTF-8. The check skips eight ASCII bytes at once. */
#include "base/utf8.h"
#include <string.h>

/* `b` is a byte that is not ASCII. Returns the number of bytes of a sequence that begins with b, or
 * 0 if no sequence begins with b. Sets *lo and *hi to the limits of the second byte. After some
 * first bytes these limits are narrower, which excludes overlong sequences, surrogates and
 * everything above U+10FFFF (RFC 3629). */
static uint8_t sequence_size(uint8_t b, uint8_t *lo, uint8_t *hi)
{
    *lo = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
    *hi = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
    return b < 0xC2 || b > 0xF4 ? 0 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

/* Begins a sequence with the byte b, which is not ASCII. Returns false if no sequence begins with
 * b. */
static bool sequence_begin(osh_utf8 *u, uint8_t b)
{
    uint8_t size = sequence_size(b, &u->lo, &u->hi);
    u->start = u->n_bytes, u->lead = b;
    u->wants = size ? size - 1 : 0;
    return size;
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

/* Returns the size in bytes of the character at s. If the character is not valid, returns 0 and
 * sets *bad to the number of bytes that become one U+FFFD (osh_utf8_next). */
static size_t utf8_scan(const uint8_t *s, size_t n, size_t *bad)
{
    uint8_t lo, hi;

    *bad = 1;
    if (s[0] < 0x80) return 1;
    size_t want = sequence_size(s[0], &lo, &hi);
    for (size_t i = 1; i < want; i++) {
        if (i >= n || s[i] < lo || s[i] > hi) return 0;
        *bad = i + 1;
        lo = 0x80, hi = 0xBF;
    }
    return want;
}

size_t osh_utf8_decode(const char *text, size_t n, uint32_t *cp)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t bad, len = utf8_scan(s, n, &bad);

    switch (len) {
    case 1: *cp = s[0]; break;
    case 2: *cp = (s[0] & 0x1Fu) << 6 | (s[1] & 0x3Fu); break;
    case 3: *cp = (s[0] & 0x0Fu) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu); break;
    case 4:
        *cp = (s[0] & 0x07u) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3Fu);
        break;
    default: *cp = 0xFFFD; break;
    }
    return len;
}

size_t osh_utf8_next(const char *text, size_t n, uint32_t *cp)
{
    size_t bad = 1, len = osh_utf8_decode(text, n, cp);

    if (!len) utf8_scan((const uint8_t *)text, n, &bad);
    return len ? len : bad;
}

size_t osh_utf8_encode(char *to, uint32_t cp)
{
    uint8_t *p = (uint8_t *)to;

    if (cp < 0x80) {
        p[0] = (uint8_t)cp;
        return 1;
    }
    if (cp < 0x800) {
        p[0] = (uint8_t)(0xC0 | cp >> 6);
        p[1] = (uint8_t)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        p[0] = (uint8_t)(0xE0 | cp >> 12);
        p[1] = (uint8_t)(0x80 | (cp >> 6 & 0x3F));
        p[2] = (uint8_t)(0x80 | (cp & 0x3F));
        return 3;
    }
    p[0] = (uint8_t)(0xF0 | cp >> 18);
    p[1] = (uint8_t)(0x80 | (cp >> 12 & 0x3F));
    p[2] = (uint8_t)(0x80 | (cp >> 6 & 0x3F));
    p[3] = (uint8_t)(0x80 | (cp & 0x3F));
    return 4;
}

size_t osh_utf8_before(const char *s, size_t at)
{
    do {
        at--;
    } while (at > 0 && ((uint8_t)s[at] & 0xC0) == 0x80);
    return at;
}
