/* jinja_text.c - writes values as text: Python's str and repr, and json.dumps. */
#include <stdio.h>
#include <string.h>

#include <utf8proc.h>

#include "chat/jinja_impl.h"
#include "text/json.h"
#include "tokenizer/tok_impl.h"
#include "tokenizer/tok_unicode.h"

typedef struct writer {
    osh_jrun *r;
    osh_buf *b; // view: receives the text of the value
    bool ascii, sort;
    osh_jv indent;         // indent of one level, or NONE
    const char *item, *colon;
    size_t n_item, n_colon;
} writer;

static void text_put(osh_jrun *r, osh_buf *b, const char *s, size_t n)
{
    if (osh_jrun_step(r, n)) r->rc = osh_buf_append(r->cx, b, s, n);
    if (b->len > OSH_JINJA_MAX_BYTES)
        osh_jrun_fail(r, OSH_E_UNSUPPORTED, "a text of more than %d MiB",
                      OSH_JINJA_MAX_BYTES >> 20);
}

static void text_put_word(osh_jrun *r, osh_buf *b, const char *s) { text_put(r, b, s, strlen(s)); }

static bool cp_is_printable(uint32_t cp)
{
    for (const osh_uni_range *n = osh_uni_newer; n->hi; n++)
        if (cp >= n->lo && cp <= n->hi) return n->cls[0] != 'C' && n->cls[0] != 'Z';
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return cp == ' ';
    default: return true;
    }
}

static void put_repr(osh_jrun *r, osh_buf *b, osh_jv s)
{
    bool single = memchr(s.u.s, '\'', s.n), twice = memchr(s.u.s, '"', s.n);
    char quote = single && !twice ? '"' : '\'', text[16];
    text_put(r, b, &quote, 1);
    for (size_t i = 0, len; i < s.n && !r->rc; i += len) {
        uint32_t cp;
        len = osh_utf8_next(s.u.s + i, s.n - i, &cp);
        const char *esc = cp == '\n'   ? "\\n"
                          : cp == '\r' ? "\\r"
                          : cp == '\t' ? "\\t"
                          : cp == '\\' ? "\\\\"
                                       : NULL;
        if (esc) text_put_word(r, b, esc);
        else if (cp == (uint32_t)quote)
            snprintf(text, sizeof text, "\\%c", quote), text_put_word(r, b, text);
        else if (cp_is_printable(cp)) text_put(r, b, s.u.s + i, len);
        else {
            snprintf(text, sizeof text,
                     cp < 0x100     ? "\\x%02x"
                     : cp < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                     (unsigned)cp);
            text_put_word(r, b, text);
        }
    }
    text_put(r, b, &quote, 1);
}

static void put_python(osh_jrun *r, osh_buf *b, osh_jv v, bool repr);

static void put_items(osh_jrun *r, osh_buf *b, osh_jv v)
{
    bool tuple = v.kind == OSH_JV_TUPLE;
    text_put_word(r, b, tuple ? "(" : "[");
    for (size_t i = 0; i < v.u.list->n && !r->rc; i++) {
        if (i) text_put_word(r, b, ", ");
        put_python(r, b, v.u.list->at[i], true);
    }
    text_put_word(r, b, tuple ? v.u.list->n == 1 ? ",)" : ")" : "]");
}

static void put_pairs(osh_jrun *r, osh_buf *b, const osh_jdict *d)
{
    text_put_word(r, b, "{");
    for (size_t i = 0; i < d->n && !r->rc; i++) {
        if (i) text_put_word(r, b, ", ");
        put_python(r, b, d->at[i].key, true);
        text_put_word(r, b, ": ");
        put_python(r, b, d->at[i].value, true);
    }
    text_put_word(r, b, "}");
}

