/* tok_pattern.c - patterns of tokenizer.json: literal strings, and Oniguruma's regexes rewritten
 * for PCRE2.
 *
 * tokenizers matches with Oniguruma (Ruby's syntax, Unicode 16). This file rewrites the parts that
 * PCRE2 10.42 (Perl's syntax, Unicode 14) would read differently, and refuses the parts that it
 * cannot express:
 *
 *   \s             U+180E is no longer white space
 *   \p{L} \d ...   the characters of Unicode 15 to 16 are added
 *   \w \b          Oniguruma's word characters: marks, but not every number
 *   ^ $            match at every line
 *   {n,m}+ {n}?    a repeat of the repeat: neither possessive nor lazy
 *   {,m}           {0,m}
 *   \h \v          a hexadecimal digit, a vertical tab
 *   (?m)           the dot matches ends of lines
 *   \C             refused: \C-x is a control character, which PCRE2 does not know
 *   \Q \xE9 (?U) a(?i)b (?i)ss and their like
 *                  refused: Oniguruma does not know them, or reads them in another way
 *   [a[b]] [a&&b]  refused: PCRE2 has no nested classes
 */
#include "base/buf.h"
#include "tokenizer/tok_impl.h"
#include "tokenizer/tok_unicode.h"
#include <string.h>

typedef struct rewriter {
    osh_ctx *cx;
    const char *s, *what;
    size_t n, at;
    osh_buf *out;
    size_t atom;            // start of the last atom in out
    size_t groups[64];      // starts of the open groups
    int n_groups;
    bool lines;             // saw ^ or $
    bool caseless;          // saw the option i
    bool looks;             // saw \A, \G, \K or the like: may look at text before a match
} rewriter;

static osh_status rewriter_refuse(const rewriter *r, const char *why)
{
    return osh_fail(r->cx, OSH_E_UNSUPPORTED, "%s: regular expression '%.200s': %s", r->what, r->s,
                    why);
}

static osh_status rewriter_put(rewriter *r, const char *s, size_t n)
{
    return osh_buf_append(r->cx, r->out, s, n);
}

/* Writes the ranges that Unicode 15 to 16 added to a class: "L" stands for Lu, Ll, ...; "w" for the
 * members of \w. */
static osh_status put_newer(rewriter *r, const char *cls)
{
    osh_status rc = OSH_OK;

    for (const osh_uni_range *u = osh_uni_newer; u->hi; u++)
        if (!strncmp(u->cls, cls, strlen(cls)))
            OSH_TRY(osh_buf_printf(r->cx, r->out, "\\x{%X}-\\x{%X}", u->lo, u->hi));
done:
    return rc;
}

/* Writes a class escape as members of a bracket class. */
static osh_status put_members(rewriter *r, char kind, const char *prop)
{
    static const char *const word[] = {"L", "M", "Nd", "Nl"};
    osh_status rc = OSH_OK;

    if (kind == 's') {
        OSH_TRY(osh_buf_printf(r->cx, r->out,
                               "\\t-\\r\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}"
                               "\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"));
    } else if (kind == 'd') {
        OSH_TRY(rewriter_put(r, "\\p{Nd}", 6));
        OSH_TRY(put_newer(r, "Nd"));
    } else if (kind == 'h') {
        OSH_TRY(rewriter_put(r, "0-9A-Fa-f", 9));
    } else if (kind == 'w') { // Alphabetic, M, Nd, Pc; the circled letters are alphabetic symbols
        for (size_t i = 0; i < 4; i++) {
            OSH_TRY(osh_buf_printf(r->cx, r->out, "\\p{%s}", word[i]));
            OSH_TRY(put_newer(r, word[i]));
        }
        OSH_TRY(osh_buf_printf(r->cx, r->out,
                               "\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}"
                               "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}"));
    } else {
        static const char *const scripts[] = {"Han", "Hiragana", "Katakana", "Hangul", "Latin",
                                              "Greek", "Cyrillic", "Arabic", "Hebrew", "Thai"};
        bool script = false; // PCRE2 reads a bare script name as the script extensions
        for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
            script |= !strcmp(prop, scripts[i]);
        OSH_TRY(osh_buf_printf(r->cx, r->out, "\\p{%s%s}", script ? "sc:" : "", prop));
        OSH_TRY(put_newer(r, prop));
    }
done:
    return rc;
}

