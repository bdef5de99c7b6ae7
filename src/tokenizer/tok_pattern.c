/* tok_pattern.c - rewrites Oniguruma's regexes of tokenizer.json for PCRE2. tok_split.c searches
 * for them.
 *
 * tokenizers matches with Oniguruma (Ruby's syntax, Unicode 16). This file rewrites the parts that
 * PCRE2 10.42 (Perl's syntax, Unicode 14) would read differently, and refuses the parts that PCRE2
 * cannot express. The left column shows a part of a pattern. The right column gives its meaning in
 * Oniguruma, or says why it is refused:
 *
 *   \s             white space, without U+180E
 *   \p{L} \d ...   includes the characters that Unicode 15 to 16 added
 *   \w \b          Oniguruma's word characters: marks, but not every number
 *   ^ $            match at every line
 *   {n,m}+ {n}?    a repeat of a repeat, neither possessive nor lazy
 *   {,m}           {0,m}
 *   \h \v          a hexadecimal digit, a vertical tab
 *   (?m)           the dot matches ends of lines
 *   \C             refused: \C-x is a control character, which PCRE2 does not know
 *   \Q \xE9 (?U) (*UCP) \b+ \p{Xan} a(?i)b (?i)ss
 *                  refused, like some others: Oniguruma does not know them or reads them in another
 *                  way
 *   [a[b]] [a&&b]  refused: PCRE2 has no nested classes
 *
 * If case is ignored, the two libraries compare some characters in different ways. tok_fold.c lists
 * these characters. */
#include "base/buf.h"
#include "tokenizer/tok_impl.h"
#include "tokenizer/tok_pattern.h"
#include "tokenizer/tok_unicode.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char hexits[] = "0123456789abcdefABCDEF";

typedef enum item_kind {
    ITEM_NONE, // the beginning of an alternative
    ITEM_BARE, // an item that matches no character: an anchor, a lookaround, a group of such items
    ITEM_SOLID // an item that matches at least one character
} item_kind;

typedef struct open_group {
    size_t start;  // position in `out`
    bool caseless; // true if the option (?i) is on before the group
    bool captures; // true if the group is (...) or (?<name>...)
    int number;    // number of a group that captures, 1-based
    bool looks;    // true if the group is (?=...), (?!...), (?<=...) or (?<!...)
    bool solid;    // true if the last alternative of the group has an ITEM_SOLID
    bool anchors;  // true if an alternative of the group has items, but no ITEM_SOLID
    bool behind;   // true if the group is (?<=...) or (?<!...), or is inside such a group
    bool unbehind; // true if the group is (?<!...), or is inside such a group
} open_group;

typedef struct rewriter {
    osh_ctx *cx;
    const char *s, *what;
    size_t n, at;
    osh_buf *out;
    size_t atom;           // position in `out` of the last atom
    open_group groups[65]; // groups[0] is the whole pattern
    int n_groups;          // number of open groups, not counting groups[0]
    int n_captures;        // number of groups that capture
    unsigned closed;       // bit n: group n (1 to 9) has ended
    item_kind item;        // kind of the last item
    uint32_t last;         // last character of the pattern, if the last item is a character; else 0
    bool lines;            // true if the pattern has ^ or $
    bool caseless;         // true if the option i is on
    /* True if the pattern has \A, \G, \K or another item that depends on text before a match. */
    bool looks;
    /* named: true if the pattern has (?<name>...).
     * numbered: true if it has \1 to \9. */
    bool named, numbered;
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
    if (osh_uni_is_script(prop) || osh_uni_is_category(prop)) return OSH_OK;
    return osh_fail(r->cx, OSH_E_UNSUPPORTED,
                    "%s: regular expression '%.200s': the property '%s' is not supported: want a "
                    "general category (L, Lu, Nd) or a script (Han, Latin)",
                    r->what, r->s, prop);
}

/* Fails on an escape that PCRE2 knows and Oniguruma does not, such as \Q or \N{...}. Also fails on
 * an escape that the two libraries read in different ways, such as a reference to a group or the
 * code of a single byte. */
