/* tok_decode.c - decodes tokens to text by the decoder of a tokenizer.json. The decoder is a chain
 * of steps, which runs on one token after the other.
 *
 *   token -> Replace, Strip, Metaspace, WordPiece, BPEDecoder, ByteLevel -> bytes -> characters
 *         -> ByteFallback: the bytes of successive <0xE2> <0x82> <0xAC> are one character
 *
 * A Strip after Fuse works on the beginning of the whole text. Bytes that may be the start of a
 * character are kept until the next token. The result equals that of
 * tokenizers.Tokenizer.decode. */
#include <string.h>

#include "tokenizer/detokenizer.h"
#include "tokenizer/tok_impl.h"
#include "tokenizer/tok_model.h"

enum { MAX_FILE_BYTES = 512 << 20, MOST_STEPS = 32 };
typedef enum {
    DECODE_REPLACE,
    DECODE_BYTES,     // runs the step ByteFallback
    DECODE_STRIP,     // Strip before Fuse: strips each token
    DECODE_BEGIN,     // Strip after Fuse: strips the start of the whole text
    DECODE_METASPACE,
    DECODE_WORDPIECE,
    DECODE_SUFFIX,    // BPEDecoder: replaces the suffix of a word by a space
    DECODE_BYTE_LEVEL
} decode_kind;

typedef struct decode_step {
    decode_kind kind;
    osh_tok_pattern pattern; // own: pattern of a DECODE_REPLACE
    char *content; // own: replacement, stripped character, prefix or suffix
    size_t n_content;
    /* For DECODE_STRIP and DECODE_BEGIN: largest number of characters to remove at the start and at
     * the end. */
    int64_t start, stop;
    /* Metaspace: true if the first token gets no space. WordPiece: true if spaces before
     * punctuation are removed. */
    bool flag;
} decode_step;

typedef struct word { size_t at; uint32_t n; bool known, special; } word;

struct osh_detokenizer {
    char *bytes; // own: texts of all tokens, one after the other
    size_t n_bytes, cap_bytes;
    word *words; // own [n_words], by id
    int64_t n_words;
    decode_step steps[MOST_STEPS]; // own
    int n_steps;
    /* fused: true if Fuse is in the chain.
     * spaced: true if the file has no decoder; a space is then written between two tokens. */
    bool fused, spaced;
    bool begun;          // true after the first token was decoded
    /* Number of characters that DECODE_BEGIN has removed; -1: DECODE_BEGIN is done. */
    int64_t stripped;
    bool space_waits;    // for DECODE_SUFFIX: true if a space must be written before the next token
    osh_buf run;         // own: bytes of successive byte tokens, for DECODE_BYTES
    osh_buf partial;     // own: bytes at the end of the text that may begin a character
    osh_tok_text text, other; // own: scratch
};

/* ---- vocabulary ---- */

static osh_status word_put(osh_ctx *cx, osh_detokenizer *d, int32_t id, const char *s, size_t n)
{
    osh_status rc = OSH_OK;
    if (id >= d->n_words) {
        int64_t most = 2 * (int64_t)id + 1024;
        word *w = osh_realloc(cx, d->words, (size_t)most * sizeof *w);
        if (!w) return OSH_E_NOMEM;
        memset(w + d->n_words, 0, (size_t)(most - d->n_words) * sizeof *w);
        d->words = w, d->n_words = most;
    }
    if (d->n_bytes + n > d->cap_bytes) {
        size_t cap = 2 * (d->n_bytes + n) + 4096;
        char *more = osh_realloc(cx, d->bytes, cap);
        if (!more) return OSH_E_NOMEM;
        d->bytes = more, d->cap_bytes = cap;
    }
    if (n) memcpy(d->bytes + d->n_bytes, s, n);
    d->words[id] = (word){.at = d->n_bytes, .n = (uint32_t)n, .known = true};
    d->n_bytes += n;
    return rc;
}

/* Reads a vocabulary. Its form is {"token": id, ...}, or [["token", score], ...] in the order of
 * the ids. */
