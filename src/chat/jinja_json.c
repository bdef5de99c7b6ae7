/* jinja_json.c - reads JSON text to values as Python's json does: 1 is an int, 1.0 is a float,
 * members keep their order, and the last of two members with equal keys wins. */
#include <stdlib.h>
#include <string.h>

#include "chat/jinja_impl.h"
#include "text/json_scan.h"
#include "tokenizer/tok_impl.h"

typedef struct reader {
    osh_jrun *r;
    osh_json_scan s;
    osh_buf text; // own: the current string
} reader;

static osh_jv json_read_value(reader *p);

/* Returns the string with invalid UTF-8 replaced by U+FFFD. The bytes are replaced here and not in
 * the tokenizer, because functions of a template count code points. */
static osh_jv clean_str(osh_jrun *r, const char *s, size_t n)
{
    uint32_t cp;
    size_t at = 0, len;
    osh_jv v = osh_jv_none();
    while (at < n && (len = osh_utf8_decode(s + at, n - at, &cp))) at += len;
    if (at == n) return osh_jv_str(r, s, n);
    osh_tok_text clean = {0}; // own
    r->rc = osh_tok_utf8_clean(r->cx, &clean, s, n);
    if (!r->rc) v = osh_jv_str(r, clean.s, clean.n);
    osh_tok_text_deinit(r->cx, &clean);
    return v;
}

static osh_jv json_read_string(reader *p, bool key)
{
    osh_buf_clear(&p->text);
    p->r->rc =
        key ? osh_json_scan_key_to(&p->s, &p->text) : osh_json_scan_string_to(&p->s, &p->text);
    return p->r->rc ? osh_jv_none()
                    : clean_str(p->r, p->text.data ? p->text.data : "", p->text.len);
}

static osh_jv json_read_number(reader *p)
{
    char text[OSH_JSON_MAX_NUMBER + 1];
    p->r->rc = osh_json_scan_number(&p->s, text);
    if (p->r->rc) return osh_jv_none();
    if (strpbrk(text, ".eE")) return osh_jv_float(strtod(text, NULL));
    int64_t i = 0;
    bool negative = *text == '-';
    for (const char *c = text + negative; *c; c++)
        if (__builtin_mul_overflow(i, 10, &i) || __builtin_sub_overflow(i, *c - '0', &i))
            return osh_jrun_fail(p->r, OSH_E_UNSUPPORTED,
                                 "the number %s of the row has more than 64 bits", text);
    if (!negative && i == INT64_MIN)
        return osh_jrun_fail(p->r, OSH_E_UNSUPPORTED,
                             "the number %s of the row has more than 64 bits", text);
    return osh_jv_int(negative ? i : -i);
}

/* Moves to the next value or key in the brackets. At the closing bracket, moves after it and
 * returns false. */
static bool json_has_more(reader *p, int close, size_t n)
{
    osh_json_scan_space(&p->s);
    int c = osh_json_scan_peek(&p->s);
    if (c == close) return p->s.at++, false;
    if (!n) return true;
    if (c != ',') {
        p->r->rc =
            osh_json_scan_fail(&p->s, p->s.base + p->s.at, "found no ',' between two values");
        return false;
    }
    p->s.at++;
    osh_json_scan_space(&p->s);
    return true;
}

static osh_jv json_read_list(reader *p)
{
    osh_jv list = osh_jv_list(p->r, OSH_JV_LIST);
    for (size_t n = 0; !p->r->rc && json_has_more(p, ']', n); n++) {
        osh_jv v = json_read_value(p);
        osh_jv_push(p->r, list, v);
    }
    return list;
}

static osh_jv json_read_dict(reader *p)
{
    osh_jv dict = osh_jv_dict(p->r, OSH_JV_DICT);
    for (size_t n = 0; !p->r->rc && json_has_more(p, '}', n); n++) {
        osh_jv key = json_read_string(p, true);
        if (p->r->rc) break;
        osh_json_scan_space(&p->s);
        osh_jv v = json_read_value(p);
        if (!p->r->rc) osh_jdict_set(p->r, dict.u.dict, key, v);
    }
    return dict;
}

static osh_jv json_read_value(reader *p)
{
    osh_jv v = osh_jv_none();
    osh_json_scan_space(&p->s);
    int c = osh_json_scan_peek(&p->s);
    if (!osh_jrun_step(p->r, 0)) return v;
    if (++p->r->depth > OSH_JSON_MAX_DEPTH)
        return osh_jrun_fail(p->r, OSH_E_FORMAT, "JSON nested more than %d deep",
                             OSH_JSON_MAX_DEPTH);
    if (c == '"') v = json_read_string(p, false);
    else if (c == '-' || (c >= '0' && c <= '9')) v = json_read_number(p);
    else if (c == '[' || c == '{') p->s.at++, v = c == '[' ? json_read_list(p) : json_read_dict(p);
    else {
        p->r->rc = osh_json_scan_value(&p->s); // reads true, false or null, or fails
        if (c != 'n') v = osh_jv_bool(c == 't');
    }
    p->r->depth--;
    return v;
}

osh_jv osh_jv_json(osh_jrun *r, const char *text, size_t n)
{
    reader p = {.r = r, .s = {.cx = r->cx, .what = "the row", .text = text, .n = n}};
    int depth = r->depth;
    if (r->rc) return osh_jv_none();
    osh_buf_init(&p.text, 0);
    osh_jv v = json_read_value(&p);
    if (!r->rc) r->rc = osh_json_scan_end(&p.s);
    r->depth = depth;
    osh_buf_deinit(r->cx, &p.text);
    return v;
}
