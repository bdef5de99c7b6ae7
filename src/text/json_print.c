/* json_print.c - prints a cJSON tree as Python's json.dumps(indent=2, sort_keys=True,
 * ensure_ascii=True) does.
 *
 * Floats are printed as float.__repr__ prints them: the shortest decimal that reads back as the
 * same double. Numbers of at least 1e-4 and below 1e16 have no exponent. Keys are sorted by their
 * bytes, which for UTF-8 is Python's order of code points. */
#include "base/buf.h"
#include "text/json.h"
#include "text/json_scan.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXACT_INT 9007199254740992.0 // 2^53

static osh_status json_put_text(osh_ctx *cx, osh_buf *b, const char *s)
{
    return osh_buf_append(cx, b, s, strlen(s));
}

/* Computes the digits d1d2..dn and the exponent e of the shortest d1.d2..dn * 10^e that reads back
 * as v. Returns n. */
static int f64_shortest(double v, char *digits, int *exponent)
{
    char s[40];
    int n = 0;

    for (int precision = 0; precision < 17; precision++) {
        snprintf(s, sizeof s, "%.*e", precision, v);
        if (strtod(s, NULL) == v) break;
    }
    char *e = strchr(s, 'e');
    *exponent = atoi(e + 1);
    for (char *c = s; c < e; c++)
        if (*c >= '0' && *c <= '9') digits[n++] = *c;
    while (n > 1 && digits[n - 1] == '0') n--;
    digits[n] = 0;
    return n;
}

osh_status osh_json_put_float(osh_ctx *cx, osh_buf *b, double v)
{
    char d[40];
    int e = 0;
    const char *sign = signbit(v) ? "-" : "";

    if (isnan(v)) return json_put_text(cx, b, "NaN");
    if (isinf(v)) return osh_buf_printf(cx, b, "%sInfinity", sign);
    int n = f64_shortest(fabs(v), d, &e);
    if (e < -4 || e >= 16)
        return osh_buf_printf(cx, b, "%s%c%s%s%s%c%02d", sign, d[0], n > 1 ? "." : "", d + 1, "e",
                              e < 0 ? '-' : '+', abs(e));
    if (e < 0) return osh_buf_printf(cx, b, "%s0.%.*s%s", sign, -e - 1, "000", d);
    if (n <= e + 1)
        return osh_buf_printf(cx, b, "%s%s%.*s.0", sign, d, e + 1 - n, "0000000000000000");
    return osh_buf_printf(cx, b, "%s%.*s.%s", sign, e + 1, d, d + e + 1);
}

static osh_status json_print_number(osh_ctx *cx, osh_buf *b, double v)
{
    if (v == floor(v) && fabs(v) < EXACT_INT && !(v == 0 && signbit(v)))
        return osh_buf_printf(cx, b, "%lld", (long long)v);
    return osh_json_put_float(cx, b, v);
}

/* Decodes one code point of s. A byte that begins no character becomes U+FFFD. C0 80 is a NUL
 * (OSH_JSON_NUL). */
static uint32_t utf8_decode(const unsigned char **s)
{
    const unsigned char *p = *s;
    uint32_t c = *p++;
    int more = c < 0x80 ? 0 : c < 0xc0 ? -1 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : c < 0xf8 ? 3 : -1;
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};

    *s = p;
    if (more < 0) return 0xfffd;
    if (more == 0) return c;
    if (c == 0xc0 && *p == 0x80) return *s = p + 1, 0;
    c &= 0x3fu >> more;
    for (int i = 0; i < more; i++) {
        if ((*p & 0xc0) != 0x80) return 0xfffd;
        c = c << 6 | (*p++ & 0x3f);
    }
    if (c < least[more] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return 0xfffd;
    *s = p;
    return c;
}

osh_status osh_json_put_string(osh_ctx *cx, osh_buf *b, const char *text)
{
    osh_status rc = OSH_OK;
    const unsigned char *s = (const unsigned char *)text;
    static const char plain[] = "\"\\\n\r\t\b\f", escaped[] = "\"\\nrtbf";

    OSH_TRY(json_put_text(cx, b, "\""));
    while (*s) {
        uint32_t c = utf8_decode(&s);
        const char *found = c && c < 0x80 ? strchr(plain, (int)c) : NULL;
        char one = (char)c;
        if (found) OSH_TRY(osh_buf_printf(cx, b, "\\%c", escaped[found - plain]));
        else if (c >= 0x20 && c < 0x7f) OSH_TRY(osh_buf_append(cx, b, &one, 1));
        else if (c < 0x10000) OSH_TRY(osh_buf_printf(cx, b, "\\u%04x", (unsigned)c));
        else
            OSH_TRY(osh_buf_printf(cx, b, "\\u%04x\\u%04x",
                                   0xd800 + (unsigned)((c - 0x10000) >> 10),
                                   0xdc00 + (unsigned)(c & 0x3ff)));
    }
    OSH_TRY(json_put_text(cx, b, "\""));
done:
    return rc;
}

static int items_by_key(const void *a, const void *b)
{
    return strcmp((*(const cJSON *const *)a)->string, (*(const cJSON *const *)b)->string);
}

static osh_status json_print_value(osh_ctx *cx, osh_buf *b, const cJSON *v, int level);

