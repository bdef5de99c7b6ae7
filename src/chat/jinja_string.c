/* jinja_string.c - implements functions on strings as in Python: code points, white space,
 * cases. */
#include <string.h>

#include <utf8proc.h>

#include "chat/jinja_impl.h"
#include "tokenizer/tok_impl.h"

bool osh_jcp_is_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32) || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

int64_t osh_jstr_length(osh_jrun *r, osh_jv s)
{
    int64_t n = 0;
    if (!osh_jrun_step(r, s.n)) return 0;
    for (size_t i = 0; i < s.n; i++) n += (s.u.s[i] & 0xc0) != 0x80;
    return n;
}

/* Returns the byte offset of code point i. Starts at code point *at, whose byte offset is *byte.
 * Sets *at to i and *byte to the result. */
static size_t byte_of_char(osh_jv s, int64_t i, int64_t *at, size_t *byte)
{
    while (*at < i) {
        do ++*byte;
        while (*byte < s.n && (s.u.s[*byte] & 0xc0) == 0x80);
        ++*at;
    }
    while (*at > i) {
        do --*byte;
        while ((s.u.s[*byte] & 0xc0) == 0x80);
        --*at;
    }
    return *byte;
}

osh_jv osh_jstr_slice(osh_jrun *r, osh_jv s, int64_t from, int64_t to, int64_t step)
{
    int64_t at = 0;
    size_t byte = 0, n = 0;
    if (step == 1) {
        if (to <= from) return osh_jv_view("", 0);
        size_t start = byte_of_char(s, from, &at, &byte), end = byte_of_char(s, to, &at, &byte);
        return osh_jrun_step(r, end) ? osh_jv_view(s.u.s + start, end - start) : osh_jv_none();
    }
    char *out = osh_jrun_step_chars(r, s.n) ? osh_jrun_get(r, s.n + 1) : NULL;
    for (int64_t i = from; out && (step > 0 ? i < to : i > to); i += step) {
        uint32_t cp;
        size_t start = byte_of_char(s, i, &at, &byte),
               len = osh_utf8_next(s.u.s + start, s.n - start, &cp);
        memcpy(out + n, s.u.s + start, len);
        n += len;
    }
    return out ? osh_jv_view(out, n) : osh_jv_none();
}

static bool cp_is_stripped(osh_jrun *r, osh_jv chars, osh_jv c, uint32_t cp)
{
    if (chars.kind != OSH_JV_STR) return osh_jcp_is_space(cp);
    return osh_jstr_find(r, chars, c, 0) != SIZE_MAX;
}

osh_jv osh_jstr_strip(osh_jrun *r, osh_jv s, osh_jv chars, int sides)
{
    size_t from = 0, end = s.n;
    uint32_t cp;
    if (chars.kind != OSH_JV_STR && chars.kind != OSH_JV_NONE)
        return osh_jrun_fail(r, OSH_E_FORMAT, "strip of %s, want a string", osh_jv_type(chars));
    while (sides & 1 && from < end && osh_jrun_step(r, 0)) {
        size_t len = osh_utf8_next(s.u.s + from, end - from, &cp);
        if (!cp_is_stripped(r, chars, osh_jv_view(s.u.s + from, len), cp)) break;
        from += len;
    }
    while (sides & 2 && end > from && osh_jrun_step(r, 0)) {
        size_t at = osh_utf8_before(s.u.s, end);
        osh_utf8_decode(s.u.s + at, end - at, &cp);
        if (!cp_is_stripped(r, chars, osh_jv_view(s.u.s + at, end - at), cp)) break;
        end = at;
    }
    return osh_jv_view(s.u.s + from, end - from);
}

size_t osh_jstr_find(osh_jrun *r, osh_jv s, osh_jv part, size_t from)
{
    if (from > s.n || part.n > s.n - from || r->rc) return SIZE_MAX;
    if (!part.n) return from;
    const char *found = memmem(s.u.s + from, s.n - from, part.u.s, part.n);
    size_t at = found ? (size_t)(found - s.u.s) : SIZE_MAX;
    return osh_jrun_step(r, found ? at - from + part.n : s.n - from) ? at : SIZE_MAX;
}

