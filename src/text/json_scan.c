/* json_scan.c - a strict walk over JSON text, without recursion: RFC 8259, with a cap on the nesting.
 *
 * cJSON forgives 01, raw control characters and much else, and stops at a NUL; what passes here it reads as it is. */
#include "text/json_scan.h"
#include <string.h>

osh_status osh_json_scan_fail(const osh_json_scan *s, size_t at, const char *problem)
{
    size_t line = 1, column = 1;

    for (size_t i = 0; i < at && i < s->n; i++) {
        column++;
        if (s->text[i] == '\n') line++, column = 1;
    }
    return osh_fail(s->cx, OSH_E_FORMAT, "%s: line %zu column %zu: %s", s->what, line, column,
                    problem);
}

void osh_json_scan_bom(osh_json_scan *s)
{
    if (s->at == 0 && s->n >= 3 && !memcmp(s->text, "\xef\xbb\xbf", 3)) s->at = 3;
}

void osh_json_scan_space(osh_json_scan *s)
{
    while (s->at < s->n && s->text[s->at] && strchr(" \t\r\n", s->text[s->at])) s->at++;
}

static int peek(const osh_json_scan *s) { return s->at < s->n ? (unsigned char)s->text[s->at] : -1; }

static bool is_digit(int c) { return c >= '0' && c <= '9'; }

/* Four hexadecimal digits at s->at, or -1. */
static int hex4(const osh_json_scan *s)
{
    int v = 0;

    if (s->n - s->at < 4) return -1;
    for (size_t i = 0; i < 4; i++) {
        int c = (unsigned char)s->text[s->at + i];
        if (is_digit(c)) v = v * 16 + c - '0';
        else if (c >= 'a' && c <= 'f') v = v * 16 + c - 'a' + 10;
        else if (c >= 'A' && c <= 'F') v = v * 16 + c - 'A' + 10;
        else return -1;
    }
    return v;
}

static osh_status note_nul(osh_json_scan *s, size_t at)
{
    s->has_nul = true;
    return s->allow_nul ? OSH_OK : osh_json_scan_fail(s, at, "a NUL character in a string");
}

/* Behind "\u": one code unit, or two that make a pair. */
static osh_status scan_unicode(osh_json_scan *s)
{
    size_t start = s->at - 2;
    int unit = hex4(s);

    if (unit < 0) return osh_json_scan_fail(s, start, "\\u wants four hexadecimal digits");
    s->at += 4;
    if (unit == 0) return note_nul(s, start);
    if (unit < 0xd800 || unit > 0xdfff) return OSH_OK;
    if (unit <= 0xdbff && s->n - s->at >= 6 && s->text[s->at] == '\\' && s->text[s->at + 1] == 'u') {
        s->at += 2;
        int low = hex4(s);
        s->at += 4;
        if (low >= 0xdc00 && low <= 0xdfff) return OSH_OK;
    }
    return osh_json_scan_fail(s, start, "half of a surrogate pair");
}

osh_status osh_json_scan_string(osh_json_scan *s)
{
    size_t start = s->at++;
    osh_status rc = OSH_OK;

    while (!rc && s->at < s->n) {
        int c = (unsigned char)s->text[s->at++];
        if (c == '"') return OSH_OK;
        if (c == 0) rc = note_nul(s, s->at - 1);
        else if (c < 0x20) rc = osh_json_scan_fail(s, s->at - 1, "a control character in a string");
        else if (c == '\\') {
            c = peek(s);
            s->at++;
            if (c == 'u') rc = scan_unicode(s);
            else if (c <= 0 || !strchr("\"\\/bfnrt", c))
                rc = osh_json_scan_fail(s, s->at - 2, "an unknown escape in a string");
        }
    }
    return rc ? rc : osh_json_scan_fail(s, start, "a string without its closing quote");
}

static size_t digits(osh_json_scan *s)
{
    size_t start = s->at;

    while (is_digit(peek(s))) s->at++;
    return s->at - start;
}