static osh_status words_read(osh_ctx *cx, osh_detokenizer *d, const osh_tok_list *l, bool list)
{
    osh_status rc = OSH_OK;
    osh_tok_items it; // own
    char number[OSH_JSON_MAX_NUMBER + 1];
    bool any = true;
    osh_tok_items_init(&it, cx, l);
    for (int32_t i = 0, id; l->text; i++) {
        OSH_TRY(osh_tok_items_next(&it, &any));
        if (!any) break;
        id = i;
        if (list) OSH_TRY(osh_tok_items_pair(&it, number));
        else OSH_TRY(osh_tok_item_id(cx, &it, &id, l->what));
        const osh_buf *text = list ? &it.text : &it.key;
        OSH_TRY(word_put(cx, d, id, text->data, text->len));
    }
done:
    osh_tok_items_deinit(cx, &it);
    return rc;
}

static osh_status added_put(osh_ctx *cx, void *user, const osh_tok_added_token *t)
{
    osh_detokenizer *d = user;
    osh_status rc = word_put(cx, d, t->id, t->content, t->n);
    if (!rc) d->words[t->id].special = t->special;
    return rc;
}

/* ---- steps ---- */

static osh_status step_load_replace(osh_ctx *cx, osh_detokenizer *d, decode_step *s, const cJSON *o,
                                    const char *what)
{
    osh_status rc = OSH_OK;
    (void)d;
    s->kind = DECODE_REPLACE;
    OSH_TRY(osh_tok_pattern_load(cx, &s->pattern, cJSON_GetObjectItemCaseSensitive(o, "pattern"),
                                 what));
    OSH_TRY(osh_tok_member(cx, &s->content, &s->n_content, o, "content", what));
done:
    return rc;
}

static osh_status step_load_strip(osh_ctx *cx, osh_detokenizer *d, decode_step *s, const cJSON *o,
                                  const char *what)
{
    osh_status rc = OSH_OK;
    s->kind = d->fused ? DECODE_BEGIN : DECODE_STRIP;
    OSH_TRY(osh_tok_member(cx, &s->content, &s->n_content, o, "content", what));
    OSH_TRY(osh_json_int_or(cx, &s->start, o, "start", 0, what));
    OSH_TRY(osh_json_int_or(cx, &s->stop, o, "stop", 0, what));
    if (d->fused && s->stop)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED,
                 "%s: a decoder Strip of the end of a text (stop %lld) is not supported", what,
                 (long long)s->stop);
done:
    return rc;
}

static osh_status step_load_metaspace(osh_ctx *cx, osh_detokenizer *d, decode_step *s,
                                      const cJSON *o, const char *what)
{
    osh_status rc = OSH_OK;
    const char *scheme = NULL;
    bool prefix = true;
    (void)d;
    s->kind = DECODE_METASPACE;
    OSH_TRY(osh_tok_member(cx, &s->content, &s->n_content, o, "replacement", what));
    OSH_TRY(osh_json_str_or(cx, &scheme, o, "prepend_scheme", NULL, what));
    OSH_TRY(osh_json_bool_or(cx, &prefix, o, "add_prefix_space", true, what));
    s->flag = scheme ? strcmp(scheme, "never") != 0 : prefix;
done:
    return rc;
}

static osh_status step_load_wordpiece(osh_ctx *cx, osh_detokenizer *d, decode_step *s,
                                      const cJSON *o, const char *what)
{
    osh_status rc = OSH_OK;
    (void)d;
    s->kind = DECODE_WORDPIECE;
    OSH_TRY(osh_tok_member(cx, &s->content, &s->n_content, o, "prefix", what));
    OSH_TRY(osh_json_bool_or(cx, &s->flag, o, "cleanup", true, what));
done:
    return rc;
}

