/* regex.h - PCRE2 with UTF and Unicode properties.
 *
 * An osh_regex holds the working memory of a match: one thread at a time. */
#ifndef OSH_REGEX_H
#define OSH_REGEX_H
#include "base/base.h"

typedef struct osh_regex osh_regex;
typedef struct osh_hit {
    size_t start, end; // start SIZE_MAX: none
} osh_hit;
osh_status osh_regex_new(osh_ctx *cx, osh_regex **out, const char *pattern, size_t n);
void osh_regex_free(osh_ctx *cx, osh_regex *r);
/* Finds the first match at or after from. Fails only on a match limit or bad UTF-8. */
osh_status osh_regex_find(osh_ctx *cx, osh_regex *r, const char *s, size_t n, size_t from, osh_hit *at);
/* The same where s is known to be valid UTF-8 and from to be at a character: nothing is checked, so that a scan
 * through a long text does not read its rest again for every match. */
osh_status osh_regex_find_valid(osh_ctx *cx, osh_regex *r, const char *s, size_t n, size_t from, osh_hit *at);
/* Text that follows s may change what is found at its end: at->start SIZE_MAX: no match is certain yet, and none begins
 * before at->end. */
osh_status osh_regex_find_open(osh_ctx *cx, osh_regex *r, const char *s, size_t n, size_t from, osh_hit *at);
bool osh_regex_local(const osh_regex *r); // it looks at nothing before the place where a search starts; never empty
/* Python's re.match: anchored at the start only. */
osh_status osh_regex_match(osh_ctx *cx, osh_regex *r, const char *s, size_t n, bool *yes);
#endif
