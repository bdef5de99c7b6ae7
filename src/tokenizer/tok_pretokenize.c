/* tok_pretokenize.c - implements the pre-tokenizers of tokenizer.json. They cut the text into
 * pieces, which later stages process one by one.
 *
 * tok_split.c makes all cuts. ByteLevel and Metaspace also change the bytes. The patterns are those
 * of tokenizers/src/pre_tokenizers. */
#include "tokenizer/tok_split.h"
#include "tokenizer/tok_unicode.h"
#include <string.h>

static osh_status match_pattern(osh_ctx *cx, const osh_tok_step *st, const osh_haystack *h,
                                size_t from, size_t *start, size_t *end)
{
    osh_hit at;
    osh_status rc = h->open ? osh_tok_pattern_find_open(cx, &st->pattern, h->s, h->n, from, &at)
                            : osh_tok_pattern_find(cx, &st->pattern, h->s, h->n, from, &at);
    *start = at.start, *end = at.end;
    return rc;
}

static osh_status match_class(const osh_haystack *h, size_t from, size_t *start, size_t *end,
                              bool (*is)(uint32_t cp))
{
    uint32_t cp = 0;

    for (size_t i = from, len = 0; i < h->n; i += len) {
        len = osh_utf8_next(h->s + i, h->n - i, &cp);
        if (!is(cp)) continue;
        *start = i;
        *end = i + len;
        return OSH_OK;
    }
    *start = SIZE_MAX;
    *end = h->n;
    return OSH_OK;
}

static osh_status match_number(osh_ctx *cx, const osh_tok_step *st, const osh_haystack *h,
                               size_t from, size_t *start, size_t *end)
{
    (void)cx, (void)st;
    return match_class(h, from, start, end, osh_cp_is_numeric);
}

static osh_status match_space(osh_ctx *cx, const osh_tok_step *st, const osh_haystack *h,
                              size_t from, size_t *start, size_t *end)
{
    (void)cx, (void)st;
    return match_class(h, from, start, end, osh_cp_is_space);
}

static osh_status match_punct(osh_ctx *cx, const osh_tok_step *st, const osh_haystack *h,
                              size_t from, size_t *start, size_t *end)
{
    (void)cx, (void)st;
    return match_class(h, from, start, end, osh_cp_is_punct);
}

/* Matches \w+|[^\w\s]+ of Rust's regex, whose \w differs from Oniguruma's. */
static osh_status match_word(osh_ctx *cx, const osh_tok_step *st, const osh_haystack *h,
                             size_t from, size_t *start, size_t *end)
{
    uint32_t cp = 0;
    bool word = false;

    (void)cx, (void)st;
    *start = SIZE_MAX;
    *end = h->n;
    for (size_t i = from, len = 0; i < h->n; i += len) {
        len = osh_utf8_next(h->s + i, h->n - i, &cp);
        bool space = osh_cp_is_space(cp), is = osh_cp_is_word(cp);
        if (*start == SIZE_MAX && space) continue;
        if (*start != SIZE_MAX && (space || is != word)) break;
        if (*start == SIZE_MAX) *start = i;
        word = is;
        *end = i + len;
    }
    if (h->open && *start != SIZE_MAX && *end == h->n) // the word may continue in later text
        *end = *start, *start = SIZE_MAX;
    return OSH_OK;
}

/* Matches a run of one script. A character of no particular script belongs to the run before it, or
 * is removed if there is no run before it. */
static osh_status match_script(osh_ctx *cx, const osh_tok_step *st, const osh_haystack *h,
                               size_t from, size_t *start, size_t *end)
{
    unsigned run = 0;
    uint32_t cp = 0;

    (void)cx, (void)st;
    *start = SIZE_MAX;
    *end = h->n;
    for (size_t i = from, len = 0; i < h->n; i += len) {
        len = osh_utf8_next(h->s + i, h->n - i, &cp);
        unsigned script = osh_cp_script(cp);
        if (!script || script == run) continue;
        if (run) {
            *end = i;
            return OSH_OK;
        }
        run = script;
        *start = i;
    }
    // the characters of one script may continue in later text
    if (h->open) *end = run ? *start : from, *start = SIZE_MAX;
    return OSH_OK;
}

static osh_status match_length(osh_ctx *cx, const osh_tok_step *st, const osh_haystack *h,
                               size_t from, size_t *start, size_t *end)
{
    uint32_t cp = 0;
    size_t at = from, k = 0;

    (void)cx;
    for (; k < st->n_chars && at < h->n; k++) at += osh_utf8_next(h->s + at, h->n - at, &cp);
    *start = k == 0 || (h->open && k < st->n_chars) ? SIZE_MAX : from;
    *end = *start == SIZE_MAX ? from : at;
    return OSH_OK;
}