/* Writes a class escape outside brackets. There Oniguruma's \w also has the superscripts and
 * fractions of Latin-1. */
static osh_status put_class(rewriter *r, char kind, const char *prop, bool negated)
{
    osh_status rc = OSH_OK;

    OSH_TRY(rewriter_put(r, negated ? "[^" : "[", negated ? 2 : 1));
    OSH_TRY(put_members(r, kind, prop));
    if (kind == 'w') OSH_TRY(osh_buf_printf(r->cx, r->out, "\\xB2\\xB3\\xB9\\xBC-\\xBE"));
    OSH_TRY(rewriter_put(r, "]", 1));
done:
    return rc;
}

/* Writes \b or \B for the \w of put_class. */
static osh_status put_boundary(rewriter *r, bool negated)
{
    static const char *const ahead[2][2] = {{"(?!", "(?="}, {"(?=", "(?!"}};
    osh_status rc = OSH_OK;

    OSH_TRY(rewriter_put(r, "(?:(?<=", 7));
    OSH_TRY(put_class(r, 'w', "", false));
    OSH_TRY(osh_buf_printf(r->cx, r->out, ")%s", ahead[negated][0]));
    OSH_TRY(put_class(r, 'w', "", false));
    OSH_TRY(rewriter_put(r, ")|(?<!", 6));
    OSH_TRY(put_class(r, 'w', "", false));
    OSH_TRY(osh_buf_printf(r->cx, r->out, ")%s", ahead[negated][1]));
    OSH_TRY(put_class(r, 'w', "", false));
    OSH_TRY(rewriter_put(r, "))", 2));
done:
    return rc;
}

/* Reads the name of \p{Name}, \p{^Name} or \P{Name}; `at` is after the p. */
static osh_status read_property(rewriter *r, char *prop, size_t cap, bool *negated)
{
    size_t k = 0;

    if (r->at < r->n && r->s[r->at] != '{') return rewriter_refuse(r, "a property without braces");
    r->at++;
    if (r->at < r->n && r->s[r->at] == '^') {
        *negated = !*negated;
        r->at++;
    }
    while (r->at < r->n && r->s[r->at] != '}' && k + 1 < cap) prop[k++] = r->s[r->at++];
    if (r->at >= r->n || r->s[r->at] != '}' || k == 0)
        return rewriter_refuse(r, "an unfinished property");
    prop[k] = 0;
    r->at++;
    return OSH_OK;
}

/* Fails on an escape that PCRE2 knows and Oniguruma does not, or reads differently: a quote, a
 * name, a reference, a byte of a character. */
static osh_status rewriter_check_escape(const rewriter *r)
{
    static const char octal[] = "01234567", hexit[] = "0123456789abcdefABCDEF";
    const char *c = r->s + r->at + 1;
    bool bytes = *c == 'x' && c[1] && strchr("89abcdefABCDEF", c[1]) && c[2] &&
                 strchr(hexit, c[2]);
    bool named = (*c == 'g' || *c == 'k') && c[1] != '<' && c[1] != '\'';

    bytes |= (*c == '2' || *c == '3') && c[1] && strchr(octal, c[1]) && c[2] && strchr(octal, c[2]);
    if (bytes) return rewriter_refuse(r, "a byte that is no character by itself");
    if (named || (*c == 'N' && c[1] == '{') || (*c && strchr("QEV", *c)))
        return rewriter_refuse(r, "an escape that Oniguruma does not know");
    return OSH_OK;
}