static osh_status rewriter_check_escape(const rewriter *r)
{
    static const char octal[] = "01234567";
    const char *c = r->s + r->at + 1;
    bool bytes = *c == 'x' && c[1] && strchr("89abcdefABCDEF", c[1]) && c[2] &&
                 strchr(hexits, c[2]);

    bytes |= (*c == '2' || *c == '3') && c[1] && strchr(octal, c[1]) && c[2] && strchr(octal, c[2]);
    if (bytes) return rewriter_refuse(r, "a byte that is not a character");
    if ((*c == 'N' && c[1] == '{') || (*c && strchr("QEV", *c)))
        return rewriter_refuse(r, "an escape that Oniguruma does not know");
    if (*c && strchr("gkGKX", *c))
        return rewriter_refuse(r, "\\g, \\k, \\G, \\K or \\X, which is not supported");
    if (*c == '0' || (*c >= '1' && *c <= '9' && c[1] >= '0' && c[1] <= '9'))
        return rewriter_refuse(r, "\\0 or several digits after a backslash");
    if (*c && strchr("zZ", *c) && r->groups[r->n_groups].behind)
        return rewriter_refuse(r, "\\z or \\Z inside a look behind");
    if (*c >= '1' && *c <= '9' && !(r->closed >> (*c - '0') & 1))
        return rewriter_refuse(r, "a reference to a group that has not ended before it");
    if (*c == 'c') return rewriter_refuse(r, "\\c, a control character, is not supported");
    return OSH_OK;
}

/* Records a character of the pattern, or the range from lo to hi in a class. In a pattern that
 * ignores case, fails if the two libraries match the range with different characters. */
static osh_status rewriter_note(rewriter *r, uint32_t lo, uint32_t hi, bool in_class)
{
    bool apart = r->caseless && (osh_uni_folds_apart(lo, hi) ||
                                 (!in_class && osh_uni_folds_together(r->last, lo)));

    r->last = in_class ? 0 : hi;
    if (!apart) return OSH_OK;
    return rewriter_refuse(r,
                           "without case, characters that PCRE2 and Oniguruma match differently");
}

/* Returns the character at `at`, which may be an escape, and sets *len to its size in bytes.
 * Returns 0 for an escape that is no character, such as a class or an anchor. */