static osh_status step_load_suffix(osh_ctx *cx, osh_detokenizer *d, decode_step *s, const cJSON *o,
                                   const char *what)
{
    (void)d;
    s->kind = DECODE_SUFFIX;
    return osh_tok_member(cx, &s->content, &s->n_content, o, "suffix", what);
}

static osh_status step_load_byte_level(osh_ctx *cx, osh_detokenizer *d, decode_step *s,
                                       const cJSON *o, const char *what)
{
    (void)cx, (void)d, (void)o, (void)what;
    s->kind = DECODE_BYTE_LEVEL;
    return OSH_OK;
}

static osh_status step_load_bytes(osh_ctx *cx, osh_detokenizer *d, decode_step *s, const cJSON *o,
                                  const char *what)
{
    (void)cx, (void)d, (void)o, (void)what;
    s->kind = DECODE_BYTES;
    return OSH_OK;
}

typedef struct decoder_type {
    const char *name;
    osh_status (*load)(osh_ctx *cx, osh_detokenizer *d, decode_step *s, const cJSON *o,
                       const char *what);
} decoder_type;
static const decoder_type decoder_types[] = {
    {"Replace", step_load_replace},       {"Strip", step_load_strip},
    {"Metaspace", step_load_metaspace},   {"WordPiece", step_load_wordpiece},
    {"BPEDecoder", step_load_suffix},     {"ByteLevel", step_load_byte_level},
    {"ByteFallback", step_load_bytes},
};

/* Appends the steps of a decoder. A decoder of type Sequence has several steps. */
static osh_status decoder_load(osh_ctx *cx, osh_detokenizer *d, const cJSON *o, const char *what)
{
    osh_status rc = OSH_OK;
    const char *type = NULL;
    const cJSON *item;
    OSH_TRY(osh_tok_type(cx, &type, o, "decoder", what));
    if (!strcmp(type, "Sequence")) {
        cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(o, "decoders"))
            OSH_TRY(decoder_load(cx, d, item, what));
        goto done;
    }
    if (!strcmp(type, "Fuse")) {
        d->fused = true;
        goto done;
    }
    if (d->n_steps == MOST_STEPS)
        OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: the decoder has more than %d steps", what, MOST_STEPS);
    for (size_t i = 0; i < sizeof decoder_types / sizeof *decoder_types; i++)
        if (!strcmp(decoder_types[i].name, type))
            return decoder_types[i].load(cx, d, &d->steps[d->n_steps++], o, what);
    OSH_FAIL(cx, OSH_E_UNSUPPORTED, "%s: decoder \"%s\" is not supported", what, type);
done:
    return rc;
}

osh_status osh_detokenizer_open(osh_ctx *cx, osh_detokenizer **out, const osh_tokenizer *t,
                                const char *model_dir)
{
    osh_status rc = OSH_OK;
    osh_detokenizer *d = NULL;                                   // own
    char *path = osh_path_join(cx, model_dir, "tokenizer.json"); // own
    char *text = NULL;                                           // own
    size_t n = 0;
    osh_tok_file f = {.tree = NULL}; // own

    if (!path) OSH_FAIL(cx, OSH_E_NOMEM, "no memory for a path");
    OSH_NEW(cx, d, 1);
    osh_buf_init(&d->run, 0);
    osh_buf_init(&d->partial, 0);
    OSH_TRY(osh_file_read_all(cx, &text, &n, path, MAX_FILE_BYTES));
    OSH_TRY(osh_tok_file_parse(cx, &f, text, n, path));
    OSH_TRY(words_read(cx, d, &f.vocab, false));
    OSH_TRY(words_read(cx, d, &f.scores, true));
    OSH_TRY(osh_tok_added_each(cx, osh_tokenizer_added(t), added_put, d));
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(f.tree, "decoder");
    d->spaced = !o || cJSON_IsNull(o);
    if (!d->spaced) OSH_TRY(decoder_load(cx, d, o, path));
    *out = d, d = NULL; // give
done:
    if (rc) osh_note(cx, "loading the decoder of %s", model_dir);
    osh_tok_file_deinit(&f);
    osh_free(cx, text);
    osh_free(cx, path);
    osh_detokenizer_close(cx, d);
    return rc;
}

