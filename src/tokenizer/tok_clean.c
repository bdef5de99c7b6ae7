/* tok_clean.c - implements normalizers that delete characters or replace them with a space:
 * BertNormalizer and Nmt, as in tokenizers/src/normalizers/bert.rs and unicode.rs. The classes of
 * characters were measured in that library. */
#include "tokenizer/tok_impl.h"
#include "tokenizer/tok_unicode.h"
#include <utf8proc.h>

/* Characters that unicode_categories 0.1 has in category C, except Cn and white space. */
static const osh_uni_range others[] = {
    {0x0, 0x8, ""}, {0xB, 0xC, ""}, {0xE, 0x1F, ""}, {0x7F, 0x9F, ""}, {0xAD, 0xAD, ""},
    {0x600, 0x605, ""}, {0x61C, 0x61C, ""}, {0x6DD, 0x6DD, ""}, {0x70F, 0x70F, ""},
    {0x180E, 0x180E, ""}, {0x200B, 0x200F, ""}, {0x202A, 0x202E, ""}, {0x2060, 0x2064, ""},
    {0x2066, 0x206F, ""}, {0xE000, 0xF8FF, ""}, {0xFEFF, 0xFEFF, ""}, {0xFFF9, 0xFFFB, ""},
    {0xFFFD, 0xFFFD, ""}, {0x110BD, 0x110BD, ""}, {0x1BCA0, 0x1BCA3, ""}, {0x1D173, 0x1D17A, ""},
    {0xE0001, 0xE0001, ""}, {0xE0020, 0xE007F, ""}, {0xF0000, 0xFFFFD, ""},
    {0x100000, 0x10FFFD, ""}, {0, 0, ""}};

/* Returns the character that replaces cp: cp itself, a space, or 0 to delete it. */
typedef uint32_t (*change_fn)(uint32_t cp);

static osh_status change_each(osh_ctx *cx, osh_tok_text *out, const char *s, size_t n,
                              osh_tok_piece *p, change_fn change)
{
    osh_status rc = OSH_OK;
    size_t kept = 0, at = out->n;
    uint32_t cp = 0;

    for (size_t i = 0, len = 0; i < n; i += len) {
        len = osh_utf8_next(s + i, n - i, &cp);
        uint32_t now = change(cp);
        if (now == cp && cp) continue;
        OSH_TRY(osh_tok_text_add(cx, out, s + kept, i - kept));
        kept = i + len;
        char c = (char)now; // now: the replacement, a space or 0; 0 deletes the character
        if (now) OSH_TRY(osh_tok_text_add(cx, out, &c, 1));
        else if (out->n == at) p->first = false;
    }
    OSH_TRY(osh_tok_text_add(cx, out, s + kept, n - kept));
done:
    return rc;
}

static uint32_t cleaned(uint32_t cp)
{
    if (cp >= 0x20 && cp < 0x7F) return cp;
    if ((cp >= 9 && cp <= 10) || cp == 13) return ' ';
    if (osh_uni_in(others, cp)) return 0;
    return osh_cp_is_space(cp) ? ' ' : cp;
}

static uint32_t cleaned_for_nmt(uint32_t cp)
{
    if (cp < 0x7F) {
        if (cp == 9 || cp == 10 || cp == 12 || cp == 13) return ' ';
        return cp && cp < 0x20 ? 0 : cp;
    }
    if (cp == 0x7F || cp == 0x8F || cp == 0x9F) return 0;
    if (cp == 0x1680 || (cp >= 0x200B && cp <= 0x200F) || cp == 0x2028 || cp == 0x2029 ||
        cp == 0x2581 || cp == 0xFEFF || cp == 0xFFFD)
        return ' ';
    return cp;
}

static osh_status map_clean(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s,
                            size_t n, osh_tok_piece *p)
{
    (void)st;
    return change_each(cx, out, s, n, p, cleaned);
}

static osh_status map_nmt(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s,
                          size_t n, osh_tok_piece *p)
{
    (void)st;
    return change_each(cx, out, s, n, p, cleaned_for_nmt);
}

