/* jinja_json.c - JSON text as values, as Python's json reads it: 1 is an int, 1.0 a float, order stays, and of two
 * members with the same key the last one counts. */
#include <stdlib.h>
#include <string.h>

#include "chat/jinja_impl.h"
#include "text/json_scan.h"
#include "tokenizer/tok_impl.h"

typedef struct reader {
    osh_jrun *r;
    osh_json_scan s;
    osh_buf text; // own: the string that is read
} reader;

static osh_jv read_json(reader *p);

/* Valid UTF-8: the tokenizer would replace the rest later, and code points are counted here. */
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

static osh_jv read_string(reader *p, bool key)
{
    osh_buf_clear(&p->text);
    p->r->rc = key ? osh_json_scan_key_to(&p->s, &p->text) : osh_json_scan_string_to(&p->s, &p->text);
    return p->r->rc ? osh_jv_none() : clean_str(p->r, p->text.data ? p->text.data : "", p->text.len);
}

static osh_jv read_number(reader *p)
{
    char text[OSH_JSON_MAX_NUMBER + 1];
    p->r->rc = osh_json_scan_number(&p->s, text);
    if (p->r->rc) return osh_jv_none();
    if (strpbrk(text, ".eE")) return osh_jv_float(strtod(text, NULL));
    int64_t i = 0;
    bool negative = *text == '-';
    for (const char *c = text + negative; *c; c++)
        if (__builtin_mul_overflow(i, 10, &i) || __builtin_sub_overflow(i, *c - '0', &i))
            return osh_jrun_fail(p->r, OSH_E_UNSUPPORTED, "the number %s of the row has more than 64 bits", text);
    if (!negative && i == INT64_MIN)
        return osh_jrun_fail(p->r, OSH_E_UNSUPPORTED, "the number %s of the row has more than 64 bits", text);
    return osh_jv_int(negative ? i : -i);
}

/* At the first byte of what is in brackets; false: they close here. */
static bool more_in(reader *p, int close, size_t n)
{
    osh_json_scan_space(&p->s);
    int c = osh_json_scan_peek(&p->s);
    if (c == close) return p->s.at++, false;
    if (!n) return true;
    if (c != ',') {
        p->r->rc = osh_json_scan_fail(&p->s, p->s.base + p->s.at, "found no ',' between two values");
        return false;
    }
    p->s.at++;
    osh_json_scan_space(&p->s);
    return true;
}

static osh_jv read_list(reader *p)
{
    osh_jv list = osh_jv_list(p->r, OSH_JV_LIST);
    for (size_t n = 0; !p->r->rc && more_in(p, ']', n); n++) {
        osh_jv v = read_json(p);
        osh_jv_push(p->r, list, v);
    }
    return list;
}

static osh_jv read_dict(reader *p)
{
    osh_jv dict = osh_jv_dict(p->r, OSH_JV_DICT);
    for (size_t n = 0; !p->r->rc && more_in(p, '}', n); n++) {
        osh_jv key = read_string(p, true);
        if (p->r->rc) break;
        osh_json_scan_space(&p->s);
        osh_jv v = read_json(p);
        if (!p->r->rc) osh_jdict_set(p->r, dict.u.dict, key, v);
    }
    return dict;
}

static osh_jv read_json(reader *p)
{
    osh_jv v = osh_jv_none();
    osh_json_scan_space(&p->s);
    int c = osh_json_scan_peek(&p->s);
    if (!osh_jrun_step(p->r, 0)) return v;
    if (++p->r->depth > OSH_JSON_MAX_DEPTH)
        return osh_jrun_fail(p->r, OSH_E_FORMAT, "JSON nested more than %d deep", OSH_JSON_MAX_DEPTH);
    if (c == '"') v = read_string(p, false);
    else if (c == '-' || (c >= '0' && c <= '9')) v = read_number(p);
    else if (c == '[' || c == '{') p->s.at++, v = c == '[' ? read_list(p) : read_dict(p);
    else {
        p->r->rc = osh_json_scan_value(&p->s); // true, false, null, or what is none of these
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
    osh_jv v = read_json(&p);
    if (!r->rc) r->rc = osh_json_scan_end(&p.s);
    r->depth = depth;
    osh_buf_deinit(r->cx, &p.text);
    return v;
}