void osh_detokenizer_close(osh_ctx *cx, osh_detokenizer *d)
{
    if (!d) return;
    for (int i = 0; i < d->n_steps; i++) {
        osh_tok_pattern_deinit(cx, &d->steps[i].pattern);
        osh_free(cx, d->steps[i].content);
    }
    osh_buf_deinit(cx, &d->run);
    osh_buf_deinit(cx, &d->partial);
    osh_tok_text_deinit(cx, &d->text);
    osh_tok_text_deinit(cx, &d->other);
    osh_free(cx, d->words);
    osh_free(cx, d->bytes);
    osh_free(cx, d);
}

int32_t osh_detokenizer_find(const osh_detokenizer *d, const char *token)
{
    size_t n = strlen(token);
    for (int64_t i = 0; i < d->n_words; i++)
        if (d->words[i].known && d->words[i].n == n &&
            !memcmp(d->bytes + d->words[i].at, token, n))
            return (int32_t)i;
    return -1;
}

/* ---- decoding ---- */

static void texts_swap(osh_detokenizer *d)
{
    osh_tok_text t = d->text;
    d->text = d->other, d->other = t;
    d->other.n = 0;
}

static void text_drop(osh_tok_text *t, size_t n) // removes the first n bytes of the text
{
    memmove(t->s, t->s + n, t->n - n);
    t->n -= n;
}

static osh_status text_replace(osh_ctx *cx, osh_detokenizer *d, const osh_tok_pattern *p,
                               const char *by, size_t n_by)
{
    osh_status rc = OSH_OK;
    osh_tok_text *t = &d->text;
    osh_hit hit;
    size_t from = 0;
    d->other.n = 0;
    for (;;) {
        OSH_TRY(osh_tok_pattern_find(cx, p, t->s, t->n, from, &hit));
        if (hit.start == SIZE_MAX || hit.end == hit.start) break;
        OSH_TRY(osh_tok_text_add(cx, &d->other, t->s + from, hit.start - from));
        OSH_TRY(osh_tok_text_add(cx, &d->other, by, n_by));
        from = hit.end;
    }
    OSH_TRY(osh_tok_text_add(cx, &d->other, t->s + from, t->n - from));
    texts_swap(d);
done:
    return rc;
}

static osh_status text_replace_literal(osh_ctx *cx, osh_detokenizer *d, const char *what,
                                       const char *by)
{
    osh_tok_pattern p = {.literal = (char *)(uintptr_t)what, .n_literal = strlen(what)};
    return text_replace(cx, d, &p, by, strlen(by));
}

static bool text_begins(const osh_tok_text *t, const decode_step *s)
{
    return s->n_content && t->n >= s->n_content && !memcmp(t->s, s->content, s->n_content);
}
static bool text_ends(const osh_tok_text *t, const decode_step *s)
{
    return s->n_content && t->n >= s->n_content &&
           !memcmp(t->s + t->n - s->n_content, s->content, s->n_content);
}

/* Replaces Metaspace's character by a space. In the first token the character is removed, as in the
 * tokenizers library. */
static osh_status decode_metaspace(osh_ctx *cx, osh_detokenizer *d, const decode_step *s)
{
    osh_tok_pattern p = {.literal = s->content, .n_literal = s->n_content};
    return text_replace(cx, d, &p, " ", !d->begun && s->flag ? 0 : 1);
}

