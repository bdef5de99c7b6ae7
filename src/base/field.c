/* field.c - parses texts into the members that a field table describes. Every error message has the
 * expected and the actual text. */
#include "base/field.h"
#include "base/number.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void *field_member(const osh_field *f, void *object)
{
    return (char *)object + f->offset;
}

static bool field_has_range(const osh_field *f)
{
    return f->min != 0 || f->max != 0;
}

/* Prints a number without an exponent if possible: 65536, not 6.5536e+04. */
static void print_bound(char *to, size_t room, double v)
{
    if (fabs(v) < 1e15 && v == floor(v)) snprintf(to, room, "%.0f", v);
    else snprintf(to, room, "%g", v);
}

static osh_status field_refuse(osh_ctx *cx, const osh_field *f, const char *wanted,
                               const char *text)
{
    char lo[32], hi[32];
    if (!field_has_range(f))
        return osh_fail(cx, OSH_E_USAGE, "%s: want %s, got '%s'", f->name, wanted, text);
    print_bound(lo, sizeof lo, f->min);
    print_bound(hi, sizeof hi, f->max);
    return osh_fail(cx, OSH_E_USAGE, "%s: want %s in [%s, %s], got '%s'", f->name, wanted, lo, hi,
                    text);
}

static bool field_in_range(const osh_field *f, double v)
{
    // a comparison with NaN is false, so NaN is refused if the field has a range
    return !field_has_range(f) || (v >= f->min && v <= f->max);
}

static bool starts_number(const char *s)
{
    if (*s == '-' || *s == '+') s++;
    if (*s == '.') s++;
    /* A digit must follow, so texts such as " 1", "nan" and "inf" are refused. */
    return isdigit((unsigned char)*s);
}

static bool parse_int(const char *s, int64_t *v)
{
    char *end;
    if (!starts_number(s)) return false;
    errno = 0;
    *v = strtoll(s, &end, 10);
    return !errno && end != s && !*end;
}

bool osh_text_is_number(const char *s, double *v)
{
    char *end;
    // a hexadecimal number is more likely a mistake, so it is refused
    if (!starts_number(s) || strpbrk(s, "xX")) return false;
    *v = strtod(s, &end);
    return end != s && !*end && isfinite(*v);
}

static bool parse_bool(const char *s, bool *v)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(s, words[i])) continue;
        *v = i % 2;
        return true;
    }
    return false;
}

/* Parses a number of bytes: 20GB is 20 * 10^9, 512MiB is 512 * 2^20, a bare number counts bytes.
 * The unit may be in upper or lower case. */
bool osh_text_is_bytes(const char *s, int64_t *v)
{
    static const char *const units[] = {"",   "B",   "KB",  "MB",  "GB",  "TB",
                                        "PB", "KiB", "MiB", "GiB", "TiB", "PiB"};
    static const int64_t factors[] = {1,
                                      1,
                                      1000,
                                      1000000,
                                      1000000000,
                                      1000000000000,
                                      1000000000000000,
                                      (int64_t)1 << 10,
                                      (int64_t)1 << 20,
                                      (int64_t)1 << 30,
                                      (int64_t)1 << 40,
                                      (int64_t)1 << 50};
    char *end;
    int64_t factor = 0, whole;

    if (!isdigit((unsigned char)*s)) return false;
    size_t n = strspn(s, "0123456789.");
    const char *unit = s + n;
    while (*unit == ' ') unit++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcasecmp(unit, units[i])) factor = factors[i];
    if (!factor) return false;

    errno = 0;
    whole = strtoll(s, &end, 10);
    /* A whole number is computed without floating point. */
    if (end == s + n) return !errno && !__builtin_mul_overflow(whole, factor, v);
    double x = strtod(s, &end);
    if (end != s + n || x * (double)factor >= 9.2e18) return false;
    *v = (int64_t)llround(x * (double)factor);
    return true;
}

static bool field_allows(const char *values, const char *text)
{
    size_t n = strlen(text);
    for (const char *v = values; v; v = strchr(v, '|')) {
        if (*v == '|') v++;
        if (strcspn(v, "|") == n && !strncmp(v, text, n)) return true;
    }
    return false;
}

static osh_status field_set_str(osh_ctx *cx, const osh_field *f, char **to, const char *text)
{
    char *copy = NULL;
    if (text && f->values && !field_allows(f->values, text))
        return osh_fail(cx, OSH_E_USAGE, "%s: want one of %s, got '%s'", f->name, f->values, text);
    if (text && !(copy = osh_strdup(cx, text))) return OSH_E_NOMEM;
    osh_free(cx, *to);
    *to = copy;
    return OSH_OK;
}

static osh_status field_add_str(osh_ctx *cx, const osh_field *f, osh_strs *to, const char *text)
{
    osh_status rc = OSH_OK;
    char *copy = NULL; // own
    char **items;

    OSH_TRY(field_set_str(cx, f, &copy, text));
    items = osh_realloc(cx, to->items, (to->n + 1) * sizeof *items);
    if (!items) OSH_TRY(OSH_E_NOMEM);
    to->items = items;
    items[to->n++] = copy, copy = NULL;
done:
    osh_free(cx, copy);
    return rc;
}

/* Returns the length of the text before the next comma. A comma in (), [] or {}, or after a
 * backslash, is part of the item, which may be a regular expression. */
