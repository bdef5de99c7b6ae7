/* jinja_lex.c - splits the source into tokens, and removes white space beside tags:
 *
 *   {%- {{- {#-   remove all white space before    -%} -}} -#}   remove all white space after
 *   {%  {#        remove blanks before, back to the start of the line (lstrip_blocks)
 *    %}  #}       remove one newline after (trim_blocks)
 *   {%+ {#+ +%} +#}   remove nothing */
#include <stdlib.h>
#include <string.h>

#include "chat/jinja_impl.h"
#include "tokenizer/tok_impl.h"

typedef struct lexer {
    osh_jrun *r;
    const char *s; // view: source in UTF-8, in which every newline is \n
    size_t n, at;
    osh_jtoken *tokens;
    size_t n_tokens, cap;
    int n_open;         // number of open brackets
    char open[OSH_JINJA_MAX_DEPTH];
    bool line_start;    // true at the start of the text, and if the last tag removed a newline
} lexer;

static osh_jtoken *lexer_add(lexer *x, osh_jtoken_kind kind)
{
    if (x->n_tokens == x->cap) {
        size_t cap = x->cap ? 2 * x->cap : 64;
        osh_jtoken *more = osh_jrun_get(x->r, cap * sizeof *more);
        if (!more) return NULL;
        if (x->n_tokens) memcpy(more, x->tokens, x->n_tokens * sizeof *more);
        x->tokens = more, x->cap = cap;
    }
    osh_jtoken *t = &x->tokens[x->n_tokens++];
    *t = (osh_jtoken){.kind = kind, .line = x->r->line};
    return t;
}

static bool lexer_starts(const lexer *x, size_t at, const char *word)
{
    size_t n = strlen(word);
    return x->n - at >= n && !memcmp(x->s + at, word, n);
}

static void lexer_advance(lexer *x, size_t to)
{
    for (; x->at < to; x->at++) x->r->line += x->s[x->at] == '\n';
}

static size_t after_space(const lexer *x, size_t at)
{
    uint32_t cp;
    size_t len;
    while (at < x->n && (len = osh_utf8_decode(x->s + at, x->n - at, &cp)) && osh_jcp_is_space(cp))
        at += len;
    return at;
}

static size_t before_space(const lexer *x, size_t from, size_t end)
{
    uint32_t cp;
    while (end > from) {
        size_t at = osh_utf8_before(x->s, end);
        osh_utf8_decode(x->s + at, end - at, &cp);
        if (!osh_jcp_is_space(cp)) break;
        end = at;
    }
    return end;
}

/* Adds a token with the text before the tag. The tag begins at `end`; `sign` is its third
 * character. */
static void lexer_put_text(lexer *x, size_t end, bool tag, bool print, char sign)
{
    size_t stop = end;
    if (tag && sign == '-') {
        stop = before_space(x, x->at, end);
    } else if (tag && !print && sign != '+') {
        size_t line = end;
        while (line > x->at && x->s[line - 1] != '\n') line--;
        if ((line > x->at || x->line_start) && before_space(x, line, end) == line) stop = line;
    }
    if (stop > x->at) {
        osh_jtoken *t = lexer_add(x, OSH_JT_TEXT);
        if (t) t->value = osh_jv_view(x->s + x->at, stop - x->at);
    }
    lexer_advance(x, end);
}

/* Moves the position to the end of a tag, and then over the white space that the tag removes. `to`:
 * position after the tag. `sign`: the character before `%}`, `}}` or `#}`. */
static void lexer_end_tag(lexer *x, size_t to, char sign, bool trim)
{
    if (sign == '-') to = after_space(x, to);
    else if (trim && sign != '+' && to < x->n && x->s[to] == '\n') to++;
    lexer_advance(x, to);
    x->line_start = x->s[to - 1] == '\n';
}