static void put_python(osh_jrun *r, osh_buf *b, osh_jv v, bool repr)
{
    char text[32];
    if (++r->depth > OSH_JINJA_MAX_DEPTH)
        osh_jrun_fail(r, OSH_E_UNSUPPORTED, "values nested more than %d deep", OSH_JINJA_MAX_DEPTH);
    if (r->rc) return;
    switch (v.kind) {
    case OSH_JV_UNDEF: text_put_word(r, b, repr ? "Undefined" : ""); break;
    case OSH_JV_NONE: text_put_word(r, b, "None"); break;
    case OSH_JV_BOOL: text_put_word(r, b, v.u.b ? "True" : "False"); break;
    case OSH_JV_INT:
        snprintf(text, sizeof text, "%lld", (long long)v.u.i);
        text_put_word(r, b, text);
        break;
    case OSH_JV_FLOAT:
        if (v.u.f - v.u.f != 0) text_put_word(r, b, v.u.f > 0 ? "inf" : v.u.f < 0 ? "-inf" : "nan");
        else r->rc = osh_json_put_float(r->cx, b, v.u.f);
        break;
    case OSH_JV_STR:
        if (repr) put_repr(r, b, v);
        else text_put(r, b, v.u.s, v.n);
        break;
    case OSH_JV_LIST:
    case OSH_JV_TUPLE: put_items(r, b, v); break;
    case OSH_JV_DICT: put_pairs(r, b, v.u.dict); break;
    default: osh_jrun_fail(r, OSH_E_UNSUPPORTED, "%s as text is not supported", osh_jv_type(v));
    }
    r->depth--;
}

osh_jv osh_jv_to_str(osh_jrun *r, osh_jv v)
{
    if (v.kind == OSH_JV_STR || r->rc) return v;
    if (v.kind == OSH_JV_UNDEF) return osh_jv_view("", 0);
    osh_buf text;
    osh_buf_init(&text, 0);
    put_python(r, &text, v, false);
    return osh_jv_take(r, &text);
}

/* ---- JSON ---- */

static void put_json_string(writer *w, osh_jv s)
{
    static const char plain[] = "\"\\\n\r\t\b\f", escaped[] = "\"\\nrtbf";
    char text[16];
    text_put_word(w->r, w->b, "\"");
    for (size_t i = 0, len; i < s.n && !w->r->rc; i += len) {
        uint32_t cp;
        len = osh_utf8_next(s.u.s + i, s.n - i, &cp);
        const char *found = cp && cp < 0x80 ? strchr(plain, (int)cp) : NULL;
        *text = 0;
        if (found) snprintf(text, sizeof text, "\\%c", escaped[found - plain]);
        else if (cp < 0x20 || (w->ascii && cp > 0x7e && cp < 0x10000))
            snprintf(text, sizeof text, "\\u%04x", (unsigned)cp);
        else if (w->ascii && cp >= 0x10000)
            snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + (unsigned)((cp - 0x10000) >> 10),
                     0xdc00 + (unsigned)(cp & 0x3ff));
        if (*text) text_put_word(w->r, w->b, text);
        else text_put(w->r, w->b, s.u.s + i, len);
    }
    text_put_word(w->r, w->b, "\"");
}

static void put_json(writer *w, osh_jv v, int level);

static void put_line(writer *w, int level)
{
    if (w->indent.kind == OSH_JV_NONE) return;
    text_put_word(w->r, w->b, "\n");
    for (int i = 0; i < level; i++) text_put(w->r, w->b, w->indent.u.s, w->indent.n);
}

static void put_json_list(writer *w, const osh_jlist *l, int level)
{
    text_put_word(w->r, w->b, "[");
    for (size_t i = 0; i < l->n && !w->r->rc; i++) {
        if (i) text_put(w->r, w->b, w->item, w->n_item);
        put_line(w, level + 1);
        put_json(w, l->at[i], level + 1);
    }
    if (l->n) put_line(w, level);
    text_put_word(w->r, w->b, "]");
}

