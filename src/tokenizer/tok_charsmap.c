/* tok_charsmap.c - implements the normalizer "Precompiled": applies SentencePiece's map of
 * characters, as tokenizers does. The map is the base64 of three parts:
 *
 *   u32: size of the trie in bytes
 *   trie: a double array (Darts) of u32 units
 *   texts: each ends with a NUL
 *
 * A unit of the trie has these bits:
 *
 *   0-7     label
 *   8       1 if a leaf is below the unit
 *   9       1 if the offset counts units of 256
 *   10-31   offset
 *   0-30    in a leaf: the position of the leaf's text
 *
 * Agrees with the spm_precompiled crate and tokenizers/src/normalizers/precompiled.rs, including
 * their oddities. A grapheme of less than six bytes is searched as a whole. If it begins with a
 * key, the text of the shortest such key replaces the whole grapheme. A longer grapheme, or one
 * that begins with no key, is searched character by character. */
#include "tokenizer/tok_charsmap.h"
#include "tokenizer/tok_unicode.h"
#include <string.h>
#include <utf8proc.h>

struct osh_tok_charsmap {
    uint32_t *units; // own
    size_t n_units;
    char *texts;     // own
    size_t n_texts;
};

enum { SHORT_GRAPHEME = 6 };

void osh_tok_charsmap_free(osh_ctx *cx, osh_tok_charsmap *m)
{
    if (!m) return;
    osh_free(cx, m->units);
    osh_free(cx, m->texts);
    osh_free(cx, m);
}

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes the padded base64 text s. Returns the number of bytes, or SIZE_MAX if s is not base64. */
static size_t base64_decode(unsigned char *to, const char *s, size_t n)
{
    size_t k = 0, pad = n && s[n - 1] == '=' ? 1 + (n > 1 && s[n - 2] == '=') : 0;
    uint32_t bits = 0;

    if (n % 4) return SIZE_MAX;
    for (size_t i = 0; i < n - pad; i++) {
        int d = base64_digit(s[i]);
        if (d < 0) return SIZE_MAX;
        bits = bits << 6 | (uint32_t)d;
        if (i % 4 == 1) to[k++] = (unsigned char)(bits >> 4);
        if (i % 4 == 2) to[k++] = (unsigned char)(bits >> 2);
        if (i % 4 == 3) to[k++] = (unsigned char)bits;
    }
    return k;
}

static uint32_t read_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

osh_status osh_tok_charsmap_load(osh_ctx *cx, osh_tok_charsmap **out, const char *base64,
                                 const char *what)
{
    osh_status rc = OSH_OK;
    osh_tok_charsmap *m = NULL; // own
    size_t n = strlen(base64), at = 0;
    uint32_t cp;
    unsigned char *bytes = osh_alloc(cx, n / 4 * 3 + 3); // own

    if (!bytes) return OSH_E_NOMEM;
    OSH_NEW(cx, m, 1);
    n = base64_decode(bytes, base64, n);
    if (n == SIZE_MAX)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: a \"precompiled_charsmap\" is not base64", what);
    size_t trie = n < 4 ? 0 : read_u32(bytes) / 4;
    if (n < 4 || trie > (n - 4) / 4 || !trie)
        OSH_FAIL(cx, OSH_E_FORMAT,
                 "%s: a \"precompiled_charsmap\" of %zu bytes cannot hold its trie", what, n);
    OSH_NEW(cx, m->units, trie);
    for (size_t i = 0; i < trie; i++) m->units[i] = read_u32(bytes + 4 + 4 * i);
    m->n_units = trie;
    m->n_texts = n - 4 - 4 * trie;
    OSH_NEW(cx, m->texts, m->n_texts + 1);
    memcpy(m->texts, bytes + 4 + 4 * trie, m->n_texts);
    for (size_t len = 0; at < m->n_texts; at += len)
        if (!(len = osh_utf8_decode(m->texts + at, m->n_texts - at, &cp)))
            OSH_FAIL(cx, OSH_E_FORMAT,
                     "%s: a \"precompiled_charsmap\" holds text that is not UTF-8", what);
    *out = m, m = NULL; // give