static void lex_comment(lexer *x)
{
    for (size_t i = x->at + 2; i + 1 < x->n; i++)
        if (x->s[i] == '#' && x->s[i + 1] == '}') {
            // in `{#-#}`, the character `-` belongs to the beginning of the tag
            char sign = i > x->at + 3 ? x->s[i - 1] : 0;
            lexer_end_tag(x, i + 2, sign, true);
            return;
        }
    osh_jrun_fail(x->r, OSH_E_FORMAT, "a comment '{#' without '#}'");
}

/* Reads {% raw %}, its text and {% endraw %}. Returns false if the tag is not {% raw %}. */
static bool lex_raw(lexer *x)
{
    size_t i = x->at + 2, end;
    if (i < x->n && (x->s[i] == '-' || x->s[i] == '+')) i++;
    i = after_space(x, i);
    if (!lexer_starts(x, i, "raw")) return false;
    i = after_space(x, i + 3);
    bool minus = lexer_starts(x, i, "-%}");
    if (!minus && !lexer_starts(x, i, "%}")) return false;
    i += minus ? 3 : 2;
    lexer_advance(x, minus ? after_space(x, i) : i);
    x->line_start = x->s[x->at - 1] == '\n';
    for (i = x->at; i < x->n; i++) {
        if (!lexer_starts(x, i, "{%")) continue;
        char sign = i + 2 < x->n ? x->s[i + 2] : 0;
        end = after_space(x, i + 2 + (sign == '-' || sign == '+'));
        if (!lexer_starts(x, end, "endraw")) continue;
        end = after_space(x, end + 6);
        char last = end < x->n ? x->s[end] : 0;
        if (last == '-' || last == '+') end++;
        if (!lexer_starts(x, end, "%}")) continue;
        lexer_put_text(x, i, true, false, sign);
        lexer_end_tag(x, end + 2, last, true);
        return true;
    }
    if (x->at < x->n) osh_jrun_fail(x->r, OSH_E_FORMAT, "'{%% raw %%}' without '{%% endraw %%}'");
    return true;
}