static osh_status run_scripts(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    return osh_tok_split(cx, st, w, OSH_SPLIT_REMOVED, true, match_script);
}

static osh_status run_length(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    return osh_tok_split(cx, st, w, OSH_SPLIT_ISOLATED, false, match_length);
}

static osh_status run_split(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    return osh_tok_split(cx, st, w, st->split, st->invert, match_pattern);
}

static osh_status run_digits(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    return osh_tok_split(cx, st, w, st->each ? OSH_SPLIT_ISOLATED : OSH_SPLIT_CONTIGUOUS, false,
                      match_number);
}

static osh_status run_whitespace(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    return osh_tok_split(cx, st, w, OSH_SPLIT_REMOVED, true, match_word);
}

static osh_status run_whitespace_split(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    return osh_tok_split(cx, st, w, OSH_SPLIT_REMOVED, false, match_space);
}

static osh_status run_punctuation(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    return osh_tok_split(cx, st, w, st->split, false, match_punct);
}

static osh_status run_bert(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    osh_status rc = osh_tok_split(cx, st, w, OSH_SPLIT_REMOVED, false, match_space);

    return rc ? rc : osh_tok_split(cx, st, w, OSH_SPLIT_ISOLATED, false, match_punct);
}

/* Returns GPT-2's character for a byte (bytes_to_unicode). A byte that is a printable Latin-1
 * character keeps its code. The other 68 bytes get U+0100, U+0101, ... in order. */
uint32_t osh_tok_byte_char(unsigned char b)
{
    if ((b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD)) return b;
    if (b <= 0x20) return 0x100u + b;
    if (b <= 0xA0) return 0x100u + 0x21 + (b - 0x7Fu);
    return 0x143; // character for the byte 0xAD
}

osh_status osh_tok_map_bytes(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s,
                             size_t n, osh_tok_piece *p)
{
    osh_status rc = OSH_OK;

    (void)st, (void)p;
    OSH_TRY(osh_tok_text_reserve(cx, out, 2 * n + 1));
    char *to = out->s + out->n;
    for (size_t i = 0; i < n; i++) {
        unsigned char b = (unsigned char)s[i];
        if (b >= 0x21 && b <= 0x7E)
            *to++ = (char)b;
        else
            to += osh_utf8_encode(to, osh_tok_byte_char(b));
    }
    out->n = (size_t)(to - out->s);
done:
    return rc;
}

static osh_status map_prefix_space(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out,
                               const char *s, size_t n, osh_tok_piece *p)
{
    osh_status rc = OSH_OK;

    if (p->cont <= st->index && (n == 0 || s[0] != ' ')) OSH_TRY(osh_tok_text_add(cx, out, " ", 1));
    OSH_TRY(osh_tok_text_add(cx, out, s, n));
done:
    return rc;
}

static osh_status run_byte_level(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    osh_status rc = OSH_OK;

    if (st->add_prefix) {
        size_t len = w->open ? w->cur->pieces[w->cur->n_pieces - 1].len : 0;
        OSH_TRY(osh_tok_map_pieces(cx, st, w, map_prefix_space));
        if (w->open) w->made_up += w->cur->pieces[w->cur->n_pieces - 1].len - len;
    }
    if (st->do_split) OSH_TRY(osh_tok_split(cx, st, w, OSH_SPLIT_ISOLATED, false, match_pattern));
    osh_tok_close_open(w, NULL, true);
    OSH_TRY(osh_tok_map_pieces(cx, st, w, osh_tok_map_bytes));
done:
    return rc;
}

static osh_status map_metaspace(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out,
                                const char *s, size_t n, osh_tok_piece *p)
{
    osh_status rc = OSH_OK;
    bool begins = n > 0 && (s[0] == ' ' || (n >= st->n_content &&
                                            !memcmp(s, st->content, st->n_content)));
    size_t from = 0;

    if (!begins && p->cont <= st->index && (st->add_prefix || (st->first_only && p->first)))
        OSH_TRY(osh_tok_text_add(cx, out, st->content, st->n_content));
    for (size_t i = 0; i < n; i++) {
        if (s[i] != ' ') continue;
        OSH_TRY(osh_tok_text_add(cx, out, s + from, i - from));
        OSH_TRY(osh_tok_text_add(cx, out, st->content, st->n_content));
        from = i + 1;
    }
    OSH_TRY(osh_tok_text_add(cx, out, s + from, n - from));
done:
    return rc;
}