static bool scan_this(osh_json_scan *s, const char *word)
{
    size_t len = strlen(word);
    if (s->n - s->at < len || memcmp(s->text + s->at, word, len)) return false;
    s->at += len;
    return true;
}

static bool scan_nan(osh_json_scan *s)
{
    bool found = s->allow_nan && (scan_this(s, "NaN") || scan_this(s, "Infinity"));
    s->has_nan |= found;
    return found;
}

static osh_status scan_number(osh_json_scan *s)
{
    size_t start = s->at;
    bool ok;

    if (s->allow_nan && scan_this(s, "-Infinity")) {
        s->has_nan = true;
        return OSH_OK;
    }
    if (peek(s) == '-') s->at++;
    if (peek(s) == '0') s->at++, ok = true;
    else ok = digits(s) > 0;
    if (ok && peek(s) == '.') s->at++, ok = digits(s) > 0;
    if (ok && (peek(s) == 'e' || peek(s) == 'E')) {
        s->at++;
        if (peek(s) == '+' || peek(s) == '-') s->at++;
        ok = digits(s) > 0;
    }
    if (!ok) return osh_json_scan_fail(s, start, "not a number");
    if (s->at - start > OSH_JSON_MAX_NUMBER)
        return osh_json_scan_fail(s, start, "a number of more than 63 characters");
    return OSH_OK;
}

static osh_status scan_word(osh_json_scan *s)
{
    static const char *const words[] = {"true", "false", "null"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (scan_this(s, words[i])) return OSH_OK;
    if (scan_nan(s)) return OSH_OK;
    return osh_json_scan_fail(s, s->at, s->at < s->n ? "no JSON value here" : "the text ends where a value should be");
}

/* "key" : - up to and with the colon. */
static osh_status scan_key(osh_json_scan *s)
{
    osh_status rc;

    osh_json_scan_space(s);
    if (peek(s) != '"') return osh_json_scan_fail(s, s->at, "found no quoted key in an object");
    rc = osh_json_scan_string(s);
    if (rc) return rc;
    osh_json_scan_space(s);
    if (peek(s) != ':') return osh_json_scan_fail(s, s->at, "found no ':' behind a key");
    s->at++;
    return OSH_OK;
}

/* Behind a complete value: closes what ends here, and stops where the next value starts or the outermost has ended. */
static osh_status scan_after(osh_json_scan *s, char *closers, int *depth)
{
    while (*depth > 0) {
        char closer = closers[*depth - 1];
        osh_json_scan_space(s);
        int c = peek(s);
        if (c == closer) {
            s->at++, --*depth;
            continue;
        }
        if (c != ',')
            return osh_json_scan_fail(s, s->at, closer == '}' ? "found no ',' or '}' in an object"
                                                              : "found no ',' or ']' in an array");
        s->at++;
        return closer == '}' ? scan_key(s) : OSH_OK;
    }
    return OSH_OK;
}

osh_status osh_json_scan_value(osh_json_scan *s)
{
    osh_status rc = OSH_OK;
    char closers[OSH_JSON_MAX_DEPTH];
    int depth = 0;

    do {
        osh_json_scan_space(s);
        int c = peek(s);
        if (c == '{' || c == '[') {
            if (depth == OSH_JSON_MAX_DEPTH)
                return osh_json_scan_fail(s, s->at, "nested more than 256 deep");
            closers[depth++] = c == '{' ? '}' : ']';
            s->at++;
            osh_json_scan_space(s);
            if (peek(s) != closers[depth - 1]) {
                if (c == '{') OSH_TRY(scan_key(s));
                continue;
            }
        } else if (c == '"') {
            OSH_TRY(osh_json_scan_string(s));
        } else if (c == '-' || is_digit(c)) {
            OSH_TRY(scan_number(s));
        } else {
            OSH_TRY(scan_word(s));
        }
        OSH_TRY(scan_after(s, closers, &depth));
    } while (depth > 0);
done:
    return rc;
}

osh_status osh_json_scan_end(osh_json_scan *s)
{
    osh_json_scan_space(s);
    return s->at == s->n ? OSH_OK : osh_json_scan_fail(s, s->at, "something follows the JSON value");
}
