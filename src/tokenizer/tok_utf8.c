/* tok_utf8.c - decodes UTF-8 and replaces invalid bytes. Also defines Rust's character classes,
 * which the library `tokenizers` of Hugging Face uses.
 *
 * The replacement is that of Python's errors="replace" ("maximal subpart" in section 3.9 of the
 * Unicode standard): the longest prefix of a valid character becomes one U+FFFD. If there is no
 * such prefix, one byte becomes one U+FFFD. */
#include "tokenizer/tok_impl.h"
#include "tokenizer/tok_unicode.h"
#include <string.h>
#include <utf8proc.h>

/* Returns the size in bytes of the character at s (table 3-7 of the Unicode standard). If the
 * character is not valid, returns 0 and sets *bad to the size of the maximal subpart. */
static size_t utf8_scan(const unsigned char *s, size_t n, size_t *bad)
{
    unsigned char lo = 0x80, hi = 0xBF; // allowed values of the second byte
    size_t want = 0;

    *bad = 1;
    if (s[0] < 0x80) return 1;
    if (s[0] < 0xC2 || s[0] > 0xF4) return 0;
    want = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    if (s[0] == 0xE0) lo = 0xA0;
    if (s[0] == 0xED) hi = 0x9F;
    if (s[0] == 0xF0) lo = 0x90;
    if (s[0] == 0xF4) hi = 0x8F;
    for (size_t i = 1; i < want; i++) {
        if (i >= n || s[i] < lo || s[i] > hi) return 0;
        *bad = i + 1;
        lo = 0x80, hi = 0xBF;
    }
    return want;
}

size_t osh_utf8_decode(const char *text, size_t n, uint32_t *cp)
{
    const unsigned char *s = (const unsigned char *)text;
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

    if (!len) utf8_scan((const unsigned char *)text, n, &bad);
    return len ? len : bad;
}

size_t osh_utf8_encode(char *to, uint32_t cp)
{
    unsigned char *p = (unsigned char *)to;

    if (cp < 0x80) {
        p[0] = (unsigned char)cp;
        return 1;
    }
    if (cp < 0x800) {
        p[0] = (unsigned char)(0xC0 | cp >> 6);
        p[1] = (unsigned char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        p[0] = (unsigned char)(0xE0 | cp >> 12);
        p[1] = (unsigned char)(0x80 | (cp >> 6 & 0x3F));
        p[2] = (unsigned char)(0x80 | (cp & 0x3F));
        return 3;
    }
    p[0] = (unsigned char)(0xF0 | cp >> 18);
    p[1] = (unsigned char)(0x80 | (cp >> 12 & 0x3F));
    p[2] = (unsigned char)(0x80 | (cp >> 6 & 0x3F));
    p[3] = (unsigned char)(0x80 | (cp & 0x3F));
    return 4;
}

size_t osh_utf8_before(const char *s, size_t at)
{
    do {
        at--;
    } while (at > 0 && ((unsigned char)s[at] & 0xC0) == 0x80);
    return at;
}

osh_status osh_tok_utf8_clean(osh_ctx *cx, osh_tok_text *out, const char *s, size_t n)
{
    osh_status rc = OSH_OK;
    size_t from = 0, at = 0, bad = 0;

    while (at < n) {
        size_t len = utf8_scan((const unsigned char *)s + at, n - at, &bad);
        if (len) {
            at += len;
            continue;
        }
        OSH_TRY(osh_tok_text_add(cx, out, s + from, at - from));
        OSH_TRY(osh_tok_text_add(cx, out, "\xEF\xBF\xBD", 3));
        at += bad;
        from = at;
    }
    OSH_TRY(osh_tok_text_add(cx, out, s + from, n - from));
done:
    return rc;
}

bool osh_cp_is_space(uint32_t cp)
{
    if (cp <= 0x20) return cp == 0x20 || (cp >= 9 && cp <= 13);
    if (cp < 0x1680) return cp == 0x85 || cp == 0xA0;
    return cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

static utf8proc_category_t cp_category(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

bool osh_cp_is_mark(uint32_t cp)
{
    utf8proc_category_t c = cp_category(cp);

    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

bool osh_cp_is_numeric(uint32_t cp)
{
    utf8proc_category_t c = cp_category(cp);

    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO ||
           (cp >= osh_uni_numeric[0].lo && osh_uni_in(osh_uni_numeric, cp));
}

bool osh_cp_is_punct(uint32_t cp)
{
    if (cp < 0x80)
        return (cp >= '!' && cp <= '/') || (cp >= ':' && cp <= '@') || (cp >= '[' && cp <= '`') ||
               (cp >= '{' && cp <= '~');
    utf8proc_category_t c = cp_category(cp);
    bool punct = c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
    return (punct && !osh_uni_in(osh_uni_not_punct, cp)) || cp == 0x166D || cp == 0x111C9;
}

/* True for the characters of \w. Alphabetic is L, Nl and Other_Alphabetic. All characters of
 * Other_Alphabetic are marks or circled letters. */
bool osh_cp_is_word(uint32_t cp)
{
    utf8proc_category_t c = cp_category(cp);

    if (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) return true;
    if (c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_PC)
        return true;
    if (osh_cp_is_mark(cp) || cp == 0x200C || cp == 0x200D) return true;
    if ((cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) ||
        (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189))
        return true;
    if (c != UTF8PROC_CATEGORY_CN) return false;
    for (const osh_uni_range *u = osh_uni_newer; u->hi; u++)
        if (cp >= u->lo && cp <= u->hi && (*u->cls == 'L' || *u->cls == 'M' || u->cls[1] == 'd'))
            return true;
    return false;
}
