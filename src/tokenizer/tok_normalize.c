/* tok_normalize.c - implements the normalizers of tokenizer.json, each as in
 * tokenizers/src/normalizers.
 *
 * utf8proc makes NFC, NFD, NFKC and NFKD. Lowercase maps character by character (no final sigma),
 * as char::to_lowercase does. Tables of tok_unicode.c correct the normal forms of single characters
 * that utf8proc and tokenizers treat in different ways. */
#include "tokenizer/tok_charsmap.h"
#include "tokenizer/tok_unicode.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { CHECK_EVERY = 4096 }; // number of matches between checks for an interrupt

static osh_status map_form(osh_ctx *cx, osh_tok_text *out, const char *s, size_t n, int form)
{
    osh_status rc = OSH_OK;
    utf8proc_uint8_t *made = NULL; // malloc'ed by utf8proc
    utf8proc_ssize_t len = utf8proc_map((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &made,
                                        (utf8proc_option_t)(UTF8PROC_STABLE | form));

    if (len == UTF8PROC_ERROR_NOMEM) OSH_FAIL(cx, OSH_E_NOMEM, "cannot allocate normalized text");
    if (len < 0)
        OSH_FAIL(cx, OSH_E_INTERNAL, "utf8proc cannot normalize %zu bytes: %s", n,
                 utf8proc_errmsg(len));
    OSH_TRY(osh_tok_text_add(cx, out, (const char *)made, (size_t)len));
done:
    free(made);
    return rc;
}

/* Converts text to the normal form `form`. Characters that the tables of the tokenizers library do
 * not have yet are copied unchanged. No character composes with them or moves across them, so the
 * text between two of them is normalized by itself. */
static osh_status unicode_form(osh_ctx *cx, osh_tok_text *out, const char *s, size_t n, int form)
{
    osh_status rc = OSH_OK;
    size_t i = 0, from = 0, len = 0;
    uint32_t cp = 0;

    while (i < n && (unsigned char)s[i] < 0x80) i++;
    if (i == n) return osh_tok_text_add(cx, out, s, n); // ASCII text is in every normal form
    for (; i < n; i += len) {
        len = osh_utf8_next(s + i, n - i, &cp);
        bool stays = cp >= 0x7FD && (osh_uni_in(osh_uni_no_class, cp) ||
                                     ((form & UTF8PROC_COMPAT) && osh_uni_in(osh_uni_not_nfk, cp)));
        if (!stays && (cp != 0x11938 || (form & UTF8PROC_COMPOSE))) continue;
        if (i > from) OSH_TRY(map_form(cx, out, s + from, i - from, form));
        OSH_TRY(osh_tok_text_add(cx, out, s + i, len));
        from = i + len;
    }
    if (n > from) OSH_TRY(map_form(cx, out, s + from, n - from, form));
done:
    return rc;
}

/* Returns false for characters that may join the character before them: marks, medial and final
 * jamos, and characters that decompose into one of these. */
bool osh_cp_starts_form(uint32_t cp, bool compat)
{
    if (cp < 0x80) return true;
    if ((cp >= 0x1160 && cp <= 0x11FF) || (cp >= 0xD7B0 && cp <= 0xD7FF) || osh_cp_is_mark(cp))
        return false;
    // A character that is unassigned in utf8proc 2.8 may be a mark in a newer Unicode.
    if (utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_CN) return false;
    return !compat || !((cp >= 0x3130 && cp <= 0x318F) || (cp >= 0xFF9E && cp <= 0xFFDC));
}

static osh_status nfc(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s,
                      size_t n, osh_tok_piece *p)
{
    (void)st, (void)p;
    return unicode_form(cx, out, s, n, UTF8PROC_COMPOSE);
}

osh_status osh_tok_map_nfd(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s,
                      size_t n, osh_tok_piece *p)
{
    (void)st, (void)p;
    return unicode_form(cx, out, s, n, UTF8PROC_DECOMPOSE);
}

static osh_status nfkc(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s,
                       size_t n, osh_tok_piece *p)
{
    (void)st, (void)p;
    return unicode_form(cx, out, s, n, UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
}

static osh_status nfkd(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s,
                       size_t n, osh_tok_piece *p)
{
    (void)st, (void)p;
    return unicode_form(cx, out, s, n, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
}

static osh_status add_cp(osh_ctx *cx, osh_tok_text *out, uint32_t cp)
{
    osh_status rc = osh_tok_text_reserve(cx, out, 4);

    if (!rc) out->n += osh_utf8_encode(out->s + out->n, cp);
    return rc;
}

/* Returns the lower case of cp. Includes the capital letters of Unicode 16 and 17, which utf8proc
 * 2.8 does not have. */
static uint32_t cp_lower(uint32_t cp)
{
    if (cp >= 0x10D50 && cp <= 0x10D65) return cp + 0x20;
    if (cp >= 0x16EA0 && cp <= 0x16EB8) return cp + 0x1B;
    switch (cp) {
    case 0x1C89:
    case 0xA7CC:
    case 0xA7CE:
    case 0xA7D2:
    case 0xA7D4:
    case 0xA7DA: return cp + 1;
    case 0xA7CB: return 0x264;
    case 0xA7DC: return 0x19B;
    default: return (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    }
}

osh_status osh_tok_map_lowercase(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out,
                                 const char *s, size_t n, osh_tok_piece *p)
{
    osh_status rc = OSH_OK;
    uint32_t cp = 0;

    (void)st, (void)p;
    for (size_t i = 0; i < n;) {
        i += osh_utf8_next(s + i, n - i, &cp);
        if (cp == 0x130) { // U+0130 is the only character whose lower case has two characters
            OSH_TRY(osh_tok_text_add(cx, out, "i\xCC\x87", 3));
            continue;
        }
        OSH_TRY(add_cp(cx, out, cp_lower(cp)));
    }
done:
    return rc;
}

static osh_status strip_accents(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out,
                                const char *s, size_t n, osh_tok_piece *p)
{
    osh_status rc = OSH_OK;
    uint32_t cp = 0;
    size_t at = out->n;

    (void)st;
    for (size_t i = 0, len = 0; i < n; i += len) {
        len = osh_utf8_next(s + i, n - i, &cp);
        bool mark = osh_cp_is_mark(cp) || cp == 0x1CF2 || cp == 0x1CF3;
        if (!mark || osh_uni_in(osh_uni_not_mark, cp))
            OSH_TRY(osh_tok_text_add(cx, out, s + i, len));
        else if (out->n == at)
            p->first = false;
    }
done:
    return rc;
}

static osh_status precompiled(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s,
                              size_t n, osh_tok_piece *p)
{
    (void)p;
    return osh_tok_charsmap_apply(cx, st->charsmap, out, s, n);
}

static osh_status strip_spaces(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out,
                               const char *s, size_t n, osh_tok_piece *p)
{
    uint32_t cp = 0;
    size_t from = 0, to = n;

    while (st->left && from < to) {
        size_t len = osh_utf8_next(s + from, to - from, &cp);
        if (!osh_cp_is_space(cp)) break;
        from += len;
        p->first = false;
    }
    while (st->right && to > from) {
        size_t at = osh_utf8_before(s, to);
        osh_utf8_decode(s + at, to - at, &cp);
        if (!osh_cp_is_space(cp)) break;
        to = at;
    }
    return osh_tok_text_add(cx, out, s + from, to - from);
}

static osh_status prepend(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s,
                          size_t n, osh_tok_piece *p)
{
    osh_status rc = OSH_OK;

    if (n > 0 && !p->cont) OSH_TRY(osh_tok_text_add(cx, out, st->content, st->n_content));
    OSH_TRY(osh_tok_text_add(cx, out, s, n));
done:
    return rc;
}

static osh_status replace(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s,
                          size_t n, osh_tok_piece *p)
{
    osh_status rc = OSH_OK;
    size_t done_to = 0, from = 0;
    uint32_t cp = 0;

    for (size_t k = 1; from <= n; k++) {
        osh_hit at;
        if (k % CHECK_EVERY == 0 && osh_interrupted(cx))
            OSH_FAIL(cx, OSH_E_INTERRUPTED, "interrupted while tokenizing");
        OSH_TRY(osh_tok_pattern_find(cx, &st->pattern, s, n, from, &at));
        size_t start = at.start, end = at.end;
        if (start == SIZE_MAX) break;
        // true for an empty match at the end of the previous match; such a match is ignored
        bool again = start == end && start == done_to && start > 0;
        if (!again) {
            OSH_TRY(osh_tok_text_add(cx, out, s + done_to, start - done_to));
            OSH_TRY(osh_tok_text_add(cx, out, st->content, st->n_content));
            // only the last character of the match is replaced; the ones before it are deleted
            if (start == 0 && end > 0)
                p->first &= st->n_content > 0 && osh_utf8_next(s, n, &cp) == end;
            done_to = end;
        }
        from = end;
        if (start == end) from += end < n ? osh_utf8_next(s + end, n - end, &cp) : 1;
    }
    if (done_to < n) OSH_TRY(osh_tok_text_add(cx, out, s + done_to, n - done_to));
done:
    return rc;
}

/* The normalizers may make at most MOST_TIMES times the bytes of the input, plus MOST_MORE bytes.
 * (NFKC makes U+FDFA eleven times as long.) */
enum { MOST_TIMES = 32, MOST_MORE = 64 << 10 };

osh_status osh_tok_normalize(osh_ctx *cx, const osh_tok_steps *steps, osh_tok_work *w)
{
    size_t n = w->cur->n;

    w->cur->limit = w->next->limit = MOST_TIMES * n + MOST_MORE;
    w->cur->made_of = w->next->made_of = n;
    osh_status rc = osh_tok_steps_run(cx, steps, w);
    w->cur->limit = w->next->limit = 0;
    return rc;
}

#define OSH_RUN(fn)                                                                                \
    static osh_status run_##fn(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)               \
    {                                                                                              \
        return osh_tok_map_pieces(cx, st, w, fn);                                                  \
    }
OSH_RUN(nfc)
OSH_RUN(osh_tok_map_nfd)
OSH_RUN(nfkc)
OSH_RUN(nfkd)
OSH_RUN(osh_tok_map_lowercase)
OSH_RUN(strip_accents)
OSH_RUN(strip_spaces)
OSH_RUN(precompiled)
OSH_RUN(prepend)
OSH_RUN(replace)
OSH_RUN(osh_tok_map_bytes)

static osh_status load_prepend(osh_ctx *cx, osh_tok_step *st, const cJSON *o, const char *what)
{
    return osh_tok_member(cx, &st->content, &st->n_content, o, "prepend", what);
}

static osh_status load_replace(osh_ctx *cx, osh_tok_step *st, const cJSON *o, const char *what)
{
    osh_status rc = OSH_OK;
    uint32_t cp = 0;

    OSH_TRY(osh_tok_member(cx, &st->content, &st->n_content, o, "content", what));
    OSH_TRY(osh_tok_pattern_load(cx, &st->pattern, cJSON_GetObjectItemCaseSensitive(o, "pattern"),
                                 what));
    const osh_tok_pattern *p = &st->pattern;
    if (!p->re && osh_utf8_decode(p->literal, p->n_literal, &cp) == p->n_literal)
        st->cuts = OSH_CUT_ANYWHERE;
done:
    return rc;
}

static osh_status load_precompiled(osh_ctx *cx, osh_tok_step *st, const cJSON *o, const char *what)
{
    const cJSON *s = cJSON_GetObjectItemCaseSensitive(o, "precompiled_charsmap");

    if (!cJSON_IsString(s))
        return osh_fail(cx, OSH_E_FORMAT, "%s: \"precompiled_charsmap\" is missing or not a string",
                        what);
    return osh_tok_charsmap_load(cx, &st->charsmap, s->valuestring, what);
}

static osh_status load_strip(osh_ctx *cx, osh_tok_step *st, const cJSON *o, const char *what)
{
    osh_status rc = osh_json_bool_or(cx, &st->left, o, "strip_left", true, what);

    return rc ? rc : osh_json_bool_or(cx, &st->right, o, "strip_right", true, what);
}

osh_status osh_tok_normalizers_load(osh_ctx *cx, osh_tok_steps *steps, const cJSON *o,
                                    const char *what)
{
    static const osh_tok_component table[] = {
        {"NFC", NULL, run_nfc, OSH_CUT_STARTER},
        {"NFD", NULL, run_osh_tok_map_nfd, OSH_CUT_STARTER},
        {"NFKC", NULL, run_nfkc, OSH_CUT_COMPAT},
        {"NFKD", NULL, run_nfkd, OSH_CUT_COMPAT},
        {"Lowercase", NULL, run_osh_tok_map_lowercase, OSH_CUT_ANYWHERE},
        {"StripAccents", NULL, run_strip_accents, OSH_CUT_ANYWHERE},
        {"BertNormalizer", osh_tok_load_bert, osh_tok_run_bert, OSH_CUT_NEVER},
        {"Nmt", NULL, osh_tok_run_nmt, OSH_CUT_ANYWHERE},
        {"Precompiled", load_precompiled, run_precompiled, OSH_CUT_NEVER},
        {"Strip", load_strip, run_strip_spaces, OSH_CUT_NEVER},
        {"Prepend", load_prepend, run_prepend, OSH_CUT_ANYWHERE},
        /* load_replace changes NEVER to ANYWHERE for a Replace of one character. */
        {"Replace", load_replace, run_replace, OSH_CUT_NEVER},
        {"ByteLevel", NULL, run_osh_tok_map_bytes, OSH_CUT_ANYWHERE},
        {NULL, NULL, NULL, OSH_CUT_NEVER}};

    return osh_tok_steps_load(cx, steps, o, &(osh_tok_role){"normalizer", "normalizers", table},
                              what);
}

/* True if calm letters (tok_cut.c) separate the text for all normalizers. No normalizer that joins
 * characters may come after Precompiled, whose output may be any text. Each Replace must match a
 * string, or a run of one character. */
static bool keeps_calm_letters(const osh_tok_steps *steps)
{
    bool anything = false;

    for (size_t i = 0; i < steps->n; i++) {
        const osh_tok_step *st = &steps->items[i];
        bool form = st->cuts == OSH_CUT_STARTER || st->cuts == OSH_CUT_COMPAT ||
                    st->run == osh_tok_run_bert;
        if (anything && (form || st->run == run_precompiled)) return false;
        if (st->run == run_replace && !st->pattern.literal && !st->pattern.one_atom) return false;
        anything |= st->run == run_precompiled;
    }
    return true;
}

/* Returns the kind of cut (osh_cut_kind) that the whole list of normalizers allows. Kinds other
 * than "never" and "calm" have two conditions. Only Lowercase and StripAccents run before a normal
 * form (NFC, ...), because other normalizers may change the characters that the form joins. No
 * normalizer that deletes characters runs before Prepend, because Prepend ignores an empty text. */
osh_cut_kind osh_tok_normalizers_cut(const osh_tok_steps *steps)
{
    osh_cut_kind all = OSH_CUT_ANYWHERE,
                 other = keeps_calm_letters(steps) ? OSH_CUT_CALM : OSH_CUT_NEVER;
    bool changed = false, fewer = false;

    for (size_t i = 0; i < steps->n; i++) {
        const osh_tok_step *st = &steps->items[i];
        bool form = st->cuts == OSH_CUT_STARTER || st->cuts == OSH_CUT_COMPAT;
        bool prepends = st->run == run_prepend, strips = st->run == run_strip_accents;
        if (st->cuts == OSH_CUT_NEVER || (form && changed) || (prepends && fewer)) return other;
        if (st->cuts > all) all = st->cuts;
        changed |= !form && !strips && st->run != run_osh_tok_map_lowercase;
        fewer |= strips || st->run == osh_tok_run_nmt || (st->run == run_replace && !st->n_content);
    }
    return all;
}