done:
    osh_free(cx, bytes);
    osh_tok_charsmap_free(cx, m);
    return rc;
}

static uint32_t unit_offset(uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }

/* Sets *text to the text of the shortest key that s begins with, or to NULL. */
static osh_status charsmap_find(osh_ctx *cx, const osh_tok_charsmap *m, const char *s, size_t n,
                                const char **text)
{
    size_t at = unit_offset(m->units[0]);

    *text = NULL;
    for (size_t i = 0; i < n && s[i]; i++) {
        unsigned char c = (unsigned char)s[i];
        at ^= c;
        if (at >= m->n_units) break;
        uint32_t unit = m->units[at];
        if ((unit & (1u << 31 | 0xFF)) != c) return OSH_OK;
        at ^= unit_offset(unit);
        if (!(unit >> 8 & 1)) continue;
        if (at >= m->n_units) break;
        size_t value = m->units[at] & 0x7FFFFFFF;
        if (value > m->n_texts || ((unsigned char)m->texts[value] & 0xC0) == 0x80)
            return osh_fail(
                cx, OSH_E_FORMAT,
                "the tokenizer's \"precompiled_charsmap\" names a text at byte %zu of %zu", value,
                m->n_texts);
        *text = m->texts + value;
        return OSH_OK;
    }
    if (at >= m->n_units)
        return osh_fail(cx, OSH_E_FORMAT,
                        "the tokenizer's \"precompiled_charsmap\" points at unit %zu of %zu", at,
                        m->n_units);
    return OSH_OK;
}

/* True for consonants that a virama joins to the next consonant: characters with
 * Indic_Conjunct_Break=Consonant in Unicode 16. (utf8proc 2.8 does not have this rule, GB9c.) */
static bool joins_conjuncts(uint32_t cp)
{
    static const struct { uint16_t lo, hi; } consonants[] = {
        {0x915, 0x939}, {0x958, 0x95F}, {0x978, 0x97F}, {0x995, 0x9A8}, {0x9AA, 0x9B0},
        {0x9B2, 0x9B2}, {0x9B6, 0x9B9}, {0x9DC, 0x9DD}, {0x9DF, 0x9DF}, {0x9F0, 0x9F1},
        {0xA95, 0xAA8}, {0xAAA, 0xAB0}, {0xAB2, 0xAB3}, {0xAB5, 0xAB9}, {0xAF9, 0xAF9},
        {0xB15, 0xB28}, {0xB2A, 0xB30}, {0xB32, 0xB33}, {0xB35, 0xB39}, {0xB5C, 0xB5D},
        {0xB5F, 0xB5F}, {0xB71, 0xB71}, {0xC15, 0xC28}, {0xC2A, 0xC39}, {0xC58, 0xC5A},
        {0xD15, 0xD3A}};

    if (cp < 0x915 || cp > 0xD3A) return false;
    for (size_t i = 0; i < sizeof consonants / sizeof *consonants; i++)
        if (cp >= consonants[i].lo && cp <= consonants[i].hi) return true;
    return false;
}

/* The combining marks that Unicode 16 and 17 added. A test showed that the tokenizers library
 * treats them as marks. */
static const osh_uni_range newer_marks[] = {
    {0x897, 0x897, ""}, {0x1ACF, 0x1ADD, ""}, {0x1AE0, 0x1AEB, ""}, {0x10D69, 0x10D6D, ""},
    {0x10EFA, 0x10EFC, ""}, {0x113B8, 0x113C0, ""}, {0x113C2, 0x113C2, ""}, {0x113C5, 0x113C5, ""},
    {0x113C7, 0x113CA, ""}, {0x113CC, 0x113D0, ""}, {0x113D2, 0x113D2, ""}, {0x113E1, 0x113E2, ""},
    {0x11B60, 0x11B67, ""}, {0x11F5A, 0x11F5A, ""}, {0x1611E, 0x1612F, ""}, {0x1E5EE, 0x1E5EF, ""},
    {0x1E6E3, 0x1E6E3, ""}, {0x1E6E6, 0x1E6E6, ""}, {0x1E6EE, 0x1E6EF, ""}, {0x1E6F5, 0x1E6F5, ""},
    {0, 0, ""}};