static uint32_t character_at(const rewriter *r, size_t at, size_t *len)
{
    const char *s = r->s + at;
    uint32_t cp = 0;

    if (*s != '\\') {
        *len = osh_utf8_next(s, r->n - at, &cp);
        return cp;
    }
    *len = 1 + (s[1] ? osh_utf8_next(s + 1, r->n - at - 1, &cp) : 0);
    if (cp == 'x' || cp == 'u') { // Reads \x{H...}, \xHH or \uHHHH.
        bool braces = cp == 'x' && s[2] == '{';
        size_t cap = cp == 'u' ? 4 : braces ? 8 : 2, n = strspn(s + 2 + braces, hexits);
        if (n > cap) n = cap;
        *len = 2 + n + 2 * braces;
        if (n == 0 || (cp == 'u' && n < 4)) return 0;
        char digits[9] = "";
        memcpy(digits, s + 2 + braces, n);
        return (uint32_t)strtoul(digits, NULL, 16);
    }
    bool letter = (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z');
    return letter || (cp >= '0' && cp <= '9') ? 0 : cp;
}

/* Rewrites an escape. in_class is true inside of brackets. */
static osh_status rewrite_escape(rewriter *r, bool in_class)
{
    osh_status rc = OSH_OK;
    char prop[40] = "", c = r->s[r->at + 1];
    bool negated = false;

    if (r->at + 1 >= r->n) return rewriter_refuse(r, "ends in a backslash");
    if (!in_class) r->item = c && strchr("bBAzZGyY", c) ? ITEM_BARE : ITEM_SOLID;
    r->numbered |= !in_class && c >= '1' && c <= '9';
    if (!in_class && (c == 'b' || c == 'B')) {
        r->at += 2;
        r->last = 0;
        return osh_tok_boundary(r->cx, r->out, c == 'B');
    }
    if (c == 'C') return rewriter_refuse(r, "\\C is not supported");
    OSH_TRY(rewriter_check_escape(r));
    size_t len;
    uint32_t cp = character_at(r, r->at, &len);
    OSH_TRY(rewriter_note(r, cp, cp, in_class));
    if (c == 'v') { // PCRE2's \v is every vertical space; Oniguruma's is U+000B
        r->at += 2;
        return rewriter_put(r, "\\x0B", 4);
    }
    r->looks |= c && strchr("AzZGbByY", c);
    /* If `\R` follows `.+`, PCRE2 does not find a line end that `.+` could also match. It finds the
     * line end if a group replaces `\R`. */
    if (c == 'R' && !in_class) {
        r->at += 2;
        return osh_buf_printf(r->cx, r->out, "(?>\\r\\n|[\\n-\\r\\x{85}\\x{2028}\\x{2029}])");
    }
    if (c == 'x' || c == 'u') {
        r->at += len;
        if (r->at > r->n || !cp ||
            (c == 'x' && r->s[r->at - len + 2] == '{' && r->s[r->at - 1] != '}'))
            OSH_TRY(rewriter_refuse(r, "\\x or \\u without the digits of a character"));
        OSH_TRY(osh_buf_printf(r->cx, r->out, "\\x{%X}", cp));
        goto done;
    }
    if (!strchr("sSdDwWhHpP", c)) {
        OSH_TRY(rewriter_put(r, r->s + r->at, 2));
        r->at += 2;
        goto done;
    }
    r->at += 2;
    negated = strchr("SDWHP", c) != NULL;
    char kind = negated ? (char)(c + ('a' - 'A')) : c;
    if (kind == 'p') OSH_TRY(read_property(r, prop, sizeof prop, &negated));
    if (in_class && !strcmp(prop, "Mn"))
        OSH_TRY(rewriter_refuse(r, "\\p{Mn} inside brackets is not supported"));
    if (kind == 'p' && in_class && r->caseless && osh_uni_is_cased(prop))
        OSH_TRY(rewriter_refuse(r, "without case, a property of letters or marks inside brackets"));
    if (in_class && negated) {
        if (kind == 's') { // only U+180E differs: PCRE2's \S does not match it
            OSH_TRY(rewriter_put(r, "\\S\\x{180E}", 10));
            goto done;
        }
        OSH_TRY(rewriter_refuse(r, "a negated class inside brackets"));
    }
    if (in_class)
        OSH_TRY(osh_tok_class_members(r->cx, r->out, kind, prop));
    else
        OSH_TRY(osh_tok_class(r->cx, r->out, kind, prop, negated));
done:
    return rc;
}

/* Checks the member of a bracket class at `at`: a character, a range, or a class escape, which must
 * not begin a range. */
static osh_status rewriter_check_range(rewriter *r)
{
    size_t len, len_hi;
    uint32_t lo = character_at(r, r->at, &len), hi;
    const char *dash = r->s + r->at + len;

    if (*dash != '-' || !dash[1] || dash[1] == ']') return rewriter_note(r, lo, lo, true);
    if (!lo && strchr("sdwh", r->s[r->at + 1]))
        return rewriter_refuse(r, "a range of brackets that begins with a class");
    hi = character_at(r, r->at + len + 1, &len_hi);
    return rewriter_note(r, lo, hi ? hi : lo, true);
}

static osh_status rewrite_class(rewriter *r)
{
    osh_status rc = OSH_OK;
    bool start = true;

    r->item = ITEM_SOLID;
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
        if (((unsigned char)c & 0xC0) != 0x80) OSH_TRY(rewriter_check_range(r));
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

/* Ruby and Perl read some repetition counts in different ways. Rewrites such a count for Perl's
 * syntax. `at` is on the opening brace.
 *
 *   X{n,m}+   becomes (?:X{n,m})+
 *   X{n}?     becomes (?:X{n})?
 *   X{,m}     becomes X{0,m} */
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

/* Rewrites the options of "(?im-x:" or "(?i)". `at` is after the question mark. In Oniguruma,
 * options without a colon apply up to the end of the group, later alternatives included. PCRE2 does
 * the same if the options are the first item of their alternative. */
static osh_status rewrite_options(rewriter *r)
{
    osh_status rc = OSH_OK;
    const char *s = r->s + r->at;
    size_t n = strspn(s, "imx-"), open = r->at - 2;
    bool off = false;

    if (!n || (s[n] != ':' && s[n] != ')'))
        OSH_TRY(rewriter_refuse(r, "a group or option that only Oniguruma or only PCRE2 has"));
    if (memchr(s, 'x', n)) OSH_TRY(rewriter_refuse(r, "the option x is not supported"));
    if (s[n] == ')' && open > 0 &&
        ((r->s[open - 1] != '(' && r->s[open - 1] != '|') || (open > 1 && r->s[open - 2] == '\\')))
        OSH_TRY(rewriter_refuse(r, "options in the middle of an alternative"));
    for (size_t i = 0; i < n; i++) {
        off |= s[i] == '-';
        if (s[i] == 'i') r->caseless = !off;
        OSH_TRY(rewriter_put(r, s[i] == 'm' ? "s" : s + i, 1));
    }
    r->at += n;
done:
    return rc;
}

/* Rewrites the beginning of a group, after the characters "(?". */
static osh_status rewrite_group_kind(rewriter *r, open_group *g)
{
    osh_status rc = OSH_OK;
    const char *s = r->s + r->at;
    const open_group *around = g - 1;
    bool behind = s[0] == '<' && (s[1] == '=' || s[1] == '!');

    if (!*s || !strchr(":=!><'", *s)) {
        OSH_TRY(rewrite_options(r));
        if (r->s[r->at] == ')') {
            g->caseless = r->caseless; // the option applies to the rest of the enclosing group
            goto done;
        }
    }
    g->looks = *s == '=' || *s == '!' || behind;
    g->captures = (*s == '<' && !behind) || *s == '\'';
    r->named |= g->captures;
    if (around->behind && g->looks)
        OSH_TRY(rewriter_refuse(r, "a look ahead or behind inside a look behind"));
    g->behind |= behind;
    g->unbehind |= behind && s[1] == '!';
    s = r->s + r->at;
    size_t n = g->captures ? strcspn(s + 1, *s == '<' ? ">" : "'") + 2 : behind ? 2 : 1;
    /* The name of the group has no end; PCRE2 reports the error. */
    if (n > r->n - r->at) n = r->n - r->at;
    OSH_TRY(rewriter_put(r, s, n));
    r->at += n;
done:
    return rc;
}

static osh_status rewrite_group_open(rewriter *r)
{
    osh_status rc = OSH_OK;
    open_group *around = &r->groups[r->n_groups], *g = around + 1;

    if (r->n_groups == 64) OSH_TRY(rewriter_refuse(r, "groups nest too deeply"));
    if (r->s[r->at + 1] == '*') OSH_TRY(rewriter_refuse(r, "a verb, (*...), is not supported"));
    if (r->s[r->at + 1] == '?' && r->s[r->at + 2] && strchr("(&#", r->s[r->at + 2]))
        OSH_TRY(rewriter_refuse(
            r, "a condition, a call or a comment, (?(, (?& or (?#, is not supported"));
    *g = (open_group){.start = r->out->len, .caseless = r->caseless,
                      .behind = around->behind, .unbehind = around->unbehind};
    r->n_groups++;
    r->item = ITEM_NONE;
    OSH_TRY(rewriter_put(r, "(", 1));
    r->at++;
    g->captures = r->s[r->at] != '?';
    if (!g->captures) {
        OSH_TRY(rewriter_put(r, "?", 1));
        r->at++;
        OSH_TRY(rewrite_group_kind(r, g));
    }
    if (g->captures) g->number = ++r->n_captures;
    if (g->captures && g->unbehind)
        OSH_TRY(rewriter_refuse(r, "a group that captures inside (?<!...)"));
done:
    return rc;
}

static void rewriter_end_alternative(rewriter *r)
{
    open_group *g = &r->groups[r->n_groups];

    g->anchors |= r->item == ITEM_BARE && !g->solid;
    g->solid = false;
}

static osh_status rewrite_group_close(rewriter *r)
{
    const open_group *g = &r->groups[r->n_groups];

    rewriter_end_alternative(r);
    if (r->n_groups > 0) {
        r->atom = g->start;
        r->caseless = g->caseless;
        if (g->number < 10) r->closed |= 1u << g->number;
        r->item = g->looks || (g->anchors && !g->captures) ? ITEM_BARE : ITEM_SOLID;
        r->n_groups--;
    }
    r->at++;
    return rewriter_put(r, ")", 1);
}

/* Copies a character of the pattern, an anchor, a bar or a repeat. */
static osh_status rewrite_plain(rewriter *r)
{
    osh_status rc = OSH_OK;
    char c = r->s[r->at];
    uint32_t cp;
    size_t len = osh_utf8_next(r->s + r->at, r->n - r->at, &cp);

    r->lines |= c == '^' || c == '$';
    if (!strchr("+*?|", c)) r->atom = r->out->len;
    if (strchr("^$.|", c)) r->last = 0;
    else if (!strchr("+*?", c)) OSH_TRY(rewriter_note(r, cp, cp, false));
    if (c == '|') {
        rewriter_end_alternative(r);
        r->item = ITEM_NONE;
    } else if (!strchr("+*?", c)) {
        r->item = c == '^' || c == '$' ? ITEM_BARE : ITEM_SOLID;
    }
    OSH_TRY(rewriter_put(r, r->s + r->at, len));
    r->at += len;
done:
    return rc;
}

/* True if a repeat is at `at`: + * ? {n} {n,} {,m} or {n,m}. */
static bool is_repeat(const rewriter *r)
{
    const char *s = r->s + r->at;

    if (*s != '{') return strchr("+*?", *s) != NULL;
    size_t low = strspn(s + 1, "0123456789"), comma = s[1 + low] == ',';
    size_t high = comma ? strspn(s + 2 + low, "0123456789") : 0;
    return low + high > 0 && s[1 + low + comma + high] == '}';
}

static osh_status rewrite_next(rewriter *r)
{
    osh_status rc = OSH_OK;

    if (r->item == ITEM_BARE && is_repeat(r))
        OSH_TRY(rewriter_refuse(r, "a repeat of an item that matches no character, such as \\b+"));
    switch (r->s[r->at]) {
    case '\\':
        r->atom = r->out->len;
        OSH_TRY(rewrite_escape(r, false));
        break;
    case '[':
        r->atom = r->out->len;
        r->last = 0;
        OSH_TRY(rewrite_class(r));
        break;
    case '{':
        if (!is_repeat(r)) r->item = ITEM_SOLID;
        OSH_TRY(rewrite_braces(r));
        break;
    case '(': OSH_TRY(rewrite_group_open(r)); break;
    case ')': OSH_TRY(rewrite_group_close(r)); break;
    default: OSH_TRY(rewrite_plain(r)); break;
    }
    if (r->item == ITEM_SOLID) r->groups[r->n_groups].solid = true;
done:
    return rc;
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
    if (r.named && r.numbered)
        OSH_TRY(rewriter_refuse(&r, "both a reference by number and a group with a name"));
    OSH_TRY(osh_buf_printf(cx, &whole, "%s%s", r.lines ? "(?m)" : "", out.data ? out.data : ""));
    OSH_TRY(osh_regex_new(cx, &p->re, whole.data, whole.len));
    p->one_atom = osh_tok_is_one_atom(onig);
    p->local = !r.lines && !r.looks && osh_regex_local(p->re);
done:
    if (rc) osh_note(cx, "reading a regular expression of %s", what);
    osh_buf_deinit(cx, &out);
    osh_buf_deinit(cx, &whole);
    return rc;
}
