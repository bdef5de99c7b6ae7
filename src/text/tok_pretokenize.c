/* tok_pretokenize.c - pre-tokenizers of tokenizer.json: they cut pieces and never look across a
 * cut.
 *
 * All cuts go through one function with the five behaviours of NormalizedString::split. ByteLevel
 * and Metaspace also change the bytes. Patterns are those of tokenizers/src/pre_tokenizers. */
#include "text/tok_impl.h"
#include <string.h>

/* Collects segments of one piece, in order, and emits pieces by behaviour. */
typedef struct cutter {
    osh_ctx *cx;
    osh_tok_text *out;
    osh_tok_piece in;
    osh_split_kind kind;
    bool invert, before; // before: was the segment before a match?
    bool held;           // one piece waits in [start, end)
    size_t start, end;
} cutter;

static osh_status emit(cutter *c)
{
    if (!c->held || c->start == c->end) return OSH_OK;
    return osh_tok_piece_add(c->cx, c->out, c->in.at + c->start, c->end - c->start, -1,
                             c->in.first && c->start == 0);
}

static osh_status segment(cutter *c, size_t start, size_t end, bool match)
{
    osh_status rc = OSH_OK;
    bool join = false;

    match ^= c->invert;
    switch (c->kind) {
    case OSH_SPLIT_REMOVED:
        if (match) return OSH_OK;
        break;
    case OSH_SPLIT_ISOLATED: break;
    case OSH_SPLIT_CONTIGUOUS: join = c->held && match == c->before; break;
    case OSH_SPLIT_PREVIOUS: join = c->held && match && !c->before; break;
    case OSH_SPLIT_NEXT: join = c->held && !match && c->before; break;
    }
    c->before = match;
    if (join) {
        c->end = end;
        return OSH_OK;
    }
    OSH_TRY(emit(c));
    c->held = true;
    c->start = start;
    c->end = end;
done:
    return rc;
}

/* One match or gap of a piece after the other. */
typedef osh_status (*next_match_fn)(osh_ctx *cx, const osh_tok_step *st, const char *s, size_t n,
                                    size_t from, size_t *start, size_t *end);

static osh_status cut_piece(cutter *c, const osh_tok_step *st, const char *s, size_t n,
                            next_match_fn next_match)
{
    osh_status rc = OSH_OK;
    size_t done_to = 0, from = 0, start = 0, end = 0;

    while (from <= n) {
        OSH_TRY(next_match(c->cx, st, s, n, from, &start, &end));
        if (start == SIZE_MAX) break;
        bool again = start == end && start == done_to && start > 0; // empty, right behind a match
        if (!again) {
            if (start > done_to) OSH_TRY(segment(c, done_to, start, false));
            OSH_TRY(segment(c, start, end, true));
            done_to = end;
        }
        from = end;
        if (start == end) {
            uint32_t cp;
            from += end < n ? osh_utf8_decode(s + end, n - end, &cp) : 1;
        }
    }
    if (done_to < n) OSH_TRY(segment(c, done_to, n, false));
    OSH_TRY(emit(c));
done:
    return rc;
}

static osh_status cut(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w, osh_split_kind kind,
                      bool invert, next_match_fn next_match)
{
    osh_status rc = OSH_OK;
    osh_tok_text *in = w->cur, *out = w->next;

    out->n_pieces = 0;
    for (size_t i = 0; i < in->n_pieces; i++) {
        osh_tok_piece p = in->pieces[i];
        cutter c = {.cx = cx, .out = out, .in = p, .kind = kind, .invert = invert};
        if (p.id >= 0)
            OSH_TRY(osh_tok_piece_add(cx, out, p.at, p.len, p.id, p.first));
        else
            OSH_TRY(cut_piece(&c, st, in->s + p.at, p.len, next_match));
    }
    osh_tok_piece *pieces = in->pieces; // the bytes stay where they are
    size_t cap = in->cap_pieces;
    in->pieces = out->pieces, in->cap_pieces = out->cap_pieces, in->n_pieces = out->n_pieces;
    out->pieces = pieces, out->cap_pieces = cap, out->n_pieces = 0;
done:
    return rc;
}

static osh_status by_pattern(osh_ctx *cx, const osh_tok_step *st, const char *s, size_t n,
                             size_t from, size_t *start, size_t *end)
{
    return osh_tok_pattern_find(cx, &st->pattern, s, n, from, start, end);
}

static osh_status by_class(const char *s, size_t n, size_t from, size_t *start, size_t *end,
                           bool (*is)(uint32_t cp))
{
    uint32_t cp = 0;

    for (size_t i = from, len = 0; i < n; i += len) {
        len = osh_utf8_decode(s + i, n - i, &cp);
        if (!is(cp)) continue;
        *start = i;
        *end = i + len;
        return OSH_OK;
    }
    *start = *end = SIZE_MAX;
    return OSH_OK;
}

static osh_status by_number(osh_ctx *cx, const osh_tok_step *st, const char *s, size_t n,
                            size_t from, size_t *start, size_t *end)
{
    (void)cx, (void)st;
    return by_class(s, n, from, start, end, osh_cp_is_numeric);
}

static osh_status by_space(osh_ctx *cx, const osh_tok_step *st, const char *s, size_t n,
                           size_t from, size_t *start, size_t *end)
{
    (void)cx, (void)st;
    return by_class(s, n, from, start, end, osh_cp_is_space);
}

static osh_status by_punct(osh_ctx *cx, const osh_tok_step *st, const char *s, size_t n,
                           size_t from, size_t *start, size_t *end)
{
    (void)cx, (void)st;
    return by_class(s, n, from, start, end, osh_cp_is_punct);
}