/* utf8proc 2.8 and the tokenizers library may treat cp in different ways. Returns a character that
 * utf8proc 2.8 treats as the tokenizers library treats cp. This is cp itself if there is no
 * difference. */
static uint32_t as_known(uint32_t cp)
{
    /* The tokenizers library joins U+113D1 to the next character. It does not join U+11A3A. */
    if (cp == 0x113D1) return 0x600;
    if (cp == 0x11A3A) return 'a';
    return cp >= 0x897 && osh_uni_in(newer_marks, cp) ? 0x301 : cp;
}

/* True for characters with Indic_Conjunct_Break=Extend. */
static bool extends_conjuncts(uint32_t cp)
{
    return utf8proc_get_property((utf8proc_int32_t)cp)->boundclass == UTF8PROC_BOUNDCLASS_EXTEND
               ? cp != 0x200C
               : cp == 0x200D;
}

static bool is_virama(uint32_t cp)
{
    return cp == 0x94D || cp == 0x9CD || cp == 0xACD || cp == 0xB4D || cp == 0xC4D || cp == 0xD4D;
}

/* Returns the size in bytes of the extended grapheme cluster at s. */
static size_t grapheme_bytes(const char *s, size_t n)
{
    uint32_t cp = 0, next = 0;
    utf8proc_int32_t state = 0;
    size_t at = osh_utf8_next(s, n, &cp), len = 0;
    cp = as_known(cp);
    bool conjunct = joins_conjuncts(cp), virama = false;

    for (; at < n; at += len, cp = next) {
        unsigned char c = (unsigned char)s[at];
        if (cp < 0x80 && c < 0x80 && !(cp == '\r' && c == '\n')) break;
        len = osh_utf8_next(s + at, n - at, &next);
        next = as_known(next);
        bool breaks =
            utf8proc_grapheme_break_stateful((utf8proc_int32_t)cp, (utf8proc_int32_t)next, &state);
        bool joined = conjunct && virama && joins_conjuncts(next);
        if (breaks && !joined) break;
        if (breaks) state = 0;
        virama = !joined && (virama || is_virama(next));
        conjunct &= joined || extends_conjuncts(next);
    }
    return at;
}

bool osh_cp_is_grapheme(uint32_t cp)
{
    return as_known(cp) == cp && !joins_conjuncts(cp) &&
           utf8proc_get_property((utf8proc_int32_t)cp)->boundclass == UTF8PROC_BOUNDCLASS_OTHER;
}

osh_status osh_tok_charsmap_apply(osh_ctx *cx, const osh_tok_charsmap *m, osh_tok_text *out,
                                  const char *s, size_t n)
{
    osh_status rc = OSH_OK;
    const char *text = NULL;
    uint32_t cp;

    for (size_t at = 0, len = 0; at < n; at += len) {
        len = grapheme_bytes(s + at, n - at);
        if (len < SHORT_GRAPHEME) OSH_TRY(charsmap_find(cx, m, s + at, len, &text));
        if (len < SHORT_GRAPHEME && text) {
            OSH_TRY(osh_tok_text_add(cx, out, text, strlen(text)));
            continue;
        }
        for (size_t i = at, one = 0; i < at + len; i += one) {
            one = osh_utf8_next(s + i, n - i, &cp);
            OSH_TRY(charsmap_find(cx, m, s + i, one, &text));
            OSH_TRY(osh_tok_text_add(cx, out, text ? text : s + i, text ? strlen(text) : one));
        }
    }
done:
    return rc;
}