osh_jv osh_jstr_replace(osh_jrun *r, osh_jv s, osh_jv old, osh_jv by, int64_t count)
{
    osh_buf out;
    osh_buf_init(&out, OSH_JINJA_MAX_BYTES);
    size_t at = 0;
    for (int64_t k = 0; (count < 0 || k < count) && osh_jrun_step(r, by.n); k++) {
        size_t found = osh_jstr_find(r, s, old, at);
        if (!old.n) { // an empty string occurs before every code point and after the last
            int64_t none = 0;
            size_t to = at;
            if (k) found = at < s.n ? byte_of_char(s, 1, &none, &to) : SIZE_MAX;
            while (k && found != SIZE_MAX && found < s.n && (s.u.s[found] & 0xc0) == 0x80) found++;
        }
        if (found == SIZE_MAX || r->rc) break;
        r->rc = osh_buf_append(r->cx, &out, s.u.s + at, found - at);
        if (!r->rc) r->rc = osh_buf_append(r->cx, &out, by.u.s, by.n);
        at = found + old.n;
    }
    if (!r->rc) r->rc = osh_buf_append(r->cx, &out, s.u.s + at, s.n - at);
    return osh_jv_take(r, &out);
}

/* ---- cases ---- */

/* A case mapping of one code point to several, from Unicode's SpecialCasing. */
typedef struct special_case {
    uint32_t cp;
    const char *upper, *title;
} special_case;
static const special_case special_cases[] = {
    {0xdf, "SS", "Ss"},        {0x149, "\xca\xbcN", "\xca\xbcN"}, {0x1f0, "J\xcc\x8c", "J\xcc\x8c"},
    {0xfb00, "FF", "Ff"},      {0xfb01, "FI", "Fi"},              {0xfb02, "FL", "Fl"},
    {0xfb03, "FFI", "Ffi"},    {0xfb04, "FFL", "Ffl"},            {0xfb05, "ST", "St"},
    {0xfb06, "ST", "St"},
};

static size_t cp_map_case(char *to, uint32_t cp, char how)
{
    for (size_t i = 0; how != 'l' && i < sizeof special_cases / sizeof *special_cases; i++)
        if (special_cases[i].cp == cp) {
            const char *s = how == 'u' ? special_cases[i].upper : special_cases[i].title;
            return strlen(strcpy(to, s));
        }
    if (how == 'l' && cp == 0x130) return strlen(strcpy(to, "i\xcc\x87"));
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    c = how == 'u' ? utf8proc_toupper(c) : how == 'l' ? utf8proc_tolower(c) : utf8proc_totitle(c);
    return osh_utf8_encode(to, (uint32_t)c);
}

/* True if the capital sigma at `at` ends a word: a letter is before it, and no letter is after
 * it. */
static bool is_final_sigma(osh_jv s, size_t at, size_t len)
{
    uint32_t cp;
    bool before = false;
    if (at) {
        size_t b = osh_utf8_before(s.u.s, at);
        osh_utf8_decode(s.u.s + b, at - b, &cp);
        before = osh_cp_is_word(cp);
    }
    if (!before || at + len >= s.n) return before;
    osh_utf8_decode(s.u.s + at + len, s.n - at - len, &cp);
    return !osh_cp_is_word(cp);
}

/* True if a word can begin after cp. how: 't' for Jinja's filter `title`, 'T' for Python's
 * str.title. */
static bool cp_ends_word(uint32_t cp, char how)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    if (how == 'T')
        return c != UTF8PROC_CATEGORY_LU && c != UTF8PROC_CATEGORY_LL && c != UTF8PROC_CATEGORY_LT;
    return how == 't' && (osh_jcp_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp)));
}

osh_jv osh_jstr_map_case(osh_jrun *r, osh_jv s, char how)
{
    char *out = osh_jrun_step_chars(r, s.n) ? osh_jrun_get(r, 3 * s.n + 8) : NULL;
    size_t n = 0;
    bool begin = true;
    for (size_t i = 0, len; out && i < s.n; i += len) {
        uint32_t cp;
        len = osh_utf8_next(s.u.s + i, s.n - i, &cp);
        char one = how == 'u' || how == 'l' ? how : !begin ? 'l' : how == 't' ? 'u' : 'c';
        if (one == 'l' && cp == 0x3a3 && is_final_sigma(s, i, len))
            n += osh_utf8_encode(out + n, 0x3c2);
        else n += cp_map_case(out + n, cp, one);
        begin = cp_ends_word(cp, how);
    }
    return out ? osh_jv_view(out, n) : osh_jv_none();
}