/* Rewrites an escape. in_class: it is inside brackets. */
static osh_status rewrite_escape(rewriter *r, bool in_class)
{
    osh_status rc = OSH_OK;
    char prop[40] = "", c = r->s[r->at + 1];
    bool negated = false;

    if (r->at + 1 >= r->n) return rewriter_refuse(r, "ends in a backslash");
    if (!in_class && (c == 'b' || c == 'B')) {
        r->at += 2;
        return put_boundary(r, c == 'B');
    }
    if (c == 'C') return rewriter_refuse(r, "\\C is not supported");
    OSH_TRY(rewriter_check_escape(r));
    if (c == 'v') { // to PCRE2 every vertical space
        r->at += 2;
        return rewriter_put(r, "\\x0B", 4);
    }
    r->looks |= c && strchr("AzZGKbByYX", c);
    if (!strchr("sSdDwWhHpPu", c)) {
        OSH_TRY(rewriter_put(r, r->s + r->at, 2));
        r->at += 2;
        goto done;
    }
    r->at += 2;
    if (c == 'u') { // \uHHHH
        if (r->n - r->at < 4) OSH_TRY(rewriter_refuse(r, "an unfinished \\u"));
        OSH_TRY(osh_buf_printf(r->cx, r->out, "\\x{%.4s}", r->s + r->at));
        r->at += 4;
        goto done;
    }
    negated = strchr("SDWHP", c) != NULL;
    char kind = negated ? (char)(c + ('a' - 'A')) : c;
    if (kind == 'p') OSH_TRY(read_property(r, prop, sizeof prop, &negated));
    if (in_class && negated) {
        if (kind == 's') { // the only complement that PCRE2 has, except for one character
            OSH_TRY(rewriter_put(r, "\\S\\x{180E}", 10));
            goto done;
        }
        OSH_TRY(rewriter_refuse(r, "a negated class inside brackets"));
    }
    if (in_class)
        OSH_TRY(put_members(r, kind, prop));
    else
        OSH_TRY(put_class(r, kind, prop, negated));
done:
    return rc;
}

static osh_status rewrite_class(rewriter *r)
{
    osh_status rc = OSH_OK;
    bool start = true;

    OSH_TRY(rewriter_put(r, "[", 1));
    r->at++;
    if (r->at < r->n && r->s[r->at] == '^') {
        OSH_TRY(rewriter_put(r, "^", 1));
        r->at++;
    }
    for (; r->at < r->n; start = false) {
        char c = r->s[r->at];
        if (c == ']' && !start) {
            OSH_TRY(rewriter_put(r, "]", 1));
            r->at++;
            goto done;
        }
        if (c == '[') OSH_TRY(rewriter_refuse(r, "a class inside a class"));
        if (c == '&' && r->at + 1 < r->n && r->s[r->at + 1] == '&')
            OSH_TRY(rewriter_refuse(r, "an intersection of classes (&&)"));
        if (c == '\\') {
            OSH_TRY(rewrite_escape(r, true));
        } else {
            OSH_TRY(rewriter_put(r, &c, 1));
            r->at++;
        }
    }
    OSH_TRY(rewriter_refuse(r, "an unfinished class"));
done:
    return rc;
}

/* Rewrites counts that Ruby's syntax reads differently: X{n,m}+ is (?:X{n,m})+, X{n}? is (?:X{n})?
 * and X{,m} is X{0,m}. `at` is on the brace. */
static osh_status rewrite_braces(rewriter *r)
{
    osh_status rc = OSH_OK;
    const char *s = r->s + r->at, *end = memchr(s, '}', r->n - r->at);
    size_t n_low = strspn(s + 1, "0123456789");
    bool exact = n_low && s[1 + n_low] == '}';
    osh_buf tail;

    osh_buf_init(&tail, 0);
    size_t len = end ? (size_t)(end - s) + 1 : 1;
    if (s[1] == ',' && len > 3 && strspn(s + 2, "0123456789") == len - 3)
        OSH_TRY(osh_buf_printf(r->cx, r->out, "{0%.*s", (int)len - 1, s + 1));
    else
        OSH_TRY(rewriter_put(r, s, len));
    r->at += len;
    if (!end || r->at >= r->n) goto done;
    if (r->s[r->at] != '+' && !(exact && r->s[r->at] == '?')) goto done;
    OSH_TRY(osh_buf_append(r->cx, &tail, r->out->data + r->atom, r->out->len - r->atom));
    r->out->len = r->atom;
    OSH_TRY(osh_buf_printf(r->cx, r->out, "(?:%s)", tail.data));
done:
    osh_buf_deinit(r->cx, &tail);
    return rc;
}