static osh_status json_print_members(osh_ctx *cx, osh_buf *b, const cJSON *v, int level)
{
    osh_status rc = OSH_OK;
    bool object = cJSON_IsObject(v);
    const cJSON **items = NULL; // own
    size_t n = 0, i = 0;

    if (level > OSH_JSON_MAX_DEPTH + 2)
        OSH_FAIL(cx, OSH_E_FORMAT, "JSON nested more than 256 deep");
    for (const cJSON *c = v->child; c; c = c->next) n++;
    OSH_NEW(cx, items, n);
    for (const cJSON *c = v->child; c; c = c->next) items[i++] = c;
    if (object) qsort(items, n, sizeof *items, items_by_key);
    OSH_TRY(json_put_text(cx, b, object ? "{" : "["));
    for (i = 0; i < n; i++) {
        OSH_TRY(osh_buf_printf(cx, b, "%s\n%*s", i ? "," : "", 2 * level, ""));
        if (object) {
            OSH_TRY(osh_json_put_string(cx, b, items[i]->string));
            OSH_TRY(json_put_text(cx, b, ": "));
        }
        OSH_TRY(json_print_value(cx, b, items[i], level + 1));
    }
    if (n) OSH_TRY(osh_buf_printf(cx, b, "\n%*s", 2 * (level - 1), ""));
    OSH_TRY(json_put_text(cx, b, object ? "}" : "]"));
done:
    osh_free(cx, items);
    return rc;
}

static osh_status json_print_value(osh_ctx *cx, osh_buf *b, const cJSON *v, int level)
{
    if (cJSON_IsObject(v) || cJSON_IsArray(v)) return json_print_members(cx, b, v, level);
    if (cJSON_IsString(v)) return osh_json_put_string(cx, b, v->valuestring);
    if (cJSON_IsNumber(v)) return json_print_number(cx, b, v->valuedouble);
    if (cJSON_IsBool(v)) return json_put_text(cx, b, cJSON_IsTrue(v) ? "true" : "false");
    if (cJSON_IsRaw(v)) return json_put_text(cx, b, v->valuestring);
    return json_put_text(cx, b, "null");
}

osh_status osh_json_print(osh_ctx *cx, char **out, const cJSON *o, int indent_level)
{
    osh_status rc = OSH_OK;
    osh_buf b;

    osh_buf_init(&b, 0);
    OSH_TRY(json_print_value(cx, &b, o, indent_level > 0 ? indent_level : 1));
    *out = b.data, b.data = NULL; // give
    osh_buf_init(&b, 0);
done:
    osh_buf_deinit(cx, &b);
    return rc;
}

/* ---- printing to a file ---- */

enum { PIECE = 1 << 16 };

typedef struct printing {
    osh_file *f; // view
    int64_t at;  // number of bytes written to the file
    osh_buf b;   // own: text to write at the offset `at`
} printing;

static osh_status printing_flush(osh_ctx *cx, printing *w, size_t least)
{
    osh_status rc = OSH_OK;
    if (w->b.len < least) goto done;
    OSH_TRY(osh_file_pwrite(cx, w->f, w->b.data, w->b.len, w->at));
    w->at += (int64_t)w->b.len;
    osh_buf_clear(&w->b);
done:
    return rc;
}

static osh_status json_print_list(osh_ctx *cx, printing *w, const osh_json_list *l,
                                  const void *user)
{
    osh_status rc = OSH_OK;
    cJSON *item = NULL; // own
    bool any = false;
    OSH_TRY(json_put_text(cx, &w->b, "["));
    for (int64_t i = 0; i < l->n; i++) {
        OSH_TRY(l->item(cx, &item, user, i));
        if (!item) continue;
        OSH_TRY(json_put_text(cx, &w->b, any ? ",\n    " : "\n    "));
        OSH_TRY(json_print_value(cx, &w->b, item, 3));
        OSH_TRY(printing_flush(cx, w, PIECE));
        cJSON_Delete(item);
        item = NULL, any = true;
    }
    OSH_TRY(json_put_text(cx, &w->b, any ? "\n  ]" : "]"));
done:
    cJSON_Delete(item);
    return rc;
}

static const osh_json_list *lists_find(const osh_json_list *lists, const char *key)
{
    for (; lists->key; lists++)
        if (!strcmp(lists->key, key)) return lists;
    return NULL;
}

osh_status osh_json_write(osh_ctx *cx, osh_file *f, cJSON *root, const osh_json_list *lists,
                          const void *user)
{
    osh_status rc = OSH_OK;
    printing w = {.f = f};      // own
    const cJSON **items = NULL; // own
    size_t n = 0, i = 0;
    osh_buf_init(&w.b, 0);
    for (const osh_json_list *l = lists; l->key; l++)
        if (!cJSON_AddArrayToObject(root, l->key))
            OSH_FAIL(cx, OSH_E_NOMEM, "cannot allocate a list");
    for (const cJSON *c = root->child; c; c = c->next) n++;
    OSH_NEW(cx, items, n);
    for (const cJSON *c = root->child; c; c = c->next) items[i++] = c;
    qsort(items, n, sizeof *items, items_by_key);
    OSH_TRY(json_put_text(cx, &w.b, "{"));
    for (i = 0; i < n; i++) {
        const osh_json_list *l = lists_find(lists, items[i]->string);
        OSH_TRY(json_put_text(cx, &w.b, i ? ",\n  " : "\n  "));
        OSH_TRY(osh_json_put_string(cx, &w.b, items[i]->string));
        OSH_TRY(json_put_text(cx, &w.b, ": "));
        if (l) OSH_TRY(json_print_list(cx, &w, l, user));
        else OSH_TRY(json_print_value(cx, &w.b, items[i], 2));
        OSH_TRY(printing_flush(cx, &w, PIECE));
    }
    OSH_TRY(json_put_text(cx, &w.b, n ? "\n}" : "}"));
    OSH_TRY(printing_flush(cx, &w, 1));
done:
    osh_buf_deinit(cx, &w.b);
    osh_free(cx, items);
    return rc;
}