/* Ends the open piece before the last space, or before the last character that replaces a space. A
 * new piece certainly begins there. */
static void close_at_space(const osh_tok_step *st, osh_tok_work *w)
{
    osh_tok_piece *p = &w->cur->pieces[w->cur->n_pieces - 1];
    const char *s = w->cur->s + p->at;
    size_t q = p->len;

    while (q > 0 && s[q - 1] != ' ' &&
           (p->len - (q - 1) < st->n_content || memcmp(s + q - 1, st->content, st->n_content)))
        q--;
    q = q ? q - 1 : 0;
    osh_tok_piece begin = {.id = -1, .cont = (uint8_t)(st->index < 254 ? st->index + 1 : 255)};
    osh_tok_leave(w, q ? begin : *p, p->len - q - (q ? 0 : w->made_up));
    p->len = (uint32_t)q;
    w->cur->n_pieces -= !q;
}

static osh_status run_metaspace(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    osh_status rc = OSH_OK;

    if (w->open && st->do_split) close_at_space(st, w);
    osh_tok_close_open(w, st->content, false);
    OSH_TRY(osh_tok_map_pieces(cx, st, w, map_metaspace));
    if (st->do_split) OSH_TRY(osh_tok_split(cx, st, w, OSH_SPLIT_NEXT, false, match_pattern));
done:
    return rc;
}

static osh_status load_behavior(osh_ctx *cx, osh_tok_step *st, const cJSON *o, const char *dflt,
                                const char *what)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *name = NULL;
    osh_status rc = osh_json_str_or(cx, &name, o, "behavior", dflt, what);

    if (rc) return rc;
    for (int i = 0; name && i < 5; i++)
        if (!strcmp(name, names[i])) {
            st->split = (osh_split_kind)i;
            return OSH_OK;
        }
    return osh_fail(cx, OSH_E_UNSUPPORTED, "%s: split behavior \"%s\" is not supported", what,
                    name ? name : "");
}

static osh_status load_split(osh_ctx *cx, osh_tok_step *st, const cJSON *o, const char *what)
{
    osh_status rc = OSH_OK;

    OSH_TRY(load_behavior(cx, st, o, NULL, what));
    OSH_TRY(osh_json_bool_or(cx, &st->invert, o, "invert", false, what));
    OSH_TRY(osh_tok_pattern_load(cx, &st->pattern, cJSON_GetObjectItemCaseSensitive(o, "pattern"),
                                 what));
done:
    return rc;
}

static osh_status load_byte_level(osh_ctx *cx, osh_tok_step *st, const cJSON *o, const char *what)
{
    osh_status rc = OSH_OK;

    OSH_TRY(osh_json_bool_or(cx, &st->add_prefix, o, "add_prefix_space", true, what));
    OSH_TRY(osh_json_bool_or(cx, &st->do_split, o, "use_regex", true, what));
    OSH_TRY(osh_tok_pattern_regex(
        cx, &st->pattern,
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        what));
done:
    return rc;
}

static osh_status load_digits(osh_ctx *cx, osh_tok_step *st, const cJSON *o, const char *what)
{
    return osh_json_bool_or(cx, &st->each, o, "individual_digits", false, what);
}

static osh_status load_length(osh_ctx *cx, osh_tok_step *st, const cJSON *o, const char *what)
{
    osh_status rc = OSH_OK;
    int64_t n = 0;

    OSH_TRY(osh_json_int_or(cx, &n, o, "length", 5, what));
    if (n < 1)
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: \"length\" is %lld, want a number from 1", what,
                 (long long)n);
    st->n_chars = (size_t)n;
done:
    return rc;
}

static osh_status load_punctuation(osh_ctx *cx, osh_tok_step *st, const cJSON *o, const char *what)
{
    return load_behavior(cx, st, o, "Isolated", what);
}

static osh_status set_literal(osh_ctx *cx, osh_tok_step *st, const cJSON *o, const char *key,
                              const char *what)
{
    osh_status rc = OSH_OK;
    uint32_t cp = 0;
    const char *c = NULL;

    OSH_TRY(osh_json_str_or(cx, &c, o, key, NULL, what));
    if (!c || !*c || osh_utf8_decode(c, strlen(c), &cp) != strlen(c))
        OSH_FAIL(cx, OSH_E_FORMAT, "%s: \"%s\" must be one character", what, key);
    OSH_TRY(osh_tok_string(cx, &st->pattern.literal, &st->pattern.n_literal, c));
    st->pattern.local = true;
done:
    return rc;
}