/* True for the characters that the tokenizers library calls CJK ideographs. U+2B820 to U+2B91F are
 * not among them. */
static bool is_ideograph(uint32_t cp)
{
    if (cp < 0x3400) return false;
    return cp <= 0x4DBF || (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0xF900 && cp <= 0xFAFF) ||
           (cp >= 0x20000 && cp <= 0x2A6DF) || (cp >= 0x2A700 && cp <= 0x2B81F) ||
           (cp >= 0x2B920 && cp <= 0x2CEAF) || (cp >= 0x2F800 && cp <= 0x2FA1F);
}

static osh_status map_ideographs(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out,
                                 const char *s, size_t n, osh_tok_piece *p)
{
    osh_status rc = OSH_OK;
    size_t kept = 0;
    uint32_t cp = 0;

    (void)st, (void)p;
    for (size_t i = 0, len = 0; i < n; i += len) {
        len = osh_utf8_next(s + i, n - i, &cp);
        if (!is_ideograph(cp)) continue;
        OSH_TRY(osh_tok_text_add(cx, out, s + kept, i - kept));
        OSH_TRY(osh_tok_text_add(cx, out, " ", 1));
        OSH_TRY(osh_tok_text_add(cx, out, s + i, len));
        OSH_TRY(osh_tok_text_add(cx, out, " ", 1));
        kept = i + len;
    }
    OSH_TRY(osh_tok_text_add(cx, out, s + kept, n - kept));
done:
    return rc;
}

/* True for characters of category Mn in unicode_categories 0.1. */
static bool is_nonspacing(uint32_t cp)
{
    if (cp < 0x300) return false;
    if (utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_MN)
        return !osh_uni_in(osh_uni_not_mn, cp);
    return cp == 0x1734;
}

static osh_status map_nonspacing(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out,
                                 const char *s, size_t n, osh_tok_piece *p)
{
    osh_status rc = OSH_OK;
    size_t kept = 0, at = out->n;
    uint32_t cp = 0;

    (void)st;
    for (size_t i = 0, len = 0; i < n; i += len) {
        len = osh_utf8_next(s + i, n - i, &cp);
        if (!is_nonspacing(cp)) continue;
        OSH_TRY(osh_tok_text_add(cx, out, s + kept, i - kept));
        kept = i + len;
        if (out->n == at) p->first = false;
    }
    OSH_TRY(osh_tok_text_add(cx, out, s + kept, n - kept));
done:
    return rc;
}

osh_status osh_tok_run_nmt(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    return osh_tok_map_pieces(cx, st, w, map_nmt);
}

osh_status osh_tok_run_bert(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    osh_status rc = OSH_OK;

    if (st->clean) OSH_TRY(osh_tok_map_pieces(cx, st, w, map_clean));
    if (st->ideographs) OSH_TRY(osh_tok_map_pieces(cx, st, w, map_ideographs));
    if (st->accents) {
        OSH_TRY(osh_tok_map_pieces(cx, st, w, osh_tok_map_nfd));
        OSH_TRY(osh_tok_map_pieces(cx, st, w, map_nonspacing));
    }
    if (st->lower) OSH_TRY(osh_tok_map_pieces(cx, st, w, osh_tok_map_lowercase));
done:
    return rc;
}

/* Reads the four options of BertNormalizer. A strip_accents of null has the value of lowercase. */
osh_status osh_tok_load_bert(osh_ctx *cx, osh_tok_step *st, const cJSON *o, const char *what)
{
    osh_status rc = OSH_OK;

    OSH_TRY(osh_json_bool_or(cx, &st->clean, o, "clean_text", true, what));
    OSH_TRY(osh_json_bool_or(cx, &st->ideographs, o, "handle_chinese_chars", true, what));
    OSH_TRY(osh_json_bool_or(cx, &st->lower, o, "lowercase", true, what));
    OSH_TRY(osh_json_bool_or(cx, &st->accents, o, "strip_accents", st->lower, what));
done:
    return rc;
}
