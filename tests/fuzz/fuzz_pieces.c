/* fuzz_pieces.c - builds a well-formed tokenizer.json from the input. The input has patterns,
 * tokens and kinds of components.
 *
 * So every mutation of the input tests the stages of the tokenizer. In fuzz_tokenizer.c the input
 * is a whole tokenizer.json, and most mutations only make the JSON invalid.
 *
 * The input has six parts. The first five are lines:
 *   kinds     a character for each choice that kind_next returns; '0' is the first kind
 *   pattern   the pattern of Split and Replace
 *   content   the content of Replace, Prepend, Metaspace and affixes; the charsmap of Precompiled
 *   tokens    the tokens of the vocabulary, each after a space
 *   added     the added tokens, each after a space
 *   text      the text to encode, up to the end of the input */
#include "base/buf.h"
#include "fuzz/tokenize.h"
#include "tokenizer/tok_impl.h"

typedef struct field {
    const char *s; // view: the bytes of the input
    size_t n;
} field;

typedef struct input {
    field kinds, pattern, content, tokens, added, text;
    size_t at; // position of the next choice in `kinds`
} input;

enum { MOST_TOKENS = 24 };

static field line_next(field *rest)
{
    const char *end = rest->n ? memchr(rest->s, '\n', rest->n) : NULL;
    field line = {rest->s, end ? (size_t)(end - rest->s) : rest->n};

    rest->s += line.n + (end != NULL), rest->n -= line.n + (end != NULL);
    return line;
}

/* Reads the next character of in->kinds, and turns it into a number below n. Returns 0 after the
 * last character. */
static unsigned kind_next(input *in, unsigned n)
{
    return in->at < in->kinds.n ? ((unsigned char)in->kinds.s[in->at++] + 256u - '0') % n : 0;
}

static void text_add(osh_ctx *cx, osh_buf *b, const char *text)
{
    CHECK(!osh_buf_append(cx, b, text, strlen(text)));
}

/* Appends the field, escaped as in a JSON string, without quotes. */
static void add_inside(osh_ctx *cx, osh_buf *b, field f)
{
    uint32_t cp = 0;

    for (size_t i = 0, len = 0; i < f.n; i += len) {
        len = osh_utf8_next(f.s + i, f.n - i, &cp);
        bool plain = cp >= 0x20 && cp != '"' && cp != '\\' && cp != 0xFFFD;
        CHECK(
            !(plain ? osh_buf_append(cx, b, f.s + i, len) : osh_buf_printf(cx, b, "\\u%04x", cp)));
    }
}

static void add_string(osh_ctx *cx, osh_buf *b, const char *before, field f)
{
    text_add(cx, b, before);
    text_add(cx, b, "\"");
    add_inside(cx, b, f);
    text_add(cx, b, "\"");
}

static size_t tokens_of(field f, field tokens[MOST_TOKENS])
{
    size_t n = 0, from = 0;

    for (size_t i = 0; i <= f.n && n < MOST_TOKENS; i++)
        if (i == f.n || f.s[i] == ' ') {
            if (i > from) tokens[n++] = (field){f.s + from, i - from};
            from = i + 1;
        }
    return n;
}

static void add_pattern(osh_ctx *cx, osh_buf *b, const input *in, bool regex)
{
    add_string(cx, b,
               regex ? ",\"pattern\":{\"Regex\":" : ",\"pattern\":{\"String\":", in->pattern);
    text_add(cx, b, "}");
}

static void add_normalizer(osh_ctx *cx, osh_buf *b, input *in)
{
    static const char *const types[] = {"Replace", "Replace",   "Strip",        "NFKC",
                                        "NFD",     "Lowercase", "StripAccents", "Nmt",
                                        "Prepend", "ByteLevel", "Precompiled",  "BertNormalizer"};
    unsigned kind = kind_next(in, sizeof types / sizeof *types);

    CHECK(!osh_buf_printf(cx, b, "{\"type\":\"%s\"", types[kind]));
    if (kind < 2)
        add_pattern(cx, b, in, kind == 0), add_string(cx, b, ",\"content\":", in->content);
    if (kind == 8) add_string(cx, b, ",\"prepend\":", in->content);
    if (kind == 10) add_string(cx, b, ",\"precompiled_charsmap\":", in->content);
    text_add(cx, b, "}");
}

static void add_pretokenizer(osh_ctx *cx, osh_buf *b, input *in)
{
    static const char *const types[] = {"Split",       "Split",           "ByteLevel",
                                        "Metaspace",   "Digits",          "Whitespace",
                                        "Punctuation", "WhitespaceSplit", "UnicodeScripts",
                                        "FixedLength", "BertPreTokenizer"};
    static const char *const behaviors[] = {"Isolated", "Removed", "MergedWithPrevious",
                                            "MergedWithNext", "Contiguous"};
    unsigned kind = kind_next(in, sizeof types / sizeof *types);

    CHECK(!osh_buf_printf(cx, b, "{\"type\":\"%s\",\"behavior\":\"%s\",\"invert\":%s", types[kind],
                          behaviors[kind_next(in, 5)], kind_next(in, 2) ? "true" : "false"));
    if (kind < 2) add_pattern(cx, b, in, kind == 0);
    if (kind == 2)
        CHECK(!osh_buf_printf(cx, b, ",\"use_regex\":%s", kind_next(in, 2) ? "false" : "true"));
    if (kind == 3) add_string(cx, b, ",\"replacement\":", in->content);
    if (kind == 9) CHECK(!osh_buf_printf(cx, b, ",\"length\":%u", 1 + kind_next(in, 4)));
    text_add(cx, b, "}");
}

