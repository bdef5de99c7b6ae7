/* yaml_scalar.c - resolves plain scalars as PyYAML's safe loader does (yaml/resolver.py,
 * yaml/constructor.py).
 *
 * The rules are those of YAML 1.1: yes, no, on and off are booleans; 010 is octal; 1:30 is ninety.
 * A float needs a dot, and a sign in its exponent, so 1e3 and 1.0e3 are strings. Dates are strings,
 * because no recipe contains a date. */
#include "text/yaml_scalar.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool word_is_one_of(const char *s, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(s, *words)) return true;
    return false;
}

/* Skips a character of `first` and then all characters of `rest`. Returns the position after them,
 * or NULL if s does not begin with a character of `first`. */
static const char *skip_run(const char *s, const char *first, const char *rest)
{
    if (!*s || !strchr(first, *s)) return NULL;
    s++;
    return s + strspn(s, rest);
}

static const char *skip_sign(const char *s) { return *s == '-' || *s == '+' ? s + 1 : s; }

/* Skips text that matches (:[0-5]?[0-9])+. Returns the position after it, or NULL if s does not
 * begin with such text. */
static const char *skip_sixties(const char *s)
{
    const char *start = s;

    while (*s == ':') {
        const char *d = s + 1;
        if (*d >= '0' && *d <= '5' && d[1] >= '0' && d[1] <= '9') d++;
        if (*d < '0' || *d > '9') break;
        s = d + 1;
    }
    return s > start ? s : NULL;
}

#define DIGITS "0123456789"

/* True if the rest of the text matches ([eE][-+][0-9]+)?. */
static bool exponent_ends(const char *s)
{
    if (!*s) return true;
    if ((*s != 'e' && *s != 'E') || (s[1] != '-' && s[1] != '+')) return false;
    s = skip_run(s + 2, DIGITS, DIGITS);
    return s && !*s;
}

static bool is_float(const char *text)
{
    const char *s = skip_sign(text), *p;
    static const char *const inf[] = {".inf", ".Inf", ".INF", NULL};
    static const char *const nan_words[] = {".nan", ".NaN", ".NAN", NULL};

    if (word_is_one_of(s, inf) || word_is_one_of(text, nan_words)) return true;
    if (*text == '.') { // a number that begins with a dot has no sign
        p = skip_run(text + 1, DIGITS, DIGITS "_");
        return p && exponent_ends(p);
    }
    p = skip_run(s, DIGITS, DIGITS "_");
    if (!p) return false;
    if (*p == '.') return exponent_ends(p + 1 + strspn(p + 1, DIGITS "_"));
    p = skip_sixties(p);
    return p && *p == '.' && !p[1 + strspn(p + 1, DIGITS "_")];
}

/* Copies a number to `to` without its underscores. */
static void drop_underscores(char *to, const char *s)
{
    for (; *s; s++)
        if (*s != '_') *to++ = *s;
    *to = 0;
}

static double float_value(const char *text)
{
    char s[512];
    double v = 0, sign = *text == '-' ? -1 : 1;
    const char *word = skip_sign(text);

    if (word[0] == '.' && (word[1] == 'i' || word[1] == 'I')) return sign * INFINITY;
    if (word[0] == '.' && (word[1] == 'n' || word[1] == 'N')) return NAN;
    drop_underscores(s, word);
    if (!strchr(s, ':')) return sign * strtod(s, NULL);
    for (const char *p = s; p; p = strchr(p, ':')) {
        p += *p == ':';
        v = v * 60 + strtod(p, NULL);
    }
    return sign * v;
}

/* Returns the base in which an integer is written, 60 for 1:30. Returns 0 if the text is not an
 * integer. */
static int int_base(const char *text)
{
    const char *s = skip_sign(text), *p;

    if (s[0] == '0' && s[1] == 'b') return (p = skip_run(s + 2, "01_", "01_")) && !*p ? 2 : 0;
    if (s[0] == '0' && s[1] == 'x') {
        p = skip_run(s + 2, DIGITS "abcdefABCDEF_", DIGITS "abcdefABCDEF_");
        return p && !*p ? 16 : 0;
    }
    if (s[0] == '0')
        return !s[1] ? 10 : (p = skip_run(s + 1, "01234567_", "01234567_")) && !*p ? 8 : 0;
    p = skip_run(s, "123456789", DIGITS "_");
    if (!p) return 0;
    if (!*p) return 10;
    p = skip_sixties(p);
    return p && !*p ? 60 : 0;
}

static int digit_value(char c)
{
    return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
}

static bool int_value(int64_t *out, const char *text, int base)
{
    const char *s = skip_sign(text);
    int64_t v = 0, part = 0;
    int step = base == 60 ? 10 : base;

    if (base == 2 || base == 16) s += 2;
    /* Computes the value as a negative number. The smallest int64_t has no positive counterpart. */
    for (; *s; s++) {
        if (*s == '_') continue;
        if (*s == ':') {
            if (__builtin_mul_overflow(v, 60, &v) || __builtin_add_overflow(v, part, &v))
                return false;
            part = 0;
            continue;
        }
        if (__builtin_mul_overflow(part, step, &part) ||
            __builtin_sub_overflow(part, digit_value(*s), &part))
            return false;
    }
    if (__builtin_mul_overflow(v, 60, &v) || __builtin_add_overflow(v, part, &v)) return false;
    if (*text != '-' && __builtin_sub_overflow((int64_t)0, v, &v)) return false;
    *out = v;
    return true;
}

bool osh_yaml_resolve(osh_yaml *y)
{
    static const char *const yes[] = {"yes",  "Yes", "YES", "true", "True",
                                      "TRUE", "on",  "On",  "ON",   NULL};
    static const char *const no[] = {"no",    "No",  "NO",  "false", "False",
                                     "FALSE", "off", "Off", "OFF",   NULL};
    static const char *const null[] = {"", "~", "null", "Null", "NULL", NULL};
    const char *s = y->text;

    y->kind = OSH_Y_STR;
    if (word_is_one_of(s, null)) {
        y->kind = OSH_Y_NULL;
    } else if (word_is_one_of(s, yes) || word_is_one_of(s, no)) {
        y->kind = OSH_Y_BOOL;
        y->b = word_is_one_of(s, yes);
    } else if (strlen(s) < 512 && is_float(s)) {
        y->kind = OSH_Y_FLOAT;
        y->f = float_value(s);
    } else if (int_base(s)) {
        y->kind = OSH_Y_INT;
        if (!int_value(&y->i, s, int_base(s))) return false;
        y->f = (double)y->i;
    }
    return true;
}