/* Rewrites the options of "(?im-x:" or "(?i)". `at` is after the question mark. In Oniguruma
 * options without a colon hold to the end of the group, across its later alternatives. PCRE2 agrees
 * if the options are the first of their alternative. */
static osh_status rewrite_options(rewriter *r)
{
    osh_status rc = OSH_OK;
    const char *s = r->s + r->at;
    size_t n = strspn(s, "imx-"), open = r->at - 2;
    bool off = false;

    if (!n || (s[n] != ':' && s[n] != ')'))
        OSH_TRY(rewriter_refuse(r, "a group or an option that Oniguruma does not know"));
    if (s[n] == ')' && open > 0 &&
        ((r->s[open - 1] != '(' && r->s[open - 1] != '|') || (open > 1 && r->s[open - 2] == '\\')))
        OSH_TRY(rewriter_refuse(r, "options in the middle of an alternative"));
    for (size_t i = 0; i < n; i++) {
        off |= s[i] == '-';
        r->caseless |= s[i] == 'i' && !off;
        OSH_TRY(rewriter_put(r, s[i] == 'm' ? "s" : s + i, 1));
    }
    r->at += n;
done:
    return rc;
}

/* Fails if the pattern ignores case and has characters that Oniguruma then reads as two or three
 * others: ss is U+00DF. */
static osh_status rewriter_check_folds(const rewriter *r)
{
    static const char *const pairs[] = {"ss", "ff", "fi", "fl", "st"};
    uint32_t cp = 0;
    bool folds = false;

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        folds |= strcasestr(r->s, pairs[i]) != NULL;
    for (size_t i = 0; i < r->n; i += osh_utf8_next(r->s + i, r->n - i, &cp),
                folds |= cp == 0xDF || cp == 0x130 || cp == 0x149 || cp == 0x1F0 || cp == 0x390 ||
                                 cp == 0x3B0 || cp == 0x587 || (cp >= 0x1E96 && cp <= 0x1FFC) ||
                                 (cp >= 0xFB00 && cp <= 0xFB17))
        continue;
    if (!r->caseless || !folds) return OSH_OK;
    return rewriter_refuse(r, "without case, characters that are two or three others");
}

static osh_status rewrite_group_open(rewriter *r)
{
    osh_status rc = OSH_OK;

    if (r->n_groups == 64) OSH_TRY(rewriter_refuse(r, "groups nest too deeply"));
    r->groups[r->n_groups++] = r->out->len;
    OSH_TRY(rewriter_put(r, "(", 1));
    r->at++;
    r->looks |= r->at < r->n && r->s[r->at] == '*'; // a verb
    if (r->at < r->n && r->s[r->at] == '?') { // up to the ':' or the kind of the group
        OSH_TRY(rewriter_put(r, "?", 1));
        r->at++;
        if (r->at >= r->n || !strchr(":=!>#<'(&", r->s[r->at])) OSH_TRY(rewrite_options(r));
    }
done:
    return rc;
}

static osh_status rewrite_next(rewriter *r)
{
    osh_status rc = OSH_OK;
    char c = r->s[r->at];

    switch (c) {
    case '\\':
        r->atom = r->out->len;
        OSH_TRY(rewrite_escape(r, false));
        break;
    case '[':
        r->atom = r->out->len;
        OSH_TRY(rewrite_class(r));
        break;
    case '{': OSH_TRY(rewrite_braces(r)); break;
    case '(': OSH_TRY(rewrite_group_open(r)); break;
    case ')':
        if (r->n_groups > 0) r->atom = r->groups[--r->n_groups];
        OSH_TRY(rewriter_put(r, ")", 1));
        r->at++;
        break;
    default:
        r->lines |= c == '^' || c == '$';
        if (!strchr("+*?|", c) && ((unsigned char)c & 0xC0) != 0x80) r->atom = r->out->len;
        OSH_TRY(rewriter_put(r, &c, 1));
        r->at++;
        break;
    }
done:
    return rc;
}

/* True for X, X+, X{n}, X{n,} and X{n,m} with n up to 3, if X is a character, brackets without
 * escapes, or one of \s \d \n \r \t. */