static bool is_digit_char(char c) { return c >= '0' && c <= '9'; }
static bool is_name_char(char c)
{
    return is_digit_char(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Copies digits to `to`. Single underscores between digits are skipped. Returns the position after
 * the last digit. */
static size_t lex_digits(const lexer *x, size_t at, char *to, size_t *n)
{
    while (at < x->n && (is_digit_char(x->s[at]) ||
                         (x->s[at] == '_' && at + 1 < x->n && is_digit_char(x->s[at + 1])))) {
        if (*n < 60 && x->s[at] != '_') to[(*n)++] = x->s[at];
        at++;
    }
    return at;
}

static void lex_number(lexer *x)
{
    char text[64];
    size_t n = 0, at = lex_digits(x, x->at, text, &n);
    bool whole = true;
    if (at + 1 < x->n && x->s[at] == '.' && is_digit_char(x->s[at + 1])) {
        whole = false, text[n++] = '.';
        at = lex_digits(x, at + 1, text, &n);
    }
    if (at + 1 < x->n && (x->s[at] == 'e' || x->s[at] == 'E')) {
        size_t to = at + 1 + (x->s[at + 1] == '-' || x->s[at + 1] == '+');
        if (to < x->n && is_digit_char(x->s[to])) {
            whole = false, text[n++] = 'e';
            if (to == at + 2) text[n++] = x->s[at + 1];
            at = lex_digits(x, to, text, &n);
        }
    }
    text[n] = 0;
    if (n > 18 && whole)
        osh_jrun_fail(x->r, OSH_E_UNSUPPORTED, "the number %s, at most 18 digits", text);
    if (n >= 59) osh_jrun_fail(x->r, OSH_E_UNSUPPORTED, "the number %s, at most 58 digits", text);
    if (whole && n > 1 && *text == '0' && strspn(text, "0") != n)
        osh_jrun_fail(x->r, OSH_E_FORMAT, "the number %s begins with 0", text);
    osh_jtoken *t = lexer_add(x, whole ? OSH_JT_INT : OSH_JT_FLOAT);
    if (!t) return;
    t->value = whole ? osh_jv_int(strtoll(text, NULL, 10)) : osh_jv_float(strtod(text, NULL));
    x->at = at;
}

static int hex_digit(char c)
{
    return is_digit_char(c)       ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Reads the code point of \x, \u or \U and appends it to `out`. s[at] is the letter. */
static void lex_code(lexer *x, size_t at, size_t end, char *out, size_t *n)
{
    int want = x->s[at] == 'x' ? 2 : x->s[at] == 'u' ? 4 : 8;
    uint32_t cp = 0;
    for (int k = 1; k <= want; k++) {
        int h = at + (size_t)k < end ? hex_digit(x->s[at + (size_t)k]) : -1;
        if (h < 0) {
            osh_jrun_fail(x->r, OSH_E_FORMAT, "'\\%c' without %d hexadecimal digits", x->s[at],
                          want);
            return;
        }
        cp = cp << 4 | (uint32_t)h;
    }
    if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
        osh_jrun_fail(x->r, OSH_E_UNSUPPORTED, "'\\%c%x' is not a character", x->s[at],
                      (unsigned)cp);
    else
        *n += osh_utf8_encode(out + *n, cp);
}

/* Reads one escape; s[at] is the backslash. Returns the position after the escape. */
static size_t lex_escape(lexer *x, size_t at, size_t end, char *out, size_t *n)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = x->s[at + 1];
    const char *found = strchr(from, c);
    if (c == '\n') return at + 2;
    if (c && found) {
        out[(*n)++] = to[found - from];
        return at + 2;
    }
    if (c == 'x' || c == 'u' || c == 'U') {
        lex_code(x, at + 1, end, out, n);
        return at + 2 + (c == 'x' ? 2 : c == 'u' ? 4 : 8);
    }
    if (c >= '0' && c <= '7') {
        uint32_t cp = 0;
        size_t k = 1;
        for (; k <= 3 && at + k < end && x->s[at + k] >= '0' && x->s[at + k] <= '7'; k++)
            cp = cp * 8 + (uint32_t)(x->s[at + k] - '0');
        *n += osh_utf8_encode(out + *n, cp);
        return at + k;
    }
    if (c == 'N') osh_jrun_fail(x->r, OSH_E_UNSUPPORTED, "the escape '\\N' of a string");
    out[(*n)++] = '\\'; // for an unknown escape, Python keeps the backslash
    return at + 1;
}

static void lex_string(lexer *x)
{
    char quote = x->s[x->at];
    size_t end = x->at + 1, n = 0;
    while (end < x->n && x->s[end] != quote) end += x->s[end] == '\\' ? 2 : 1;
    if (end >= x->n) {
        osh_jrun_fail(x->r, OSH_E_FORMAT, "a string without its closing %c", quote);
        return;
    }
    char *out = osh_jrun_get(x->r, 2 * (end - x->at) + 4);
    osh_jtoken *t = lexer_add(x, OSH_JT_STR);
    if (!t || !out) return;
    for (size_t i = x->at + 1; i < end && !x->r->rc;) {
        if (x->s[i] == '\\') i = lex_escape(x, i, end, out, &n);
        else out[n++] = x->s[i++];
    }
    t->value = osh_jv_view(out, n);
    lexer_advance(x, end + 1);
}

static void lex_op(lexer *x)
{
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    char c = x->s[x->at], d = 0;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (lexer_starts(x, x->at, two[i])) d = two[i][1];
    if (!c || !strchr("+-/*%~[](){}=<>.:|,;!", c) || (c == '!' && !d)) {
        int len = (c & 0x80) ? 4 : 1;
        osh_jrun_fail(x->r, OSH_E_FORMAT, "the character '%.*s' in a tag", len, x->s + x->at);
        return;
    }
    if (strchr("([{", c)) {
        if (x->n_open == OSH_JINJA_MAX_DEPTH) {
            osh_jrun_fail(x->r, OSH_E_UNSUPPORTED, "brackets nested more than %d deep",
                          OSH_JINJA_MAX_DEPTH);
            return;
        }
        x->open[x->n_open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (strchr(")]}", c)) {
        if (!x->n_open || x->open[--x->n_open] != c) {
            osh_jrun_fail(x->r, OSH_E_FORMAT, "a '%c' without its opening bracket", c);
            return;
        }
    }
    osh_jtoken *t = lexer_add(x, OSH_JT_OP);
    if (t) t->op = OSH_JOP(c, d);
    x->at += d ? 2 : 1;
}

static void lex_name(lexer *x)
{
    size_t end = x->at;
    while (end < x->n && is_name_char(x->s[end])) end++;
    osh_jtoken *t = lexer_add(x, OSH_JT_NAME);
    if (t) t->value = osh_jv_view(x->s + x->at, end - x->at);
    x->at = end;
}

/* Reads the tokens inside {% %} or {{ }}, up to and including the end of the tag. */
static void lex_inside(lexer *x, bool print)
{
    const char *close = print ? "}}" : "%}";
    int line = x->r->line;
    while (!x->r->rc) {
        lexer_advance(x, after_space(x, x->at));
        if (x->at >= x->n) {
            x->r->line = line;
            osh_jrun_fail(x->r, OSH_E_FORMAT, "a tag '%s' without '%s'", print ? "{{" : "{%",
                          close);
            return;
        }
        char c = x->s[x->at];
        bool sign = c == '-' || (c == '+' && !print);
        if (!x->n_open && lexer_starts(x, x->at + sign, close)) {
            lexer_add(x, print ? OSH_JT_PRINT_END : OSH_JT_BLOCK_END);
            lexer_end_tag(x, x->at + sign + 2, sign ? c : 0, !print);
            return;
        }
        if (is_digit_char(c)) lex_number(x);
        else if (is_name_char(c)) lex_name(x);
        else if (c == '"' || c == '\'') lex_string(x);
        else lex_op(x);
    }
}

static void lex_all(lexer *x)
{
    x->line_start = true;
    while (x->at < x->n && !x->r->rc) {
        size_t end = x->at;
        while (end < x->n && !(x->s[end] == '{' && end + 1 < x->n && x->s[end + 1] &&
                               strchr("%{#", x->s[end + 1])))
            end++;
        bool tag = end < x->n, print = tag && x->s[end + 1] == '{';
        char sign = tag && end + 2 < x->n ? x->s[end + 2] : 0;
        lexer_put_text(x, end, tag, print, sign);
        if (!tag || x->r->rc) break;
        if (x->s[end + 1] == '#') {
            lex_comment(x);
        } else if (print || !lex_raw(x)) {
            lexer_add(x, print ? OSH_JT_PRINT : OSH_JT_BLOCK);
            x->at += 2 + (sign == '-' || (sign == '+'));
            lex_inside(x, print);
        }
    }
    lexer_add(x, OSH_JT_END);
}

/* Returns the source as valid UTF-8. CRLF and CR become \n, and a newline at the end is removed. */
static osh_jv clean_source(osh_jrun *r, const char *text, size_t n)
{
    osh_jv v = osh_jv_none();
    size_t k = 0;
    osh_tok_text clean = {0}; // own
    r->rc = osh_tok_utf8_clean(r->cx, &clean, text, n);
    char *s = osh_jrun_get(r, clean.n + 1);
    for (size_t i = 0; s && i < clean.n; i++) {
        if (clean.s[i] == '\r' && i + 1 < clean.n && clean.s[i + 1] == '\n') continue;
        s[k++] = clean.s[i] == '\r' ? '\n' : clean.s[i];
    }
    if (k && s[k - 1] == '\n') k--;
    v = osh_jv_view(s, k);
    osh_tok_text_deinit(r->cx, &clean);
    return v;
}

osh_jtoken *osh_jinja_lex(osh_jrun *r, const char *text, size_t n)
{
    osh_jv source = clean_source(r, text, n);
    lexer x = {.r = r, .s = source.u.s, .n = source.n};
    if (!r->rc) lex_all(&x);
    return x.tokens;
}
