/* python_regex.c - checks that Python's re accepts a pattern and that both Python's re and PCRE2
 * give the pattern the same meaning. Errors that osh_regex_new finds are not checked. */
#include "text/python_regex.h"
#include <stdlib.h>
#include <string.h>

static const char digits[] = "0123456789", hexits[] = "0123456789abcdefABCDEF";

enum { DEPTH_MOST = 100, NAMES_MOST = 50 };

typedef struct reader {
    osh_ctx *cx;
    const char *s; // view: the pattern
    size_t at;
    bool body; // true if the pattern before `at` has an item other than options and comments
    int open[DEPTH_MOST]; // number of each open group; 0: the group does not capture
    /* n_open: number of open groups at `at`; n_groups: number of groups before `at` that
     * capture. */
    int n_open, n_groups;
    int behind; // n_open at the start of the outermost lookbehind; -1: `at` is not in a lookbehind
    int before_behind;    // n_groups at the start of the outermost lookbehind
    struct group_name {
        const char *s; // view: position in the pattern
        size_t n;
        int number;
    } names[NAMES_MOST];
    int n_names;
} reader;

static osh_status python_refuse(const reader *r, const char *why)
{
    return osh_fail(r->cx, OSH_E_FORMAT,
                    "regular expression '%.200s', byte %zu: %s; transformers and vLLM use "
                    "Python's re, which refuses this or reads it differently",
                    r->s, r->at, why);
}

static bool is_one_of(const char *set, char c) { return c && strchr(set, c); }

/* Fails if group `number` begins after `at`, is not closed, or began in the lookbehind that
 * contains `at`. */
static osh_status check_reference(reader *r, int number)
{
    for (int i = 0; i < r->n_open; i++)
        if (r->open[i] == number) return python_refuse(r, "a reference to a group that is open");
    if (number < 1 || number > r->n_groups)
        return python_refuse(r, "a reference to a group that does not exist before it");
    if (r->behind >= 0 && number > r->before_behind)
        return python_refuse(r, "a reference to a group of the same lookbehind");
    return OSH_OK;
}

static osh_status check_name(reader *r, const char *name)
{
    size_t n = strcspn(name, ")");
    for (int i = 0; i < r->n_names; i++)
        if (r->names[i].n == n && !memcmp(r->names[i].s, name, n))
            return check_reference(r, r->names[i].number);
    return python_refuse(r, "a reference to a name that no group before it has");
}

/* Opens a group. `name` is the name of (?P<name>...), or NULL. */
static osh_status group_push(reader *r, bool captures, const char *name)
{
    if (r->n_open == DEPTH_MOST) return python_refuse(r, "groups nested more than 100 deep");
    r->open[r->n_open++] = captures ? ++r->n_groups : 0;
    if (!name) return OSH_OK;
    if (r->n_names == NAMES_MOST) return python_refuse(r, "more than 50 groups with names");
    r->names[r->n_names++] = (struct group_name){name, strcspn(name, ">"), r->n_groups};
    return OSH_OK;
}