/* Returns the indices of the keys in sorted order. */
static size_t *sort_keys(writer *w, const osh_jdict *d)
{
    size_t *order = osh_jrun_get(w->r, (d->n + 1) * sizeof *order);
    for (size_t i = 0; order && i < d->n && !w->r->rc; i++) {
        size_t k = i;
        for (; k > 0 && osh_jv_order(w->r, d->at[i].key, d->at[order[k - 1]].key) < 0; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    return order;
}

static void put_json_dict(writer *w, const osh_jdict *d, int level)
{
    const size_t *order = w->sort ? sort_keys(w, d) : NULL;
    text_put_word(w->r, w->b, "{");
    for (size_t i = 0; i < d->n && !w->r->rc; i++) {
        const osh_jpair *p = &d->at[order ? order[i] : i];
        if (i) text_put(w->r, w->b, w->item, w->n_item);
        put_line(w, level + 1);
        if (p->key.kind == OSH_JV_STR) put_json_string(w, p->key);
        else
            osh_jrun_fail(w->r, OSH_E_UNSUPPORTED, "tojson of a dict whose key is %s",
                          osh_jv_type(p->key));
        text_put(w->r, w->b, w->colon, w->n_colon);
        put_json(w, p->value, level + 1);
    }
    if (d->n) put_line(w, level);
    text_put_word(w->r, w->b, "}");
}

static void put_json(writer *w, osh_jv v, int level)
{
    osh_jrun *r = w->r;
    if (++r->depth > OSH_JINJA_MAX_DEPTH)
        osh_jrun_fail(r, OSH_E_UNSUPPORTED, "values nested more than %d deep", OSH_JINJA_MAX_DEPTH);
    if (r->rc) return;
    switch (v.kind) {
    case OSH_JV_NONE: text_put_word(r, w->b, "null"); break;
    case OSH_JV_BOOL: text_put_word(r, w->b, v.u.b ? "true" : "false"); break;
    case OSH_JV_INT: put_python(r, w->b, v, true); break;
    case OSH_JV_FLOAT: r->rc = osh_json_put_float(r->cx, w->b, v.u.f); break;
    case OSH_JV_STR: put_json_string(w, v); break;
    case OSH_JV_LIST:
    case OSH_JV_TUPLE: put_json_list(w, v.u.list, level); break;
    case OSH_JV_DICT: put_json_dict(w, v.u.dict, level); break;
    default:
        osh_jrun_fail(r, OSH_E_FORMAT, "tojson does not support %s", osh_jv_type(v));
    }
    r->depth--;
}

/* Returns the indent as text. v is a number of spaces, or text. */
static osh_jv indent_text(osh_jrun *r, osh_jv v)
{
    if (v.kind == OSH_JV_NONE || v.kind == OSH_JV_STR) return v;
    int64_t n = osh_jv_whole(r, v, "indent");
    if (n > 1000)
        return osh_jrun_fail(r, OSH_E_UNSUPPORTED, "an indent of %lld, at most 1000", (long long)n);
    char *s = osh_jrun_get(r, n > 0 ? (size_t)n + 1 : 1);
    if (s && n > 0) memset(s, ' ', (size_t)n);
    return osh_jv_view(s, n > 0 ? (size_t)n : 0);
}

osh_jv osh_jv_to_json(osh_jrun *r, osh_jv v, const osh_jv opts[4])
{
    osh_buf text;
    writer w = {.r = r,
                .b = &text,
                .item = ", ",
                .n_item = 2,
                .colon = ": ",
                .n_colon = 2,
                .indent = osh_jv_none()};
    osh_buf_init(&text, 0);
    w.ascii = osh_jv_true(opts[0]), w.sort = osh_jv_true(opts[3]);
    if (osh_jarg_given(opts[1])) w.indent = indent_text(r, opts[1]);
    if (w.indent.kind != OSH_JV_NONE) w.item = ",", w.n_item = 1;
    if (osh_jarg_given(opts[2]) && opts[2].kind != OSH_JV_NONE) {
        osh_jlist *l = osh_jv_walk(r, opts[2]);
        if (l && (l->n != 2 || l->at[0].kind != OSH_JV_STR || l->at[1].kind != OSH_JV_STR))
            osh_jrun_fail(r, OSH_E_FORMAT, "tojson: want two strings as separators");
        else if (l)
            w.item = l->at[0].u.s, w.n_item = l->at[0].n, w.colon = l->at[1].u.s,
            w.n_colon = l->at[1].n;
    }
    put_json(&w, v, 0);
    return osh_jv_take(r, &text);
}