static size_t item_length(const char *text)
{
    int depth = 0;
    bool in_class = false;
    size_t n = 0;
    for (; text[n] && (text[n] != ',' || depth || in_class); n++) {
        char c = text[n];
        if (c == '\\' && text[n + 1]) n++;
        else if (in_class || c == '[') in_class = c != ']';
        else if (c == '(' || c == '{') depth++;
        else if (depth && (c == ')' || c == '}')) depth--;
    }
    return n;
}

static osh_status field_add_strs(osh_ctx *cx, const osh_field *f, osh_strs *to, const char *text)
{
    osh_status rc = OSH_OK;
    char *item = NULL; // own
    for (const char *s = text;; s++) {
        size_t n = item_length(s), before = strspn(s, " "), end = n;
        while (end > before && s[end - 1] == ' ') end--;
        if (end <= before)
            OSH_FAIL(cx, OSH_E_USAGE, "%s: want names with commas between them, got '%s'", f->name,
                     text);
        if (!(item = osh_sprintf(cx, "%.*s", (int)(end - before), s + before)))
            OSH_TRY(OSH_E_NOMEM);
        OSH_TRY(field_add_str(cx, f, to, item));
        osh_free(cx, item), item = NULL;
        s += n;
        if (!*s) break;
    }
done:
    osh_free(cx, item);
    return rc;
}

osh_status osh_field_set(osh_ctx *cx, const osh_field *f, void *object, const char *text)
{
    void *to = field_member(f, object);
    int64_t i;
    double x;

    if (!text && f->type != OSH_F_STR) return osh_fail(cx, OSH_E_USAGE, "%s: no value", f->name);
    switch (f->type) {
    case OSH_F_INT:
        if (!parse_int(text, &i) || !field_in_range(f, (double)i))
            return field_refuse(cx, f, "a whole number", text);
        *(int64_t *)to = i;
        return OSH_OK;
    case OSH_F_FLOAT:
        if (!osh_text_is_number(text, &x) || !field_in_range(f, x))
            return field_refuse(cx, f, "a number", text);
        *(double *)to = x;
        return OSH_OK;
    case OSH_F_BOOL:
        return parse_bool(text, to) ? OSH_OK : field_refuse(cx, f, "true or false", text);
    case OSH_F_BYTES:
        if (!osh_text_is_bytes(text, &i) || !field_in_range(f, (double)i))
            return field_refuse(cx, f, "a size such as 20GB or 512MiB", text);
        *(int64_t *)to = i;
        return OSH_OK;
    case OSH_F_STR:
        return field_set_str(cx, f, to, text);
    case OSH_F_STRS:
        return f->whole ? field_add_str(cx, f, to, text) : field_add_strs(cx, f, to, text);
    }
    return osh_fail(cx, OSH_E_INTERNAL, "%s: field type %d", f->name, (int)f->type);
}

static void field_zero(const osh_field *f, void *object)
{
    static const size_t sizes[] = {
        [OSH_F_INT] = sizeof(int64_t),   [OSH_F_FLOAT] = sizeof(double),
        [OSH_F_BOOL] = sizeof(bool),     [OSH_F_STR] = sizeof(char *),
        [OSH_F_STRS] = sizeof(osh_strs), [OSH_F_BYTES] = sizeof(int64_t)};
    memset(field_member(f, object), 0, sizes[f->type]);
}

osh_status osh_fields_default(osh_ctx *cx, const osh_field *fields, void *object)
{
    osh_status rc = OSH_OK;
    /* All members get zero first, because after a failure the caller frees the object. */
    for (const osh_field *f = fields; f->name; f++) field_zero(f, object);
    for (const osh_field *f = fields; f->name; f++)
        if (f->dflt) OSH_TRY(osh_field_set(cx, f, object, f->dflt));
done:
    return rc;
}

osh_status osh_field_once(osh_ctx *cx, osh_given *given, const osh_field *f, const char *shown,
                          const char *value)
{
    if (f->type == OSH_F_STRS) return OSH_OK;
    for (size_t i = 0; i < given->n; i++)
        if (given->fields[i] == f)
            return osh_fail(cx, OSH_E_USAGE, "%s was given twice: '%s' and '%s'", shown,
                            given->values[i], value);
    if (given->n == OSH_MAX_GIVEN)
        return osh_fail(cx, OSH_E_INTERNAL, "%s: more than %d options", shown, OSH_MAX_GIVEN);
    given->fields[given->n] = f;
    given->values[given->n++] = value;
    return OSH_OK;
}

static bool field_same_name(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if ((*a == '-' ? '_' : *a) != (*b == '-' ? '_' : *b)) return false;
    return *a == *b;
}

const osh_field *osh_field_find(const osh_field *fields, const char *name)
{
    for (const osh_field *f = fields; f->name; f++)
        if (field_same_name(f->name, name) || (f->alias && field_same_name(f->alias, name)))
            return f;
    return NULL;
}

void osh_strs_deinit(osh_ctx *cx, osh_strs *s)
{
    for (size_t i = 0; i < s->n; i++) osh_free(cx, s->items[i]);
    osh_free(cx, s->items);
    *s = (osh_strs){0};
}

void osh_fields_deinit(osh_ctx *cx, const osh_field *fields, void *object)
{
    for (const osh_field *f = fields; f->name; f++) {
        if (f->type == OSH_F_STR) osh_free(cx, *(char **)field_member(f, object));
        if (f->type == OSH_F_STRS) osh_strs_deinit(cx, field_member(f, object));
        field_zero(f, object);
    }
}
