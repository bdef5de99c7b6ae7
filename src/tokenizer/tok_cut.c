/* tok_cut.c - finds positions where a text may be cut before the normalizers run. The outputs of
 * the two parts of the text, put together, must equal the output of the whole text.
 *
 * For most normalizers the two characters at the position decide whether a cut is allowed
 * (osh_cut_kind). This is not enough for Strip, a Replace of more than one character, Precompiled,
 * BertNormalizer and unusual orders of normalizers. For these, a cut must have two calm characters
 * on each side.
 *
 *     ... w x | y z ...
 *
 * A calm character is a letter or digit that every normalizer keeps, alone and three times in a
 * row. It joins no character next to it, and no match of a Replace contains it. w and z separate x
 * and y from the rest of the text, so x and y remain neighbours in every normalizer. No change of
 * the text before the cut depends on the text after it, and vice versa. */
#include "tokenizer/tok_charsmap.h"
#include "tokenizer/tok_unicode.h"
#include <string.h>
#include <utf8proc.h>

enum { BMP = 0x10000, KNOWN = 1, CALM = 2 };

struct osh_tok_cuts {
    const osh_tok_steps *steps; // view: the normalizers
    osh_cut_kind kind;
    /* For each character: 0 if it was not tested, KNOWN if it is not calm, KNOWN | CALM if it is
     * calm. NULL unless the kind is OSH_CUT_CALM. */
    uint8_t *calm;         // own [BMP]
    osh_tok_text texts[2]; // own; scratch
};

void osh_tok_cuts_free(osh_ctx *cx, osh_tok_cuts *c)
{
    if (!c) return;
    osh_free(cx, c->calm);
    for (int i = 0; i < 2; i++) osh_tok_text_deinit(cx, &c->texts[i]);
    osh_free(cx, c);
}

osh_status osh_tok_cuts_new(osh_ctx *cx, osh_tok_cuts **out, const osh_tok_steps *normalizers)
{
    osh_status rc = OSH_OK;
    osh_tok_cuts *c = NULL; // own

    OSH_NEW(cx, c, 1);
    c->steps = normalizers;
    c->kind = osh_tok_normalizers_cut(normalizers);
    if (c->kind == OSH_CUT_CALM) OSH_NEW(cx, c->calm, BMP);
    *out = c, c = NULL; // give
done:
    osh_tok_cuts_free(cx, c);
    return rc;
}

/* Sets *yes to true if the Replace of a normalizer matches text that contains the character. `s` is
 * the character, written three times; `len` is the number of bytes of the character. */
static osh_status is_char_replaced(osh_ctx *cx, const osh_tok_cuts *c, const char *s, size_t len,
                                   bool *yes)
{
    osh_status rc = OSH_OK;

    for (size_t i = 0; i < c->steps->n && !*yes; i++) {
        const osh_tok_pattern *p = &c->steps->items[i].pattern;
        osh_hit at = {SIZE_MAX, 0};
        if (p->re) OSH_TRY(osh_tok_pattern_find(cx, p, s, 3 * len, 0, &at));
        *yes = at.start != SIZE_MAX || (p->literal && memmem(p->literal, p->n_literal, s, len));
    }
done:
    return rc;
}

/* Runs the normalizers on three copies of cp. Sets *calm to true if the result shows that cp is a
 * calm character. */
static osh_status find_char_calm(osh_ctx *cx, osh_tok_cuts *c, uint32_t cp, bool *calm)
{
    osh_status rc = OSH_OK;
    osh_tok_work w = {.cur = &c->texts[0], .next = &c->texts[1]};
    char s[12];
    size_t len = osh_utf8_encode(s, cp);
    bool replaced = false;
    utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)cp);
    bool letter = (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO &&
                   kind != UTF8PROC_CATEGORY_LM) ||
                  kind == UTF8PROC_CATEGORY_ND;

    *calm = false;
    if (!letter || !osh_cp_starts_form(cp, true) || !osh_cp_is_grapheme(cp)) goto done;
    memcpy(s + len, s, len);
    memcpy(s + 2 * len, s, len);
    OSH_TRY(is_char_replaced(cx, c, s, len, &replaced));
    if (replaced) goto done;
    for (int i = 0; i < 2; i++) c->texts[i].n = c->texts[i].n_pieces = 0;
    OSH_TRY(osh_tok_text_add(cx, w.cur, s, 3 * len));
    OSH_TRY(osh_tok_piece_add(cx, w.cur,
                              (osh_tok_piece){.len = (uint32_t)(3 * len), .id = -1, .cont = 255}));
    OSH_TRY(osh_tok_normalize(cx, c->steps, &w));
    *calm = w.cur->n == 3 * len && !memcmp(w.cur->s, s, 3 * len);
done:
    return rc;
}

/* Sets *calm to true if the character at s is calm (see the top of this file). Each character is
 * tested only once. */
static osh_status is_char_calm(osh_ctx *cx, osh_tok_cuts *c, const char *s, size_t n, bool *calm)
{
    osh_status rc = OSH_OK;
    uint32_t cp = 0;

    *calm = false;
    if (!osh_utf8_decode(s, n, &cp) || cp >= BMP) goto done;
    if (!c->calm[cp]) {
        OSH_TRY(find_char_calm(cx, c, cp, calm));
        c->calm[cp] = *calm ? KNOWN | CALM : KNOWN;
    }
    *calm = c->calm[cp] & CALM;
done:
    return rc;
}

osh_status osh_tok_cuts_at(osh_ctx *cx, osh_tok_cuts *c, const char *s, size_t n, size_t at,
                           bool *yes)
{
    osh_status rc = OSH_OK;
    uint32_t cp = 0;

    *yes = false;
    if (!at || c->kind == OSH_CUT_NEVER) goto done;
    *yes = c->kind == OSH_CUT_ANYWHERE;
    if (*yes) goto done;
    if (c->kind != OSH_CUT_CALM) {
        osh_utf8_decode(s + at, n - at, &cp);
        *yes = osh_cp_starts_form(cp, c->kind == OSH_CUT_COMPAT);
        goto done;
    }
    size_t before = osh_utf8_before(s, at), after = at + osh_utf8_next(s + at, n - at, &cp);
    if (!before || after >= n) goto done;
    size_t places[4] = {at, before, after, osh_utf8_before(s, before)};
    *yes = true;
    for (int i = 0; i < 4 && *yes; i++)
        OSH_TRY(is_char_calm(cx, c, s + places[i], n - places[i], yes));
done:
    return rc;
}
