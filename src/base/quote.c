/* quote.c - escapes texts. Control characters, line ends and characters that are not printable in
 * YAML become \uXXXX. So do format characters, which can make a text look like a different text:
 * U+202E reverses the text after it, and U+200B is invisible. A byte that is not UTF-8 becomes
 * U+FFFD. (A path may hold any bytes.) */
#include "base/quote.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Returns the number of bytes of the UTF-8 character at s and sets *code to its code point. Returns
 * 0 if the bytes are not UTF-8. */
static size_t utf8_character(const unsigned char *s, uint32_t *code)
{
    size_t n = s[0] < 0x80             ? 1
               : (s[0] & 0xe0) == 0xc0 ? 2
               : (s[0] & 0xf0) == 0xe0 ? 3
               : (s[0] & 0xf8) == 0xf0 ? 4
                                       : 0;
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (n <= 1) return *code = s[0], n;
    uint32_t c = s[0] & (0xffu >> (n + 1));
    for (size_t k = 1; k < n; k++) {
        if ((s[k] & 0xc0) != 0x80) return 0;
        c = c << 6 | (s[k] & 0x3fu);
    }
    if (c < lowest[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
    *code = c;
    return n;
}

/* Ranges of hidden characters, sorted. Only characters below U+10000 are here, because JSON's \u
 * has four digits. */
static const struct { uint16_t lo, hi; } hidden[] = {
    {0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},   {0x180e, 0x180e},
    {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb},
    {0xfffe, 0xffff}};

static bool code_is_printable(uint32_t code)
{
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden && code >= hidden[i].lo; i++)
        if (code <= hidden[i].hi) return false;
    return true;
}

static size_t text_escape(char *to, size_t room, const char *text, bool in_quotes,
                          const char **rest)
{
    size_t n = 0;
    char piece[16];
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        uint32_t code = 0;
        size_t k = utf8_character(s, &code), len;
        if (!k) len = (size_t)snprintf(piece, sizeof piece, "\xef\xbf\xbd"), k = 1;
        else if (in_quotes && (code == '"' || code == '\\'))
            len = (size_t)snprintf(piece, sizeof piece, "\\%c", (int)code);
        else if (!code_is_printable(code))
            len = (size_t)snprintf(piece, sizeof piece, "\\u%04x", code);
        else memcpy(piece, s, k), len = k;
        if (n + len + 1 > room) break;
        memcpy(to + n, piece, len);
        n += len;
        s += k;
    }
    if (room) to[n] = 0;
    if (rest) *rest = (const char *)s;
    return n;
}

size_t osh_quote(char *to, size_t room, const char *text)
{
    return text_escape(to, room, text, true, NULL);
}

size_t osh_show(char *to, size_t room, const char *text, const char **rest)
{
    return text_escape(to, room, text, false, rest);
}

bool osh_is_printable(const char *text)
{
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        uint32_t code = 0;
        size_t n = utf8_character(s, &code);
        if (!n || !code_is_printable(code)) return false;
        s += n;
    }
    return true;
}
