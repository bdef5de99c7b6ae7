/* regex.h - finds matches of regular expressions with PCRE2, with UTF and Unicode properties.
 *
 * An osh_regex contains the working memory of a match, so only one thread may use it at a time. */
#ifndef OSH_REGEX_H
#define OSH_REGEX_H
#include "base/base.h"

typedef struct osh_regex osh_regex;
typedef struct osh_hit {
    size_t start, end; // start is SIZE_MAX if there is no match
} osh_hit;
/* Compiles the pattern [n]. Fails with OSH_E_FORMAT if it is not a valid regex. The caller frees
 * *out with osh_regex_free. */
osh_status osh_regex_new(osh_ctx *cx, osh_regex **out, const char *pattern, size_t n);
void osh_regex_free(osh_ctx *cx, osh_regex *r);
/* Finds the first match at or after `from`. Fails if the search takes too many steps or if s is not
 * UTF-8. Also fails if the match splits a character or begins before `from`. */
osh_status osh_regex_find(osh_ctx *cx, osh_regex *r, const char *s, size_t n, size_t from,
                          osh_hit *at);
/* Finds a match like osh_regex_find. s must be valid UTF-8, and `from` must be between two
 * characters. The function does not check this: for a long text, a check before every match would
 * be slow. */
osh_status osh_regex_find_valid(osh_ctx *cx, osh_regex *r, const char *s, size_t n, size_t from,
                                osh_hit *at);
/* Finds a match in a text that may continue after s. A continuation can change a match that reaches
 * the end of s, so such a match is not returned. If a continuation can change every match, sets
 * at->start to SIZE_MAX, and at->end to a position before which no match begins. */
osh_status osh_regex_find_open(osh_ctx *cx, osh_regex *r, const char *s, size_t n, size_t from,
                               osh_hit *at);
/* True if every match has at least one byte, and depends only on text after the start of the
 * search. */
bool osh_regex_local(const osh_regex *r);
/* Sets *yes to true if the expression matches at the start of s, as Python's re.match does. */
osh_status osh_regex_match(osh_ctx *cx, osh_regex *r, const char *s, size_t n, bool *yes);
#endif