/* \w+|[^\w\s]+ of Rust's regex, whose \w is not Oniguruma's. */
static osh_status by_word(osh_ctx *cx, const osh_tok_step *st, const char *s, size_t n, size_t from,
                          size_t *start, size_t *end)
{
    uint32_t cp = 0;
    bool word = false;

    (void)cx, (void)st;
    *start = *end = SIZE_MAX;
    for (size_t i = from, len = 0; i < n; i += len) {
        len = osh_utf8_decode(s + i, n - i, &cp);
        bool space = osh_cp_is_space(cp), is = osh_cp_is_word(cp);
        if (*start == SIZE_MAX && space) continue;
        if (*start != SIZE_MAX && (space || is != word)) break;
        if (*start == SIZE_MAX) *start = i;
        word = is;
        *end = i + len;
    }
    return OSH_OK;
}

static osh_status run_split(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    return cut(cx, st, w, st->split, st->invert, by_pattern);
}

static osh_status run_digits(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    return cut(cx, st, w, st->each ? OSH_SPLIT_ISOLATED : OSH_SPLIT_CONTIGUOUS, false, by_number);
}

static osh_status run_whitespace(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    return cut(cx, st, w, OSH_SPLIT_REMOVED, true, by_word);
}

static osh_status run_whitespace_split(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    return cut(cx, st, w, OSH_SPLIT_REMOVED, false, by_space);
}

static osh_status run_punctuation(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    return cut(cx, st, w, st->split, false, by_punct);
}

static osh_status run_bert(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    osh_status rc = cut(cx, st, w, OSH_SPLIT_REMOVED, false, by_space);

    return rc ? rc : cut(cx, st, w, OSH_SPLIT_ISOLATED, false, by_punct);
}

/* GPT-2's bytes_to_unicode: printable Latin-1 stays, the other 68 bytes become U+0100, U+0101, ...
 * in order. */
static uint32_t byte_char(unsigned char b)
{
    if ((b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD)) return b;
    if (b <= 0x20) return 0x100u + b;
    if (b <= 0xA0) return 0x100u + 0x21 + (b - 0x7Fu);
    return 0x143; // 0xAD
}

osh_status osh_tok_map_bytes(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s,
                             size_t n, bool *first)
{
    osh_status rc = OSH_OK;

    (void)st, (void)first;
    OSH_TRY(osh_tok_text_reserve(cx, out, 2 * n + 1));
    char *to = out->s + out->n;
    for (size_t i = 0; i < n; i++) {
        unsigned char b = (unsigned char)s[i];
        if (b >= 0x21 && b <= 0x7E)
            *to++ = (char)b;
        else
            to += osh_utf8_encode(to, byte_char(b));
    }
    out->n = (size_t)(to - out->s);
done:
    return rc;
}

static osh_status prefix_space(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out,
                               const char *s, size_t n, bool *first)
{
    osh_status rc = OSH_OK;

    (void)st, (void)first;
    if (n == 0 || s[0] != ' ') OSH_TRY(osh_tok_text_add(cx, out, " ", 1));
    OSH_TRY(osh_tok_text_add(cx, out, s, n));
done:
    return rc;
}

static osh_status run_byte_level(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    osh_status rc = OSH_OK;

    if (st->add_prefix) OSH_TRY(osh_tok_map_pieces(cx, st, w, prefix_space));
    if (st->do_split) OSH_TRY(cut(cx, st, w, OSH_SPLIT_ISOLATED, false, by_pattern));
    OSH_TRY(osh_tok_map_pieces(cx, st, w, osh_tok_map_bytes));
done:
    return rc;
}

static osh_status metaspace(osh_ctx *cx, const osh_tok_step *st, osh_tok_text *out, const char *s,
                            size_t n, bool *first)
{
    osh_status rc = OSH_OK;
    bool begins = n > 0 && (s[0] == ' ' || (n >= st->n_content &&
                                            !memcmp(s, st->content, st->n_content)));
    size_t from = 0;

    if (!begins && (st->add_prefix || (st->first_only && *first)))
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

static osh_status run_metaspace(osh_ctx *cx, const osh_tok_step *st, osh_tok_work *w)
{
    osh_status rc = OSH_OK;

    OSH_TRY(osh_tok_map_pieces(cx, st, w, metaspace));
    if (st->do_split) OSH_TRY(cut(cx, st, w, OSH_SPLIT_NEXT, false, by_pattern));
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
done:
    return rc;
}

static osh_status load_delimiter(osh_ctx *cx, osh_tok_step *st, const cJSON *o, const char *what)
{
    st->split = OSH_SPLIT_REMOVED;
    return set_literal(cx, st, o, "delimiter", what);
}

/* Older files have add_prefix_space instead of prepend_scheme. */
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

osh_status osh_tok_pretokenizers_load(osh_ctx *cx, osh_tok_steps *steps, const cJSON *o,
                                      const char *what)
{
    static const osh_tok_component table[] = {
        {"Split", load_split, run_split},
        {"ByteLevel", load_byte_level, run_byte_level},
        {"Digits", load_digits, run_digits},
        {"Metaspace", load_metaspace, run_metaspace},
        {"Whitespace", NULL, run_whitespace},
        {"WhitespaceSplit", NULL, run_whitespace_split},
        {"Punctuation", load_punctuation, run_punctuation},
        {"CharDelimiterSplit", load_delimiter, run_split},
        {"BertPreTokenizer", NULL, run_bert},
        {NULL, NULL, NULL}};

    return osh_tok_steps_load(cx, steps, o, table, "pre_tokenizer", "pretokenizers", what);
}