static void add_list(osh_ctx *cx, osh_buf *b, input *in, const char *name, const char *members,
                     void (*one)(osh_ctx *, osh_buf *, input *))
{
    unsigned n = kind_next(in, 4);

    CHECK(!osh_buf_printf(cx, b, "\"%s\":{\"type\":\"Sequence\",\"%s\":[", name, members));
    for (unsigned i = 0; i < n; i++) text_add(cx, b, i ? "," : ""), one(cx, b, in);
    text_add(cx, b, "]},");
}

/* Appends the merges: all pairs of tokens whose concatenation is a token. */
static void add_merges(osh_ctx *cx, osh_buf *b, const field *tokens, size_t n)
{
    bool any = false;

    text_add(cx, b, ",\"merges\":[");
    for (size_t k = 0; k < n * n * n; k++) {
        field x = tokens[k % n], y = tokens[k / n % n], both = tokens[k / n / n];
        if (both.n != x.n + y.n || memcmp(both.s, x.s, x.n) || memcmp(both.s + x.n, y.s, y.n))
            continue;
        add_string(cx, b, any ? ",[" : "[", x);
        add_string(cx, b, ",", y);
        text_add(cx, b, "]");
        any = true;
    }
    text_add(cx, b, "]");
}

static void add_model(osh_ctx *cx, osh_buf *b, input *in)
{
    static const char *const types[] = {"BPE", "Unigram", "WordPiece", "WordLevel"};
    field tokens[MOST_TOKENS];
    size_t n = tokens_of(in->tokens, tokens);
    unsigned kind = kind_next(in, 4), flags = kind_next(in, 64);

    CHECK(!osh_buf_printf(
        cx, b,
        "\"model\":{\"type\":\"%s\",\"byte_fallback\":%s,\"fuse_unk\":%s,\"ignore_merges\":%s",
        types[kind], flags & 1 ? "true" : "false", flags & 2 ? "true" : "false",
        flags & 4 ? "true" : "false"));
    if (kind == 1 && flags & 8) text_add(cx, b, ",\"unk_id\":0");
    if (kind != 1 && (kind || flags & 8))
        add_string(cx, b, ",\"unk_token\":", n ? tokens[0] : (field){"", 0});
    if (kind == 2 || flags & 16) add_string(cx, b, ",\"continuing_subword_prefix\":", in->content);
    if (flags & 32) add_string(cx, b, ",\"end_of_word_suffix\":", in->content);
    text_add(cx, b, kind == 1 ? ",\"vocab\":[" : ",\"max_input_chars_per_word\":100,\"vocab\":{");
    for (size_t i = 0; i < n; i++) {
        add_string(cx, b, kind == 1 ? (i ? ",[" : "[") : i ? "," : "", tokens[i]);
        CHECK(!osh_buf_printf(cx, b, kind == 1 ? ",-%zu]" : ":%zu", i));
    }
    text_add(cx, b, kind == 1 ? "]" : "}");
    if (!kind) add_merges(cx, b, tokens, n);
    text_add(cx, b, "}}");
}

static void add_added(osh_ctx *cx, osh_buf *b, input *in)
{
    field tokens[MOST_TOKENS];
    size_t n = tokens_of(in->added, tokens);

    text_add(cx, b, "\"added_tokens\":[");
    for (size_t i = 0; i < n; i++) {
        unsigned flags = kind_next(in, 16);
        add_string(cx, b, i ? ",{\"content\":" : "{\"content\":", tokens[i]);
        CHECK(!osh_buf_printf(cx, b,
                              ",\"lstrip\":%s,\"rstrip\":%s,\"single_word\":%s,\"normalized\":%s}",
                              flags & 1 ? "true" : "false", flags & 2 ? "true" : "false",
                              flags & 4 ? "true" : "false", flags & 8 ? "true" : "false"));
    }
    text_add(cx, b, "],");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    osh_ctx *cx = fuzz_ctx();
    osh_tokenizer *t = NULL;
    osh_buf b;
    field rest = {(const char *)data, n};
    input in = {0};

    osh_buf_init(&b, 0);
    in.kinds = line_next(&rest), in.pattern = line_next(&rest), in.content = line_next(&rest);
    in.tokens = line_next(&rest), in.added = line_next(&rest), in.text = rest;
    text_add(cx, &b, "{");
    add_list(cx, &b, &in, "normalizer", "normalizers", add_normalizer);
    add_list(cx, &b, &in, "pre_tokenizer", "pretokenizers", add_pretokenizer);
    add_added(cx, &b, &in);
    add_model(cx, &b, &in);
    if (!osh_tokenizer_parse(cx, &t, b.data, b.len, "fuzz"))
        fuzz_tokenize(cx, t, in.text.s, in.text.n, 1 + n % 13);
    osh_buf_deinit(cx, &b);
    osh_tokenizer_close(cx, t);
    fuzz_ctx_free(cx);
    return 0;
}