static osh_status decode_wordpiece(osh_ctx *cx, osh_detokenizer *d, const decode_step *s)
{
    static const char *const clean[][2] = {
        {" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    osh_status rc = OSH_OK;
    if (d->begun && text_begins(&d->text, s)) {
        text_drop(&d->text, s->n_content);
    } else if (d->begun) {
        d->other.n = 0;
        OSH_TRY(osh_tok_text_add(cx, &d->other, " ", 1));
        OSH_TRY(osh_tok_text_add(cx, &d->other, d->text.s, d->text.n));
        texts_swap(d);
    }
    for (size_t i = 0; s->flag && i < sizeof clean / sizeof *clean; i++)
        OSH_TRY(text_replace_literal(cx, d, clean[i][0], clean[i][1]));
done:
    return rc;
}

/* Replaces the suffix of a word by a space, except at the end of the text. */
static osh_status decode_suffix(osh_ctx *cx, osh_detokenizer *d, const decode_step *s)
{
    osh_status rc = OSH_OK;
    d->other.n = 0;
    if (d->space_waits) OSH_TRY(osh_tok_text_add(cx, &d->other, " ", 1));
    d->space_waits = text_ends(&d->text, s);
    OSH_TRY(osh_tok_text_add(cx, &d->other, d->text.s,
                             d->text.n - (d->space_waits ? s->n_content : 0)));
    texts_swap(d);
done:
    return rc;
}

/* Turns GPT-2's printable characters into bytes. A token with any other character stays
 * unchanged. */
static osh_status decode_byte_level(osh_ctx *cx, osh_detokenizer *d)
{
    osh_status rc = OSH_OK;
    const osh_tok_text *t = &d->text;
    d->other.n = 0;
    for (size_t i = 0; i < t->n;) {
        uint32_t cp = 0;
        int byte = -1;
        i += osh_utf8_next(t->s + i, t->n - i, &cp);
        for (int b = 0; b < 256 && byte < 0; b++)
            if (osh_tok_byte_char((unsigned char)b) == cp) byte = b;
        if (byte < 0) return OSH_OK;
        OSH_TRY(osh_tok_text_add(cx, &d->other, (const char[]){(char)byte}, 1));
    }
    texts_swap(d);
done:
    return rc;
}

static void decode_strip(osh_detokenizer *d, const decode_step *s)
{
    for (int64_t i = 0; i < s->start && text_begins(&d->text, s); i++)
        text_drop(&d->text, s->n_content);
    for (int64_t i = 0; i < s->stop && text_ends(&d->text, s); i++) d->text.n -= s->n_content;
}

static void decode_begin(osh_detokenizer *d, const decode_step *s)
{
    while (d->stripped >= 0 && d->stripped < s->start && text_begins(&d->text, s)) {
        text_drop(&d->text, s->n_content);
        d->stripped++;
    }
    if (d->text.n) d->stripped = -1;
}

static osh_status decode_steps(osh_ctx *cx, osh_detokenizer *d, osh_buf *out, int from);

/* Decodes the collected bytes of ByteFallback. Valid UTF-8 is the text. If the bytes are not UTF-8,
 * each byte becomes U+FFFD. Passes the text to the decoder step with index `next`. */
static osh_status run_flush(osh_ctx *cx, osh_detokenizer *d, osh_buf *out, int next)
{
    osh_status rc = OSH_OK;
    osh_tok_text held = d->text;
    bool valid = true;
    uint32_t cp = 0;
    if (!d->run.len) return OSH_OK;
    d->text = (osh_tok_text){0};
    for (size_t i = 0, k; i < d->run.len && valid; i += k)
        valid = (k = osh_utf8_decode(d->run.data + i, d->run.len - i, &cp)) > 0;
    for (size_t i = 0; i < d->run.len; i++)
        OSH_TRY(osh_tok_text_add(cx, &d->text, valid ? d->run.data + i : "\xEF\xBF\xBD",
                                 valid ? 1 : 3));
    osh_buf_clear(&d->run);
    OSH_TRY(decode_steps(cx, d, out, next));
done:
    osh_tok_text_deinit(cx, &d->text);
    d->text = held;
    return rc;
}

static bool byte_token(const osh_tok_text *t, char *byte)
{
    static const char hex[] = "0123456789ABCDEF";
    const char *a, *b;
    if (t->n != 6 || memcmp(t->s, "<0x", 3) || t->s[5] != '>') return false;
    a = memchr(hex, t->s[3], 16), b = memchr(hex, t->s[4], 16);
    if (!a || !b) return false;
    *byte = (char)((a - hex) * 16 + (b - hex));
    return true;
}

/* Appends to `out` the complete characters of `partial` and `text`. If `all` is true, the text ends
 * here, so incomplete characters are appended too. */
static osh_status bytes_emit(osh_ctx *cx, osh_detokenizer *d, osh_buf *out, bool all)
{
    osh_status rc = OSH_OK;
    osh_tok_text clean = {0}; // own
    osh_buf *p = &d->partial;
    size_t n = 0, k = 1;
    if (d->text.n) OSH_TRY(osh_buf_append(cx, p, d->text.s, d->text.n));
    for (n = p->len; !all && k <= 3 && k <= p->len; k++) {
        unsigned char c = (unsigned char)p->data[p->len - k];
        if ((c & 0xC0) == 0x80) continue;
        size_t want = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
        if (want > k) n = p->len - k;
        break;
    }
    if (!n) goto done;
    OSH_TRY(osh_tok_utf8_clean(cx, &clean, p->data, n));
    OSH_TRY(osh_buf_append(cx, out, clean.s, clean.n));
    memmove(p->data, p->data + n, p->len - n);
    p->len -= n;
done:
    osh_tok_text_deinit(cx, &clean);
    return rc;
}

/* Runs the steps with index `from` and higher on d->text. */
static osh_status decode_steps(osh_ctx *cx, osh_detokenizer *d, osh_buf *out, int from)
{
    osh_status rc = OSH_OK;
    char byte;
    for (int i = from; i < d->n_steps; i++) {
        const decode_step *s = &d->steps[i];
        if (s->kind == DECODE_BYTES && byte_token(&d->text, &byte)) {
            OSH_TRY(osh_buf_append(cx, &d->run, &byte, 1));
            goto done;
        }
        if (s->kind == DECODE_BYTES) OSH_TRY(run_flush(cx, d, out, i + 1));
        if (s->kind == DECODE_REPLACE)
            OSH_TRY(text_replace(cx, d, &s->pattern, s->content, s->n_content));
        if (s->kind == DECODE_STRIP) decode_strip(d, s);
        if (s->kind == DECODE_BEGIN) decode_begin(d, s);
        if (s->kind == DECODE_METASPACE) OSH_TRY(decode_metaspace(cx, d, s));
        if (s->kind == DECODE_WORDPIECE) OSH_TRY(decode_wordpiece(cx, d, s));
        if (s->kind == DECODE_SUFFIX) OSH_TRY(decode_suffix(cx, d, s));
        if (s->kind == DECODE_BYTE_LEVEL) OSH_TRY(decode_byte_level(cx, d));
    }
    OSH_TRY(bytes_emit(cx, d, out, false));
done:
    return rc;
}

osh_status osh_detokenizer_feed(osh_ctx *cx, osh_detokenizer *d, osh_buf *out, int32_t id)
{
    osh_status rc = OSH_OK;
    if (id < 0 || id >= d->n_words || !d->words[id].known || d->words[id].special) return OSH_OK;
    d->text.n = 0;
    if (d->spaced && d->begun) OSH_TRY(osh_tok_text_add(cx, &d->text, " ", 1));
    OSH_TRY(osh_tok_text_add(cx, &d->text, d->bytes + d->words[id].at, d->words[id].n));
    OSH_TRY(decode_steps(cx, d, out, 0));
    d->begun = true;
done:
    return rc;
}

osh_status osh_detokenizer_end(osh_ctx *cx, osh_detokenizer *d, osh_buf *out)
{
    osh_status rc = OSH_OK;
    int next = 0;
    while (next < d->n_steps && d->steps[next].kind != DECODE_BYTES) next++;
    d->text.n = 0;
    OSH_TRY(run_flush(cx, d, out, next + 1));
    OSH_TRY(bytes_emit(cx, d, out, true));
done:
    return rc;
}
