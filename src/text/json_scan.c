/* json_scan.c - implements a strict scan of JSON text without recursion: RFC 8259, with a limit on
 * the nesting.
 *
 * cJSON accepts invalid texts such as 01 or raw control characters, and stops at a NUL. A text that
 * passes this scan has the same meaning for cJSON as in RFC 8259. */
#include "text/json_scan.h"
#include <string.h>

osh_status osh_json_scan_fail(const osh_json_scan *s, size_t at, const char *problem)
{
    size_t line = 1, column = s->more ? at + 1 : 1;

    if (s->failed) return s->failed;
    for (size_t i = 0; !s->more && i < at && i < s->n; i++) {
        column++;
        if (s->text[i] == '\n') line++, column = 1;
    }
    return osh_fail(s->cx, OSH_E_FORMAT, "%s: line %zu column %zu: %s", s->what, line, column,
                    problem);
}

static size_t scan_place(const osh_json_scan *s) { return s->base + s->at; }

/* Reads more of the text until n bytes are available at s->at, or fewer if the text ends. */
static void scan_look_ahead(osh_json_scan *s, size_t n)
{
    while (s->more && !s->ended && s->n - s->at < n) {
        size_t used = s->at;
        s->failed = s->more(s->cx, s->more_user, used, &s->text, &s->n, &s->ended);
        if (s->failed) s->n = 0, s->ended = true;
        s->base += used;
        s->at = 0;
    }
}

int osh_json_scan_peek(osh_json_scan *s)
{
    if (s->at >= s->n) scan_look_ahead(s, 1);
    return s->at < s->n ? (unsigned char)s->text[s->at] : -1;
}

osh_status osh_json_scan_begin(osh_json_scan *s)
{
    scan_look_ahead(s, 3);
    if (s->n < 3 || memcmp(s->text, "\xef\xbb\xbf", 3)) return OSH_OK;
    return osh_json_scan_fail(s, 0,
                              "a byte order mark in place of a value (Python's json refuses it)");
}

void osh_json_scan_space(osh_json_scan *s)
{
    int c = osh_json_scan_peek(s);
    while (c > 0 && strchr(" \t\r\n", c)) s->at++, c = osh_json_scan_peek(s);
}

static int scan_peek(osh_json_scan *s) { return osh_json_scan_peek(s); }

static bool json_is_digit(int c) { return c >= '0' && c <= '9'; }

/* Returns the value of four hexadecimal digits at s->at, or -1. */
static int scan_hex4(const osh_json_scan *s)
{
    int v = 0;

    if (s->n - s->at < 4) return -1;
    for (size_t i = 0; i < 4; i++) {
        int c = (unsigned char)s->text[s->at + i];
        if (json_is_digit(c)) v = v * 16 + c - '0';
        else if (c >= 'a' && c <= 'f') v = v * 16 + c - 'a' + 10;
        else if (c >= 'A' && c <= 'F') v = v * 16 + c - 'A' + 10;
        else return -1;
    }
    return v;
}

static osh_status scan_nul(osh_json_scan *s, size_t at)
{
    s->has_nul = true;
    return s->allow_nul ? OSH_OK : osh_json_scan_fail(s, at, "a NUL character in a string");
}

/* Reads the digits after "\u" to *cp. They are one UTF-16 code unit, or two code units with another
 * "\u" between them. */