static osh_status load_delimiter(osh_ctx *cx, osh_tok_step *st, const cJSON *o, const char *what)
{
    st->split = OSH_SPLIT_REMOVED;
    return set_literal(cx, st, o, "delimiter", what);
}

/* Reads Metaspace. Older files have add_prefix_space instead of prepend_scheme. */
static osh_status load_metaspace(osh_ctx *cx, osh_tok_step *st, const cJSON *o, const char *what)
{
    osh_status rc = OSH_OK;
    const char *scheme = NULL;
    bool prefix = true;

    OSH_TRY(set_literal(cx, st, o, "replacement", what));
    st->n_content = st->pattern.n_literal;
    st->content = osh_alloc(cx, st->n_content + 1);
    if (!st->content) {
        rc = OSH_E_NOMEM;
        goto done;
    }
    memcpy(st->content, st->pattern.literal, st->n_content);
    st->content[st->n_content] = 0;
    OSH_TRY(osh_json_bool_or(cx, &prefix, o, "add_prefix_space", true, what));
    OSH_TRY(osh_json_str_or(cx, &scheme, o, "prepend_scheme", prefix ? "always" : "never", what));
    st->add_prefix = !strcmp(scheme, "always");
    st->first_only = !strcmp(scheme, "first");
    if (!st->add_prefix && !st->first_only && strcmp(scheme, "never"))
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: prepend_scheme \"%s\" is not supported", what, scheme);
    OSH_TRY(osh_json_bool_or(cx, &st->do_split, o, "split", true, what));
done:
    return rc;
}

void osh_tok_close_open(osh_tok_work *w, const char *space, bool bytes)
{
    osh_tok_piece *p = w->open ? &w->cur->pieces[w->cur->n_pieces - 1] : NULL;
    uint32_t content = ' ', x = 0, y = 0;

    if (!p) return;
    const char *s = w->cur->s + p->at;
    size_t q = p->len ? p->len - 1 : 0;
    if (space) osh_utf8_decode(space, strlen(space), &content);
    for (; q > w->made_up; q--) {
        if (((unsigned char)s[q] & 0xC0) == 0x80) continue;
        size_t at = osh_utf8_before(s, q);
        osh_utf8_decode(s + at, q - at, &x);
        osh_utf8_decode(s + q, p->len - q, &y);
        if (bytes)
            x = osh_tok_byte_char((unsigned char)s[q - 1]),
            y = osh_tok_byte_char((unsigned char)s[q]);
        else x = x == ' ' ? content : x, y = y == ' ' ? content : y;
        if (osh_tok_model_parts(w->model, x, y)) break;
    }
    bool cuts = q > w->made_up;
    osh_tok_piece begin = {.id = -1, .cont = 255};
    osh_tok_leave(w, cuts ? begin : *p, p->len - (cuts ? q : w->made_up));
    p->len = (uint32_t)(cuts ? q : 0);
    w->cur->n_pieces -= !cuts;
}

osh_status osh_tok_pretokenizers_load(osh_ctx *cx, osh_tok_steps *steps, const cJSON *o,
                                      const char *what)
{
    static const osh_tok_component table[] = {
        {"Split", load_split, run_split, OSH_CUT_NEVER},
        {"ByteLevel", load_byte_level, run_byte_level, OSH_CUT_NEVER},
        {"Digits", load_digits, run_digits, OSH_CUT_NEVER},
        {"Metaspace", load_metaspace, run_metaspace, OSH_CUT_NEVER},
        {"Whitespace", NULL, run_whitespace, OSH_CUT_NEVER},
        {"WhitespaceSplit", NULL, run_whitespace_split, OSH_CUT_NEVER},
        {"Punctuation", load_punctuation, run_punctuation, OSH_CUT_NEVER},
        {"CharDelimiterSplit", load_delimiter, run_split, OSH_CUT_NEVER},
        {"UnicodeScripts", NULL, run_scripts, OSH_CUT_NEVER},
        {"FixedLength", load_length, run_length, OSH_CUT_NEVER},
        {"BertPreTokenizer", NULL, run_bert, OSH_CUT_NEVER},
        {NULL, NULL, NULL, OSH_CUT_NEVER}};

    return osh_tok_steps_load(cx, steps, o,
                              &(osh_tok_role){"pre_tokenizer", "pretokenizers", table}, what);
}