static void group_pop(reader *r)
{
    if (r->n_open) r->n_open--; // if no group is open, osh_regex_new reports the extra parenthesis
    if (r->n_open <= r->behind) r->behind = -1;
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Reads an escape that Python and PCRE2 read alike. After the backslash there may be: a letter of
 * `known`; an x with two hexadecimal digits; a character that is not a letter. Fails on any other
 * escape. */
static osh_status read_escape(reader *r, const char *known)
{
    const char *c = r->s + r->at + 1;
    if (*c == 'x' && (!is_one_of(hexits, c[1]) || !is_one_of(hexits, c[2])))
        return python_refuse(r, "want two hexadecimal digits after \\x");
    if (*c != 'x' && is_letter(*c) && !is_one_of(known, *c))
        return python_refuse(r, "an escape that Python and PCRE2 do not share");
    if (is_one_of("123456789", *c) && is_one_of(digits, c[1]))
        return python_refuse(r, "a number of two digits after a backslash");
    r->at += *c ? 2 : 1;
    return OSH_OK;
}

static osh_status read_brackets(reader *r)
{
    osh_status rc = OSH_OK;
    r->at++;
    if (r->s[r->at] == '^') r->at++;
    for (bool first = true; r->s[r->at] && (first || r->s[r->at] != ']'); first = false) {
        if (r->s[r->at] == '[' && r->s[r->at + 1] == ':')
            OSH_TRY(python_refuse(r, "a class of POSIX"));
        if (r->s[r->at] == '\\' && is_one_of("89", r->s[r->at + 1]))
            OSH_TRY(python_refuse(r, "a digit that is not octal"));
        if (r->s[r->at] == '\\') OSH_TRY(read_escape(r, "abdDfnrsStwW"));
        else r->at++;
    }
    if (r->s[r->at]) r->at++;
done:
    return rc;
}

/* Checks that all alternatives of a lookbehind have the same length, as Python requires. s: text of
 * the lookbehind after its "(?<=" or "(?<!". Fails if an alternative has anything but plain
 * characters. */
static osh_status check_lookbehind(const reader *r, const char *s)
{
    size_t n = 0, want = 0;
    bool several = false, plain = true, even = true;
    for (int depth = 0; *s && !(depth == 0 && *s == ')'); s++) {
        depth += (*s == '(') - (*s == ')');
        plain &= !is_one_of("()[]{}?*+^$", *s) &&
                 !(*s == '\\' && (is_letter(s[1]) || is_one_of(digits, s[1])));
        if (*s == '|') {
            even &= !several || n == want;
            want = n, n = 0, several = true;
            continue;
        }
        if (*s == '\\' && s[1]) s++;
        n += ((unsigned char)*s & 0xC0) != 0x80;
    }
    if (!several || (plain && even && n == want)) return OSH_OK;
    return python_refuse(
        r, "a lookbehind whose alternatives differ in length or are not plain characters");
}

/* Reads "(?i)" or "(?i:"; `at` is on the parenthesis. */
static osh_status read_options(reader *r)
{
    const char *s = r->s + r->at + 2;
    size_t n = strspn(s, "imsx"), off = s[n] == '-' ? 1 + strspn(s + n + 1, "imsx") : 0;
    if (n + off == 0 || off == 1 || (s[n + off] != ':' && s[n + off] != ')'))
        return python_refuse(r, "a kind of group that Python and PCRE2 do not share");
    for (size_t i = 0; i < n + off; i++)
        if (memchr(s, s[i], i)) return python_refuse(r, "an option that is named twice");
    if (s[n + off] == ')' && (r->body || off))
        return python_refuse(r, "options of the whole pattern after the beginning of the pattern");
    r->body |= s[n + off] == ':';
    if (memchr(s, 'x', n + off))
        return python_refuse(r, "the option x, which changes the meaning of white space and #");
    r->at += 2 + n + off + 1;
    return s[n + off] == ':' ? group_push(r, false, NULL) : OSH_OK;
}

static osh_status python_read_group(reader *r)
{
    const char *s = r->s + r->at;
    if (s[1] == '*') return python_refuse(r, "a verb");
    if (s[1] != '?') {
        r->body = true, r->at++;
        return group_push(r, true, NULL);
    }
    if (s[2] == '#') { // "(?#" begins a comment
        const char *end = strchr(s, ')');
        r->at += end ? (size_t)(end + 1 - s) : strlen(s);
        return OSH_OK;
    }
    if (!is_one_of(":=!><P(", s[2])) return read_options(r);
    r->body = true;
    if (s[2] == '<' && s[3] != '=' && s[3] != '!')
        return python_refuse(r, "a name that is not written (?P<name>...)");
    if (s[2] == 'P' && s[3] != '<' && s[3] != '=') return python_refuse(r, "a call of a group");
    if (s[2] == '(' && (!strspn(s + 3, digits) || s[3 + strspn(s + 3, digits)] != ')'))
        return python_refuse(r, "a condition that is not the number of a group");
    if (s[2] == 'P' && s[3] == '=') {
        osh_status rc = check_name(r, s + 4);
        r->at += 2 + strcspn(s + 2, ")") + (strchr(s, ')') != NULL);
        return rc;
    }
    if (s[2] == '<') {
        osh_status rc = check_lookbehind(r, s + 4);
        if (rc) return rc;
        if (r->behind < 0) r->behind = r->n_open, r->before_behind = r->n_groups;
    }
    if (s[2] == '(' && r->behind >= 0) {
        // in a lookbehind, the group of a condition must end before the condition; elsewhere it
        // need not
        osh_status rc = check_reference(r, atoi(s + 3));
        if (rc) return rc;
    }
    r->at += s[2] == '(' ? 3 + strcspn(s + 3, ")") : s[2] == 'P' ? 2 + strcspn(s + 2, ">") : 3;
    if (s[2] == '(') r->at += r->s[r->at] == ')';
    return group_push(r, s[2] == 'P', s[2] == 'P' ? s + 4 : NULL);
}

osh_status osh_python_regex_check(osh_ctx *cx, const char *pattern)
{
    osh_status rc = OSH_OK;
    reader r = {.cx = cx, .s = pattern, .behind = -1};
    while (pattern[r.at]) {
        char c = pattern[r.at];
        if (c == '(') {
            OSH_TRY(python_read_group(&r));
            continue;
        }
        r.body = true;
        if (c == ')') group_pop(&r);
        if (c == '\\' && is_one_of("123456789", pattern[r.at + 1]))
            OSH_TRY(check_reference(&r, pattern[r.at + 1] - '0'));
        if (c == '\\') OSH_TRY(read_escape(&r, "aAbBdDfnrsStwWZ"));
        else if (c == '[') OSH_TRY(read_brackets(&r));
        else if (c == '{' && pattern[r.at + 1] == ',' &&
                 pattern[r.at + 2 + strspn(pattern + r.at + 2, digits)] == '}')
            OSH_TRY(python_refuse(&r, "a repeat without a smallest number"));
        else r.at++;
    }
done:
    return rc;
}