static bool is_one_atom(const char *s)
{
    uint32_t cp;

    if (*s == '\\') {
        if (!s[1] || !strchr("sdnrt", s[1])) return false;
        s += 2;
    } else if (*s == '[') {
        size_t n = strcspn(s + 1, "[]\\&") + 1;
        if (s[n] != ']' || n == 1 || (n == 2 && s[1] == '^')) return false;
        s += n + 1;
    } else {
        size_t n = *s && !strchr("^$.|?*+(){}", *s) ? osh_utf8_decode(s, strlen(s), &cp) : 0;
        if (!n) return false;
        s += n;
    }
    if (*s == '+') return !s[1];
    if (*s != '{') return !*s;
    if (s[1] < '1' || s[1] > '3') return false;
    s += 2;
    s += *s == ',';
    s += strspn(s, "0123456789");
    return s[0] == '}' && !s[1];
}

osh_status osh_tok_pattern_regex(osh_ctx *cx, osh_tok_pattern *p, const char *onig,
                                 const char *what)
{
    osh_status rc = OSH_OK;
    osh_buf out, whole;
    rewriter r = {.cx = cx, .s = onig, .n = strlen(onig), .what = what, .out = &out};

    osh_buf_init(&out, (size_t)1 << 20);
    osh_buf_init(&whole, 0);
    while (r.at < r.n) OSH_TRY(rewrite_next(&r));
    OSH_TRY(rewriter_check_folds(&r));
    OSH_TRY(osh_buf_printf(cx, &whole, "%s%s", r.lines ? "(?m)" : "", out.data ? out.data : ""));
    OSH_TRY(osh_regex_new(cx, &p->re, whole.data, whole.len));
    p->one_atom = is_one_atom(onig);
    p->local = !r.lines && !r.looks && osh_regex_local(p->re);
done:
    if (rc) osh_note(cx, "reading a regular expression of %s", what);
    osh_buf_deinit(cx, &out);
    osh_buf_deinit(cx, &whole);
    return rc;
}

osh_status osh_tok_pattern_load(osh_ctx *cx, osh_tok_pattern *p, const cJSON *o, const char *what)
{
    const cJSON *re = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, "Regex") : NULL;
    const cJSON *lit = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, "String") : NULL;

    if (cJSON_IsString(re)) return osh_tok_pattern_regex(cx, p, re->valuestring, what);
    if (!cJSON_IsString(lit) || !*lit->valuestring)
        return osh_fail(cx, OSH_E_FORMAT,
                        "%s: a pattern is neither a \"Regex\" nor a non-empty \"String\"", what);
    p->local = true;
    return osh_tok_string(cx, &p->literal, &p->n_literal, lit->valuestring);
}

osh_status osh_tok_pattern_find(osh_ctx *cx, const osh_tok_pattern *p, const char *s, size_t n,
                                size_t from, osh_hit *at)
{
    osh_status rc = OSH_OK;

    if (!p->re) {
        const char *hit = from < n ? memmem(s + from, n - from, p->literal, p->n_literal) : NULL;
        at->start = hit ? (size_t)(hit - s) : SIZE_MAX;
        at->end = hit ? at->start + p->n_literal : SIZE_MAX;
        return OSH_OK;
    }
    OSH_TRY(osh_regex_find_valid(cx, p->re, s, n, from, at));
done:
    return rc;
}

osh_status osh_tok_pattern_find_open(osh_ctx *cx, const osh_tok_pattern *p, const char *s, size_t n,
                                     size_t from, osh_hit *at)
{
    if (p->re && p->local) return osh_regex_find_open(cx, p->re, s, n, from, at);
    *at = (osh_hit){SIZE_MAX, from};
    if (p->re) return OSH_OK;
    osh_status rc = osh_tok_pattern_find(cx, p, s, n, from, at);
    if (at->start != SIZE_MAX) return rc;
    at->end = n - from < p->n_literal ? from : n - p->n_literal + 1; // a match may begin after this
    while (at->end > from && at->end < n && ((unsigned char)s[at->end] & 0xC0) == 0x80) --at->end;
    return rc;
}

void osh_tok_pattern_deinit(osh_ctx *cx, osh_tok_pattern *p)
{
    osh_regex_free(cx, p->re);
    osh_free(cx, p->literal);
    memset(p, 0, sizeof *p);
}
