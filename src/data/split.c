/* split.c - reads splits such as "train[10%:20%]", like ReadInstruction of Hugging Face's datasets.
 * If one bound has a %, both bounds are percents. Percents are rounded to the nearest row, ties to
 * the even row. A negative bound counts from the end. Bounds are limited to the rows that exist. */
#include "data/split.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PART = 256 };

typedef struct bound {
    bool given, percent;
    int64_t value;
} bound;

/* Reads a bound, such as "10%", "-5" or "1_000", and moves *at to its end. A bound may be
 * absent. */
static bool read_bound(bound *b, const char **at)
{
    char digits[20];
    size_t n = 0;
    const char *s = *at;
    bool below = *s == '-';
    *b = (bound){0};
    if (below) s++;
    for (; isdigit((unsigned char)*s) || (*s == '_' && n); s++) {
        if (*s == '_') continue;
        if (n + 1 >= sizeof digits - 1) return false;
        digits[n++] = *s;
    }
    digits[n] = 0;
    if (!n) return !below; // the bound is absent
    b->given = true, b->value = strtoll(digits, NULL, 10) * (below ? -1 : 1);
    if ((b->percent = *s == '%')) s++;
    *at = s;
    return true;
}

const char *osh_split_part(const char *text, int i, size_t *n)
{
    const char *s = text;
    for (; s && i--; s += s != NULL) s = strchr(s, '+');
    *n = s ? strcspn(s, "+") : 0;
    for (; *n && *s == ' '; s++) --*n;
    while (*n && s[*n - 1] == ' ') --*n;
    return s;
}

/* Reads n bytes of a split: a name such as "train", and optionally rows in brackets. */
static bool read_split(bound *from, bound *to, const char *text, size_t n)
{
    char part[MAX_PART];
    const char *s = part;
    *from = *to = (bound){0};
    if (n >= sizeof part) return false;
    memcpy(part, text, n), part[n] = 0;
    while (isalnum((unsigned char)*s) || *s == '_' || (*s == '.' && s > part && s[-1] != '.')) s++;
    if (s == part || s[-1] == '.') return false;
    if (!*s) return true;
    if (*s++ != '[' || !read_bound(from, &s) || *s++ != ':' || !read_bound(to, &s)) return false;
    return !strcmp(s, "]");
}

/* Returns the number of the row to which the bound b refers, in a file with n rows. Returns
 * `missing` if the bound is absent. */
static int64_t bound_row(const bound *b, bool percent, int64_t n, int64_t missing)
{
    int64_t row = !b->given ? missing
                  : percent ? (int64_t)nearbyint((double)b->value * (double)n / 100.0)
                            : b->value;
    if (row < 0) row += n;
    return row < 0 ? 0 : row > n ? n : row;
}

osh_status osh_split_check(osh_ctx *cx, bool *wants_count, const char *text)
{
    bound from, to;
    size_t n;
    const char *part;
    *wants_count = false;
    for (int i = 0; text && (part = osh_split_part(text, i, &n)); i++) {
        if (!read_split(&from, &to, part, n))
            return osh_fail(cx, OSH_E_USAGE,
                            "splits is '%s': want a split, such as train, train[:512] or "
                            "train[10%%:20%%], or a sum, such as train[:50]+test[:50]",
                            text);
        bool percent = from.percent || to.percent;
        if (percent && (llabs(from.value) > 100 || llabs(to.value) > 100))
            return osh_fail(cx, OSH_E_USAGE, "splits is '%s': want percents up to 100", text);
        *wants_count |= percent || from.value < 0 || to.value < 0;
    }
    return OSH_OK;
}

bool osh_split_is_sliced(const char *text)
{
    size_t n;
    const char *part;
    for (int i = 0; (part = osh_split_part(text, i, &n)); i++)
        if (!memchr(part, '[', n)) return false;
    return true;
}

bool osh_split_rows(int64_t *first, int64_t *end, const char *text, int i, int64_t n_rows)
{
    bound from = {0}, to = {0};
    size_t n = 0;
    const char *part = text ? osh_split_part(text, i, &n) : NULL;
    if (part) read_split(&from, &to, part, n);
    bool percent = from.percent || to.percent;
    *first = bound_row(&from, percent, n_rows, 0);
    *end = bound_row(&to, percent, n_rows, n_rows);
    if (*end < *first) *end = *first;
    return part || (!text && !i);
}