static osh_status scan_unicode(osh_json_scan *s, uint32_t *cp)
{
    size_t start = scan_place(s) - 2;
    int unit = scan_hex4(s);

    if (unit < 0) return osh_json_scan_fail(s, start, "\\u wants four hexadecimal digits");
    s->at += 4;
    *cp = (uint32_t)unit;
    if (unit == 0) return scan_nul(s, start);
    if (unit < 0xd800 || unit > 0xdfff) return OSH_OK;
    if (unit <= 0xdbff && s->n - s->at >= 6 && s->text[s->at] == '\\' &&
        s->text[s->at + 1] == 'u') {
        s->at += 2;
        int low = scan_hex4(s);
        s->at += 4;
        *cp = 0x10000 + (((uint32_t)unit - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
        if (low >= 0xdc00 && low <= 0xdfff) return OSH_OK;
    }
    return osh_json_scan_fail(s, start, "half of a surrogate pair");
}

static size_t utf8_encode(char to[4], uint32_t cp)
{
    size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};

    for (size_t i = n; i-- > 1; cp >>= 6) to[i] = (char)(0x80 | (cp & 0x3F));
    to[0] = (char)(lead[n] | cp);
    return n;
}

static osh_status scan_take(osh_json_scan *s, const char *text, size_t n)
{
    if (!s->take || !n) return OSH_OK;
    return s->failed = s->take(s->cx, s->take_user, text, n);
}

/* Reads an escape. s->at is after the backslash. */
static osh_status scan_escape(osh_json_scan *s)
{
    static const char escapes[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    osh_status rc = OSH_OK;
    char text[4];
    uint32_t cp = 0;
    int c = scan_peek(s);
    const char *at = c > 0 ? strchr(escapes, c) : NULL;

    s->at += c >= 0;
    if (at) return scan_take(s, &means[at - escapes], 1);
    if (c != 'u')
        return osh_json_scan_fail(s, scan_place(s) - 1 - (c >= 0), "an unknown escape in a string");
    OSH_TRY(scan_unicode(s, &cp));
    OSH_TRY(scan_take(s, text, utf8_encode(text, cp)));
done:
    return rc;
}

osh_status osh_json_scan_string(osh_json_scan *s)
{
    size_t start = scan_place(s);
    osh_status rc = OSH_OK;

    for (s->at++; !rc;) {
        size_t from = s->at, at = from;
        while (at < s->n && (unsigned char)s->text[at] >= 0x20 && s->text[at] != '"' &&
               s->text[at] != '\\')
            at++;
        s->at = at;
        OSH_TRY(scan_take(s, s->text + from, at - from));
        scan_look_ahead(s, 12); // the longest escape has 12 bytes
        if (s->at >= s->n)
            return osh_json_scan_fail(s, start, "a string without its closing quote");
        int c = (unsigned char)s->text[s->at];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        s->at++;
        if (c == '"') return OSH_OK;
        if (c == '\\') rc = scan_escape(s);
        else if (c == 0) rc = scan_nul(s, scan_place(s) - 1);
        else rc = osh_json_scan_fail(s, scan_place(s) - 1, "a control character in a string");
    }
done:
    return rc;
}

static size_t scan_digits(osh_json_scan *s)
{
    size_t start = scan_place(s);

    while (json_is_digit(scan_peek(s))) s->at++;
    return scan_place(s) - start;
}

static bool scan_this(osh_json_scan *s, const char *word)
{
    size_t len = strlen(word);
    scan_look_ahead(s, len);
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

osh_status osh_json_scan_number(osh_json_scan *s, char text[OSH_JSON_MAX_NUMBER + 1])
{
    size_t start = scan_place(s);
    bool ok;

    scan_look_ahead(s, OSH_JSON_MAX_NUMBER + 1);
    size_t n = s->n - s->at < OSH_JSON_MAX_NUMBER ? s->n - s->at : OSH_JSON_MAX_NUMBER;
    memcpy(text, s->text + s->at, n);
    text[n] = 0;
    if (s->allow_nan && scan_this(s, "-Infinity")) {
        s->has_nan = true;
        return OSH_OK;
    }
    if (scan_peek(s) == '-') s->at++;
    if (scan_peek(s) == '0') s->at++, ok = true;
    else ok = scan_digits(s) > 0;
    if (ok && scan_peek(s) == '.') s->at++, ok = scan_digits(s) > 0;
    if (ok && (scan_peek(s) == 'e' || scan_peek(s) == 'E')) {
        s->at++;
        if (scan_peek(s) == '+' || scan_peek(s) == '-') s->at++;
        ok = scan_digits(s) > 0;
    }
    if (!ok) return osh_json_scan_fail(s, start, "not a number");
    n = scan_place(s) - start;
    if (n > OSH_JSON_MAX_NUMBER)
        return osh_json_scan_fail(s, start, "a number of more than 63 characters");
    text[n] = 0;
    return OSH_OK;
}

static osh_status scan_word(osh_json_scan *s)
{
    static const char *const words[] = {"true", "false", "null"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (scan_this(s, words[i])) return OSH_OK;
    if (scan_nan(s)) return OSH_OK;
    return osh_json_scan_fail(s, scan_place(s),
                              scan_peek(s) >= 0 ? "no JSON value here"
                                                : "the text ends before a value");
}

/* Scans a key and its colon. */
static osh_status scan_key(osh_json_scan *s)
{
    osh_status rc;

    osh_json_scan_space(s);
    if (scan_peek(s) != '"')
        return osh_json_scan_fail(s, scan_place(s), "found no quoted key in an object");
    rc = osh_json_scan_string(s);
    if (rc) return rc;
    osh_json_scan_space(s);
    if (scan_peek(s) != ':')
        return osh_json_scan_fail(s, scan_place(s), "found no ':' after a key");
    s->at++;
    return OSH_OK;
}

static osh_status scan_take_to(osh_ctx *cx, void *user, const char *text, size_t n)
{
    return osh_buf_append(cx, user, text, n);
}

static osh_status scan_to(osh_json_scan *s, osh_buf *to, osh_status (*scan)(osh_json_scan *s))
{
    osh_json_take_fn was = s->take;
    void *user = s->take_user;
    s->take = scan_take_to, s->take_user = to;
    osh_status rc = scan(s);
    s->take = was, s->take_user = user;
    return rc;
}

osh_status osh_json_scan_string_to(osh_json_scan *s, osh_buf *to)
{
    return scan_to(s, to, osh_json_scan_string);
}

osh_status osh_json_scan_key_to(osh_json_scan *s, osh_buf *to)
{
    return scan_to(s, to, scan_key);
}

/* Moves on after a complete value. Closes the objects and arrays that end at this point. Stops at
 * the start of the next value, or after the outermost value. */
static osh_status scan_after(osh_json_scan *s, char *closers, int *depth)
{
    while (*depth > 0) {
        char closer = closers[*depth - 1];
        osh_json_scan_space(s);
        int c = scan_peek(s);
        if (c == closer) {
            s->at++, --*depth;
            continue;
        }
        if (c != ',')
            return osh_json_scan_fail(s, scan_place(s),
                                      closer == '}' ? "found no ',' or '}' in an object"
                                                    : "found no ',' or ']' in an array");
        s->at++;
        s->n_commas += *depth == 1;
        return closer == '}' ? scan_key(s) : OSH_OK;
    }
    return OSH_OK;
}

osh_status osh_json_scan_value(osh_json_scan *s)
{
    osh_status rc = OSH_OK;
    char closers[OSH_JSON_MAX_DEPTH], number[OSH_JSON_MAX_NUMBER + 1];
    int depth = 0;

    do {
        osh_json_scan_space(s);
        int c = scan_peek(s);
        if (c == '{' || c == '[') {
            if (depth == OSH_JSON_MAX_DEPTH)
                return osh_json_scan_fail(s, scan_place(s), "nested more than 256 deep");
            closers[depth++] = c == '{' ? '}' : ']';
            s->at++;
            osh_json_scan_space(s);
            if (scan_peek(s) != closers[depth - 1]) {
                if (c == '{') OSH_TRY(scan_key(s));
                continue;
            }
        } else if (c == '"') {
            OSH_TRY(osh_json_scan_string(s));
        } else if (c == '-' || json_is_digit(c)) {
            OSH_TRY(osh_json_scan_number(s, number));
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
    return s->at == s->n ? OSH_OK
                         : osh_json_scan_fail(s, scan_place(s), "something follows the JSON value");
}
